"""The adversarial task: predict, be challenged, defend or revise, as the cookbook's ``Env`` and its builders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import cast

import chz
from tinker_cookbook.completers import MessageCompleter
from tinker_cookbook.renderers import Message, Renderer, get_text_content
from tinker_cookbook.rl.types import Action, ActionExtra, Env, Metrics, StepResult, StopReason
from tinker_cookbook.utils import logtree
from tinker_cookbook.utils.logtree_formatters import ConversationFormatter

from sciscirl.envs.dataset import LabelDatasetBuilder
from sciscirl.envs.env import LabelEnv, LabelGroupBuilder, build_messages, end_episode, measure_answer, show_view
from sciscirl.lab.adversarial.metrics import PARTS, flip_metrics, make_adversarial_prediction
from sciscirl.lab.adversarial.opponents import (
    MAX_TOKENS,
    ModelCompleter,
    RuleBasedChallenger,
    Seen,
    ask_challenger,
    ask_judge,
    render_request,
)
from sciscirl.lab.adversarial.rewards import AdversarialParts, Episode, Reasoning, judge_by_rubric, score_episode
from sciscirl.metrics.predictions import INVALID
from sciscirl.presets import Preset
from sciscirl.task.adversarial_rules import BY_RULES, AdversarialRules
from sciscirl.task.contracts import Answer
from sciscirl.task.papers import Paper, PaperView, TargetName
from sciscirl.task.prompts import escape_markup, render_question
from sciscirl.task.rules import TaskRules


@dataclass(frozen=True)
class Opponents:
    """The challenger (Agent B) and the judge of an answer, and what it then earns. Pickles if both do."""

    rules: AdversarialRules = field(default_factory=AdversarialRules)
    challenger: MessageCompleter = field(default_factory=RuleBasedChallenger)
    judge: MessageCompleter | None = None  # awards R_reasoning; None: the rubric does


class AdversarialEnv(LabelEnv):
    """Shows a model one paper, challenges its answer, and rewards the answer after that.

    - A valid first answer meets the challenger, which sees the paper as the model saw it, and the answer.
    - An invalid first answer meets no challenger: the model is asked to correct the form, and loses R_adaptation.
    - A first answer that was cut off, or ended in more than one way, ends the episode. Nothing shows where the model's
      turn ends. It also counts as the final answer, which is then invalid.

    The reward comes with the last turn. Training sees each turn as it was sampled, except that markup is escaped.
    """

    def __init__(self, paper: Paper, rules: TaskRules, renderer: Renderer, opponents: Opponents) -> None:
        super().__init__(paper, rules, renderer)
        self.opponents = opponents
        self.view = cast("PaperView", show_view(paper, rules, renderer))  # no pairs, as no own label
        self._first: tuple[Answer, str] | None = None
        self._challenge = ""

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """Challenge a first answer; score the episode after the second.

        The first turn has no reward. The last one has it. Its metrics, which can be averaged, are its parts, the
        prediction and the effect of the challenge. Its logs are a row of ``adversarial_schema`` without the nulls.
        """
        text, answer, end = self._read(action, extra)
        if self._first is None:
            self._first = answer, text
            if end == StopReason.COMPLETED:
                return await self._meet(answer, text)
        first, first_text = self._first
        self.answer = answer
        episode = Episode(
            view=self.view, first=first, first_text=first_text, challenge=self._challenge, final=answer, final_text=text
        )
        return await self._score(episode, end)

    async def _meet(self, answer: Answer, text: str) -> StepResult:
        self._challenge = await challenge_answer(self.opponents, answer, self.view, text, self.rules)
        conversation = self._converse(escape_markup(text), self._challenge)
        return StepResult(
            reward=0.0,
            episode_done=False,
            next_observation=self.renderer.build_generation_prompt(conversation),
            next_stop_condition=self.renderer.get_stop_sequences(),
            logs={"text": text, "challenge": self._challenge},
        )

    def _converse(self, first: str, challenge: str) -> list[Message]:
        question = build_messages(self.paper, self.rules, self.renderer)
        return continue_conversation(question, first, challenge, self.rules)

    async def _score(self, episode: Episode, end: StopReason) -> StepResult:
        gold = self.paper.labels(self.rules.target)
        reward, metrics = await judge_episode(self.opponents, episode, gold)
        metrics |= measure_answer(episode.final, gold) | end_episode(end)
        metrics |= flip_metrics(gold, episode.first.labels, episode.final.labels)
        self._show_episode(episode, gold, reward)
        row = make_adversarial_prediction(self.paper.openalex_id, gold, episode, reward)
        return self._end(reward.total, metrics, row)

    def _show_episode(self, episode: Episode, gold: dict[str, str], reward: AdversarialParts) -> None:
        """Write the episode into the readable log of the run, if one is open."""
        turns = (
            build_messages(self.paper, self.rules, self.renderer)
            if episode.first is episode.final
            else self._converse(episode.first_text, episode.challenge)
        )
        turns = [*turns, Message(role="assistant", content=episode.final_text)]
        with logtree.scope_header("Episode"):
            logtree.log_formatter(ConversationFormatter(messages=turns))
        with logtree.scope_header("Reward"):
            said = {
                name: ", ".join(answer.labels.values()) or INVALID
                for name, answer in (("first", episode.first), ("final", episode.final))
            }
            parts = {part.name: f"{getattr(reward, part.name):.2f}" for part in fields(AdversarialParts)}
            logtree.table_from_dict({"gold": ", ".join(gold.values()), **said, **parts})


async def challenge_answer(opponents: Opponents, answer: Answer, view: PaperView, text: str, rules: TaskRules) -> str:
    """Return the objection to a first answer; "" to an invalid one."""
    if not answer.is_valid:
        return ""
    # no own label: TaskRules refuses it
    return await ask_challenger(opponents.challenger, Seen(view, text, cast("TargetName", rules.target)))


async def judge_episode(
    opponents: Opponents, episode: Episode, gold: dict[str, str]
) -> tuple[AdversarialParts, Metrics]:
    """Return the reward of an episode, and what is measured of it: parts, rubric, judge."""
    rubric = judge_by_rubric(episode)
    n_steps: int | None = rubric.n_steps
    metrics: Metrics = {f"rubric/{one.name}": float(getattr(rubric, one.name)) for one in fields(Reasoning)}
    if opponents.judge is not None and episode.final.is_valid:
        n_steps = await ask_judge(opponents.judge, episode)
        metrics["judge_invalid"] = float(n_steps is None)
    reward = score_episode(episode, gold, opponents.rules, n_steps or 0)
    metrics |= {f"reward/{name}": getattr(reward, name) for name in PARTS}
    return reward, metrics | {"challenged": float(bool(episode.challenge))}


async def play_challenge(
    paper: Paper,
    preset: Preset,
    policy: Callable[[list[Message]], Awaitable[Message]],
    opponents: Opponents | None,
    turns: list[Message],
    first_text: str,
) -> tuple[list[Message], float, dict[str, float]]:
    """Challenge a first answer in text and score the last one: all turns, the reward and its parts."""
    rules, view = preset.rules, cast("PaperView", preset.rules.see(paper.view))
    if opponents is None:
        opponents = make_opponents(preset.adversarial or AdversarialRules(), preset.model, None)
    first = rules.parse(first_text)
    challenge = await challenge_answer(opponents, first, view, first_text, rules)
    turns = continue_conversation(turns, escape_markup(first_text), challenge, rules)
    final_text = get_text_content(await policy(turns))
    episode = Episode(
        view=view, first=first, first_text=first_text, challenge=challenge, final=rules.parse(final_text),
        final_text=final_text,
    )  # fmt: skip
    reward, _ = await judge_episode(opponents, episode, paper.labels(rules.target))
    parts = {name: getattr(reward, name) for name in PARTS}
    return [*turns, Message(role="assistant", content=final_text)], reward.total, parts


@dataclass(frozen=True)
class AdversarialGroupBuilder(LabelGroupBuilder):
    """A group: several episodes about one paper, whose rewards training centres."""

    opponents: Opponents = field(default_factory=Opponents)

    def _make_env(self) -> Env:
        return AdversarialEnv(self.paper, self.rules, self.renderer, self.opponents)


@chz.chz
class AdversarialDatasetBuilder(LabelDatasetBuilder):
    """As LabelDatasetBuilder, with opponents, which sample from the server ``base_url``; ``reward`` is not used."""

    adversarial: AdversarialRules = AdversarialRules()
    base_url: str | None = None

    def opponents(self) -> Opponents:
        """Return challenger and judge, as ``make_opponents``; each connects when it is first used."""
        return make_opponents(self.adversarial, self.model_name, self.renderer_name, self.base_url)

    def group_maker(self) -> Callable[..., LabelGroupBuilder]:
        """Return what makes a group of challenged episodes."""
        return partial(AdversarialGroupBuilder, opponents=self.opponents())


def continue_conversation(question: Sequence[Message], first: str, challenge: str, rules: TaskRules) -> list[Message]:
    """Return what the model reads before its last turn: the question, its first answer, and the challenge to it."""
    request = render_request(challenge, render_question(rules.contract, rules.target))
    return [*question, Message(role="assistant", content=first), request]


def count_second_turn(rules: TaskRules, renderer: Renderer) -> int:
    """Count the most tokens that ask for the second answer."""
    request = render_request(".", render_question(rules.contract, rules.target))
    return renderer.build_generation_prompt([request]).length + MAX_TOKENS


def make_opponents(
    rules: AdversarialRules, model: str, renderer_name: str | None, base_url: str | None = None
) -> Opponents:
    """Make the challenger and the judge. One that is ``model`` itself has its chat format, ``renderer_name``."""

    def make(who: str) -> MessageCompleter:
        if who == BY_RULES:
            return RuleBasedChallenger()
        return ModelCompleter(who, renderer_name=renderer_name if who == model else None, base_url=base_url)

    return Opponents(rules, make(rules.challenger), None if rules.judge is None else make(rules.judge))
