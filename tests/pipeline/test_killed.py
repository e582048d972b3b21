"""kill -9 at random moments and at chosen ones in every stage: the same command then gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.make_sciscinet import make as make_sciscinet

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")]

#: Runs a command that kills itself at its n-th touch of a folder, before it happens. Touches are what shows or hides a
#: file: opening it to write, renaming and removing. They are listed in the file it is given.
PROGRAM = """
import os, signal, sys
listed, home, n = open(sys.argv.pop(1), "a"), sys.argv.pop(1), int(sys.argv.pop(1))

def watch(event, args):
    global n
    writes = event == "open" and isinstance(args[1], str) and set("wax+") & set(args[1])
    moves = event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree")
    if (writes or moves) and not isinstance(args[0], int) and os.fsdecode(args[0]).startswith(home):
        if n == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        n -= 1
        listed.write(event + chr(10))
        listed.flush()

from sciscidata.cli.main import main
import sciscidata.pipeline, sciscidata.stages, sciscidata.cli.summary
sys.addaudithook(watch)
sys.exit(main())
"""
NEVER = -1


def start(home: Path, touch: int, *arguments: str) -> subprocess.Popen[bytes]:
    """Run a command that writes to ``home`` until a touch; ``NEVER``: to its end. Touches go to a list beside it."""
    notes = home.with_name(f"{home.name}.touches")
    program = [sys.executable, "-c", PROGRAM, str(notes), str(home), str(touch), *arguments]
    return subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(home: Path, *arguments: str) -> float:
    began = time.monotonic()
    process = start(home, NEVER, *arguments)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors.decode()
    return time.monotonic() - began


def files(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A corpus, tables of SciSciNet and records, to be read by every stage and written by none."""
    home = tmp_path_factory.mktemp("inputs")
    finish(home, "ingest", "--source", "synthetic", "--n-works", "12000", "--out", str(home / "world"))
    make_sciscinet(home / "tables", 20_000, n_bytes=300)
    with gzip.open(home / "records.jsonl.gz", "wt") as file:
        for number in range(1, 15_001):
            record = {
                "id": f"https://openalex.org/W{number}",
                "title": f"On dams {number}",
                "publication_year": 1990 + number // 500,
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
        "ingest synthetic": ["ingest", "--source", "synthetic", "--n-works", "70000", *cache, *corpus],
        "ingest records": ["ingest", "--input", str(inputs / "records.jsonl.gz"), *cache, *corpus],
        "ingest sciscinet": ["ingest", "--sciscinet", str(inputs / "tables"), *cache, *corpus],
        "graph": ["graph", str(inputs / "world"), "--cache-dir", str(home / "made")],
        "cd": ["cd", *of_corpus],
        "cd shard": ["cd", *of_corpus, "--shard", "2/3", "--family"],
        "novelty": ["novelty", *of_corpus],
        "background": ["background", "--corpus", *of_corpus, "--overwrite"],
    }[stage]


STAGES = (
    "ingest synthetic", "ingest records", "ingest sciscinet", "graph", "cd", "cd shard", "novelty", "background",
)  # fmt: skip


def moments(stage: str, duration: float, touches: list[str]) -> Iterator[tuple[float | None, int]]:
    """Spread kills over a run: before the last rename, and at random in either half of its time and of its touches.

    Loading the packages takes the first part of a run, in which there is nothing to lose.
    """
    draw = random.Random(stage)
    yield None, len(touches) - 1 - touches[::-1].index("os.rename")
    for half in range(2):
        yield None, int((half + draw.random()) / 2 * len(touches))
        yield (0.4 + 0.6 * (half + draw.random()) / 2) * duration, NEVER
    yield None, len(touches) - 1


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_killed_at_any_moment_completes_with_the_same_bytes(tmp_path, inputs, stage):
    clean, killed = tmp_path / "clean", tmp_path / "killed"
    duration = finish(clean, *command(stage, inputs, clean))
    touches = (tmp_path / "clean.touches").read_text().split()
    expected = files(clean / "made")
    assert expected
    n_killed = 0
    for seconds, touch in moments(stage, duration, touches):
        process = start(killed, touch, *command(stage, inputs, killed))
        if seconds is not None:
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=600)
        if process.returncode == -signal.SIGKILL:
            n_killed += 1
        else:  # so much was done before that it came to its end
            assert process.returncode == 0, errors.decode()
            assert files(killed / "made") == expected
            shutil.rmtree(killed)
    finish(killed, *command(stage, inputs, killed))
    assert n_killed >= 2
    assert files(killed / "made") == expected
