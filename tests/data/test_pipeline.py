"""The whole flow: real records and the synthetic world, the same bytes everywhere, and runs cut short."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from sciscidata.errors import NotEnoughWorksError, ReleaseExistsError, UnavailableError
from sciscidata.labels import DISRUPTION_LABELS
from sciscidata.pipeline import PICTURE, BuildConfig, build
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.synthetic import SyntheticConfig
from sciscidata.splits import SplitConfig
from sciscidata.verification import verify_release
from tests.conftest import REPOSITORY

#: SHA-256 of the default slice, `build_slice.py --source synthetic`. A change here is an entry under Data in the
#: CHANGELOG.
DEFAULT_SLICE = {
    "train.jsonl": "80b1d5b74aba21e0f9738c75301c267bc3878b729d58310a23f6b1718f3538b4",
    "test.jsonl": "c93046a286919ce192710d95d3456e15fab0815e3b42a38b42cb64afd7b0b878",
}
#: The same for the slice of real records in the README.
SYNERGY_SLICE = {
    "train.jsonl": "ad6196123c058fc683e4eef5319ff1c09be598899ea9996a1965ed6f847b0154",
    "test.jsonl": "b0692b88babb8ac1105c0198d4cf8188baa4ff781d4adf940f036df09cbd8bba",
}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hashes(folder: Path, names=DEFAULT_SLICE) -> dict[str, str]:
    return {name: sha256(folder / name) for name in names}


def small(tmp_path: Path, **changes) -> BuildConfig:
    settings = {
        "source": SyntheticConfig(n_works=4_000),
        "out": tmp_path / "slice",
        "split": SplitConfig(n_train=90, n_test=9),
        "cache_dir": tmp_path / "cache",
    }
    return BuildConfig(**(settings | changes))


def build_slice(*flags: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(REPOSITORY / "scripts" / "build_slice.py"), *flags]
    env = os.environ | environment
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "engine"), [("1", "streaming"), ("2", "in-memory"), ("2", "auto")])
def test_the_default_slice_has_the_pinned_bytes_whatever_threads_and_engine(tmp_path, threads, engine):
    flags = ("--source", "synthetic", "--out", str(tmp_path / "slice"), "--cache-dir", str(tmp_path / "cache"))
    process = build_slice(*flags, POLARS_MAX_THREADS=threads, POLARS_ENGINE_AFFINITY=engine)
    assert process.wait(timeout=300) == 0
    assert hashes(tmp_path / "slice") == DEFAULT_SLICE
    manifest = json.loads((tmp_path / "slice" / "manifest.json").read_text())
    assert {name: manifest["files"][name]["sha256"] for name in DEFAULT_SLICE} == DEFAULT_SLICE
    assert [manifest["sides"][side]["rows"] for side in ("train", "test")] == [5000, 500]


def test_two_runs_give_the_same_files_parquet_and_manifest_too(tmp_path):
    first = build(small(tmp_path))
    second = build(small(tmp_path, out=tmp_path / "again"))
    names = sorted(path.name for path in first.folder.iterdir())
    assert names == sorted(
        [*(f"{side}.{form}" for side in ("train", "test") for form in ("jsonl", "parquet")), "manifest.json", PICTURE]
    )
    assert hashes(first.folder, names) == hashes(second.folder, names)


def test_real_records_give_a_verified_balanced_slice_with_the_pinned_bytes(shared_data, tmp_path):
    records = shared_data / "openalex" / "synergy_A.works.jsonl.gz"
    config = small(tmp_path, source=RecordsConfig(inputs=(str(records),)), split=SplitConfig(n_train=120, n_test=30))
    release = build(config)
    verify_release(release.folder)
    assert hashes(release.folder) == SYNERGY_SLICE
    assert release.train["disruption_label"].value_counts(sort=True)["count"].to_list() == [40, 40, 40]
    filters = release.manifest["counts"]["filters"]
    assert filters["works"] == 4381
    assert filters["works"] - filters["eligible"] == sum(
        count for name, count in filters.items() if name not in ("works", "eligible")
    )
    assert str(tmp_path) not in (release.folder / "manifest.json").read_text()
    # Every released score is the one PyPI cdindex computed.
    expected = pl.read_parquet(shared_data / "openalex" / "synergy_A.cd5_reference.parquet")
    rows = pl.concat([release.train, release.test]).join(expected, left_on="openalex_id", right_on="id")
    assert rows.height == 150
    assert (rows["cd_index"] == rows["cd5"]).all()
    assert rows["novelty_score"].null_count() == 150


def test_reading_the_records_in_another_order_or_in_parts_gives_the_same_slice(shared_data, tmp_path):
    lines = gzip.decompress((shared_data / "openalex" / "synergy_A.works.jsonl.gz").read_bytes()).split(b"\n")[:-1]
    random.Random(3).shuffle(lines)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines[:2000]))
    with gzip.open(tmp_path / "b.jsonl.gz", "wb", compresslevel=1) as file:
        file.write(b"\n".join(lines[2000:]))
    inputs = (str(tmp_path / "b.jsonl.gz"), str(tmp_path / "a.jsonl"))
    config = small(tmp_path, source=RecordsConfig(inputs=inputs), split=SplitConfig(n_train=120, n_test=30))
    assert hashes(build(config).folder) == SYNERGY_SLICE


def test_an_impossible_quota_names_side_class_and_remedy_and_leaves_nothing(tmp_path):
    config = small(tmp_path, split=SplitConfig(n_train=5_000, n_test=500))
    with pytest.raises(NotEnoughWorksError, match=r"train needs 1,66. 'neutral' works, found \d+ of 2,\d+ eligible"):
        build(config)
    assert not config.out.exists()


def test_an_existing_release_is_kept_unless_told_otherwise(tmp_path):
    before = build(small(tmp_path))
    with pytest.raises(ReleaseExistsError, match="--overwrite"):
        build(small(tmp_path, source=SyntheticConfig(n_works=4_000, seed=1)))
    assert verify_release(before.folder)
    after = build(small(tmp_path, source=SyntheticConfig(n_works=4_000, seed=1), overwrite=True))
    assert after.manifest["source"]["config"]["seed"] == 1


@pytest.mark.parametrize("balance", ["novelty", "joint"])
def test_balancing_novelty_is_refused_before_anything_is_computed(tmp_path, balance):
    with pytest.raises(UnavailableError, match="novelty"):
        build(small(tmp_path, split=SplitConfig(balance=balance)))
    assert not (tmp_path / "cache").exists()


def test_without_balancing_the_natural_shares_are_drawn(tmp_path):
    release = build(small(tmp_path, split=SplitConfig(n_train=600, n_test=60, balance="none")))
    counts = release.manifest["class_counts"]["train"]["disruption_label"]
    eligible = release.manifest["counts"]["eligible"]
    assert sum(counts.values()) == 600
    for label in DISRUPTION_LABELS:
        assert counts[label] / 600 == pytest.approx(eligible[label] / sum(eligible.values()), abs=0.06)
    verify_release(release.folder)


@pytest.mark.slow
def test_runs_killed_at_any_moment_leave_no_half_release_and_the_next_one_completes(tmp_path):
    flags = ("--source", "synthetic", "--n-works", "20000", "--n-train", "300", "--n-test", "30")
    places = ("--out", str(tmp_path / "slice"), "--cache-dir", str(tmp_path / "cache"))
    start = time.monotonic()
    clean = build_slice(*flags, "--out", str(tmp_path / "clean"), "--cache-dir", str(tmp_path / "clean-cache"))
    assert clean.wait(timeout=120) == 0
    duration = time.monotonic() - start
    moments = random.Random(0)
    killed = 0
    for _ in range(8):
        process = build_slice(*flags, *places, "--overwrite")
        time.sleep(moments.uniform(0.3, 1.0) * duration)
        process.send_signal(signal.SIGKILL)
        killed += process.wait(timeout=60) == -signal.SIGKILL
        if (tmp_path / "slice").exists():
            verify_release(tmp_path / "slice")
    assert killed >= 3
    assert build_slice(*flags, *places, "--overwrite").wait(timeout=120) == 0
    assert hashes(tmp_path / "slice") == hashes(tmp_path / "clean")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "clean", "clean-cache", "slice"]
