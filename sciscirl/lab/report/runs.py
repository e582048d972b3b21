"""Read the folders of runs and evaluations for a report, in any state, damaged or unfinished."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, TypeVar, cast, get_args

import msgspec
import polars as pl

from sciscidata.errors import ChangedFileError, SciSciDataError
from sciscidata.release.release import MANIFEST
from sciscidata.storage.lock import read_steadily
from sciscidata.storage.small_files import parse_json, read_whole
from sciscidata.storage.sums import read_json
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import progress_bar
from sciscirl.errors import PredictionsError, ReleaseError, RunFolderError, SciSciRLError
from sciscirl.lab.analysis.compare import count_answers
from sciscirl.lab.analysis.seen import Judged
from sciscirl.lab.evaluation.results import PREDICTIONS_FILE, measure
from sciscirl.lab.final import FINALS
from sciscirl.lab.report.own_metrics import StatedMetric, find_kept, list_missing, read_judged
from sciscirl.lab.sweep_folder import list_runs
from sciscirl.lab.training.step_watch import list_alarms
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import check_predictions, find_target, read_predictions
from sciscirl.runs.checkpoints import ADAPTER, LOOKS_FILE, count_test_looks, list_evaluations, read_judgement
from sciscirl.runs.logs import CHECKPOINTS_FILE, METRICS_FILE, parse_row, read_lines, read_rows
from sciscirl.runs.prices import Usage, count_tokens
from sciscirl.runs.record import RUN_FILE, find_eval_split, is_supervised, name_facts, name_run, read_facts
from sciscirl.task.papers import (
    CONTEXT,
    LATER,
    TARGETS,
    AsOf,
    Target,
    TargetName,
    list_hidden,
    list_labels,
    short_name,
)
from sciscirl.task.predictions import prediction_schema
from sciscirl.task.release import PartName, read_split
from sciscirl.task.targets import read_own_target

_log = logging.getLogger(__name__)
_JUDGED: Final = {"label_match", "n"}  # what every evaluation has
_LARGEST: Final = 1e300
T = TypeVar("T")
Kind = Literal["rl", "sft", "evaluation", "baseline", "unreadable"]
#: What a user says of an evaluation: it is of the model before training, or after it.
Role = Literal["start", "trained"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One judgement of a model on held-out papers."""

    step: int  # of training, before which it was made; 0 where nothing was trained
    metrics: Mapping[str, float]  # of evaluate.measure; without intervals if read from the log of a run
    predictions: pl.DataFrame | None  # the answers behind them; None if the file is missing or damaged


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRun:
    """A training run or an evaluation, as its folder records it; of an unreadable one only ``problems`` are known."""

    name: str  # of the folder, with as many parents as tell it from the other runs
    kind: Kind
    facts: Mapping[str, Any]  # run.json
    rows: tuple[Mapping[str, float], ...] = ()  # metrics.jsonl, finite numbers only; empty for an evaluation
    evaluations: tuple[Evaluation, ...] = ()  # by step
    usage: Usage | None = None  # tokens; None if not logged
    n_steps: int = 0  # training steps that were logged
    is_finished: bool = False  # the final weights were kept, or it is an evaluation
    is_stopped: bool = False  # ended because the model had collapsed
    n_test_looks: int | None = None  # how often test judged it; None for an evaluation
    role: Role | None = None  # if a user named it
    place: Path | None = None  # its folder
    problems: tuple[str, ...] = ()  # what could not be read
    alarms: tuple[str, ...] = ()  # what was wrong while it trained

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the run was started with."""
        return cast("Mapping[str, Any]", self.facts["settings"])

    @property
    def split(self) -> str:
        """By which papers it was judged; older runs do not say it: test. A predictions file alone says nothing: ""."""
        if not self.settings:
            return ""
        stated = str(self.settings.get("eval_split" if self.kind in {"rl", "sft"} else "split"))
        return stated if stated in get_args(PartName) else "test"

    @property
    def weights(self) -> Mapping[str, Any]:
        """Of which run and ``step`` the weights of an evaluation are; {} where it does not say so."""
        stated = self.settings.get("weights") or self.settings.get("selected")
        return cast("Mapping[str, Any]", stated) if isinstance(stated, Mapping) else {}

    @property
    def withheld(self) -> tuple[str, ...]:
        """The fields of a paper that its prompts did not show. Older runs withheld nothing that came later."""
        if not self._has_prompt:
            return ()
        return list_hidden(self.settings.get("hide") or (), self.settings.get("as_of") or "release")

    @property
    def shown_later(self) -> list[str]:
        """What its prompts showed, and nobody knew at publication."""
        user = self._user
        return [name for name in LATER if name not in self.withheld and ("$record" in user or f"${name}" in user)]

    @property
    def shown_context(self) -> list[str]:
        """What its prompts showed of what papers built on; older runs showed nothing of it."""
        return [name for name in CONTEXT if name in (self.settings.get("show") or ()) or f"${name}" in self._user]

    @property
    def _has_prompt(self) -> bool:
        """Whether its prompts are known. Of a predictions file or another's result they may not be."""
        return self.role is None or bool({"style", "prompt_sha256"} & self.settings.keys())

    @property
    def _user(self) -> str:
        if not self._has_prompt:
            return ""
        prompt = self.settings.get("prompt")
        return str(prompt.get("user")) if isinstance(prompt, Mapping) else "$record"  # that of older runs

    @property
    def last(self) -> Evaluation | None:
        """The last evaluation."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def target(self) -> Target:
        """The task, by the predictions, else by the settings; older runs name none: disruption."""
        for evaluation in self.evaluations:
            if evaluation.predictions is not None:
                return find_target(evaluation.predictions)
        return _read_target(self.settings)

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Which labels are asked for, by name, and the classes of each: disruption, novelty, both, or an own one."""
        return {short_name(column): classes for column, classes in list_labels(self.target).items()}

    @property
    def state(self) -> str:
        """How far it got, in words."""
        if self.kind == "unreadable":
            return "not readable"
        if self.kind in {"evaluation", "baseline"}:
            return "evaluated" if self.evaluations else "no evaluation"
        steps = f"{self.n_steps:,} step{'' if self.n_steps == 1 else 's'}"
        if self.is_stopped:
            return f"stopped after {steps}: class collapse"
        if not self.rows and (self.is_finished or (self.last is not None and self.last.step)):
            return f"{METRICS_FILE} is missing or empty"
        state = f"finished after {steps}" if self.is_finished else (
            f"not finished, {steps} so far" if self.n_steps else "no step taken yet"
        )  # fmt: skip
        if not self.evaluations:
            return f"{state}; no evaluation"
        if self.evaluations[-1].step == 0:
            return f"{state}; evaluated only before training"
        return state


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeated:
    """Runs that differ in nothing but the seed; often only one."""

    name: str
    runs: Mapping[int, RecordedRun]  # by seed


def expand_folders(folders: Iterable[Path]) -> list[Path]:
    """Put the runs of a sweep in place of its folder, and a release's baselines in place of theirs."""
    return [place for folder in folders for place in _expand(folder)]


def _expand(folder: Path) -> list[Path]:
    if (folder / RUN_FILE).exists():
        return [folder]
    return (
        list_runs(folder)
        or [one.parent for one in sorted(folder.glob(f"*/{RUN_FILE}")) if _is_of_baseline(one)]
        or [folder]
    )


def _is_of_baseline(path: Path) -> bool:
    try:
        return "baseline" in cast("dict[str, Any]", read_json(path))["settings"]
    except (OSError, ValueError, LookupError, TypeError):
        return False


def read_runs(folders: Sequence[Path]) -> list[RecordedRun]:
    """Read folders of runs, sweeps and evaluations, and their final ones; an error only if none can be read."""
    folders = expand_folders(folders)
    named = {folder.resolve() for folder in folders}
    if len(named) < len(folders):
        raise RunFolderError("a run is given twice. Give each once.")
    runs: list[RecordedRun] = []
    errors: list[SciSciDataError] = []

    def read(folder: Path, name: str) -> RecordedRun:
        try:
            return read_run(folder, name)
        except (RunFolderError, ChangedFileError) as error:
            if not folder.is_dir():
                raise
            errors.append(error)
            _log.warning("%s is left out: %s", name, error)
            problem = str(error).replace(f"{folder}/", "").replace(str(folder), "it")
            return RecordedRun(name=name, kind="unreadable", facts={"settings": {}, "release": {}}, problems=(problem,))

    with progress_bar("read runs", total=len(folders), unit="runs") as advance:
        for folder, name in zip(folders, name_folders(folders), strict=True):
            runs.append(read(folder, name))
            for part in FINALS:
                final = folder / part
                if (final / RUN_FILE).is_file() and final.resolve() not in named:
                    run = read(final, f"{name}, {part}")
                    runs.append(replace(run, name=f"{run.name}, step {run.weights.get('step', 'unknown')}"))
            advance(1)
    if len(errors) == len(runs):
        raise errors[0]
    return runs


def find_repeated(runs: Iterable[RecordedRun]) -> list[Repeated]:
    """Put runs together that differ in nothing but the seed, and their final evaluations; baselines are left out.

    For weights that runs started from, only how they were trained counts. Evaluations with the same role are seeds.
    """
    groups: dict[str, dict[int, RecordedRun]] = {}
    of_training: tuple[str, int, str] = ("", 0, "")  # name, seed and group of the run before
    for run in runs:
        if run.kind in {"baseline", "unreadable"}:
            continue
        name, seed, key = of_training
        if run.role is not None:
            key, seed = run.role, len(groups.get(run.role, {}))
        elif part := _part_of(run, name):
            key += part
        else:
            kept = {one: value for one, value in run.settings.items() if one not in {"seed", "load_checkpoint"}}
            start: Any = run.facts.get("begun_from") or {}
            begun = [start.get("kind"), start.get("step")] if start.get("kind") else run.settings.get("load_checkpoint")
            key = json.dumps([run.kind, kept, begun, run.facts.get("release")], sort_keys=True, default=str)
            stated = run.settings.get("seed")
            seed = stated if isinstance(stated, int) else 0
            of_training = (run.name, seed, key)
        key = next((each for each in (key, f"{key} {run.name}") if seed not in groups.get(each, {})), "")
        groups.setdefault(key, {})[seed] = run
    return [Repeated(name=_name_repeated([*seeds.values()]), runs=seeds) for seeds in groups.values()]


def _part_of(run: RecordedRun, name: str) -> str:
    """Return ``final`` or ``last`` if this is that evaluation of the run with a name, else ""."""
    return next((part for part in FINALS if run.name.startswith(f"{name}, {part}, step ")), "")


def _name_repeated(runs: Sequence[RecordedRun]) -> str:
    parents = {PurePosixPath(run.name).parent.as_posix() for run in runs}
    if len(runs) == 1 or len(parents) > 1 or parents == {"."}:
        return ", ".join(run.name for run in runs)
    parts = [part for run in runs for part in PurePosixPath(run.name).name.split(", ")[1:]]  # final, step 2
    return ", ".join(dict.fromkeys([parents.pop(), *parts]))


def judge_baselines(release: Path, run: RecordedRun) -> dict[str, Judged]:
    """Let the baselines judge the papers of a run; none, with a warning, if they cannot learn from the release."""
    from sciscirl.lab.analysis.baselines import run_baselines

    if run.last is None or run.last.predictions is None:
        return {}
    try:
        return run_baselines(release, run.last.predictions, run.settings)
    except SciSciRLError as error:
        _log.warning("no baseline stands beside %s: %s", run.name, error)
        return {}


def hash_release(release: Path) -> str:
    """Return the SHA-256 of the manifest of a release, by which runs name it (ReleaseError: it is none)."""
    try:
        return hashlib.sha256(read_steadily(release, partial(read_whole, release / MANIFEST))).hexdigest()
    except OSError as error:
        read_split(release, "test", needs=())  # says what is the matter with it
        raise ReleaseError(f"{release / MANIFEST} cannot be read: {error.strerror}.") from error


def find_papers(run: RecordedRun) -> str | None:
    """Return what evaluations need in common to be compared; None without predictions, or with more to some papers."""
    table = run.last.predictions if run.last else None
    if table is None or "openalex_id" not in table.columns:
        return None
    if count_answers(table) * table["openalex_id"].n_unique() != len(table):
        return None
    papers = table["openalex_id"].unique().sort().to_list()
    return json.dumps([run.target, run.facts["release"], run.split, papers], default=str)


def name_folders(folders: Sequence[Path]) -> list[str]:
    """Name folders by the fewest last parts of their paths that differ; the folder of a seed never alone.

    Example:
        >>> name_folders([Path("a/exp4"), Path("b/exp4"), Path("b/exp5")])
        ['a/exp4', 'b/exp4', 'exp5']
    """
    parts = [folder.resolve().parts for folder in folders]
    names: list[str] = []
    for own in parts:
        depth = name_run(Path(*own)).count("/") + 1
        while sum(other[-depth:] == own[-depth:] for other in parts) > 1 and depth < len(own):
            depth += 1
        names.append(Path(*own[-depth:]).as_posix())
    return names


def read_run(folder: Path, name: str) -> RecordedRun:
    """Read one folder; see ``read_runs``."""
    facts = _read_facts(folder)
    settings = facts["settings"]
    problems: list[str] = []
    rows = _read_log(folder / METRICS_FILE, problems)
    is_training = (folder / METRICS_FILE).exists() or "learning_rate" in settings
    split = find_eval_split(folder)
    steps = [row for row in rows if any(name == "progress" or name.startswith(("env/", "train_")) for name in row)]
    kind: Kind = "sft" if is_supervised(settings) else "rl"
    if not is_training:
        kind = "baseline" if "baseline" in settings else "evaluation"
    checkpoints = _try(lambda: read_rows(folder / CHECKPOINTS_FILE), CHECKPOINTS_FILE, [], [])
    return RecordedRun(
        name=name,
        kind=kind,
        facts=facts,
        rows=tuple({key: value for key, value in row.items() if not key.startswith(f"{split}/")} for row in steps),
        evaluations=tuple(
            _read_steps(folder, rows, split, facts, problems) if is_training else _read_single(folder, facts, problems)
        ),
        usage=_count_tokens(folder, steps, split, problems),
        n_steps=len({row.get("step") for row in steps}),
        is_finished=not is_training
        or (folder / ADAPTER).is_dir()
        or any(row.get("name") == "final" for row in checkpoints),
        is_stopped=any(row.get("collapse_stop") for row in rows),
        n_test_looks=_try(lambda: count_test_looks(folder), LOOKS_FILE, problems, None) if is_training else None,
        problems=tuple(problems),
        place=folder,
        alarms=list_alarms(_try(lambda: read_rows(folder / METRICS_FILE), METRICS_FILE, [], [])),
    )


class _Settings(msgspec.Struct):
    name: str | None = None
    preset: str | None = None
    model: str | None = None
    backend: str | None = None
    baseline: str | None = None
    split: str | None = None
    eval_split: str | None = None
    target: str = "disruption"  # older runs name none
    own_label: Any = None
    hide: list[str] = []
    show: list[str] = []
    as_of: AsOf = "release"


class _Facts(msgspec.Struct):
    settings: _Settings
    release: dict[str, Any]
    versions: dict[str, Any] | None = None
    begun_from: dict[str, Any] | None = None
    release_folder: str | None = None
    ceiling: dict[str, float] | None = None
    commit: str | None = None
    date: str | None = None
    metrics: list[StatedMetric] = []


def _read_facts(folder: Path) -> dict[str, Any]:
    facts = read_facts(folder)
    if facts["settings"].get("target", "") is None:
        raise RunFolderError(f"{folder} is a run of the cookbook on another environment. Leave this run out.")
    try:
        settings = msgspec.convert(facts, _Facts).settings
        if settings.own_label is not None:
            read_own_target(settings.own_label)
        elif settings.target not in TARGETS:
            raise ValueError(f"settings.target needs to be one of {', '.join(TARGETS)}")
    except (ValueError, TypeError) as error:  # msgspec's own errors are of these
        raise RunFolderError(f"{name_facts(folder)} is damaged: {error}. Leave this run out.") from error
    return facts


def _try(read: Callable[[], T], name: str, problems: list[str], default: T) -> T:
    """Read a file; where that fails, note why. A file that is not there is no problem."""
    try:
        return read()
    except FileNotFoundError:
        pass
    except (PredictionsError, ChangedFileError) as error:
        problems.append(f"{name}: {error}")
    except OSError as error:
        problems.append(f"{name}: {error.strerror}; left out")
    return default


def _read_log(path: Path, problems: list[str]) -> list[dict[str, float]]:
    """Read the finite numbers of each row of a log; of a repeated step, the later row wins."""
    by_step: dict[float | None, dict[str, float]] = {}
    n_damaged = 0
    for line in _try(lambda: list(read_lines(path)), path.name, problems, []):
        row = parse_row(line)
        if row is None:  # the line that a killed run was writing
            n_damaged += 1
            continue
        numbers = _numbers(row)
        step = numbers.get("step")
        by_step[step] = by_step.get(step, {}) | numbers
    if n_damaged:
        problems.append(f"{path.name}: {counted(n_damaged, 'damaged line')} left out")
    return [by_step[step] for step in sorted(by_step, key=lambda step: -1.0 if step is None else step)]


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Keep finite numbers that fit a float."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, int | float) and -_LARGEST <= value <= _LARGEST  # False of NaN
    }


def _read_steps(
    folder: Path, rows: Iterable[Mapping[str, float]], split: str, facts: Mapping[str, Any], problems: list[str]
) -> Iterable[Evaluation]:
    """Read the evaluations of a training run from their predictions, else from its log."""
    missing = list_missing(facts)
    logged = {int(row["step"]): judged for row in rows if "step" in row and (judged := read_judgement(row))}
    files = list_evaluations(folder, split)
    tables = {} if files else _read_rollouts(folder, _read_target(facts["settings"]))
    last = max(logged.keys() | files.keys() | tables.keys(), default=None)
    for step in sorted(logged.keys() | files.keys() | tables.keys()):
        table = _read_predictions(files[step], problems) if step in files else tables.get(step)
        make = measure if step == last else measure_predictions  # only the last one has intervals, which take time
        kept = logged.get(step, {})
        metrics = kept if table is None else find_kept(missing, kept) | make(table)
        if metrics.keys() >= _JUDGED:
            yield Evaluation(step=step, metrics=metrics, predictions=table)


def _read_target(settings: Mapping[str, Any]) -> Target:
    if settings.get("own_label") is not None:
        return read_own_target(settings["own_label"])
    return cast("TargetName", settings.get("target", "disruption"))


def _read_rollouts(folder: Path, target: Target) -> dict[int, pl.DataFrame]:
    """Read the answers that the cookbook's own evaluator wrote of our environments, by step."""
    schema, tables = prediction_schema(target), dict[int, pl.DataFrame]()
    for path in sorted(folder.glob("iteration_*/eval_*_rollout_summaries.jsonl")):
        with suppress(PredictionsError, LookupError, TypeError, pl.exceptions.PolarsError):  # of other environments
            logs = [rollout["steps"][-1]["logs"] for rollout in read_rows(path)]
            rows = pl.DataFrame([{name: log.get(name) for name in schema} for log in logs], schema=schema)
            tables[int(path.parent.name.rpartition("_")[2])] = check_predictions(rows)
    return tables


def _read_single(folder: Path, facts: Mapping[str, Any], problems: list[str]) -> Iterable[Evaluation]:
    file = folder / PREDICTIONS_FILE
    if (table := _read_predictions(file, problems)) is not None:
        kept = find_kept(missing, read_judged(file, folder)) if (missing := list_missing(facts)) else {}
        yield Evaluation(step=0, metrics=kept | measure(table), predictions=table)


def _read_predictions(path: Path, problems: list[str]) -> pl.DataFrame | None:
    own: list[str] = []
    table = _try(lambda: read_predictions(path), path.name, own, None)
    problems += [problem.replace(str(path), "it") for problem in own]
    return table


def _count_tokens(folder: Path, steps: Sequence[Mapping[str, float]], split: str, problems: list[str]) -> Usage | None:
    """Add up the logged tokens: training by step, evaluations by answer."""
    usage = sum(map(count_tokens, steps), Usage(prefill=0, sample=0, train=0))
    for path in sorted(folder.glob(f"iteration_*/eval_{split}_rollout_summaries.jsonl")):
        shown = f"{path.parent.name}/{path.name}"
        for line in _try(lambda path=path: list(read_lines(path)), shown, problems, []):
            try:
                taken = [(int(step["ob_len"]), int(step["ac_len"])) for step in parse_json(line)["steps"]]
            except (ValueError, KeyError, TypeError, OverflowError):
                problems.append(f"{shown}: a damaged line left out")
                continue
            read, sampled = (sum(column) for column in zip(*taken, strict=True)) if taken else (0, 0)
            usage += Usage(prefill=read, sample=sampled, train=0)
    return usage if usage.prefill or usage.train else None
