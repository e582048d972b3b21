"""Sections of a report that are pictures or answers: contract, classes, confidence, trajectories, rewards, examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import polars as pl

from sciscidata.plots import COLOURS
from sciscidata.terminal.messages import counted
from sciscirl.lab.analysis.compare import Estimate
from sciscirl.lab.report.figures import (
    Series,
    plot_confusion,
    plot_lines,
    plot_recalls,
    plot_reliability,
    plot_shares,
)
from sciscirl.lab.report.layout import ABSENT, Example, Picture, Section, Table, show, show_metric, slug
from sciscirl.lab.report.runs import Evaluation, Run, find_repeated, hash_release
from sciscirl.lab.report.tables import TRAIN, view_groups
from sciscirl.metrics.metrics import GROUP_SQUARE, bin_by_confidence, find_right, group_error
from sciscirl.metrics.predictions import INVALID, split_by_label
from sciscirl.task.papers import VOCABULARIES, Paper, PaperView, SplitName, read_split, short_name

_FLIPS: Final = {
    "flip/kept_right": "kept right",
    "flip/kept_wrong": "kept wrong",
    "flip/right_to_wrong": "right to wrong",
    "flip/wrong_to_right": "wrong to right",
    "flip_rate/right_to_wrong": "lost, of the right ones",
    "flip_rate/wrong_to_right": "mended, of the wrong ones",
    "flip_rate/changed_while_wrong": "changed, of those wrong twice",
}
_ROUNDING: Final = 1e-9  # of rewards
_LABELS: Final = {short_name(column): labels for column, labels in VOCABULARIES.items()}


def _list_asked(runs: Sequence[Run]) -> list[tuple[str, tuple[str, ...]]]:
    """List the labels that runs were asked for, with their classes: disruption and novelty first."""
    own = dict.fromkeys(pair for run in runs for pair in run.labels.items() if pair not in _LABELS.items())
    return [*_LABELS.items(), *own]


def view_contract(runs: Sequence[Run]) -> Section:
    """Show how many answers keep the contract, and the problems of the others."""
    rows = [
        [
            run.name,
            *(show_metric(run.last.metrics, name) for name in ("parse_ok", "format_strict_ok", "invalid", "think")),
            show(_tolerant_only(run.last)),
            show(_share_at_floor(run, run.last)),
            _count_problems(run.last),
        ]
        for run in runs
        if run.last
    ]
    head = ["run", "parse_ok", "format_strict_ok", "invalid", "think", "tolerant only", "at the floor", "problems"]
    pictures = plot_trajectories(runs, {"format_strict_ok": "Answers that keep the contract"})
    return Section(
        "contract",
        "Contract",
        "parse_ok: JSON at all; format_strict_ok: exactly the keys and values asked for. Tolerant only: refused by the "
        "contract, though a lenient reader finds the right label in it. Such an answer is wrong here; the share says "
        "how much of a low score is form. At the floor: answers that earn no more than one that is not JSON.",
        [Table("Form of the answers at the last evaluation", head, rows)],
        pictures,
    )


def _tolerant_only(evaluation: Evaluation) -> float | None:
    metrics = evaluation.metrics
    if "tolerant_label_match" not in metrics:
        return None
    # A lenient reader reads whatever is valid as the contract does, so that this is never below 0.
    return max(metrics["tolerant_label_match"] - metrics["label_match"], 0.0)


def _share_at_floor(run: Run, evaluation: Evaluation) -> float | None:
    table, numbers = evaluation.predictions, run.settings.get("reward_table")
    floor = cast("Mapping[str, Any]", numbers).get("not_json") if isinstance(numbers, Mapping) else None
    if not isinstance(floor, int | float) or table is None or "reward" not in table.columns:
        return None
    return int((table["reward"] <= floor + _ROUNDING).sum()) / len(table)


def _count_problems(evaluation: Evaluation) -> str:
    table = evaluation.predictions
    if table is None or "problem" not in table.columns:
        return ABSENT
    counts = table.filter(~table["is_valid"])["problem"].fill_null("").value_counts().rows()
    named = sorted(((count, problem or "unnamed") for problem, count in counts), key=lambda one: (-one[0], one[1]))
    return ", ".join(f"{problem} {count:,}" for count, problem in named) or "none"


def view_balance(runs: Sequence[Run]) -> Section:
    """Show predicted and gold shares of the labels, and the recall of each."""
    pictures: list[Picture] = []
    tables: list[Table] = []
    for label, vocabulary in _list_asked(runs):
        judged = [(run, run.last) for run in runs if run.last and run.labels.get(label) == vocabulary]
        if not judged:
            continue
        names = (*vocabulary, INVALID)
        golds = [_count_gold(run, one, label) for run, one in judged]
        is_same = all(counts == golds[0] for counts in golds)
        shares = {"gold": {name: n / sum(golds[0].values()) for name, n in golds[0].items()}} if is_same else {}
        shares |= {
            run.name: {name: run.metric(one, label, f"predicted_share/{name}") or 0.0 for name in names}
            for run, one in judged
        }
        said = "; ".join(
            f"{name}: " + ", ".join(f"{each} {share:.0%}" for each, share in held.items())
            for name, held in shares.items()
        )
        recalls = {run.name: _recalls(run, one, label) for run, one in judged}
        pictures += [
            Picture(
                f"shares_{label}",
                plot_shares(shares, title=f"What is answered: {label}"),
                f"Shares of the labels of {label}. {said}.",
            ),
            Picture(
                f"recall_{label}",
                plot_recalls(recalls, title=f"Recall of each class: {label}", chance=1 / len(vocabulary)),
                f"Recall of each class of {label} with intervals; the table has the numbers.",
            ),
        ]
        head = ["run", *(f"recall {name}" for name in vocabulary), "balanced accuracy", "MCC", "macro-F1"]
        metrics = (*(f"recall/{name}" for name in vocabulary), "balanced_accuracy", "mcc", "macro_f1")
        rows = [[run.name, *(_show_of(run, one, label, name) for name in metrics)] for run, one in judged]
        tables.append(Table(f"Classes of {label} at the last evaluation", head, rows))
    return Section(
        "balance",
        "Class balance",
        "A model that always says one label can look well by reward and by label_match. Predicted shares far from the "
        "gold ones, or a recall near 0, show it.",
        tables,
        pictures,
    )


def _count_gold(run: Run, one: Evaluation, label: str) -> dict[str, int]:
    return {gold: sum(row.values()) for gold, row in _confusion(run, one, label).items()}


def _recalls(run: Run, one: Evaluation, label: str) -> dict[str, Estimate]:
    return {
        name: Estimate(
            value, run.metric(one, label, f"recall/{name}/low"), run.metric(one, label, f"recall/{name}/high")
        )
        for name in run.labels[label]
        if (value := run.metric(one, label, f"recall/{name}")) is not None
    }


def _show_of(run: Run, one: Evaluation, label: str, name: str) -> str:
    return show_metric(one.metrics, name if len(run.labels) == 1 else f"{label}/{name}")


def view_challenges(runs: Sequence[Run]) -> Section | None:
    """Show how challenges changed answers; None if no run had any."""
    judged = [(run, run.last) for run in runs if run.last and "flip/kept_right" in run.last.metrics]
    if not judged:
        return None
    rows = [[run.name, *(show_metric(one.metrics, name) for name in _FLIPS)] for run, one in judged]
    return Section(
        "challenges",
        "Answers before and after a challenge",
        "Shares of all answers, and rates among those that were right, or wrong, before the challenge. An answer that "
        "breaks the contract is wrong on either side.",
        [Table("Flips at the last evaluation", ["run", *_FLIPS.values()], rows)],
        plot_trajectories([run for run, _ in judged], {"flip_rate/right_to_wrong": "Right answers given up"}),
    )


def view_reliability(runs: Sequence[Run]) -> Section:
    """Show how often answers of each confidence are right."""
    rows: list[list[str]] = []
    pictures: list[Picture] = []
    for run in runs:
        one = run.last
        if one is None:
            continue
        names = ("mean_confidence", "label_match", "both_match", "brier", "ece", "forecast_brier")
        rows.append([run.name, *(show(one.metrics.get(name)) for name in names)])
        table = one.predictions
        if table is None:
            continue
        bins = bin_by_confidence(table["confidence"], find_right(table))
        said = "; ".join(f"{each.confidence_sum / each.n:.2f}: {each.n_right} of {each.n}" for each in bins if each.n)
        pictures.append(
            Picture(
                f"reliability_{slug(run.name)}",
                plot_reliability(bins, title=run.name),
                f"Reliability of {run.name}: right answers by stated confidence. {said}.",
            )
        )
    head = ["run", "mean confidence", "label_match", "both right", "Brier", "ECE", "forecast Brier"]
    return Section(
        "reliability",
        "Reliability of confidence",
        "Points below the dashed line: surer than right. An invalid answer counts as wrong at confidence 1, also in "
        "Brier score and expected calibration error (ten bins); both are better the smaller. Where two labels are "
        "asked for, confidence is about both. Forecast Brier is of all probabilities that were given: saying 1/3 each "
        "has 0.333; of K labels, 1/K each has (K - 1) / 2K.",
        [Table("Confidence at the last evaluation", head, rows)],
        pictures,
    )


def view_confusion(runs: Sequence[Run]) -> Section:
    """Show a confusion matrix of each run, with invalid answers."""
    pictures: list[Picture] = []
    for run, one in [(run, run.last) for run in runs if run.last]:
        for label in run.labels:
            counts = _confusion(run, one, label)
            if not counts:
                continue
            end = f"_{label}" if len(run.labels) > 1 else ""
            said = "; ".join(
                f"{gold}: " + ", ".join(f"{name} {count:,}" for name, count in row.items())
                for gold, row in counts.items()
            )
            pictures.append(
                Picture(
                    f"confusion_{slug(run.name)}{end}",
                    plot_confusion(counts, title=run.name + (f", {label}" if end else "")),
                    f"Confusion matrix of {run.name}. {said}.",
                )
            )
    return Section(
        "confusion",
        "Confusion matrices",
        "Rows are gold labels, columns what was answered, at the last evaluation: counts and shares of the row. Right "
        "of the line are invalid answers.",
        (),
        pictures,
    )


def _confusion(run: Run, one: Evaluation, label: str) -> dict[str, dict[str, int]]:
    counts = {
        gold: {
            name: run.metric(one, label, f"confusion/{gold}/{name}") for name in (*run.labels[label], INVALID)
        }
        for gold in run.labels[label]
    }  # fmt: skip
    return {
        gold: {name: int(count) for name, count in row.items() if count is not None}
        for gold, row in counts.items()
        if None not in row.values()
    }


#: Of supervised runs: by metric the name of the picture, its title and its unit.
_LOSSES: Final = {
    "train_mean_nll": ("train_loss", "Loss on the answers learned from", "nats per token"),
    "label_nll": ("label_loss", "Loss on the label alone; ln 3 = 1.099 is a guess among three", "nats per answer"),
}
_NAN: Final = float("nan")


def view_trajectories(runs: Sequence[Run]) -> Section:
    """Show held-out metrics over training steps."""
    shown = {
        "label_match": "label_match: share right",
        "macro_f1": "macro-F1",
        "min_class_recall": "Least recall of a class",
    }
    pictures = plot_trajectories(runs, shown)
    for run in _trained(runs):
        for label, vocabulary in run.labels.items():
            lines = {
                name: Series(
                    steps=[one.step for one in run.evaluations],
                    values=[_or_nan(run.metric(one, label, f"predicted_share/{name}")) for one in run.evaluations],
                )
                for name in (*vocabulary, INVALID)
            }
            end = f"_{label}" if len(run.labels) > 1 else ""
            title = f"{run.name}: what it answers" + (f", {label}" if end else "")
            said = ", ".join(f"{name} {line.values[0]:.0%} to {line.values[-1]:.0%}" for name, line in lines.items())
            pictures.append(
                Picture(f"predicted_{slug(run.name)}{end}",
                        plot_lines(lines, title=title, y_label="share", colours={**COLOURS, INVALID: "#111111"}),
                        f"Predicted shares of {run.name} over training steps: {said}.")
            )  # fmt: skip
    for metric, (name, title, unit) in _LOSSES.items():
        losses = {run.name: _logged(run, metric) for run in runs if any(metric in row for row in run.rows)}
        if losses:
            ends = {one: (line.values[0], line.values[-1]) for one, line in losses.items()}
            said = "; ".join(f"{one} from {first:.3f} to {last:.3f}" for one, (first, last) in ends.items())
            picture = plot_lines(losses, title=title, y_label=unit, is_share=False)
            pictures.append(Picture(name, picture, f"{title} over steps: {said}."))
    text = (
        "Held-out figures over training steps; bars are 95 % intervals. Of several seeds, the line is the mean, and "
        "bars reach from the least to the most. Step 0 is the model before training."
    )
    if not pictures:
        text = "No run was evaluated more than once, so there is nothing to draw."
    return Section("trajectories", "Trajectories", text, (), pictures)


def _trained(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if len(run.evaluations) > 1]


def plot_trajectories(runs: Sequence[Run], shown: Mapping[str, str]) -> list[Picture]:
    """Plot each metric, a line for each run that was evaluated more than once, or for several seeds of one."""
    pictures: list[Picture] = []
    for name, title in shown.items():
        lines: dict[str, Series] = {}
        for one in find_repeated(_trained(runs)):
            every = [_judged(run, name) for run in one.runs.values()]
            lines[one.name] = every[0] if len(every) == 1 else _mean_of_seeds(every)
        pictures += _draw_lines(f"trajectory_{slug(name)}", title, lines)
    return pictures


def _judged(run: Run, name: str) -> Series:
    values = [_or_nan(one.metrics.get(name)) for one in run.evaluations]
    lows, highs = ([_or_nan(one.metrics.get(f"{name}/{end}")) for one in run.evaluations] for end in ("low", "high"))
    return Series(steps=[one.step for one in run.evaluations], values=values, lows=lows, highs=highs)


def _mean_of_seeds(lines: Sequence[Series]) -> Series:
    """Return the mean of the steps that all seeds have, with the least and the most of them."""
    values = [dict(zip(line.steps, line.values, strict=True)) for line in lines]
    steps = [step for step in lines[0].steps if all(step in one for one in values)]
    held = [[one[step] for one in values] for step in steps]
    means = [math.fsum(each) / len(each) for each in held]
    return Series(steps=steps, values=means, lows=[*map(min, held)], highs=[*map(max, held)])


def _draw_lines(name: str, title: str, lines: Mapping[str, Series], **more: Any) -> list[Picture]:  # noqa: ANN401
    drawn = {run: line for run, line in lines.items() if line.steps}
    if not drawn:
        return []
    said = "; ".join(f"{run} from {line.values[0]:.3f} to {line.values[-1]:.3f}" for run, line in drawn.items())
    return [Picture(name, plot_lines(drawn, title=title, **more), f"{title} over steps: {said}.")]


def _rewarded(run: Run) -> Series:
    """Return the mean reward of each training step, with its standard error over the groups of the step."""
    line, size = _logged(run, f"{TRAIN}reward/total"), run.settings.get("group_size")
    if not isinstance(size, int) or size < 1:
        return line
    rows = [row for row in run.rows if f"{TRAIN}reward/total" in row]
    errors = [
        group_error(mean, row[f"{TRAIN}{GROUP_SQUARE}"], round(row.get(f"{TRAIN}total_episodes", 0)) // size)
        if f"{TRAIN}{GROUP_SQUARE}" in row else None
        for row, mean in zip(rows, line.values, strict=True)
    ]  # fmt: skip
    if not any(errors):
        return line
    return replace(
        line,
        lows=[mean - _or_nan(error) for mean, error in zip(line.values, errors, strict=True)],
        highs=[mean + _or_nan(error) for mean, error in zip(line.values, errors, strict=True)],
    )


def view_rewards(runs: Sequence[Run]) -> Section | None:
    """Show mean rewards in training by part, and how often rewards tie; None without reinforcement learning."""
    rewards: dict[str, Series] = {}
    for one in find_repeated([run for run in runs if any(f"{TRAIN}reward/total" in row for row in run.rows)]):
        every = [_rewarded(run) for run in one.runs.values()]
        rewards[one.name] = every[0] if len(every) == 1 else _mean_of_seeds(every)
    pictures = _draw_lines("mean_reward", "Mean reward", rewards, is_share=False)
    for run in runs:
        names = dict.fromkeys(name for row in run.rows for name in row if name.startswith(f"{TRAIN}reward/"))
        lines = {name.removeprefix(f"{TRAIN}reward/"): _logged(run, name) for name in names}
        if lines:
            pictures.append(
                Picture(
                    f"rewards_{slug(run.name)}",
                    plot_lines(lines, title=f"{run.name}: mean reward", is_share=False),
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
            pictures.append(Picture(name, plot_lines(lines, title=title, y_label="share"), f"{title}: {said}."))
    groups = view_groups(runs)
    if not pictures:
        return None
    return Section(
        "rewards",
        "Rewards and ties",
        "Mean reward of a training step, and its parts. Bars are the standard error over the groups of the step; of "
        "several seeds, the line is the mean, and bars reach from the least to the most. A group whose rewards are all "
        "equal teaches nothing.",
        [groups] if groups else [],
        pictures,
    )


def _logged(run: Run, name: str) -> Series:
    rows = [row for row in run.rows if name in row]
    return Series(steps=[row.get("step", 0.0) for row in rows], values=[row[name] for row in rows])


def _or_nan(value: float | None) -> float:
    return _NAN if value is None else value


_LONGEST: Final = 2000  # characters of an abstract or an answer that are shown
_SHOWN: Final = ("reward_parse", "reward_contract", "reward_task", "reward_think")


def view_examples(runs: Sequence[Run], *, n_each: int, release: Path | None) -> Section | None:
    """Show answers of each run's last evaluation, with their papers if of this release; None if no run kept any.

    Shows ``n_each`` right, wrong and invalid answers of each run, spread over the gold labels, in evaluation order.
    """
    examples: dict[str, Sequence[Example]] = {}
    texts: dict[SplitName, Mapping[str, Paper]] = {}
    digest = None if release is None else hash_release(release)
    n_without = 0
    for run in runs:
        table = run.last.predictions if run.last else None
        if table is None or "text" not in table.columns:
            continue
        papers: Mapping[str, Paper] = {}
        stated = cast("Any", run.facts.get("release") or {}).get("manifest_sha256")
        if release is not None and stated == digest:
            split = cast("SplitName", "train" if run.split == "held_out" else run.split)
            if split not in texts:
                texts[split] = {paper.openalex_id: paper for paper in read_split(release, split, needs=())}
            papers = texts[split]
        else:
            n_without += 1
        chosen = _choose(table, n_each)
        if chosen:
            examples[run.name] = [_make_example(outcome, row, papers) for outcome, row in chosen]
    if not examples:
        return None
    text = "Answers of the last evaluation as they were written, spread over the gold labels and not otherwise chosen."
    if release is None:
        text += " With --release, the papers are shown too."
    elif n_without:
        text += f" The papers of {counted(n_without, 'run')} are not shown: {release.name} is not their release."
    return Section("examples", "Examples", text, examples=examples)


def _choose(table: pl.DataFrame, n_each: int) -> list[tuple[str, dict[str, Any]]]:
    first = next(iter(split_by_label(table).values()))
    numbered = table.with_columns(
        _gold=first["gold"],
        _outcome=pl.select(
            pl.when(~table["is_valid"]).then(pl.lit(INVALID)).when(find_right(table)).then(pl.lit("right"))
            .otherwise(pl.lit("wrong"))
        ).to_series(),
    ).with_columns(_turn=pl.int_range(pl.len()).over("_outcome", "_gold"), _place=pl.int_range(pl.len()))  # fmt: skip
    return [
        (outcome, row)
        for outcome in ("right", "wrong", INVALID)
        for row in numbered.filter(pl.col("_outcome") == outcome).sort("_turn", "_place").head(n_each).to_dicts()
    ]


def _make_example(outcome: str, row: Mapping[str, Any], papers: Mapping[str, Paper]) -> Example:
    golds = [value for name, value in row.items() if name.startswith("gold")]
    labels = [value for name, value in row.items() if name.startswith("label")]
    paper = papers.get(row.get("openalex_id", ""))
    view = paper.view if paper and isinstance(paper.view, PaperView) else None
    facts = {
        "paper": str(row.get("openalex_id", ABSENT)),
        "gold": ", ".join(golds),
        "answered": ", ".join(label for label in labels if label is not None)
        or f"{INVALID}: {row.get('problem') or ''}",
        "confidence": show(row.get("confidence"), 2),
    }
    if row.get("reward") is not None:
        parts = {name.removeprefix("reward_"): row[name] for name in _SHOWN if row.get(name)}
        said = ", ".join(f"{name} {value:+.2f}" for name, value in parts.items())
        facts["reward"] = f"{row['reward']:.2f}" + (f" ({said})" if said else "")
    if view is not None:
        facts |= {
            "year": str(view.publication_year or ABSENT),
            "cited by": ABSENT if view.cited_by_count is None else f"{view.cited_by_count:,}",
            "field": view.primary_field or ABSENT,
        }
    title = f"{view.title or row['openalex_id']}" if view else ""
    abstract = "" if view is None else _cut(view.abstract or "(no abstract)")
    return Example(outcome, title, facts, abstract, _cut(row.get("text") or "(nothing)"))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} \N{HORIZONTAL ELLIPSIS}"
