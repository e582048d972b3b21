"""The views of a report that are pictures of the last evaluation: contract, classes, confidence, mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sciscirl.compare import Estimate
from sciscirl.metrics import bin_by_confidence, find_right
from sciscirl.predictions import INVALID
from sciscirl.report_figures import (
    draw_confusion,
    draw_recalls,
    draw_reliability,
    draw_shares,
)
from sciscirl.report_layout import ABSENT, Picture, Section, Table, show, show_metric, slug
from sciscirl.report_runs import Evaluation, Run
from sciscirl.report_trajectories import draw_trajectories
from sciscirl.task import VOCABULARIES, short_name

_FLIPS: Final = {
    "flip/kept_right": "kept right",
    "flip/kept_wrong": "kept wrong",
    "flip/right_to_wrong": "right to wrong",
    "flip/wrong_to_right": "wrong to right",
    "flip_rate/right_to_wrong": "lost, of the right ones",
    "flip_rate/wrong_to_right": "mended, of the wrong ones",
    "flip_rate/changed_while_wrong": "changed, of those wrong twice",
}
_LABELS: Final = {short_name(column): labels for column, labels in VOCABULARIES.items()}


def view_contract(runs: Sequence[Run]) -> Section:
    """Show how many answers keep the form they were asked for, and what is wrong with the others."""
    rows = [
        [
            run.name,
            *(show_metric(run.last.metrics, name) for name in ("parse_ok", "format_strict_ok", "invalid", "think")),
            show(_tolerant_only(run.last)),
            _count_problems(run.last),
        ]
        for run in runs
        if run.last
    ]
    head = ["run", "parse_ok", "format_strict_ok", "invalid", "think", "tolerant only", "problems"]
    pictures = draw_trajectories(runs, {"format_strict_ok": "Answers that keep the contract"})
    return Section(
        "contract",
        "Contract",
        "parse_ok: JSON at all; format_strict_ok: exactly the keys and values asked for. Tolerant only: refused by the "
        "contract, though a lenient reader finds the right label in it. Such an answer is wrong here; the share says "
        "how much of a low score is form.",
        [Table("Form of the answers at the last evaluation", head, rows)],
        pictures,
    )


def _tolerant_only(evaluation: Evaluation) -> float | None:
    metrics = evaluation.metrics
    if "tolerant_label_match" not in metrics:
        return None
    # A lenient reader reads whatever is valid as the contract does, so that this is never below 0.
    return max(metrics["tolerant_label_match"] - metrics["label_match"], 0.0)


def _count_problems(evaluation: Evaluation) -> str:
    table = evaluation.predictions
    if table is None or "problem" not in table.columns:
        return ABSENT
    counts = table.filter(~table["is_valid"])["problem"].fill_null("").value_counts().rows()
    named = sorted(((count, problem or "unnamed") for problem, count in counts), key=lambda one: (-one[0], one[1]))
    return ", ".join(f"{problem} {count:,}" for count, problem in named) or "none"


def view_balance(runs: Sequence[Run]) -> Section:
    """Show which labels are said, beside which are right, and the recall of each."""
    pictures: list[Picture] = []
    tables: list[Table] = []
    for label, vocabulary in _LABELS.items():
        judged = [(run, run.last) for run in runs if run.last and label in run.labels]
        if not judged:
            continue
        names = (*vocabulary, INVALID)
        shares = {"gold": _gold_shares(judged[0], label)} if len({_gold_key(one, label) for one in judged}) == 1 else {}
        shares |= {
            run.name: {name: run.metric(one, label, f"predicted_share/{name}") or 0.0 for name in names}
            for run, one in judged
        }
        said = "; ".join(f"{name}: {_say_shares(held)}" for name, held in shares.items())
        pictures.append(
            Picture(
                f"shares_{label}",
                draw_shares(shares, title=f"What is answered: {label}"),
                f"Shares of the labels of {label}. {said}.",
            )
        )
        recalls = {run.name: _recalls(run, one, label) for run, one in judged}
        pictures.append(
            Picture(
                f"recall_{label}",
                draw_recalls(recalls, title=f"Recall of each class: {label}", chance=1 / len(vocabulary)),
                f"Recall of each class of {label} with intervals; the table has the numbers.",
            )
        )
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


def _gold_shares(judged: tuple[Run, Evaluation], label: str) -> dict[str, float]:
    run, one = judged
    held = _confusion(run, one, label)
    total = sum(sum(row.values()) for row in held.values())
    return {gold: sum(row.values()) / total for gold, row in held.items()}


def _gold_key(judged: tuple[Run, Evaluation], label: str) -> tuple[int, ...]:
    run, one = judged
    return tuple(sum(row.values()) for row in _confusion(run, one, label).values())


def _say_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def _recalls(run: Run, one: Evaluation, label: str) -> dict[str, Estimate]:
    return {
        name: Estimate(
            value, run.metric(one, label, f"recall/{name}/low"), run.metric(one, label, f"recall/{name}/high")
        )
        for name in _LABELS[label]
        if (value := run.metric(one, label, f"recall/{name}")) is not None
    }


def _show_of(run: Run, one: Evaluation, label: str, name: str) -> str:
    return show_metric(one.metrics, name if len(run.labels) == 1 else f"{label}/{name}")


def view_challenges(runs: Sequence[Run]) -> Section | None:
    """Show what an objection did to answers, of the runs in which there was one."""
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
        draw_trajectories([run for run, _ in judged], {"flip_rate/right_to_wrong": "Right answers given up"}),
    )


def view_reliability(runs: Sequence[Run]) -> Section:
    """Show whether stated confidence means anything."""
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
                draw_reliability(bins, title=run.name),
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
        "has 0.333.",
        [Table("Confidence at the last evaluation", head, rows)],
        pictures,
    )


def view_confusion(runs: Sequence[Run]) -> Section:
    """Show which label is taken for which, invalid answers among them."""
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
                    draw_confusion(counts, title=run.name + (f", {label}" if end else "")),
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
            name: run.metric(one, label, f"confusion/{gold}/{name}") for name in (*_LABELS[label], INVALID)
        }
        for gold in _LABELS[label]
    }  # fmt: skip
    return {
        gold: {name: int(count) for name, count in row.items() if count is not None}
        for gold, row in counts.items()
        if None not in row.values()
    }
