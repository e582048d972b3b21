"""The columns of every frame that flows between stages, and the check that each stage runs on its input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import polars as pl

from sciscidata.errors import SchemaMismatchError
from sciscidata.frames import AnyFrame, near_cast, read_long_ids, to_lazy

# Polars 2.1 loads NumPy late, and fails where two threads need it at the same moment. Load it here.
pl.Series(np.empty(0))

#: One row per work. Null means unknown; ``is_retracted`` and ``concepts`` are never null.
WORKS = pl.Schema(
    {
        "work_id": pl.Int64(),  # the number after W in an OpenAlex id; exceeds 2^32
        "publication_year": pl.Int32(),
        "title": pl.String(),
        "abstract": pl.String(),
        "cited_by_count": pl.Int64(),
        "primary_field": pl.String(),
        "concepts": pl.List(pl.String()),
        "source_id": pl.Int64(),  # journal or other venue: the number after S
        "source_name": pl.String(),
        "language": pl.String(),
        "work_type": pl.String(),
        "is_retracted": pl.Boolean(),
        "doi": pl.String(),  # bare and lower case: 10.1234/abc
        "n_authors": pl.Int32(),
    }
)

#: Columns of WORKS that a frame may lack: they are null then.
OPTIONAL = frozenset({"n_authors"})

#: What works may have besides: the day, for windows by exact dates (``CDConfig(time="publication_date")``).
DATES = pl.Schema({"publication_date": pl.Date()})

#: And the last year that its source covers in full, where sources differ in that: its citation window ends by then.
COVERAGE = pl.Schema({"last_full_year": pl.Int32()})
#: All that works may have besides.
BESIDE = pl.Schema({**DATES, **COVERAGE})

#: One row per reference: ``citing_id`` lists ``cited_id``. Inputs may hold repeats, and works that cite themselves.
CITATIONS = pl.Schema({"citing_id": pl.Int64(), "cited_id": pl.Int64()})

#: One row per work of WORKS. Counts are null for a work without a year; ``cd_index`` is null when undefined. Computed
#: scores also have ``window_complete`` (Boolean); stages that read scores need none.
CD_SCORES = pl.Schema(
    {
        "work_id": pl.Int64(),
        "n_i": pl.UInt32(),
        "n_j": pl.UInt32(),
        "n_k": pl.UInt32(),
        "cd_index": pl.Float64(),
    }
)

#: Extra columns of CD_SCORES, on request (``CDConfig(family=True)``). ``CDConfig.windows`` adds counts and indices of
#: both for each window, with its name at their ends: ``cd_index_10``, ``n_i_all``. With ``CDConfig.di_l`` of 3 n_j5
#: and di5_index are n_j3 and di3_index.
CD_FAMILY = pl.Schema(
    {
        "n_refs": pl.UInt32(),
        "n_j5": pl.UInt32(),
        "n_shared": pl.Int64(),
        "mcd_index": pl.Float64(),
        "di5_index": pl.Float64(),
        "di_nok_index": pl.Float64(),
        "dependence": pl.Float64(),
    }
)

#: One row per work, convention ("default", or of CDConfig.compat) and window ("5", "18mo", "all").
CD_SWEEP = pl.Schema(
    {
        "work_id": pl.Int64(),
        "publication_year": pl.Int32(),
        "convention": pl.String(),
        "window": pl.String(),
        "n_i": pl.UInt32(),
        "n_j": pl.UInt32(),
        "n_k": pl.UInt32(),
        "cd_index": pl.Float64(),
        "window_complete": pl.Boolean(),
    }
)

#: What a comparison knows of a work on each side, A and B: the columns ``split_a``, ``split_b`` and so on.
COMPARED = pl.Schema(
    {
        "split": pl.String(),
        "publication_year": pl.Int32(),
        "n_references": pl.Int64(),
        "n_i": pl.UInt32(),
        "n_j": pl.UInt32(),
        "n_k": pl.UInt32(),
        "cd_index": pl.Float64(),
        "label": pl.String(),
        "judged": pl.Boolean(),
    }
)

#: One row per work of A or B, by work_id. ``status`` is kept, gained, lost or merged (into ``merged_into``). ``moved``:
#: the label is another one, and ``cause`` says why. What a side does not know is null.
CHANGES = pl.Schema(
    {
        "work_id": pl.Int64(),
        "status": pl.String(),
        "merged_into": pl.Int64(),
        "moved": pl.Boolean(),
        "cause": pl.String(),
        **{f"{name}_{side}": dtype for name, dtype in COMPARED.items() for side in "ab"},
    }
)

#: One row per work of WORKS. ``n_pairs`` is null for a work that is not scored; the rest when undefined.
ATYPICALITY = pl.Schema(
    {
        "work_id": pl.Int64(),
        "n_pairs": pl.Int64(),
        "z_p10": pl.Float64(),
        "z_median": pl.Float64(),
        "novelty_score": pl.Float64(),
        "conventionality_score": pl.Float64(),
    }
)

#: One row per work of WORKS. ``commonness_n_pairs`` is null for a work that is not scored; the rest when undefined.
COMMONNESS = pl.Schema(
    {
        "work_id": pl.Int64(),
        "commonness_n_pairs": pl.Int64(),
        "commonness_p10": pl.Float64(),
        "commonness_median": pl.Float64(),
        "commonness_novelty": pl.Float64(),
    }
)

#: One row per work of WORKS; both are null when undefined, and 0 is a value.
WANG_NOVELTY = pl.Schema({"work_id": pl.Int64(), "n_new_pairs": pl.Int64(), "wang_novelty": pl.Float64()})

#: One row per (citing year, venue pair) of a corpus; source_id_a <= source_id_b. ``std`` is null where the null model
#: allows only one count.
PAIR_STATISTICS = pl.Schema(
    {
        "publication_year": pl.Int32(),
        "source_id_a": pl.Int64(),
        "source_id_b": pl.Int64(),
        "n_observed": pl.Int64(),
        "mean": pl.Float64(),
        "std": pl.Float64(),
    }
)

#: One released paper: these 12 columns, in this order.
EXAMPLE = pl.Schema(
    {
        "openalex_id": pl.String(),  # "W" and the number; of own tables, the id that the work has there
        "title": pl.String(),
        "abstract": pl.String(),
        "publication_year": pl.Int32(),
        "cited_by_count": pl.Int64(),
        "cd_index": pl.Float64(),
        "novelty_score": pl.Float64(),
        "conventionality_score": pl.Float64(),
        "disruption_label": pl.String(),
        "novelty_label": pl.String(),
        "primary_field": pl.String(),
        "concepts": pl.List(pl.String()),
    }
)

#: What the scores of a released work follow from, and what helps to use them: one row per work of EXAMPLE. Null where
#: undefined, or not known to the source. Where n_i equals n_j, the OpenAlex API was not asked for n_k, and it is null.
SCORES = pl.Schema(
    {
        "openalex_id": EXAMPLE["openalex_id"],
        "split": pl.String(),
        **{name: CD_SCORES[name] for name in ("n_i", "n_j", "n_k")},
        "n_references": pl.Int64(),
        **{name: ATYPICALITY[name] for name in ("n_pairs", "z_p10", "z_median")},
        **{name: WORKS[name] for name in ("doi", "source_id", "source_name", "language", "work_type")},
    }
)

NOVELTY_COLUMNS: Final = ("novelty_score", "conventionality_score", "novelty_label")
#: Every release has the first two splits; ``dev`` is there on request.
SPLITS: Final = ("train", "test", "dev")
#: The files by which a release and an export are known.
MANIFEST, LINES = "manifest.json", "labelled.jsonl"
#: The name of the metadata in which a file of scores states its facts.
SCORES_KEY: Final = b"sciscidata_stage"

#: What is said where each of two frames has the columns of the other.
SWAPPED: Final = "works and citations are swapped: give works first, then citations."

_IDS: Final = ("work_id", *CITATIONS)
_FROM_TABLES: Final = (
    "From columns and ids of your own, make a corpus first: works, citations, _ = sciscidata.from_tables(works, "
    "citations, id=..., year=..., citing=..., cited=...)."
)


def require_columns(
    frame: AnyFrame,
    schema: Mapping[str, pl.DataType],
    *,
    frame_name: str,
    stage: str,
    columns: Iterable[str] | None = None,
) -> pl.LazyFrame:
    """Check the columns that a stage reads, before any row, and return the frame as a lazy one.

    It may be of any library (``to_lazy``), and columns of a near type are cast (``near_cast``). Extra columns are
    allowed, and missing OPTIONAL ones of WORKS are added. ``columns`` of None are all of ``schema``. ``frame_name``
    (``"WORKS"``) and ``stage``, the function that needs it, are for the SchemaMismatchError. It names every column that
    is missing or has another dtype, and the cast that mends it.

    Example:
        >>> edges = pl.LazyFrame({"citing_id": [1], "cited_id": ["W2"]})
        >>> require_columns(edges, CITATIONS, frame_name="CITATIONS", stage="demo")
        Traceback (most recent call last):
        ...
        sciscidata.errors.SchemaMismatchError: demo: CITATIONS column 'cited_id' is String, needs Int64. From
        columns and ids of your own, make a corpus first: works, citations, _ = sciscidata.from_tables(works,
        citations, id=..., year=..., citing=..., cited=...).
    """
    lazy = read_long_ids(frame, to_lazy(frame, frame_name, stage), schema)
    got = lazy.collect_schema()
    problems: list[str] = []
    has_own_ids = False
    casts: list[pl.Expr] = []
    for name in columns if columns is not None else schema:
        needed = schema[name]
        if name not in got and schema is WORKS and name in OPTIONAL:
            casts.append(pl.lit(None, needed).alias(name))
        elif name not in got:
            problems.append(
                f"{frame_name} lacks column {name!r} ({needed}); it has {', '.join(got) or 'none'}. Rename or add it."
            )
            has_own_ids |= name in _IDS
        elif got[name] != needed:
            cast = near_cast(name, got[name], needed, f"{stage}: {frame_name}")
            casts += [] if cast is None else [cast]
            if cast is None:
                is_own_id = name in _IDS and got[name] == pl.String()
                has_own_ids |= is_own_id
                remedy = "" if is_own_id else f" Cast it: .with_columns(pl.col({name!r}).cast(pl.{needed}))."
                problems.append(f"{frame_name} column {name!r} is {got[name]}, needs {needed}.{remedy}")
    if problems:
        if has_own_ids and frame_name in ("WORKS", "CITATIONS"):
            problems.append(_FROM_TABLES)
        other = {"CITATIONS": ("work_id",), "WORKS": CITATIONS}.get(frame_name)
        if other is not None and got.keys() >= {*other}:
            problems = [SWAPPED]
        raise SchemaMismatchError(f"{stage}: " + " ".join(problems))
    return lazy.with_columns(casts) if casts else lazy


#: What becomes of labels that a source brings: they must follow from its scores, are taken as they are, or made anew.
Labels: TypeAlias = Literal["check", "trust", "recompute"]
#: How ``scores`` in the provenance begins where scores were taken as the source has them.
AS_PUBLISHED: Final = "as published"


def has_own_scores(provenance: Mapping[str, Any]) -> bool:
    """Say by a manifest's entry of a source whether scores were taken as it has them, not computed from citations."""
    return provenance.get("labels") in get_args(Labels) or str(provenance.get("scores")).startswith(AS_PUBLISHED)


class Corpus(NamedTuple):
    """The result of every source: WORKS, CITATIONS, and in JSON types what was read, for the manifest of a release."""

    works: pl.LazyFrame
    citations: pl.LazyFrame
    provenance: dict[str, Any]

    def __repr__(self) -> str:
        """Name the source, and how much it says that it holds; both frames are lazy."""
        facts = {name: fact for name, fact in self.provenance.items() if name in ("works", "citations")}
        counts = ", ".join(f"{fact:,} {name}" for name, fact in facts.items() if isinstance(fact, int))
        return f"Corpus({self.provenance.get('kind', 'works and citations')}{': ' if counts else ''}{counts})"
