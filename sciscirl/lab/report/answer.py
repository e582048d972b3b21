"""Did training help? Ways to train against their start, the best baseline and the ceiling, on the same papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import polars as pl

from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.compare import (
    CompareConfig,
    Comparison,
    Estimate,
    Pair,
    Seeds,
    compare_predictions,
    list_asked,
    list_unlike,
)
from sciscirl.lab.report.figures import plot_estimates
from sciscirl.lab.report.layout import (
    ABSENT,
    PAIRS_HEAD,
    Picture,
    Section,
    Table,
    show,
    show_estimate,
    show_p,
    show_pairs,
)
from sciscirl.lab.report.runs import Repeated, Run, find_papers, find_repeated, hash_release, judge_baselines
from sciscirl.metrics.metrics import COMPARED, FEWEST, measure_predictions
from sciscirl.metrics.predictions import split_by_label
from sciscirl.runs.lineage import render_start
from sciscirl.task.papers import open_release

#: The metric that decides.
BEST: Final = "macro_f1"
_FORM: Final = 0.5  # where more answers were invalid at the start, learning the form alone looks like a success
_MOST_WAYS: Final = 5  # of more, not every pair is shown


@dataclass
class Group:
    """Runs and baselines that were judged by the same papers."""

    ways: list[Repeated] = field(default_factory=list)
    baselines: dict[str, pl.DataFrame] = field(default_factory=dict)
    ceiling: Mapping[str, float] = field(default_factory=dict)


class Against(NamedTuple):
    """A way to train minus another model on the same papers."""

    name: str
    score: float
    pair: Pair

    @property
    def gain(self) -> Estimate:
        """How much better the way to train is."""
        return self.pair.differences[BEST]


class Verdict(NamedTuple):
    """What training did to one way, against its start and the best baseline; None where there is none."""

    score: Estimate
    start: Against | None
    baseline: Against | None
    line: str


def group_runs(runs: Sequence[Run], release: Path | None) -> list[Group]:
    """Put runs together that were judged by the same papers once, with the baselines on these papers."""
    groups: dict[str, Group] = {}
    for way in find_repeated(runs):
        by_papers: dict[str, dict[int, Run]] = {}
        for seed, run in way.runs.items():
            if papers := find_papers(run):
                by_papers.setdefault(papers, {})[seed] = run
        for papers, some in by_papers.items():
            groups.setdefault(papers, Group()).ways.append(Repeated(name=way.name, runs=some))
    for run in runs:
        if run.kind == "baseline" and run.last and run.last.predictions is not None and (papers := find_papers(run)):
            groups.setdefault(papers, Group()).baselines[run.name] = run.last.predictions
    digest = None if release is None else hash_release(release)
    for group in groups.values():
        run = next((run for way in group.ways for run in way.runs.values()), None)
        if run is None:
            continue
        ceiling = run.facts.get("ceiling")
        if release is not None and run.facts["release"].get("manifest_sha256") == digest:
            group.baselines = group.baselines or judge_baselines(release, run)
            ceiling = ceiling or open_release(release).manifest.get("ceiling")  # older runs do not state it
        is_chosen = run.kind == "evaluation" and "ids_sha256" in run.settings
        has_ceiling = run.target == "disruption" and run.split != "train" and not is_chosen
        group.ceiling = ceiling or {} if has_ceiling else {}
    return list(groups.values())


def _tables(way: Repeated) -> Seeds:
    return {
        seed: run.last.predictions for seed, run in way.runs.items() if run.last and run.last.predictions is not None
    }


def _first(way: Repeated) -> Run:
    return next(iter(way.runs.values()))


def _is_trained(run: Run) -> bool:
    if run.kind == "evaluation":
        return bool(run.weights["step"]) if "step" in run.weights else run.settings.get("checkpoint") is not None
    return run.last is not None and run.last.step > 0


def find_start(way: Repeated, group: Group) -> tuple[str, Seeds] | None:
    """Find what a way to train answered before, at step 0. Else take the untrained model that was asked most alike."""
    own = {seed: table for seed, run in way.runs.items() if (table := _at_step_0(run)) is not None}
    if len(own) == len(way.runs):
        begun = render_start(_first(way).facts.get("begun_from"))
        return ("itself before training" if begun is None else f"where it began, {begun}"), own
    untrained: list[tuple[int, str, pl.DataFrame]] = []
    asked = list_asked(_first(way).settings)
    for other in group.ways:
        run = _first(other)
        table = _at_step_0(run) if not run.facts.get("begun_from") else None
        name = f"{other.name} before training"
        if run.kind == "evaluation" and not _is_trained(run):
            table, name = _tables(other)[next(iter(other.runs))], other.name
        if table is not None:
            untrained.append((len(list_unlike(asked, list_asked(run.settings))), name, table))
    _, name, table = min(untrained, key=lambda one: one[0], default=(0, "", None))
    return None if table is None else (name, dict.fromkeys(way.runs, table))


def _at_step_0(run: Run) -> pl.DataFrame | None:
    first = run.evaluations[0] if run.evaluations else None
    return first.predictions if first is not None and first.step == 0 and run.kind != "evaluation" else None


def judge_training(way: Repeated, group: Group) -> Verdict:
    """Compare a way to train with its start and with the best baseline (PredictionsError: it cannot be)."""
    mine, run = _tables(way), _first(way)
    others: dict[str, Seeds] = {}
    if start := find_start(way, group):
        others[start[0]] = start[1]
    best = max(group.baselines, key=lambda name: measure_predictions(group.baselines[name])[BEST], default="")
    if best:
        others[best] = dict.fromkeys(mine, group.baselines[best])
    found = compare_predictions({way.name: mine, **others}, CompareConfig())
    against = {
        pair.right: Against(pair.right, found.scores[pair.right][BEST].value, pair)
        for pair in found.pairs
        if pair.left == way.name
    }
    score = found.scores[way.name][BEST]
    before, above = against.get(start[0] if start else ""), against.get(best)
    said = [f"{_say_verdict(way.name, found, start, before, above)} {BEST} {show_estimate(score)}"]
    for one, called in ((before, ""), (above, "the best baseline, ")):
        said += (
            [f"{show_estimate(one.gain, signed=True)} against {called}{one.name} ({show(one.score)})"] if one else []
        )
    line = f"{'; '.join(said)}; the same {found.n_papers:,} papers of {run.split}, task {found.target}."
    if len(mine) > 1:
        line += f" Intervals are over {len(mine)} seeds and the papers."
    if BEST in group.ceiling:
        line += f" These labels let a model expect {BEST} {show(group.ceiling[BEST])} at most."
    if found.n_papers < FEWEST:
        line += f" {found.n_papers:,} papers are too few to tell."
    if run.settings.get("hide"):
        line += f" Prompts withheld: {', '.join(run.settings['hide'])}."
    return Verdict(score, before, above, line)


def _say_verdict(
    name: str, found: Comparison, start: tuple[str, Seeds] | None, before: Against | None, above: Against | None
) -> str:
    if start is None or before is None:
        sure = above is not None and (above.gain.low or 0) > 0
        beside = "" if above is None else f" It is {'' if sure else 'not surely '}better than the best baseline."
        return f"What training did to {name} is not known: nothing shows the model before.{beside}"
    invalid = found.scores[before.name]["invalid"].value
    if invalid > _FORM:
        said = f"{invalid:.0%} of the first answers were invalid"
        if (left := found.scores[name]["invalid"].value) > _FORM:
            return f"Not even the form was learned by {name}: {said}, and {left:.0%} of the last."
        right, constant = found.scores[name]["label_match"], _always_one(next(iter(start[1].values())))
        if (right.low or 0) > constant:
            return f"Training helped {name}, beyond the form: {said}."
        return (
            f"Only the form was learned by {name}: {said}, and label_match {show_estimate(right)} is not surely above "
            f"that of always saying one label, {show(constant)}."
        )
    if (before.gain.low or 0) > 0:
        return f"Training helped {name}."
    return f"Training hurt {name}." if (before.gain.high or 0) < 0 else f"Whether training helped {name} is open."


def _always_one(table: pl.DataFrame) -> float:
    """Return the label_match of always saying the most common label of these papers."""
    shares = [one["gold"].value_counts(sort=True)["count"][0] / len(one) for one in split_by_label(table).values()]
    return fmean(shares)


def view_answer(groups: Sequence[Group]) -> Section:
    """Say first whether training helped; then show every way, its start and the baselines on the same papers."""
    lines: list[tuple[bool, float, str]] = []
    texts = [
        "Each row is a way to train, the mean over its seeds, judged at its last evaluation. Gains are differences in "
        f"{BEST} on the same papers. An invalid answer is wrong in every figure. Intervals are 95 %; p is of a "
        "test in which papers change sides. Holm's method adjusts it for the number of pairs. A pair that was asked "
        "otherwise differs in more than its weights. Papers that chose a checkpoint flatter it: trust test first."
    ]
    tables: list[Table] = []
    pictures: list[Picture] = []
    for group in groups:
        if not group.ways and len(group.baselines) < 2:
            continue  # a baseline alone says nothing
        ways = {way.name: _tables(way) for way in group.ways}
        try:
            verdicts = {way.name: judge_training(way, group) for way in group.ways if _is_trained(_first(way))}
            baselines = {name: table for name, table in group.baselines.items() if name not in ways}
            reference = next(iter(ways)) if len(ways) > _MOST_WAYS else None
            asked = {way.name: list_asked(_first(way).settings) for way in group.ways}
            models = ways or baselines
            config = CompareConfig(reference=reference)
            found = compare_predictions(models, config, asked, beside=baselines if ways else {})
        except PredictionsError as error:
            texts.append(f"{', '.join(ways)} cannot be compared: {error}")
            continue
        split = _first(group.ways[0]).split if ways else "test"
        on = f"{found.n_papers:,} papers of {split}, task {found.target}"
        lines += [(split != "test", -one.score.value, one.line) for one in verdicts.values()]
        if ways:
            tables.append(Table(f"Models, {on}", _HEAD, [_show_way(way, found, verdicts) for way in group.ways]))
        if baselines:
            rows = [[name, *(show_estimate(found.scores[name][one]) for one in COMPARED)] for name in baselines]
            tables.append(
                Table(f"Baselines without a language model, {on}", ["", *COMPARED], rows, is_folded=bool(ways))
            )
        if ways and found.pairs:
            tables.append(Table(f"Models against each other, {on}", PAIRS_HEAD, show_pairs(found), is_folded=True))
        if found.n_papers >= FEWEST:
            pictures.append(_draw_scores(found, group.ceiling, on))
    none = (
        "Whether training helped is not known: no trained model here was asked once about every held-out paper. "
        "Ask it: sciscirl evaluate --run RUN --release RELEASE --out FOLDER. Then report that FOLDER, too."
    )
    headline = [line for *_, line in sorted(lines)] or [none]
    return Section("answer", "Did training help?", " ".join(texts), tables, pictures, headline=headline)


_HEAD: Final = (
    "", "seed", *COMPARED, "invalid", "gain over the start", "p", "gain over the best baseline", "withheld",
)  # fmt: skip


def _show_way(way: Repeated, found: Comparison, verdicts: Mapping[str, Verdict]) -> list[str]:
    scores, verdict = found.scores[way.name], verdicts.get(way.name)
    before, above = (verdict.start, verdict.baseline) if verdict else (None, None)
    p = before.pair.p[BEST] if before else None
    return [
        way.name,
        ", ".join(map(str, way.runs)),
        *(show_estimate(scores[name]) for name in (*COMPARED, "invalid")),
        show_estimate(before.gain, signed=True) if before else ABSENT,
        ABSENT if p is None else show_p(p),
        show_estimate(above.gain, signed=True) if above else ABSENT,
        ", ".join(_first(way).settings.get("hide") or ()) or ABSENT,
    ]


def _draw_scores(found: Comparison, ceiling: Mapping[str, float], on: str) -> Picture:
    shown = {"label_match": ceiling.get("accuracy"), BEST: ceiling.get(BEST)}
    png = plot_estimates(
        {metric: {name: scores[metric] for name, scores in found.scores.items()} for metric in shown},
        seeds={metric: {name: one[metric] for name, one in found.by_seed.items()} for metric in shown},
        lines={metric: {"ceiling": value} for metric, value in shown.items() if value is not None},
    )
    said = "; ".join(f"{name}: {BEST} {show_estimate(scores[BEST])}" for name, scores in found.scores.items())
    return Picture(png, f"Scores with intervals, {on}. {said}.")
