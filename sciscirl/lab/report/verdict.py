"""Did training help? One recipe against its start, the best baseline and one label for all, on the same papers.

``judge_training`` makes the headline of ``sciscirl report`` and of ``sciscirl compare --start --trained``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple, cast

import numpy as np
import polars as pl

from sciscidata.storage.sums import read_json
from sciscidata.terminal.shares import percent
from sciscirl.lab.analysis.compare import (
    POWER,
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
from sciscirl.lab.analysis.seen import Judged, list_later, list_seen
from sciscirl.lab.evaluation.bootstrap import Cells, measure_cells
from sciscirl.lab.report.layout import show, show_estimate, show_p, show_title
from sciscirl.lab.report.runs import RecordedRun, Repeated
from sciscirl.metrics.metrics import COMPARED, FEWEST, measure_predictions
from sciscirl.metrics.predictions import find_target
from sciscirl.runs.lineage import render_start
from sciscirl.runs.record import RUN_FILE
from sciscirl.task.papers import list_labels
from sciscirl.task.predictions import column_ends

#: The metric that decides.
BEST: Final = "macro_f1"
#: The metric in which no answer that ignores the paper can be expected to beat the best constant one.
KNOWS: Final = "label_match"
_FORM: Final = 0.5  # where more answers were invalid at the start, learning the form alone looks like a success


_DEFAULTS: Final = CompareConfig()


@dataclass
class Group:
    """Runs and baselines that were judged by the same papers."""

    ways: list[Repeated] = field(default_factory=list)
    baselines: dict[str, Judged] = field(default_factory=dict[str, Judged])
    ceiling: Mapping[str, float] = field(default_factory=dict)
    judged: str = ""


class Against(NamedTuple):
    """A recipe minus another model on the same papers."""

    name: str
    score: float
    pair: Pair

    @property
    def gain(self) -> Estimate:
        """How much better the recipe is."""
        return self.pair.differences[BEST]


class Start(NamedTuple):
    """What a model answered before training, by seed, and the run that says how it was asked."""

    name: str
    tables: Seeds
    run: RecordedRun
    others: tuple[RecordedRun, ...] = ()  # of further seeds


class Verdict(NamedTuple):
    """What training did to one way, against its start and the best baseline; None where there is none."""

    score: Estimate
    start: Against | None
    baseline: Against | None
    line: str
    changes: Mapping[str, str]  # what training changed, by what it is about; {} without a start


def has_ceiling(run: RecordedRun) -> bool:
    """Whether the ceiling of a release is about these papers."""
    is_chosen = run.kind == "evaluation" and "ids_sha256" in run.settings
    return run.target == "disruption" and run.split != "train" and not is_chosen


def tables_of(way: Repeated) -> Seeds:
    """Return the predictions of the last evaluation of each seed."""
    return {
        seed: run.last.predictions for seed, run in way.runs.items() if run.last and run.last.predictions is not None
    }


def first_of(way: Repeated) -> RecordedRun:
    """Return the first of its runs: they differ in the seed alone."""
    return next(iter(way.runs.values()))


def is_trained(run: RecordedRun) -> bool:
    """Whether it is of a model after training."""
    if run.role is not None:
        return run.role == "trained"
    if run.kind == "evaluation":
        return bool(run.weights["step"]) if "step" in run.weights else run.settings.get("checkpoint") is not None
    return run.last is not None and run.last.step > 0


def find_start(way: Repeated, group: Group) -> Start | None:
    """Find what a recipe answered before, at step 0. Else take its base model, asked most alike."""
    if first_of(way).role == "trained":
        named = next(other for other in group.ways if first_of(other).role == "start")
        tables = tables_of(named)
        same = tables if len(tables) > 1 else dict.fromkeys(way.runs, next(iter(tables.values())))
        first, *others = named.runs.values()
        return Start(named.name, same, first, tuple(others))
    own = {seed: table for seed, run in way.runs.items() if (table := _at_step_0(run)) is not None}
    if len(own) == len(way.runs):
        begun = render_start(first_of(way).facts.get("begun_from"))
        return Start("itself before training" if begun is None else f"where it began, {begun}", own, first_of(way))
    untrained: list[tuple[int, Start]] = []
    settings = first_of(way).settings
    asked = list_asked(settings)
    for other in group.ways:
        run = first_of(other)
        table = _at_step_0(run) if not run.facts.get("begun_from") else None
        name = f"{other.name} before training"
        if run.kind == "evaluation" and not is_trained(run):
            table, name = tables_of(other)[next(iter(other.runs))], other.name
        if table is not None and run.settings.get("model") == settings.get("model"):
            start = Start(name, dict.fromkeys(way.runs, table), run)
            untrained.append((len(list_unlike(asked, list_asked(run.settings))), start))
    return min(untrained, key=lambda one: one[0])[1] if untrained else None


def _at_step_0(run: RecordedRun) -> pl.DataFrame | None:
    first = run.evaluations[0] if run.evaluations else None
    return first.predictions if first is not None and first.step == 0 and run.kind != "evaluation" else None


def judge_training(way: Repeated, group: Group, config: CompareConfig = _DEFAULTS) -> Verdict:
    """Compare a recipe with its start, the best constant answer and the best baseline.

    Training helped if all of this holds; else the verdict says what is missing:

    - The interval of the gain in BEST over papers, draws and seeds lies above 0, and p is below 1 - level.
    - So does that of KNOWS minus the best constant answer to these papers: guesses gain macro-F1 as well.
    - Both sides were asked greedily, or several times for each paper. Else another draw may say otherwise.
    - There are at least FEWEST papers.

    Raises:
        PredictionsError: the tables cannot be compared.
    """
    mine, run = tables_of(way), first_of(way)
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
    compared = compare_predictions({way.name: mine, **others}, replace(config, reference=way.name))
    against = {
        pair.left: Against(pair.left, compared.scores[pair.left][BEST].value, _turn(pair)) for pair in compared.pairs
    }
    before, above = against.get(start.name) if start else None, against.get(best)
    score = compared.scores[way.name][BEST]
    verdict = _say_verdict(way, compared, start, against)
    said = [f"{verdict} {show_title(BEST)} {show_estimate(score)}"]
    if before:
        said.append(f"trained minus start {_say_gain(before, before.name)}")
    if above:
        said.append(_say_gain(above, f"the best baseline, {above.name}"))
    of = f" of {run.split}" if run.split else ""
    line = f"{'; '.join(said)}; the same {compared.n_papers:,} papers{of}, task {compared.target}."
    changes: dict[str, str] = {}
    if before and start:
        line += _say_form(compared, before, _gain_by_form(mine, start.tables))
        seen = _find_detectable(compared, before)
        if seen:
            few = f"With so few seeds, no gain in {show_title(BEST)} could"
            told = few if seen > 1 else f"A gain in {show_title(BEST)} below {show(seen)} could not"
            line += f" {told} be seen here with {percent(POWER)} power."
        changes = _list_changes(compared, before, mine, start.tables)
        sides = {before.name: [start.run, *start.others], way.name: [*way.runs.values()]}
        changes["looks at test"] = "; ".join(f"{name} {_say_looks(runs)}" for name, runs in sides.items())
    if len(mine) > 1:
        line += f" Intervals are over {len(mine)} seeds and the papers."
    else:
        line += " One seed: this is about these weights, not about the recipe."
    if changes:
        line += f" Looks at test: {changes['looks at test']}."
    if start and (unlike := list_unlike(list_asked(run.settings), list_asked(start.run.settings))):
        line += f" Start and trained were asked otherwise: {', '.join(unlike)}."
    if start and not all(map(_says_draws, (run, start.run))):
        line += " It is not known whether answers were drawn by chance: if so, other draws may say otherwise."
    if BEST in group.ceiling:
        line += f" These labels let a model expect {show_title(BEST)} {show(group.ceiling[BEST])} at most."
    if compared.n_papers < FEWEST:
        line += f" {compared.n_papers:,} papers are too few to tell."
    if run.withheld:
        line += f" Prompts withheld: {', '.join(run.withheld)}."
    if run.shown_context:
        line += f" Prompts showed what the papers built on: {', '.join(run.shown_context)}."
    if run.shown_later:
        line += f" Prompts showed what came after publication: {', '.join(run.shown_later)}."
    return Verdict(score, before, above, line, changes)


def _say_gain(one: Against, called: str) -> str:
    return f"{show_estimate(one.gain, signed=True)} against {called} ({show(one.score)})"


def _find_detectable(compared: Comparison, before: Against, metric: str = BEST) -> float | None:
    return before.pair.detectable[metric] if compared.n_papers >= FEWEST else None


def _list_changes(compared: Comparison, before: Against, after: Seeds, first: Seeds) -> dict[str, str]:
    """List in words what training changed: scores, shares of labels, labels after prior correction, and the power."""
    was, now = compared.scores[before.name], compared.scores[before.pair.left]
    changes: dict[str, str] = {}
    for metric, one in before.pair.differences.items():
        p = before.pair.p[metric]
        told = f"{show_estimate(one, signed=True)}, {show(was[metric].value)} to {show(now[metric].value)}"
        changes[show_title(metric)] = told if p is None else f"{told}, p {show_p(p)}"
    shares = [_measure_shares(tables) for tables in (first, after)]
    changes["shares said"] = ", ".join(f"{name} {shares[0][name]:.2f} to {shares[1][name]:.2f}" for name in shares[0])
    changes[f"{show_title(KNOWS)}, prior-corrected"] = _say_corrected(compared.config, after, first)
    seen = {metric: _find_detectable(compared, before, metric) for metric in COMPARED}
    told = [f"{show_title(metric)} {show(value) if value <= 1 else 'none'}" for metric, value in seen.items() if value]
    changes[f"least gain that {percent(POWER)} of such tests see"] = ", ".join(told) or "unknown"
    return changes


def _measure_shares(tables: Seeds) -> dict[str, float]:
    measured = [measure_predictions(table) for table in tables.values()]
    names = [name for name in measured[0] if "predicted_share/" in name]
    return {name.replace("predicted_share/", ""): fmean(one[name] for one in measured) for name in names}


def _say_corrected(config: CompareConfig, after: Seeds, first: Seeds) -> str:
    """Say what is left of the change in label_match if neither side prefers a label whatever the paper says."""
    tables = {
        name: {seed: corrected for seed, table in side.items() if (corrected := correct_prior(table)) is not None}
        for name, side in (("after", after), ("first", first))
    }
    if len(tables["after"]) < len(after) or len(tables["first"]) < len(first):
        return "unknown: answers have no probabilities (sciscirl evaluate --answers logprobs)"
    compared = compare_predictions(tables, config=replace(config, reference="first"))
    was, now = (compared.scores[name][KNOWS].value for name in ("first", "after"))
    return f"{show_estimate(compared.pairs[0].differences[KNOWS], signed=True)}, {show(was)} to {show(now)}"


def correct_prior(table: pl.DataFrame) -> pl.DataFrame | None:
    """Choose labels by probability over its mean over these papers; None if a valid answer states no probability.

    An invalid answer stays invalid. Source: Zhou et al. 2023, arXiv:2309.17249.
    """
    words = list_labels(find_target(table))
    is_valid = table["is_valid"].to_numpy()
    columns = {column: f"forecast{end}" for column, end in column_ends(find_target(table)).items()}
    if not is_valid.any() or any(
        name not in table.columns or table.filter("is_valid")[name].has_nulls() for name in columns.values()
    ):
        return None
    chosen: dict[str, pl.Series] = {}
    for column, name in columns.items():
        stated = [json.loads(text) for text in table.filter("is_valid")[name]]
        chances = np.array([[float(one[word]) for word in words[column]] for one in stated])
        means = chances.mean(axis=0)
        over = np.divide(chances, means, out=np.full(chances.shape, -1.0), where=means > 0)
        labels = iter([words[column][best] for best in over.argmax(axis=1)])
        label = name.replace("forecast", "label")
        chosen[label] = pl.Series([next(labels) if valid else None for valid in is_valid], dtype=pl.String)
    return table.with_columns(**chosen)


def _say_looks(runs: Sequence[RecordedRun]) -> str:
    told = [*map(say_looks, runs)]
    return f"{told[0]} each" if 1 < len(told) == told.count(told[0]) else ", ".join(told)


def say_looks(run: RecordedRun) -> str:
    """Say how often these weights were judged by test, as far as it is on record."""
    if not run.settings:
        return "unknown"
    if run.split != "test":
        return f"none, judged by {run.split}"
    stated = run.settings.get("n_test_looks") if run.n_test_looks is None else run.n_test_looks
    if isinstance(stated, int):
        return f"{stated:,}"
    if run.place is None or not (run.place / RUN_FILE).exists():
        return "unknown"
    own = _identify(run.facts)
    return f"at least {sum(_read_beside(path) == own for path in run.place.parent.glob(f'*/{RUN_FILE}')):,}"


def _identify(facts: Mapping[str, Any]) -> list[object]:
    """Say which weights were judged by which papers."""
    settings, release = facts.get("settings") or {}, facts.get("release") or {}
    named = ("baseline", "model", "checkpoint", "local_model", "chat_url", "weights", "split")
    return [release.get("manifest_sha256"), *(settings.get(name) for name in named)]


def _read_beside(path: Path) -> list[object] | None:
    try:
        return _identify(cast("dict[str, Any]", read_json(path)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # damaged, or of something else


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
    sides = {"left": pair.right, "right": pair.left, "only_left": pair.only_right, "only_right": pair.only_left}
    return replace(pair, **sides, differences=differences)


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
    return (
        f" Trained minus start is the sum of {by_form:+.3f} from invalid answers ({percent(was)}, then "
        f"{percent(left)}) and {of_labels:+.3f} from other labels."
    )


def _says_draws(run: RecordedRun) -> bool:
    """Whether it is known how answers were drawn. Of a predictions file or another's result it may not be."""
    asked = list_asked(run.settings)
    return run.role is None or "baseline" in asked or "temperature" in asked or asked.get("answers") == "logprobs"


def _is_drawn_once(run: RecordedRun, tables: Seeds) -> bool:
    """Whether each paper has one answer that was sampled, so that another draw may say otherwise."""
    if run.role is not None and not _says_draws(run):
        return False
    asked = list_asked(run.settings)
    is_settled = "baseline" in asked or asked.get("answers") == "logprobs" or asked.get("temperature") == 0
    return not is_settled and any(count_answers(table) == 1 for table in tables.values())


def _say_verdict(way: Repeated, compared: Comparison, start: Start | None, against: Mapping[str, Against]) -> str:
    name, run, constant = way.name, first_of(way), against[_CONSTANT]
    is_one_draw = _is_drawn_once(run, tables_of(way)) or (start is not None and _is_drawn_once(start.run, start.tables))
    is_known = (constant.pair.differences[KNOWS].low or 0) > 0 and compared.n_papers >= FEWEST
    if start is None:
        above = [one for other, one in against.items() if other != _CONSTANT]
        sure = all((one.gain.low or 0) > 0 for one in above) and is_known and not is_one_draw
        beside = f" It is {'' if sure else 'not surely '}better than the best baseline." if above else ""
        return f"What training did to {name} is not known: nothing shows the model before.{beside}"
    open_ = f"Whether training helped {name} is open"
    if is_one_draw:
        how = "" if run.role else " --run RUN --step STEP"
        return (
            f"{open_}: a paper has one answer, drawn by chance, and another draw may say otherwise. Ask the first and "
            f"the last weights greedily (sciscirl evaluate{how} --temperature 0), or more than once (--group-size 8)."
        )
    before = against[start.name]
    was, left = (compared.scores[one]["invalid"].value for one in (before.name, name))
    form = f"{percent(was)} of the first answers were invalid"
    if was > _FORM and left > _FORM:
        return f"Not even the form was learned by {name}: {form}, and {percent(left)} of the last."
    p, gain = before.pair.p[BEST], before.gain
    is_sure = p is not None and p <= 1 - compared.config.level and compared.n_papers >= FEWEST
    if is_sure and (gain.high or 0) < 0:
        return f"Training hurt {name}."
    is_gain = is_sure and (gain.low or 0) > 0
    if is_gain and is_known:
        return f"Training helped {name}, beyond the form: {form}." if was > _FORM else f"Training helped {name}."
    right, bar = compared.scores[name][KNOWS], compared.scores[_CONSTANT][KNOWS].value
    unknown = f"{show_title(KNOWS)} {show_estimate(right)} is not surely above that of {_CONSTANT}, {show(bar)}."
    if was > _FORM and not is_known:
        return f"Only the form was learned by {name}: {form}, and {unknown}"
    return f"{open_}: it gained {show_title(BEST)}, but {unknown}" if is_gain else f"{open_}."
