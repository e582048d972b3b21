"""Compute what ``docs/rl/judgement.md`` says beside its tables, from kept results alone: ``claims.py`` prints it.

A claim is a piece of a sentence with its figures. A test looks for each of them on the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from kept import (
    Runs,
    Slices,
    find_calibration_error,
    find_gold,
    find_interval,
    find_shares,
    find_way,
    read_kept,
    read_lines,
    read_results,
    say,
    say_kept,
)
from slices import SLICES

#: An interval lies above 0 in 80 of 100 cases if the true gain is so many times half its width.
POWER = 1 + 0.8416 / 1.9600
#: Sets of columns that were tried on the first test before those that are kept.
N_TRIED = 14
FIELDS = ("archaeology", "bci_eeg", "collective_work", "smart_city", "visualization")


def show_range(values: Sequence[Any]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def show_percent(values: Sequence[Any]) -> str:
    return f"{100 * min(values):.0f} to {100 * max(values):.0f} %"


def find_ends(runs: Runs, way: str, answer: str = "said") -> tuple[np.ndarray, np.ndarray]:
    """Return the answers before and after reinforcement, by seed and paper of ``three``."""
    before, after = (np.array([run["tests"][at][answer] for run in runs["three", way]]) for at in (0, -1))
    return before, after


def find_gains(slices: Slices, runs: Runs, way: str, answer: str = "said") -> np.ndarray:
    """Return by seed and paper what reinforcement changed: 1 for an answer that became right, -1 for one now wrong."""
    before, after = find_ends(runs, way, answer)
    gold = find_gold(slices, "three")
    return (after == gold) * 1.0 - (before == gold)


def claim_reinforcement(slices: Slices, runs: Runs) -> Iterator[str]:
    """How many papers exp4's reward re-labels, how often they are right, and what gain could have been seen."""
    gold = find_gold(slices, "three")
    low, high = find_interval(find_gains(slices, runs, "exp4"))
    yield f"after fine-tuning: {say(find_gains(slices, runs, 'exp4'), 3, '+')}, on three labels"
    yield f"Gains above {np.floor(100 * high) / 100:.2f} are excluded"
    yield f"shown a gain of {np.ceil(100 * POWER * (high - low) / 2) / 100:.2f} in four of five cases"
    before, after = find_ends(runs, "exp4")
    moved = before != after
    fair = np.not_equal(*find_ends(runs, "exp4", "corrected"))
    yield f"re-labels {show_percent([*fair.mean(1)])} of the papers (as said, {show_percent([*moved.mean(1)])})"
    yield f"{np.sum((before == gold) & moved)} of {moved.sum()} before, {np.sum((after == gold) & moved)} after"
    yield f"exp5 says *disruptive* in {show_percent([find_shares(said)[0] for said in find_ends(runs, 'exp5')[1]])}"
    yield f"nothing that can be seen: {say(find_gains(slices, runs, 'exp5', 'corrected'), 2, '+')}"
    begun = [way for name, way in runs if name == "three" and runs[name, way][0]["job"].get("after")]
    fair = [
        np.mean([np.array(run["corrected"]) == gold for run in runs["three", way]])
        for way in begun
        if "corrected" in runs["three", way][0]
    ]
    yield f"All runs from SFT then end at {show_range(fair)}"


def claim_natural_shares(slices: Slices, runs: Runs) -> Iterator[str]:
    """What prior correction costs SFT where test papers and mean have the shares of labels among all papers."""
    natural = read_kept("pool")["labels"]
    lost = {}
    for name in ("two", "three"):
        gold = find_gold(slices, name)
        share = np.array([natural[label] for label in SLICES[name][0]])
        weight = (share / share.sum() / np.bincount(gold))[gold]
        losses = []
        for run in runs[name, "sft"]:
            chance = np.array(run["chances"])[:, : share.size]
            corrected = (chance / np.average(chance, axis=0, weights=weight)).argmax(1)
            losses.append(weight @ ((np.array(run["said"]) == gold) * 1.0 - (corrected == gold)))
        lost[name] = np.mean(losses)
    yield f"it costs {lost['two']:.2f} on `two`, {lost['three']:.2f} on `three`"


def claim_calibration(slices: Slices, runs: Runs) -> Iterator[str]:
    """The expected calibration error over the labels of a slice, by seed."""
    found = {
        (name, way): show_range(
            [
                find_calibration_error(run["chances"], find_gold(slices, name), len(SLICES[name][0]))
                for run in runs[name, way]
            ]
        )
        for name in ("two", "three")
        for way in ("sft", "soft")
    }
    yield f"calibration error is {found['two', 'sft']}"
    yield f"{found['two', 'soft']}, and on three labels {found['three', 'soft']} instead of {found['three', 'sft']}"


def claim_memory(slices: Slices, runs: Runs) -> Iterator[str]:
    (learnt,) = runs["two_sure", "memory_sure_0"]
    planted = next(asked["right"] for asked in learnt["tests"] if asked["view"] == "title")
    title = np.array([np.array(run["said"]) == find_gold(slices, "two") for run in runs["two", "title"]])
    years = read_kept("pool")["test_years"]
    yield f"From a title alone SmolLM2 has {say(title)}, TF-IDF {say_kept(read_kept('titles')['accuracy'])}"
    yield f"gives back {planted:.2f}"
    yield f"The papers are of {min(low for low, _ in years.values())} to {max(high for _, high in years.values())}"


def pool_fields(slices: Slices, runs: Runs) -> dict[str, np.ndarray]:
    """Return by way whether each test paper is judged right by a model that was not trained on its field."""
    ways = {"metadata": "metadata", "words": "tfidf", "minilm": "minilm", "sft": "sft", "sft, corrected": "sft"}
    right = {}
    for name, way in ways.items():
        answer = "corrected" if "," in name else "said"
        said = [np.array([run[answer] for run in runs[f"two-{field}", way]]) for field in FIELDS]
        gold = [find_gold(slices, f"two-{field}") for field in FIELDS]
        right[name] = (np.concatenate(said, axis=1) == np.concatenate(gold)) * 1.0
    for row in read_kept("fields")["pooled"]:
        if row["way"] in ("numbers", "words and numbers"):
            said = [row["said"][field] == find_gold(slices, f"two-{field}") for field in FIELDS]
            right[row["way"]] = np.concatenate(said)[None] * 1.0
    return right


def claim_fields(slices: Slices, runs: Runs) -> Iterator[str]:
    right = pool_fields(slices, runs)
    yield f"has {say(right['numbers'], 2)} on the fifth, SmolLM2 {say(right['sft'], 3)}"
    yield f"more than words ({say(right['sft'] - right['words'], 3, '+')})"
    yield f"less than later counts ({say(right['sft'] - right['metadata'], 3, '+')})"


def claim_stacked() -> Iterator[str]:
    """What the model's log-probabilities add to a logistic regression on ``two``."""
    added = next(row for row in read_kept("stack") if row["slice"] == "two")["added"]
    alone, beside = added["model to numbers"], added["model to words and numbers"]
    yield f"AUC {say_kept(alone['auc'], 3, '+')}, accuracy {say_kept(alone['accuracy'], 3, '+')}"
    yield f"AUC {say_kept(beside['auc'], 3, '+')}, accuracy {say_kept(beside['accuracy'], 3, '+')}"


def claim_at_publication() -> Iterator[str]:
    """What was known at publication says, on the first test and the second."""
    first = {row["set"]: row for row in read_kept("at_publication") if row["slice"] == "two"}
    second = {row["set"]: row for row in read_kept("second")["rows"]}
    known, words = "references, coupling and CD", "words"
    both = f"{words}, {known}"
    known_at = [say_kept(rows[known]["accuracy"]) for rows in (first, second)]
    yield f"{known_at[0]}. On a second test, looked at once, {known_at[1]}"
    yield f"{first[words]['accuracy'][0]:.2f} and {second[words]['accuracy'][0]:.2f}"
    over = [say_kept(rows[both][f"over {known}"], 3, "+") for rows in (first, second)]
    yield f"{over[0]}, and on the second test {over[1]}"
    titles = {row["set"]: row for row in read_kept("context") if row["slice"] == "two"}
    over = say_kept(titles["words and titles of references"]["over words"], 3, "+")
    yield f"Titles of references add {over} to words"
    over = say_kept(titles["MiniLM of text and titles of references, numbers"]["over numbers"], 3, "+")
    yield f"MiniLM embeddings of both texts {over} to what was known"


def claim_differing(runs: Runs) -> Iterator[str]:
    """In how many papers the likeliest label of the kept chances is not the kept answer of SFT."""
    apart = [
        float(np.mean(np.array(run["chances"]).argmax(1) != np.array(run["said"])))
        for name in ("two", "three")
        for run in runs[name, "sft"]
    ]
    yield f"differ in {show_percent(apart)} of the papers"


def claim_looks() -> Iterator[str]:
    """How many variants were judged on the first test; seeds, and what RL starts from, do not count."""
    judged = {
        (line["job"]["slice"], find_way(line["job"]), one.get("step"))
        for line in read_lines()
        for one in line["judged"]
        if one["side"] == "test" and one.get("step") != 0
    }
    sets = {(row["slice"], row["set"]) for row in read_kept("at_publication") + read_kept("context")}
    others = len({one for one in sets if one[1] not in ("words", "numbers", "words and numbers", "MiniLM")})
    stacked = sum(name.endswith(" and model") for row in read_kept("stack") for name in row["rows"])
    fields = len(FIELDS) * sum(row["way"] != "words" for row in read_kept("fields")["pooled"])
    yield f"At least {len(judged) + others + stacked + fields + 1 + N_TRIED} variants"  # 1: words of titles


def find_claims(slices: Slices, runs: Runs) -> list[str]:
    """Return every claim, in the words of the page."""
    return [
        *claim_reinforcement(slices, runs),
        *claim_natural_shares(slices, runs),
        *claim_calibration(slices, runs),
        *claim_memory(slices, runs),
        *claim_fields(slices, runs),
        *claim_at_publication(),
        *claim_stacked(),
        *claim_differing(runs),
        *claim_looks(),
    ]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("\n".join(find_claims(*read_results())))
