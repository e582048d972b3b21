"""Modules in the current folder are a stranger's: neither pip, venv nor the local server imports them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sciscirl.lab.local_server import server
from sciscirl.lab.models.pip import make_environment, run_pip
from tests.conftest import REPOSITORY
from tests.hostile import make_hostile

BIN = Path(sys.executable).parent


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    mark = make_hostile(tmp_path / "downloads")
    monkeypatch.chdir(tmp_path / "downloads")
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return mark


def test_an_environment_is_made_and_filled_without_modules_of_the_current_folder(mark: Path, tmp_path: Path) -> None:
    python, reason = make_environment(tmp_path / "environment")
    assert reason is None
    for interpreter in (sys.executable, str(python)):
        reason = run_pip("download", "--dest", str(tmp_path), "no-such-package", python=interpreter)
        assert reason is not None
        assert "In --require-hashes mode" in reason or "No matching distribution" in reason
    assert not mark.exists(), mark.read_text()


@pytest.mark.parametrize("has_environment", [False, True])
def test_install_py_imports_nothing_from_the_current_folder(mark: Path, tmp_path: Path, has_environment: bool) -> None:
    folder = tmp_path / "environment"
    if has_environment:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
    words = [str(REPOSITORY / "scripts" / "install.py"), "--venv", str(folder)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert "error: not installed" in done.stderr, done.stderr  # there is no index
    assert not mark.exists(), mark.read_text()


def test_the_local_server_imports_nothing_from_the_current_folder(mark: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (model / name).write_text("{}")
    config = server.LocalServerConfig(model=model, state=tmp_path / "state", port=0)
    with (
        pytest.raises(server.LocalServerError, match="the server ended while loading"),
        server.serve(config, Path(sys.executable)),
    ):
        pass
    assert not mark.exists(), mark.read_text()


@pytest.mark.parametrize("words", [["--version"], ["presets"], ["model", "no/such/model.gguf"]])
def test_the_command_imports_nothing_from_the_current_folder(mark: Path, words: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(BIN / "sciscirl"), *words], capture_output=True, check=False, env=environment)
    assert done.returncode == (words[0] == "model"), done.stderr
    assert not mark.exists(), mark.read_text()
