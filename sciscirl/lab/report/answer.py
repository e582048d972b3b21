"""Did training help? Ways to train against their start, the best baseline and the ceiling, on the same papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    align,
    compare_predictions,
    count_alike,
    count_answers,
    list_asked,
    list_unlike,
)
from sciscirl.lab.analysis.seen import Judged, list_later, list_seen, mark_later
from sciscirl.lab.evaluation.bootstrap import Cells, measure_cells
from sciscirl.lab.evaluation.results import say_judged
from sciscirl.lab.report import own_metrics
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
from sciscirl.lab.report.runs import RecordedRun, Repeated, find_papers, find_repeated, hash_release, judge_baselines
from sciscirl.metrics.metrics import COMPARED, FEWEST, measure_predictions
from sciscirl.metrics.predictions import find_target
from sciscirl.runs.lineage import render_start
from sciscirl.task.predictions import column_ends
from sciscirl.task.release import open_release

#: The metric that decides.
BEST: Final = "macro_f1"
#: The metric in which no answer that ignores the paper can be expected to beat the best constant one.
KNOWS: Final = "label_match"
_FORM: Final = 0.5  # where more answers were invalid at the start, learning the form alone looks like a success
_MOST_WAYS: Final = 5  # of more, not every pair is shown


@dataclass
class Group:
    """Runs and baselines that were judged by the same papers."""

    ways: list[Repeated] = field(default_factory=list)
    baselines: dict[str, Judged] = field(default_factory=dict[str, Judged])
    ceiling: Mapping[str, float] = field(default_factory=dict)
    judged: str = ""


class Against(NamedTuple):
    """A way to train minus another model on the same papers."""

    name: str
    score: float
    pair: Pair

    @property
    def gain(self) -> Estimate:
        """How much better the way to train is."""
        return self.pair.differences[BEST]


class Start(NamedTuple):
    """What a model answered before training, by seed, and the run that says how it was asked."""

    name: str
    tables: Seeds
    run: RecordedRun


class Verdict(NamedTuple):
    """What training did to one way, against its start and the best baseline; None where there is none."""

    score: Estimate
    start: Against | None
    baseline: Against | None
    line: str


def group_runs(runs: Sequence[RecordedRun], release: Path | None) -> list[Group]:
    """Put runs together that were judged by the same papers once, with the baselines on these papers."""
    groups: dict[str, Group] = {}
    for way in find_repeated(runs):
        by_papers: dict[str, dict[int, RecordedRun]] = {}
        for seed, run in way.runs.items():
            if papers := find_papers(run):
                by_papers.setdefault(papers, {})[seed] = run
        for papers, some in by_papers.items():
            groups.setdefault(papers, Group()).ways.append(Repeated(name=way.name, runs=some))
    for run in runs:
        if run.kind == "baseline" and run.last and run.last.predictions is not None and (papers := find_papers(run)):
            groups.setdefault(papers, Group()).baselines[run.name] = Judged(run.last.predictions, run.settings)
    digest = None if release is None else hash_release(release)
    for group in groups.values():
        run = next((run for way in group.ways for run in way.runs.values()), None)
        if run is None:
            continue
        ceiling = run.facts.get("ceiling")
        if release is not None and run.facts["release"].get("manifest_sha256") == digest:
            group.baselines = group.baselines or judge_baselines(release, run)
            group.judged = say_judged(release)
            ceiling = ceiling or open_release(release).manifest.get("ceiling")  # older runs do not state it
        is_chosen = run.kind == "evaluation" and "ids_sha256" in run.settings
        has_ceiling = run.target == "disruption" and run.split != "train" and not is_chosen
        group.ceiling = ceiling or {} if has_ceiling else {}
    return list(groups.values())


def _tables(way: Repeated) -> Seeds:
    return {
        seed: run.last.predictions for seed, run in way.runs.items() if run.last and run.last.predictions is not None
    }


def _first(way: Repeated) -> RecordedRun:
    return next(iter(way.runs.values()))


def _is_trained(run: RecordedRun) -> bool:
    if run.kind == "evaluation":
        return bool(run.weights["step"]) if "step" in run.weights else run.settings.get("checkpoint") is not None
    return run.last is not None and run.last.step > 0


def find_start(way: Repeated, group: Group) -> Start | None:
    """Find what a way to train answered before, at step 0. Else take the untrained model that was asked most alike."""
    own = {seed: table for seed, run in way.runs.items() if (table := _at_step_0(run)) is not None}
    if len(own) == len(way.runs):
        begun = render_start(_first(way).facts.get("begun_from"))
        return Start("itself before training" if begun is None else f"where it began, {begun}", own, _first(way))
    untrained: list[tuple[int, Start]] = []
    asked = list_asked(_first(way).settings)
    for other in group.ways:
        run = _first(other)
        table = _at_step_0(run) if not run.facts.get("begun_from") else None
        name = f"{other.name} before training"
        if run.kind == "evaluation" and not _is_trained(run):
            table, name = _tables(other)[next(iter(other.runs))], other.name
        if table is not None:
            start = Start(name, dict.fromkeys(way.runs, table), run)
            untrained.append((len(list_unlike(asked, list_asked(run.settings))), start))
    return min(untrained, key=lambda one: one[0])[1] if untrained else None


def _at_step_0(run: RecordedRun) -> pl.DataFrame | None:
    first = run.evaluations[0] if run.evaluations else None
    return first.predictions if first is not None and first.step == 0 and run.kind != "evaluation" else None


def judge_training(way: Repeated, group: Group) -> Verdict:
    """Compare a way to train with its start, the best constant answer and the best baseline.

    Training helped if all of this holds; else the verdict says what is missing:

    - The interval of the gain in BEST over papers, draws and seeds lies above 0, and p is below 1 - level.
    - So does that of KNOWS minus the best constant answer to these papers: guesses gain macro-F1, too.
    - Both sides were asked greedily, or several times for each paper. Else another draw may say otherwise.
    - There are at least FEWEST papers.

    Raises:
        PredictionsError: the tables cannot be compared.
    """
    mine, run = _tables(way), _first(way)
    start, constant = find_start(way, group), _answer_always(next(iter(mine.values())))
    fair = {  # those that knew no more than the model
        name: one.predictions
        for name, one in group.baselines.items()
        if run.shown_later or not list_later(list_seen(one.settings))
    }
    best = max(fair, key=lambda name: measure_predictions(fair[name])[BEST], default="")
    others = {_CONSTANT: dict.fromkeys(mine, constant)}
    others |= {start.name: start.tables} if start else {}
    others |= {best: dict.fromkeys(mine, fair[best])} if best else {}
    compared = compare_predictions({way.name: mine, **others}, CompareConfig(reference=way.name))
    against = {
        pair.left: Against(pair.left, compared.scores[pair.left][BEST].value, _turn(pair)) for pair in compared.pairs
    }
    before, above = against.get(start.name) if start else None, against.get(best)
    score = compared.scores[way.name][BEST]
    verdict = _say_verdict(way, compared, start, against)
    said = [f"{verdict} {BEST} {show_estimate(score)}"]
    for one, called in ((before, ""), (above, "the best baseline, ")):
        said += (
            [f"{show_estimate(one.gain, signed=True)} against {called}{one.name} ({show(one.score)})"] if one else []
        )
    line = f"{'; '.join(said)}; the same {compared.n_papers:,} papers of {run.split}, task {compared.target}."
    if before and start:
        line += _say_form(compared, before, _gain_by_form(mine, start.tables))
    if len(mine) > 1:
        line += f" Intervals are over {len(mine)} seeds and the papers."
    else:
        line += " One seed: this is about these weights, not about the way to train."
    if BEST in group.ceiling:
        line += f" These labels let a model expect {BEST} {show(group.ceiling[BEST])} at most."
    if compared.n_papers < FEWEST:
        line += f" {compared.n_papers:,} papers are too few to tell."
    if run.withheld:
        line += f" Prompts withheld: {', '.join(run.withheld)}."
    if run.shown_context:
        line += f" Prompts showed what the papers built on: {', '.join(run.shown_context)}."
    if run.shown_later:
        line += f" Prompts showed what came after publication: {', '.join(run.shown_later)}."
    return Verdict(score, before, above, line)


#: What the best constant answer is called.
_CONSTANT: Final = "always the same label"


def _answer_always(table: pl.DataFrame) -> pl.DataFrame:
    """Return the best constant answer to these papers: the most common label of each task."""
    papers = table.unique("openalex_id", keep="first", maintain_order=True)
    most = {
        f"label{end}": papers[f"gold{end}"].value_counts().sort(["count", f"gold{end}"], descending=[True, False])[0, 0]
        for end in column_ends(find_target(table)).values()
    }
    kept = [name for name in papers.columns if name in {"openalex_id", "task"} or name.startswith("gold")]
    return papers.select(kept).with_columns(
        **{name: pl.lit(label) for name, label in most.items()},
        confidence=pl.lit(1.0),
        is_json=pl.lit(value=True),
        is_valid=pl.lit(value=True),
    )


def _turn(pair: Pair) -> Pair:
    """Return right minus left of a pair."""

    def turn(one: Estimate) -> Estimate:
        low, high = (None if end is None else -end for end in (one.high, one.low))
        return Estimate(-one.value, low, high)

    differences = {metric: turn(one) for metric, one in pair.differences.items()}
    return replace(pair, left=pair.right, right=pair.left, differences=differences)


def _gain_by_form(last: Seeds, first: Seeds) -> float:
    """Return how much of a gain in BEST, the mean over seeds, is due to which answers are valid.

    The rest is what is left of it if each answer counts as invalid where that of the other side is.
    """
    gains: list[float] = []
    for seed, table in last.items():
        one, other = count_alike(*align({"last": table, "first": first[seed]}).values())
        of_labels = _score(_void(one, other)) - _score(_void(other, one))
        gains.append(_score(one) - _score(other) - of_labels)
    return fmean(gains)


def _score(counted: Mapping[str, Cells]) -> float:
    summed = {name: one._replace(counts=one.counts.sum(axis=0, keepdims=True)) for name, one in counted.items()}
    return float(measure_cells(summed)[BEST][0])


def _void(counted: Mapping[str, Cells], others: Mapping[str, Cells]) -> dict[str, Cells]:
    """Take answers to a paper as invalid as often as those of the other side are."""
    found: dict[str, Cells] = {}
    for name, one in counted.items():
        size = len(one.labels)
        counts, of_others = (each.counts.reshape(-1, size, size + 1) for each in (one, others[name]))
        n_valid, n_asked = (each.sum(axis=(1, 2))[:, None, None] for each in (of_others[:, :, :-1], of_others))
        kept = counts * n_valid
        kept[:, :, -1] += (counts * n_asked - kept).sum(axis=2)
        found[name] = one._replace(counts=kept.reshape(len(kept), -1))
    return found


def _say_form(compared: Comparison, before: Against, by_form: float) -> str:
    was, left = (compared.scores[name]["invalid"].value for name in (before.name, before.pair.left))
    if was == left and not round(by_form, 3):
        return ""
    of_labels = round(before.gain.value - by_form, 3) + 0.0  # no "-0.000"
    what = "gain over" if before.gain.value >= 0 else "loss against"
    return (
        f" Of the {what} its start, {by_form:+.3f} is {'fewer' if left <= was else 'more'} invalid answers "
        f"({was:.0%}, then {left:.0%}), and {of_labels:+.3f} other labels."
    )


def _is_drawn_once(run: RecordedRun, tables: Seeds) -> bool:
    """Whether each paper has one answer that was sampled, so that another draw may say otherwise."""
    asked = list_asked(run.settings)
    is_settled = asked.get("answers") == "logprobs" or asked.get("temperature") == 0
    return not is_settled and any(count_answers(table) == 1 for table in tables.values())


def _say_verdict(way: Repeated, compared: Comparison, start: Start | None, against: Mapping[str, Against]) -> str:
    name, run, constant = way.name, _first(way), against[_CONSTANT]
    is_one_draw = _is_drawn_once(run, _tables(way)) or (start is not None and _is_drawn_once(start.run, start.tables))
    is_known = (constant.pair.differences[KNOWS].low or 0) > 0 and compared.n_papers >= FEWEST
    if start is None:
        above = [one for other, one in against.items() if other != _CONSTANT]
        sure = all((one.gain.low or 0) > 0 for one in above) and is_known and not is_one_draw
        beside = f" It is {'' if sure else 'not surely '}better than the best baseline." if above else ""
        return f"What training did to {name} is not known: nothing shows the model before.{beside}"
    open_ = f"Whether training helped {name} is open"
    if is_one_draw:
        return (
            f"{open_}: a paper has one answer, drawn by chance, and another draw may say otherwise. Ask the first and "
            "the last weights greedily (sciscirl evaluate --run RUN --step STEP --temperature 0), or more than once "
            "(--group-size 8)."
        )
    before = against[start.name]
    was, left = (compared.scores[one]["invalid"].value for one in (before.name, name))
    form = f"{was:.0%} of the first answers were invalid"
    if was > _FORM and left > _FORM:
        return f"Not even the form was learned by {name}: {form}, and {left:.0%} of the last."
    p, gain = before.pair.p[BEST], before.gain
    is_sure = p is not None and p <= 1 - compared.config.level and compared.n_papers >= FEWEST
    if is_sure and (gain.high or 0) < 0:
        return f"Training hurt {name}."
    is_gain = is_sure and (gain.low or 0) > 0
    if is_gain and is_known:
        return f"Training helped {name}, beyond the form: {form}." if was > _FORM else f"Training helped {name}."
    right, bar = compared.scores[name][KNOWS], compared.scores[_CONSTANT][KNOWS].value
    unknown = f"{KNOWS} {show_estimate(right)} is not surely above that of {_CONSTANT}, {show(bar)}."
    if was > _FORM and not is_known:
        return f"Only the form was learned by {name}: {form}, and {unknown}"
    return f"{open_}: it gained {BEST}, but {unknown}" if is_gain else f"{open_}."


def view_answer(groups: Sequence[Group]) -> Section:
    """Say first whether training helped; then show every way, its start and the baselines on the same papers."""
    lines: list[tuple[bool, float, str]] = []
    texts = [
        "Each row is a way to train, the mean over its seeds, judged at its last evaluation. Gains are differences in "
        f"{BEST} on the same papers. An invalid answer is wrong in every figure. Intervals are 95 %, over papers with "
        "all their answers, and over seeds where there are several. p is of a test in which papers change sides. "
        "Holm's method adjusts it for the number of pairs. Training helped if the interval of the gain is above 0, p "
        f"at most 0.05, and {KNOWS} surely above that of the best constant answer. A pair that was asked otherwise "
        "differs in more than its weights. Papers that chose a checkpoint flatter it: trust test first."
    ]
    tables: list[Table] = []
    pictures: list[Picture] = []
    for group in groups:
        if not group.ways and len(group.baselines) < 2:
            continue  # a baseline alone says nothing
        ways = {way.name: _tables(way) for way in group.ways}
        try:
            verdicts = {way.name: judge_training(way, group) for way in group.ways if _is_trained(_first(way))}
            judged = {name: one for name, one in group.baselines.items() if name not in ways}
            baselines = {name: one.predictions for name, one in judged.items()}
            reference = next(iter(ways)) if len(ways) > _MOST_WAYS else None
            asked = {way.name: list_asked(_first(way).settings) for way in group.ways}
            asked |= {name: list_asked(one.settings) for name, one in judged.items()}
            models = ways or baselines
            config = CompareConfig(reference=reference)
            compared = compare_predictions(models, config, asked, beside=baselines if ways else {})
        except PredictionsError as error:
            texts.append(f"{', '.join(ways)} cannot be compared: {error}")
            continue
        if group.judged and group.judged not in texts:
            texts.append(group.judged)
        split = _first(group.ways[0]).split if ways else "test"
        on = f"{compared.n_papers:,} papers of {split}, task {compared.target}"
        lines += [(split != "test", -one.score.value, one.line) for one in verdicts.values()]
        if ways:
            tables.append(Table(f"Models, {on}", _HEAD, [_show_way(way, compared, verdicts) for way in group.ways]))
        if baselines:
            rows = [
                [name, *(show_estimate(compared.scores[name][one]) for one in COMPARED), compared.saw[name]]
                for name in baselines
            ]
            head = ["", *COMPARED, "saw"]
            tables.append(Table(f"Baselines without a language model, {on}", head, rows, is_folded=bool(ways)))
        tables += own_metrics.make_table(compared, on)
        if ways and compared.pairs:
            tables.append(Table(f"Models against each other, {on}", PAIRS_HEAD, show_pairs(compared), is_folded=True))
        if compared.n_papers >= FEWEST:
            pictures.append(_draw_scores(compared, group.ceiling, on))
    none = (
        "Whether training helped is not known: no trained model here was asked once about every held-out paper. "
        "Ask it: sciscirl evaluate --run RUN --release RELEASE --out FOLDER. Then report that FOLDER, too."
    )
    headline = [line for *_, line in sorted(lines)] or [none]
    return Section("answer", "Did training help?", " ".join(texts), tables, pictures, headline=headline)


_HEAD: Final = (
    "", "seed", *COMPARED, "invalid", "gain over the start", "p", "gain over the best baseline", "withheld",
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
        ", ".join(_first(way).withheld) or ABSENT,
    ]


def _draw_scores(compared: Comparison, ceiling: Mapping[str, float], on: str) -> Picture:
    shown = {"label_match": ceiling.get("accuracy"), BEST: ceiling.get(BEST)}
    marked = mark_later(compared.scores, compared.saw)
    png = plot_estimates(
        {metric: {marked[name]: scores[metric] for name, scores in compared.scores.items()} for metric in shown},
        seeds={metric: {marked[name]: one[metric] for name, one in compared.by_seed.items()} for metric in shown},
        lines={metric: {"ceiling": value} for metric, value in shown.items() if value is not None},
    )
    said = "; ".join(f"{marked[name]}: {BEST} {show_estimate(one[BEST])}" for name, one in compared.scores.items())
    return Picture(png, f"Scores with intervals, {on}. {said}.")
