"""Fixtures shared by all tests: where the real records lie, and a Hypothesis profile that repeats itself in CI."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import quick

_ANY: dict[str, Any] = {"deadline": None, "max_examples": 50, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, **_ANY)
settings.register_profile("dev", **_ANY)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

if any(name.lower() in ("http_proxy", "all_proxy") for name in os.environ):
    # The servers of the tests are on this machine, to which a proxy has no way back; what tests start inherits this.
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1", "localhost")))

# What tests start finds the package compiled to bytecode by those before it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

quick.leave_out_what_takes_long()
gc.disable()  # nothing imported is garbage; the search for it takes a fifth of the time of collecting

#: Files whose tests wait for the one local server: one worker runs them all, while others compute.
_ON_THE_SERVER = ("sciscirl/local_server/", "sciscirl/sft/test_server")
#: Files that take minutes. They begin first, so that none runs alone at the end.
_LONGEST = (
    *_ON_THE_SERVER,
    "sources/test_openalex",
    "pipeline/",
    "sciscirl/cli/test_demo",
    "sciscirl/sft/test_peft",
    "sciscirl/",
)

REPOSITORY = Path(__file__).resolve().parent.parent
#: The tests hold half of it at most.
_DISK_BYTES = 1_000_000_000


def pytest_configure(config: pytest.Config) -> None:
    """While the workers collect, compile what is not on the disk yet: else each of them would, at the same time."""
    if config.getoption("numprocesses", None):
        free = shutil.disk_usage(tempfile.gettempdir()).free
        if free < _DISK_BYTES:
            raise pytest.UsageError(
                f"{tempfile.gettempdir()} has {free / 1e9:.2f} GB free, the tests need {_DISK_BYTES / 1e9:.0f} GB. "
                "Free some disk space, or set TMPDIR to a folder on a larger disk."
            )
        command = [sys.executable, "-m", "tests.warm_kernels"]
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        compiling = subprocess.Popen(command, cwd=REPOSITORY, **quiet)
        config.add_cleanup(compiling.wait)
        if config.option.maxworkerrestart is None:
            config.option.maxworkerrestart = "0"  # else what ends a worker is run by 16 others in turn


def _is_on_the_server(nodeid: str) -> bool:
    return any(f"tests/{name}" in nodeid for name in _ON_THE_SERVER)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker whole files, and one of them all that ask the server; None: as ``--dist`` says."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "the server" if _is_on_the_server(nodeid) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False  # it would begin with the files of many tests
    return Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((n for n, name in enumerate(_LONGEST) if f"tests/{name}" in item.nodeid), len(_LONGEST))

    items.sort(key=place)


def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Let the other workers stand back a little for that of the server, whose tests form the longest chain."""
    if "PYTEST_XDIST_WORKER" in os.environ and not _is_on_the_server(item.nodeid) and hasattr(os, "nice"):
        os.nice(max(0, 3 - os.nice(0)))


def pytest_collection_finish() -> None:
    import tests.less_garbage  # noqa: F401


def pytest_sessionfinish() -> None:
    """Look for garbage once: pytest does five times, which takes seconds where torch and others are loaded."""
    gc.collect()
    gc.freeze()


def shared_data_folder() -> Path:
    return Path(os.environ.get("SCISCI_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real records and reference graphs; the test is skipped where it is absent."""
    folder = shared_data_folder()
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}; set SCISCI_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def sciscinet_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the tables of 3,000 works as SciSciNet-v2 has them; tests leave it as it is."""
    from benchmarks.make_sciscinet import make

    folder = tmp_path_factory.mktemp("sciscinet")
    make(folder, 3_000, n_bytes=300)
    return folder


@pytest.fixture
def real_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let builds draw their pictures."""
    monkeypatch.setattr(quick, "draws_pictures", True)
