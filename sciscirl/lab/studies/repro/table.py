"""The result of a sweep as one table and one picture: a row for each setting and mode, failed or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from sciscidata.plots import plain, save
from sciscidata.terminal.messages import printable
from sciscirl.lab.studies.repro.answers import DIVERGENCE, compare_answers, compare_logprobs, read_answers
from sciscirl.lab.studies.repro.settings import ELSEWHERE, Cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Panel

#: The reference against itself: its tokens' log-probabilities while they were decoded, and in one pass afterwards.
DECODING: Final = "decoding"
#: What a sweep reports.
TABLE: Final = pl.Schema(
    {"axis": pl.String(), "value": pl.String(), "status": pl.String(), **DIVERGENCE, "reason": pl.String()}
)
_SHOWN: Final = {
    "axis": "varied",
    "value": "value",
    "mode": "mode",
    "identical_share": "identical",
    "first_divergence_median": "first divergence, median",
    "first_divergence_min": "min",
    "logprob_difference_mean": "log-prob difference, mean",
    "logprob_difference_max": "max",
    "label_flip_share": "labels flipped",
}
#: Okabe & Ito 2008; the shapes tell them apart without colour.
_MODES: Final = {"greedy": ("#0072B2", "o", -0.14), "sampled": ("#D55E00", "D", 0.14)}
_PANELS: Final = (
    ("identical_share", "answers with the same tokens"),
    ("first_divergence_median", "place of the first other\ntoken, median"),
    ("label_flip_share", "answers with another label"),
    ("logprob_difference_max", "largest log-prob difference, nats"),
)
_LEAST: Final = 1e-8  # nats: below single precision, so that all that is drawn left of it is zero


def make_table(folder: Path, cells: Sequence[Cell], others: Mapping[str, Path]) -> pl.DataFrame:
    """Compare every run with the reference; ``others`` are folders of other sweeps by the value of their cells.

    Returns TABLE: ``axis`` and ``value`` that differ from the reference, ``status`` and the columns of DIVERGENCE, null
    if not measured. ``status`` is ``"measured"``, or ``"unsupported"`` with a ``reason``. The first rows, of axis
    ``"decoding"``, compare the reference's log-probabilities while decoding with those of one pass.
    """
    rows: list[dict[str, Any]] = []
    for cell in cells:
        record, answers = read_answers(folder, cell.name)
        head = {"axis": cell.axis, "value": cell.value, "status": record["status"], "reason": record["reason"]}
        if cell.axis == "reference":
            rows += _decoding_rows(answers)
        elif answers is None:
            rows.append(head)
        else:
            source = others[cell.value] if cell.axis == ELSEWHERE else folder
            reference = read_answers(source, "reference")[1]
            if reference is None:
                msg = "check_comparable makes sure that the reference is there"
                raise AssertionError(msg)
            rows += [head | row for row in compare_answers(answers, reference).to_dicts()]
    return pl.DataFrame(rows, schema=TABLE)


def _decoding_rows(reference: pl.DataFrame | None) -> list[dict[str, Any]]:
    if reference is None:
        msg = "a sweep whose reference could not be run ends there"
        raise AssertionError(msg)
    head = {"axis": DECODING, "value": "token by token", "status": "measured"}
    return [
        head | {"mode": str(mode), "n": len(part)} | compare_logprobs(part["logprobs"], part["reference_logprobs"])
        for (mode,), part in reference.group_by("mode", maintain_order=True)
    ]


def render_table(table: pl.DataFrame, settings: Mapping[str, Any]) -> str:
    """Write TABLE as Markdown, then the runs that failed and why. ``settings`` are those of ``sweep.json``."""
    reference = ", ".join(f"{name} {value}" for name, value in settings["reference"].items() if value is not None)
    machine = ", ".join(f"{name} {value}" for name, value in settings["machine"].items() if value is not None)
    lines = [
        f"# {settings['model']}: {settings['n_papers']} prompts, at most {settings['max_tokens']} tokens",
        "",
        f"Reference: {reference}. Machine: {machine}. Preset {settings['preset']}, temperature of the sampled runs "
        f"{settings['temperature']}, seed {settings['seed']}.",
        "",
        "Identical is the share of answers with the same tokens as the reference's; the first divergence is the place, "
        "from 0, of the first other token, among those that differ; log-prob differences are absolute, in nats, on the "
        "reference's tokens.",
        "",
        f"| {' | '.join(_SHOWN.values())} |",
        f"|{'---|' * len(_SHOWN)}",
    ]
    measured = table.filter(status="measured")
    lines += [f"| {' | '.join(_cell(row[name]) for name in _SHOWN)} |" for row in measured.iter_rows(named=True)]
    refused = table.filter(pl.col("status") != "measured")
    if len(refused):
        lines += ["", "Not supported there:", ""]
        lines += [
            printable(f"- {row['axis']} {row['value']}: {row['reason']}") for row in refused.iter_rows(named=True)
        ]
    return "\n".join(lines) + "\n"


def _cell(value: str | float | None) -> str:
    """Write a value as a reader wants it.

    Example:
        >>> _cell(0.0000012345), _cell(None), _cell(1.0)
        ('1.2e-06', '-', '1')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2g}" if abs(value) < 0.01 else f"{value:.3f}".rstrip("0").rstrip(".")
    return printable(value)


def plot_sweep(table: pl.DataFrame, path: str | Path, *, title: str = "") -> None:
    """Plot TABLE as a PNG file: a line for each setting, equal answers, and differences in log-probability.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> row = {"axis": "dtype", "value": "int8", "status": "unsupported", "reason": "no kernel"}
        >>> with TemporaryDirectory() as folder:
        ...     picture = Path(folder) / "sweep.png"
        ...     plot_sweep(pl.DataFrame([row], schema=TABLE), picture)
        ...     picture.read_bytes()[1:4]
        b'PNG'
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    settings = table.select("axis", "value", "status").unique(maintain_order=True).rows()
    figure = Figure(figsize=(13, max(3.0, 1.6 + 0.36 * len(settings))), layout=ConstrainedLayoutEngine(wspace=0.05))
    panels: Iterable[Panel] = figure.subplots(1, len(_PANELS), sharey=True, width_ratios=(1, 0.7, 1, 1.35))
    places = {(axis, value): place for place, (axis, value, _) in enumerate(settings)}
    for panel, (column, label) in zip(panels, _PANELS, strict=True):
        for mode, (colour, shape, shift) in _MODES.items():
            part = table.filter(pl.col("mode") == mode, pl.col(column).is_not_null())
            heights = [places[row] + shift for row in part.select("axis", "value").rows()]
            (marks,) = panel.plot(
                part[column].to_list(), heights, shape, color=colour, markersize=7, label=mode, clip_on=False, zorder=3
            )
            marks.set_in_layout(False)  # where there are none, unclipped, they would need infinite room
        for place, (_, _, status) in enumerate(settings):
            if status != "measured":
                panel.text(
                    0.5, place, "not supported here", transform=panel.get_yaxis_transform(), ha="center", va="center",
                    color="#666666", fontsize=8.5, style="italic",
                )  # fmt: skip
        _dress(panel, label)
        if column.startswith("logprob"):
            panel.set_xscale("symlog", linthresh=_LEAST)
            panel.set_xlim(left=0)
            panel.set_xticks([0, 1e-7, 1e-5, 1e-3, 1e-1, 10], ["0", "1e-7", "1e-5", "0.001", "0.1", "10"])
        elif column.startswith("first"):
            panel.set_xlim(-0.5, max([9, *table[column].drop_nulls()]) + 0.5)
            panel.locator_params(axis="x", integer=True)
        else:
            panel.set_xlim(-0.03, 1.03)
            panel.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    first: Any = figure.axes[0]
    first.set_yticks(range(len(settings)), [plain(f"{axis.replace('_', ' ')}  {value}") for axis, value, _ in settings])
    first.set_ylim(len(settings) - 0.5, -0.5)
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    if title:
        figure.suptitle(plain(title))
    save(figure, path)


def _dress(panel: Panel, label: str) -> None:
    panel.set_xlabel(label)
    panel.grid(color="#DDDDDD")
    panel.set_axisbelow(True)
    panel.tick_params(length=0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
