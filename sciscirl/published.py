"""What was published of the runs that the presets replicate, to stand beside results of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

#: After how many steps the runs of PUBLISHED_RUNS were judged.
PUBLISHED_STEP: Final = 250
_COLUMNS: Final = (
    "label_match", "parse_ok", "format_strict_ok", "recall/disruptive", "recall/consolidating", "recall/neutral",
    "invalid", "macro_f1",
)  # fmt: skip
_EXP5_COLUMNS: Final = (
    "label_match", "macro_f1", "predicted_share/disruptive", "recall/disruptive", "min_class_recall"
)  # fmt: skip


def _table(columns: tuple[str, ...], *rows: tuple[float, ...]) -> tuple[Mapping[str, float], ...]:
    return tuple(MappingProxyType(dict(zip(columns, row, strict=True))) for row in rows)


#: By preset, metrics on 500 held-out papers: 145 disruptive, 166 consolidating, 189 neutral, numbers that follow from
#: the recalls. Macro-F1 was printed as approximate. Model: experiments.HISTORICAL_MODEL. Source: the note "Tinker,
#: smol-RL and QDoRA", part 2 (2026).
PUBLISHED_RUNS: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    dict(
        zip(
            ("baseline", "exp1", "exp2", "exp3", "exp4"),
            _table(
                _COLUMNS,
                (0.326, 0.966, 0.918, 0.0897, 0.2108, 0.6085, 0.082, 0.288),
                (0.316, 0.974, 0.960, 0.2414, 0.4096, 0.2910, 0.040, 0.317),
                (0.362, 0.978, 0.976, 0.0621, 0.7048, 0.2910, 0.024, 0.309),
                (0.356, 0.944, 0.906, 0.1034, 0.4458, 0.4709, 0.094, 0.337),
                (0.396, 0.998, 0.998, 0.0069, 0.2831, 0.7937, 0.002, 0.292),
            ),
            strict=True,
        )
    )
)
#: By step, metrics of Exp5 on 2,000 held-out papers, 693 of them disruptive. The same source.
PUBLISHED_EXP5: Final[Mapping[int, Mapping[str, float]]] = MappingProxyType(
    dict(
        zip(
            (0, 250, 500, 2000),
            _table(
                _EXP5_COLUMNS,
                (0.3360, 0.3003, 0.0955, 0.0823, 0.0823),
                (0.3445, 0.2489, 0.8295, 0.8009, 0.0132),
                (0.3495, 0.1819, 0.9885, 0.9928, 0.0000),
                (0.3465, 0.1716, 1.0000, 1.0000, 0.0000),
            ),
            strict=True,
        )
    )
)
