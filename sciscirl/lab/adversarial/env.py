"""The adversarial task: predict, be challenged, defend or revise, as the cookbook's ``Env`` and its builders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Final, cast

from tinker_cookbook.renderers import Message, Renderer
from tinker_cookbook.rl.types import Action, ActionExtra, Env, Metrics, StepResult, StopReason

from sciscirl.envs.env import LabelEnv, LabelGroupBuilder, end_episode, measure_answer, show_view
from sciscirl.lab.adversarial.challenger import object_by_rules, render_request
from sciscirl.lab.adversarial.rewards import (
    PARTS,
    Episode,
    Reasoning,
    adversarial_schema,
    judge_by_rubric,
    make_adversarial_prediction,
    score_episode,
)
from sciscirl.lab.evaluator import Challenge
from sciscirl.metrics.metrics import flip_metrics
from sciscirl.task.contracts import Answer
from sciscirl.task.experiment import AdversarialRules
from sciscirl.task.papers import Paper, PaperView, Target
from sciscirl.task.prompts import escape_markup, render_question
from sciscirl.task.rules import TaskRules

#: Writes the objection to an answer, from the paper as the model saw it and the labels by column.
Challenger = Callable[[PaperView, Mapping[str, str]], str]
_MOST_TOKENS: Final = 256  # of an objection


class AdversarialEnv(LabelEnv):
    """Shows a model one paper, challenges its answer, and rewards the answer after that.

    - A valid first answer meets the challenger, which sees the paper as the model saw it, and the labels.
    - An invalid first answer meets no challenger: the model is asked to correct the form, and loses R_adaptation.
    - A first answer that was cut off, or ended in more than one way, ends the episode. Nothing shows where the model's
      turn ends. It also counts as the final answer, which is then invalid.

    The reward comes with the last turn. Training sees each turn as it was sampled, except that markup is escaped.
    """

    def __init__(
        self,
        paper: Paper,
        rules: TaskRules,
        renderer: Renderer,
        adversarial: AdversarialRules,
        challenger: Challenger = object_by_rules,
    ) -> None:
        super().__init__(paper, rules, renderer)
        self.adversarial = adversarial
        self.challenger = challenger
        self.view = cast("PaperView", show_view(paper, rules, renderer))  # no pairs, as no own label
        self._first: tuple[Answer, str] | None = None
        self._challenge = ""

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """Challenge a first answer, without a reward; score the episode after the second.

        The logs of the last turn are a row of ``adversarial_schema`` without the nulls.
        """
        text, answer, end = self._read(action, extra)
        if self._first is None:
            self._first = answer, text
            if end == StopReason.COMPLETED:
                return self._meet(answer, text)
        first, first_text = self._first
        self.answer = answer
        episode = Episode(
            view=self.view, first=first, first_text=first_text, challenge=self._challenge, final=answer, final_text=text
        )
        return self._score(episode, end)

    def _meet(self, answer: Answer, text: str) -> StepResult:
        self._challenge = self.challenger(self.view, answer.labels) if answer.is_valid else ""
        self.prompt = continue_conversation(self.prompt, escape_markup(text), self._challenge, self.rules)
        return StepResult(
            reward=0.0,
            episode_done=False,
            next_observation=self.renderer.build_generation_prompt(self.prompt),
            next_stop_condition=self.renderer.get_stop_sequences(),
            logs={"text": text, "challenge": self._challenge},
        )

    def _score(self, episode: Episode, end: StopReason) -> StepResult:
        gold = self.paper.labels(self.rules.target)
        rubric = judge_by_rubric(episode)
        reward = score_episode(episode, gold, self.adversarial, rubric.n_steps)
        metrics: Metrics = {f"rubric/{one.name}": float(getattr(rubric, one.name)) for one in fields(Reasoning)}
        metrics |= {f"reward/{name}": getattr(reward, name) for name in PARTS}
        metrics |= {"challenged": float(bool(episode.challenge))}
        metrics |= measure_answer(episode.final, gold) | end_episode(end)
        metrics |= flip_metrics(gold, episode.first.labels, episode.final.labels)
        self._show(episode.final_text, episode.final, gold, reward)  # pyright: ignore[reportArgumentType] (names its parts, too)
        row = make_adversarial_prediction(self.paper.openalex_id, gold, episode, reward)
        return self._end(reward.total, metrics, row)


@dataclass(frozen=True)
class AdversarialGroupBuilder(LabelGroupBuilder):
    """A group: several episodes about one paper, whose rewards training centres."""

    adversarial: AdversarialRules = field(default_factory=AdversarialRules)
    challenger: Challenger = object_by_rules

    def _make_env(self) -> Env:
        return AdversarialEnv(self.paper, self.rules, self.renderer, self.adversarial, self.challenger)


def challenge_by(rules: AdversarialRules | None, target: Target) -> Challenge | None:
    """Return how the answers of a preset are challenged; None: they are not."""
    if rules is None:
        return None
    return Challenge(partial(AdversarialGroupBuilder, adversarial=rules), adversarial_schema(target))


def continue_conversation(question: Sequence[Message], first: str, challenge: str, rules: TaskRules) -> list[Message]:
    """Return what the model reads before its last turn: the question, its first answer, and the challenge to it."""
    request = render_request(challenge, render_question(rules.contract, rules.target))
    return [*question, Message(role="assistant", content=first), request]


def count_second_turn(rules: TaskRules, renderer: Renderer) -> int:
    """Count the most tokens that ask for the second answer."""
    request = render_request(".", render_question(rules.contract, rules.target))
    return renderer.build_generation_prompt([request]).length + _MOST_TOKENS
