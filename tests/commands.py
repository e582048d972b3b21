"""A process that runs commands of the package one after another, and notes what each writes and removes.

A test gets an answer whatever a command does: a panic, a signal and a hang end this process, not the tests. By hand::

    with Commands() as commands:
        commands.run("verify", folder).status
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
#: A command on some hundred works takes less than a second; so much is left to a busy machine before it counts as hung.
LIMIT_S = float(os.environ.get("SCISCI_COMMAND_LIMIT_S", "180"))
_MEMORY = 5 << 30
_CRASHED = 99
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Events of sys.addaudithook that show, change or remove a file, and where their paths and folders stand.
_EVENTS: dict[str, tuple[tuple[int, int | None], ...]] = {
    "open": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.link": ((1, 3),),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
    "shutil.rmtree": ((0, None),),
    "sqlite3.connect": ((0, None),),
}
_THROUGH_LINKS = ("open", "os.chmod", "os.chown", "os.truncate", "os.utime", "sqlite3.connect")


class Outcome(NamedTuple):
    """How a command ended.

    ``status`` is its exit status; negative: the signal that ended the process; None: it took too long. ``touched`` are
    the paths that Python wrote, made, moved or removed, links on the way to them followed.
    """

    status: int | None
    out: str
    err: str
    touched: list[tuple[str, str]]
    value: Any = None

    @property
    def verdict(self) -> str:
        """Say in a word how it ended: "done", "named error" (in one line), or what should never be."""
        if self.status is None:
            return "hang"
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        if self.status < 0:
            return "killed by a signal"
        if self.status == _CRASHED or "Traceback (most recent" in self.err or "panicked at" in self.err:
            return "traceback"
        if self.status == 0:
            return "done"
        return "named error" if self.status == 1 and len(lines) == 1 else "unclear error"


class Commands:
    """Starts the process when it is needed, and anew when it has died.

    Args:
        environment: further variables of it.
    """

    def __init__(self, **environment: str) -> None:
        self._environment = environment
        self.limit_s = 600.0  # until the first commands have loaded and compiled what they need
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def run(self, *arguments: object, picture: tuple[str, Path, Path] | None = None) -> Outcome:
        """Run ``sciscidata`` with some arguments.

        Args:
            arguments: paths and numbers become text.
            picture: a regular expression of "event path", a folder, and where to copy it the first time that Python is
                about to do this: what is on disk then is what kill -9 would leave.
        """
        return self._ask({"arguments": [str(one) for one in arguments], "picture": picture and [*map(str, picture)]})

    def call(self, function: Callable[..., Any], *arguments: object) -> Outcome:
        """Call a function of this module; ``value`` is what it gives."""
        return self._ask({"call": function.__name__, "arguments": [str(one) for one in arguments]})

    def _ask(self, question: dict[str, Any]) -> Outcome:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        answer, deadline = b"", time.monotonic() + self.limit_s
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.close()
                return Outcome(None, "", "", [])
            piece = os.read(process.stdout.fileno(), 1 << 20)
            if not piece:
                status = process.wait()
                self.close()
                return Outcome(status if status < 0 else _CRASHED, "", "the process ended", [])
            answer += piece
        told = json.loads(answer)
        return Outcome(told["status"], told["out"], told["err"], [tuple(one) for one in told["touched"]], told["value"])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.commands"],
                cwd=REPOSITORY,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "200"} | self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        return self._process


# What the process can be asked besides commands


def rows_of(path: str) -> str:
    """Hash the rows of a Parquet file, or of several in a folder."""
    import polars as pl

    paths = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    return _hash_of(pl.concat([pl.read_parquet(file, glob=False) for file in paths]))


def facts_of(path: str) -> dict[str, Any]:
    """Read what a file of scores says of itself, but for what follows from the report of its corpus as a whole."""
    from sciscidata.corpus.scores import read_score_facts

    return {name: fact for name, fact in read_score_facts(path).items() if name not in ("corpus_sha256", "background")}


def sides_of(folder: str) -> list[str]:
    """Hash both splits of a release, as a notebook reads them."""
    from sciscidata import read_release

    release = read_release(folder)
    return [_hash_of(release.train), _hash_of(release.test)]


def corpus_rows(folder: str) -> list[str]:
    """Hash the tables of a corpus, as a notebook reads them."""
    from sciscidata import scan_corpus

    works, citations, _ = scan_corpus(folder)
    return [_hash_of(works.collect()), _hash_of(citations.collect())]


def background_rows(path: str) -> list[Any]:
    """Hash a background, as a notebook reads it."""
    from sciscidata.novelty.background import read_background

    table = read_background(path)
    return [_hash_of(table.scan().collect()), _hash_of(table.counts), table.null_model]


def pulled(home: str, base_url: str) -> list[Any]:
    """Pull a few works into a store of answers; without an address, from what the store holds already."""
    from sciscidata.disruption.index import CDConfig
    from sciscidata.label_thresholds import LabelThresholds
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.openalex_api.client import OpenAlexClient
    from sciscidata.openalex_api.config import ApiConfig
    from sciscidata.openalex_api.store import ResponseStore
    from sciscidata.sampling.filter import EligibilityConfig
    from sciscidata.sampling.open_quotas import Demand
    from sciscidata.sampling.split import SplitConfig
    from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
    from sciscidata.sources.openalex.source import pull_openalex

    cd, eligibility = CDConfig(), EligibilityConfig(last_year=2024)
    demand = Demand(LabelThresholds(), eligibility, SplitConfig(n_train=12, n_test=3), cd.window_years)
    address = {"base_url": base_url, "requests_per_second": 1e6} if base_url else {"offline": True}
    with ResponseStore(Path(home)) as store, OpenAlexClient(ApiConfig(**address), store) as client:  # type: ignore[arg-type]
        candidates = Candidates.count(client, OpenAlexConfig(candidates_per_round=60), cd, eligibility)
        works, citations, scores, *_ = pull_openalex(client, candidates, cd, demand, NoveltyConfig())
        return [*map(_hash_of, (works, citations, scores)), client.summary().sha256]


def _hash_of(frame: Any) -> str:
    digest = hashlib.sha256(repr(frame.schema).encode())
    digest.update(frame.write_ndjson().encode())
    return f"{frame.height}:{digest.hexdigest()[:32]}"


# The process


class _Watch:
    """Notes what Python does to files, and can copy a folder in the middle of it."""

    def __init__(self) -> None:
        self.touched: list[tuple[str, str]] | None = None
        self.picture: list[str] | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.touched is None or event not in _EVENTS:
            return
        if event == "open" and not (arguments[2] or 0) & _WRITES:
            return
        touched, self.touched = self.touched, None  # what happens here is not noted
        try:
            for place, base in _EVENTS[event]:
                path = _real(event, arguments[place], -1 if base is None else arguments[base])
                if path is not None:
                    touched.append((event, path))
                    if self.picture and re.fullmatch(self.picture[0], f"{event} {path}"):
                        _, folder, target = self.picture
                        self.picture = None
                        shutil.copytree(folder, target, symlinks=True, copy_function=_copy_if_there)
        finally:
            self.touched = touched


def _copy_if_there(source: str, target: str) -> None:
    """Copy a file, unless another thread of the command has renamed it since its folder was listed."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _real(event: str, name: Any, folder: Any) -> str | None:
    """Resolve the links on the way to a file; the file itself too, unless it is the link that is changed."""
    if isinstance(name, int):
        return None
    path = Path(os.fsdecode(name))
    if str(path).startswith(("file:", ":memory:")):
        return None
    if isinstance(folder, int) and folder >= 0:
        path = Path(f"/proc/self/fd/{folder}").readlink() / path
    path = path.absolute()
    if event in _THROUGH_LINKS:
        return os.path.realpath(path)
    return str(Path(os.path.realpath(path.parent), path.name))


def _serve() -> None:
    import resource

    with suppress(ValueError, OSError):  # what is damaged may ask for any amount
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    answers = os.fdopen(os.dup(1), "wb")
    from sciscidata.cli.main import main

    watch = _Watch()
    sys.addaudithook(watch)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        for line in sys.stdin.buffer:
            question: dict[str, Any] = json.loads(line)
            arguments: list[str] = question["arguments"]
            for file in (out, err):
                os.ftruncate(file.fileno(), 0)
                os.lseek(file.fileno(), 0, os.SEEK_SET)
            watch.picture = question.get("picture")
            touched: list[tuple[str, str]] = []
            watch.touched = touched
            status, value = _CRASHED, None
            try:
                if "call" in question:
                    value = _called(question["call"], arguments)
                    status = 0 if value is not None else 1
                else:
                    status = main(arguments)
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 2
            except BaseException:
                traceback.print_exc()
            watch.touched = None
            sys.stdout.flush()
            sys.stderr.flush()
            told = {"status": status, "value": value, "touched": touched}
            for name, file in (("out", out), ("err", err)):
                told[name] = os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")
            answers.write(json.dumps(told).encode() + b"\n")
            answers.flush()


def _called(name: str, arguments: Iterable[str]) -> Any:
    """Call one of the functions above; an error of the package is told as the command tells it."""
    from sciscidata import SciSciDataError

    try:
        return globals()[name](*arguments)
    except SciSciDataError as error:
        sys.stderr.write(f"error: {error}\n")
        return None


if __name__ == "__main__":
    _serve()
