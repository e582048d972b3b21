"""Class collapse: find early, from its answers, that a model gives the same label to nearly every paper."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sciscidata.intervals import wilson_interval
from sciscidata.options.checks import PositiveInt, Share, check_fields, check_value
from sciscirl.errors import CollapseError, SciSciRLError
from sciscirl.task.predictions import INVALID

_log = logging.getLogger(__name__)

CollapseAction = Literal["warn", "stop", "off"]
_RECALL: Final = "min_class_recall"
_SHARE: Final = "predicted_share/"
_FEW: Final = 0.5  # of all answers that are JSON, or keep the contract: fewer is a matter of form


@dataclass(frozen=True, kw_only=True, slots=True)
class CollapseConfig:
    """When a model counts as collapsed: at least one sign in each of the last evaluations, or windows of training.

    The defaults find the two published runs that lost a class, and no other. These are exp4 (least recall 0.007) and
    exp5 (0.013, and 0.83 of its answers *disruptive*, at step 250). The others have a least recall of 0.062 or more.
    """

    share_max: Share = 0.8  # a sign if one label is a larger share of all answers
    entropy_min: Share = 0.5  # a sign if labels of valid answers have less entropy: 1 all equally often, 0 one only
    recall_min: Share = 0.05  # a sign if the least recall of a class is lower
    n_evaluations: PositiveInt = 2  # or windows of training, in a row
    n_watched: PositiveInt = 256  # papers in a window of training, with all answers to them
    n_valid_min: PositiveInt = 50  # fewer valid answers allow no verdict, unless one label is surely above share_max

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)


def measure_spread(metrics: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Measure ``largest_share`` of all answers, and the ``entropy`` of valid ones, divided by that of equal counts."""
    shares = _shares(metrics, prefix).values()
    valid = math.fsum(shares)
    spread = {"largest_share": max(shares)}
    if valid:
        entropy = -math.fsum(share / valid * math.log(share / valid) for share in shares if share)
        spread["entropy"] = max(0.0, entropy) / math.log(len(shares))
    return spread


def find_signs(metrics: Mapping[str, float], config: CollapseConfig = CollapseConfig()) -> tuple[str, ...]:
    """List the signs of collapse in the metrics of one evaluation, which may have prefixes; each label is checked.

    With few valid answers, the only sign is a label whose low end of Wilson's interval (95 %) is above ``share_max``.

    Example:
        >>> shares = {"disruptive": 0.9885, "consolidating": 0.007, "neutral": 0.0045}
        >>> metrics = {f"test/predicted_share/{label}": share for label, share in shares.items()}
        >>> for sign in find_signs(metrics | {"test/min_class_recall": 0.0}):
        ...     print(sign)
        test/predicted_share/disruptive 0.989 > 0.8
        test/entropy 0.064 < 0.5
        test/min_class_recall 0.000 < 0.05
    """
    signs: list[str] = []
    for prefix in _prefixes(metrics):
        spread, recall = measure_spread(metrics, prefix), metrics[prefix + _RECALL]
        n, n_valid = _count_answers(metrics, prefix) or (math.inf, math.inf)
        is_few = n_valid < config.n_valid_min
        largest = spread["largest_share"]
        if (wilson_interval(largest, n)[0] if is_few else largest) > config.share_max:
            shares = _shares(metrics, prefix)
            signs.append(f"{max(shares, key=shares.__getitem__)} {largest:.3f} > {config.share_max:g}")
        if is_few:
            continue
        if spread.get("entropy", 1.0) < config.entropy_min:
            signs.append(f"{prefix}entropy {spread['entropy']:.3f} < {config.entropy_min:g}")
        if recall < config.recall_min:
            signs.append(f"{prefix}{_RECALL} {recall:.3f} < {config.recall_min:g}")
    return tuple(signs)


def explain_doubt(metrics: Mapping[str, float], contract: str, *, is_taught: bool = False) -> str | None:
    """Say why one evaluation, whose metrics have no prefix, shows little about classes; None: it is fine.

    ``is_taught``: gold answers have taught the model, so the advice is not to begin with them.

    Example:
        >>> explain_doubt({"n": 12, "parse_ok": 0.0, "invalid": 1.0}, "two_keys")
        '0 of 12 answers were JSON; does the model know the contract two_keys? Fine-tune first: sciscirl sft.'
        >>> explain_doubt({"n": 12, "parse_ok": 1.0, "invalid": 0.0}, "two_keys")
        '12 valid answers are too few to tell class collapse: 50 are needed.'
    """
    n = round(metrics["n"])
    n_json, n_valid = round(n * metrics.get("parse_ok", 1.0)), round(n * (1 - metrics.get("invalid", 0.0)))
    remedy = "More steps on gold answers teach it" if is_taught else "Fine-tune first: sciscirl sft"
    ask = f"does the model know the contract {contract}? {remedy}."
    if n_json < _FEW * n:
        return f"{n_json:,} of {n:,} answers were JSON; {ask}"
    if n_valid < _FEW * n:
        return f"{n_json:,} of {n:,} answers were JSON, but only {n_valid:,} kept the contract; {ask}"
    needed = CollapseConfig().n_valid_min
    is_clear = n_valid >= needed or find_signs(metrics)
    return None if is_clear else f"{n_valid:,} valid answers are too few to tell class collapse: {needed} are needed."


class CollapseAlarm:
    """Watches evaluations, after those in ``history``, and warns or stops; ``watched`` is what messages call them."""

    def __init__(
        self,
        config: CollapseConfig = CollapseConfig(),
        action: CollapseAction = "warn",
        history: Iterable[Mapping[str, float]] = (),
        watched: str = "evaluations",
    ) -> None:
        self.config = config
        self.watched = watched
        self.action: CollapseAction = check_value("collapse", action, CollapseAction, SciSciRLError)
        self._signs = [find_signs(metrics, config) for metrics in history]

    def __call__(self, metrics: Mapping[str, float], step: int | None = None) -> dict[str, float]:
        """Check one more evaluation; return ``collapse/...`` for the log. A CollapseError has all its metrics."""
        if self.action == "off":
            return {}
        self._signs.append(find_signs(metrics, self.config))
        recent = self._signs[-self.config.n_evaluations :]
        has_collapsed = len(recent) == self.config.n_evaluations and all(recent)
        more = {
            f"{prefix}collapse/{name}": value
            for prefix in _prefixes(metrics)
            for name, value in (*measure_spread(metrics, prefix).items(), ("alarm", float(has_collapsed)))
        }
        if has_collapsed:
            where = "" if step is None else f"at step {step} "
            what = f"the model has collapsed: {where}{', '.join(recent[-1])} ({len(recent)} {self.watched} in a row)."
            if self.action == "stop":
                raise CollapseError(
                    f"{what} The run was ended. Choose an earlier checkpoint (sciscirl select), train with a "
                    "balanced reward, or continue anyway with behavior_if_log_dir_exists=resume collapse=warn.",
                    metrics={**metrics, **more},
                    step=step,
                )
            _log.warning(what)
        return more


def _count_answers(metrics: Mapping[str, float], prefix: str) -> tuple[float, float] | None:
    """Count all answers and the valid ones; the joint task states them before the prefix of a label. None: unknown."""
    for start in (prefix, f"{prefix.rstrip('/').rpartition('/')[0]}/".lstrip("/")):
        if f"{start}n" in metrics:
            n = metrics[f"{start}n"]
            return n, round(n * (1 - metrics.get(f"{start}invalid", 0.0)))
    return None


def _shares(metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
    start = prefix + _SHARE
    return {name: share for name, share in metrics.items() if name.startswith(start) and name != start + INVALID}


def _prefixes(metrics: Mapping[str, float]) -> list[str]:
    starts = [name.removesuffix(_RECALL) for name in metrics if name.endswith(_RECALL)]
    return [start for start in starts if _shares(metrics, start)]
