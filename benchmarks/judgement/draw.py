"""Pictures of the ladder and of what the page answers, from the numbers that ``show.py`` measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from slices import LABELS

IMAGES = Path(__file__).parents[2] / "docs" / "images"
BLUE, RED, GREEN, GREY, YELLOW = "#4477aa", "#cc6677", "#228833", "#bbbbbb", "#ccbb44"


def draw_ladder(rows: list[dict[str, Any]], golds: dict[str, Any], names: dict[str, str]) -> None:
    """Draw the accuracy of each way, in the order of ``names``, a panel for each slice."""
    figure, axes = plt.subplots(1, len(golds), figsize=(13, 5.4), layout="constrained", sharey=True)
    rows = [one for one in rows if one["invalid"] < 1]
    order = [row for row in names if any(one["row"] == row for one in rows)][::-1]
    for axis, (name, held) in zip(axes, golds.items(), strict=True):
        n_labels = len(set(held["test"]))
        axis.axvline(1 / n_labels, color=GREY, linestyle=":", label="chance")
        if held["ceiling"]:
            axis.axvline(held["ceiling"]["accuracy"], color=RED, label="ceiling")
        for one in (one for one in rows if one["slice"] == name):
            at = order.index(one["row"])
            axis.plot((one["low"], one["high"]), (at, at), color=BLUE)
            axis.plot(one["accuracy"], at, "o", color=BLUE)
            if one["less_mean"] is not None:
                axis.plot(one["less_mean"], at, "o", color=GREEN, fillstyle="none", markersize=9)
        axis.plot([], [], "o", color=BLUE, label="accuracy, 95 %")
        axis.plot([], [], "o", color=GREEN, fillstyle="none", label="less each label's mean")
        sure = f", confidence from {held['least_confidence']}" if held["least_confidence"] else ""
        axis.set(title=f"{n_labels} labels{sure}\n{held['papers']['test']:,} test papers", xlabel="accuracy")
        axis.set_yticks(range(len(order)), [names[row] for row in order])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(IMAGES / "judgement.png", dpi=110)
    plt.close(figure)


def draw_answers(rows, golds, found, runs, fields) -> None:
    """Draw a panel for each question of the page."""
    at = {(one["slice"], one["row"]): one for one in rows}
    figure, axes = plt.subplots(4, 2, figsize=(12, 16), layout="constrained")
    draw_gap(axes[0, 0], at, golds)
    draw_bars(axes[0, 1], "Is it more than counts? Does it leak?\n(two labels)", {
        "title": at["two", "title"], "abstract": at["two", "abstract"], "title and abstract": at["two", "sft"],
        "the same, year and counts shown": at["two", "all"], "year and counts alone": at["two", "metadata"],
    }, 0.5)  # fmt: skip
    draw_bars(axes[1, 0], "Are sure labels easier?\n(two labels, SFT and trees on counts)", {
        f"{way}, {labels}": at[name, row]
        for row, way in (("sft", "text"), ("metadata", "counts"))
        for name, labels in (("two", "all labels"), ("two_sure", "sure labels"))
    }, 0.5)  # fmt: skip
    draw_fields(axes[1, 1], fields, at["two", "sft"]["accuracy"])
    runs = [one for one in runs if one["row"] != "just_rl"][::-1]
    draw_changes(axes[2, 0], runs)
    draw_shares(axes[2, 1], runs)
    draw_calibration(axes[3, 0], golds, found)
    draw_memory(axes[3, 1], at, found)
    for axis in axes.flat:
        axis.locator_params(axis="x", nbins=6)
    figure.savefig(IMAGES / "judgement_answers.png", dpi=100)
    plt.close(figure)


def draw_gap(axis, at, golds) -> None:
    for number, name in enumerate(("two", "three")):
        reached, ceiling = at[name, "sft"]["accuracy"], golds[name]["ceiling"]["accuracy"]
        chance = 1 / len(set(golds[name]["test"]))
        parts = (chance, reached - chance, ceiling - reached, 1 - ceiling)
        left = 0.0
        for part, color, label in zip(
            parts, (GREY, BLUE, YELLOW, RED), ("chance", "SFT has", "the model lacks", "noise of labels"), strict=True
        ):
            axis.barh(number, part, left=left, color=color, label=None if number else label)
            axis.text(left + part / 2, number, f"{part:.2f}", ha="center", va="center", color="white")
            left += part
    axis.set_yticks((0, 1), ("two labels", "three labels"))
    axis.set(title="How much of the gap is noise?", xlabel="accuracy", ylim=(-0.5, 2.1))
    axis.legend(ncols=2, loc="upper center", frameon=False)


def draw_bars(axis, title, bars, chance) -> None:
    names = list(bars)[::-1]
    for number, name in enumerate(names):
        one = bars[name]
        axis.plot((one["low"], one["high"]), (number, number), color=BLUE)
        axis.plot(one["accuracy"], number, "o", color=BLUE)
    axis.axvline(chance, color=GREY, linestyle=":")
    axis.set_yticks(range(len(names)), names)
    axis.set(title=title, xlabel="accuracy, 95 % (dotted: chance)")
    axis.margins(y=0.15)


def draw_fields(axis, fields, own) -> None:
    ways = {"": ("SmolLM2, field left out", BLUE), "tfidf": ("TF-IDF", RED), "metadata": ("counts", GREEN)}
    for way, (label, color) in ways.items():
        axis.plot([one["right"][way] for one in fields], range(len(fields)), "o", color=color, label=label)
    axis.axvline(0.5, color=GREY, linestyle=":")
    axis.axvline(own, color=BLUE, linestyle="--", label="SmolLM2, own fields")
    axis.set_yticks(range(len(fields)), [one["field"] for one in fields])
    axis.set(title="Does it cross fields?\n(field left out in training, two labels)", xlabel="accuracy")
    axis.set_ylim(-0.5, len(fields) + 1.2)
    axis.legend(ncols=2, loc="upper center", frameon=False, fontsize="small")


def draw_changes(axis, runs) -> None:
    for number, one in enumerate(runs):
        axis.plot(one["interval"], (number, number), color=BLUE)
        axis.plot(one["gain"], number, "o", color=BLUE)
    axis.axvline(0, color=GREY)
    axis.set_yticks(range(len(runs)), [f"{one['row']} ({one['steps']}, {one['seeds']})" for one in runs])
    axis.set(title="Does reinforcement add to SFT?\n(reward, its steps and seeds)", xlabel="change in accuracy, 95 %")


def draw_shares(axis, runs) -> None:
    for number, one in enumerate(runs):
        for end, (shares, offset) in enumerate(zip(one["shares"], (0.2, -0.2), strict=True)):
            left = 0.0
            for label, share, color in zip(LABELS, shares, (RED, BLUE, GREY), strict=True):
                shown = label if number == 0 and end == 0 else None
                axis.barh(number + offset, share, 0.34, left=left, color=color, alpha=1 if end else 0.5, label=shown)
                left += share
    axis.set_yticks(range(len(runs)), [one["row"] for one in runs])
    axis.set(title="Does a reward hold the shares?\n(pale: before, full: after)", xlabel="share of answers")
    axis.set_ylim(-0.6, len(runs) + 0.6)
    axis.legend(ncols=3, loc="upper center", frameon=False, fontsize="small")


def draw_calibration(axis, golds, found) -> None:
    gold = np.array(golds["two"]["test"])
    for row, label, color in (("sft", "SFT on labels", BLUE), ("soft", "SFT on chances", GREEN)):
        chances = np.concatenate([np.array(one["chances"]) for one in found["two", row].values()])
        right = chances.argmax(1) == np.tile(gold, len(found["two", row]))
        sure = chances.max(1)
        edges = np.quantile(sure, np.linspace(0, 1, 9)[1:-1])
        bins = np.digitize(sure, edges)
        points = [(sure[bins == one].mean(), right[bins == one].mean()) for one in np.unique(bins)]
        axis.plot(*zip(*points, strict=True), "o-", color=color, label=label)
    axis.plot((0.5, 1), (0.5, 1), color=GREY, linestyle=":")
    axis.set(title="Is it calibrated?\n(two labels, eighths of answers)", xlabel="probability", ylabel="share right")
    axis.legend(frameon=False)


def draw_memory(axis, at, found) -> None:
    (learnt,) = found["two_sure", "memory_sure_0"].values()
    planted = next(asked["right"] for asked in learnt["tests"] if asked["view"] == "title")
    for number, (value, color) in enumerate(((planted, RED), (at["two", "title"]["accuracy"], BLUE))):
        axis.barh(number, value, 0.5, color=color)
        axis.text(value - 0.02, number, f"{value:.2f}", ha="right", va="center", color="white")
    axis.axvline(0.5, color=GREY, linestyle=":")
    axis.set_yticks((0, 1), ("shuffled labels\nlearnt by heart", "papers not\ntrained on"))
    axis.set(title="Judgement or memory?\n(asked by title alone)", xlabel="accuracy", ylim=(-0.6, 1.6))
