"""The views of a report that go along the steps of training: held-out figures, answers, losses, rewards, ties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sciscidata.plots import COLOURS
from sciscirl.predictions import INVALID
from sciscirl.report_figures import Series, draw_lines
from sciscirl.report_layout import Picture, Section, slug
from sciscirl.report_runs import Run
from sciscirl.report_tables import TRAIN, view_groups
from sciscirl.task import VOCABULARIES

_LABEL_COLOURS: Final = {**COLOURS, INVALID: "#111111"}
_LOSS: Final = "train_mean_nll"  # of supervised runs
_NAN: Final = float("nan")


def view_trajectories(runs: Sequence[Run]) -> Section:
    """Show how the held-out figures moved while training."""
    shown = {
        "label_match": "label_match: share right",
        "macro_f1": "macro-F1",
        "min_class_recall": "Least recall of a class",
    }
    pictures = draw_trajectories(runs, shown)
    for run in _trained(runs):
        for label in run.labels:
            lines = {
                name: Series(
                    steps=[one.step for one in run.evaluations],
                    values=[_or_nan(run.metric(one, label, f"predicted_share/{name}")) for one in run.evaluations],
                )
                for name in (*VOCABULARIES[f"{label}_label"], INVALID)
            }
            end = f"_{label}" if len(run.labels) > 1 else ""
            title = f"{run.name}: what it answers" + (f", {label}" if end else "")
            said = ", ".join(f"{name} {line.values[0]:.0%} to {line.values[-1]:.0%}" for name, line in lines.items())
            pictures.append(
                Picture(f"predicted_{slug(run.name)}{end}",
                        draw_lines(lines, title=title, y_label="share", colours=_LABEL_COLOURS),
                        f"Predicted shares of {run.name} over training steps: {said}.")
            )  # fmt: skip
    losses = {run.name: _logged(run, _LOSS) for run in runs if any(_LOSS in row for row in run.rows)}
    if losses:
        said = "; ".join(f"{run} from {line.values[0]:.3f} to {line.values[-1]:.3f}" for run, line in losses.items())
        title = "Loss on the answers learned from"
        picture = draw_lines(losses, title=title, y_label="nats per token", is_share=False)
        pictures.append(Picture("train_loss", picture, f"{title} over steps: {said}."))
    text = "Held-out figures over training steps; bars are 95 % intervals. Step 0 is the model before training."
    if not pictures:
        text = "No run was evaluated more than once, so there is nothing to draw."
    return Section("trajectories", "Trajectories", text, (), pictures)


def _trained(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if len(run.evaluations) > 1]


def draw_trajectories(runs: Sequence[Run], shown: Mapping[str, str]) -> list[Picture]:
    """Draw a picture for each metric, with a line for each run that was evaluated more than once."""
    pictures: list[Picture] = []
    for name, title in shown.items():
        lines: dict[str, Series] = {}
        for run in _trained(runs):
            values = [_or_nan(one.metrics.get(name)) for one in run.evaluations]
            lows, highs = (
                [_or_nan(one.metrics.get(f"{name}/{end}")) for one in run.evaluations] for end in ("low", "high")
            )
            lines[run.name] = Series(steps=[one.step for one in run.evaluations], values=values, lows=lows, highs=highs)
        if lines:
            said = "; ".join(f"{run} from {line.values[0]:.3f} to {line.values[-1]:.3f}" for run, line in lines.items())
            pictures.append(
                Picture(f"trajectory_{slug(name)}", draw_lines(lines, title=title), f"{title} over steps: {said}.")
            )
    return pictures


def view_rewards(runs: Sequence[Run]) -> Section | None:
    """Show what was earned for what in training, and how often rewards tie; None if nothing was trained by rewards."""
    pictures: list[Picture] = []
    for run in runs:
        names = dict.fromkeys(name for row in run.rows for name in row if name.startswith(f"{TRAIN}reward/"))
        lines = {name.removeprefix(f"{TRAIN}reward/"): _logged(run, name) for name in names}
        if lines:
            pictures.append(
                Picture(
                    f"rewards_{slug(run.name)}",
                    draw_lines(lines, title=f"{run.name}: mean reward", is_share=False),
                    f"Mean reward of {run.name} in training, in parts: "
                    + ", ".join(
                        f"{name} {line.values[0]:.2f} to {line.values[-1]:.2f}" for name, line in lines.items()
                    ),
                )
            )
    shown = {
        "reward_uniform_group_rate": "Groups whose rewards are all equal",
        "reward_tie_pair_rate": "Pairs of answers with equal rewards",
    }
    for name, title in shown.items():
        lines = {run.name: _logged(run, TRAIN + name) for run in runs if any(TRAIN + name in row for row in run.rows)}
        if lines:
            said = "; ".join(f"{run} from {line.values[0]:.2f} to {line.values[-1]:.2f}" for run, line in lines.items())
            pictures.append(Picture(name, draw_lines(lines, title=title, y_label="share"), f"{title}: {said}."))
    groups = view_groups(runs)
    if not pictures:
        return None
    return Section(
        "rewards",
        "Rewards and ties",
        "Mean reward of a training step, and its parts. A group whose rewards are all equal teaches nothing.",
        [groups] if groups else [],
        pictures,
    )


def _logged(run: Run, name: str) -> Series:
    rows = [row for row in run.rows if name in row]
    return Series(steps=[row.get("step", 0.0) for row in rows], values=[row[name] for row in rows])


def _or_nan(value: float | None) -> float:
    return _NAN if value is None else value
