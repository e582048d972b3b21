from __future__ import annotations

import gc
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sciscirl.errors import LocalServerError
from sciscirl.lab.local_server.environment import set_up_environment
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Sums in one order, so that results are the same to the bit.

    Each training collects garbage at its end. What is there before (all tests and libraries) is not looked through.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(before)


@pytest.fixture
def script_here(capsys, monkeypatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run one of ``scripts/`` in this process, whose modules are loaded: what it printed, and its status."""

    def run(script: str, *words: object) -> subprocess.CompletedProcess[str]:
        path = str(REPOSITORY / "scripts" / script)
        monkeypatch.setattr(sys, "argv", [path, *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(path, run_name="__main__")
        said = capsys.readouterr()
        return subprocess.CompletedProcess(sys.argv, int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture(scope="session")
def toy_slice(tmp_path_factory):
    from tests.sciscirl.toy import make_slice

    return make_slice(tmp_path_factory.mktemp("toy") / "slice")


@pytest.fixture(scope="session")
def context_slice(toy_slice, tmp_path_factory):
    """The toy release with what its papers built on."""
    from tests.sciscirl.papers import add_context

    return add_context(toy_slice, tmp_path_factory.mktemp("toy") / "with_context")


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory) -> str:
    """A folder with a tokenizer and no weights: all that a client needs of a model."""
    from tests.sciscirl.toy import make_tokenizer

    return str(make_tokenizer(tmp_path_factory.mktemp("toy") / "model"))


@pytest.fixture(scope="session")
def random_model(tmp_path_factory) -> Path:
    """A tiny model with random weights; tests leave it as it is."""
    from sciscirl.lab.local_server.tiny_model import TinyModelConfig, make_tiny_model

    folder = tmp_path_factory.mktemp("tiny") / "random"
    folder.mkdir()
    make_tiny_model(folder, config=TinyModelConfig(priming_steps=0))
    return folder


@pytest.fixture(scope="session")
def primed_model(toy_slice, tmp_path_factory) -> Path:
    """A tiny model that has learned to answer, right or wrong, on the papers of ``toy_slice``; tests leave it so."""
    from sciscirl.lab.local_server.tiny_model import TinyModelConfig, make_tiny_model
    from sciscirl.task.release import read_split

    folder = tmp_path_factory.mktemp("tiny") / "primed"
    folder.mkdir()
    make_tiny_model(folder, [paper.view for paper in read_split(toy_slice, "train")], TinyModelConfig(priming_steps=40))
    return folder


@pytest.fixture
def options(toy_slice, toy_model, tmp_path, monkeypatch) -> dict[str, str]:
    """What a training run is started with, of ``TrainOptions``; the key is one that looks right."""
    from tests.sciscirl.tinker_stub import KEY
    from tests.sciscirl.toy import RENDERER

    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    return {
        "preset": "exp4",
        "release": str(toy_slice),
        "model": toy_model,
        "renderer": RENDERER,
        "log_path": str(tmp_path / "run"),
        "eval_split": "test",  # the toy release is too small to hold papers out
    }


@pytest.fixture(scope="session")
def toy_renderer(toy_model):
    from sciscirl.envs.tokenizer import make_renderer
    from tests.sciscirl.toy import RENDERER

    return make_renderer(toy_model, RENDERER)


@pytest.fixture(scope="session")
def server_environment() -> None:
    """Sets the real server up, once for its pins: a minute. In CI it has to work, elsewhere it needs the network."""
    try:
        set_up_environment()
    except LocalServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no server of one's own: {error}")


@pytest.fixture(scope="session")
def tinker_server(server_environment, tmp_path_factory) -> Iterator:
    """The real server with the tiny model, one for all tests of a run: ``tests.sciscirl.tinker_server.TinkerServer``.

    Workers of pytest-xdist share it. Tests that use it are slow ones.
    """
    import sciscidata as ssd
    from tests.sciscirl.tinker_server import shared_server

    def make_release(folder: Path) -> Path:
        split = ssd.SplitConfig(n_train=96, n_test=12, n_dev=8)
        ssd.build(ssd.BuildConfig(source=ssd.SyntheticConfig(n_works=5_000), out=folder, split=split))
        return folder

    base = tmp_path_factory.getbasetemp()
    home = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with shared_server(home / "tinker", make_release) as server:
        yield server
