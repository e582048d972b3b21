"""Find and read predictions that lie on disk: of runs, of evaluations, of result files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import polars as pl

from sciscidata.storage import expand_home
from sciscidata.storage.sums import read_json
from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.compare import align
from sciscirl.lab.analysis.result_file import RESULT_END, name_split, read_result
from sciscirl.lab.evaluation.results import PREDICTIONS_FILE, measure
from sciscirl.lab.report.own_metrics import find_kept, list_missing, read_judged
from sciscirl.lab.report.runs import Evaluation, RecordedRun, Role, expand_folders, name_folders
from sciscirl.metrics.predictions import read_predictions
from sciscirl.runs.checkpoints import count_test_looks, list_evaluations
from sciscirl.runs.logs import METRICS_FILE
from sciscirl.runs.record import RUN_FILE, find_ceiling, find_eval_split


class JudgedFile(NamedTuple):
    """Predictions, what ``run.json`` or a result file says of them, or {}, and the file."""

    predictions: pl.DataFrame
    facts: dict[str, Any]
    file: Path


def find_predictions(path: Path) -> Path:
    """Find the predictions of a path: a file or result file, an evaluation, or the last ones of a training run."""
    if not path.exists():
        raise PredictionsError(f"there is no {path}. Check the path.")
    if path.is_file():
        return path
    own = path / PREDICTIONS_FILE
    files = [own] if own.is_file() else [*list_evaluations(path, find_eval_split(path)).values()]
    if not files:
        raise PredictionsError(
            f"{path} holds no predictions. Give a predictions file, the folder of an evaluation, or that of a training "
            "run which was evaluated."
        )
    return files[-1]


def read_named(words: Sequence[str], n_whole: int = 0) -> dict[str, JudgedFile]:
    """Read ``PATH`` or ``NAME=PATH``, by name.

    Each run of a sweep is read, and each result file of a folder. The first ``n_whole`` words name one
    file or folder each.
    """
    split = [_split(word) for word in words]
    places = [
        (name, place)
        for number, (name, path) in enumerate(split)
        for place in ([path] if name or number < n_whole else _expand(path))
    ]
    files = [find_predictions(path) for _, path in places]
    folders = [
        path
        if path.is_dir()
        else path.parent
        if path.name == PREDICTIONS_FILE
        else path.with_name(path.name.split(".")[0])
        for _, path in places
    ]
    names = [name or other for (name, _), other in zip(places, name_folders(folders), strict=True)]
    if len(set(names)) < len(names):
        raise PredictionsError(f"two of {', '.join(names)} have the same name. Give each once, or names: NAME=PATH.")
    return {name: _read(file) for name, file in zip(names, files, strict=True)}


def _expand(path: Path) -> list[Path]:
    results = sorted(path.glob(f"*{RESULT_END}")) if not (path / RUN_FILE).exists() else []
    return results or expand_folders([path])


def _read(file: Path) -> JudgedFile:
    if file.suffix == ".json":
        return JudgedFile(*read_result(file), file)
    return JudgedFile(read_predictions(file), _find_facts(file), file)


def _split(word: str) -> tuple[str | None, Path]:
    name, equals, path = word.partition("=")
    is_named = bool(equals and name and "/" not in name)
    return name if is_named else None, Path(expand_home(path if is_named else word))


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


def list_change(start: str | None, trained: str | None) -> dict[Role, list[str]]:
    """List what a user names as evaluations after and before training, ``PATH`` or ``PATH,PATH,...``; {}: neither.

    Raises:
        PredictionsError: one of the two is missing, or several starts are not as many as the trained.
    """
    if start is None and trained is None:
        return {}
    for missing, value, what in (("start", start, "before"), ("trained", trained, "after")):
        if not value:
            raise PredictionsError(
                f"{missing}=... is missing: the evaluation {what} training. Give both, start=PATH trained=PATH."
            )
    words: dict[Role, list[str]] = {"trained": str(trained).split(","), "start": str(start).split(",")}
    if same := {*words["start"]} & {*words["trained"]}:
        raise PredictionsError(f"start=... and trained=... both name {min(same)}. Give two evaluations.")
    n_trained, n_start = map(len, words.values())
    if n_start not in (1, n_trained):
        raise PredictionsError(
            f"start=... names {n_start} evaluations, trained=... {n_trained}. Give one start, or one for each of the "
            "trained in the same order."
        )
    return words


def check_sides(read: Mapping[str, JudgedFile]) -> None:
    """Refuse evaluations before and after training that are not of the same papers with the same labels."""
    check_slices({name: one.facts for name, one in read.items() if one.facts})
    if read:
        align({name: one.predictions for name, one in read.items()})


def record_file(name: str, judged: JudgedFile, role: Role) -> RecordedRun:
    """Make what a report knows of an evaluation from its predictions and what is said of them."""
    facts, table = judged.facts, judged.predictions
    settings = facts.get("settings") or {}
    digest = facts.get("release")
    folder = judged.file.parent
    run = next((one for one in (folder, folder.parent) if (one / METRICS_FILE).exists()), None)
    return RecordedRun(
        name=name,
        kind="evaluation",
        facts={
            **facts,
            "settings": {**settings, "split": name_split(settings)} if settings else {},
            "release": {"manifest_sha256": digest} if digest else {},
        },
        evaluations=(Evaluation(step=0, metrics=measure(table), predictions=table),),
        is_finished=True,
        n_test_looks=None if run is None else count_test_looks(run),
        role=role,
        place=None if judged.file.suffix == ".json" else folder,
    )


def read_change(words: Mapping[Role, Sequence[str]]) -> list[RecordedRun]:
    """Read the evaluations of ``list_change``, whose papers and labels have to agree.

    Raises:
        PredictionsError: a file is missing or damaged, or they are not of the same papers with the same labels.
    """
    roles: list[Role] = [role for role, of_role in words.items() for _ in of_role]
    read = read_named([word for of_role in words.values() for word in of_role], n_whole=len(roles))
    check_sides(read)
    return [record_file(name, one, role) for (name, one), role in zip(read.items(), roles, strict=True)]
