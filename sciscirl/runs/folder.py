"""The folder of a run: its lock, its record ``run.json``, its logs and checkpoints."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import platform
import re
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from sciscidata.errors import StorageError
from sciscidata.options.checks import is_whole, show_value
from sciscidata.release.release import MANIFEST
from sciscidata.storage import path_inside, real_path, refuse_special
from sciscidata.storage.disk_errors import errors_about
from sciscidata.storage.lock import hold_folder
from sciscidata.storage.paths import remove_folder
from sciscidata.storage.replaced import read_steadily
from sciscidata.storage.small_files import parse_json, read_whole
from sciscidata.storage.sums import check_sealed, is_listed, read_json, remove_sealed, seal_file, sealed_file
from sciscirl.envs.models import ADAPTER_FILES
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.task.registry import PLUGINS
from sciscirl.task.release import EVAL_SPLITS, EvalSplit

if TYPE_CHECKING:
    from tinker_cookbook.checkpoint_utils import CheckpointRecord
    from tinker_cookbook.stores.training_store import TrainingRunStore

RUN_FILE: Final = "run.json"
METRICS_FILE: Final = "metrics.jsonl"
#: The configuration that the cookbook's own loops write.
COOKBOOK_FILE: Final = "config.json"
CHECKPOINTS_FILE: Final = "checkpoints.jsonl"
#: One line for each time that the run was judged by test after training.
LOOKS_FILE: Final = "test_looks.jsonl"
#: Files that the cookbook's loops add lines to.
LOGS: Final = (METRICS_FILE, CHECKPOINTS_FILE)
#: Largest log that is read; a step takes some KB, so this is tens of thousands of steps.
LOG_BYTES: Final = 256 << 20
#: The folder of a trained adapter within that of its run.
ADAPTER: Final = "adapter"
#: End of the message of a failure after which a run can be resumed.
RESUME_HINT: Final = " The run goes on from its last checkpoint: resume=True."
#: What a resumed run must have in common with its beginning.
_FIXED: Final = ("release", "settings")
_PACKAGES: Final = (
    "sciscidata", "tinker", "tinker-cookbook", "torch", "transformers", "tokenizers", "peft", "accelerate",
    "trl", "bitsandbytes", "polars", "scikit-learn",
)  # fmt: skip
_log = logging.getLogger(__name__)
_DEPTH: Final = 4  # way to train / seed / checkpoints / checkpoint-50


@contextmanager
def locked_folder(
    folder: Path, *, user: str = "run", option: str = "log_path", error: type[SciSciRLError] = SciSciRLError
) -> Generator[None]:
    """Lock a folder, but no release, by its file ``.lock``, made if needed; messages name ``user`` and ``option``."""
    refuse_release(folder, option, error)
    in_use = f"{folder} is in use by another {user}. Stop it or wait for its end, or choose another {option}."
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_links(folder, option, error)
            stack.enter_context(hold_folder(folder, error(in_use)))
        except StorageError:
            raise
        except OSError as caught:
            raise error(_no_place(folder, caught, option)) from caught
        yield


def _refuse_links(folder: Path, option: str, error: type[SciSciRLError]) -> None:
    """Refuse a folder with links out of it, pipes or devices, as deep as anything is written there."""
    home = real_path(folder)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            refuse_special(path)
            if path.is_symlink() and not real_path(path).is_relative_to(home):
                raise error(
                    f"{path} is a link that leads out of {folder}, so that what is written there would land elsewhere. "
                    f"Remove the link, or choose another {option}."
                )
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = [name for name in folders if depth + 1 < _DEPTH and not name.startswith(".")]


def refuse_release(folder: Path, option: str, error: type[SciSciRLError] = SciSciRLError) -> None:
    """Make sure that nothing is written into a release; arguments as for ``locked_folder``."""
    try:
        is_release = (folder / MANIFEST).exists()
    except OSError as caught:  # a name that is too long, or a folder above that may not be read
        raise error(_no_place(folder, caught, option)) from caught
    if is_release:
        raise error(f"{folder} is a release, which nothing is added to. Choose another {option}.")


def _no_place(folder: Path, caught: OSError, option: str) -> str:
    return f"{folder} cannot be written: {caught.strerror}. Choose another {option}."


def begin_run(
    folder: Path,
    release: Path,
    settings: Mapping[str, Any],
    *,
    resume: bool,
    steps_per_epoch: int = 0,
    begun_from: Mapping[str, Any] | None = None,
    find: Callable[[Path], CheckpointRecord | None] | None = None,
    n_steps: int | None = None,
) -> int | None:
    """Write ``run.json`` into a new folder, or check that the run there is the same one. Return the first step.

    On resuming, metrics and rollouts after the last checkpoint (of ``find``) and half-written lines are dropped. The
    answers by which its weights were judged stay. ``settings`` are everything that decides what the run does.
    ``steps_per_epoch`` is of a loop that numbers steps in each epoch from 0. A resumed run keeps its ``begun_from``.
    None: it has taken all ``n_steps`` and was judged. Then nothing is changed, and the log says so.
    """
    facts = plan_run(folder, release, settings, resume=resume)
    if facts is not None:
        write_json(folder / RUN_FILE, facts | ({"begun_from": dict(begun_from)} if begun_from else {}))
        return 0
    # The cookbook's loops read this file themselves, and stumble over half a line.
    keep_rows(folder / CHECKPOINTS_FILE, _is_checkpoint)
    checkpoint = (find or find_checkpoint)(folder)
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


def plan_run(folder: Path, release: Path, settings: Mapping[str, Any], *, resume: bool) -> dict[str, Any] | None:
    """Describe a run that would begin in a folder; None if the same run is there and goes on. Writes nothing."""
    refuse_release(folder, "log_path")
    facts = describe_run(release, settings)
    path = folder / RUN_FILE
    if not path.exists():
        if (folder / METRICS_FILE).exists() or (folder / CHECKPOINTS_FILE).exists():
            raise SciSciRLError(f"{folder} holds a run of something else. Choose another log_path.")
        return facts
    if not resume:
        raise SciSciRLError(f"{folder} holds a run. Go on with it: resume=True. Or choose another log_path.")
    older = read_facts(folder)
    for section in _FIXED:
        for name in facts[section]:
            if older[section].get(name) != facts[section][name]:
                changed = say_changed(name, older[section].get(name), facts[section][name])
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
    """Describe a run in JSON types: settings, plugins, the release's SHA-256, the day, commit and versions."""
    manifest = read_steadily(release, partial(read_whole, release / MANIFEST))
    return {
        "settings": dict(settings),
        **({"plugins": PLUGINS.copy()} if PLUGINS else {}),
        "release": {"manifest_sha256": hashlib.sha256(manifest).hexdigest()},
        "release_folder": release.name,
        # of the whole split: an evaluation by chosen papers (ids) has another one; ids of training change nothing
        "ceiling": None
        if {"split", "ids_sha256"} <= settings.keys()
        else cast("dict[str, Any]", parse_json(manifest)).get("ceiling"),
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
    return sections


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


def expand_home(path: str) -> Path:
    """Return the folder that a setting names, with ``~`` expanded."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SciSciRLError(f"{path!r}: there is no such home. Write the folder out.") from error


def find_checkpoint(folder: Path, key: str = "state_path") -> CheckpointRecord | None:
    """Return the last checkpoint that has ``state_path`` (to resume) or ``sampler_path`` (to sample), or None."""
    return next((record for record in reversed(read_checkpoints(folder)) if record.has(key)), None)


def read_checkpoints(folder: Path) -> list[CheckpointRecord]:
    """Read the checkpoints of a run, oldest first; unreadable lines are skipped."""
    from tinker_cookbook.checkpoint_utils import CheckpointRecord  # loads torch, which reading does not need

    return [CheckpointRecord.from_dict(row) for row in read_rows(folder / CHECKPOINTS_FILE) if _is_checkpoint(row)]


def _is_checkpoint(row: Mapping[str, Any]) -> bool:
    texts, numbers = (row.get("state_path"), row.get("sampler_path")), (row.get("batch"), row.get("epoch"))
    return (
        isinstance(row.get("name"), str)
        and all(isinstance(text, str | None) for text in texts)
        and all(number is None or is_whole(number) for number in numbers)
    )


def find_weights(folder: Path, record: CheckpointRecord) -> Path | None:
    """Return the folder of a checkpoint within the run's; None if it lies on a server."""
    if record.state_path is None or "://" in record.state_path:
        return None
    return path_inside(folder, record.state_path, stated_by=folder / CHECKPOINTS_FILE)


def find_step(folder: Path, record: CheckpointRecord) -> int | None:
    """Return the number of training steps behind a checkpoint; None if its record names none."""
    if not record.epoch:
        return record.batch
    # The cookbook's supervised loop counts batches from 0 again in each epoch.
    rows = [row for row in read_rows(folder / METRICS_FILE) if is_whole(row.get("step")) and is_whole(row.get("epoch"))]
    return 1 + max((row["step"] for row in rows if row["epoch"] < record.epoch), default=-1) + (record.batch or 0)


def list_weights(folder: Path) -> dict[int | None, str]:
    """List the weights to sample from, by training step: a path on the server, or a local adapter's folder."""
    kept: dict[int | None, str] = {}
    for record in read_checkpoints(folder):
        step, here = find_step(folder, record), find_weights(folder, record)
        if record.sampler_path is not None:
            kept[step] = record.sampler_path
        elif here is not None and (here / ADAPTER_FILES[0]).is_file():
            kept[step] = str(here)
    return kept


def open_store(folder: str | Path) -> TrainingRunStore:
    """Return the cookbook's store, which writes a run's records."""
    from tinker_cookbook.stores.storage import LocalStorage  # loads torch, which reading a folder does not need
    from tinker_cookbook.stores.training_store import TrainingRunStore

    return TrainingRunStore(LocalStorage(folder))


def read_answers(folder: Path, step: int) -> list[dict[str, Any]]:
    """Read what the environments logged of the answers of a training step."""
    return [rollout["steps"][-1]["logs"] for rollout in read_rows(find_rollouts(folder, step))]


def is_judged(folder: Path, step: int | None) -> bool:
    """Say whether a run logged an evaluation of this step."""
    return any(row.get("step") == step and read_judgement(row) for row in read_rows(folder / METRICS_FILE))


def is_over(folder: Path) -> bool:
    """Say whether a run has its final weights and was judged with them, or was ended by a collapse."""
    rows = read_rows(folder / METRICS_FILE)
    if any(row.get("collapse_stop") for row in rows):
        return True
    final = find_checkpoint(folder, "sampler_path") or find_checkpoint(folder)
    if final is None or not (final.name == "final" or (folder / ADAPTER).is_dir()):
        return False
    return is_judged(folder, find_step(folder, final))


def read_judgement(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of an evaluation in a row of ``metrics.jsonl``, without the name of the split; {} if none."""
    for split in EVAL_SPLITS:
        if f"{split}/label_match" in row:
            return {name.removeprefix(f"{split}/"): row[name] for name in row if name.startswith(f"{split}/")}
    return {}


def find_eval_split(folder: Path) -> EvalSplit:
    """Return by which papers a training run was judged; runs that do not say so were judged by test."""
    try:
        stated = read_facts(folder)["settings"].get("eval_split")
    except RunFolderError:
        stated = None
    return stated if stated in EVAL_SPLITS else "test"


def list_evaluations(folder: Path, split: str) -> dict[int, Path]:
    """List the predictions of a run's evaluations by their step, earliest first."""
    pattern = re.compile(rf"{re.escape(split)}_(\d+)\.parquet")
    files = {path: pattern.fullmatch(path.name) for path in sorted((folder / "predictions").glob("*"))}
    return dict(sorted((int(match[1]), path) for path, match in files.items() if match))


def note_test_look(folder: Path, **facts: object) -> int:
    """Write down that a run was judged by test outside its own evaluations. Return how often it was so far."""
    looks = [*read_rows(folder / LOOKS_FILE), facts]
    _write(folder / LOOKS_FILE, "".join(json.dumps(look) + "\n" for look in looks))
    return count_test_looks(folder)


def count_test_looks(folder: Path) -> int:
    """Count how often a run was judged by test: by its own evaluations, and by those that ``note_test_look`` noted."""
    return len([*(folder / "predictions").glob("test_*.parquet")]) + len(read_rows(folder / LOOKS_FILE))


def find_ceiling(predictions: Path) -> dict[str, float] | None:
    """Return the ceiling of the labels that the run or evaluation of a predictions file states; None: not known."""
    for folder in (predictions.parent, predictions.parent.parent):
        try:
            return msgspec.convert(read_facts(folder).get("ceiling"), dict[str, float] | None)
        except (RunFolderError, msgspec.ValidationError):
            continue
    return None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the objects in a file of JSON lines; skips half-written lines, and a missing file is empty."""
    try:
        rows = map(parse_row, read_lines(path))
    except FileNotFoundError:
        return []
    return [row for row in rows if row is not None]


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of a log of at most LOG_BYTES; a ChangedFileError if it was changed since it was sealed."""
    if path.name in LOGS or is_listed(path):
        check_sealed(path, grows=path.name in LOGS)
    return (line.decode("utf-8", "replace") for line in io.BytesIO(read_whole(path, LOG_BYTES)))


def parse_row(line: str) -> dict[str, Any] | None:
    """Read a line of JSON; None if it is no object."""
    try:
        row: Any = parse_json(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", row) if isinstance(row, dict) else None


def keep_rows(path: Path, is_kept: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Keep some rows of a file of JSON lines, and return them; half-written lines go."""
    if not path.exists():
        return []
    every = [*read_lines(path)]
    lines: list[str] = []
    rows: list[dict[str, Any]] = []
    for line in every:
        row = parse_row(line)  # None: the line that a killed run was writing
        if row is not None and is_kept(row):
            lines.append(line.rstrip("\r\n") + "\n")
            rows.append(row)
    if lines != every:
        _write(path, "".join(lines))
    return rows


def write_json(path: Path, content: object) -> None:
    """Write a JSON file, whole or not at all, and seal it."""
    _write(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> None:
    with sealed_file(path) as unfinished:
        unfinished.write_text(text, "utf-8")


def find_rollouts(folder: Path, step: int, name: str = "train") -> Path:
    """Return the file with the answers of a step."""
    return folder / f"iteration_{step:06d}" / f"{name}_rollout_summaries.jsonl"


def seal_new(*paths: Path) -> None:
    """Enter files in SHA256SUMS that the cookbook's loops have written, unless they are there or missing."""
    for path in paths:
        if path.is_file() and not is_listed(path):
            seal_file(path)


def seal_logs(folder: Path) -> None:
    """Enter the logs of a run and its last answers, when its loop has ended."""
    for path in (folder / name for name in LOGS):
        if path.is_file():
            seal_file(path)
    seal_new(*folder.glob("iteration_*/*_rollout_summaries.jsonl"))


@contextmanager
def disk_errors(folder: Path) -> Generator[None]:
    """Turn disk errors of a run, also those from the cookbook's loops, into one line."""
    with errors_about(folder, RESUME_HINT):
        try:
            yield
        except RuntimeError as error:
            if "inline_container" not in str(error):
                raise
            # PyTorch's writer of checkpoints, which does not say why.
            raise StorageError(
                f"cannot write {folder}: PyTorch failed at a checkpoint. Is the disk full? Free space.{RESUME_HINT}"
            ) from error
