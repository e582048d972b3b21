"""The rules of one task: labels, prompt, contract and reward, which belong together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sciscirl.errors import SciSciRLError
from sciscirl.task.contracts import CONTRACTS, Answer, ContractName, parse_answer
from sciscirl.task.papers import TARGETS, Paper, TargetName, count_labels
from sciscirl.task.prompts import STYLES, PromptStyle
from sciscirl.task.rewards import REWARDS, RewardTable, balance


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRules:
    """What the model is asked, how it has to answer, and what that earns.

    Attributes:
        target: which labels are asked for.
        style: which prompt (``prompts.render_prompt``).
        contract: which keys the answer has.
        reward: a name in ``rewards.REWARDS``.
        max_paper_tokens: title and abstract are cut to this many tokens together; not published.
        class_counts: training papers of each label, which a balanced reward is weighted by; see ``fitted``.

    Raises:
        SciSciRLError: on construction, if a value is not one of those, or partial credit meets forecasts, which have
            a measure of being nearly right already.

    Example:
        >>> TaskRules(style="poem")
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: style is 'poem', needs one of plain, ontology, checklist.
    """

    target: TargetName = "disruption"
    style: PromptStyle = "plain"
    contract: ContractName = "four_keys"
    reward: str = "soft"
    max_paper_tokens: int = 1024
    class_counts: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in (
            ("target", tuple(TARGETS)),
            ("style", STYLES),
            ("contract", CONTRACTS),
            ("reward", tuple(REWARDS)),
        ):
            if getattr(self, name) not in allowed:
                msg = f"{name} is {getattr(self, name)!r}, needs one of {', '.join(allowed)}."
                raise SciSciRLError(msg)
        if self.contract == "probabilities" and REWARDS[self.reward].adjacent is not None:
            msg = f"reward {self.reward!r} gives partial credit for labels. With probabilities take another reward."
            raise SciSciRLError(msg)
        check_positive(max_paper_tokens=self.max_paper_tokens)

    def fitted(self, papers: Iterable[Paper]) -> TaskRules:
        """Return these rules with the class counts of the training papers, if the reward is weighted by them.

        Raises:
            RewardError: if a label has no paper.
        """
        if not REWARDS[self.reward].is_balanced:
            return self
        rules = replace(self, class_counts=count_labels(papers, self.target))
        balance(REWARDS[self.reward], rules.class_counts)
        return rules

    @property
    def table(self) -> RewardTable:
        """What each case earns; of a balanced reward that was not fitted, one that scores no answer."""
        table = REWARDS[self.reward]
        return balance(table, self.class_counts) if self.class_counts else table

    def parse(self, text: str) -> Answer:
        """Judge one model output by the contract."""
        return parse_answer(text, self.contract, self.target)


def check_positive(**values: object) -> None:
    """Refuse what is not a whole number of at least 1.

    Raises:
        SciSciRLError: if one of ``values`` is not, with its name.

    Example:
        >>> check_positive(batch_size=0)
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: batch_size is 0, needs a whole number of at least 1.
    """
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            msg = f"{name} is {value!r}, needs a whole number of at least 1."
            raise SciSciRLError(msg)
