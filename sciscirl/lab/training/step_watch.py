"""What a run is watched for while it trains, beside class collapse. Each sign is read from one step's metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, Final

from sciscidata.terminal.shares import percent

#: KL(sampler, trainer), by the two estimates of the cookbook, which names this limit.
KL: Final = ("optim/kl_sample_train_v1", "optim/kl_sample_train_v2")
_KL_MAX: Final = 0.01
#: The share of a step's answers that earn no more than what is not JSON.
AT_FLOOR: Final = "env/all/at_floor"
_FLOOR_MAX: Final = 0.9
#: As TRL, Transformers and SkyRL end the name of the gradient's norm; Tinker states none.
GRADIENT: Final = "grad_norm"
_TIMES: Final = 10  # the median of the steps before
_FEWEST: Final = 5  # steps that a median takes


class StepWatch:
    """Finds what is wrong in the rows of ``metrics.jsonl``, which it is given in their order."""

    def __init__(self) -> None:
        self._norms: list[float] = []

    def __call__(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Say what is wrong in a row, by kind of sign.

        Example:
            >>> StepWatch()({"step": 3, "optim/kl_sample_train_v2": 0.25, "env/all/at_floor": 0.5})
            {'KL': 'KL(sampler, trainer) 0.25 > 0.01: sampled and trained probabilities differ'}
        """
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        found: dict[str, str] = {}
        if broken := next((name for name, value in numbers.items() if not math.isfinite(value)), None):
            found["NaN"] = f"{broken} is {numbers[broken]}"
        if (kl := max((numbers[name] for name in KL if name in numbers), default=0.0)) > _KL_MAX:
            found["KL"] = f"KL(sampler, trainer) {kl:.3g} > {_KL_MAX}: sampled and trained probabilities differ"
        norm = next((value for name, value in numbers.items() if name.endswith(GRADIENT)), None)
        if norm is not None and math.isfinite(norm):
            usual = median(self._norms) if len(self._norms) >= _FEWEST else math.inf
            if norm > _TIMES * usual:
                found["gradient"] = f"gradient norm {norm:.3g} is more than {_TIMES} times the usual {usual:.3g}"
            self._norms += [norm] if norm else []  # without a gradient, nothing is usual
        if (share := numbers.get(AT_FLOOR, 0.0)) > _FLOOR_MAX:
            found["floor"] = f"{percent(share)} of the answers earn the least reward: little is learned from them"
        return found


def list_alarms(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """List each kind of sign that a run has shown: where first, and at how many steps.

    Example:
        >>> list_alarms([{"step": n, "loss": float("nan")} for n in (4, 5)])
        ('loss is nan (step 4, and 1 more)',)
    """
    watch, first, counts = StepWatch(), dict[str, str](), dict[str, int]()
    for row in rows:
        for kind, what in watch(row).items():
            first.setdefault(kind, f"{what} (step {row.get('step', 0):,}")
            counts[kind] = counts.get(kind, 0) + 1
    return tuple(f"{what}{f', and {n - 1:,} more' if (n := counts[kind]) > 1 else ''})" for kind, what in first.items())
