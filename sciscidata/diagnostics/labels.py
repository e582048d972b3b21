"""How sure the disruption labels of a draw are, and how high any predictor of them can get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from sciscidata.diagnostics.diagnose import Check
from sciscidata.disruption.label_confidence import LabelCeiling, best_expected, check_shares, redraw_labels
from sciscidata.disruption.label_prior import LabelPrior
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import DISRUPTION_LABELS, NOVELTY_LABELS, LabelThresholds
from sciscidata.novelty.label_confidence import NOVELTY_CONFIDENCE
from sciscidata.schemas import require_columns

_LEAST_SURE: Final = 2 / 3
_READ: Final = 20_000  # works at most
_SPREAD: Final = 300  # of each label: the ceiling is then right to about 0.01
_DRAWS: Final = 16
_MOST_DRAWN: Final = 20_000


def diagnose_labels(
    eligible: pl.LazyFrame,
    counts: Mapping[str, int],
    drawn: Mapping[str, int],
    thresholds: LabelThresholds,
    prior: LabelPrior | None = None,
) -> tuple[dict[str, Any] | None, list[Check]]:
    """Return the ceiling of drawn labels, for the manifest, and a check of how sure each is; None without counts.

    Both are estimated from a part of the eligible works, which depends on their ids only. So is a prior that is None.
    """
    from sciscidata._kernels.random import WEYL

    if not {"n_i", "n_j", "n_k"} <= set(eligible.collect_schema()):
        return None, []
    n_eligible = sum(counts.values())
    hashed = pl.col("work_id").reinterpret(signed=False) * pl.lit(int(WEYL), pl.UInt64)
    read = (
        eligible.select("work_id", "n_i", "n_j", "n_k", "cd_index", hashed.alias("hash"))
        .filter(pl.col("hash") // 2**32 % -(-n_eligible // _READ) == 0)
        .collect(engine="streaming")
    )
    try:
        redraws = redraw_labels(read.sort("hash", "work_id"), thresholds, most=_SPREAD, prior=prior)
    except EmptyInputError:
        return None, []
    labels = [label for label in DISRUPTION_LABELS if drawn.get(label) and label in redraws.counts]
    if not labels:
        return None, []
    most = redraws.find_ceiling({label: drawn[label] for label in labels})
    ceiling = {"accuracy": round(most.accuracy, 3), "macro_f1": round(most.macro_f1, 3), "works": n_eligible}
    sure = (
        pl.DataFrame({"label": redraws.labels, "confidence": redraws.find_confidence()})
        .group_by("label")
        .agg(pl.col("confidence").mean(), lost=(pl.col("confidence") < _LEAST_SURE).mean())
    )
    rows = {label: row for label, *row in sure.rows()}
    unsure = [label for label in labels if rows[label][0] < _LEAST_SURE]
    text = "most drawn labels would be the same if the works were cited anew"
    if unsure:
        means = ", ".join(f"{label} {rows[label][0]:.2f}" for label in unsure)
        costs = " and ".join(f"{rows[label][1] * counts[label]:,.0f} of {counts[label]:,} {label}" for label in unsure)
        text = (
            f"labels that may change if works are cited anew, by mean confidence: {means} "
            f"(EligibilityConfig.min_label_confidence={_LEAST_SURE:.2f} would remove about {costs} works)"
        )
    return ceiling, [Check("label_confidence", None, None, text, warns=bool(unsure))]


def find_novelty_ceiling(confidence: AnyFrame, *, shares: Mapping[str, float] | None = None) -> LabelCeiling:
    """Find the highest expected accuracy and macro-F1 of any predictor of novelty labels, however good.

    The best predictor knows how likely each label is for the references that a work may have. ``p_novel`` and its like
    are only what one list says about that. So each work gets 16 draws from a Dirichlet distribution with these means.
    Its spread is the one by which two lists of a work agree as often as ``label_confidence`` says.

    Args:
        confidence: what ``compute_novelty_confidence`` gives for all works that may be drawn. At most 20,000 are read,
            evenly spread over the rows.
        shares: the share of each label among the works to be predicted, if they are drawn by label. None: as they are.

    Raises:
        SchemaMismatchError: if a column is missing or has another type.
        EmptyInputError: if no work has a label.
        ConfigError: if ``shares`` do not sum to 1, or name another label.

    Source: this project's.

    Example:
        >>> chances = {"label_confidence": [0.7, 0.2], "p_novel": [0.1, 0.2], "p_balanced": [0.2, 0.2],
        ...     "p_conventional": [0.7, 0.6]}
        >>> 0.6 < find_novelty_ceiling(pl.DataFrame(chances)).accuracy < 1
        True
    """
    stage, columns = "find_novelty_ceiling", [f"p_{label}" for label in NOVELTY_LABELS]
    needed = ["label_confidence", *columns]
    frame = require_columns(confidence, NOVELTY_CONFIDENCE, frame_name="confidence", stage=stage, columns=needed)
    rows = frame.select(needed).drop_nulls().collect()
    if rows.is_empty():
        raise EmptyInputError(f"{stage}: no work has a novelty label. Give all scored works.")
    wanted = None if shares is None else check_shares(shares)
    if wanted is not None and not set(wanted) <= set(NOVELTY_LABELS):
        raise ConfigError(f"shares holds {wanted}, needs shares of {', '.join(NOVELTY_LABELS)}.")
    some = rows.gather_every(-(-rows.height // _MOST_DRAWN))
    chances = np.maximum(some.select(columns).to_numpy(), 1e-9)
    alike, agree = float((chances**2).sum(axis=1).mean()), float(some["label_confidence"].to_numpy().mean())
    spread = min(max((agree - alike) / max(1 - alike, 1e-9), 1e-6), 0.999)
    random = np.random.Generator(np.random.Philox(0))
    drawn = random.standard_gamma(np.repeat(chances * (1 / spread - 1), _DRAWS, axis=0)) + 1e-300
    drawn /= drawn.sum(axis=1, keepdims=True)
    if wanted is not None:
        drawn *= np.array([wanted.get(label, 0) for label in NOVELTY_LABELS]) / drawn.mean(axis=0)
    return LabelCeiling(*best_expected(drawn), rows.height)
