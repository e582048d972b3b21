"""The rules of one task: labels, prompt, contract and reward, which belong together."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Final, Literal

from sciscidata.label_thresholds import DISRUPTION_LABELS
from sciscidata.options.checks import PositiveInt, check_fields
from sciscidata.options.did_you_mean import suggest
from sciscirl.errors import PromptError, ReleaseError, SciSciRLError
from sciscirl.task.contracts import Answer, ContractName, Reasons, is_cut_off, parse_answer, render_answer, void
from sciscirl.task.papers import (
    CONTEXT,
    SEEN,
    AsOf,
    Context,
    NarrowTarget,
    OwnTarget,
    PairTarget,
    Paper,
    PaperView,
    Target,
    View,
    change_view,
    count_labels,
    list_hidden,
    list_labels,
)
from sciscirl.task.prompts import STYLES, PromptTemplate, find_prompt
from sciscirl.task.rewards import BUILT_IN, REWARDS, RewardParts, RewardTable, balance, find_reward, score_answer

#: How the labels of a paper count. equal: its label, like that of any other. confidence: its label, as much as one can
#: trust it. chances: each label, as likely as it is.
Weight = Literal["equal", "confidence", "chances"]
#: Papers that a reward is tried on before a run, if it is a function.
_N_TRIED: Final = 64


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked, and how it is answered.

    Attributes:
        target: the labels that are asked for: disruption, novelty, joint, pairs (which of two papers is the more
            disruptive one), or an own label of the release, by its name or as "label".
        style: the prompt: plain, ontology, checklist, or one of your own.
        contract: the keys of an answer.
        reward: a name in the table of rewards; options such as reward_correct change its numbers.
        max_paper_tokens: cut the text of a paper to this many tokens.
        hide: fields of a paper that neither prompt nor baselines see, such as primary_field.
        show: what the paper built on, of a release with context. references: works that it cites. at_publication: what
            earlier works made of these, in words.
        as_of: what a prompt knows of a paper. publication: nothing that came later, so cited_by_count is hidden.
            release: all that the release says of it.
        weight: how the labels of a paper count, in rewards and in supervised training. equal: its label, like that of
            any other. confidence: its label, as much as one can trust it (label_confidence). chances: each label, as
            likely as it is if the work is cited anew (soft targets).
    """

    target: Target = field(default="disruption", metadata={"option": str})
    style: str = "plain"
    contract: ContractName = "four_keys"
    reward: str = "soft"
    max_paper_tokens: PositiveInt = 1024  # not published
    hide: tuple[str, ...] = ()
    show: tuple[Context, ...] = ()
    as_of: AsOf = "release"  # as published: the presets of our own have publication
    weight: Weight = "equal"


@dataclass(frozen=True, kw_only=True)
class TaskRules(Task):
    """What the model is asked, how it must answer, and what the answer earns: a task that can be judged.

    A prompt or reward of one's own is held whole, so that rules pickle. SciSciRLError if they do not suit each other.
    """

    class_counts: tuple[tuple[str, int], ...] = ()  # training papers of each label; fitted sets it
    own_prompt: PromptTemplate | None = None  # None: that of the name in prompts.STYLES
    own_reward: RewardTable | None = None  # None: that of the name in rewards.REWARDS

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)
        if self.own_prompt is None and self.style not in STYLES:
            object.__setattr__(self, "own_prompt", find_prompt(self.style))
        if self.own_reward is None and self.reward not in BUILT_IN:
            object.__setattr__(self, "own_reward", find_reward(self.reward))
        self._check_hidden()
        table = self._unfitted
        for name, own in ((self.style, self.own_prompt), (self.reward, self.own_reward)):
            if own is not None and own.name != name:
                raise SciSciRLError(
                    f"TaskRules names {name!r} and holds {own.name!r} in its place. Name what it holds."
                )
        # The quadratic score of a forecast pays for nearly right answers already.
        if self.contract == "probabilities" and table.adjacent is not None:
            raise SciSciRLError(
                f"reward {self.reward!r} gives partial credit for labels. With probabilities take another reward."
            )
        if self.is_weighed and (isinstance(self.target, OwnTarget) or self.target != "disruption"):
            raise SciSciRLError(
                f"weight is {self.weight!r}, and confidence is known of disruption labels only. The task is "
                f"{self.target}: leave weight out."
            )
        if self.is_weighed and table.function is not None:
            raise SciSciRLError(
                f"weight is {self.weight!r} and has no effect: reward {self.reward!r} is a function, which sees "
                "paper.gold.chances. Leave weight out."
            )
        if self.is_weighed and table.kept - table.share_penalty <= table.broken:
            raise SciSciRLError(
                f"weight is {self.weight!r}, and reward {self.reward!r} pays {table.kept} for an unsure label and "
                f"{table.broken} for a broken contract. Raise kept, or leave weight out."
            )
        weighted = {label for label, _ in table.class_weights}
        if isinstance(self.target, OwnTarget) and (
            table.adjacent is not None or not weighted <= {*self.target.label.classes}
        ):
            others = [name for name, one in REWARDS.items() if one.adjacent is None and not one.class_weights]
            raise SciSciRLError(
                f"reward {self.reward!r} pays for labels of disruption or novelty by name, and the task is the own "
                f"label {self.target.label.name}. Take a preset with another reward: {', '.join(others)}."
            )

    def _check_hidden(self) -> None:
        every = (*SEEN, *CONTEXT)
        for name in self.hide:
            if name not in every:
                raise SciSciRLError(f"hide names {name!r}, needs some of {', '.join(every)}.{suggest(name, every)}")
            if name in self.show:
                raise SciSciRLError(f"hide and show both name {name}. Leave it out of one of them.")
        object.__setattr__(self, "hide", tuple(name for name in every if name in self.hide))
        object.__setattr__(self, "show", tuple(name for name in CONTEXT if name in self.show))
        if {*every} == {*self.unseen, *(self.target.hidden if isinstance(self.target, OwnTarget) else ())}:
            raise SciSciRLError(f"hide names every field of a paper. Leave one of {', '.join(SEEN)} to judge by.")
        shown = [name for name in (self.own_prompt.shown if self.own_prompt else ()) if name in self.hidden]
        if shown:
            why = "hide names. Leave it out of one of them."
            if shown[0] not in self.hide:
                why = "nobody knew at publication. Leave it out, or set as_of=release."
            raise PromptError(f"prompt {self.style!r} shows ${shown[0]}, which {why}")
        if self.own_prompt is None or "record" in self.own_prompt.shown:
            return
        if isinstance(self.target, PairTarget):
            raise PromptError(
                f"prompt {self.style!r} shows single fields, and a pair has two of each. Show $record instead."
            )
        if lacking := [name for name in self.show if name not in self.own_prompt.shown]:
            raise PromptError(
                f"show names {lacking[0]}, and prompt {self.style!r} has no place for it. Write ${lacking[0]} or "
                "$record into it, or leave it out of show."
            )

    def fitted(self, papers: Iterable[Paper]) -> TaskRules:
        """Return these rules, with class counts if the reward is balanced; a reward that is a function is tried."""
        if self._unfitted.function is not None:
            from sciscirl.task.function_trial import try_function  # which few rewards need

            answers = [*map(self.parse, find_shortest_answers(self))]
            if self.contract != "probabilities":
                answers = [replace(one, confidence=confidence) for one in answers for confidence in (0.0, 0.5, 1.0)]
            try_function(self.reward, self.score, answers, islice(papers, _N_TRIED))
        if not self._unfitted.is_balanced:
            return self
        counts = count_labels(papers, self.target) if not self.is_weighed else self._weigh_labels(papers)
        rules = replace(self, class_counts=counts)
        self._balance(rules.class_counts)
        return rules

    def score(self, answer: Answer, paper: Paper) -> RewardParts:
        """Reward one judged answer to a paper."""
        return score_answer(answer, paper.labels(self.target), self.table, self.weigh(paper), paper)

    def _weigh_labels(self, papers: Iterable[Paper]) -> tuple[tuple[str, int], ...]:
        (labels,) = list_labels(self.target).values()
        sums: dict[str, float] = dict.fromkeys(labels, 0.0)
        for paper in papers:
            for label, weight in self.weigh(paper).items():
                sums[label] += weight
        return tuple((label, round(total)) for label, total in sums.items())

    @property
    def is_weighed(self) -> bool:
        """Whether papers must be read with the chances of their labels."""
        return self.weight != "equal"

    def weigh(self, paper: Paper) -> dict[str, float]:
        """Return how much each label of a paper counts; {} where its labels count whole.

        Example:
            >>> from sciscirl.task.papers import Gold, PaperView
            >>> gold = Gold("neutral", None, chances=(0.7, 0.1, 0.2))
            >>> paper = Paper("W1", PaperView("On sleep", None, 2001, 3, None), gold)
            >>> TaskRules(weight="confidence").weigh(paper), TaskRules(weight="chances").weigh(paper)
            ({'neutral': 0.2}, {'disruptive': 0.7, 'consolidating': 0.1, 'neutral': 0.2})
        """
        if not self.is_weighed:
            return {}
        if paper.gold.chances is None:
            raise ReleaseError(
                f"{paper.openalex_id} was read without the chances of its labels. Read papers with_chances=True."
            )
        (asked,) = list_labels(self.target).values()
        every = zip(DISRUPTION_LABELS, paper.gold.chances, strict=True)
        chances: dict[str, float] = {label: chance for label, chance in every if label in asked}
        if self.weight == "chances":
            total = math.fsum(chances.values())  # below 1 for labels by rank: a redraw may have none
            return {label: chance / total for label, chance in chances.items()}
        return {label: chances[label] for label in paper.labels(self.target).values()}

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
        return (self.own_prompt or find_prompt(self.style)).filled(self.contract, self.target, self.unseen)

    @property
    def hidden(self) -> tuple[str, ...]:
        """What a prompt does not see of a paper: what ``hide`` names, and what ``as_of`` leaves out."""
        return list_hidden(self.hide, self.as_of)

    @property
    def unseen(self) -> tuple[str, ...]:
        """What a prompt does not show of a paper: what is hidden, and the context that nobody asked to see."""
        shown = {*self.show, *(self.own_prompt.shown if self.own_prompt else ())}
        return (*self.hidden, *(name for name in CONTEXT if name not in shown and name not in self.hidden))

    def see(self, view: View) -> View:
        """Return a paper as a prompt shows it (ReleaseError: what is to be shown, its release has not)."""
        unseen = self.unseen

        def look(one: PaperView) -> PaperView:
            if lacking := [name for name in CONTEXT if name not in unseen and getattr(one, name) is None]:
                raise ReleaseError(
                    f"the prompt shows {lacking[0]}, and the release has none of its papers. Build a release with the "
                    "context of its papers: sciscidata build ... --context."
                )
            if "publication_year" in self.hide and one.references:  # whose years would tell it
                one = replace(one, references=tuple(cited._replace(publication_year=None) for cited in one.references))
            return replace(one, **dict.fromkeys(unseen))

        return change_view(view, look)

    def render(self, view: View) -> list[dict[str, str]]:
        """Write the messages that ask about one paper."""
        prompt = self.own_prompt or find_prompt(self.style)
        return prompt.render(self.see(view), self.contract, self.target, self.unseen)

    def _balance(self, counts: Iterable[tuple[str, int]]) -> RewardTable:
        has_own_words = isinstance(self.target, OwnTarget | NarrowTarget)
        return balance(self._unfitted, counts, self.target if has_own_words else None)

    def parse(self, text: str | None, stop_reason: object = None) -> Answer:
        """Judge one model output by the contract; None, which some servers send, as an empty one.

        ``stop_reason`` says why it ended. An answer that was cut off is not valid.
        """
        answer = parse_answer(text or "", self.contract, self.target)
        return void(answer) if is_cut_off(stop_reason) else answer


def find_shortest_answers(rules: TaskRules) -> list[str]:
    """List the shortest valid answer with each of the labels."""
    columns = list_labels(rules.target)
    answers = (
        render_answer(
            dict(zip(columns, labels, strict=True)), rules.contract, rules.target, reasons=Reasons("a", ("a",))
        )
        for labels in product(*columns.values())
    )
    parsed = (json.loads(answer, parse_float=lambda number: int(float(number))) for answer in answers)
    return [json.dumps(answer, ensure_ascii=False, separators=(",", ":")) for answer in parsed]
