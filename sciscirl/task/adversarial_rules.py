"""How a preset has its answers challenged: by whom, who judges, and what an answer then earns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import Meta

from sciscidata.options.checks import check_fields
from sciscirl.errors import RewardError

Credit = Literal["both", "mean"]
#: The challenger that needs no model: ``RuleBasedChallenger``.
BY_RULES: Final = "rules"


@dataclass(frozen=True, kw_only=True, slots=True)
class AdversarialRules:
    """What a challenged answer earns, and who challenges and judges it. RewardError if revision is above defence."""

    credit: Credit = "both"  # both: +1 if both labels are right, else -1, as published; mean: of +1 or -1 for each
    reasoning: Annotated[float, Meta(ge=0, le=0.3)] = 0.3  # the most that R_reasoning can be
    revision: Annotated[float, Meta(ge=0, le=0.2)] = 0.2  # R_adaptation of a label that was wrong, then right
    defence: Annotated[float, Meta(ge=0, le=0.2)] = 0.2  # the same, right both times
    challenger: str = BY_RULES  # Agent B: BY_RULES, or a base model that the server offers; not trained
    judge: str | None = None  # a base model that awards R_reasoning; None: the rubric does

    def __post_init__(self) -> None:
        check_fields(self, RewardError)
        if self.revision > self.defence:
            raise RewardError(
                f"revision is {self.revision}, above defence {self.defence}: a wrong start would pay. Raise defence."
            )
