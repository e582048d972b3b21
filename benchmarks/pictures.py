"""The pictures of the pages that show measurements, from the results that are kept: ``docs/_pictures.py`` writes them.

Each function takes the keywords of ``sciscidata.plots.Look`` and returns the figure.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

import numpy as np
import polars as pl

from sciscidata import plots
from sciscidata.disruption.label_stability import LABEL_STABILITY
from sciscidata.disruption.missing_data import MISSING_DATA
from sciscidata.intervals import wilson_interval
from sciscidata.plots.figure import Look, Picture, drawing, letter_panels, write_share
from sciscidata.plots.palette import COLOURS, DASHES, INK, LINES, MARKERS, PALE, as_letters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESULTS: Final = Path(__file__).with_name("results")
LABELS: Final = ("disruptive", "consolidating", "neutral")
#: Of runs and graphs: blue, orange and grey are labels.
OTHERS: Final = (LINES[2], LINES[3], LINES[4], INK)
_CALL: Final = {"plain": "without prior", "default": "with prior (default)"}


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def collapse(**look: Unpack[Look]) -> Figure:
    """Draw what three presets do to the labels that are said, in the simulation of ``collapse.py``."""
    kept = read("collapse")
    panels = {"predicted_share/disruptive": "answers that say disruptive", "macro_f1": "macro-F1"}
    presets = {"exp4": "exp4", "exp5": "exp5", "exp6": "exp6"}
    last = {name: kept[name]["predicted_share/disruptive"]["mean"][-1] for name in presets}
    with drawing(look, heights_mm=(58, 58)) as picture:
        for axes, (measure, name) in zip(picture.panels, panels.items(), strict=True):
            for (preset, said), colour, dash in zip(presets.items(), OTHERS, DASHES, strict=False):
                steps, of = kept[preset]["step"], kept[preset][measure]
                axes.fill_between(steps, of["low"], of["high"], color=colour, alpha=0.2, lw=0)
                axes.plot(steps, of["mean"], color=colour, ls=dash)
                name_line(axes, steps[-1], of["mean"][-1], said, colour)
            best = kept["supervised"][measure]
            axes.axhline(best, color=INK, lw=0.8, ls=":")
            axes.text(0, best, "supervised ", color=INK, fontsize=7, va="bottom")
            axes.set(ylim=(-0.03, 1.03 if measure != "macro_f1" else 0.5), ylabel=name, xlabel="step")
        picture.panels[0].yaxis.set_major_formatter(write_share)
        letter_panels(picture)
        shares = [f"{100 * last[name]:.0f} %" for name in ("exp4", "exp5", "exp6")]
        picture.finding = "Simulated: exp4 ends with {} disruptive answers, exp5 with {}, exp6 with {}".format(*shares)
        picture.caption = (
            "A bag-of-words policy learns from synthetic papers by the rewards of three presets; sampled answers to "
            "held-out papers. Lines: means of 5 seeds, bands from least to most. Dotted: the same policy, supervised."
        )
    return picture.figure


def name_line(axes: Axes, x: float, y: float, name: str, colour: str) -> None:
    """Write the name of a line at its right end."""
    place: dict[str, Any] = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
    axes.annotate(name, (x, y), color=as_letters(colour), fontsize=7, **place)


def list_below(picture: Picture, columns: int) -> None:
    """Let the legend of the first panel stand below all of them."""
    handles, labels = picture.panels[0].get_legend_handles_labels()
    picture.legend = {"handles": handles, "labels": labels, "ncols": columns, "columnspacing": 1.2}


def engines(workers: list[int], rows: list[dict[str, float]], **look: Unpack[Look]) -> Figure:
    """Draw how long each stage of all of OpenAlex takes, and how much faster all of it is, as ``engines.py`` simulates.

    ``rows`` are seconds by stage, one for each number of workers.
    """
    totals = [sum(row.values()) for row in rows]
    with drawing(look, heights_mm=(66, 62)) as picture:
        left, right = picture.panels
        for number, stage in enumerate(rows[0]):
            colour = (*OTHERS, LINES[5])[number]
            name = stage.removesuffix(", min")
            minutes = [row[stage] / 60 for row in rows]
            left.plot(workers, minutes, color=colour, marker=MARKERS[number], ms=3, label=name)
        left.set(ylabel="minutes", yscale="log")
        ticks = [5, 10, 30, 100, 300]
        left.set_yticks(ticks, [str(tick) for tick in ticks])
        left.legend(loc="upper right", labelcolor=INK)
        right.plot(workers, [totals[0] / total for total in totals], color=INK, marker="o", ms=3)
        right.plot(workers, workers, ls="--", lw=0.8, color=INK)
        right.text(30, 42, "twice the workers,\nhalf the time", color=INK, fontsize=7, ha="right")
        right.set(yscale="log", ylabel="times as fast as one worker", ylim=(0.9, 300))
        ticks = [1, 3, 10, 30, 100, 300]
        right.set_yticks(ticks, [str(tick) for tick in ticks])
        for axes in picture.panels:
            axes.set(xscale="log", xlabel="workers")
            shown = workers[::2] if picture.is_narrow else workers
            axes.set_xticks(shown, [str(n) for n in shown])
            axes.minorticks_off()
            axes.grid(lw=0.3)
        letter_panels(picture)
        best = max(range(len(totals)), key=lambda i: totals[0] / totals[i])
        picture.finding = f"Simulated: more than {workers[best]} workers bring nothing"
        picture.caption = (
            "All of OpenAlex from the snapshot to the scores, simulated from measured and assumed costs: (a) minutes "
            "of each stage; (b) times as fast as one worker."
        )
    return picture.figure


def label_confidence(**look: Unpack[Look]) -> Figure:
    """Draw how often one half of the citers gives the label that the other half has, against what is predicted."""
    rows = pl.DataFrame(read("label_confidence_pictures")["halves"])
    graphs = rows["graph"].unique(maintain_order=True)
    with drawing(look, heights_mm=(72, 72), share="y") as picture:
        for axes, (form, name) in zip(picture.panels, _CALL.items(), strict=True):
            axes.plot([0, 1], [0, 1], color=INK, lw=0.6)
            for graph, colour, marker in zip(graphs, OTHERS, MARKERS, strict=False):
                some = rows.filter(form=form, graph=graph)
                x, y, n = (some[column].to_numpy() for column in ("predicted", "observed", "works"))
                axes.vlines(x, *wilson_interval(y, n), color=colour, lw=0.8)
                axes.plot(x, y, color=colour, marker=marker, ms=3.5, lw=0.8, label=graph)
            axes.set(xlabel="predicted", title=name, xlim=(0, 1), ylim=(0, 1.02))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(write_share)
        picture.panels[0].set_ylabel("the other half of the citers agrees")
        list_below(picture, 4)
        picture.finding = "With the prior, labels come back as often as predicted"
        picture.caption = (
            "Citers split at random five times: how often both halves give a work one label, against what is predicted "
            "from one of them, in tenths with 25 works or more. Diagonal: equal. Lines: 95 % Wilson intervals."
        )
    return picture.figure


def label_stability(**look: Unpack[Look]) -> Figure:
    """Draw the final labels after 1, 3, 5 and 10 years, of works on handball."""
    rows = pl.DataFrame(read("label_confidence_pictures")["stability"], schema=LABEL_STABILITY)
    of = dict(rows.filter(age=3).select("group", "share_same").rows())
    ends = (100 * of[f"{n} citers"] for n in ("1-2", "0"))
    title = "After 3 years {:.0f} % of labels with 1 or 2 citers are final, without a citer {:.0f} %".format(*ends)
    return plots.plot_label_stability(rows, data="handball", **{"title": title, **look})


def missing_data(**look: Unpack[Look]) -> Figure:
    """Draw what missing citations do to the labels of HepTh."""
    schema = MISSING_DATA
    rows = pl.DataFrame(read("label_confidence_pictures")["missing"], schema=schema)
    tenth = dict(rows.filter(missing="citations", share=0.1).select("label", "share_same").rows())
    lost = (100 * (1 - tenth[label]) for label in ("all", "neutral"))
    title = "A tenth of the citations costs {:.0f} % of labels, and {:.0f} % of neutral ones".format(*lost)
    return plots.plot_missing_data(rows, data="HepTh", **{"title": title, **look})


def real_model_learning(**look: Unpack[Look]) -> Figure:
    """Draw how a small real model learns a label that titles show."""
    kept = read("real_model")["learning"]
    steps, n = [int(step) for step in kept["dev"]], kept["dev_papers"]
    right = np.array([*kept["dev"].values()]) / n
    with drawing(look, heights_mm=(56, 56)) as picture:
        loss, match = picture.panels
        loss.plot(range(len(kept["loss"])), kept["loss"], color=INK)
        loss.axhline(math.log(3), color=INK, lw=0.8, ls=":")
        loss.text(60, math.log(3) + 0.05, "guessing", ha="right", fontsize=7)
        loss.set(xlabel="step", ylabel="loss of the label, nats", ylim=0)
        match.vlines(steps, *wilson_interval(right, n), color=INK, lw=0.8)
        match.plot(steps, right, "o-", color=INK, ms=4)
        for share, name in ((1 / 3, "guessing"), (0.77, "best that can be expected")):
            match.axhline(share, color=INK, lw=0.8, ls=":")
            match.text(0, share + 0.01, name, fontsize=7, va="bottom")
        match.set(xlabel="step", ylabel=f"accuracy on {n} dev papers", ylim=(-0.02, 1))
        letter_panels(picture)
        picture.finding = f"In 60 steps SmolLM2 learns a label that titles show: {right[-1] * n:.0f} of {n} dev papers"
        picture.caption = (
            f"{kept['model']}, fine-tuned on 240 synthetic papers, a fifth of them with wrong labels: (a) loss in "
            "training, (b) accuracy with 95 % Wilson intervals."
        )
    return picture.figure


def real_model_labels(**look: Unpack[Look]) -> Figure:
    """Draw which labels three fine-tuned models said in reinforcement, a panel for each run."""
    kept = read("real_model")["labels"]
    n, runs = kept["answers_a_step"], kept["runs"]
    last = max(len(run["neutral"]) for of_seeds in runs.values() for run in of_seeds) - 1
    size = 27
    with drawing(look, heights_mm=(size,) * 9, columns=3, share="both") as picture:
        for place, axes in enumerate(picture.panels):
            preset, seed = [*runs][place // 3], place % 3
            run = runs[preset][seed]
            at = range(len(run["neutral"]))
            shares = {label: np.array(run[label]) / n for label in LABELS}
            shares["invalid"] = 1 - np.sum([*shares.values()], axis=0)
            colours = [*(COLOURS[label] for label in LABELS), "white"]
            drawn = axes.stackplot(at, [*shares.values()], labels=[*shares], colors=colours)
            drawn[-1].set(hatch="/////", edgecolor=INK, linewidth=0)
            if at[-1] < last:
                axes.axvspan(at[-1], last, color=plots.palette.GRID, lw=0)
                words = {"rotation": 90, "ha": "center", "va": "center", "fontsize": 7}
                axes.text((at[-1] + last) / 2, 0.5, "stopped", **words)
            axes.set(xlim=(0, last), ylim=(0, 1))
            axes.set_title(f"{preset}, seed {seed}")
            axes.yaxis.set_major_formatter(write_share)
        picture.common_x = "step"
        picture.panels[3].set_ylabel("share of answers")
        list_below(picture, 2 if picture.is_narrow else 4)
        ends = [[max(label[-1] for label in run.values()) / n for run in of_seeds] for of_seeds in runs.values()]
        one = sum(share > 0.9 for of_seeds in ends for share in of_seeds)
        picture.finding = f"A real model collapses, too: {one} of 9 runs end in one label"
        picture.caption = (
            f"Labels that fine-tuned SmolLM2 said to training papers, {n} answers a step, by preset and seed, on an "
            "NVIDIA H100. Hatched: invalid answers. Grey: the run had stopped, most likely out of memory."
        )
    return picture.figure


class Dot(NamedTuple):
    """A way to judge; ``kind`` is one of PALETTE.

    ``tests`` has accuracy, low and high on the first test and the second, None where not run.
    """

    name: str
    saw: str
    kind: str
    tests: tuple[tuple[float, float, float] | None, ...]


#: By what a way saw.
PALETTE: Final = {"text": LINES[3], "known": LINES[2], "both": INK, "later": LINES[6]}


def judgement(dots: list[Dot], ceiling: float, **look: Unpack[Look]) -> Figure:
    """Draw a row for each way to judge a paper, from the first at the top."""
    with drawing(look, heights_mm=[11 * len(dots) + 24]) as picture:
        (axes,) = picture.panels
        _draw_dots(axes, dots, ceiling, is_narrow=picture.is_narrow)
        list_below(picture, 2)
        known = next(dot for dot in dots if dot.kind == "known").tests[0]
        text = [dot.tests[0][0] for dot in dots if dot.kind == "text" and dot.tests[0]]
        assert known is not None
        words = f"{100 * min(text):.0f} %" if round(min(text), 2) == round(max(text), 2) else ""
        words = words or f"{100 * min(text):.0f} to {100 * max(text):.0f} %"
        picture.finding = f"What was known at publication judges {100 * known[0]:.0f} % right, the text alone {words}"
        picture.caption = "Accuracy on disruptive against consolidating papers in equal numbers. Lines: 95 % intervals."
    return picture.figure


def _draw_dots(axes: Axes, dots: list[Dot], ceiling: float, *, is_narrow: bool) -> None:
    """Draw the rows; names stand left of the dots, and on a phone above them."""
    low, high = (0.46 if is_narrow else 0.27), 0.85
    for number, dot in enumerate(reversed(dots)):
        colour = PALETTE[dot.kind]
        for at, test in enumerate(dot.tests):
            if test:
                y = number - 0.22 * at
                axes.plot(test[1:], (y, y), color=colour, linewidth=1.2)
                axes.plot(test[0], y, "o", color=colour, markersize=5, markerfacecolor="white" if at else colour)
        bold: dict[str, Any] = {"color": as_letters(colour), "fontweight": "bold", "fontsize": 7.5, "va": "center"}
        if is_narrow:
            plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            axes.text(low, number + 0.38, dot.name, bbox=plate, **bold)
            axes.text(high, number + 0.38, dot.saw, color=INK, va="center", ha="right", fontsize=7, bbox=plate)
        else:
            axes.text(low, number + 0.1, dot.name, **bold)
            axes.text(low, number - 0.22, dot.saw, color=INK, va="center", fontsize=7)
        if dot.kind == "later":
            axes.axhline(number + (0.62 if is_narrow else 0.45), color=PALE, linewidth=0.6, linestyle=":")
    for x, said in ((0.5, "chance 50 %"), (ceiling, f"ceiling {100 * ceiling:.0f} %")):
        axes.axvline(x, color=PALE, linewidth=0.8, zorder=0)
        axes.text(x, len(dots) - 0.25, said, ha="center", va="bottom", color=INK, fontsize=7)
    axes.plot([], [], "o", color=INK, markersize=5, label="first test")
    axes.plot([], [], "o", color=INK, markersize=5, markerfacecolor="white", label="second test, looked at once")
    axes.set(xlim=(low, high), ylim=(-0.6, len(dots) - 0.1), xlabel="accuracy", yticks=())
    axes.xaxis.set_label_coords((0.66 - low) / (high - low), -0.1)
    axes.set_xticks([0.5, 0.6, 0.7, 0.8])
    axes.xaxis.set_major_formatter(write_share)
    axes.spines["bottom"].set_bounds(0.47, high)
    axes.spines["left"].set_visible(False)
