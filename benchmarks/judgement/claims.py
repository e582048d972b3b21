"""Compute what the note on judgement says beside its tables, from kept results alone: ``claims.py`` prints it.

A claim is a piece of a sentence with its figures. A test looks for each of them in ``benchmarks/notes/judgement.md``,
and for the main ones in ``docs/rl/judgement.md``, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from kept import (
    Runs,
    Slices,
    correct_prior,
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
    share_out,
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
    """What exp4's reward gains over a pass, as said and prior-corrected, and what gain could have been seen."""
    gold = find_gold(slices, "three")
    powers = []
    for answer in ("said", "corrected"):
        gains, (before, after) = find_gains(slices, runs, "exp4", answer), find_ends(runs, "exp4", answer)
        low, high = find_interval(gains)
        moved = before != after
        yield f"{show_percent([*moved.mean(1)])} of the papers"
        right = [np.sum((said == gold) & moved) for said in (before, after)]
        yield f"{right[0]} of {moved.sum()} were right before, {right[1]} after"
        yield say(gains, 3, "+")
        powers.append(f"{POWER * (high - low) / 2:.3f}")
    yield f"True gains of {' and '.join(powers)} would have shown in four of five cases"
    chances = [[np.log(share_out(run["tests"][at]["chances"], 3)) for run in runs["three", "exp4"]] for at in (0, -1)]
    before, after = (np.array([(one - one.mean(0)).argmax(1) for one in seeds]) for seeds in chances)
    moved = before != after
    yield f"by mean log-probabilities {show_percent([*moved.mean(1)])}"
    yield f"exp5 says *disruptive* in {show_percent([find_shares(said)[0] for said in find_ends(runs, 'exp5')[1]])}"
    yield f"nothing that can be seen: {say(find_gains(slices, runs, 'exp5', 'corrected'), 2, '+')}"
    begun = [way for name, way in runs if name == "three" and runs[name, way][0]["job"].get("after")]
    begun = [way for way in begun if "corrected" in runs["three", way][0]]
    fair = np.array([np.mean(find_ends(runs, way, "corrected")[1] == gold, axis=1) for way in begun])
    yield f"end at {show_range([*fair.mean(1)])} (single runs: {show_range([*fair.ravel()])})"
    moved = {way: find_moved(runs, way) for way in {*begun, "exp8", "exp8_soft"} - {"expected"}}
    least = moved.pop("exp4"), moved.pop("exp6"), moved.pop("exp4_long")
    yield "{:.2f} and {:.2f} of the answers over a pass, exp4's {:.2f} over three".format(*least)
    yield f"the others {min(moved.values()):.2f} or more"


def find_moved(runs: Runs, way: str) -> float:
    """Return the share of answers by which labels gained what others lost, from before to after."""
    before, after = (np.array(find_shares(said)) for said in find_ends(runs, way))
    return float(np.abs(after - before).sum() / 2)


def claim_natural_shares(slices: Slices, runs: Runs) -> Iterator[str]:
    """What prior correction costs SFT where test papers and mean have the shares of labels among all papers.

    Both choose by the kept chances. These tie in 6 to 16 % of the papers: a tie goes to the first label, or is shared.
    """
    natural = read_kept("pool")["labels"]
    lost, most = {}, {}
    for name in ("two", "three"):
        gold = find_gold(slices, name)
        share = np.array([natural[label] for label in SLICES[name][0]])
        most[name] = share.max() / share.sum()
        weight = (share / share.sum() / np.bincount(gold))[gold]
        losses = []
        for run in runs[name, "sft"]:
            chance = np.array(run["chances"])[:, : share.size]
            is_top = chance == chance.max(1, keepdims=True)
            corrected = weight @ ((chance / np.average(chance, axis=0, weights=weight)).argmax(1) == gold)
            first = weight @ (chance.argmax(1) == gold)
            shared = weight @ (is_top[np.arange(gold.size), gold] / is_top.sum(1))
            losses.append((first - corrected, shared - corrected))
        lost[name] = np.mean(losses, axis=0)
    yield f"it costs {show_range([*lost['two']])} on `two`, by how ties fall, and nothing on `three`"
    assert max(lost["three"]) < 0.005
    yield f"always saying *consolidating* is right in {most['two']:.2f} and {most['three']:.2f}"


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
    """Return by way whether each test paper is judged right by a model that was not trained on its field.

    A way with chances is there again, prior-corrected: ``words, corrected``.
    """
    gold = [find_gold(slices, f"two-{field}") for field in FIELDS]
    right = {}

    def add(way: str, said: list[Any]) -> None:
        right[way] = (np.concatenate(said) == np.concatenate(gold))[None] * 1.0

    for name, way in {"metadata": "metadata", "words": "tfidf", "minilm": "minilm", "sft": "sft"}.items():
        seeds = [runs[f"two-{field}", way][0] for field in FIELDS]
        add(name, [run["said"] for run in seeds])
        add(f"{name}, corrected", [correct_prior(run["chances"], 2) for run in seeds])
    for row in read_kept("fields")["pooled"]:
        if row["way"] in ("numbers", "words and numbers"):
            add(row["way"], [row["said"][field] for field in FIELDS])
    return right


def claim_fields(slices: Slices, runs: Runs) -> Iterator[str]:
    right = pool_fields(slices, runs)
    yield f"has {say(right['numbers'], 2)} on the fifth, SmolLM2 {say(right['sft'], 3)}"
    yield f"prior-corrected {right['sft, corrected'].mean():.3f}"
    for other in ("words", "metadata"):
        said, fair = (say(right[f"sft{end}"] - right[f"{other}{end}"], 3, "+") for end in ("", ", corrected"))
        yield f"{said}, prior-corrected {fair}"
    shares = [find_shares(np.array(runs[f"two-{field}", "sft"][0]["said"]))[1] for field in FIELDS]
    yield f"*consolidating* to {show_percent(shares)}"


def claim_stacked() -> Iterator[str]:
    """What the model's log-probabilities add to a logistic regression on ``two``."""
    added = next(row for row in read_kept("stack") if row["slice"] == "two")["added"]
    for what in ("model to words", "model to numbers", "model to words and numbers"):
        yield f"{say_kept(added[what]['accuracy'], 3, '+')} (AUC {say_kept(added[what]['auc'], 3, '+')})"


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


def claim_one_column() -> Iterator[str]:
    found = read_kept("one_column")
    ends = [say_kept(found[column]["accuracy"]) for column in ("n_coupled_twice", "n_references")]
    yield f"alone {ends[0]}, the number of references {ends[1]}"


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
    alone = 1 + len(read_kept("one_column"))  # words of titles, and a column
    yield f"At least {len(judged) + others + stacked + fields + alone + N_TRIED} variants"


def find_claims(slices: Slices, runs: Runs) -> list[str]:
    """Return every claim, in the words of the note."""
    return [
        *claim_reinforcement(slices, runs),
        *claim_natural_shares(slices, runs),
        *claim_calibration(slices, runs),
        *claim_memory(slices, runs),
        *claim_fields(slices, runs),
        *claim_at_publication(),
        *claim_stacked(),
        *claim_one_column(),
        *claim_differing(runs),
        *claim_looks(),
    ]


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("\n".join(find_claims(*read_results())))
