"""The filters of field and venue keep the same works on every path, and leave no trace where they are off."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sciscidata import (
    ApiConfig,
    BuildConfig,
    CDConfig,
    CorpusConfig,
    EligibilityConfig,
    LabelledConfig,
    OpenAlexConfig,
    SciSciNetConfig,
    SplitConfig,
    SyntheticConfig,
    build,
    export_labelled,
    ingest,
    scan_sciscinet,
    scan_synthetic,
    verify,
)
from sciscidata.cli.build_options import resolve
from sciscidata.cli.main import main
from sciscidata.errors import ConfigError
from sciscidata.sources.openalex.candidates import Candidates
from tests.conftest import example_lines
from tests.servers.openalex_server import OpenAlexServer

WORLD = SyntheticConfig(n_works=4_000)
SPLIT = SplitConfig(n_train=18, n_test=6)
#: Filters for which an export has the columns, so that all paths filter by the same.
RULES: dict[str, Any] = {
    "exclude_retracted": False,
    "languages": (),
    "min_references": 0,
    "min_citations": 0,
    "last_year": 2024,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fields")


@pytest.fixture(scope="module")
def works() -> pl.DataFrame:
    return scan_synthetic(WORLD).works.collect()


@pytest.fixture(scope="module")
def chosen(works: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    """The two largest fields, and every second venue: some by name, some by id."""
    fields = works["primary_field"].drop_nulls().value_counts(sort=True)["primary_field"].head(2)
    venues = works.select("source_id", "source_name").drop_nulls().unique().sort("source_id")[::2]
    named = [name if i % 3 else f"S{number}" for i, (number, name) in enumerate(venues.rows())]
    return {"fields": tuple(fields), "venues": tuple(named)}


def draw(home: Path, out: Path, source: Any, **changes: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    release = build(BuildConfig(source=source, out=out, split=SPLIT, cache_dir=home / "cache", **changes))
    verify(release.folder)
    return {path.name: path.read_bytes() for path in release.folder.glob("*.jsonl")}, dict(release.manifest)


def test_every_path_draws_and_counts_the_same(
    home: Path,
    tmp_path: Path,
    works: pl.DataFrame,
    chosen: dict[str, tuple[str, ...]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules = EligibilityConfig(**RULES, **chosen)
    lines, manifest = draw(home, tmp_path / "direct", WORLD, eligibility=rules)
    counts = manifest["counts"]["filters"]
    in_field = works["primary_field"].is_in(chosen["fields"]).fill_null(value=False)
    numbers = [int(venue[1:]) for venue in chosen["venues"] if venue[1:].isdecimal()]
    in_venue = works["source_id"].is_in(numbers) | works["source_name"].is_in(chosen["venues"])
    assert counts["field"] == (~in_field).sum()
    assert counts["venue"] == (in_field & ~in_venue.fill_null(value=False)).sum() > 100
    removed = manifest["counts"]["removed"]["field"]["disruption_label"]
    assert 0 < sum(removed.values()) <= counts["field"]
    allowed = set(works.filter(in_field & in_venue)["work_id"])
    released = [json.loads(line)["openalex_id"] for lines_ in lines.values() for line in lines_.splitlines()]
    assert len(released) == 24
    assert {int(name[1:]) for name in released} <= allowed

    ingest(WORLD, home / "corpus", cache_dir=home / "cache")
    flags = ["--only-field", *chosen["fields"], "--only-venue", *chosen["venues"]]
    capsys.readouterr()
    assert main(["build", "--corpus", str(home / "corpus"), *flags, "--dry-run"]) == 0
    assert f"in the chosen fields and venues: {len(allowed):,} works" in capsys.readouterr().out
    corpus = CorpusConfig(folder=str(home / "corpus"))
    assert draw(home, tmp_path / "corpus", corpus, eligibility=rules)[0] == lines
    export_labelled(BuildConfig(source=WORLD, out=home / "all", cache_dir=home / "cache"))
    rows = pl.scan_ndjson(home / "all" / "labelled.jsonl", infer_schema_length=None).collect()
    ids = works.select("source_name", openalex_id=pl.format("W{}", "work_id"), source_id=pl.format("S{}", "source_id"))
    rows = rows.join(ids, on="openalex_id", how="left", maintain_order="left")
    rows.write_parquet(tmp_path / "labelled.parquet")
    rows.write_ndjson(tmp_path / "labelled.jsonl")
    for name in ("labelled.parquet", "labelled.jsonl"):
        labelled = LabelledConfig(inputs=(str(tmp_path / name),))
        again, stated = draw(home, tmp_path / f"from {name}", labelled, eligibility=rules)
        assert again == lines
        in_field = rows["primary_field"].is_in(chosen["fields"]).fill_null(value=False)
        assert stated["counts"]["filters"]["field"] == (~in_field).sum()
    rows.drop("source_id", "source_name").write_parquet(tmp_path / "without.parquet")
    without = LabelledConfig(inputs=(str(tmp_path / "without.parquet"),))
    with pytest.raises(ConfigError, match="no column 'source_id' or 'source_name' to filter"):
        draw(home, tmp_path / "x", without, eligibility=rules)
    rules = EligibilityConfig(**RULES, fields=chosen["fields"])
    direct = draw(home, tmp_path / "by field", WORLD, eligibility=rules)[0]
    assert draw(home, tmp_path / "by field, labelled", without, eligibility=rules)[0] == direct


@pytest.mark.parametrize("recompute", [False, True])
def test_sciscinet_filters_before_it_reads_texts(sciscinet_tables: Path, tmp_path: Path, recompute: bool) -> None:
    source = SciSciNetConfig(folder=str(sciscinet_tables), recompute=recompute)
    works = scan_sciscinet(source).works.select("primary_field", "source_id", "source_name", "is_retracted").collect()
    fields = tuple(works["primary_field"].drop_nulls().value_counts(sort=True)["primary_field"].head(60))
    venues = tuple(works["source_name"].drop_nulls().value_counts(sort=True)["source_name"].head(150))
    rules = EligibilityConfig(fields=fields, venues=venues)
    split = SplitConfig(n_train=9, n_test=3, balance="none")
    places = {"out": tmp_path / "slice", "cache_dir": tmp_path / "cache"}
    release = build(BuildConfig(source=source, eligibility=rules, split=split, **places))
    counts = release.manifest["counts"]
    kept = works.filter(~pl.col("is_retracted"))
    in_field = kept["primary_field"].is_in(fields).fill_null(value=False)
    in_venue = kept["source_name"].is_in(venues).fill_null(value=False)
    assert counts["filters"]["field"] == (~in_field).sum() > 0
    assert counts["filters"]["venue"] == (in_field & ~in_venue).sum() > 0
    assert set(release.train["primary_field"]) <= set(fields)
    assert counts["text"]["read"] <= (in_field & in_venue).sum()


def test_without_them_a_manifest_says_nothing_of_them_and_with_them_it_can_be_repeated(
    home: Path, tmp_path: Path, chosen: dict[str, tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, plain = draw(home, tmp_path / "plain", WORLD)
    assert not {"field", "venue"} & plain["counts"]["filters"].keys()
    assert plain["eligibility"].keys() == asdict(EligibilityConfig()).keys() - {
        "fields",
        "venues",
        "min_label_confidence",
        "listed",
        "where",
    }
    rules = EligibilityConfig(fields=chosen["fields"])
    lines, named = draw(home, tmp_path / "named", WORLD, eligibility=rules)
    assert named["counts"]["filters"].keys() - plain["counts"]["filters"].keys() == {"field"}
    assert named["eligibility"].keys() - plain["eligibility"].keys() == {"fields"}
    again = ["--from-manifest", str(tmp_path / "named"), "--out", str(tmp_path / "again")]
    assert main(["build", *again, "--cache-dir", str(home / "cache")]) == 0
    assert "another field" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").glob("*.jsonl")} == lines
    assert main(["describe", str(tmp_path / "plain"), "--html", str(tmp_path / "plain.html")]) == 0


def test_a_wrong_name_gets_a_warning_with_the_nearest_one(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw(home, tmp_path / "slice", WORLD, eligibility=EligibilityConfig(fields=("Medicine", "Medecine", "Art")))
    assert "no work has the field 'Medecine' (EligibilityConfig.fields). Did you mean Medicine?" in caplog.text
    assert "field 'Medicine'" not in caplog.text


def test_flags_and_toml_name_fields_and_venues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--only-field", "Medicine", "Art", "--only-venue", "S137773608", "--no-venues", "--print-config"]
    assert main(["build", *words]) == 0
    printed = capsys.readouterr().out
    assert 'fields = ["Medicine", "Art"]\nvenues = ["S137773608"]' in printed
    assert "[openalex]" in printed
    config = resolve({"": {"source": "synthetic"}, "eligibility": {"fields": ["Art"], "venues": ["Nature"]}})
    assert (config.eligibility.fields, config.eligibility.venues) == (("Art",), ("Nature",))


def test_the_api_is_asked_for_the_chosen_works_only(tmp_path: Path) -> None:
    works = [json.loads(line) for line in example_lines()]
    sources: list[str] = []
    for number, work in enumerate(works):
        id_, name = ((27, "Medicine"), (17, "Computer Science"), (26, "Mathematics"))[number % 3]
        work["primary_topic"] = {"field": {"id": f"https://openalex.org/fields/{id_}", "display_name": name}}
        source = (work.get("primary_location") or {}).get("source") or work.get("host_venue") or {}
        sources += [source["id"].rsplit("/", 1)[-1]] if source.get("id") else []
    venues = tuple(pl.Series("id", sources).value_counts(sort=True)["id"].head(100))
    rules = EligibilityConfig(last_year=2022, fields=("Medicine", "Mathematics"), venues=venues)
    with OpenAlexServer(works, key="key") as server:
        api = ApiConfig(base_url=server.base_url, api_key="key", requests_per_second=1e6)
        source = OpenAlexConfig(from_year=1960, to_year=2022, venues=False)
        split = SplitConfig(n_train=9, n_test=3)
        places = {"out": tmp_path / "slice", "cache_dir": tmp_path / "cache"}
        release = build(BuildConfig(source=source, api=api, eligibility=rules, split=split, **places))
    assert "primary_topic.field.id:27|26,primary_location.source.id:S" in release.manifest["source"]["filter"]
    assert set(release.train["primary_field"]) == {"Medicine", "Mathematics"}
    counts = release.manifest["counts"]["filters"]
    assert (counts["field"], counts["venue"]) == (0, 0)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"fields": ("Medecine",)}, "'Medecine', which is no field of OpenAlex. Did you mean Medicine. It has Agric"),
        (
            {"venues": ("Nature Physics",)},
            "by its id, .* Look it up at https://api.openalex.org/.*Nature%20Physics and",
        ),
        ({"venues": tuple(map(str, range(1, 102)))}, "has 101 venues, and the OpenAlex API takes at most 100. Name f"),
    ],
)
def test_names_that_the_api_does_not_know_are_refused_before_anything_is_asked(
    rules: dict[str, Any], told: str
) -> None:
    asked: Any = None
    with pytest.raises(ConfigError, match=told):
        Candidates.count(asked, OpenAlexConfig(), CDConfig(), EligibilityConfig(**rules))
