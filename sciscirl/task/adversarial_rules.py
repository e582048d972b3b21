"""What an answer earns that is challenged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from sciscidata.options.checks import check_fields
from sciscirl.errors import RewardError

Credit = Literal["both", "mean"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AdversarialRules:
    """What a challenged answer earns. RewardError if revision is above defence."""

    credit: Credit = "both"  # both: +1 if both labels are right, else -1, as published; mean: of +1 or -1 for each
    reasoning: Annotated[float, Meta(ge=0, le=0.3)] = 0.3  # the most that R_reasoning can be
    revision: Annotated[float, Meta(ge=0, le=0.2)] = 0.2  # R_adaptation of a label that was wrong, then right
    defence: Annotated[float, Meta(ge=0, le=0.2)] = 0.2  # the same, right both times

    def __post_init__(self) -> None:
        check_fields(self, RewardError)
        if self.revision > self.defence:
            raise RewardError(
                f"revision is {self.revision}, above defence {self.defence}: a wrong start would pay. Raise defence."
            )
