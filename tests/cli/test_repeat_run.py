"""``build --print-config``, ``--from-manifest`` and ``--dry-run``: a run as a file, a run again, a run foretold."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from sciscidata.cli.build_options import list_settings, read_toml, resolve
from sciscidata.cli.dry_run import describe_plan
from sciscidata.cli.main import main
from sciscidata.cli.repeat_run import render_toml
from sciscidata.config import BuildConfig
from sciscidata.release.read import read_release
from sciscidata.schemas import CITATIONS, WORKS, Corpus
from sciscidata.sources.example.source import WORKS_FILE
from sciscidata.sources.synthetic.source import SyntheticConfig
from tests.servers.openalex_server import OpenAlexServer

SMALL = ["--source", "synthetic", "--n-works", "2000", "--n-train", "30", "--n-test", "3"]
KEY = "a-secret-key-1234"


@pytest.fixture
def run(run, monkeypatch):
    """Run `build` in an empty folder; return its exit status, output and errors."""
    monkeypatch.delenv("OPENALEX_BASE_URL", raising=False)
    return partial(run, "build")


@pytest.mark.parametrize(
    "flags",
    [
        ["--source", "example"],
        SMALL,
        ["--source", "synthetic", "--no-novelty", "--window-years", "all", "--cache-dir", 'a "b" \\ c'],
        ["--input", "ä*.jsonl", "b.json", "--strict", "--null", "permutation", "--novelty-max-references", "all"],
        ["--source", "openalex", "--no-venues", "--email", "you@example.org", "--max-cost-usd", "0.5"],
        ["--source", "openalex", "--base-url", "http://127.0.0.1:9", "--min-year", "1999"],
        ["--sciscinet", "tables", "--balance", "joint", "--novelty-rule", "uzzi", "--overwrite"],
        ["--snapshot", "s", "--background", "b.parquet", "--language", "en", "fr", "--preset", "wide"],
        ["--source", "synthetic", "--window", "1", "90d", "all", "--time", "publication_date"],
        ["--corpus", "c", "--no-scores-file", "--compat", "pyscisci", "--language", "--work-type", "article"],
    ],
    ids=lambda flags: flags[1],
)
def test_the_printed_file_reads_back_to_the_same_configuration(run, tmp_path, flags):
    status, printed, err = run(*flags, "--print-config")
    assert status == 0, err
    Path("run.toml").write_text(printed, "utf-8")
    config = resolve(read_toml(Path("run.toml")))
    assert render_toml(config) == printed
    assert run("--config", "run.toml", "--print-config")[1] == printed
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]  # nothing was read or written


def test_a_new_field_of_a_build_is_a_flag_a_setting_and_stated(run, monkeypatch, capsys):
    @dataclass(frozen=True, kw_only=True, slots=True, repr=False)
    class WiderConfig(BuildConfig):
        """A build of tomorrow.

        Attributes:
            depth: how deep to look, in layers.
        """

        depth: int = 1

    monkeypatch.setattr("sciscidata.cli.build_options.BuildConfig", WiderConfig)
    list_settings.cache_clear()
    try:
        with pytest.raises(SystemExit, match="0"):
            main(["build", "--help-all"])
        assert "how deep to look, in layers [1]" in capsys.readouterr().out
        printed = run(*SMALL, "--depth", "2", "--print-config")[1]
        assert "depth = 2" in printed.partition("[")[0]
        Path("run.toml").write_text(printed, "utf-8")
        assert run("--config", "run.toml", "--print-config")[1] == printed
        assert run("--config", "run.toml", "--out", "one")[0] == 0
        assert run("--from-manifest", "one", "--out", "two")[0] == 0
        assert json.loads(Path("two/manifest.json").read_text("utf-8"))["build"] == {"depth": 2}
        assert main(["verify", "two"]) == 0
        assert run(*SMALL, "--out", "three")[0] == 0
        assert "build" not in json.loads(Path("three/manifest.json").read_text("utf-8"))
    finally:
        list_settings.cache_clear()


def test_what_python_has_made_reads_back_too(tmp_path):
    source = SyntheticConfig(n_works=9, growth_per_year=1e-5)
    config = BuildConfig(source=source, out=tmp_path / "slice", cache_dir=tmp_path / "cache", novelty=None)
    (tmp_path / "run.toml").write_text(render_toml(config), "utf-8")
    assert resolve(read_toml(tmp_path / "run.toml")) == config


def test_a_key_is_never_printed(run, monkeypatch):
    monkeypatch.setenv("OPENALEX_API_KEY", KEY)
    status, printed, _ = run("--source", "openalex", "--print-config")
    assert (status, KEY in printed, "api_key" in printed) == (0, False, False)


def test_a_release_is_repeated_from_its_manifest(run):
    options = ["--balance", "joint", "--novelty-rule", "uzzi", "--score", "rank", "--min-references", "2"]
    assert run(*SMALL[:4], "--n-train", "27", "--n-test", "9", *options, "--out", "one")[0] == 0
    status, out, err = run("--from-manifest", "one/manifest.json", "--out", "two")
    assert status == 0, err
    assert "the lines of train and test are those of one" in out
    assert Path("one/manifest.json").read_bytes() == Path("two/manifest.json").read_bytes()
    status, out, _ = run("--from-manifest", "one", "--seed", "5", "--out", "three")
    assert status == 0
    assert "train.jsonl and test.jsonl differ from those of one" in out
    assert run(*SMALL[:4], "--n-train", "27", "--n-test", "9", "--no-scores-file", "--out", "bare")[0] == 0
    assert run("--from-manifest", "bare", "--out", "again")[0] == 0
    assert Path("bare/manifest.json").read_bytes() == Path("again/manifest.json").read_bytes()
    assert not Path("again/scores.parquet").exists()


def test_what_a_build_says_to_type_next_works(run):
    out = run(*SMALL, "--out", "my first")[1]
    verify, describe, python, own = (line[7:] for line in out.splitlines()[-4:])
    assert main(shlex.split(verify)[1:]) == 0
    assert main(shlex.split(describe)[1:]) == 0
    assert Path("my first.html").is_file()
    place = re.fullmatch(r'python: sciscidata\.read_release\("(.+)"\)\.train', python)[1]
    assert read_release(place).train.height == 30
    with pytest.raises(SystemExit, match="0"):
        main(shlex.split(own.removeprefix("your own works: ").partition("  (")[0])[1:])


def test_what_a_command_says_to_type_next_works(run, caplog):  # run: in an empty folder
    caplog.set_level("INFO")
    said = [
        "next: sciscidata ingest --source synthetic --n-works 2000 --out 'my corpus'",
        "next: sciscidata graph 'my corpus'",
    ]
    typed = list[str]()
    while said:
        command = said.pop(0).partition(": sciscidata ")[2].partition("  (")[0]
        if command not in typed and (command.split()[0] != "cd" or "cd" not in [one.split()[0] for one in typed]):
            typed.append(command)
            caplog.clear()
            assert main(shlex.split(command)) == 0, command
            said += [line for line in caplog.messages if line.startswith(("next: ", "then: "))]
    assert [command.split()[0] for command in typed] == ["ingest", "graph", "diagnose", "cd", "diagnose", "describe"]
    assert all(Path(file).is_file() for file in ("cd.parquet", "checks.png", "scores.html"))


def test_a_manifest_without_paths_asks_for_them(run):
    file = str(WORKS_FILE)
    few = ["--n-train", "3", "--n-test", "0", "--balance", "none", "--no-complete-window", "--no-novelty"]
    assert run("--input", file, *few, "--min-citations", "0", "--out", "one")[0] == 0
    status, _, err = run("--from-manifest", "one", "--out", "two")
    assert (status, err) == (1, "error: the source records needs at least one file: --input.\n")
    status, out, err = run("--from-manifest", "one", "--out", "two", "--input", file)
    assert "are those of one" in out, err


def test_another_background_than_that_of_the_release_is_named(run, caplog):
    for file, n_works in (("one.parquet", "3000"), ("other.parquet", "2000")):
        assert main(["background", "--source", "synthetic", "--n-works", n_works, "--out", file]) == 0
    assert run(*SMALL, "--background", "one.parquet", "--out", "one")[0] == 0
    digest = json.loads(Path("one/manifest.json").read_bytes())["atypicality"]["background"]["sha256"]
    again = ["--from-manifest", "one", "--background"]
    told = f"; the release was scored against another one, with SHA-256 {digest}"
    status, out, _ = run(*again, "one.parquet", "--out", "two")
    assert (status, "are those of one" in out, told in caplog.text) == (0, True, False)
    assert run(*again, "other.parquet", "--print-config")[0] == 0
    assert told in caplog.text


def test_what_is_no_release_is_named(run, tmp_path):
    status, _, err = run("--from-manifest", "nothing")
    assert (status, "nothing is not a release" in err) == (1, True)


def test_a_dry_run_says_what_would_be_read_and_writes_nothing(run, tmp_path):
    status, out, err = run("--input", str(WORKS_FILE), "--dry-run")
    assert status == 0, err
    about = int(re.search(r"1 file of records, 3,927,068 bytes: about ([\d,]+) works", out)[1].replace(",", ""))
    assert 0.3 < about / 4_381 < 1.2  # records that are cut to what is read are smaller than most
    assert "would draw: 5,000 train and 500 test works: disruptive 1,834, consolidating 1,834, neutral 1,832" in out
    assert "too few, probably: disruptive (about 204, 1,834 wanted)" in out
    assert [*tmp_path.iterdir()] == []


def test_a_dry_run_of_a_corpus_counts_what_it_holds(run, tmp_path):
    assert main(["ingest", "--source", "synthetic", "--n-works", "500", "--out", "world"]) == 0
    status, out, _ = run("--corpus", "world", "--n-train", "30", "--n-test", "3", "--dry-run")
    assert (status, "the corpus world: 500 works, " in out) == (0, True)


def test_a_dry_run_of_frames_reads_no_row(tmp_path):
    works, citations = (pl.defer(pytest.fail, schema=schema) for schema in (WORKS, CITATIONS))
    config = BuildConfig(source=Corpus(works, citations, {}), out=tmp_path / "slice")
    assert "would read: a source of the kind Corpus" in describe_plan(config)


@pytest.fixture(scope="module")
def server():
    with OpenAlexServer(WORKS_FILE, key=KEY) as server:
        yield server


def test_a_dry_run_of_the_api_costs_two_calls_and_speaks_of_the_key_at_hand(run, server, monkeypatch):
    flags = ["--source", "openalex", "--from-year", "1960", "--to-year", "2022", "--last-year", "2022"]
    flags += ["--base-url", server.base_url, "--n-train", "60", "--n-test", "15", "--dry-run"]
    monkeypatch.setenv("OPENALEX_API_KEY", KEY)
    status, out, err = run(*flags)
    assert status == 0, err
    assert "this look took 2 calls, $0.0002" in out
    assert re.search(r"calls: about [1-9][\d,]*, at 25 a second .*; at least [1-9][\d,]*, at most [1-9][\d,]*", out)
    assert "novelty labels: 0 to 75 of the 75 works; that depends on the venues of references" in out
    assert re.search(r"cost: about \$0\.\d\d; a free key, with \$1.00 a day, allows that in 1 day", out)
    assert "without a key" not in out
    status, out, _ = run(*flags)
    assert "this look took 0 calls" in out  # the answers were kept
    monkeypatch.delenv("OPENALEX_API_KEY")
    status, out, _ = run(*flags)
    assert re.search(r"without a key, at \$0.10 a day, that takes \d+ days?; a free key, with \$1.00 a day", out)
    assert not Path("slices").exists()


def test_own_tables_are_foretold_and_repeated(run):
    rows = [f"P{i},{1990 + i % 20}" for i in range(400)]
    Path("works.csv").write_text("\n".join(["patent,granted", *rows]) + "\n", "utf-8")
    cites = [f"P{i},P{j}" for i in range(400) for j in range(i % 20, i, 37)]
    Path("cites.csv").write_text("\n".join(["citing_id,cited_id", *cites]) + "\n", "utf-8")
    files = ["--works", "works.csv", "--citations", "cites.csv"]
    few = ["--n-train", "3", "--n-test", "0", "--balance", "none", "--no-require-title", "--no-require-abstract"]
    flags = [*files, "--id", "patent", "--year", "granted", *few, "--no-novelty", "--no-complete-window"]
    status, out, err = run(*flags, "--dry-run")
    assert (status, "would read: 2 tables, " in out) == (0, True), err
    status, _, err = run(*flags, "--out", "one")
    assert status == 0, err
    status, out, err = run("--from-manifest", "one", *files, "--out", "two")
    assert "are those of one" in out, err
