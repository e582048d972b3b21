"""Filters of one's own (``EligibilityConfig.where``) are applied, counted and stated like the others, on every path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

from sciscidata import (
    BuildConfig,
    CorpusConfig,
    EligibilityConfig,
    LabelledConfig,
    OpenAlexConfig,
    SplitConfig,
    SyntheticConfig,
    build,
    export_labelled,
    ingest,
    verify,
)
from sciscidata.cli.main import main
from sciscidata.eligibility import FILTERS, Filter
from sciscidata.errors import ConfigError, NotEnoughWorksError
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.sources.example.source import WORKS_FILE
from tests.servers.openalex_server import OpenAlexServer
from tests.sources.test_openalex import KEY, config

WORLD = SyntheticConfig(n_works=4_000)
SPLIT = SplitConfig(n_train=18, n_test=6)
LONG = pl.col("abstract").str.count_matches(r"\w+") >= 100
EVEN = pl.col("n_references") % 2 == 0
#: A text and a score in one expression: it is known only once the text is read.
MIXED = (pl.col("title").str.len_chars() > 90) | (pl.col("cd_index") > 0)
#: What no source reads before texts, and no other filter reads.
RARE = pl.col("cited_by_count") <= 2
WHERE = {"long": LONG, "even": EVEN, "mixed": MIXED, "cited": pl.col("cited_by_count") > 2}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("own")
    ingest(WORLD, home / "corpus", cache_dir=home / "cache")
    export_labelled(BuildConfig(source=WORLD, out=home / "labelled", cache_dir=home / "cache"))
    return home


def draw(home: Path, out: Path, source: Any, where: dict[str, pl.Expr], **changes: Any) -> Any:
    rules = EligibilityConfig(where=where, last_year=2024)
    options = {"split": SPLIT, "eligibility": rules, "cache_dir": home / "cache"}
    return build(BuildConfig(source=source, out=out, **options | changes))


def lines(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}


def test_a_new_row_of_the_table_is_read_late_where_its_expression_reads_texts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cast("dict[str, Filter]", FILTERS), "cited", Filter("rarely cited", removes=lambda _, __: RARE))
    after, before = (
        draw(home, tmp_path / name, source, {})
        for name, source in {"after": WORLD, "before": CorpusConfig(folder=home / "corpus")}.items()
    )
    assert lines(before.folder) == lines(after.folder)
    assert after.manifest["counts"]["filters"]["cited"] > 20
    assert after.train.select((pl.col("cited_by_count") > 2).all()).item()


@pytest.mark.parametrize("rule", ["margin", "uzzi"])
def test_a_filter_of_ones_own_draws_the_same_works_after_texts_and_before_them(
    home: Path, tmp_path: Path, rule: Any
) -> None:
    labels = {"thresholds": LabelThresholds(novelty_rule=rule)}
    after = draw(home, tmp_path / "after", WORLD, WHERE, **labels)
    draw(home, tmp_path / "before", CorpusConfig(folder=home / "corpus"), WHERE, **labels)
    assert lines(tmp_path / "before") == lines(tmp_path / "after")
    assert lines(tmp_path / "after") != lines(draw(home, tmp_path / "plain", WORLD, {}, **labels).folder)
    assert after.train.select((LONG & (pl.col("cited_by_count") > 2)).all()).item()
    counts = after.manifest["counts"]["filters"]
    assert all(counts[name] > 20 for name in WHERE)
    assert sum(n for name, n in counts.items() if name != "works") == counts["works"] == 4_000


def test_labelled_files_are_filtered_too(home: Path, tmp_path: Path) -> None:
    release = draw(home, tmp_path / "slice", LabelledConfig(inputs=(str(home / "labelled"),)), {"long": LONG})
    assert release.train.select(LONG.all()).item()


def test_the_manifest_states_a_filter_of_ones_own_and_verify_says_that_it_is_not_recomputed(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release = draw(home, tmp_path / "slice", WORLD, {"long": LONG, "even": EVEN})
    stated = json.loads((tmp_path / "slice/manifest.json").read_bytes())["eligibility"]["where"]
    assert stated == [{"name": name, "expression": str(WHERE[name])} for name in ("long", "even")]
    n_long = f"-{release.manifest['counts']['filters']['long']:,}"
    assert f"| not long | {n_long} |" in (tmp_path / "slice/README.md").read_text()
    assert "filter long" in verify(tmp_path / "slice").recomputed.left
    assert main(["describe", str(tmp_path / "slice")]) == 0
    assert "not long" in capsys.readouterr().out
    again = ["--from-manifest", str(tmp_path / "slice"), "--out", str(tmp_path / "again")]
    assert main(["build", *again]) == 1
    assert "long, even of" in (told := capsys.readouterr().err)
    assert "EligibilityConfig.where" in told
    assert "where" not in draw(home, tmp_path / "plain", WORLD, {}).manifest["eligibility"]


def test_a_settings_file_cannot_hold_a_filter_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text("[eligibility]\nwhere = {long = 'abstract'}\n")
    assert main(["build", "--config", str(tmp_path / "run.toml")]) == 1
    assert "[eligibility] of the settings file cannot hold 'where'" in capsys.readouterr().err
    assert main(["build", "--source", "synthetic", "--print-config"]) == 0
    assert "where" not in capsys.readouterr().out


def test_configurations_with_filters_of_ones_own_are_equal_where_these_are() -> None:
    one, other = (EligibilityConfig(where={"long": pl.col("title").str.len_chars() > n}) for n in (5, 6))
    same = EligibilityConfig(where={"long": pl.col("title").str.len_chars() > 5})
    assert one == same
    assert hash(one) == hash(same)
    assert repr(one) == repr(same)
    assert "len_chars" in repr(one)
    assert one != other
    assert one != EligibilityConfig()
    assert EligibilityConfig(where={}) == EligibilityConfig()


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ({"retracted": LONG}, r"where\['retracted'\].*name"),
        ({"eligible": LONG}, r"where\['eligible'\].*name"),
        ({"Long work": LONG}, r"where\['Long work'\].*small letters"),
        ({"a": pl.col("cited_by_count") > pl.col("cited_by_count").mean()}, r"mean\(\), which depends on other works"),
        ({"a": pl.col("title").is_unique()}, "depends on other works.*OwnLabel.expression"),
        ({"a": pl.all().is_not_null()}, "several columns"),
        ({"a": 3}, "needs a dict of names and Polars expressions"),
        (LONG, "needs a dict of names and Polars expressions"),
    ],
)
def test_a_filter_that_cannot_be_used_is_one_clear_error(where: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        EligibilityConfig(where=where)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (pl.col("titel") == "x", "reads the column 'titel'.*Did you mean title"),
        (pl.col("title").str.len_chars(), r"where\['mine'\] is UInt32, needs True or False"),
        (pl.col("publication_year").str.contains("x"), r"where\['mine'\] cannot be computed"),
        (pl.col("title").cast(pl.Int64, strict=True) > 3, r"where \(mine\) cannot be computed"),
    ],
)
def test_a_filter_that_cannot_be_computed_is_one_clear_error(
    home: Path, tmp_path: Path, expression: pl.Expr, says: str, *, is_large: bool
) -> None:
    source = CorpusConfig(folder=home / "corpus") if is_large else WORLD
    with pytest.raises(ConfigError, match=says):
        draw(home, tmp_path / "slice", source, {"mine": expression})
    assert not (tmp_path / "slice").exists()


def test_where_a_filter_of_ones_own_removes_all_works_the_error_names_it(home: Path, tmp_path: Path) -> None:
    with pytest.raises(NotEnoughWorksError, match=r"EligibilityConfig.where\['none'\] removed most"):
        draw(home, tmp_path / "slice", WORLD, {"none": pl.col("title") == "x"})


def test_the_api_pays_only_for_works_that_pass_a_filter_of_ones_own(tmp_path: Path) -> None:
    long = pl.col("abstract").str.len_chars() >= 1_000
    with OpenAlexServer(WORKS_FILE, key=KEY) as server:
        rules = EligibilityConfig(last_year=2022, where={"long": long})
        settings = config(server, tmp_path, eligibility=rules, split=SplitConfig(n_train=9, n_test=3))
        release = build(settings)
        assert release.train.select(long.all()).item()
        assert release.manifest["counts"]["filters"]["long"] == 0  # no work was scored
        assert release.manifest["source"]["passed_over"]["unfit_record"] > 50
    with pytest.raises(ConfigError, match=r"where\['sure'\] reads 'cd_index'.*OpenAlex API gives a sample"):
        BuildConfig(
            source=OpenAlexConfig(), out=tmp_path, eligibility=EligibilityConfig(where={"sure": pl.col("cd_index") > 0})
        )
