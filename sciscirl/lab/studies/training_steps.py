"""How training went in a sweep: tied rewards, what is earned, and the speed; a table and a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from sciscidata.plots import plain, save
from sciscirl.lab.report.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TIES: Final = (
    "reward_tie_group_rate",
    "reward_uniform_group_rate",
    "reward_tie_pair_rate",
    "reward_unique_fraction_mean",
)
_MEANS: Final = (*_TIES, "mean_reward", "correct_rate")
_SPEEDS: Final = ("rollouts_per_second", "sampled_per_second")
#: One row for each training step of each run; null where not logged.
STEPS: Final = pl.Schema(
    {
        "name": pl.String(),
        "seed": pl.Int64(),
        "step": pl.Int64(),
        "rollouts": pl.Int64(),
        **dict.fromkeys((*_MEANS, *_SPEEDS), pl.Float64()),
    }
)
#: One row for each way to train.
TRAINING: Final = pl.Schema(
    {
        "name": pl.String(),
        "steps": pl.Int64(),  # of all seeds
        "rollouts_per_step": pl.Int64(),
        **dict.fromkeys((*_MEANS, *_SPEEDS), pl.Float64()),
    }
)
_EVALUATION: Final = "time/run_evaluations_parallel"  # seconds of a step before its training


def read_steps(run: Run, name: str, seed: int) -> pl.DataFrame:
    """Return the training steps of a run of reinforcement learning as STEPS.

    Ties, as ``metrics.tie_metrics`` has them, are means over the groups of a step. ``mean_reward`` and ``correct_rate``
    (label_match) are means over its rollouts. ``sampled_per_second`` is its rollouts by the time in which they were
    sampled; ``rollouts_per_second`` is by the whole step without evaluations.
    """
    rows: list[dict[str, Any]] = []
    for row in run.rows:
        if "env/all/reward/total" not in row:
            continue
        n_rollouts, seconds = row["env/all/total_episodes"], row.get("time/total")
        training = seconds - row.get(_EVALUATION, 0.0) if seconds is not None else None
        sampling = row.get("time/sampling")
        rows.append(
            {one: row.get(f"env/all/{one}") for one in _TIES}
            | {
                "name": name,
                "seed": seed,
                "step": int(row["step"]),
                "rollouts": int(n_rollouts),
                "mean_reward": row["env/all/reward/total"],
                "correct_rate": row.get("env/all/label_match"),
                "rollouts_per_second": n_rollouts / training if training else None,
                "sampled_per_second": n_rollouts / sampling if sampling else None,
            }
        )
    return pl.DataFrame(rows, schema=STEPS)


def summarize_steps(steps: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Put the steps of each way into a row of TRAINING: means, and median speeds.

    A median, because a server's first step is slow.

    Example:
        >>> steps = pl.DataFrame([{"name": "exp4", "seed": 0, "step": step, "rollouts": 8, "mean_reward": step / 2,
        ...     "rollouts_per_second": 10.0 ** step} for step in range(3)], schema=STEPS)
        >>> summarize_steps(steps, ["exp4"]).select("steps", "mean_reward", "rollouts_per_second").row(0)
        (3, 0.5, 10.0)
    """
    rows: list[dict[str, Any]] = []
    for name in names:
        part = steps.filter(name=name)
        most = max(part["rollouts"].to_list(), default=None)
        rows.append(
            {"name": name, "steps": len(part), "rollouts_per_step": most}
            | {one: _mean(part[one]) for one in _MEANS}
            | {one: part[one].median() for one in _SPEEDS}
        )
    return pl.DataFrame(rows, schema=TRAINING)


def _mean(values: pl.Series) -> float | None:
    known = values.drop_nulls().to_list()
    return math.fsum(known) / len(known) if known else None


def plot_training(steps: pl.DataFrame, table: pl.DataFrame, path: str | Path) -> None:
    """Plot ties, reward, right answers and speed by way to train as PNG: dots are steps, marks are means."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.2), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(2, 2).ravel()
    names = {
        "reward_tie_group_rate": ("groups with a tie", "#0072B2", "o"),
        "reward_uniform_group_rate": ("groups all equal: nothing to learn from", "#D55E00", "D"),
        "reward_tie_pair_rate": ("pairs that tie", "#009E73", "s"),
        "reward_unique_fraction_mean": ("distinct rewards by answers", "#CC79A7", "^"),
    }
    _draw(panels[0], steps, table, names, "reward ties")
    panels[0].set_ylim(-0.03, 1.03)
    _draw(panels[1], steps, table, {"mean_reward": ("", "#0072B2", "o")}, "mean reward")
    _draw(panels[2], steps, table, {"correct_rate": ("", "#0072B2", "o")}, "right answers")
    speeds = {
        "sampled_per_second": ("sampling alone", "#0072B2", "o"),
        "rollouts_per_second": ("sampling and training", "#D55E00", "D"),
    }
    _draw(panels[3], steps, table, speeds, "rollouts per second (mark: median)")
    panels[3].set_ylim(bottom=0)
    save(figure, path)


def _draw(
    panel: Axes, steps: pl.DataFrame, table: pl.DataFrame, names: dict[str, tuple[str, str, str]], title: str
) -> None:
    ways = table["name"].to_list()
    for number, (name, (label, colour, mark)) in enumerate(names.items()):
        shift = 0.09 * (number - (len(names) - 1) / 2)
        for place, way in enumerate(ways):
            values = steps.filter(name=way)[name].drop_nulls().to_list()
            panel.plot([place + shift] * len(values), values, ".", color=colour, alpha=0.3, markersize=4)
        places = [place + shift for place in range(len(ways))]
        panel.plot(places, table[name].to_list(), f"{mark}-", color=colour, label=label, markersize=7, lw=1.2)
    panel.set_xticks(range(len(ways)), [plain(way).replace(" ", "\n") for way in ways])
    panel.set_title(title)
    panel.grid(axis="y", color="#DDDDDD")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    if len(names) > 1:
        panel.legend(frameon=False, fontsize=8.5)
