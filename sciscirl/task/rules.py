"""The rules of one task: labels, prompt, contract and reward, which belong together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sciscidata._support.terminal import suggest
from sciscidata._support.validate import PositiveInt, check_fields
from sciscirl.errors import SciSciRLError
from sciscirl.task.contracts import Answer, ContractName, parse_answer
from sciscirl.task.papers import OwnTarget, Paper, PaperView, Target, count_labels
from sciscirl.task.prompts import STYLES, render_prompt
from sciscirl.task.rewards import BUILT_IN, REWARDS, RewardTable, balance, find_reward
from sciscirl.task.templates import OWN_PROMPTS, PromptTemplate, describe_prompt, list_styles


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRules:
    """What the model is asked, how it must answer, and what the answer earns.

    A prompt or reward of one's own is held whole, so that rules pickle. SciSciRLError if a name is unknown; a reward
    with partial credit meets the contract ``probabilities``, whose quadratic score pays for nearly right answers
    already; or a reward that names labels of disruption or novelty meets an own label.
    """

    target: Target = "disruption"
    style: str = "plain"  # a name in prompts.STYLES, or of own_prompt
    contract: ContractName = "four_keys"
    reward: str = "soft"  # a name in rewards.REWARDS, or of own_reward
    max_paper_tokens: PositiveInt = 1024  # the cap for a paper's record; a longer abstract is cut. Not published
    class_counts: tuple[tuple[str, int], ...] = ()  # training papers of each label; fitted sets it
    own_prompt: PromptTemplate | None = None  # None: that of the name
    own_reward: RewardTable | None = None  # None: that of the name

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        if self.own_prompt is None and self.style in OWN_PROMPTS:
            object.__setattr__(self, "own_prompt", OWN_PROMPTS[self.style])
        if self.own_reward is None and self.reward not in BUILT_IN:
            object.__setattr__(self, "own_reward", find_reward(self.reward))
        if self.own_prompt is None and self.style not in STYLES:
            known = list_styles()
            msg = f"style is {self.style!r}, needs one of {', '.join(known)}.{suggest(self.style, known)}"
            raise SciSciRLError(msg)
        for name, own in ((self.style, self.own_prompt), (self.reward, self.own_reward)):
            if own is not None and own.name != name:
                msg = f"TaskRules names {name!r} and holds {own.name!r} in its place. Name what it holds."
                raise SciSciRLError(msg)
        if self.contract == "probabilities" and self._unfitted.adjacent is not None:
            msg = f"reward {self.reward!r} gives partial credit for labels. With probabilities take another reward."
            raise SciSciRLError(msg)
        table = self._unfitted
        weighted = {label for label, _ in table.class_weights}
        if isinstance(self.target, OwnTarget) and (
            table.adjacent is not None or not weighted <= {*self.target.label.classes}
        ):
            others = [name for name, one in REWARDS.items() if one.adjacent is None and not one.class_weights]
            msg = (
                f"reward {self.reward!r} pays for labels of disruption or novelty by name, and the task is the own "
                f"label {self.target.label.name}. Take a preset with another reward: {', '.join(others)}."
            )
            raise SciSciRLError(msg)

    def fitted(self, papers: Iterable[Paper]) -> TaskRules:
        """Return these rules, with class counts if the reward is balanced (RewardError: a label has too few papers)."""
        if not self._unfitted.is_balanced:
            return self
        rules = replace(self, class_counts=count_labels(papers, self.target))
        self._balance(rules.class_counts)
        return rules

    @property
    def _unfitted(self) -> RewardTable:
        return self.own_reward or find_reward(self.reward)

    @property
    def table(self) -> RewardTable:
        """What each case earns. A balanced table scores answers only after ``fitted``."""
        return self._balance(self.class_counts) if self.class_counts else self._unfitted

    @property
    def prompt(self) -> PromptTemplate:
        """The prompt, as a template that needs nothing but the paper."""
        return describe_prompt(self.style, self.own_prompt, self.contract, self.target)

    def render(self, view: PaperView) -> list[dict[str, str]]:
        """Write the messages that ask about one paper: system, then user."""
        if self.own_prompt is not None:
            return self.own_prompt.render(view, self.contract, self.target)
        return render_prompt(view, self.style, self.contract, self.target)

    def _balance(self, counts: Iterable[tuple[str, int]]) -> RewardTable:
        return balance(self._unfitted, counts, self.target if isinstance(self.target, OwnTarget) else None)

    def parse(self, text: str) -> Answer:
        """Judge one model output by the contract."""
        return parse_answer(text, self.contract, self.target)


def check_positive(**values: object) -> None:
    """Refuse a value that is not a whole number of at least 1 (SciSciRLError)."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            msg = f"{name} is {value!r}, needs a whole number of at least 1."
            raise SciSciRLError(msg)
