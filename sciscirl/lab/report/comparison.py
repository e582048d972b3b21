"""Compare predictions that lie on disk: find and read them, compare, write and print the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import polars as pl

from sciscidata.storage import path_inside
from sciscidata.storage.sums import check_ours, read_json, sealed_file
from sciscidata.terminal.messages import align_columns, printable
from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.compare import MEASURED, CompareConfig, Comparison, compare_predictions, list_asked
from sciscirl.lab.analysis.result_file import (
    RESULT_END,
    check_against,
    hash_split,
    name_split,
    read_result,
    save_result,
)
from sciscirl.lab.analysis.seen import Judged, mark_later
from sciscirl.lab.report.layout import ABSENT, PAIRS_HEAD, show_estimate, show_pairs, show_title
from sciscirl.lab.report.own_metrics import find_kept, list_missing, list_shown, read_judged, warn_of_missing
from sciscirl.lab.report.runs import expand_folders, hash_release, name_folders
from sciscirl.metrics.metrics import COMPARED
from sciscirl.metrics.own_metrics import METRICS
from sciscirl.metrics.predictions import read_predictions
from sciscirl.runs.checkpoints import list_evaluations
from sciscirl.runs.folder import refuse_release
from sciscirl.runs.logs import write_json
from sciscirl.runs.record import RUN_FILE, find_ceiling, find_eval_split
from sciscirl.task.release import open_release

_COMPARISON: Final = "comparison.json"
_ONE: Final = "predictions.parquet"


def find_predictions(path: Path) -> Path:
    """Find the predictions of a path: a file or result file, an evaluation, or the last ones of a training run."""
    if path.is_file():
        return path
    own = path / _ONE
    files = [own] if own.is_file() else [*list_evaluations(path, find_eval_split(path)).values()]
    if not files:
        raise PredictionsError(
            f"{path} holds no predictions. Give a predictions file, the folder of an evaluation, or that of a training "
            "run which was evaluated."
        )
    return files[-1]


def read_named(words: Sequence[str]) -> tuple[dict[str, pl.DataFrame], dict[str, dict[str, Any]]]:
    """Read ``PATH`` or ``NAME=PATH``: tables by name, and what ``run.json`` or a result file says of each, or {}.

    Of sweeps each run is read, and of a folder of result files each of these.
    """
    split = [_split(word) for word in words]
    places = [(name, place) for name, path in split for place in ([path] if name else _expand(path))]
    files = [find_predictions(path) for _, path in places]
    folders = [path.parent if path.name == _ONE else path.with_name(path.name.split(".")[0]) for _, path in places]
    names = [name or other for (name, _), other in zip(places, name_folders(folders), strict=True)]
    if len(set(names)) < len(names):
        raise PredictionsError(f"two of {', '.join(names)} have the same name. Give names: NAME=PATH.")
    read = {name: _read(file) for name, file in zip(names, files, strict=True)}
    return {name: table for name, (table, _) in read.items()}, {name: facts for name, (_, facts) in read.items()}


def _expand(path: Path) -> list[Path]:
    results = sorted(path.glob(f"*{RESULT_END}")) if not (path / RUN_FILE).exists() else []
    return results or expand_folders([path])


def _read(file: Path) -> tuple[pl.DataFrame, dict[str, Any]]:
    return read_result(file) if file.suffix == ".json" else (read_predictions(file), _find_facts(file))


def _split(word: str) -> tuple[str | None, Path]:
    name, equals, path = word.partition("=")
    return (name, Path(path)) if equals and name and "/" not in name else (None, Path(word))


def _find_facts(file: Path) -> dict[str, Any]:
    for folder in (file.parent, file.parent.parent):
        try:
            facts = cast("dict[str, Any]", read_json(folder / RUN_FILE))
            stated = {"settings": dict(facts.get("settings", {})), "ceiling": find_ceiling(file)}
            if missing := list_missing(facts):
                stated["kept"] = dict.fromkeys(missing) | find_kept(missing, read_judged(file, folder))
            return facts | {"release": str(facts["release"]["manifest_sha256"]), **stated}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}


def check_slices(slices: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse predictions of different releases: the same papers may have other labels or texts.

    A release is known by its split, as JSON lines, whose bytes are the same on every machine; else by its manifest.
    """
    known = [(name, facts) for name, facts in slices.items() if facts.get("release") is not None]
    for name, facts in known[1:]:
        first, other = known[0]
        by = "split_sha256" if facts.get("split_sha256") and other.get("split_sha256") else "release"
        if facts[by] != other[by]:
            raise PredictionsError(
                f"{first} is of release {other[by][:12]}, {name} of {facts[by][:12]}. Evaluate both on one release."
            )


def compare_files(
    words: Sequence[str], config: CompareConfig, out: Path | None = None, release: Path | None = None
) -> Comparison:
    """Compare predictions, each ``PATH`` or ``NAME=PATH``; write comparison, pictures and result files into ``out``.

    With their ``release``, baselines judge the papers of the first table, too.
    """
    names = {metric: f"difference_{metric}.png" for metric in (*COMPARED, *METRICS)}
    if out is not None:
        refuse_release(out, "folder: out=...", PredictionsError)
        check_ours(*(out / name for name in (_COMPARISON, *names.values())))
    tables, known = read_named(words)
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
    comparison = compare_predictions(tables, config, asked, ceiling)
    warn_of_missing({name: facts["kept"] for name, facts in known.items() if "kept" in facts})
    if out is not None:
        from sciscirl.lab.report.figures import plot_estimates

        write_json(path_inside(out, _COMPARISON, stated_by="a comparison"), comparison.to_json())
        for name, path in results.items():
            if name in known:  # else it is not known of which release it is
                save_result(path, tables[name], known[name])
        marked = mark_later(comparison.scores, comparison.saw)
        note = "\nsaw later: knew what came after publication" if [*marked] != [*marked.values()] else ""
        for metric, name in names.items():
            with sealed_file(path_inside(out, name, stated_by="a comparison")) as path:
                rows = {
                    f"{marked[pair.left]} \u2212\n{marked[pair.right]}": pair.differences[metric]
                    for pair in comparison.pairs
                    if metric in pair.differences
                }
                title = f"difference in {show_title(metric)}{note}"
                path.write_bytes(plot_estimates({title: rows}, is_share=False))
    return comparison


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
    lines = ["; ".join([papers, f"{comparison.config.level:.0%} intervals over {over}", *tops]), ""]
    lines += _columns([["", "seeds", *map(show_title, shown), *ways, *(["saw"] if comparison.saw else [])], *rows])
    return "\n".join([*lines, *(["", *_columns([PAIRS_HEAD, *show_pairs(comparison)])] if comparison.pairs else [])])


def _columns(rows: Iterable[Sequence[str]]) -> list[str]:
    return align_columns([[printable(cell) for cell in row] for row in rows])
