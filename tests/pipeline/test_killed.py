"""kill -9 at random moments and at chosen ones in every stage: the same command then gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.make_sciscinet import make as make_sciscinet
from sciscidata.release.verify import verify_release

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")]

PROCESSES = multiprocessing.get_context("forkserver")
#: What the stages load in the end, so that each of seventy processes need not.
LOADED = (
    *("cli.main", "pipeline", "stages", "release.verify", "plots._notebook_figure", "sources.synthetic.works"),
    *("graph._kernels", "records._scan_kernels", "disruption._kernels", "disruption._label_kernels"),
    *("novelty._pair_kernels", "novelty._moment_kernels", "novelty._per_work_kernels"),
)
OTHERS = ("numba.np.arraymath", "matplotlib.backends.backend_agg", "tests.pictures")
PROCESSES.set_forkserver_preload([*(f"sciscidata.{name}" for name in LOADED), *OTHERS])
NEVER = -1


def run_watched(home: str, notes: str, touches_left: int, arguments: list[str]) -> None:
    """Run a command that kills itself at its n-th touch of a folder, before it happens.

    Touches are what shows or hides a file: opening it to write, renaming and removing. They are listed in ``notes``.
    """
    from sciscidata.cli.main import main
    from sciscidata.corpus.writer import _PART_ROWS
    from tests.pictures import leave_empty

    leave_empty()
    _PART_ROWS.update({"works": 1 << 10, "citations": 1 << 13})  # several parts of a small world
    errors = os.open(f"{notes}.errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    listed = Path(notes).open("a")  # noqa: SIM115 (until the process ends)

    def watch(event: str, args: tuple[Any, ...]) -> None:
        nonlocal touches_left
        writes = event == "open" and isinstance(args[1], str) and set("wax+") & set(args[1])
        moves = event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree")
        if (writes or moves) and not isinstance(args[0], int) and os.fsdecode(args[0]).startswith(home):
            if touches_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            touches_left -= 1
            listed.write(f"{event}\n")
            listed.flush()

    sys.addaudithook(watch)
    sys.exit(main(arguments))


def start(home: Path, touch: int, *arguments: str) -> BaseProcess:
    """Run a command that writes to ``home`` until a touch; ``NEVER``: to its end. Touches go to a list beside it.

    Each command has a process of its own, forked from one that has loaded the packages.
    """
    process = PROCESSES.Process(target=run_watched, args=(str(home), f"{home}.touches", touch, list(arguments)))
    process.start()
    return process


def end_of(process: BaseProcess, home: Path) -> tuple[int | None, str]:
    """Wait for a process; return how it ended, and what it wrote to stderr."""
    process.join(600)
    return process.exitcode, Path(f"{home}.touches.errors").read_text() if process.exitcode else ""


def finish(home: Path, *arguments: str) -> float:
    began = time.monotonic()
    status, errors = end_of(start(home, NEVER, *arguments), home)
    assert status == 0, errors
    return time.monotonic() - began


def files(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A corpus, tables of SciSciNet and records, to be read by every stage and written by none."""
    home = tmp_path_factory.mktemp("inputs")
    finish(home, "ingest", "--source", "synthetic", "--n-works", "3000", "--out", str(home / "world"))
    make_sciscinet(home / "tables", 3_000, n_bytes=300)
    with gzip.open(home / "records.jsonl.gz", "wt") as file:
        for number in range(1, 2_501):
            record = {
                "id": f"https://openalex.org/W{number}",
                "title": f"On dams {number}",
                "publication_year": 1990 + number // 85,
                "abstract_inverted_index": {"dams": [0], "leak": [1]},
                "referenced_works": [f"https://openalex.org/W{number // k}" for k in (2, 3, 5) if number >= 2 * k],
            }
            file.write(json.dumps(record) + "\n")
    return home


def command(stage: str, inputs: Path, home: Path) -> list[str]:
    """Say how a stage is run; its result goes to ``home / "made"``."""
    (home / "made").mkdir(parents=True, exist_ok=True)
    cache = ["--cache-dir", str(home / "cache")]
    of_corpus = [str(inputs / "world"), *cache, "--out", str(home / "made" / "result.parquet")]
    corpus = ["--out", str(home / "made" / "corpus")]
    return {
        "ingest synthetic": ["ingest", "--source", "synthetic", "--n-works", "3000", *cache, *corpus],
        "ingest records": ["ingest", "--input", str(inputs / "records.jsonl.gz"), *cache, *corpus],
        "ingest sciscinet": ["ingest", "--sciscinet", str(inputs / "tables"), *cache, *corpus],
        "graph": ["graph", str(inputs / "world"), "--cache-dir", str(home / "made")],
        "cd shard": ["cd", *of_corpus, "--shard", "2/3", "--family"],
        "novelty": ["novelty", *of_corpus],
        "background": ["background", "--corpus", *of_corpus, "--overwrite"],
        "export": ["export", "--corpus", str(inputs / "world"), *cache, "--out", str(home / "made" / "labelled")],
        "build": ["build", "--source", "synthetic", "--n-works", "2000", "--n-train", "30", "--n-test", "3", *cache,
                  "--out", str(home / "made" / "slice"), "--overwrite"],
    }[stage]  # fmt: skip


STAGES = (
    "ingest synthetic", "ingest records", "ingest sciscinet", "graph", "cd shard", "novelty", "background",
    "export", "build",
)  # fmt: skip


def moments(stage: str, duration: float, touches: list[str]) -> Iterator[tuple[float | None, int]]:
    """Spread kills over a run: before the last rename, at random touches in either half, and at a random time."""
    draw = random.Random(stage)
    yield None, len(touches) - 1 - touches[::-1].index("os.rename")
    for half in range(2):
        yield None, int((half + draw.random()) / 2 * len(touches))
    yield draw.random() * duration, NEVER
    yield None, len(touches) - 1


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_killed_at_any_moment_completes_with_the_same_bytes(tmp_path, inputs, stage):
    clean, killed = tmp_path / "clean", tmp_path / "killed"
    duration = finish(clean, *command(stage, inputs, clean))
    if stage == "build":  # each further run replaces a release
        (tmp_path / "clean.touches").unlink()
        duration = finish(clean, *command(stage, inputs, clean))
        shutil.copytree(clean, killed)
    touches = (tmp_path / "clean.touches").read_text().split()
    expected = files(clean / "made")
    assert expected
    n_killed = 0
    for seconds, touch in moments(stage, duration, touches):
        process = start(killed, touch, *command(stage, inputs, killed))
        if seconds is not None:
            time.sleep(seconds)
            process.kill()
        status, errors = end_of(process, killed)
        if status == -signal.SIGKILL:
            n_killed += 1
        else:  # so much was done before that it came to its end
            assert status == 0, errors
            assert files(killed / "made") == expected
            if stage != "build":
                shutil.rmtree(killed)
        if (killed / "made" / "slice").exists():
            verify_release(killed / "made" / "slice")
        if (killed / "made" / "labelled").exists():  # whole, and no export writes over another
            made = files(killed / "made")  # with the lock of its temporary folder, if that was not removed yet
            assert {
                name: made[name] for name in made if not re.fullmatch(r"\.labelled\.tmp-[^/]+/lock", name)
            } == expected
            shutil.rmtree(killed / "made")
    finish(killed, *command(stage, inputs, killed))
    assert n_killed >= 2
    assert files(killed / "made") == expected
