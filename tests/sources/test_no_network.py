"""Without a network: a source that needs one says at once what helps, and all others need none."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import polars as pl
import pytest

from sciscidata.cli.main import main
from sciscidata.config import BuildConfig
from sciscidata.options.checks import field_hints

LONGEST_S = 30.0
HELP = (
    r"Check the address and the network: behind a proxy, set HTTPS_PROXY\. Files on a disk, --source example "
    r"\(real papers\) and --source synthetic need no network"
)
#: Every source, how it is named, and whether it is elsewhere.
SOURCES = {
    "openalex": ("--email you@example.org", rf"https://api\.openalex\.org gave no answer in 3 .*{HELP}.*--offline"),
    "snapshot": ("--snapshot s3://openalex", rf"s3://openalex/\S* cannot be read: .*{HELP}"),
    "sciscinet": ("--sciscinet hf://datasets/some/where", rf"sciscinet_papers\.parquet cannot be opened: .*{HELP}"),
    "example": ("--source example", ""),
    "synthetic": ("--source synthetic --n-works 500", ""),
    "records": ("--input records.jsonl", ""),
    "tables": ("--works works.csv --citations citations.csv", ""),
    "exports": ("--exports savedrecs.txt", ""),
    "labelled": ("--labelled labelled.jsonl --labels trust", ""),
    "corpus": ("--corpus world", ""),
}


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a command behind a proxy that is not there, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("OPENALEX_API_KEY", "OPENALEX_BASE_URL", "HF_ENDPOINT", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")

    def call(command: str) -> tuple[int, str, str]:
        begun = time.monotonic()
        status = main(
            [*shlex.split(command), "--cache-dir", "cache"] if command.startswith("build") else command.split()
        )
        assert time.monotonic() - begun < LONGEST_S
        return status, *capfd.readouterr()

    return call


def write_inputs() -> None:
    Path("records.jsonl").write_text('{"id": "https://openalex.org/W1", "publication_year": 2000}\n', "utf-8")
    pl.DataFrame({"id": ["A", "B"], "year": [2000, 2001]}).write_csv("works.csv")
    pl.DataFrame({"citing": ["B"], "cited": ["A"]}).write_csv("citations.csv")
    Path("savedrecs.txt").write_text("PT J\nAU Poe, E\nTI Dams\nPY 1990\nCR Roe R, 1980, MAPS\nUT WOS:A\nER\n", "utf-8")
    Path("labelled.jsonl").write_text('{"id": "W1", "disruption_label": "neutral"}\n', "utf-8")
    assert main(["ingest", "--source", "synthetic", "--n-works", "500", "--out", "world"]) == 0


@pytest.mark.parametrize(
    ("source", "dry"),  # other tests draw from the sources on a disk
    [(source, dry) for source, (_, told) in SOURCES.items() for dry in ("--dry-run", *([""] if told else []))],
)
def test_every_source_says_what_helps_or_needs_no_network(run, source, dry):
    words, told = SOURCES[source]
    if not told:
        write_inputs()
    status, _, err = run(f"build {words} --n-train 30 --n-test 3 --out release --cache-dir cache {dry}")
    assert status == (1 if told else 0), err
    assert re.search(told, err), err
    assert "run the same command again later" not in err
    assert not Path("release").exists()


def test_all_sources_are_in_the_table():
    assert len(field_hints(BuildConfig)["source"].configurations) == len(SOURCES)


def test_a_hub_that_is_not_reached_is_asked_three_times(run):
    status, _, err = run("fetch hf:some/release --out release")
    assert status == 75
    assert re.search(
        r"https://huggingface\.co was not reached, to find some/release .*behind a proxy, set HTTPS_PR", err
    )
    assert not Path("release").exists()
