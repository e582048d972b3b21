"""A full disk, small and real: one clear error; after some space was freed, the same command gives the same bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sciscidata.cli.main import main
from sciscidata.corpus import writer
from tests import program

ENOUGH = 64 << 10


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("world")
    assert main(["ingest", "--source", "synthetic", "--n-works", "2000", "--out", str(home / "world")]) == 0
    return home / "world"


def command(stage: str, world: Path, disk: Path) -> list[str]:
    """Say how a stage is run whose cache and result lie on a disk."""
    cache, engine = ["--cache-dir", f"{disk}/cache"], ["--engine", "local", "--workers", "1", "--tasks", "4"]
    scores = [str(world), *cache, "--out", f"{disk}/made/scores.parquet"]
    return {
        "ingest": ["ingest", "--source", "synthetic", "--n-works", "4000", *cache, "--out", f"{disk}/made/corpus"],
        "graph": ["graph", str(world), "--cache-dir", f"{disk}/made"],
        "cd": ["cd", *scores, *engine],
        "null-cd": ["null-cd", *scores, *engine, "--n-draws", "2"],
        "novelty": ["novelty", *scores],
        "background": ["background", "--corpus", *scores, *engine],
        "export": ["export", "--corpus", str(world), *cache, "--out", f"{disk}/made/labelled"],
        "build": [
            *("build", "--corpus", str(world), *cache, "--n-train", "30", "--n-test", "3"),
            *("--out", f"{disk}/made/slice"),
        ],
    }[stage]


def made_on(disk: Path) -> dict[str, bytes]:
    paths = [path for path in (disk / "made").rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(disk).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.rendered
@pytest.mark.parametrize("stage", ["ingest", "graph", "cd", "null-cd", "novelty", "background", "export", "build"])
def test_a_stage_that_met_a_full_disk_is_typed_again_and_ends_well(
    stage, world, tmp_path, small_disk: Callable[..., Path], monkeypatch, capsys
):
    monkeypatch.setattr(writer, "_PART_ROWS", {"works": 1 << 10, "citations": 1 << 13})
    (clean := tmp_path / "clean").mkdir()
    assert main(command(stage, world, clean)) == 0
    needed = sum(path.stat().st_size for path in clean.rglob("*") if path.is_file()) >> 10
    n_full = 0
    for tenths in (1, 4, 7, 9):
        disk = small_disk(max(8, needed * tenths // 10))
        capsys.readouterr()
        status = main(command(stage, world, disk))
        if status:
            n_full += 1
            said = capsys.readouterr().err
            assert (status, said.count("error: ")) == (1, 1), said
            assert "No space left on device. Free some disk space" in said
            assert "Traceback" not in said
            assert not list(disk.rglob(".*.tmp"))  # what would have to be cleared away by hand
            small_disk(ENOUGH, grow=True)
            assert main(command(stage, world, disk)) == 0, capsys.readouterr().err
        assert made_on(disk) == made_on(clean)
    assert n_full


@pytest.mark.slow
def test_an_export_that_meets_a_full_disk_ends_with_its_own_status(tmp_path, small_disk: Callable[..., Path]):
    source = ("--source", "synthetic", "--n-works", "60000", "--cache-dir", str(tmp_path / "cache"))
    for _ in range(3):
        disk = small_disk(6 << 10)
        done = program.run("export", *source, "--out", str(disk / "labelled"), cwd=tmp_path)
        assert done.returncode == 1, done.stderr.decode()
        assert done.stderr.decode().splitlines()[-1].startswith("error: cannot write")
        assert not [*disk.iterdir()]


def test_a_failed_command_ends_at_once_although_threads_are_still_at_work(tmp_path):
    """As those of Polars are, which a query that failed leaves behind."""
    code = (
        "import sys, threading, time; from sciscidata.cli.main import main; "
        "threading.Thread(target=time.sleep, args=[600]).start(); sys.argv = ['', 'describe', 'none-such']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: none-such does not exist")
