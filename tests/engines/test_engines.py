"""The same bytes from threads, processes, Dask, Slurm and a list of commands, also where workers are killed."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

import sciscidata as ssd
from benchmarks import slurm_cluster
from benchmarks.make_snapshot import export_record, write_manifest, write_part
from sciscidata.cli.main import main
from sciscidata.disruption.config import CDConfig
from sciscidata.engines.config import EngineConfig
from sciscidata.engines.engine import do_listed, engine, read_list
from sciscidata.engines.task import Outcome, Task, run_task
from sciscidata.errors import ConfigError, InputNotFoundError, ResumableError, StorageError
from sciscidata.schemas import CD_SWEEP
from sciscidata.stages import write_cd_sweep, write_null_cd_index
from tests.conftest import REPOSITORY

PATIENCE_S = 240


class World:
    """A corpus and a snapshot, and what the stages make of them without an engine."""

    def __init__(self, home: Path) -> None:
        self.corpus, self.snapshot = home / "corpus", home / "snapshot"
        ssd.ingest(ssd.SyntheticConfig(n_works=2_000), self.corpus, cache_dir=home)
        sizes = {f"updated_date=2026-06-01/part_{n:04}": 60 for n in range(12)}
        for place, (name, size) in enumerate(sizes.items()):
            records = [
                {"id": f"https://openalex.org/W{1000 * place + n}", "publication_year": 2000 + place, "is_xpac": False,
                 "title": f"Work {n}",
                 "referenced_works": [f"https://openalex.org/W{1000 * (place - k) + n // k + 1}" for k in (1, 2, 3)]}
                for n in range(1, size + 1)
            ]  # fmt: skip
            write_part(self.snapshot, "jsonl", name, [export_record(entry) for entry in records])
        write_manifest(self.snapshot, "jsonl", sizes)
        self.parts = home / "parts"
        ssd.ingest(ssd.SnapshotConfig(folder=str(self.snapshot)), self.parts, cache_dir=home)
        self.expected = {name: stage(self, home / name, None) for name, stage in STAGES.items()}


def _scores(write: Callable, **options) -> Callable:
    def run(world: World, home: Path, on) -> list[bytes]:
        home.mkdir(exist_ok=True)
        file = write(world.corpus, home / "scores.parquet", cache_dir=home / "cache", engine=on, **options)
        assert not [*(home / "cache").glob("*.tasks")]  # nothing is left beside
        return [Path(file).read_bytes()]

    return run


def _ingest(world: World, home: Path, on) -> list[bytes]:
    ssd.ingest(ssd.SnapshotConfig(folder=str(world.snapshot)), home / "out", cache_dir=home / "cache", engine=on)
    paths = [path for path in (home / "out").rglob("*") if path.is_file() and path.suffix in (".parquet", ".json")]
    return [path.read_bytes() for path in sorted(paths) if "cache" not in path.parts and "receipts" not in path.parts]


def _background(world: World, home: Path, on) -> list[bytes]:
    source = ssd.CorpusConfig(folder=str(world.corpus))
    table = ssd.write_background(source, home / "pairs.parquet", cache_dir=home / "cache", engine=on)
    assert table.counts["n_pairs"].sum() > 10_000
    return [table.path.read_bytes()]


def _export(world: World, home: Path, on) -> list[bytes]:
    label = ssd.OwnLabel(name="own_label", classes=("up", "down"), sql="CASE WHEN cd_index > 0 THEN 'up' END")
    source, cache = ssd.CorpusConfig(folder=str(world.parts)), home / "cache"
    report = ssd.export_labelled(
        ssd.BuildConfig(source=source, out=home / "all", cache_dir=cache, label=label), engine=on
    )
    assert report["rows"] > report["classes"]["own_label"]["up"] > 50
    return [(home / "all" / name).read_bytes() for name in ("labelled.jsonl", "labelled.json")]


STAGES = {
    "cd": _scores(ssd.write_cd_index),
    "novelty": _scores(ssd.write_atypicality),
    "null": _scores(write_null_cd_index, n_draws=12),
    "ingest": _ingest,
    "background": _background,
    "export": _export,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def finished(home: Path) -> int:
    """Count the tasks that are done."""
    done = [path for path in home.glob("cache/*.tasks/*.json") if path.name != "tasks.json"]
    return len(done) + len([*home.glob("out/receipts/*.json")])


def run_and_disturb(stage: Callable, world: World, home: Path, on, disturb: Callable[[], None]) -> list[bytes]:
    """Run a stage, and ``disturb`` once after its first finished task."""
    home.mkdir()
    result: list = []

    def run() -> None:
        try:
            result.append(stage(world, home, on))
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)  # where the test has failed, it would wait for its jobs for ever
    thread.start()
    end = time.monotonic() + PATIENCE_S
    while not finished(home) and not result and time.monotonic() < end:
        time.sleep(0.002)
    was_early = not result
    disturb()
    thread.join(PATIENCE_S)
    assert was_early, result
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


@pytest.mark.parametrize("stage", STAGES)
def test_two_workers_give_the_same_bytes_with_the_graph_copied_to_their_disk(world, tmp_path, stage):
    stage_dir = None if stage == "ingest" else str(tmp_path / "node")
    with engine("local", workers=2, tasks=5, stage_dir=stage_dir) as on:
        assert STAGES[stage](world, tmp_path / "made", on) == world.expected[stage]
    assert stage == "ingest" or len([*(tmp_path / "node").glob("graph-*/refs*")]) == 1


def test_a_process_that_dies_is_one_error_and_the_next_run_goes_on(world, tmp_path, monkeypatch):
    monkeypatch.setattr("sciscidata.sources.snapshot.parts._PROCESSES_FROM", 0)

    def kill() -> None:
        command, end = ["pgrep", "-P", str(os.getpid()), "-f", "engines.local"], time.monotonic() + PATIENCE_S
        while not (pids := subprocess.run(command, capture_output=True).stdout.split()) and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(int(pids[0]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with engine("local", workers=2) as on:
        with pytest.raises(StorageError, match=r"at work on .* ended with code -9.* what is finished is kept"):
            _ingest(world, tmp_path, on)
        killer.join()
        assert _ingest(world, tmp_path, on) == world.expected["ingest"]


@contextmanager
def dask_cluster(home: Path):
    """A scheduler and workers on this machine, each a process; give its file, how to start a worker, and itself."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "POLARS_MAX_THREADS": "1"}
    running: list[subprocess.Popen] = []

    def start(*words: str) -> subprocess.Popen:
        log = (home / f"dask-{len(running)}.log").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *words], stdout=log, stderr=log, env=environment, cwd=home
        )
        running.append(process)
        log.close()
        return process

    of_scheduler = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", "scheduler.json")
    scheduler = start("scheduler", *of_scheduler)
    file = home / "scheduler.json"
    end = time.monotonic() + PATIENCE_S
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    worker = ("worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--no-dashboard")
    try:
        yield file, lambda: start(*worker), scheduler
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_worker_of_a_dask_cluster_is_killed_in_the_middle_of_stages_and_no_byte_differs(world, tmp_path, monkeypatch):
    monkeypatch.setattr("sciscidata.engines.dask._PATIENCE_S", PATIENCE_S)
    with dask_cluster(tmp_path) as (file, start_worker, _):
        workers = [start_worker(), start_worker()]
        with engine("dask", scheduler_file=file, tasks=40) as on:
            for name in ("novelty", "ingest", "background", "export"):

                def kill() -> None:
                    victim = workers.pop(0)
                    victim.send_signal(signal.SIGKILL)
                    victim.wait()
                    workers.append(start_worker())  # for the next stage

                assert run_and_disturb(STAGES[name], world, tmp_path / name, on, kill) == world.expected[name], name
        address = json.loads(file.read_text("utf-8"))["address"]
        with engine("dask", address=address, tasks=3) as on:
            assert STAGES["cd"](world, tmp_path / "again", on) == world.expected["cd"]


@pytest.mark.slow
def test_a_job_of_slurm_is_requeued_in_the_middle_and_no_byte_differs(world, tmp_path, tmp_path_factory):
    if not slurm_cluster.can_start():
        pytest.skip("needs Debian's slurm-wlm, and to be root; the next test does the same without a cluster")
    request = "partition=cpu,mem_gb=0.3,time=20m,array_parallelism=2"
    with slurm_cluster.one_node(tmp_path_factory.mktemp("slurm")), engine("slurm", slurm=request, tasks=2) as on:
        for name in ("ingest", "cd"):
            assert STAGES[name](world, tmp_path / name, on) == world.expected[name]

        def requeue() -> None:
            listed = subprocess.run(["squeue", "-h", "--array", "-o", "%i"], capture_output=True, text=True)
            subprocess.run(["scontrol", "requeue", listed.stdout.split()[0]], check=True)

        assert run_and_disturb(STAGES["null"], world, tmp_path / "null", on, requeue) == world.expected["null"]


@pytest.mark.slow
def test_a_job_that_dies_is_submitted_again_and_goes_on(world, tmp_path):
    with engine("slurm", slurm="cluster=local", tasks=1) as on:

        def kill() -> None:
            (pid,) = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout.split()[:1]
            os.kill(int(pid), signal.SIGKILL)

        assert run_and_disturb(STAGES["null"], world, tmp_path / "null", on, kill) == world.expected["null"]


def test_a_sweep_is_its_single_runs_below_each_other_with_or_without_an_engine(world, tmp_path):
    options = {"windows": (3, None), "conventions": ("default", "crossdi"), "n_draws": 2, "seed": 4}
    places = {"cache_dir": tmp_path / "cache"}
    file = write_cd_sweep(world.corpus, tmp_path / "sweep.parquet", **options, **places)
    with engine("local", workers=1, tasks=3) as on:
        again = write_cd_sweep(world.corpus, tmp_path / "2.parquet", **options, cache_dir=tmp_path / "c", engine=on)
    assert again.read_bytes() == file.read_bytes()
    rows = pl.read_parquet(file)
    assert rows.schema.names() == [*CD_SWEEP.names(), "null_mean", "null_std", "z"]
    assert rows["work_id"].is_sorted()
    for name, window in itertools.product(("default", "crossdi"), (3, None)):
        config = CDConfig(window_years=window) if name == "default" else CDConfig.compat(name, window_years=window)
        cd = ssd.write_cd_index(world.corpus, tmp_path / f"{name}{window}.parquet", config, **places)
        null = write_null_cd_index(
            world.corpus, tmp_path / f"{name}{window}null.parquet", config, n_draws=2, seed=4, **places
        )
        single = pl.read_parquet(cd).join(pl.read_parquet(null).drop("cd_index", "n_defined"), on="work_id")
        part = rows.filter(convention=name, window="all" if window is None else "3").select(single.columns)
        assert part.sort("work_id").equals(single.sort("work_id"))
    assert (tmp_path / "sweep.png").stat().st_size > 5_000
    for wrong, message in (
        ({"conventions": ("default", "default")}, "each once"),
        ({"windows": (3, 0)}, "convention 'default' has no window 0. Leave out one of the two"),
        ({"conventions": ("pyscisci",)}, "convention 'pyscisci' has no window all"),
        ({"conventions": ("cd",)}, "knows no convention 'cd', needs some of default, cdindex"),
        ({"windows": ("90d",)}, "windows"),
    ):
        with pytest.raises(ConfigError, match=message):
            write_cd_sweep(world.corpus, tmp_path / "x.parquet", **wrong, **places)


def test_a_list_of_commands_is_done_one_by_one_and_put_together(world, tmp_path, capsys, monkeypatch):
    def stage():
        with engine("list", tasks=3) as on:
            return STAGES["cd"](world, tmp_path, on)

    with pytest.raises(
        ResumableError, match=r"3 tasks wait\..* for N = 1,2,3\. Then run the same command again"
    ) as told:
        stage()
    home = Path(re.search(r"`sciscidata tasks (.*) --run N`", str(told.value))[1])
    assert main(["tasks", str(home), "--run", "2"]) == 0
    with pytest.raises(ResumableError, match="for N = 1,3"):
        stage()
    assert do_listed(home, run=1) == ["     1  done   CD index, share 1 of 3"]
    capsys.readouterr()
    assert main(["tasks", str(home)]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["1", "done"], ["2", "done"], ["3", "waits"],
    ]  # fmt: skip
    first = read_list(home)[0]
    with Path(first.out).open("ab") as file:
        file.write(b"damaged")
    assert ["done" in line for line in do_listed(home)] == [False, True, False]
    assert main(["tasks", str(home), "--run", "4"]) == 1
    assert "needs a number from 1 to 3" in capsys.readouterr().err
    assert main(["tasks", str(home), "--run", "1"]) == main(["tasks", str(home), "--run", "3"]) == 0
    assert stage() == world.expected["cd"]
    assert main(["tasks", str(home), "--run", "1"]) == 1
    assert "no tasks in" in capsys.readouterr().err


def test_a_receipt_with_other_facts_is_not_believed(world, tmp_path):
    def stage(kind):
        with engine(kind) as on:
            return _background(world, tmp_path, on)

    with pytest.raises(ResumableError) as told:
        stage("list")
    home = Path(re.search(r"`sciscidata tasks (.*) --run N`", str(told.value))[1])
    n_changed = 0
    for number, given in enumerate(read_list(home), 1):
        do_listed(home, run=number)
        receipt = Path(f"{given.out}.json")
        text, n = re.subn(r'"(n_works|n_pairs)": (\d+)', r'"\1": 1\2', receipt.read_text("utf-8"))
        receipt.write_text(text, "utf-8")
        n_changed += n
    assert n_changed
    assert stage("local") == world.expected["background"]


def test_what_a_task_may_do_is_declared_and_its_errors_are_messages():
    for work in ("os:remove", "sciscidata.storage.paths:remove_folder", "sciscidata.engines.task:../x"):
        with pytest.raises(ssd.SciSciDataError, match="no task of this package"):
            run_task(Task(name="bad", work=work, arguments={})).get()
    with pytest.raises(RuntimeError, match="RuntimeError: boom"):
        Outcome(error="RuntimeError", message="share 3 failed:\nRuntimeError: boom").get()
    with pytest.raises(StorageError, match="full"):
        Outcome(error="StorageError", message="full").get()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "dask"}, "needs EngineConfig.address or EngineConfig.scheduler_file"),
        ({"engine": "dask", "scheduler_file": Path("no.json")}, "there is no file no.json. Start one"),
        ({"engine": "ray"}, "needs one of local, dask, slurm, list"),
        ({"engine": "local", "tsks": 3}, "no option 'tsks'"),
        ({"engine": "local", "slurm": "time=2h"}, "EngineConfig.slurm is given, but the engine is local"),
        ({"engine": "slurm", "slurm": "time=soon"}, "'soon', needs one like 90m"),
        ({"engine": "slurm", "slurm": "mem_gb"}, "needs NAME=VALUE"),
        ({"engine": "slurm", "slurm": "cluster=big"}, "needs slurm, or local"),
    ],
)
def test_a_wrong_engine_is_one_clear_error(options, message):
    with pytest.raises(ConfigError, match=message), engine(**options):
        pass


def test_other_sources_have_no_tasks_and_other_folders_no_list(tmp_path):
    with engine("local") as on, pytest.raises(ConfigError, match="only the parts of a snapshot"):
        ssd.ingest(ssd.SyntheticConfig(n_works=50), tmp_path / "out", cache_dir=tmp_path, engine=on)
    config = ssd.BuildConfig(source=ssd.SyntheticConfig(n_works=50), out=tmp_path / "all", cache_dir=tmp_path)
    with engine("local") as on, pytest.raises(ConfigError, match="Make a corpus with `sciscidata ingest`"):
        ssd.export_labelled(config, engine=on)
    with pytest.raises(InputNotFoundError, match=r"no readable tasks\.json"):
        do_listed(tmp_path)
    assert EngineConfig().tasks == 16


def test_two_null_models_of_one_cache_end_well(world, tmp_path):
    command = [sys.executable, "-P", "-m", "sciscidata", "null-cd", str(world.corpus), "--cache-dir", str(tmp_path)]
    runs = [
        subprocess.Popen(
            [*command, "--n-draws", str(n), "--workers", "2", "--out", str(tmp_path / f"{n}.parquet")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for n in (2, 12)  # each removes the folder of its draws at its end
    ]
    said = [run.communicate(timeout=PATIENCE_S)[0].decode() for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    assert pl.read_parquet(tmp_path / "12.parquet")["n_defined"].max() == 12


@pytest.mark.parametrize("stage", ["cd", "novelty", "background"])
def test_the_same_command_twice_at_once_ends_well_or_says_that_another_run_made_it(world, tmp_path, stage):
    corpus = ["--corpus", str(world.corpus)] if stage == "background" else [str(world.corpus)]
    command = [sys.executable, "-P", "-m", "sciscidata", stage, *corpus, "--workers", "1", "--tasks", "6"]
    command += ["--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "made.parquet")]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
    said = [run.communicate(timeout=PATIENCE_S)[0].decode() for run in runs]
    for run, text in zip(runs, said, strict=True):
        assert run.returncode == 0 or (stage == "background" and "another run has made it" in text), text
    assert 0 in [run.returncode for run in runs]
    assert stage == "background" or not [*tmp_path.glob("cache/*.tasks")]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_dask_scheduler_that_is_lost_is_one_error_and_what_is_finished_is_kept(world, tmp_path, how):
    out = ["--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "made.parquet"), "--n-draws", "300"]
    command = [sys.executable, "-P", "-m", "sciscidata", "null-cd", str(world.corpus), *out]
    with dask_cluster(tmp_path) as (file, start_worker, scheduler):
        start_worker()
        run = subprocess.Popen(
            [*command, "--engine", "dask", "--tasks", "300", "--scheduler-file", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        end = time.monotonic() + PATIENCE_S
        while len([*tmp_path.glob("cache/null-*/*.parquet")]) < 3 and time.monotonic() < end:
            time.sleep(0.02)
        scheduler.send_signal(how)
        said = run.communicate(timeout=PATIENCE_S)[0].decode()
    assert run.returncode == 1, said
    assert "Traceback" not in said
    assert re.search("error: draw .* could not be done: the Dask scheduler has ended.*what is finished is kept", said)
    assert len([*tmp_path.glob("cache/null-*/*.parquet")]) >= 3
