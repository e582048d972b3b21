"""Fixtures shared by all tests: where the real records lie, and a Hypothesis profile that repeats itself in CI."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.pictures import leave_empty

_ANY: dict[str, Any] = {"deadline": None, "max_examples": 50, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, **_ANY)
settings.register_profile("dev", **_ANY)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

if any(name.lower() in ("http_proxy", "all_proxy") for name in os.environ):
    # The servers of the tests are on this machine, to which a proxy has no way back; what tests start inherits this.
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1", "localhost")))

REPOSITORY = Path(__file__).resolve().parent.parent

#: The files that take longest, of which several processes take first: one that begins late is waited for at the end, by
#: idle processors. Those that ask the local server do not stand together, since the first of them starts it.
LONGEST = (
    "sciscirl/lab/local_server/test_tour.py",
    "sciscirl/lab/test_demo.py",
    "sources/test_openalex.py",
    "docs/test_examples.py",
    "engines/test_engines.py",
    "sciscirl/lab/local_server/test_experiment.py",
    "docs/test_notebooks.py",
    "sciscirl/lab/local_server/test_objectives.py",
    "pipeline/test_outside.py",
    "sciscirl/lab/sft/test_server.py",
    "sources/test_labelled.py",
    "sciscirl/lab/test_local_rl.py",
    "sciscirl/lab/studies/test_sweep.py",
    "sciscirl/lab/sft/test_peft.py",
    "sciscirl/lab/harnesses/test_export.py",
    "pipeline/test_damage.py",
    "pipeline/test_pipeline.py",
    "explanation/test_explain.py",
    "docs/test_site.py",
    "pipeline/test_memory_per_work.py",
    "sciscirl/lab/training/test_collapse_benchmark.py",
    "sciscirl/cli/test_release_from_a_hub.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Begin to collect at another folder in each of several processes: what one has compiled, the others only read."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # pytest-xdist would begin with the files of most tests
    worker = getattr(config, "workerinput", None)
    if worker is not None and config.args == config.getini("testpaths"):
        entries = sorted((REPOSITORY / "tests").iterdir())
        folders = [str(path) for path in entries if path.suffix == ".py" or (path / "__init__.py").exists()]
        paths = [*folders, *config.args[1:]]
        first = int(worker["workerid"].removeprefix("gw")) * len(paths) // worker["workercount"]
        config.args = paths[first:] + paths[:first]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each of several processes order the files alike: the longest, then those of most tests."""
    if not hasattr(config, "workerinput"):
        return
    places = {REPOSITORY / "tests" / name: place for place, name in enumerate(LONGEST)}
    n_tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (places.get(item.path, len(places)), -n_tests[item.path], item.path))


def shared_data_folder() -> Path:
    return Path(os.environ.get("SCISCI_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))


@functools.cache
def example_lines() -> tuple[bytes, ...]:
    """The 4,381 real records of OpenAlex that come with the package, one a line."""
    from sciscidata.sources.example.source import WORKS_FILE
    from sciscidata.sources.record_files import decompressed_chunks

    return tuple(b"".join(decompressed_chunks(WORKS_FILE)).split(b"\n")[:-1])


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of graphs and records that may not ship; the test is skipped where it is absent."""
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


@pytest.fixture(autouse=True)
def pictures_of_releases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures of a release that a test builds empty, unless it is marked as ``rendered``.

    Those of releases that tests share are rendered, and so are those of other processes.
    """
    if not request.node.get_closest_marker("rendered"):
        leave_empty(monkeypatch.setattr)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Give a function that mounts an empty disk of so many KiB, or lets it ``grow``; skip where none may mount."""
    disk = tmp_path / "disk"
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None or os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")

    def leave() -> None:
        if disk.is_mount():  # lazily: files of it may still be mapped
            subprocess.run([umount, "--lazy", str(disk)], check=True)

    def of_size(kib: int, *, grow: bool = False) -> Path:
        disk.mkdir(exist_ok=True)
        if not grow:
            leave()
        how = ["-t", "tmpfs", "-o", f"{'remount,' * grow}size={kib}k", "tmpfs", str(disk)]
        done = subprocess.run([mount, *how], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot mount a small disk: {done.stderr.strip()}")
        return disk

    yield of_size
    leave()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in an empty folder; return its exit status, output and errors."""
    from sciscidata.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sciscidata.storage.user_cache.platformdirs.user_cache_dir", lambda _: str(tmp_path / "cache"))
    monkeypatch.setattr("platformdirs.user_config_path", lambda _: tmp_path / "config")
    monkeypatch.setenv("OPENALEX_BASE_URL", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.delenv("OPENALEX_API_KEY", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return call
