"""Releases of some classes only, and of a field that is held out for test, from tables of several files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import sciscidata as ssd
from sciscidata.cli.main import main
from sciscidata.errors import ConfigError, NotEnoughWorksError
from sciscidata.release.methods import describe_methods
from sciscidata.release.read import SELF_HASH, hash_manifest, render_manifest
from sciscidata.sampling.split import draw_split, group_of_keys, split_keys

TWO = ("disruptive", "consolidating")
FIELDS = ("archaeology", "law", "physics")


def make_works(n=3_000):
    labels = ["disruptive", "consolidating", "neutral", "neutral"]
    return pl.DataFrame(
        {
            "work_id": range(1, n + 1),
            "disruption_label": [labels[(number * 7) % 4] for number in range(n)],
            "novelty_label": [("novel", "balanced", "conventional")[number % 3] for number in range(n)],
            "primary_field": [(*FIELDS, None)[number // 4 % 4 if number % 11 else 3] for number in range(n)],
            "publication_year": [1990 + number // 16 % 20 for number in range(n)],
        },
        schema_overrides={"work_id": pl.Int64, "publication_year": pl.Int32},
    )


@pytest.mark.parametrize("balance", ["disruption", "pool", "disruption_within_field_year", "joint"])
def test_only_the_named_classes_are_drawn_in_equal_numbers(balance):
    config = ssd.SplitConfig(n_train=120, n_test=36, n_dev=12, balance=balance, labels=TWO)
    drawn = draw_split(make_works(), config)
    counts = Counter(drawn.select("split", "disruption_label").rows())
    assert {label for _, label in counts} == set(TWO)
    if balance != "pool":
        assert {counts[split, label] * 2 for split, label in counts if split == "test"} == {36}
    if balance == "joint":
        assert len(drawn.unique(["disruption_label", "novelty_label"])) == 6


def test_a_work_of_another_class_changes_nothing():
    works, config = make_works(), ssd.SplitConfig(n_train=120, n_test=36, labels=TWO)
    of_two = works.filter(pl.col("disruption_label") != "neutral")
    assert draw_split(works, config).equals(draw_split(of_two, config))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": ("disruptive",)}, "needs two or more different ones of disruptive, consolidating, neutral"),
        ({"labels": ("disruptive", "novel")}, r"SplitConfig.labels is \('disruptive', 'novel'\)"),
        ({"labels": TWO, "balance": "none"}, "balances no label"),
        ({"test_fields": ("law",), "balance": "pool"}, "divides one pool"),
        ({"test_fields": ("law",), "n_test": 0}, "SplitConfig.n_test is 0. Raise"),
    ],
)
def test_options_that_do_not_suit_the_balance_are_one_clear_error(options, said):
    with pytest.raises(ConfigError, match=said):
        ssd.SplitConfig(**options)


@pytest.mark.parametrize("balance", ["disruption", "novelty", "none", "disruption_within_field_year"])
def test_a_field_is_held_out_and_no_other_work_decides(balance):
    works = make_works()
    config = ssd.SplitConfig(n_train=90, n_test=30, n_dev=12, balance=balance, test_fields=("law",))
    drawn = draw_split(works, config)
    fields = dict(drawn.group_by("split").agg(pl.col("primary_field").unique().sort()).rows())
    assert fields == {"test": ["law"], "train": ["archaeology", "physics"], "dev": ["archaeology", "physics"]}
    few = works.filter(pl.col("work_id") % 7 > 0)
    sides = [dict(frame.select("work_id", "split").rows()) for frame in (drawn, draw_split(few, config))]
    assert all(sides[0][work] == side for work, side in sides[1].items() if work in sides[0])
    assert group_of_keys(split_keys(works["work_id"]), config, works["primary_field"]).null_count() > 0


def test_a_field_that_no_work_has_names_the_nearest():
    with pytest.raises(ConfigError, match=r"'archeology'.*Did you mean archaeology.*archaeology, law, physics"):
        draw_split(make_works(), ssd.SplitConfig(n_train=9, n_test=3, test_fields=("archeology",)))


def test_fields_that_leave_none_for_train_are_named():
    fields = {"test_fields": FIELDS, "n_test": 30}
    with pytest.raises(ConfigError, match=r"every field .*archaeology, law, physics.*train has no field"):
        draw_split(make_works(), ssd.SplitConfig(n_train=9, **fields))
    assert draw_split(make_works(), ssd.SplitConfig(n_train=0, **fields)).height == 30


def test_a_field_that_differs_by_case_or_blanks_is_warned_of(caplog):
    config = ssd.SplitConfig(n_train=90, n_test=30, test_fields=("law",))
    draw_split(make_works(), config)
    assert not caplog.records
    draw_split(make_works().with_columns(pl.col("primary_field").replace("physics", " Law ")), config)
    assert "holds 'law' out, and train may have works of ' Law '" in caplog.text


@pytest.mark.parametrize(("sizes", "short", "kept"), [((60, 4_000), "test", "train"), ((4_000, 40), "train", "test")])
@pytest.mark.parametrize("balance", ["disruption", "disruption_within_field_year"])
def test_where_a_field_is_held_out_only_the_short_side_is_advised_to_shrink(sizes, short, kept, balance):
    wanted = dict(zip(("n_train", "n_test"), sizes, strict=True))
    with pytest.raises(NotEnoughWorksError) as error:
        draw_split(make_works(), ssd.SplitConfig(**wanted, balance=balance, test_fields=("law",)))
    fits = error.value.fits
    assert fits.sizes[kept] == wanted[f"n_{kept}"]
    assert f"Lower SplitConfig.n_{short} (for example " in str(error.value)
    assert draw_split(make_works(), fits)["split"].value_counts().height == 2
    assert fits.sizes[short] > 300


def write_tables(folder: Path) -> list[str]:
    """Write three fields of a synthetic world as tables of their own."""
    world = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=6_000))
    works = world.works.collect().with_columns(
        primary_field=pl.Series([FIELDS[number % 3] for number in range(6_000)]),
        last_full_year=pl.Series([2024 - 4 * (number % 3 == 0) for number in range(6_000)], dtype=pl.Int32),
    )
    flags = ["--works"]
    for field, rows in works.partition_by("primary_field", as_dict=True).items():
        rows.drop("concepts").write_parquet(folder / f"{field[0]}.parquet")
        flags.append(str(folder / f"{field[0]}.parquet"))
    world.citations.collect().write_parquet(folder / "citations.parquet")
    return [*flags, "--citations", str(folder / "citations.parquet")]


@pytest.mark.parametrize("field", FIELDS)
def test_the_command_holds_out_each_field_and_verify_knows_it(field, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["build", *write_tables(tmp_path), "--test-field", field, "--only-label", *TWO, "--no-novelty"]
    assert not main([*words, "--n-train", "60", "--n-test", "20", "--n-dev", "10", "--out", "held"])
    release = ssd.read_release("held")
    assert set(release.test["primary_field"]) == {field}
    assert field not in {*release.train["primary_field"], *release.dev["primary_field"]}
    assert set(release.test["disruption_label"]) == set(TWO)
    early = release.train.vstack(release.test).filter(primary_field=FIELDS[0])["publication_year"]
    assert early.max() == 2015  # its window ends with its last full year, 2020
    assert release.manifest["split"]["test_fields"] == [field]
    printed = capsys.readouterr()
    assert release.manifest["diagnostics"][-1]["text"].startswith(f"of {field} alone: ")
    n_unread = release.manifest["counts"]["text"]["not_read"]
    assert n_unread > 0
    card, methods = Path("held/README.md").read_text("utf-8"), " ".join(describe_methods("held").split())
    out = " ".join(printed.out.split())
    for text in (out, card, methods):
        assert f"The texts of {n_unread:,} works that may be drawn were not read." in text
        assert "window not over before its data" in text
    assert "their window was over before their data end" in out
    assert "may be drawn, at most" in out
    assert f"| may be drawn, at most | {release.manifest['counts']['filters']['eligible']:,} |" in card
    assert not main(["verify", "held"])
    assert f"All test works are of {field}" in card
    assert "decides on its split" not in card
    assert "the classes disruptive and consolidating only" in card
    assert "held out" in describe_methods("held")
    capsys.readouterr()
    manifest = json.loads(Path("held/manifest.json").read_text("utf-8"))
    manifest["split"]["test_fields"] = [next(name for name in FIELDS if name != field)]
    manifest[SELF_HASH] = hash_manifest(manifest)
    Path("held/manifest.json").write_bytes(render_manifest(manifest))
    assert main(["verify", "held"])
    assert "by field or id" in capsys.readouterr().err


def test_tables_of_which_some_lack_the_last_full_year_are_one_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = write_tables(tmp_path)
    pl.read_parquet("law.parquet").drop("last_full_year").write_parquet("law.parquet")
    assert main(["build", *flags, "--no-novelty", "--out", "held"])
    assert "law.parquet has no column 'last_full_year'" in capsys.readouterr().err


def test_tables_with_numberings_of_their_own_are_told_apart(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_tables(tmp_path)
    sides = {}
    for field in ("law", "physics"):  # each numbered from 1 on, with references outside, too
        works, edges = pl.read_parquet(f"{field}.parquet"), pl.read_parquet("citations.parquet")
        own = edges.join(works.select(citing_id="work_id"), on="citing_id", how="semi")
        ids = pl.concat([works["work_id"], own["cited_id"]]).unique(maintain_order=True)
        number = dict(zip(ids.to_list(), range(1, len(ids) + 1), strict=True))
        works.with_columns(pl.col("work_id").replace_strict(number)).write_parquet(f"{field}_w.parquet")
        own.with_columns(pl.all().replace_strict(number)).write_parquet(f"{field}_c.parquet")
        scores = ssd.compute_cd_index(works, own).sort("work_id").collect()["cd_index"]
        sides[field] = Counter(scores.drop_nulls().round(9).to_list())
    flags = ["--works", "law_w.parquet", "physics_w.parquet", "--citations", "law_c.parquet", "physics_c.parquet"]
    words = [
        "build",
        *flags,
        "--no-novelty",
        "--n-train",
        "60",
        "--n-test",
        "20",
        "--test-field",
        "law",
        "--out",
        "held",
    ]
    assert main(words)
    assert "If each file has a numbering of its own" in capsys.readouterr().err
    assert not main([*words, "--apart"])
    assert not main(["verify", "held"])
    release = ssd.read_release("held")
    assert {name.partition(":")[0] for name in release.test["openalex_id"]} == {"1"}
    assert {name.partition(":")[0] for name in release.train["openalex_id"]} == {"2"}
    assert not main(["ingest", *flags, "--apart", "--out", "corpus"])
    corpus = ssd.scan_corpus("corpus")
    scores = ssd.compute_cd_index(corpus.works, corpus.citations).drop_nulls("cd_index").collect()
    assert Counter(scores["cd_index"].round(9).to_list()) == sides["law"] + sides["physics"]
