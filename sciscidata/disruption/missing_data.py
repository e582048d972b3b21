"""What missing citations and missing reference lists do to disruption labels, their shares and their ceiling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import score_graph
from sciscidata.disruption.label_confidence import redraw_labels
from sciscidata.errors import EmptyInputError
from sciscidata.frames import AnyFrame
from sciscidata.graph.edges import watched
from sciscidata.graph.graph import build_graph, require_times
from sciscidata.judged import Population, is_cited, is_judged
from sciscidata.label_thresholds import LABELS_BY_INDEX, LabelThresholds, compute_disruption_labels
from sciscidata.options.checks import Share, check_value, checked_config
from sciscidata.schemas import CITATIONS, require_columns
from sciscidata.terminal.shares import percent

#: One row per kind of gap, share and label; ``"all"`` stands for the three labels together.
MISSING_DATA: Final = pl.Schema(
    {
        "missing": pl.String(),
        "share": pl.Float64(),
        "label": pl.String(),
        "works": pl.Int64(),
        "label_share": pl.Float64(),
        "share_same": pl.Float64(),
        "share_lost": pl.Float64(),
        "ceiling_accuracy": pl.Float64(),
        "ceiling_macro_f1": pl.Float64(),
    }
)
_SPREAD: Final = 3_000  # works of each label: the ceiling is then right to about 0.003


def find_effect_of_missing_data(
    works: AnyFrame,
    citations: AnyFrame,
    config: CDConfig | None = None,
    thresholds: LabelThresholds | None = None,
    *,
    citations_missing: Iterable[float] = (0.05, 0.1, 0.2),
    references_missing: Iterable[float] = (0.1,),
    seed: int = 0,
    population: Population = "judged",
) -> pl.DataFrame:
    """Take citations away, and see which works keep their disruption label.

    Which ones are missing depends on the ids and ``seed`` only. What is missing at a small share is missing at a larger
    one, too. All counts are of works with a label and a citer in the window, and whose window is over.

    Args:
        works: WORKS, as for ``compute_cd_index``.
        citations: CITATIONS.
        config: which convention and window; ``CDConfig()`` when None.
        thresholds: ``LabelThresholds()`` when None.
        citations_missing: shares of all citations to take away.
        references_missing: shares of all works whose whole reference lists to take away.
        seed: of what is missing.
        population: ``"all"`` counts open windows, too.

    Returns:
        MISSING_DATA. ``missing``: ``"nothing"``, ``"citations"`` or ``"references"``; ``share``: how much. ``label``:
        ``"all"`` or a label. ``works`` have it although data are missing, ``label_share`` of all. Among those that have
        it in the whole data, ``share_same`` keep it, and ``share_lost`` have no label or citer left.
        ``ceiling_accuracy`` and ``ceiling_macro_f1`` are those of ``find_label_ceiling`` with data missing, in the rows
        of ``"all"``.

    Raises:
        ConfigError, SchemaMismatchError, WorkIdError: as ``compute_cd_index``; also if a share is not between 0 and 1.
        EmptyInputError: if no work has a label and a citer, or none is left.

    Source: this project's.

    Example:
        >>> from sciscidata import SyntheticConfig, scan_synthetic
        >>> works, citations, _ = scan_synthetic(SyntheticConfig(n_works=2_000))
        >>> found = find_effect_of_missing_data(works, citations, citations_missing=[0.1], references_missing=[])
        >>> found.filter(label="all").select("missing", "share", pl.col("share_same") > 0.8).rows()
        [('nothing', 0.0, True), ('citations', 0.1, True)]
    """
    stage = "find_effect_of_missing_data"
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=stage)
    config, cut = checked_config(config, CDConfig), checked_config(thresholds, LabelThresholds, name="thresholds")
    works = require_times(works, config.time, stage=stage)
    gaps = [("nothing", 0.0)]
    for kind, shares in (("citations", citations_missing), ("references", references_missing)):
        gaps += [(kind, share) for share in check_value(f"{kind}_missing", tuple(shares), tuple[Share, ...])]
    check_value("seed", seed, int)
    check_value("population", population, Population)
    parts: list[pl.DataFrame] = []
    whole = pl.DataFrame()
    for kind, share in gaps:
        left = citations if kind == "nothing" else citations.filter(is_kept(kind, share, seed))
        graph = build_graph(works, left, time=config.time)
        scores = score_graph(graph, config)
        if kind == "nothing":
            watched(scores, graph, stage)
        cited = scores.lazy().filter(is_judged() if population == "judged" else is_cited())
        rows = compute_disruption_labels(cited, cut).drop_nulls("disruption_label").collect()
        if rows.is_empty():
            where, remedy = ("", "more works")
            if population == "judged":
                where, remedy = " in a window that is over", "more works or years, or population='all'"
            raise EmptyInputError(
                f"{stage}: with {percent(share)} of {kind} missing, no work has a label and a citer{where}. "
                f"Give {remedy}."
            )
        if kind == "nothing":
            whole = rows.select("work_id", "disruption_label")
        parts.append(_compare(kind, share, whole, rows, cut))
    return pl.concat(parts)


def is_kept(kind: str, share: float, seed: int) -> pl.Expr:
    """Return an expression over CITATIONS: true for a share of the pairs, or of the citing works, left out."""
    from sciscidata._kernels.random import draw, stream_key

    key = stream_key(seed, f"missing data/{kind}")
    least = np.uint64(min(share * 2.0**64, 2.0**64 - 2048))

    def keep(rows: pl.Series) -> pl.Series:
        bits = draw(key, rows.struct.field("citing_id").to_numpy())
        if kind == "citations":
            bits = draw(bits, rows.struct.field("cited_id").to_numpy())
        return pl.Series(bits >= least)

    pair = pl.struct(pl.col("citing_id", "cited_id").fill_null(0))  # a row with a null is no citation
    return pair.map_batches(keep, return_dtype=pl.Boolean, is_elementwise=True)


def _compare(kind: str, share: float, whole: pl.DataFrame, rows: pl.DataFrame, cut: LabelThresholds) -> pl.DataFrame:
    from sciscidata._kernels.random import WEYL

    hashed = pl.col("work_id").reinterpret(signed=False) * pl.lit(int(WEYL), pl.UInt64)
    ceiling = redraw_labels(rows.sort(hashed, "work_id"), cut, most=_SPREAD, population="all").find_ceiling()
    now = rows.select("work_id", now="disruption_label")
    both = whole.join(now, on="work_id", how="left").with_columns(
        is_same=(pl.col("disruption_label") == pl.col("now")).fill_null(value=False), is_lost=pl.col("now").is_null()
    )
    parts: list[dict[str, object]] = []
    for label in ("all", *LABELS_BY_INDEX):
        before = both if label == "all" else both.filter(disruption_label=label)
        n = rows.height if label == "all" else rows.filter(disruption_label=label).height
        row = (kind, share, label, n, n / rows.height, before["is_same"].mean(), before["is_lost"].mean())
        of_all = (ceiling.accuracy, ceiling.macro_f1) if label == "all" else (None, None)
        parts.append(dict(zip(MISSING_DATA, (*row, *of_all), strict=True)))
    return pl.DataFrame(parts, MISSING_DATA)
