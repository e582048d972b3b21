"""Sections of a report that are tables: results, settings, published results, comparison, cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.compare import CompareConfig, Comparison, compare_predictions, list_asked
from sciscirl.lab.report.figures import SCORED, plot_differences, plot_rates, plot_scores
from sciscirl.lab.report.layout import (
    ABSENT,
    Picture,
    Section,
    Table,
    show,
    show_estimate,
    show_metric,
    show_pair,
    show_seeded_pairs,
)
from sciscirl.lab.report.runs import Evaluation, Repeated, Run, find_papers, find_repeated
from sciscirl.lab.seeds import MEASURED, compare_seeds
from sciscirl.metrics.collapse import explain_doubt, find_signs
from sciscirl.metrics.metrics import COMPARED
from sciscirl.runs.folder import is_local, is_taught
from sciscirl.runs.lineage import render_start
from sciscirl.runs.prices import PRICES_DATE

#: Where the published runs are described.
PUBLISHED_IN: Final = (
    "A. P. Akella, Tinker, smol-RL and QDoRA (Part 2), 2026, https://akhilpandey95.github.io/notes/tinker_part2/"
)
#: After how many steps the runs of PUBLISHED_RUNS were judged.
PUBLISHED_STEP: Final = 250
_COLUMNS: Final = (
    "label_match", "parse_ok", "format_strict_ok", "recall/disruptive", "recall/consolidating", "recall/neutral",
    "invalid", "macro_f1",
)  # fmt: skip
_EXP5: Final = (
    "label_match", "macro_f1", "predicted_share/disruptive", "recall/disruptive", "min_class_recall"
)  # fmt: skip


def _table(columns: tuple[str, ...], rows: Mapping[Any, tuple[float, ...]]) -> Mapping[Any, Mapping[str, float]]:
    return MappingProxyType({key: MappingProxyType(dict(zip(columns, row, strict=True))) for key, row in rows.items()})


#: Published metrics by preset, on 500 held-out papers. By the recalls, 145 are disruptive, 166 consolidating, 189
#: neutral. Macro-F1 is approximate. Model: presets.HISTORICAL_MODEL. Source: PUBLISHED_IN.
PUBLISHED_RUNS: Final[Mapping[str, Mapping[str, float]]] = _table(
    _COLUMNS,
    {
        "baseline": (0.326, 0.966, 0.918, 0.0897, 0.2108, 0.6085, 0.082, 0.288),
        "exp1": (0.316, 0.974, 0.960, 0.2414, 0.4096, 0.2910, 0.040, 0.317),
        "exp2": (0.362, 0.978, 0.976, 0.0621, 0.7048, 0.2910, 0.024, 0.309),
        "exp3": (0.356, 0.944, 0.906, 0.1034, 0.4458, 0.4709, 0.094, 0.337),
        "exp4": (0.396, 0.998, 0.998, 0.0069, 0.2831, 0.7937, 0.002, 0.292),
    },
)
#: By step, metrics of Exp5 on 2,000 held-out papers, 693 of them disruptive. The same source.
PUBLISHED_EXP5: Final[Mapping[int, Mapping[str, float]]] = _table(
    _EXP5,
    {
        0: (0.3360, 0.3003, 0.0955, 0.0823, 0.0823),
        250: (0.3445, 0.2489, 0.8295, 0.8009, 0.0132),
        500: (0.3495, 0.1819, 0.9885, 0.9928, 0.0000),
        2000: (0.3465, 0.1716, 1.0000, 1.0000, 0.0000),
    },
)


_KINDS: Final = {
    "rl": "reinforcement learning", "sft": "supervised fine-tuning", "evaluation": "evaluation", "baseline": "baseline"
}  # fmt: skip
_TIES: Final = (
    "reward_uniform_group_rate", "reward_tie_group_rate", "reward_tie_pair_rate", "reward_unique_fraction_mean"
)  # fmt: skip
_BEST: Final = "macro_f1"  # decides which run is named first
_DIGITS: Final = 4  # of the published figures
_ALL_PAIRS: Final = 5  # of more runs, not every pair is shown
TRAIN: Final = "env/all/"


def view_overview(runs: Sequence[Run]) -> Section:
    """Show the best run of each task, and the last evaluation of every run."""
    rows: list[list[str]] = []
    for run in runs:
        metrics = run.last.metrics if run.last else {}
        rows.append(
            [
                run.name,
                *(show_metric(metrics, name) for name in COMPARED),
                show(metrics.get("invalid")),
                _say_signs(run),
                f"{metrics['n']:,.0f}" if "n" in metrics else ABSENT,
                _say_step(run),
                run.split if run.last else ABSENT,
                ABSENT if run.n_test_looks is None else f"{run.n_test_looks:,}",
                run.state,
            ]
        )
    head = [
        *("run", *COMPARED, "invalid", "signs of class collapse", "answers", "judged at step", "judged by"),
        *("looks at test", "state"),
    ]
    return Section(
        "overview",
        "Results",
        "Each run at its last evaluation on held-out papers, with 95 % intervals where every paper has one answer. An "
        "answer that is not valid counts as wrong in every figure. Papers that chose a checkpoint flatter it: a result "
        "on test is clean if its run looked at test only in its final evaluations: once for the chosen weights, and "
        "once for the last ones.",
        [Table("The last evaluation of each run", head, rows)],
        headline=_list_best(runs),
    )


def _say_step(run: Run) -> str:
    """Say after which training step the weights were judged, and what chose them."""
    if run.kind in {"rl", "sft"}:
        return f"{run.last.step:,}" if run.last else ABSENT
    step, selected = run.weights.get("step", ABSENT), run.settings.get("selected")
    begun = f" ({run.weights['begun_from']})" if "begun_from" in run.weights else ""
    chosen = f", chosen by {selected.get('split')}" if isinstance(selected, Mapping) else ""
    return f"{step}{begun}{chosen}"


def _explain_doubt(run: Run, evaluation: Evaluation) -> str | None:
    taught = is_taught(run.facts) or bool(run.weights.get("is_taught"))
    return explain_doubt(evaluation.metrics, str(run.settings.get("contract", "")), is_taught=taught)


def _say_signs(run: Run) -> str:
    if run.last is None or run.kind == "baseline":
        return ABSENT
    doubt = _explain_doubt(run, run.last)
    return "; ".join([*find_signs(run.last.metrics), *([f"no verdict: {doubt}"] if doubt else [])]) or "none"


def _list_best(runs: Sequence[Run]) -> list[str]:
    """Name the run with the best macro-F1 of each task and release, of those that the most papers judged."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.last and _BEST in run.last.metrics:
            key = json.dumps([run.target, run.facts.get("release"), run.split], default=str)
            groups.setdefault(key, []).append(run)
    lines: list[str] = []
    for every in groups.values():
        n_papers = max(map(_count_papers, every))
        group = [run for run in every if _count_papers(run) == n_papers]
        best = max(group, key=lambda run: run.last.metrics[_BEST] if run.last else -math.inf)
        if best.last is None:
            continue
        dates = sorted({str(run.facts["date"]) for run in group if run.facts.get("date")})
        ahead = f"Best of {len(group):,}" if len(group) > 1 else "Only one"
        days = f", {' to '.join(dict.fromkeys((dates[0], dates[-1])))}" if dates else ""
        lines.append(
            f"{ahead} on {best.target}: {best.name}, {_BEST} {show_metric(best.last.metrics, _BEST)}, "
            f"{n_papers:,} papers of {best.split}, {_name_release(best)}{days}."
            + (" The papers that chose it flatter it." if len(group) > 1 else "")
        )
    return lines


def _count_papers(run: Run) -> int:
    last = run.last
    if last is None:
        return 0
    table = last.predictions
    return round(last.metrics["n"]) if table is None or "openalex_id" not in table else table["openalex_id"].n_unique()


def _name_release(run: Run) -> str:
    release: Any = run.facts.get("release") or {}
    digest = str(release.get("manifest_sha256") or "")[:12]
    return f"{run.facts.get('release_folder') or ''} {digest}".strip() or ABSENT


def view_seeds(runs: Sequence[Run]) -> Section | None:
    """Show runs that differ only in the seed as one row, and compare these rows; None without any."""
    groups: dict[str, list[Repeated]] = {}
    for one in find_repeated([run for run in runs if find_papers(run)]):
        groups.setdefault(find_papers(next(iter(one.runs.values()))) or "", []).append(one)
    texts, tables, pictures = [], [], []
    for papers, group in groups.items():
        if all(len(one.runs) == 1 for one in group):
            continue
        ways = {one.name: {seed: _predictions(run) for seed, run in one.runs.items()} for one in group}
        asked = {one.name: list_asked(next(iter(one.runs.values())).settings) for one in group}
        beside = {run.name: _predictions(run) for run in runs if run.kind == "baseline" and find_papers(run) == papers}
        try:
            comparison = compare_seeds(ways, CompareConfig(n_resamples=1000), asked, beside)
        except PredictionsError as error:
            texts.append(f"{', '.join(ways)} cannot be compared: {error}")
            continue
        rows = [
            [name, ", ".join(map(str, comparison.seeds[name])) if name in ways else ABSENT, *map(show_estimate, scores)]
            for name, scores in ((name, comparison.scores[name].values()) for name in comparison.scores)
        ]
        tables.append(Table(f"Means over seeds, {comparison.n_papers:,} papers", ["", "seeds", *MEASURED], rows))
        if comparison.pairs:
            tables.append(Table("Differences over seeds", _PAIR_HEAD, show_seeded_pairs(comparison)))
        said = "; ".join(
            f"{name}: " + ", ".join(f"{metric} {show_estimate(scores[metric])}" for metric in SCORED)
            for name, scores in comparison.scores.items()
        )
        pictures.append(Picture("seeds", plot_scores(comparison), f"Scores of ways to train. {said}."))
    if not tables and not texts:
        return None
    texts.append(
        "Runs that differ in nothing but the seed are one row: the mean of their last evaluations. Intervals of "
        "several seeds are over seeds and papers, those of one seed over papers only. With few seeds they are too "
        "narrow. "
        "Differences are left minus right, on the same draws of seeds and papers. p is of a permutation test, in which "
        "papers swap sides: it is about these runs, not about other seeds. Holm's method adjusts it for the number of "
        "pairs. In the picture, strokes are seeds."
    )
    return Section("seeds", "Ways to train, over seeds", " ".join(texts), tables, pictures)


_PAIR_HEAD: Final = ("pair", "metric", "difference", "p", "adjusted", "asked otherwise")


def _predictions(run: Run) -> pl.DataFrame:
    if run.last is None or run.last.predictions is None:
        msg = "find_papers has found the papers of the predictions"
        raise AssertionError(msg)
    return run.last.predictions


def view_runs(runs: Sequence[Run]) -> Section:
    """Show the settings of the runs: first those that differ, then the equal ones.

    A setting that all runs of a kind lack, such as the batch size of evaluations, differs in no run.
    """
    facts = [_describe(run) for run in runs]
    names = list(dict.fromkeys(name for one in facts for name in one))
    rows = [[name, *(one.get(name, ABSENT) for one in facts)] for name in names]
    kinds = [run.kind for run in runs]
    differing, shared = list[list[str]](), list[list[str]]()
    for name, *values in rows:
        stated = {*values} - {ABSENT}
        if len(stated) > 1 or len({*zip(kinds, values, strict=True)}) > len({*kinds}):
            differing.append([name, *values])
        else:
            shared.append([name, *(stated or {ABSENT})])
    problems = [[run.name, problem] for run in runs for problem in run.problems]
    tables = [
        Table("What differs", ["", *(run.name for run in runs)], differing),
        Table("The same in all runs that state it", ["", "value"], shared, is_folded=len(runs) > 1),
        Table("What could not be read", ["run", "problem"], problems),
    ]
    return Section(
        "runs",
        "Run map",
        "The runs and their differences. Compare results only where release and split are the same. One seed is one "
        "draw, not a finding.",
        [table for table in tables if table.rows],
    )


def _describe(run: Run) -> dict[str, str]:
    commit = str(run.facts.get("commit") or "")
    facts = {
        "kind": _KINDS[run.kind],
        "state": run.state,
        "begun from": render_start(run.facts.get("begun_from")) or _value(run.settings.get("load_checkpoint")),
        "task": run.target,
        "release": _name_release(run),
        **({"begun": str(run.facts["date"])} if run.facts.get("date") else {}),
        "commit": commit[:12] + ("+changes" if commit.endswith("+changes") else "") or ABSENT,
        "steps logged": f"{run.n_steps:,}" if run.kind in {"rl", "sft"} else ABSENT,
        "evaluations": f"{len(run.evaluations):,}",
    }
    settings = {
        ("preset" if name == "name" else name): _value(value)
        for name, value in run.settings.items()
        # Prompts are whole pages; their names and SHA-256 tell them apart. Weights are told by the runs behind them.
        if name not in {"prompt", "load_checkpoint"}
    }
    if "model" in settings:
        settings["model"] = name_model(str(run.settings["model"]))
    if run.settings.get("trained_on"):
        settings["trained_on"] = f"release {str(run.settings['trained_on'])[:12]}"
    versions: Any = run.facts.get("versions") or {}
    return facts | settings | {f"version of {name}": _value(value) for name, value in versions.items()}


def name_model(model: str) -> str:
    """Name a model as its hub does, or by its folder's name.

    Example:
        >>> name_model("Qwen/Qwen3-8B"), name_model("/srv/models/mine")
        ('Qwen/Qwen3-8B', 'mine')
    """
    return PurePath(model).name if PurePath(model).is_absolute() else model


def _value(value: object) -> str:
    if value is None:
        return ABSENT
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def view_published(runs: Sequence[Run]) -> Section | None:
    """Show results on disruption next to the published ones; None without any."""
    ours = [run for run in runs if run.last and run.target == "disruption"]
    if not ours:
        return None
    rows: list[list[str]] = []
    for name, metrics in PUBLISHED_RUNS.items():
        rows.append(
            [f"{name}, published", str(PUBLISHED_STEP), "500", *(show(metrics[one], _DIGITS) for one in _COLUMNS)]
        )
        rows += [_beside(run) for run in ours if _preset(run) == name]
    rows += [_beside(run) for run in ours if _preset(run) not in PUBLISHED_RUNS]
    trajectory = [
        ["exp5, published", f"{step:,}", "2,000", *(show(metrics[one], _DIGITS) for one in _EXP5)]
        for step, metrics in PUBLISHED_EXP5.items()
    ]
    for run in ours:
        trajectory += [
            [
                run.name,
                f"{one.step:,}",
                f"{one.metrics['n']:,.0f}",
                *(show(one.metrics.get(name), _DIGITS) for name in _EXP5),
            ]
            for one in run.evaluations
            if _preset(run) == "exp5"
        ]
    head = ["", "step", "papers"]
    rates = {f"{name}, published": metrics for name, metrics in PUBLISHED_RUNS.items()}
    rates |= {run.name: run.last.metrics for run in ours if run.last}
    said = "; ".join(
        f"{name}: {metrics['format_strict_ok']:.1%} keep it, {metrics['invalid']:.1%} invalid"
        for name, metrics in rates.items()
    )
    return Section(
        "published",
        "Beside the published runs",
        f"The published runs ({PUBLISHED_IN}) are of another model and other papers: a figure here that differs from "
        "theirs is not by itself better or worse. Always saying one label gives a macro-F1 of 0.17 on balanced "
        "classes.",
        [
            Table("Every run at its last evaluation", [*head, *_COLUMNS], rows),
            Table("Exp5: every correct disruptive answer paid three times", [*head, *_EXP5], trajectory),
        ],
        [
            Picture(
                "contract_published",
                plot_rates(rates, title="Contract kept, and invalid answers"),
                f"The contract beside the published runs. {said}.",
            )
        ],
    )


def _preset(run: Run) -> str | None:
    """Name the preset that a run replicates; supervised runs replicate none."""
    settings = run.settings
    return settings.get("name") or settings.get("preset") if run.kind in {"rl", "evaluation"} else None


def _beside(run: Run) -> list[str]:
    last = run.last
    if last is None:
        return [run.name]
    return [
        run.name,
        _say_step(run),
        f"{last.metrics['n']:,.0f}",
        *(show(last.metrics.get(name), _DIGITS) for name in _COLUMNS),
    ]


def view_comparison(runs: Sequence[Run]) -> Section | None:
    """Compare the last evaluations of the same papers, paper by paper; None if fewer than two."""
    groups: dict[str, dict[str, pl.DataFrame]] = {}
    for run in runs:
        if key := find_papers(run):
            groups.setdefault(key, {})[run.name] = _predictions(run)
    if sum(map(len, groups.values())) < 2:
        return None
    asked = {run.name: list_asked(run.settings) for run in runs}
    texts, tables, pictures = [], [], []
    for group in groups.values():
        if len(group) < 2:
            texts.append(f"{next(iter(group))} is alone with its task, release and papers.")
            continue
        reference = None if len(group) <= _ALL_PAIRS else next(iter(group))
        try:
            comparison = compare_predictions(group, CompareConfig(reference=reference, n_resamples=1000), asked)
        except PredictionsError as error:
            texts.append(f"{', '.join(group)} cannot be compared: {error}")
            continue
        texts.append(f"{', '.join(group)}: {comparison.n_papers:,} papers that all of them judged.")
        if reference is not None:
            texts.append(f"As these are more than {_ALL_PAIRS}, each is compared with the first, {reference}.")
        head = ["pair", *COMPARED, "right alone", "McNemar p", "adjusted", "asked otherwise"]
        rows = [[f"{pair.left} \u2212 {pair.right}", *show_pair(pair)] for pair in comparison.pairs]
        tables.append(Table(f"Pairs of runs, task {comparison.target}", head, rows))
        pictures += [
            Picture(f"difference_{metric}", plot_differences(comparison, metric), _say_differences(comparison, metric))
            for metric in COMPARED
        ]
    if tables:
        texts.append(
            "Differences are left minus right, with 95 % intervals from resamples of the papers that are the same for "
            "both; a filled blue mark is an interval without 0. McNemar's exact test is on papers that only one of two "
            "has right, adjusted by Holm for the number of pairs. A pair that was asked otherwise differs in prompt, "
            "contract, sampling or chat format too, so its difference is not due to the weights alone."
        )
    return Section("comparison", "Compared paper by paper", " ".join(texts), tables, pictures)


def _say_differences(comparison: Comparison, metric: str) -> str:
    said = [
        f"{pair.left} minus {pair.right} {show_estimate(pair.differences[metric], signed=True)}"
        for pair in comparison.pairs
    ]
    return f"Differences in {metric} with intervals: {'; '.join(said)}."


def view_cost(runs: Sequence[Run]) -> Section:
    """Show tokens, dollars and time, where logged."""
    rows: list[list[str]] = []
    for run in runs:
        usage, seconds = run.usage, measure_seconds(run)
        is_own_gpu = is_local(run.settings)
        dollars = usage.dollars(str(run.settings.get("model"))) if usage and not is_own_gpu else None
        tokens = [f"{n:,}" for n in (usage.prefill, usage.sample, usage.train)] if usage else [ABSENT] * 3
        rows.append(
            [
                run.name,
                *tokens,
                ABSENT if dollars is None else f"${dollars:,.2f}",
                ABSENT if seconds is None else show_time(seconds),
                ABSENT if seconds is None or not run.n_steps else show_time(seconds / run.n_steps),
            ]
        )
    head = ["run", "tokens read", "tokens sampled", "tokens trained on", "at most", "time of steps", "per step"]
    return Section(
        "cost",
        "Cost",
        f"Counted from the logs: every prompt and answer of training and evaluation. Dollars are Tinker's list "
        f"prices of {PRICES_DATE}, no prompt counted as cached; {ABSENT} where no price is listed, nothing was "
        "logged, or your own GPU did the work.",
        [Table("Tokens, dollars, time", head, rows)],
    )


def view_groups(runs: Sequence[Run]) -> Table | None:
    """Show how often rewards tie for each group size, with reward and speed; None if no run sampled groups."""
    rows: list[list[str]] = []
    for run in runs:
        means = {name: mean_of(run, f"{TRAIN}{name}") for name in (*_TIES, "reward/total", "label_match")}
        if run.kind == "rl" and means["reward/total"] is not None:
            seconds = measure_seconds(run, evaluations=False)
            n_rollouts = math.fsum(row.get(f"{TRAIN}total_episodes", 0.0) for row in run.rows)
            speed = None if not seconds else n_rollouts / seconds
            group_size = _value(run.settings.get("group_size"))
            rows.append([run.name, group_size, *(show(value) for value in means.values()), show(speed, 2)])
    if not rows:
        return None
    head = ["run", "group_size", *_TIES, "mean reward", "share right", "rollouts per second"]
    return Table("Means over all training steps", head, rows)


def mean_of(run: Run, name: str) -> float | None:
    """Return the mean of a logged number over the steps that have it; None without any."""
    values = [row[name] for row in run.rows if name in row]
    return math.fsum(values) / len(values) if values else None


def measure_seconds(run: Run, *, evaluations: bool = True) -> float | None:
    """Add up the seconds of the steps; None if not logged."""
    took = [row.get("time/total", row.get("time/step")) for row in run.rows]
    logged = [seconds for seconds in took if seconds is not None]
    if not logged:
        return None
    judged = [row.get("time/run_evaluations_parallel", 0.0) for row in run.rows]
    return math.fsum(logged) - (0.0 if evaluations else math.fsum(judged))


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
