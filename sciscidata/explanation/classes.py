"""Which citers are counted as n_i, n_j and n_k of one work, by name, in any convention and window.

Whether a citer is inside a window is ``CDConfig.times_of_citers``, as for all works; the index is ``add_indices``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import polars as pl

from sciscidata.disruption.config import COMPAT, CDConfig, Window
from sciscidata.disruption.index import add_indices
from sciscidata.errors import ConfigError
from sciscidata.explanation.neighbourhood import TIME, Neighbourhood
from sciscidata.judged import WINDOW_COMPLETE
from sciscidata.label_thresholds import LABELS_BY_INDEX, LabelThresholds, compute_disruption_labels
from sciscidata.schemas import CD_SCORES

#: Windows in years that are shown of the convention asked for, beside its own.
WINDOWS: Final[tuple[Window, ...]] = (3, 5, 10, None)
#: Changes of the citers of a work, by how they move n_i, n_j, n_k.
CHANGES: Final[Mapping[str, tuple[int, int]]] = {
    "more citers of it alone": (1, 0),
    "more citers of it and its references": (0, 1),
    "fewer citers of it alone": (-1, 0),
    "fewer citers of it and its references": (0, -1),
}
_FARTHEST: Final = 1 << 20


class Classes(NamedTuple):
    """The works that are counted in one window.

    Attributes:
        citers: citing_id, class ("i" or "j"), shared (the references of the work that it cites, ascending).
        others: citing_id, shared; those of n_k.
    """

    citers: pl.DataFrame
    others: pl.DataFrame

    @classmethod
    def empty(cls) -> Classes:
        """Return classes without a work."""
        others = pl.DataFrame(schema={"citing_id": pl.Int64, "shared": pl.List(pl.Int64)})
        return cls(others.select("citing_id", pl.lit("i").alias("class"), "shared"), others)

    def without(self, work_ids: pl.Series) -> Classes:
        """Leave some works out."""
        return Classes(*(rows.filter(~pl.col("citing_id").is_in(work_ids.implode())) for rows in self))

    def sizes(self) -> dict[str, int]:
        """Return n_i, n_j and n_k."""
        n_i = int((self.citers["class"] == "i").sum())
        return {"n_i": n_i, "n_j": self.citers.height - n_i, "n_k": self.others.height}


def classify(around: Neighbourhood, config: CDConfig, window: Window) -> Classes | None:
    """Say in which class each citer counts. A work without a year (with days: a day) has None."""
    times = around.times(config)
    time = around.time(config)
    if time is None:
        return None
    if config.is_too_late(time, window):
        return Classes.empty()
    links = around.links
    for end, name in (("citing_id", "t"), ("cited_id", "s")):
        links = links.join(times.rename({"work_id": end, TIME: name}), on=end, how="left")
    ages = [time, *(links["s"].drop_nulls().unique() if config.window_from == "cited" else ())]
    spans = {at: config.times_of_citers(at, window) for at in ages}
    first, last = spans[time].start, spans[time].stop
    inside = pl.col("t").is_between(first, last, closed="left")
    if config.window_from == "cited":  # each citation has its own window
        starts, stops = ({at: getattr(span, end) for at, span in spans.items()} for end in ("start", "stop"))
        s = pl.col("s")
        inside = pl.col("t") >= s.replace_strict(starts, default=None, return_dtype=pl.Int64)
        inside &= pl.col("t") < s.replace_strict(stops, default=None, return_dtype=pl.Int64)
    is_own = pl.col("cited_id") == around.work_id
    citers = links.filter(is_own & inside).select("citing_id")
    of_references = links.filter(~is_own & inside).sort("citing_id", "cited_id")
    shared = of_references.group_by("citing_id", maintain_order=True).agg(shared="cited_id")
    citers = citers.join(shared, on="citing_id", how="left")
    alone = pl.col("shared").is_null()
    citers = citers.with_columns(pl.when(alone).then(pl.lit("i")).otherwise(pl.lit("j")).alias("class"))
    if config.focal_citers == "any":  # those before the window count in n_i, whatever else they cite
        before = links.filter(is_own, pl.col("t") < first).select("citing_id", shared=pl.lit(None, pl.List(pl.Int64)))
        citers = pl.concat([citers, before.with_columns(pl.lit("i").alias("class"))])
    others = shared.join(citers, on="citing_id", how="anti")
    if config.focal_in_n_k:
        cited = times.filter(pl.col("work_id").is_in(around.references.implode())).rows()
        own = [one for one, at in cited if at is not None and time in config.times_of_citers(at, window)]
        own = own if config.window_from == "cited" else around.references.to_list()
        if own:
            others = pl.concat([others, pl.DataFrame({"citing_id": [around.work_id], "shared": [own]}, others.schema)])
    empty = pl.col("shared").fill_null([])
    return Classes(
        citers.select("citing_id", "class", empty).sort("citing_id"), others.with_columns(empty).sort("citing_id")
    )


def score(around: Neighbourhood, config: CDConfig, classes: Mapping[str, Classes | None]) -> pl.DataFrame:
    """Return the row of ``compute_cd_index`` of the work, from the classes of each window by name."""
    plain = replace(config, family=False, di_l=5)
    counts: dict[str, list[int | None]] = {"work_id": [around.work_id], "n_refs": [around.references.len()]}
    counts["n_ever"] = [int((around.links["cited_id"] == around.work_id).sum())]
    for window, one in classes.items():
        counted = dict.fromkeys(("n_i", "n_j", "n_k")) if one is None else one.sizes()
        counts |= {name + window: [n] for name, n in counted.items()}
    return add_indices(pl.DataFrame(counts), plain)


def score_window(around: Neighbourhood, config: CDConfig, window: Window) -> pl.DataFrame:
    """Return CD_SCORES with ``window_complete`` of one window, one row."""
    classes = classify(around, config, window)
    row = score(around, replace(config, windows=()), {"": classes})
    return row.with_columns(pl.lit(is_over(around, config, window), pl.Boolean).alias(WINDOW_COMPLETE))


def is_over(around: Neighbourhood, config: CDConfig, window: Window) -> bool | None:
    """Say whether the window of the work is over before the data's last year; None where that is not known."""
    time, first = around.time(config), config.first_open_time(window, around.last_year)
    return None if time is None or first is None else time < first


def compare_conventions(around: Neighbourhood, config: CDConfig, thresholds: LabelThresholds) -> pl.DataFrame:
    """Score the work by the convention asked for in several windows, and by every published convention in its own.

    Returns convention, window, n_i, n_j, n_k, cd_index, disruption_label, window_complete: one row each, in that order.
    """
    asked = [*dict.fromkeys([config.window_years, *config.windows, *WINDOWS])]
    rows: list[pl.DataFrame] = []
    for name, one, window in [
        *(("this", config, window) for window in asked),
        *((name, CDConfig.compat(name), CDConfig.compat(name).window_years) for name in COMPAT),
    ]:
        try:
            fits = replace(one, window_years=window if window is None or isinstance(window, int) else one.window_years)
        except ConfigError:  # a window without end, where each citation has its own
            continue
        shown = "all" if window is None else str(window)
        row = score_window(around, fits, window)
        rows.append(row.select(pl.lit(name).alias("convention"), pl.lit(shown).alias("window"), pl.exclude("work_id")))
    return label(pl.concat(rows), around, thresholds)


def label(rows: pl.DataFrame, around: Neighbourhood, thresholds: LabelThresholds) -> pl.DataFrame:
    """Add the label of rows of scores of the work."""
    added = [name for name in thresholds.cell_columns if name not in rows.columns]
    cell = [pl.lit(around.fact(name)).alias(name) for name in added]
    return compute_disruption_labels(rows.with_columns(cell), thresholds).collect().drop(added)


def no_turns() -> pl.DataFrame:
    """Return the table of ``find_turns`` without a row."""
    schema = {"to_label": pl.String, "change": pl.String, "n_citers": pl.Int64, "cd_index": pl.Float64}
    return pl.DataFrame(schema=schema)


def find_turns(counts: pl.DataFrame, around: Neighbourhood, thresholds: LabelThresholds) -> pl.DataFrame:
    """Find how many citers more or fewer would give the work another label, the fewest of each kind.

    Args:
        counts: CD_SCORES of the work, one row, with an index.
        around: the work.
        thresholds: what makes labels.

    Returns:
        to_label, change (one of ``CHANGES``), n_citers (Int64), cd_index: one row for each label that a change can
        give, the fewest first. Exact: each number below was tried.
    """
    n_i, n_j, n_k = counts.select("n_i", "n_j", "n_k").cast(pl.Int64).row(0)
    now = label(counts, around, thresholds)["disruption_label"].item()
    found: list[pl.DataFrame] = []
    for change, (i, j) in CHANGES.items():
        most = n_i if i < 0 else n_j if j < 0 else min(_FARTHEST, 3 * (n_i + n_j + n_k) + 10)
        tried = pl.DataFrame({"n_citers": pl.int_range(1, most + 1, eager=True)})
        tried = tried.with_columns(n_i=n_i + i * pl.col("n_citers"), n_j=n_j + j * pl.col("n_citers"), n_k=n_k)
        # At least one citer is left: without any the work would not be judged.
        tried = tried.filter(pl.col("n_i") + pl.col("n_j") > 0)
        total = pl.col("n_i") + pl.col("n_j") + pl.col("n_k")
        tried = tried.with_columns(cd_index=((pl.col("n_i") - pl.col("n_j")) / total).cast(CD_SCORES["cd_index"]))
        labels = label(tried, around, thresholds).rename({"disruption_label": "to_label"})
        other = labels.filter(pl.col("to_label").ne_missing(now)).unique("to_label", keep="first", maintain_order=True)
        found.append(other.select("to_label", pl.lit(change).alias("change"), "n_citers", "cd_index"))
    orders = [
        pl.col(column).replace_strict({name: at for at, name in enumerate(names)}, default=None, return_dtype=pl.Int64)
        for column, names in (("change", [*CHANGES]), ("to_label", LABELS_BY_INDEX))
    ]
    return pl.concat(found).sort("n_citers", *orders)


def count_outside(around: Neighbourhood, config: CDConfig, classes: Classes) -> dict[str, int]:
    """Count the citers of the work that are not counted, by why: before the window, after it, without a year."""
    citing = around.links.filter(pl.col("cited_id") == around.work_id).select(work_id="citing_id")
    left = citing.join(classes.citers, left_on="work_id", right_on="citing_id", how="anti")
    times = left.join(around.times(config), on="work_id", how="left")[TIME]
    time = around.time(config) or 0
    first = config.times_of_citers(time, config.window_years).start
    counts = {"before": int((times < first).sum()), "after": int((times >= first).sum()), "undated": times.null_count()}
    return {name: n for name, n in counts.items() if n}
