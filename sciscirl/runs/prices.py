"""Tinker's prices, and the estimated cost of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple


class Price(NamedTuple):
    """US dollars per million tokens read, sampled and trained on; train is None if not listed."""

    prefill: float
    sample: float
    train: float | None


#: As listed in September and October 2026, after the rise of 2026-07-17. Prompts that are cached cost a fifth, which
#: is not counted on here. Source: https://tinker-docs.thinkingmachines.ai/tinker/models.json
PRICES_DATE: Final = "2026-10"
PRICES: Final[Mapping[str, Price]] = MappingProxyType(
    {
        "Qwen/Qwen3-8B": Price(0.195, 0.60, 0.44),
        "Qwen/Qwen3.5-4B": Price(0.33, 1.005, 0.737),
        "Qwen/Qwen3.5-9B": Price(0.66, 1.995, 1.463),
        "Qwen/Qwen3.6-35B-A3B": Price(0.54, 1.335, 1.177),
        "Qwen/Qwen3.8-27B": Price(1.86, 5.595, 4.103),
        "openai/gpt-oss-20b": Price(0.18, 0.45, None),
        "openai/gpt-oss-120b": Price(0.33, 0.84, None),
    }
)
_MANY: Final = 1e18  # more is a damaged number


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of a run: every answer as long as it may be, no prompt cached."""

    prefill: int
    sample: int
    train: int

    def __add__(self, other: Usage) -> Usage:
        """Add the tokens of two parts of a run."""
        return Usage(
            prefill=self.prefill + other.prefill, sample=self.sample + other.sample, train=self.train + other.train
        )

    def dollars(self, model_name: str) -> float | None:
        """Return the cost; None where a price is not known."""
        price = PRICES.get(model_name)
        if price is None or price.train is None:
            return None
        millionths = self.prefill * price.prefill + self.sample * price.sample + self.train * price.train
        return millionths / 1e6


def say_price(usage: Usage, model_name: str) -> str:
    """Say what tokens cost by the list."""
    dollars = usage.dollars(model_name)
    if dollars is not None:
        return f"${dollars:.2f} (list prices of {PRICES_DATE})"
    return f"no list price known{f' ({said})' if (said := say_retired(model_name)) else ''}"


def say_retired(model_name: str) -> str:
    """Say when Tinker retired a model, as it did all of Llama; "" of any other."""
    return "Tinker retired it on 2026-06-12" if model_name.startswith("meta-llama/") else ""


def whole(value: object) -> int:
    """Read a number of tokens; 0 where a log has none or is damaged."""
    return int(value) if isinstance(value, int | float) and abs(value) < _MANY else 0


def count_tokens(row: Mapping[str, Any]) -> Usage:
    """Count the tokens of a training step, from its row of metrics."""
    names = ("env/all/total_ob_tokens", "env/all/total_ac_tokens", "num_tokens")
    shown, said, learned = (whole(row.get(name)) for name in names)
    return Usage(prefill=shown, sample=said, train=shown + said + learned)
