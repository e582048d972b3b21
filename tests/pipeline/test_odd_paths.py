"""Names of folders and files are names: what looks like a pattern in them, or like a home, is none."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from sciscidata.cli.build_options import resolve
from sciscidata.cli.main import main
from sciscidata.errors import InputNotFoundError
from sciscidata.sources.record_files import find_files
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.sources.sciscinet.source import SciSciNetConfig
from sciscidata.sources.snapshot.source import SnapshotConfig, snapshot_bytes
from tests.conftest import REPOSITORY

ODD = "w* [ä] ~"
NEIGHBOUR = "wx ä ~"  # what ODD would match as a pattern


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command that is to end well in an empty folder; return its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "sciscidata.storage.user_cache.platformdirs.user_cache_dir", lambda _: str(tmp_path / ODD / "cache")
    )

    def call(*arguments: str) -> str:
        status = main(arguments)
        captured = capsys.readouterr()
        assert status == 0, captured.err
        return captured.out

    return call


def test_every_stage_works_in_a_folder_that_looks_like_a_pattern_and_not_in_its_neighbour(run, tmp_path):
    for name in ("plain", ODD):
        home = tmp_path / name
        run("ingest", "--source", "synthetic", "--n-works", "900", "--out", f"{home}/corpus")
        if name == ODD:
            shutil.copytree(home, tmp_path / NEIGHBOUR)
        run("cd", f"{home}/corpus", "--out", f"{home}/cd.parquet")
        run("background", "--corpus", f"{home}/corpus", "--out", f"{home}/pairs.parquet")
        run("novelty", f"{home}/corpus", "--out", f"{home}/z.parquet", "--background", f"{home}/pairs.parquet")
        run("export", "--corpus", f"{home}/corpus", "--out", f"{home}/all")
        run("build", "--corpus", f"{home}/corpus", "--n-train", "30", "--n-test", "3", "--out", f"{home}/slice")
        run("verify", f"{home}/slice")
        for made in ("corpus", "cd.parquet", "pairs.parquet", "z.parquet", "all", "slice"):
            assert run("describe", f"{home}/{made}")
    for made in ("cd.parquet", "pairs.parquet", "z.parquet", "all/labelled.jsonl", "slice/train.jsonl"):
        assert (tmp_path / ODD / made).read_bytes() == (tmp_path / "plain" / made).read_bytes(), made


def test_records_in_such_a_folder_are_found_and_kept_there(tmp_path):
    for name, work in ((ODD, "W1"), (NEIGHBOUR, "W2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "[1].jsonl").write_text(json.dumps({"id": work}))
    for given in ("[1].jsonl", "*.jsonl", "", "**/*.jsonl"):
        corpus = pull_records(RecordsConfig(inputs=(str(tmp_path / ODD / given),)), tmp_path / ODD / "cache")
        assert corpus.works.collect()["work_id"].to_list() == [1], given
    assert len(find_files((str(tmp_path / "w*" / "*.jsonl"),), "inputs")) == 2


def test_a_home_is_one_wherever_a_path_is_named_and_an_unknown_users_is_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "w.jsonl").touch()
    assert find_files(("~/w.jsonl",), "inputs") == [tmp_path / "w.jsonl"]
    top = {"out": "~/slices/a", "cache_dir": "~/cache", "background": "~none-such/b.parquet"}
    config = resolve({"": top, "sciscinet": {"folder": "~/tables", "texts": "~/texts", "recompute": True}})
    assert (config.out, config.cache_dir) == (tmp_path / "slices" / "a", tmp_path / "cache")
    assert config.background == Path("~none-such/b.parquet")
    assert config.source == SciSciNetConfig(folder=f"{tmp_path}/tables", texts=f"{tmp_path}/texts", recompute=True)
    for read in (
        lambda: find_files(("~none-such/w",), "inputs"),
        lambda: snapshot_bytes(SnapshotConfig(folder="~none-such")),
    ):
        with pytest.raises(InputNotFoundError, match="~none-such"):
            read()


@pytest.mark.skipif(sys.platform != "linux", reason="names of other systems are UTF-8")
@pytest.mark.parametrize(
    ("name", "environment"),
    [(b"caf\xe9", {}), ("café".encode(), {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})],
)
def test_a_folder_whose_name_polars_cannot_read_is_said(tmp_path, name, environment):
    command = [sys.executable, "-P", "-m", "sciscidata", "ingest", "--source", "synthetic", "--cache-dir", "cache"]
    done = subprocess.run(
        [*command, "--out", name],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"Rename it, or if the name is UTF-8, export PYTHONUTF8=1" in b" ".join(done.stderr.split())


@pytest.mark.skipif(sys.platform != "linux", reason="names of other systems are UTF-8")
def test_a_corpus_whose_name_polars_cannot_read_is_said_by_every_command(tmp_path, capsys):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    assert main(["ingest", "--source", "synthetic", "--n-works", "300", "--out", str(tmp_path / "world")]) == 0
    shutil.copytree(tmp_path / "world", name)
    out = ["--cache-dir", str(tmp_path / "cache"), "--out", str(tmp_path / "made.parquet")]
    for words in (["graph", name], ["cd", name, *out], ["novelty", name, *out], ["background", "--corpus", name, *out],
                  ["diagnose", name], ["export", "--corpus", name, *out[:3], str(tmp_path / "made")]):  # fmt: skip
        capsys.readouterr()
        assert main(words) == 1, words
        assert "Rename it, or if the name is UTF-8, export PYTHONUTF8=1" in capsys.readouterr().err, words


def test_no_file_is_scanned_as_a_pattern_unasked():
    readers = {"read_parquet", "scan_parquet", "read_parquet_schema", "scan_csv", "scan_ndjson", "scan_ipc", "read_ipc"}
    assert readers <= set(dir(pl))
    for path in sorted([*(REPOSITORY / "sciscidata").rglob("*.py"), *(REPOSITORY / "sciscirl").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in readers:
                escaped = "glob.escape(" in ast.unparse(node)  # scan_ndjson has no glob=False
                assert escaped or "glob" in {keyword.arg for keyword in node.keywords}, f"{path.name}:{node.lineno}"
