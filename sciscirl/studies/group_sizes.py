"""Train with several group sizes and compare how often rewards tie, what is earned, and the speed."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from sciscidata._support.terminal import align_columns
from sciscidata.plots import save
from sciscidata.storage import atomic_file
from sciscirl.errors import CollapseError, SciSciRLError
from sciscirl.options import GroupSizeOptions, TrainOptions
from sciscirl.rl.train import train_preset
from sciscirl.runs.folder import expand_home, is_judged, locked_folder, open_store, read_judgement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_log = logging.getLogger(__name__)

_TIES: Final = (
    "reward_tie_group_rate",
    "reward_uniform_group_rate",
    "reward_tie_pair_rate",
    "reward_unique_fraction_mean",
)
#: One row for each training step of each group size.
STEPS: Final = pl.Schema(
    {
        "group_size": pl.Int64(),
        "step": pl.Int64(),
        "rollouts": pl.Int64(),
        **dict.fromkeys((*_TIES, "mean_reward", "correct_rate"), pl.Float64()),
        "rollouts_per_second": pl.Float64(),
        "sampled_per_second": pl.Float64(),
    }
)
#: One row for each group size.
GROUP_SIZES: Final = pl.Schema(
    {
        "group_size": pl.Int64(),
        "papers_per_step": pl.Int64(),
        "steps": pl.Int64(),
        **{name: dtype for name, dtype in STEPS.items() if name not in {"group_size", "step", "rollouts"}},
        "eval_label_match": pl.Float64(),  # of the last evaluation
        "eval_macro_f1": pl.Float64(),
    }
)
_EVALUATION: Final = "time/run_evaluations_parallel"  # seconds of a step before its training


def plan_runs(options: GroupSizeOptions) -> dict[int, TrainOptions]:
    """Return the training run of each group size.

    Example:
        >>> runs = plan_runs(GroupSizeOptions(sizes=(4, 8), rollouts_per_step=32))
        >>> [(run.group_size, run.batch_size, run.log_path) for run in runs.values()]
        [(4, 8, 'runs/group_sizes/group_004'), (8, 4, 'runs/group_sizes/group_008')]
    """
    decided = ("log_path", "group_size", "batch_size", "resume")
    given = [f"GroupSizeOptions.{name}" for name in decided if getattr(options, name) not in (None, False)]
    if given:
        msg = (
            f"{', '.join(given)} cannot be set: the sweep decides. Set sizes=..., rollouts_per_step=... and out=...; a "
            "sweep that is there goes on by itself."
        )
        raise SciSciRLError(msg)
    unfit = [size for size in options.sizes if size < 2 or options.rollouts_per_step % size]
    if unfit or not options.sizes or len(set(options.sizes)) < len(options.sizes):
        msg = (
            f"sizes is {options.sizes!r} with {options.rollouts_per_step} rollouts in a step. Needs sizes from 2, each "
            "once, that divide the rollouts: sizes=4,8,16 rollouts_per_step=128"
        )
        raise SciSciRLError(msg)
    out = expand_home(options.out)
    shared: Any = {name: getattr(options, name) for name in (field.name for field in fields(TrainOptions))}
    return {
        size: replace(
            TrainOptions(**shared),
            group_size=size,
            batch_size=options.rollouts_per_step // size,
            log_path=(out / f"group_{size:03d}").as_posix(),
            resume=True,
        )
        for size in options.sizes
    }


async def run_group_sizes(options: GroupSizeOptions) -> pl.DataFrame:
    """Train once with each group size, and compare: GROUP_SIZES, in the order of ``sizes`` (``summarize``).

    Runs lie in ``out/group_004`` and so on (see ``train_preset``), next to ``group_sizes.parquet``,
    ``group_sizes.csv``, ``steps.parquet`` (STEPS) and ``group_sizes.png``. Finished runs are kept; a stopped one goes
    on at its last checkpoint. SciSciRLError as ``plan_runs`` and ``train_preset``, or if the folder is in use.
    """
    runs, out = plan_runs(options), expand_home(options.out)
    with locked_folder(out, user="sweep", option="folder: out="):
        for size, run in runs.items():
            if is_judged(open_store(str(run.log_path)), run.max_steps):
                _log.info("group size %d has been trained before", size)
            else:
                try:
                    await train_preset(run)
                except CollapseError as collapse:  # no reason not to train the others
                    _log.warning("group size %d: %s", size, collapse)
        folders = {size: Path(str(run.log_path)) for size, run in runs.items()}
        steps = pl.concat([read_steps(folder, size) for size, folder in folders.items()])
        table = summarize(steps, {size: _read_last(folder) for size, folder in folders.items()})
        with atomic_file(out / "steps.parquet") as path:
            steps.write_parquet(path)
        with atomic_file(out / "group_sizes.parquet") as path:
            table.write_parquet(path)
        with atomic_file(out / "group_sizes.csv") as path:
            table.write_csv(path)
        with atomic_file(out / "group_sizes.png") as path:
            plot_group_sizes(steps, table, path)
    return table


def _read_last(folder: Path) -> dict[str, float]:
    rows = reversed(open_store(folder).read_metrics())
    return next(filter(None, map(read_judgement, rows)), {})


def read_steps(folder: Path, group_size: int) -> pl.DataFrame:
    """Read the training steps of a run's ``metrics.jsonl`` as STEPS; null where not logged.

    Ties as ``metrics.tie_metrics`` has them, mean over the groups of a step; ``mean_reward`` and ``correct_rate``
    (label_match), mean over its rollouts; ``sampled_per_second``, its rollouts by the time in which they were sampled,
    ``rollouts_per_second`` by the whole of the step without evaluations.
    """
    rows: list[dict[str, Any]] = []
    for row in open_store(folder).read_metrics():
        if "env/all/reward/total" not in row:
            continue
        n_rollouts, seconds = row["env/all/total_episodes"], row.get("time/total")
        training = seconds - row.get(_EVALUATION, 0.0) if seconds is not None else None
        sampling = row.get("time/sampling")
        rows.append(
            {name: row.get(f"env/all/{name}") for name in _TIES}
            | {
                "group_size": group_size,
                "step": row["step"],
                "rollouts": n_rollouts,
                "mean_reward": row["env/all/reward/total"],
                "correct_rate": row["env/all/label_match"],
                "rollouts_per_second": n_rollouts / training if training else None,
                "sampled_per_second": n_rollouts / sampling if sampling else None,
            }
        )
    return pl.DataFrame(rows, schema=STEPS)


def summarize(steps: pl.DataFrame, judged: dict[int, dict[str, float]]) -> pl.DataFrame:
    """Put each group size into a row of GROUP_SIZES: means, and median speeds, as a server's first step is slow.

    Example:
        >>> steps = pl.DataFrame([{"group_size": 4, "step": step, "rollouts": 8, "mean_reward": step / 2,
        ...     "rollouts_per_second": 10.0 ** step} for step in range(3)], schema=STEPS)
        >>> summarize(steps, {4: {}}).select("papers_per_step", "steps", "mean_reward", "rollouts_per_second").row(0)
        (2, 3, 0.5, 10.0)
    """
    rows: list[dict[str, Any]] = []
    for size, last in judged.items():
        part = steps.filter(group_size=size)
        means = {name: _mean(part[name]) for name in (*_TIES, "mean_reward", "correct_rate")}
        speeds = {name: part[name].median() for name in ("rollouts_per_second", "sampled_per_second")}
        most = int(max(part["rollouts"], default=0))
        told = {f"eval_{name}": last.get(name) for name in ("label_match", "macro_f1")}
        rows.append({"group_size": size, "papers_per_step": most // size, "steps": len(part)} | means | speeds | told)
    return pl.DataFrame(rows, schema=GROUP_SIZES)


def _mean(values: pl.Series) -> float | None:
    known = values.drop_nulls().to_list()
    return statistics.fmean(known) if known else None


def render_group_sizes(table: pl.DataFrame) -> str:
    """Write GROUP_SIZES as a table for a terminal, a column for each group size."""
    return "\n".join(align_columns([[name, *map(_cell, table[name])] for name in table.columns]))


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def plot_group_sizes(steps: pl.DataFrame, table: pl.DataFrame, path: str | Path) -> None:
    """Plot ties, reward, right answers and speed by group size as PNG: dots are steps, marks are means."""
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
    sizes = table["group_size"].to_list()
    for number, (name, (label, colour, mark)) in enumerate(names.items()):
        shift = 0.09 * (number - (len(names) - 1) / 2)
        for place, size in enumerate(sizes):
            values = steps.filter(group_size=size)[name].drop_nulls().to_list()
            panel.plot([place + shift] * len(values), values, ".", color=colour, alpha=0.3, markersize=4)
        places = [place + shift for place in range(len(sizes))]
        panel.plot(places, table[name].to_list(), f"{mark}-", color=colour, label=label, markersize=7, lw=1.2)
    panel.set_xticks(range(len(sizes)), [f"{size}" for size in sizes])
    panel.set_xlabel("group size")
    panel.set_title(title)
    panel.grid(axis="y", color="#DDDDDD")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    if len(names) > 1:
        panel.legend(frameon=False, fontsize=8.5)
