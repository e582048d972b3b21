"""A new source of scores, added as CONTRIBUTING says: it builds and verifies, and its card says what it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sciscidata import BuildConfig, EligibilityConfig, SplitConfig, SyntheticConfig, build, verify
from sciscidata import config as options
from sciscidata.errors import ConfigError
from sciscidata.label_thresholds import LabelThresholds, compute_labels
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.options.checks import Configuration, field_hints
from sciscidata.release.documents import remark_on_release
from sciscidata.schemas import WORKS
from sciscidata.sources import registry
from sciscidata.sources.kinds import STRUCTURE, Facts, Opening, Scores, read_late
from sciscidata.sources.registry import Reason, Source
from sciscidata.sources.synthetic.source import scan_synthetic

LACKS = ("n_references", "n_citers", "language")
SPLIT = SplitConfig(n_train=30, n_test=9)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class CatalogueConfig(Configuration):
    """Works of a catalogue, which has a score of each.

    Attributes:
        said: what the provenance says besides the kind.
        labels: whether it has labels, too.
    """

    said: tuple[tuple[str, str], ...] = (("name", "MyCatalogue"),)
    labels: bool = False


ANY: Any = CatalogueConfig()


def open_catalogue(config: CatalogueConfig, _: Opening) -> Scores:
    works = scan_synthetic(SyntheticConfig(n_works=2_000)).works.collect()
    score = (pl.col("work_id") * 7 % 11 - 5) / 5_000

    def rows(_: NoveltyConfig | None, thresholds: LabelThresholds) -> pl.LazyFrame:
        scored = works.lazy().with_columns(score.alias("cd_index"))
        absent = [
            pl.lit(None, STRUCTURE[name]).alias(name) for name in STRUCTURE if name not in scored.collect_schema()
        ]
        structure = scored.with_columns(absent).select(*STRUCTURE)
        if not config.labels:
            return structure.drop("disruption_label", "novelty_label")
        labels = pl.col("disruption_label").replace({"disruptive": "consolidating", "consolidating": "disruptive"})
        return compute_labels(structure, thresholds).with_columns(labels)

    facts = Facts({"kind": "catalogue", **dict(config.said)}, works.lazy(), lacks=dict.fromkeys(LACKS, ""))
    return Scores(rows, facts, read_late(works.lazy().select(*WORKS)))


def refuse(_: CatalogueConfig) -> Any:
    raise ConfigError("a catalogue holds no citations. Name another source.")


def take(_: CatalogueConfig) -> Reason:
    return Reason("the scores of the catalogue are taken as they are", "name a source that has citations")


@pytest.fixture(autouse=True)
def _row(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do what CONTRIBUTING says: add a row to SOURCES, and the configuration to SourceConfig."""
    row = Source(CatalogueConfig, open_catalogue, own_scores=take, can_be_ingested=False, with_citations=refuse)
    monkeypatch.setattr(registry, "SOURCES", (row, *registry.SOURCES))
    monkeypatch.setattr(options, "SourceConfig", registry.SourceConfig | CatalogueConfig)
    field_hints.cache_clear()
    yield
    field_hints.cache_clear()


@pytest.mark.parametrize(
    ("said", "title", "made"),
    [
        ({"name": "MyCatalogue"}, "MyCatalogue", "The scores are those of MyCatalogue, as published."),
        (
            {"name": "MyCatalogue", "scores": "as published in 2024"},
            "MyCatalogue",
            "The scores are those of MyCatalogue, as published in 2024.",
        ),
        ({"name": "A *b* $c$"}, "A b c", "The scores are those of A b c, as published."),
        (
            {"name": "MyCatalogue", "labels": "trust"},
            "MyCatalogue",
            "The scores are those of MyCatalogue, as published. Their labels: as the source has them.",
        ),
        ({}, "the source that its manifest names", "The scores are those of the source that its manifest names"),
    ],
)
def test_it_builds_and_verifies_and_its_card_names_it(
    tmp_path: Path, said: dict[str, str], title: str, made: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        source: Any = CatalogueConfig(said=tuple(said.items()), labels="labels" in said)
        release = build(BuildConfig(source=source, out=tmp_path / "slice", split=SPLIT, cache_dir=tmp_path / "cache"))
    assert "files of the source lack the columns for languages, min_references, min_citations: not appl" in caplog.text
    done, left = verify(release.folder).recomputed or ({}, {})
    assert left["cd_index"] == "its counts are not known"
    assert ("disruption_label" in done) == ("labels" not in said)
    assert left.get("disruption_label", "taken from MyCatalogue as it was") == "taken from MyCatalogue as it was"
    card = (release.folder / "README.md").read_text("utf-8")
    assert f"\n# Disruption labels of 39 works from {title}\n" in card
    assert made in card
    assert "CD index: of the works published" not in card
    assert "labelled files" not in card
    remarks = "\n".join(remark.text for remark in remark_on_release(release.manifest))
    assert f"{title} publishes none for them" in remarks


def test_a_filter_of_what_it_lacks_is_refused_by_what_it_is(tmp_path: Path) -> None:
    rules = EligibilityConfig(languages=("de",))
    config = BuildConfig(source=ANY, out=tmp_path / "x", split=SPLIT, eligibility=rules)
    with pytest.raises(
        ConfigError, match=r"EligibilityConfig\.languages is .*files of the source have no column 'lang"
    ):
        build(config)


def test_conventions_of_measures_that_are_not_computed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the scores of the catalogue are taken as they are"):
        BuildConfig(source=ANY, out=tmp_path / "x", background=tmp_path / "y")
