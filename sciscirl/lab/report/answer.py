"""Did training help? Ways to train against their start, the best baseline and the ceiling, on the same papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from sciscidata.terminal.shares import percent
from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.baselines import BASELINES
from sciscirl.lab.analysis.compare import CompareConfig, Comparison, compare_predictions, list_asked
from sciscirl.lab.analysis.seen import Judged, mark_later
from sciscirl.lab.evaluation.results import say_judged
from sciscirl.lab.report import own_metrics
from sciscirl.lab.report.figures import plot_estimates
from sciscirl.lab.report.layout import (
    ABSENT,
    PAIRS_HEAD,
    Picture,
    Section,
    Table,
    show_estimate,
    show_p,
    show_pairs,
    show_title,
)
from sciscirl.lab.report.runs import RecordedRun, Repeated, find_papers, find_repeated, hash_release, judge_baselines
from sciscirl.lab.report.verdict import (
    BEST,
    KNOWS,
    Group,
    Verdict,
    first_of,
    has_ceiling,
    is_trained,
    judge_training,
    tables_of,
)
from sciscirl.metrics.metrics import COMPARED, FEWEST
from sciscirl.metrics.predictions import find_target
from sciscirl.task.predictions import column_ends
from sciscirl.task.release import open_release

#: What the ceiling of KNOWS is called in a manifest.
KNOWS_CEILING: Final = "accuracy"
_MOST_WAYS: Final = 5  # of more, not every pair is shown


def group_runs(runs: Sequence[RecordedRun], release: Path | None) -> list[Group]:
    """Put runs together that were judged by the same papers once, with the baselines on these papers."""
    groups: dict[str, Group] = {}
    of_change = next((find_papers(run) for run in runs if run.role == "trained"), None)
    for way in find_repeated(runs):
        by_papers: dict[str, dict[int, RecordedRun]] = {}
        for seed, run in way.runs.items():
            if papers := of_change if run.role else find_papers(run):
                by_papers.setdefault(papers, {})[seed] = run
        for papers, some in by_papers.items():
            groups.setdefault(papers, Group()).ways.append(Repeated(name=way.name, runs=some))
    for run in runs:
        if run.kind == "baseline" and run.last and run.last.predictions is not None and (papers := find_papers(run)):
            groups.setdefault(papers, Group()).baselines[run.name] = Judged(run.last.predictions, run.settings)
    digest = None if release is None else hash_release(release)
    of_papers = {find_papers(run): run for run in reversed(runs)}
    for papers, group in groups.items():
        run = next((run for way in group.ways for run in way.runs.values()), of_papers.get(papers))
        if run is None:
            continue
        group.baselines = {name: group.baselines[name] for name in sorted(group.baselines, key=_order_of)}
        ceiling = run.facts.get("ceiling")
        if release is not None and run.facts["release"].get("manifest_sha256") == digest:
            group.baselines = group.baselines or (judge_baselines(release, run) if group.ways else {})
            group.judged = say_judged(release)
            ceiling = ceiling or open_release(release).manifest.get("ceiling")  # older runs do not state it
        group.ceiling = ceiling or {} if has_ceiling(run) else {}
    return list(groups.values())


def _order_of(name: str) -> int:
    """Say where a baseline stands: from a guess to what knows most."""
    own = name.rpartition("/")[2]
    return [*BASELINES].index(own) if own in BASELINES else len(BASELINES)


_OF_TRAINING: Final = (
    "Each row is a recipe of training, the mean over its seeds, judged at its last evaluation. Gains are differences "
    f"in {show_title(BEST)} on the same papers. p comes from a test in which papers change sides; Holm's method "
    "adjusts it for the number of pairs. Training helped if the interval of the gain is above 0, p is at most 0.05, "
    f"and {show_title(KNOWS)} is surely above that of the best constant answer. A pair that was asked otherwise "
    "differs in more than its weights. Papers that chose a checkpoint flatter it: trust test first."
)
_OF_ALL: Final = (
    "An invalid answer is wrong in every figure. Intervals are 95 %, over papers with all their answers, and over "
    "seeds where there are several."
)


def view_answer(groups: Sequence[Group]) -> Section:
    """Say first whether training helped; then show every way, its start and the baselines on the same papers."""
    lines: list[tuple[bool, float, str]] = []
    is_training = any(is_trained(first_of(way)) for group in groups for way in group.ways)
    texts = [*([_OF_TRAINING] if is_training else []), _OF_ALL]
    tables: list[Table] = []
    pictures: list[Picture] = []
    for group in groups:
        if not group.ways and len(group.baselines) < 2:
            continue  # a baseline alone says nothing
        ways = {way.name: tables_of(way) for way in group.ways}
        try:
            verdicts = {way.name: judge_training(way, group) for way in group.ways if is_trained(first_of(way))}
            judged = {name: one for name, one in group.baselines.items() if name not in ways}
            baselines = {name: one.predictions for name, one in judged.items()}
            reference = next(iter(ways)) if len(ways) > _MOST_WAYS else None
            asked = {way.name: list_asked(first_of(way).settings) for way in group.ways}
            asked |= {name: list_asked(one.settings) for name, one in judged.items()}
            models = ways or baselines
            config = CompareConfig(reference=reference)
            compared = compare_predictions(models, config, asked, beside=baselines if ways else {})
        except PredictionsError as error:
            texts.append(f"{', '.join(ways)} cannot be compared: {error}")
            continue
        split = first_of(group.ways[0]).split if ways else "test"
        guess = _guess_of(next(iter((baselines or next(iter(ways.values()))).values())))
        if (limits := _say_limits(guess, group.ceiling)) not in texts:
            texts.append(limits)
        if group.judged and group.judged not in texts:
            texts.append(group.judged)
        on = f"{compared.n_papers:,} papers{f' of {split}' if split else ''}, task {compared.target}"
        lines += [(split not in {"test", ""}, -one.score.value, one.line) for one in verdicts.values()]
        if ways:
            tables.append(Table(f"Models, {on}", _HEAD, [_show_way(way, compared, verdicts) for way in group.ways]))
        if baselines:
            rows = [
                [name, *(show_estimate(compared.scores[name][one]) for one in COMPARED), compared.saw[name]]
                for name in baselines
            ]
            head = ["", *map(show_title, COMPARED), "knew"]
            tables.append(Table(f"Baselines without a language model, {on}", head, rows, is_folded=bool(ways)))
        tables += own_metrics.make_table(compared, on)
        changes = {name: one.changes for name, one in verdicts.items() if one.changes}
        if changes:
            names = [*dict.fromkeys(what for one in changes.values() for what in one)]
            rows = [[name, *(one.get(what, ABSENT) for what in names)] for name, one in changes.items()]
            tables.append(Table(f"What training changed, trained minus start, {on}", ["", *names], rows))
        if ways and compared.pairs:
            tables.append(Table(f"Models against each other, {on}", PAIRS_HEAD, show_pairs(compared), is_folded=True))
        if compared.n_papers >= FEWEST:
            pictures.append(_draw_scores(compared, group.ceiling, guess, on))
    none = (
        "No trained model was given, so this page cannot say whether training helps. To add one: sciscirl evaluate "
        "--run RUN --release RELEASE --out FOLDER, then report that FOLDER as well. For weights from elsewhere, "
        "evaluate both, then sciscirl report --start FOLDER --trained FOLDER."
    )
    if is_training and not lines:
        none = (
            "Whether training helped is not known: no trained model here answered every held-out paper equally often. "
            "To ask it: sciscirl evaluate --run RUN --release RELEASE --out FOLDER, then report that FOLDER as well."
        )
    headline = [line for *_, line in sorted(lines)] or [none]
    title = "Did training help?" if is_training else "How well do they judge?"
    return Section("answer", title, " ".join(texts), tables, pictures, headline=headline)


def _guess_of(predictions: pl.DataFrame) -> dict[str, float]:
    """Return what a guess gets on these papers: always the commonest label; in macro-F1, any label by chance."""
    if (end := [*column_ends(find_target(predictions)).values()])[1:]:
        return {}  # two labels at once: the guess of one is not that of both
    counts = predictions[f"gold{end[0]}"].value_counts()["count"]
    return {KNOWS: int(counts.max() or 0) / len(predictions), BEST: 1 / len(counts)}  # pyright: ignore[reportArgumentType]


def _say_limits(guess: Mapping[str, float], ceiling: Mapping[str, float]) -> str:
    """Say what a guess gets, and what no model can be expected to exceed."""
    told = [f"Always the commonest label gets {percent(guess[KNOWS], 1)} of these papers right."] if guess else []
    if KNOWS_CEILING in ceiling:
        top = 100 * ceiling[KNOWS_CEILING]
        told += [f"No model can be expected to exceed {top:.1f} %: the labels are that unsure."]
    return " ".join(told)


_HEAD: Final = (
    "", "seed", *map(show_title, COMPARED), "invalid", "gain over the start", "p", "gain over the best baseline",
    "withheld",
)  # fmt: skip


def _show_way(way: Repeated, compared: Comparison, verdicts: Mapping[str, Verdict]) -> list[str]:
    scores, verdict = compared.scores[way.name], verdicts.get(way.name)
    before, above = (verdict.start, verdict.baseline) if verdict else (None, None)
    p = before.pair.p[BEST] if before else None
    return [
        way.name,
        ", ".join(map(str, way.runs)),
        *(show_estimate(scores[name]) for name in (*COMPARED, "invalid")),
        show_estimate(before.gain, signed=True) if before else ABSENT,
        ABSENT if p is None else show_p(p),
        show_estimate(above.gain, signed=True) if above else ABSENT,
        ", ".join(first_of(way).withheld) or ABSENT,
    ]


def _draw_scores(compared: Comparison, ceiling: Mapping[str, float], guess: Mapping[str, float], on: str) -> Picture:
    tops = {KNOWS: ceiling.get(KNOWS_CEILING), BEST: ceiling.get(BEST)}
    name_guess = {KNOWS: "commonest label", BEST: "labels by chance"}
    named = {metric: {name_guess[metric]: guess.get(metric), "ceiling": top} for metric, top in tops.items()}
    lines = {
        show_title(metric): known
        for metric, values in named.items()
        if (known := {name: value for name, value in values.items() if value is not None})
    }
    marked = mark_later(compared.scores, compared.saw)
    png = plot_estimates(
        {show_title(one): {marked[name]: scores[one] for name, scores in compared.scores.items()} for one in tops},
        seeds={show_title(one): {marked[name]: each[one] for name, each in compared.by_seed.items()} for one in tops},
        lines=lines,
    )
    said = "; ".join(
        f"{marked[name]}: {show_title(BEST)} {show_estimate(one[BEST])}" for name, one in compared.scores.items()
    )
    return Picture(png, f"Scores with intervals, {on}. {said}.")
