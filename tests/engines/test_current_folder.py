"""Modules in the current folder are a stranger's: no process that is started here imports them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sciscidata as ssd
from sciscidata.engines.engine import engine
from tests.hostile import make_hostile

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("corpus")
    ssd.ingest(ssd.SyntheticConfig(n_works=300), home / "corpus", cache_dir=home)
    return home / "corpus"


@pytest.mark.parametrize("path", [None, f"{os.pathsep}/nowhere{os.pathsep}"])
@pytest.mark.parametrize("options", [{"engine": "local", "workers": 2}, {"engine": "slurm", "slurm": "cluster=local"}])
def test_a_process_of_an_engine_imports_nothing_from_the_current_folder(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict, path: str | None
) -> None:
    if options["engine"] == "slurm":
        pytest.importorskip("submitit")
    mark = make_hostile(tmp_path / "downloads")
    monkeypatch.chdir(tmp_path / "downloads")
    for here in ("", str(Path.cwd())):  # as a notebook has it, and python -m
        monkeypatch.setattr(sys, "path", [*sys.path, here])
    if path is not None:
        monkeypatch.setenv("PYTHONPATH", path)
    with engine(**options, tasks=2) as on:
        made = ssd.write_background(
            ssd.CorpusConfig(folder=str(corpus)), tmp_path / "pairs.parquet", cache_dir=tmp_path / "cache", engine=on
        )
    assert made.path.exists()
    assert not mark.exists(), mark.read_text()


@pytest.mark.parametrize("start", [[str(BIN / "sciscidata")], [sys.executable, "-P", "-m", "sciscidata"]])
def test_a_command_with_workers_imports_nothing_from_the_current_folder(
    corpus: Path, tmp_path: Path, start: list[str]
) -> None:
    mark = make_hostile(tmp_path / "downloads")
    words = ["background", "--corpus", str(corpus), "--workers", "2"]
    done = subprocess.run(
        [*start, *words, "--out", str(tmp_path / "pairs.parquet"), "--cache-dir", str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path / "downloads",
    )
    assert done.returncode == 0, done.stderr
    assert not mark.exists(), mark.read_text()
