"""Compare predictions that lie on disk: read them, compare, write and print the result."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from sciscidata.storage import path_inside
from sciscidata.storage.sums import check_ours, remove_sealed, sealed_file
from sciscidata.terminal.messages import align_columns, printable
from sciscidata.terminal.shares import percent
from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.compare import (
    MEASURED,
    CompareConfig,
    Comparison,
    Seeds,
    compare_predictions,
    list_asked,
)
from sciscirl.lab.analysis.result_file import RESULT_END, check_against, hash_split, name_split, save_result
from sciscirl.lab.analysis.seen import Judged, mark_later
from sciscirl.lab.report.judged_files import JudgedFile, check_sides, check_slices, read_named, record_file
from sciscirl.lab.report.layout import ABSENT, PAIRS_HEAD, show_estimate, show_pairs, show_title
from sciscirl.lab.report.own_metrics import list_shown, warn_of_missing
from sciscirl.lab.report.runs import Repeated, Role, find_repeated, hash_release
from sciscirl.lab.report.verdict import Group, Verdict, find_start, first_of, has_ceiling, judge_training, tables_of
from sciscirl.metrics.metrics import COMPARED
from sciscirl.metrics.own_metrics import METRICS
from sciscirl.runs.folder import refuse_release
from sciscirl.runs.logs import write_json
from sciscirl.task.release import open_release

logger = logging.getLogger(__name__)
_COMPARISON: Final = "comparison.json"


def compare_files(
    words: Sequence[str],
    config: CompareConfig,
    out: Path | None = None,
    release: Path | None = None,
    change: Mapping[Role, Sequence[str]] = MappingProxyType({}),
) -> Comparison:
    """Compare predictions, each ``PATH`` or ``NAME=PATH``; write comparison, pictures and result files into ``out``.

    With their ``release``, baselines judge the papers of the first table, too. The evaluations of a ``change`` go first
    (``list_change``).
    """
    if not words and not change:
        raise PredictionsError("there are no predictions. Give two or more, or start=PATH trained=PATH.")
    names = {metric: f"difference_{metric}.png" for metric in (*COMPARED, *METRICS)}
    if out is not None:
        refuse_release(out, "folder: out=...", PredictionsError)
        check_ours(*(out / name for name in (_COMPARISON, *names.values())))
    of_change = [word for words_of_role in change.values() for word in words_of_role]
    read = read_named([*of_change, *words], n_whole=len(of_change))
    tables = {name: one.predictions for name, one in read.items()}
    of_sides = [*read][: len(of_change)]
    check_sides({name: read[name] for name in of_sides})
    known = {name: one.facts for name, one in read.items()}
    home = Path() if out is None else out / "results"
    results = {name: home / f"{name.replace('/', '-')}{RESULT_END}" for name in tables if out is not None}
    check_ours(*results.values())
    beside: dict[str, Judged] = {}
    of_release: dict[str, Any] = {}
    if release is not None:
        from sciscirl.lab.analysis.baselines import run_baselines

        (name, asked), facts = next(iter(tables.items())), next(iter(known.values()))
        of_release = {"release": hash_release(release), "split_sha256": hash_split(release, facts.get("settings", {}))}
        check_slices({**known, str(release): of_release})
        if name_split(facts.get("settings", {})) == "test":
            of_release["ceiling"] = open_release(release).manifest.get("ceiling")
        for one, table in tables.items():
            check_against(release, table, known[one], one)
        judged = run_baselines(release, asked, facts.get("settings", {}))
        beside = {name: one for name, one in judged.items() if name not in tables}
        tables |= {name: one.predictions for name, one in beside.items()}
    known = {name: facts for name, facts in known.items() if facts}
    check_slices(known)
    settings = {name: facts["settings"] for name, facts in known.items()}
    settings |= {name: one.settings for name, one in beside.items()}
    asked = {name: list_asked(one) for name, one in settings.items()}
    ceilings = [facts["ceiling"] for facts in [*known.values(), of_release] if facts.get("ceiling")]
    ceiling = ceilings[0] if ceilings else None
    models: dict[str, pl.DataFrame | Seeds] = {**tables}
    verdict: Verdict | None = None
    if change:
        own = {name: Judged(tables[name], one) for name, one in settings.items() if name in read and "baseline" in one}
        ways = _find_ways(read, change)
        verdict, sides = _judge_change(ways, Group(ways=ways, baselines=own | beside, ceiling=ceiling or {}), config)
        others = {name: table for name, table in tables.items() if name not in of_sides}
        if same := {*sides} & {*others}:
            raise PredictionsError(f"two models have the name {min(same)}. Give another: NAME=PATH.")
        models = {**sides, **others}
        asked |= {way.name: list_asked(first_of(way).settings) for way in ways}
    comparison = compare_predictions(models, config, asked, ceiling)
    warn_of_missing({name: facts["kept"] for name, facts in known.items() if "kept" in facts})
    if verdict:
        comparison = replace(comparison, headline=verdict.line, changes=verdict.changes)
        if len(change["start"]) == 1:  # which stood beside each seed
            name = [*models][1]
            once = {metric: values[:1] for metric, values in comparison.by_seed[name].items()}
            comparison = replace(
                comparison,
                seeds={**comparison.seeds, name: (0,)},
                by_seed={**comparison.by_seed, name: once},
            )
    if out is not None:
        from sciscirl.lab.report.figures import plot_estimates

        write_json(path_inside(out, _COMPARISON, stated_by="a comparison"), comparison.to_json())
        for name, path in results.items():
            if name in known:
                save_result(path, tables[name], known[name])
            else:
                logger.warning("%s has no result file: nothing says of which release it is", name)
        marked = mark_later(comparison.scores, comparison.saw)
        note = "\nsaw later: knew what came after publication" if [*marked] != [*marked.values()] else ""
        for metric, name in names.items():
            rows = {
                f"{marked[pair.left]} \u2212\n{marked[pair.right]}": pair.differences[metric]
                for pair in comparison.pairs
                if metric in pair.differences
            }
            picture = path_inside(out, name, stated_by="a comparison")
            if not rows:
                remove_sealed(picture)  # of a comparison before
                continue
            with sealed_file(picture) as path:
                title = f"difference in {show_title(metric)}{note}"
                path.write_bytes(plot_estimates({title: rows}, is_share=False))
    return comparison


def _find_ways(read: Mapping[str, JudgedFile], change: Mapping[Role, Sequence[str]]) -> list[Repeated]:
    """Return what was trained, and its start, each with its seeds: these come first in ``read``, in this order."""
    roles: list[Role] = [role for role, of_role in change.items() for _ in of_role]
    named = zip(read.items(), roles, strict=False)
    return find_repeated(record_file(name, one, role) for (name, one), role in named)


def _judge_change(ways: Sequence[Repeated], group: Group, config: CompareConfig) -> tuple[Verdict, dict[str, Seeds]]:
    """Judge what was trained, the first of two ways; return both sides with a start for each seed, too."""
    trained, start = ways[0], find_start(ways[0], group)
    assert start is not None  # it was named
    if not has_ceiling(first_of(trained)):
        group.ceiling = {}
    return judge_training(trained, group, config), {trained.name: tables_of(trained), start.name: start.tables}


def render_comparison(comparison: Comparison, split: str = "") -> str:
    """Write two tables for a terminal: each model, and each pair."""
    related = next(iter(comparison.related.values()), {})
    ways = [name for name in related if "way_to_ceiling/" in name]
    shown = [*MEASURED, *list_shown(comparison)]
    rows = [
        [
            name,
            str(len(comparison.seeds[name])) if name in comparison.names else "-",
            *(show_estimate(scores[metric]) if metric in scores else ABSENT for metric in shown),
            *(f"{comparison.related[name][way]:.3f}" for way in ways),
            *([comparison.saw.get(name, ABSENT)] if comparison.saw else []),
        ]
        for name, scores in comparison.scores.items()
    ]
    over = "papers only, as there is one seed" if max(map(len, comparison.seeds.values())) == 1 else "seeds and papers"
    papers = f"{comparison.n_papers:,} papers{f' of {split}' if split else ''}, task {comparison.target}"
    tops = [f"{name} {value:.3f}" for name, value in related.items() if name not in ways]
    lines = ["; ".join([papers, f"{percent(comparison.config.level)} intervals over {over}", *tops]), ""]
    lines += _columns([["", "seeds", *map(show_title, shown), *ways, *(["saw"] if comparison.saw else [])], *rows])
    if comparison.headline:
        changed = _columns([["trained minus start", ""], *comparison.changes.items()])
        lines = [printable(comparison.headline), "", *changed, "", *lines]
    return "\n".join([*lines, *(["", *_columns([PAIRS_HEAD, *show_pairs(comparison)])] if comparison.pairs else [])])


def _columns(rows: Iterable[Sequence[str]]) -> list[str]:
    return align_columns([[printable(cell) for cell in row] for row in rows])
