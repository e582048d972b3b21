"""One paper, one answer, one reward: the task as the cookbook's ``Env`` and ``EnvGroupBuilder``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
    Logs,
    Metrics,
    Observation,
    StepResult,
    StopReason,
    Trajectory,
)
from tinker_cookbook.utils import logtree
from tinker_cookbook.utils.logtree_formatters import ConversationFormatter

from sciscirl.contracts import Answer, parse_answer
from sciscirl.experiments import TaskRules
from sciscirl.metrics import INVALID, make_prediction, tie_metrics
from sciscirl.prompts import cap_view, render_prompt
from sciscirl.rewards import REWARDS, RewardParts, score_answer
from sciscirl.task import VOCABULARIES, Paper

_LABELS: Final = VOCABULARIES["disruption_label"]


class DisruptionEnv(Env):
    """Shows a model one paper and pays for one answer. Single-use, like every ``Env``.

    Not an ``EnvFromMessageEnv``: that one ends an answer that was cut off with a flat reward and without its text,
    while here such an answer is read, logged, and scored as the invalid answer that it is.

    Args:
        paper: what is shown, and the label that is right.
        rules: prompt, contract and reward.
        renderer: of the model's chat format, from ``tinker_cookbook.renderers.get_renderer``.
    """

    def __init__(self, paper: Paper, rules: TaskRules, renderer: Renderer) -> None:
        self.paper = paper
        self.rules = rules
        self.renderer = renderer
        self.example_id = paper.openalex_id  # the cookbook's benchmarks name a stored answer by it

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        """Return the prompt as tokens, and what ends an answer."""
        prompt = build_messages(self.paper, self.rules, self.renderer)
        return self.renderer.build_generation_prompt(prompt), self.renderer.get_stop_sequences()

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        """Score the answer; the episode is over.

        Returns:
            Reward; its parts and what was predicted, as metrics that can be averaged; and as logs a row of
            ``metrics.PREDICTIONS``, without what is null there.
        """
        stop_reason = (extra or {}).get("stop_reason", "stop")
        text, is_ended = read_action(action, self.renderer)
        if stop_reason == "length":
            end = StopReason.MAX_TOKENS
        else:
            end = StopReason.COMPLETED if is_ended else StopReason.PARSE_ERROR
        answer = parse_answer(text, self.rules.contract)
        if end != StopReason.COMPLETED:
            answer = void(answer)
        gold = str(self.paper.gold.disruption_label)  # read_split lets no paper through that has none
        reward = score_answer(answer, gold, REWARDS[self.rules.reward])
        self._show(text, answer, reward)
        return StepResult(
            reward=reward.total,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=self.renderer.get_stop_sequences(),
            metrics=_metrics(answer, gold, reward, end),
            logs=_present(make_prediction(self.paper.openalex_id, gold, answer, reward, text)),
        )

    def _show(self, text: str, answer: Answer, reward: RewardParts) -> None:
        """Write the episode into the run's readable log, where one is open."""
        with logtree.scope_header("Prompt"):
            prompt = build_messages(self.paper, self.rules, self.renderer)
            logtree.log_formatter(ConversationFormatter(messages=prompt))
        with logtree.scope_header("Answer"):
            logtree.log_formatter(ConversationFormatter(messages=[Message(role="assistant", content=text)]))
        with logtree.scope_header("Reward"):
            read = {"gold": self.paper.gold.disruption_label, "predicted": str(answer.label), "problem": answer.problem}
            logtree.table_from_dict(read | {part: f"{value:.2f}" for part, value in asdict(reward).items()})


@dataclass(frozen=True)
class DisruptionGroupBuilder(EnvGroupBuilder):
    """Several answers to one paper, whose rewards training centres. Pickles.

    Attributes:
        paper: what every environment of the group shows.
        rules: prompt, contract and reward.
        renderer: from ``get_renderer``, which gives it what pickling needs.
        group_size: how many answers.
    """

    paper: Paper
    rules: TaskRules
    renderer: Renderer
    group_size: int = 1

    async def make_envs(self) -> Sequence[Env]:
        """Make one environment for each answer."""
        return [DisruptionEnv(self.paper, self.rules, self.renderer) for _ in range(self.group_size)]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """Add no reward; log how far the rewards of the group tie.

        Tied rewards have no advantage, so that a group of equal ones teaches nothing. A group of one has no pair
        to tie, and none of these metrics.
        """
        if len(trajectory_group) < 2:
            return [(0.0, {}) for _ in trajectory_group]
        rewards = [sum(step.reward for step in trajectory.transitions) for trajectory in trajectory_group]
        ties: Metrics = dict(tie_metrics([rewards]))
        return [(0.0, ties) for _ in trajectory_group]

    def logging_tags(self) -> list[str]:
        """Return the tag under which the metrics of this task are averaged."""
        return ["disruption"]


def build_messages(paper: Paper, rules: TaskRules, renderer: Renderer) -> list[Message]:
    """Write the prompt of one paper, cut to ``rules.max_paper_tokens`` of the renderer's tokenizer."""
    view = cap_view(
        paper.view,
        rules.max_paper_tokens,
        lambda text: len(renderer.tokenizer.encode(text, add_special_tokens=False)),
    )
    messages = render_prompt(view, rules.style, rules.contract)
    return [Message(role=message["role"], content=message["content"]) for message in messages]


def read_action(action: Action, renderer: Renderer) -> tuple[str, bool]:
    """Read sampled tokens as text: what the renderer frames is taken off, whatever the model wrote is kept.

    A renderer parses thinking and tool calls out of an answer. They are not allowed here, so where there are any the
    text is as it was sampled, and the contract gets to see them.

    Returns:
        The text, and whether the model ended it by itself.
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


def void(answer: Answer) -> Answer:
    """Make an answer that was cut off invalid, however well it reads so far.

    Example:
        >>> answer = void(parse_answer('{"disruption_label": "neutral", "confidence": 0.5}', "two_keys"))
        >>> answer.is_json, answer.is_valid, answer.label, answer.problem
        (True, False, None, 'cut_off')
    """
    return replace(answer, label=None, confidence=None, is_valid=False, problem="cut_off")


def _metrics(answer: Answer, gold: str, reward: RewardParts, end: StopReason) -> Metrics:
    """Number what happened; the cookbook averages each key over the answers that have it.

    So ``recall/neutral`` becomes the recall of a batch, since only answers to neutral papers have the key.
    """
    is_right = float(answer.is_valid and answer.label == gold)
    metrics: Metrics = {f"reward/{part}": value for part, value in asdict(reward).items() if part != "total"}
    metrics |= {f"predicted_share/{name}": float((answer.label or INVALID) == name) for name in (*_LABELS, INVALID)}
    metrics |= {f"gold_share/{label}": float(gold == label) for label in _LABELS}
    metrics |= {
        "label_match": is_right,
        f"recall/{gold}": is_right,
        "parse_ok": float(answer.is_json),
        "format_strict_ok": float(answer.is_valid),
        "invalid": float(not answer.is_valid),
        "think": float(answer.has_think),
        "tolerant_label_match": float(answer.tolerant_label == gold),
        "max_tokens_reached": float(end == StopReason.MAX_TOKENS),
        "parse_error": float(end == StopReason.PARSE_ERROR),
        f"{STOP_METRIC_PREFIX}{end}": 1.0,
    }
    if answer.confidence is not None:
        metrics["mean_confidence"] = answer.confidence
    return metrics


def _present(row: Mapping[str, str | float | bool | None]) -> Logs:
    return {name: value for name, value in row.items() if value is not None}
