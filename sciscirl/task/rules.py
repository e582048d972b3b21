"""The rules of one task: labels, prompt, contract and reward, which belong together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sciscidata._support.validate import PositiveInt, check_fields
from sciscirl.errors import SciSciRLError
from sciscirl.task.contracts import Answer, ContractName, parse_answer
from sciscirl.task.papers import OwnTarget, Paper, Target, count_labels
from sciscirl.task.prompts import PromptStyle
from sciscirl.task.rewards import REWARDS, RewardTable, balance


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRules:
    """What the model is asked, how it must answer, and what the answer earns.

    SciSciRLError if a reward with partial credit meets the contract ``probabilities``, whose quadratic score pays for
    nearly right answers already; or if a reward that names labels of disruption or novelty meets an own label.
    """

    target: Target = "disruption"
    style: PromptStyle = "plain"
    contract: ContractName = "four_keys"
    reward: str = "soft"  # a name in rewards.REWARDS
    max_paper_tokens: PositiveInt = 1024  # the cap for a paper's record; a longer abstract is cut. Not published
    class_counts: tuple[tuple[str, int], ...] = ()  # training papers of each label; fitted sets it

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        if self.reward not in REWARDS:
            msg = f"TaskRules.reward is {self.reward!r}, needs one of {', '.join(REWARDS)}."
            raise SciSciRLError(msg)
        if self.contract == "probabilities" and REWARDS[self.reward].adjacent is not None:
            msg = f"reward {self.reward!r} gives partial credit for labels. With probabilities take another reward."
            raise SciSciRLError(msg)
        table = REWARDS[self.reward]
        if isinstance(self.target, OwnTarget) and (table.adjacent is not None or table.class_weights):
            others = [name for name, one in REWARDS.items() if one.adjacent is None and not one.class_weights]
            msg = (
                f"reward {self.reward!r} pays for labels of disruption or novelty by name, and the task is the own "
                f"label {self.target.label.name}. Take a preset with another reward: {', '.join(others)}."
            )
            raise SciSciRLError(msg)

    def fitted(self, papers: Iterable[Paper]) -> TaskRules:
        """Return these rules, with class counts if the reward is balanced (RewardError: a label has too few papers)."""
        if not REWARDS[self.reward].is_balanced:
            return self
        rules = replace(self, class_counts=count_labels(papers, self.target))
        self._balance(rules.class_counts)
        return rules

    @property
    def table(self) -> RewardTable:
        """What each case earns. A balanced table scores answers only after ``fitted``."""
        table = REWARDS[self.reward]
        return self._balance(self.class_counts) if self.class_counts else table

    def _balance(self, counts: Iterable[tuple[str, int]]) -> RewardTable:
        return balance(REWARDS[self.reward], counts, self.target if isinstance(self.target, OwnTarget) else None)

    def parse(self, text: str) -> Answer:
        """Judge one model output by the contract."""
        return parse_answer(text, self.contract, self.target)


def check_positive(**values: object) -> None:
    """Refuse a value that is not a whole number of at least 1 (SciSciRLError)."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            msg = f"{name} is {value!r}, needs a whole number of at least 1."
            raise SciSciRLError(msg)
