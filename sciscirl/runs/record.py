"""The record of a run, ``run.json``: what was run, with which settings, and how it goes on."""

from __future__ import annotations

import hashlib
import logging
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from sciscidata.options.checks import show_value
from sciscidata.release.release import MANIFEST
from sciscidata.storage.lock import read_steadily
from sciscidata.storage.paths import remove_folder
from sciscidata.storage.small_files import parse_json, read_whole
from sciscidata.storage.sums import read_json, remove_sealed
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.metrics.own_metrics import describe_metrics
from sciscirl.presets import UNSTATED
from sciscirl.runs.checkpoints import find_checkpoint, is_checkpoint, is_over
from sciscirl.runs.existing_run import LogdirBehavior, choose_behavior, delete_run, refuse_to_ask, refuse_to_delete
from sciscirl.runs.folder import refuse_release
from sciscirl.runs.logs import CHECKPOINTS_FILE, METRICS_FILE, keep_rows, write_json
from sciscirl.task.plugins import PLUGINS
from sciscirl.task.release import EVAL_SPLITS, EvalSplit

if TYPE_CHECKING:
    from tinker_cookbook.checkpoint_utils import CheckpointRecord

_log = logging.getLogger(__name__)
RUN_FILE: Final = "run.json"
#: The configuration that the cookbook's own loops write.
COOKBOOK_FILE: Final = "config.json"
#: What a resumed run must have in common with its beginning.
_FIXED: Final = ("release", "settings")
_PACKAGES: Final = (
    "sciscidata", "tinker", "tinker-cookbook", "torch", "transformers", "tokenizers", "peft", "accelerate",
    "trl", "bitsandbytes", "polars", "scikit-learn",
)  # fmt: skip


class Course(NamedTuple):
    """What a run starts from, how its steps are counted and where it ends."""

    n_steps: int | None = None
    begun_from: Mapping[str, Any] | None = None
    steps_per_epoch: int = 0  # of a loop that numbers steps in each epoch from 0
    find: Callable[[Path], CheckpointRecord | None] = find_checkpoint  # the last checkpoint of a folder
    load: Callable[[], object] = lambda: None  # what may fail and must not cost an older run


_WITHOUT_END: Final = Course()


def begin_run(
    folder: Path, release: Path, settings: Mapping[str, Any], behavior: LogdirBehavior, course: Course = _WITHOUT_END
) -> int | None:
    """Write ``run.json`` into a new folder, or check that the run there is the same one. Return the first step.

    ``behavior``: what to do with a run that is there; it is deleted only when all options were checked. On resuming,
    metrics and rollouts after the last checkpoint and half-written lines are dropped. The answers by which its weights
    were judged stay. ``settings`` are everything that decides what the run does. A resumed run keeps its
    ``begun_from``. None: it has taken all ``n_steps`` and was judged. Then nothing is changed, and the log says so.
    """
    n_steps, begun_from, steps_per_epoch, find, load = course
    if (folder / RUN_FILE).exists():
        behavior = choose_behavior(folder, behavior)
    facts = plan_run(folder, release, settings, behavior)
    if facts is not None:
        if (folder / RUN_FILE).exists():
            load()
            delete_run(folder)
        write_json(folder / RUN_FILE, facts | ({"begun_from": dict(begun_from)} if begun_from else {}))
        return 0
    # The cookbook's loops read this file themselves, and stumble over half a line.
    keep_rows(folder / CHECKPOINTS_FILE, is_checkpoint)
    checkpoint = find(folder)
    step = (checkpoint.epoch or 0) * steps_per_epoch + (checkpoint.batch or 0) if checkpoint else 0
    if n_steps is not None and step >= n_steps and is_over(folder):
        _log.warning(
            "%s has ended after %s of %s steps: nothing is left to do, and nothing is changed", folder, step, n_steps
        )
        return None

    def is_kept(row: Mapping[str, Any]) -> bool:
        taken = row.get("step")
        return taken is None or (isinstance(taken, int | float) and taken < step)

    keep_rows(folder / METRICS_FILE, is_kept)
    for answers in folder.glob("iteration_*"):
        if answers.name == f"iteration_{step:06d}" and any(answers.glob("eval_*")):
            for path in answers.glob("train*"):
                remove_sealed(path)
        elif answers.name >= f"iteration_{step:06d}":
            remove_folder(answers)
    for path in (folder / "predictions").glob("*_*.parquet"):
        judged = path.stem.rpartition("_")[2]
        if judged.isdecimal() and int(judged) > step:  # of weights that are gone
            remove_sealed(path)
    return step


def plan_run(
    folder: Path, release: Path, settings: Mapping[str, Any], behavior: LogdirBehavior
) -> dict[str, Any] | None:
    """Describe a run that would begin in a folder; None if the same run is there and goes on. Writes nothing."""
    refuse_release(folder, "log_path")
    facts = describe_run(release, settings)
    path = folder / RUN_FILE
    if not path.exists():
        if (folder / METRICS_FILE).exists() or (folder / CHECKPOINTS_FILE).exists():
            raise SciSciRLError(f"{folder} holds a run of something else. Choose another log_path.")
        return facts
    if behavior == "raise":
        raise SciSciRLError(
            f"{folder} holds a run. Go on with it: behavior_if_log_dir_exists=resume (delete: begin anew). Or choose "
            "another log_path."
        )
    if behavior != "resume":
        (refuse_to_ask if behavior == "ask" else refuse_to_delete)(folder)
        return facts
    older = read_facts(folder)
    for section in _FIXED:
        for name in facts[section]:
            before = older[section].get(name, {**UNSTATED, "n_processes": 1}.get(name))
            if before != facts[section][name]:
                changed = say_changed(name, before, facts[section][name])
                raise SciSciRLError(
                    f"{folder} was begun {changed}. Resume with what it was begun with, or choose another log_path."
                )
    return None


def say_changed(name: str, older: object, newer: object) -> str:
    """Say with which value something was begun, and which it has now.

    Example:
        >>> say_changed("seed", 0, 1), say_changed("n_train", None, 50), say_changed("n_train", 50, None)
        ('with seed=0, not seed=1', 'without n_train=50', 'with n_train=50, which is missing now')
    """
    if older is None:
        return f"without {name}={show_value(newer)}"
    now = "which is missing now" if newer is None else f"not {name}={show_value(newer)}"
    return f"with {name}={show_value(older)}, {now}"


def describe_run(release: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a run in JSON types: settings, plugins, own metrics, release's SHA-256, day, commit and versions."""
    manifest = read_steadily(release, partial(read_whole, release / MANIFEST))
    stated = cast("dict[str, Any]", parse_json(manifest))
    file = stated.get("files", {}).get(f"{settings.get('split')}.jsonl")
    return {
        "settings": dict(settings),
        **({"plugins": PLUGINS.copy()} if PLUGINS else {}),
        **({"metrics": metrics} if (metrics := describe_metrics()) else {}),
        "release": {"manifest_sha256": hashlib.sha256(manifest).hexdigest()},
        "release_folder": release.name,
        # of the whole split: an evaluation by chosen papers (ids) has another one; ids of training change nothing
        "ceiling": None if {"split", "ids_sha256"} <= settings.keys() else stated.get("ceiling"),
        **({"split_sha256": file["sha256"]} if file else {}),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": find_commit(),
        "versions": {name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
    }


def find_commit() -> str | None:
    """Return the commit of this code, with ``+changes`` if it was edited since; None outside a checkout."""
    here = Path(__file__).resolve().parents[1]  # sciscirl

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != here.parent:  # installed below some other project
            return None
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def name_facts(folder: Path) -> Path:
    """Return the file that says what was run: ``run.json``, or in a folder of the cookbook's own loop its own."""
    own = folder / RUN_FILE
    return own if own.exists() else folder / COOKBOOK_FILE


def read_facts(folder: Path) -> dict[str, Any]:
    """Read ``run.json`` of a run, with its settings and release, or ``config.json`` of the cookbook's own loop."""
    path = folder / RUN_FILE
    try:
        facts: Any = read_json(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        if facts := _read_cookbook(folder):
            return facts
        if not folder.exists():
            raise RunFolderError(f"{folder} does not exist. Check the path.") from error
        raise RunFolderError(
            f"{folder} is not the folder of a run: it has no {RUN_FILE}, and no {COOKBOOK_FILE} of the cookbook. Give "
            "the log_path of a training run, or the folder of an evaluation."
        ) from error
    except (OSError, ValueError):
        facts = None
    sections = cast("dict[str, Any]", facts if isinstance(facts, dict) else {})
    start = sections.get("begun_from") or {"path": ""}
    is_whole = all(isinstance(sections.get(name), dict) for name in ("settings", "release"))
    if not is_whole or not isinstance(start, dict) or not isinstance(start.get("path"), str):
        raise RunFolderError(
            f"{path} is damaged: it does not say what was run. Put back the file as it was, or choose another folder; "
            f"the weights of a run are those that {CHECKPOINTS_FILE} names."
        )
    name_anew(sections["settings"])
    return sections


def name_anew(settings: dict[str, Any]) -> None:
    """Give settings of runs before 2026-12 their names of today."""
    reference, n_parts = settings.pop("kl_reference", None), settings.pop("num_minibatches", None)
    if (discount := settings.pop("kl_discount", None)) is not None:
        settings["kl_discount_factor"] = discount
    if reference not in (None, "base"):
        settings["kl_reference_config"] = {"load_checkpoint_path": reference}
    if n_parts is not None:
        settings["stream_minibatch_config"] = {"num_minibatches": n_parts}


#: Of our builder. Before it had parts, their settings stood beside its own.
_PARTS: Final = ("task", "order", "choice")


def _read_cookbook(folder: Path) -> dict[str, Any] | None:
    """Read the facts of a run from the cookbook's ``config.json``, if any; ``target`` is None without our builder."""
    try:
        config = cast("dict[str, Any]", read_json(folder / COOKBOOK_FILE))
        papers: dict[str, Any] = config["dataset_builder"]
        papers = papers.get("papers", papers)  # of supervised training
        papers = papers | {name: value for part in _PARTS for name, value in papers.get(part, {}).items()}
        model = {"name": "cookbook", "model": config["model_name"], "learning_rate": config["learning_rate"]}
        target = papers.get("target")
        own = {name: target["label"][name] for name in ("name", "classes")} if isinstance(target, dict) else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    manifest = Path(str(papers.get("release"))) / MANIFEST
    kept = ("lora_rank", "max_tokens", "temperature", "renderer_name")
    settings: dict[str, Any] = {name: config[name] for name in kept if config.get(name) is not None} | papers | model
    settings |= {"renderer": settings.get("renderer_name"), "load_checkpoint": config.get("load_checkpoint_path")}
    settings |= {"prompt": papers.get("own_prompt"), "reward_table": papers.get("own_reward")}
    settings |= {"backend": "tinker"} if "lr_schedule" in config else {}  # of supervised training
    settings |= {"target": own["name"], "own_label": own} if own else {}
    if "release" not in papers:
        return {"settings": settings | {"target": None}, "release": {}}
    release = {"manifest_sha256": hashlib.sha256(read_whole(manifest)).hexdigest()} if manifest.is_file() else {}
    return {"settings": settings, "release": release, "release_folder": manifest.parent.name}


def is_local(settings: Mapping[str, Any]) -> bool:
    """Whether a run was trained in a process of ours, so that its weights lie in its folder."""
    return settings.get("backend") in {"peft", "local"}


def is_supervised(settings: Mapping[str, Any]) -> bool:
    """Whether a run was trained on gold answers."""
    return settings.get("backend") in {"peft", "tinker"}


def is_taught(facts: Mapping[str, Any]) -> bool:
    """Whether gold answers have taught the model of a run (``run.json``): in this run, or in the one before."""
    start: Any = facts.get("begun_from")
    return is_supervised(facts["settings"]) or (isinstance(start, Mapping) and start.get("kind") == "sft")


def name_run(folder: Path) -> str:
    """Name a run's folder by the last part of its path; one named after a seed, by the last two."""
    return "/".join(folder.parts[-2 if re.fullmatch(r"seed_\d+", folder.name) else -1 :])


def find_eval_split(folder: Path) -> EvalSplit:
    """Return by which papers a training run was judged; runs that do not say so were judged by test."""
    try:
        stated = read_facts(folder)["settings"].get("eval_split")
    except RunFolderError:
        stated = None
    return stated if stated in EVAL_SPLITS else "test"


def find_ceiling(predictions: Path) -> dict[str, float] | None:
    """Return the ceiling of the labels that the run or evaluation of a predictions file states; None: not known."""
    for folder in (predictions.parent, predictions.parent.parent):
        try:
            return msgspec.convert(read_facts(folder).get("ceiling"), dict[str, float] | None)
        except (RunFolderError, msgspec.ValidationError):
            continue
    return None
