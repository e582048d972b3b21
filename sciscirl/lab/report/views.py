"""The further sections of a report: runs and their settings, cost, classes, curves, answers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, cast

import polars as pl

from sciscidata.release.manifest import describe_given_split
from sciscidata.terminal.messages import counted
from sciscirl.lab.analysis.calibrate import NOISE, find_noise
from sciscirl.lab.published_cut import PUBLISHED, PUBLISHED_METRICS
from sciscirl.lab.report.figures import Series, plot_lines
from sciscirl.lab.report.layout import ABSENT, Example, Picture, Section, Table, show, show_metric
from sciscirl.lab.report.runs import RecordedRun, find_repeated, hash_release
from sciscirl.lab.training.step_watch import AT_FLOOR, GRADIENT, KL
from sciscirl.metrics.collapse import explain_doubt, find_signs
from sciscirl.metrics.metrics import FEWEST, find_right
from sciscirl.metrics.own_metrics import METRICS
from sciscirl.metrics.predictions import split_by_label
from sciscirl.options import NO_EFFECT
from sciscirl.runs.lineage import render_start
from sciscirl.runs.prices import PRICES_DATE, Usage
from sciscirl.runs.record import is_local, is_taught
from sciscirl.task.papers import Paper, PaperView
from sciscirl.task.predictions import INVALID
from sciscirl.task.release import SplitName, open_release, read_split

_KINDS: Final = {
    "rl": "reinforcement learning", "sft": "supervised fine-tuning", "evaluation": "evaluation", "baseline": "baseline",
    "unreadable": "not readable",
}  # fmt: skip
_TRAIN: Final = "env/all/"
_LONGEST: Final = 2000  # characters of an abstract or an answer that are shown


def view_runs(runs: Sequence[RecordedRun]) -> Section:
    """Show the state of every run, and the settings that differ."""
    rows = [
        [
            run.name, run.state, _say_step(run), (run.split if run.last else "") or ABSENT,
            f"{run.last.metrics['n']:,.0f}" if run.last else ABSENT,
            ABSENT if run.n_test_looks is None else f"{run.n_test_looks:,}", say_signs(run),
            "; ".join(run.alarms), "; ".join(run.problems),
        ]
        for run in runs
    ]  # fmt: skip
    head = (
        "run", "state", "judged at step", "judged by", "answers", "looks at test", "class collapse", "alarms",
        "not readable",
    )  # fmt: skip
    facts = [_describe(run) for run in runs]
    names = dict.fromkeys(name for one in facts for name in one)
    settings = [[name, *(one.get(name, ABSENT) for one in facts)] for name in names]
    settings.sort(key=lambda row: len({*row[1:]} - {ABSENT}) < 2)
    tables = [
        Table("Every run", head, rows),
        Table("Settings, those that differ first", ["", *(run.name for run in runs)], settings, is_folded=True),
    ]
    text = (
        "A result on test is clean if its run looked at test in its final evaluations only: once with the chosen "
        "weights, once with the last ones. One seed is one run, not a finding."
    )
    return Section("runs", "Runs", text, tables)


def _say_step(run: RecordedRun) -> str:
    """Say after which training step the weights were judged, and what chose them."""
    if run.kind in {"rl", "sft"}:
        return f"{run.last.step:,}" if run.last else ABSENT
    step, selected = run.weights.get("step", ABSENT), run.settings.get("selected")
    begun = f" ({run.weights['begun_from']})" if "begun_from" in run.weights else ""
    chosen = f", chosen by {selected.get('split')}" if isinstance(selected, Mapping) else ""
    return f"{step}{begun}{chosen}"


def say_signs(run: RecordedRun) -> str:
    """Say which signs of class collapse the last evaluation has, or why it shows none."""
    if run.last is None or run.kind == "baseline":
        return ABSENT
    taught = is_taught(run.facts) or bool(run.weights.get("is_taught"))
    doubt = explain_doubt(run.last.metrics, str(run.settings.get("contract", "")), is_taught=taught)
    return "; ".join([*find_signs(run.last.metrics), *([f"no verdict: {doubt}"] if doubt else [])]) or "no sign"


def _describe(run: RecordedRun) -> dict[str, str]:
    settings = dict(run.settings)
    if "model" in settings:
        model = PurePath(str(settings["model"]))
        settings["model"] = model.name if model.is_absolute() else str(model)  # of a folder, its name
    unread = NO_EFFECT.get("train" if run.kind == "rl" else run.kind, {})
    release = f"{run.facts.get('release_folder') or ''} {str(run.facts['release'].get('manifest_sha256') or '')[:12]}"
    facts = {
        "kind": _KINDS[run.kind],
        "begun from": render_start(run.facts.get("begun_from")) or settings.get("load_checkpoint"),
        "task": None if run.kind == "unreadable" else run.target,
        "release": release.strip(),
        "begun": run.facts.get("date"),
        "commit": run.facts.get("commit"),
        # Prompts are whole pages, so show their names and SHA-256. The runs behind them tell weights apart.
        **{name: value for name, value in settings.items() if name not in {"prompt", "load_checkpoint", *unread}},
        **{f"version of {name}": value for name, value in (run.facts.get("versions") or {}).items()},
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in facts.items()
        if value is not None
    }


def view_published(runs: Sequence[RecordedRun], release: Path | None) -> Section | None:
    """Show the published figures beside those of the runs, if the release has the published split."""
    if release is None or describe_given_split(open_release(release).manifest) is None:
        return None
    rows = [
        [f"published {name}", "250", *(show(value, 4) for value in values)] for name, values in PUBLISHED.items()
    ] + [
        [run.name, _say_step(run), *(show(run.last.metrics.get(name), 4) for name in PUBLISHED_METRICS)]
        for run in runs
        if run.last and run.split == "test" and run.target == "disruption"
        and run.facts["release"].get("manifest_sha256") == hash_release(release)
    ]  # fmt: skip
    text = "The test papers are those of the published runs. Their prompts are not published, nor is macro-F1 exactly."
    return Section("published", "Beside the published runs", text, [Table("500 test papers", _PUBLISHED_HEAD, rows)])


_PUBLISHED_HEAD: Final = ("", "step", *PUBLISHED_METRICS)


def view_cost(runs: Sequence[RecordedRun]) -> Section | None:
    """Show what every recipe took, all its seeds together: tokens, dollars and time, where logged."""
    rows: list[list[str]] = []
    for way in find_repeated(run for run in runs if run.kind in {"rl", "sft"}):
        every = [*way.runs.values()]
        used = [run.usage for run in every if run.usage]
        usage = sum(used, Usage(prefill=0, sample=0, train=0))
        is_own = is_local(every[0].settings)
        dollars = None if is_own or not used else usage.dollars(str(every[0].settings.get("model")))
        seconds = math.fsum(row.get("time/total", row.get("time/step", 0.0)) for run in every for row in run.rows)
        n_steps = sum(run.n_steps for run in every)
        tokens = [f"{n:,}" for n in (usage.prefill, usage.sample, usage.train)] if used else [ABSENT] * 3
        price = "own hardware" if is_own else ABSENT if dollars is None else f"${dollars:,.2f}"
        took = [show_time(seconds), show_time(seconds / n_steps)] if seconds and n_steps else [ABSENT] * 2
        rows.append([way.name, _KINDS[every[0].kind], f"{len(every)}", f"{n_steps:,}", *tokens, price, *took])
    if not rows:
        return None
    head = (
        "recipe", "kind", "seeds", "steps", "tokens read", "sampled", "trained on", "at most", "time", "a step",
    )  # fmt: skip
    text = (
        f"Counted from the logs, with evaluations on the way. Dollars are Tinker's list prices of {PRICES_DATE}, no "
        f"prompt counted as cached. {ABSENT}: no price is listed, or nothing was logged."
    )
    return Section("cost", "What it took", text, [Table("All seeds together", head, rows)])


def show_time(seconds: float) -> str:
    """Write a duration.

    Example:
        >>> show_time(7.25), show_time(754), show_time(5040)
        ('7.2 s', '12 min 34 s', '1 h 24 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"


def view_classes(runs: Sequence[RecordedRun]) -> Section | None:
    """Show what is answered for each class: recalls, shares, counts."""
    tables: list[Table] = []
    for label, classes in dict.fromkeys(pair for run in runs for pair in run.labels.items()):
        judged = [
            (run, run.last) for run in runs if run.last and run.labels.get(label) == classes and run.kind != "baseline"
        ]
        if not judged:
            continue
        names = (*classes, INVALID)
        shown: list[list[str]] = []
        counts: list[list[str]] = []
        for run, one in judged:
            prefix = "" if len(run.labels) == 1 else f"{label}/"
            metrics = (*(f"recall/{name}" for name in classes), *(f"predicted_share/{name}" for name in names), "mcc")
            shown.append([run.name, *(show_metric(one.metrics, prefix + name) for name in metrics)])
            for gold in classes:
                row = [one.metrics.get(f"{prefix}confusion/{gold}/{name}") for name in names]
                counts.append([f"{run.name}, {gold}", *(ABSENT if n is None else f"{n:,.0f}" for n in row)])
        head = ["run", *(f"recall {name}" for name in classes), *(f"share {name}" for name in names), "MCC"]
        tables.append(Table(f"Classes of {label} at the last evaluation", head, shown))
        counted_head = ["run, gold label", *(f"answered {name}" for name in names)]
        tables.append(Table(f"Answers by gold label, {label}", counted_head, counts, is_folded=True))
    if not tables:
        return None
    text = (
        "A model that always says one label can look well by reward and accuracy. A share far from the gold one, or "
        "a recall near 0, shows it."
    )
    return Section("classes", "Class balance", text, tables)


#: What is drawn over training steps: of evaluations, and of the logs.
_JUDGED: Final = {
    "macro_f1": "macro-F1",
    "label_match": "Accuracy",
    "min_class_recall": "Worst-class recall",
    INVALID: "Invalid answers",
    "flip_rate/right_to_wrong": "Right answers given up",
}
_LOGGED: Final = {
    f"{_TRAIN}reward/total": "Mean reward",
    f"{_TRAIN}reward_uniform_group_rate": "Groups whose rewards are all equal",
    "train_mean_nll": "Loss on the answers learned from, nats per token",
    "label_nll": "Loss on the label alone, nats; ln 3 = 1.099 is a guess among three",
    AT_FLOOR: "Answers that earn the least reward",
    KL[1]: "KL(sampler, trainer), nats",
    **{f"{start}{GRADIENT}": "Norm of the gradient" for start in ("", "optim/", "skyrl.ai/")},
}


def view_curves(runs: Sequence[RecordedRun]) -> Section | None:
    """Plot held-out metrics, rewards and losses over training steps; None without a run that logged any twice."""
    pictures: list[Picture] = []

    def draw(title: str, lines: Mapping[str, Series], **look: Any) -> None:  # noqa: ANN401
        shown = {name: line for name, line in lines.items() if len(line.steps) > 1}
        if shown:
            said = "; ".join(
                f"{name} from {line.values[0]:.3f} to {line.values[-1]:.3f}" for name, line in shown.items()
            )
            pictures.append(Picture(plot_lines(shown, title=title, **look), f"{title} over steps: {said}."))

    ways = find_repeated(run for run in runs if run.kind in {"rl", "sft"})
    for name, title in _JUDGED.items():
        draw(title, {way.name: _merge_seeds([_judged(run, name) for run in way.runs.values()]) for way in ways})
    for name, own in METRICS.items():
        lines = {way.name: _merge_seeds([_judged(run, name) for run in way.runs.values()]) for way in ways}
        draw(own.title, lines, is_share=own.bounds == (0, 1))
    for name, title in _LOGGED.items():
        lines = {way.name: _merge_seeds([_logged(run, name) for run in way.runs.values()]) for way in ways}
        draw(title, lines, is_share=name.endswith(("_rate", AT_FLOOR)))
    if not pictures:
        return None
    text = (
        "With several seeds the line is their mean, and bars reach from the least to the most. A group whose rewards "
        "are all equal teaches nothing."
    )
    return Section("curves", "While it trained", text, (), pictures)


def _judged(run: RecordedRun, name: str) -> Series:
    every = [one for one in run.evaluations if one.metrics["n"] >= FEWEST and name in one.metrics]
    return Series(steps=[one.step for one in every], values=[one.metrics[name] for one in every])


def _logged(run: RecordedRun, name: str) -> Series:
    rows = [row for row in run.rows if name in row]
    return Series(steps=[row.get("step", 0.0) for row in rows], values=[row[name] for row in rows])


def _merge_seeds(lines: Sequence[Series]) -> Series:
    """Return the mean of the steps that all seeds have, with the least and the most of them; one seed as it is."""
    if len(lines) == 1:
        return lines[0]
    values = [dict(zip(line.steps, line.values, strict=True)) for line in lines]
    steps = [step for step in lines[0].steps if all(step in one for one in values)]
    by_step = [[one[step] for one in values] for step in steps]
    means = [math.fsum(each) / len(each) for each in by_step]
    return Series(steps=steps, values=means, lows=[*map(min, by_step)], highs=[*map(max, by_step)])


#: What is measured beside the scores, by name; a column is shown where a run has it.
_MEASURED: Final = {
    "parse_ok": "JSON", "format_strict_ok": "keep the contract", "mean_confidence": "mean confidence",
    "both_match": "both right", "brier": "Brier", "ece": "ECE", "forecast_brier": "forecast Brier",
    "flip/kept_right": "challenged: kept right", "flip/kept_wrong": "kept wrong",
    "flip/right_to_wrong": "right to wrong", "flip/wrong_to_right": "wrong to right",
}  # fmt: skip


def view_answers(runs: Sequence[RecordedRun]) -> Section | None:
    """Show form, confidence and challenges of the last answers."""
    judged = {run.name: run.last.metrics for run in runs if run.last and run.kind != "baseline"}
    names = [name for name in _MEASURED if any(name in metrics for metrics in judged.values())]
    if not names:
        return None
    rows = [[run, *(show_metric(metrics, name) for name in names)] for run, metrics in judged.items()]
    text = (
        "Brier score and calibration error (ECE) are better the smaller; an invalid answer counts as wrong at "
        "confidence 1."
    )
    doubts = [
        f"{run.name}, {name} (p {p:.2f})"
        for run in runs
        if run.name in judged and run.last and run.last.predictions is not None and run.last.metrics["n"] >= FEWEST
        for name, p in find_noise(run.last.predictions).items()
        if p > NOISE
    ]
    if doubts:
        text += f" Noise, as high where the answer is wrong as where it is right: {'; '.join(doubts)}."
    table = Table("Answers at the last evaluation", ["run", *(_MEASURED[name] for name in names)], rows)
    return Section("answers", "Form and confidence", text, [table])


def view_examples(runs: Sequence[RecordedRun], *, n_each: int, release: Path | None) -> Section | None:
    """Show ``n_each`` right, wrong and invalid answers of each run, over the labels, with papers of this release."""
    examples: dict[str, Sequence[Example]] = {}
    texts: dict[SplitName, Mapping[str, Paper]] = {}
    digest = None if release is None else hash_release(release)
    n_without = 0
    for run in runs:
        table = run.last.predictions if run.last else None
        if table is None or "text" not in table.columns or run.kind == "baseline":
            continue
        papers: Mapping[str, Paper] = {}
        if release is not None and run.facts["release"].get("manifest_sha256") == digest:
            split = cast("SplitName", "train" if run.split == "held_out" else run.split)
            if split not in texts:
                texts[split] = {paper.openalex_id: paper for paper in read_split(release, split, needs=())}
            papers = texts[split]
        else:
            n_without += 1
        withheld = run.withheld
        examples[run.name] = [_make_example(outcome, row, papers, withheld) for outcome, row in _choose(table, n_each)]
    if not any(examples.values()):
        return None
    text = "Answers of the last evaluation as they were written, spread over the gold labels and not otherwise chosen."
    if release is None:
        text += " With --release, the papers are shown too."
    elif n_without:
        text += f" The papers of {counted(n_without, 'run')} are not shown: {release.name} is not their release."
    return Section("examples", "Examples", text, examples={name: some for name, some in examples.items() if some})


def _choose(table: pl.DataFrame, n_each: int) -> list[tuple[str, dict[str, Any]]]:
    first = next(iter(split_by_label(table).values()))
    outcome = pl.when(~pl.col("is_valid")).then(pl.lit(INVALID)).when(find_right(table)).then(pl.lit("right"))
    numbered = (
        table.with_row_index("_place")
        .with_columns(_gold=first["gold"], _outcome=outcome.otherwise(pl.lit("wrong")))
        .with_columns(_turn=pl.int_range(pl.len()).over("_outcome", "_gold"))
    )
    return [
        (outcome, row)
        for outcome in ("right", "wrong", INVALID)
        for row in numbered.filter(pl.col("_outcome") == outcome).sort("_turn", "_place").head(n_each).to_dicts()
    ]


def _make_example(
    outcome: str, row: Mapping[str, Any], papers: Mapping[str, Paper], withheld: Sequence[str]
) -> Example:
    labels = [value for name, value in row.items() if name.startswith("label") and value is not None]
    facts = {
        "paper": str(row.get("openalex_id", ABSENT)),
        "gold": ", ".join(value for name, value in row.items() if name.startswith("gold")),
        "answered": ", ".join(labels) or f"{INVALID}: {row.get('problem') or ''}",
        "confidence": show(row.get("confidence"), 2),
        **({"reward": f"{row['reward']:.2f}"} if row.get("reward") is not None else {}),
    }
    paper = papers.get(row.get("openalex_id", ""))
    if paper is None or not isinstance(view := paper.view, PaperView):
        return Example(outcome, "", facts, "", _cut(row.get("text") or "(nothing)"))

    def mark(field: str) -> str:
        return " (withheld from the prompt)" if field in withheld else ""

    facts |= {
        "year": f"{view.publication_year or ABSENT}{mark('publication_year')}",
        "cited by": f"{ABSENT if (n := view.cited_by_count) is None else n}{mark('cited_by_count')}",
        "field": f"{view.primary_field or ABSENT}{mark('primary_field')}",
    }
    abstract = _cut(view.abstract or "(no abstract)")
    return Example(
        outcome,
        f"{view.title or row['openalex_id']}{mark('title')}",
        facts,
        f"{mark('abstract')[1:]} {abstract}".strip(),
        _cut(row.get("text") or "(nothing)"),
    )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} \N{HORIZONTAL ELLIPSIS}"
