"""Try a reward that is a function on some papers, before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sciscirl.errors import RewardError
from sciscirl.task.contracts import Answer
from sciscirl.task.papers import Paper
from sciscirl.task.rewards import RewardParts


def try_function(
    reward: str, score: Callable[[Answer, Paper], RewardParts], answers: Sequence[Answer], papers: Iterable[Paper]
) -> None:
    """Try a reward on each of the answers to each paper (RewardError: it pays a wrong one as much as the right one)."""
    for paper in papers:
        gold = tuple(paper.labels(answers[0].target).values())
        earned = {(tuple(one.labels.values()), one.confidence): score(one, paper).total for one in answers}
        best = max(paid for (labels, _), paid in earned.items() if labels == gold)
        for (labels, confidence), paid in earned.items():
            right = earned[gold, confidence]
            if labels != gold and (paid >= best or paid > right):
                raise RewardError(
                    f"reward {reward!r} pays {paid:g} for {', '.join(labels)}, confidence {confidence:g}, "
                    f"and {right:g} for the right answer to {paper.openalex_id} ({best:g} at best). Needs more for "
                    "the right one."
                )
