"""The two sides of a comparison: a release, a corpus, a file of scores or a frame, as works with counts and a label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata.corpus.folder import open_corpus_graph, scan_corpus
from sciscidata.corpus.scores import hash_facts, verify_scores
from sciscidata.disruption.config import CDConfig
from sciscidata.errors import ConfigError, InputNotFoundError
from sciscidata.frames import AnyFrame
from sciscidata.graph.graph import CitationGraph
from sciscidata.judged import WINDOW_COMPLETE, is_cited, is_judged
from sciscidata.label_thresholds import LabelThresholds, compute_disruption_labels
from sciscidata.own_label import stated_label
from sciscidata.records.ids import ORIGINAL_ID, number_ids
from sciscidata.release.manifest import lacks_scores, of_a_stranger
from sciscidata.release.read import SCORES_FILE, Release, list_data_files, read_release, read_settings
from sciscidata.release.verify import kind_of
from sciscidata.schemas import CD_SCORES, COMPARED, require_columns
from sciscidata.stages import write_cd_index

#: What a side may be, and what it is called.
KINDS: Final = {"release": "a release", "corpus": "a corpus", "scores": "a file of scores", "frame": "a frame"}
_NEEDED: Final = "Give two releases, two corpora or two files of CD indices."
#: Parts of a manifest whose entries are compared, and what comes before the names of these entries.
_SECTIONS: Final = {"cd": "", "thresholds": "", "split": "", "eligibility": "", "build": "", "source": "source "}
#: Entries of a provenance that follow from the others.
_HIDDEN: Final = ("removed_sha256", "report_sha256", "n_parts")


class Side(NamedTuple):
    """One side of a comparison.

    Attributes:
        name: what it is called, a path or "A".
        kind: release, corpus, scores or frame.
        rows: ``work_id`` and the columns of COMPARED that it knows, one row per work; maybe ORIGINAL_ID, and
            ``primary_field`` where labels are by rank. Those of a file of scores are sorted.
        dois: ``work_id`` and ``doi``. None: it knows no DOIs.
        stated: settings by name, as the manifest or the file states them.
        measure: the convention of the CD index. None: it is not stated.
        data: what the numbers follow from, as a hash. "": it is not stated.
        thresholds: of its labels. None: they are no disruption labels.
        graph: opens its citations. None: it has none.
    """

    name: str
    kind: str
    rows: pl.LazyFrame
    dois: pl.LazyFrame | None = None
    stated: Mapping[str, Any] = {}
    measure: Mapping[str, Any] | None = None
    data: str = ""
    thresholds: LabelThresholds | None = None
    graph: Callable[[], CitationGraph] | None = None

    @property
    def known(self) -> frozenset[str]:
        """The columns of COMPARED that it knows."""
        return frozenset(COMPARED) & {*self.rows.collect_schema()}


class Scoring(NamedTuple):
    """How corpora are scored, and scores labelled."""

    config: CDConfig
    thresholds: LabelThresholds
    cache_dir: str | Path | None


def find_kind(side: object) -> str:
    """Tell what a side is; a ConfigError if it has no scores to compare."""
    if isinstance(side, Release):
        return "release"
    if not isinstance(side, str | Path):
        return "frame"
    kind = kind_of(side)
    if kind not in KINDS:
        article = "an" if kind == "export" else "a"
        remedy = "Compare the corpora that they are made of." if kind == "graph" else _NEEDED
        raise ConfigError(f"{side} is {article} {kind}, which is not compared. {remedy}")
    if kind == "release" and not (Path(side) / "manifest.json").is_file():
        raise InputNotFoundError(f"{side} is a folder, but no release and no corpus. {_NEEDED}")
    return kind


def refuse_two_kinds(sides: tuple[object, object], kinds: tuple[str, str]) -> None:
    """Raise ConfigError if two sides are of two kinds."""
    if kinds[0] != kinds[1]:
        first, second = (
            f"{side if isinstance(side, str | Path) else letter} is {KINDS[kind]}"
            for letter, side, kind in zip("AB", sides, kinds, strict=True)
        )
        raise ConfigError(f"{first}, and {second}. Compare two of one kind. {_NEEDED}")


def open_side(side: str | Path | Release | AnyFrame, kind: str, name: str, scoring: Scoring) -> Side:
    """Open one side. A corpus is scored, unless it was before."""
    if kind == "release":
        release = side if isinstance(side, Release) else read_release(side)
        with of_a_stranger(release.folder):
            return _open_release(release, name)
    if not isinstance(side, str | Path):
        return _open_frame(side, name, scoring.thresholds)
    if kind == "corpus":
        return _open_corpus(Path(side), name, scoring)
    return _open_scores(Path(side), name, scoring.thresholds)


def _open_release(release: Release, name: str) -> Side:
    manifest = release.manifest
    thresholds, _ = read_settings(manifest)
    own = stated_label(manifest)
    is_own = own is not None and lacks_scores(manifest)
    label = own.name if own is not None and is_own else "disruption_label"
    columns = ["openalex_id", "publication_year", "cd_index", "primary_field", pl.col(label).alias("label")]
    rows = pl.concat(getattr(release, split).select(*columns, pl.lit(split).alias("split")) for split in release.splits)
    dois = None
    if SCORES_FILE in list_data_files(manifest):
        counts = ["n_i", "n_j", "n_k", "n_references"]
        rows = rows.join(release.scores.select("openalex_id", "doi", *counts), on="openalex_id", how="left")
        rows = rows.with_columns(judged=pl.when(pl.col("n_i").is_not_null()).then(is_cited()))
    ids = number_ids(rows["openalex_id"])
    if not rows["openalex_id"].str.contains("^W[0-9]+$").all():
        rows = rows.with_columns(pl.col("openalex_id").alias(ORIGINAL_ID))
    rows = rows.with_columns(ids.alias("work_id")).drop("openalex_id")
    if "doi" in rows.columns:
        dois, rows = rows.select("work_id", "doi").lazy(), rows.drop("doi")
    stated = {
        prefix + option: value
        for section, prefix in _SECTIONS.items()
        for option, value in manifest.get(section, {}).items()
        if option not in _HIDDEN
    }
    return Side(
        name,
        "release",
        _known(rows.lazy()),
        dois,
        stated | {"label": label, "sciscidata": manifest["versions"]["sciscidata"]},
        manifest.get("cd"),
        hash_facts(manifest.get("source", {})),
        None if is_own else thresholds,
    )


def _open_corpus(folder: Path, name: str, scoring: Scoring) -> Side:
    works, _, provenance = scan_corpus(folder)
    cache = folder / "cache" if scoring.cache_dir is None else Path(scoring.cache_dir)
    key = hash_facts({**scoring.config.stated(), "corpus": provenance["report_sha256"]})[:32]
    file = write_cd_index(folder, cache / f"scores-{key}.parquet", scoring.config, cache_dir=cache, overwrite=True)
    scores = _open_scores(file, name, scoring.thresholds)
    years = works.select("work_id", "publication_year").collect(engine="streaming").lazy()
    stated = {f"source {key}": value for key, value in provenance.items() if key not in _HIDDEN}
    return scores._replace(
        kind="corpus",
        rows=scores.rows.join(years, on="work_id", how="left"),
        dois=works.select("work_id", "doi"),
        stated=stated | scoring.config.stated(),
        graph=partial(open_corpus_graph, folder, cache_dir=cache, time=scoring.config.time),
    )


def _open_scores(path: Path, name: str, thresholds: LabelThresholds) -> Side:
    facts = verify_scores(path)
    rows, data = pl.scan_parquet(path, glob=False), facts["corpus_sha256"] or ""
    if facts["stage"] == "id_scores":
        rows = _number_ids(rows.collect()).lazy()
    elif facts["stage"] != "cd":
        raise ConfigError(
            f"{path} holds {facts['stage'].replace('_', ' ')}, needs CD indices, as `sciscidata cd` and `score` write "
            f"them. {_NEEDED}"
        )
    stated = dict(facts["config"])
    stated |= {"source kind": facts["source"], "source corpus_sha256": data} if data else {}
    stated |= {"shard": facts["shard"]} if "shard" in facts else {}
    measure = {option: value for option, value in facts["config"].items() if option != "prior"}  # it makes no label
    side = _open_frame(rows, name, thresholds)
    return side._replace(kind="scores", stated=stated, measure=measure, data=data, thresholds=thresholds)


def _number_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Take the works out of scores of listed ids, each once, by number; labels are made as those of other scores."""
    works = rows.drop_nulls("openalex_id").unique("openalex_id", keep="first").drop("disruption_label")
    numbers = number_ids(works["openalex_id"]).alias("work_id")
    is_own = not works["openalex_id"].str.contains("^W[0-9]+$").all()
    works = works.with_columns(numbers, *([pl.col("openalex_id").alias(ORIGINAL_ID)] if is_own else []))
    return works.sort("work_id")


def _open_frame(frame: AnyFrame, name: str, thresholds: LabelThresholds) -> Side:
    rows = require_columns(frame, CD_SCORES, frame_name=name, stage="compare")
    there = rows.collect_schema()
    if "disruption_label" not in there:
        rows = compute_disruption_labels(rows, thresholds)
    names = {"n_refs": "n_references"} if "n_references" not in there else {}
    judged = is_judged() if WINDOW_COMPLETE in there else is_cited()
    judged &= pl.col("cd_index").is_not_null()  # as `cd` counts them
    rows = rows.rename(names, strict=False).with_columns(judged=judged, label=pl.col("disruption_label"))
    dois = rows.select("work_id", "doi") if "doi" in there else None
    return Side(name, "frame", _known(rows), dois, thresholds=thresholds)


def _known(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Keep the columns that a comparison reads, in its types."""
    there = rows.collect_schema()
    others = [name for name in (ORIGINAL_ID, "primary_field") if name in there]
    known = [pl.col(name).cast(dtype) for name, dtype in COMPARED.items() if name in there]
    return rows.select("work_id", *(pl.col(name).cast(pl.String) for name in others), *known)
