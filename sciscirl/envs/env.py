"""One paper, one answer, one reward: the task as the cookbook's ``Env`` and ``EnvGroupBuilder``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import tinker
from tinker_cookbook.completers import StopCondition
from tinker_cookbook.exceptions import RendererError
from tinker_cookbook.renderers import Message, Renderer, get_text_content
from tinker_cookbook.rl.types import (
    STOP_METRIC_PREFIX,
    Action,
    ActionExtra,
    Env,
    EnvGroupBuilder,
    Metrics,
    Observation,
    StepResult,
    StopReason,
    Trajectory,
)
from tinker_cookbook.utils import logtree
from tinker_cookbook.utils.logtree_formatters import ConversationFormatter

from sciscirl.task.contracts import Answer, is_cut_off, void
from sciscirl.task.papers import Paper, View, list_labels, short_name
from sciscirl.task.predictions import GROUP_SQUARE, INVALID, make_prediction, merge_labels, tie_metrics
from sciscirl.task.prompts import cap_view
from sciscirl.task.rewards import RewardParts, quadratic_loss
from sciscirl.task.rules import TaskRules

_ROUNDING: Final = 1e-9  # of rewards


class LabelEnv(Env):
    """Shows a model one paper and rewards one answer, for any task. Single-use, like every ``Env``.

    This is not an ``EnvFromMessageEnv``, which gives an answer that was cut off a flat reward and drops its text. Here
    that answer is read, logged, and scored as an invalid answer.

    Args:
        paper: the paper and its gold labels.
        rules: labels, prompt, contract and reward.
        renderer: of the model's chat format, from ``tinker_cookbook.renderers.get_renderer``.

    Attributes:
        answer: the verdict on the model's output, after ``step``.
    """

    def __init__(self, paper: Paper, rules: TaskRules, renderer: Renderer) -> None:
        self.paper = paper
        self.rules = rules
        self.renderer = renderer
        self.example_id = paper.openalex_id  # the cookbook's benchmarks name a stored answer by it
        self.answer: Answer | None = None

    @cached_property
    def prompt(self) -> list[Message]:
        """The prompt, rendered once."""
        return build_messages(self.paper, self.rules, self.renderer)

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        """Return the prompt as tokens, and the stop condition of an answer."""
        return self.renderer.build_generation_prompt(self.prompt), self.renderer.get_stop_sequences()

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """Score the answer, which ends the episode.

        Returns:
            The reward. Its metrics, which can be averaged, are its parts and the prediction. Its logs are a row of
            ``predictions.PREDICTIONS`` without the nulls.
        """
        text, answer, end = self._read(action, extra)
        self.answer = answer
        gold, reward = self.paper.labels(self.rules.target), self.rules.score(answer, self.paper)
        self._show(text, answer, gold, reward)
        metrics = _reward_metrics(reward, gold) | measure_answer(answer, gold) | end_episode(end)
        if self.rules.contract == "probabilities":
            metrics["forecast_tie_rate"] = float(answer.problem == "tie")
        return self._end(reward.total, metrics, make_prediction(self.paper.openalex_id, gold, answer, reward, text))

    def _read(self, action: Action, extra: ActionExtra | None) -> tuple[str, Answer, StopReason]:
        """Return the text of an answer, the verdict on it, and how it ended."""
        text, is_ended = read_action(action, self.renderer)
        reason = (extra or {}).get("stop_reason")
        answer = self.rules.parse(text, reason)
        if is_cut_off(reason):
            return text, answer, StopReason.MAX_TOKENS
        if not is_ended:
            return text, void(answer), StopReason.PARSE_ERROR
        return text, answer, StopReason.COMPLETED

    def _end(self, reward: float, metrics: Metrics, row: Mapping[str, str | float | bool | None]) -> StepResult:
        metrics["at_floor"] = float(reward <= self.rules.table.not_json + _ROUNDING)
        return StepResult(
            reward=reward,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=self.renderer.get_stop_sequences(),
            metrics=metrics,
            logs={name: value for name, value in row.items() if value is not None},
        )

    def _show(self, text: str, answer: Answer, gold: Mapping[str, str], reward: RewardParts) -> None:
        """Write the episode into the readable log of the run, if one is open."""
        with logtree.scope_header("Prompt"):
            logtree.log_formatter(ConversationFormatter(messages=self.prompt))
        with logtree.scope_header("Answer"):
            logtree.log_formatter(ConversationFormatter(messages=[Message(role="assistant", content=text)]))
        with logtree.scope_header("Reward"):
            said = ", ".join(answer.labels.values()) or INVALID
            read = {"gold": ", ".join(gold.values()), "predicted": said, "problem": answer.problem}
            logtree.table_from_dict(read | {part: f"{value:.2f}" for part, value in reward.named().items()})


@dataclass(frozen=True)
class LabelGroupBuilder(EnvGroupBuilder):
    """A group: several answers to one paper, whose rewards training centres. Pickles.

    Attributes:
        paper: the paper that every environment of the group shows.
        rules: labels, prompt, contract and reward.
        renderer: from ``get_renderer``, so that it pickles.
        group_size: number of answers.
    """

    paper: Paper
    rules: TaskRules
    renderer: Renderer
    group_size: int = 1

    async def make_envs(self) -> Sequence[Env]:
        """Make one environment for each answer."""
        return [self._make_env() for _ in range(self.group_size)]

    def _make_env(self) -> Env:
        return LabelEnv(self.paper, self.rules, self.renderer)

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """Log the tie rates of the group; the reward of each answer is that of its environment."""
        shared = measure_group([sum(step.reward for step in one.transitions) for one in trajectory_group])
        return [(0.0, shared) for _ in trajectory_group]

    def logging_tags(self) -> list[str]:
        """Return the tag under which the metrics of this task are averaged."""
        return [self.rules.target]


def measure_group(rewards: Sequence[float]) -> Metrics:
    """Return the tie rates of the rewards of a group, and the square of their mean; nothing of a group of one.

    Tied rewards have no advantage, so a group of equal rewards teaches nothing.
    """
    measured: Metrics = dict(tie_metrics([rewards]))
    if measured:
        # Its mean over the groups of a step, less the square of the mean reward, is the variance between groups.
        measured[GROUP_SQUARE] = (sum(rewards) / len(rewards)) ** 2
    return measured


def build_messages(paper: Paper, rules: TaskRules, renderer: Renderer) -> list[Message]:
    """Write the prompt of one paper, cut to ``rules.max_paper_tokens`` of the renderer's tokenizer."""
    messages = rules.render(show_view(paper, rules, renderer))
    return [Message(role=message["role"], content=message["content"]) for message in messages]


def show_view(paper: Paper, rules: TaskRules, renderer: Renderer) -> View:
    """Return what the model sees of a paper: without what is hidden, and cut to ``rules.max_paper_tokens``."""
    return cap_view(rules.see(paper.view), rules.max_paper_tokens, partial(count_tokens, renderer))


def count_tokens(renderer: Renderer, text: str) -> int:
    """Count the tokens of a text, without those that a tokenizer adds at its ends."""
    return len(renderer.tokenizer.encode(text, add_special_tokens=False))


def read_action(action: Action, renderer: Renderer) -> tuple[str, bool]:
    """Decode sampled tokens without the renderer's frame, and say whether the model ended the text by itself.

    Thinking and tool calls, which a renderer parses out of an answer, are not allowed: the contract sees the whole
    text.
    """
    sampled = str(renderer.tokenizer.decode(action))
    try:
        message, termination = renderer.parse_response(action)
    except RendererError:  # several ends in one answer
        return sampled, False
    has_more = "think>" in sampled or bool(message.get("tool_calls")) or bool(message.get("unparsed_tool_calls"))
    text = _without_end(action, renderer) if has_more else get_text_content(message)
    return text, termination.is_clean


def _without_end(action: Action, renderer: Renderer) -> str:
    ends = renderer.get_stop_sequences()
    kept = action[:-1] if action and action[-1] in ends else action
    text = str(renderer.tokenizer.decode(kept))
    for end in ends:
        if isinstance(end, str):
            text = text.partition(end)[0]
    return text


def _reward_metrics(reward: RewardParts, gold: Mapping[str, str]) -> Metrics:
    metrics: Metrics = {f"reward/{part}": value for part, value in reward.named().items() if part != "total"}
    if len(gold) > 1:
        metrics |= {f"{short_name(column)}/reward/task": reward.tasks.get(column, 0.0) for column in gold}
    return metrics


def measure_answer(answer: Answer, gold: Mapping[str, str]) -> Metrics:
    """Return the metrics of one answer; the cookbook averages each key over the answers that have it.

    So the average of ``recall/neutral`` is the recall in a batch. In the joint task, names are as in
    ``measure_predictions``.
    """
    by_label = {short_name(column): _label_metrics(answer, column, label) for column, label in gold.items()}
    metrics: Metrics = {}
    if len(by_label) == 1:
        metrics |= next(iter(by_label.values()))
    else:
        metrics |= merge_labels(by_label)
        metrics["both_match"] = min(part["label_match"] for part in by_label.values())
    metrics |= {
        "parse_ok": float(answer.is_json),
        "format_strict_ok": float(answer.is_valid),
        "invalid": float(not answer.is_valid),
        "think": float(answer.has_think),
    }
    if answer.confidence is not None:
        metrics["mean_confidence"] = answer.confidence
    return metrics


def end_episode(end: StopReason) -> Metrics:
    """Return how an episode ended, as 0 and 1 under the names that the cookbook reads."""
    return {
        "max_tokens_reached": float(end == StopReason.MAX_TOKENS),
        "parse_error": float(end == StopReason.PARSE_ERROR),
        f"{STOP_METRIC_PREFIX}{end}": 1.0,
    }


def _label_metrics(answer: Answer, column: str, gold: str) -> dict[str, float]:
    labels = list_labels(answer.target)[column]
    said = answer.labels.get(column, INVALID)
    metrics = {f"predicted_share/{name}": float(said == name) for name in (*labels, INVALID)}
    metrics |= {f"gold_share/{label}": float(gold == label) for label in labels}
    metrics |= {
        "label_match": float(said == gold),
        f"recall/{gold}": float(said == gold),
        "tolerant_label_match": float(answer.tolerant_labels.get(column) == gold),
    }
    if answer.forecast:
        metrics["forecast_brier"] = quadratic_loss(answer.forecast, column, gold)
    return metrics
