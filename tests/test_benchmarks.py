"""The graphs that figures of speed are of stay as they are, byte by byte; one command makes the table of figures."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import sciscidata as ssd
from benchmarks import all as every_benchmark
from benchmarks.explain import RESULTS as KEPT
from benchmarks.explain import compare
from benchmarks.graphs import N_WORKS, generate
from benchmarks.label_confidence import read_papers
from benchmarks.measure import table
from benchmarks.real_graphs import read_handball
from benchmarks.teams import slope_of_teams, slope_of_years, summarise
from sciscidata.indicators import MultiverseConfig, run_multiverse
from tests.conftest import REPOSITORY

CHOICES = ("conventions", "windows", "indices", "populations", "min_references", "min_citers", "years", "missing")

#: Of the generator that made the graphs of the first figures.
SHA_256 = {
    "paper_id": "23690871ae6e1fd9",
    "year": "6ecdc4e9785822ba",
    "journal": "cc547e5398b8afe6",
    "citing": "6f0c652106eee04d",
    "cited": "01c4c5c77908a587",
}


def test_the_graph_S_has_the_bytes_of_its_first_figures():
    works, citations = generate(N_WORKS["S"])
    columns = works | citations
    assert {name: hashlib.sha256(column.tobytes()).hexdigest()[:16] for name, column in columns.items()} == SHA_256
    assert len(columns["citing"]) == 2_206_055


def test_a_network_of_pajek_gives_works_with_years_and_venues_and_citations(tmp_path: Path):
    vertices = '\t1 "Helm_F(2016)7:882"\n\t2 "Ohnjec_K()"\n\t3 "Wrang_CM(2018)63:33"\n'
    works_file, venues_file = tmp_path / "cites.net", tmp_path / "venues.net"
    works_file.write_text(f"*Vertices 3\n{vertices}*Arcs\n1 2 1\n3 1 1\n", "utf-8-sig")
    venues_file.write_text(f'*Vertices 5 3\n{vertices}\t4 "A"\n\t5 "B"\n*Arcs\n1 5 1\n3 4 1\n', "utf-8-sig")
    works, citations = read_handball(works_file, venues_file)
    assert works.select("work_id", "publication_year", "source_id").rows() == [
        (1, 2016, 2),
        (2, None, None),
        (3, 2018, 1),
    ]
    assert citations.rows() == [(1, 2), (3, 1)]


def test_one_command_writes_a_row_for_every_tool_and_says_which_did_not_run(tmp_path: Path):
    """The interpreter of the tests has no peers."""
    words = ("--sizes", "XS", "--parts", "cd_index", "--out", str(tmp_path), "--peers", sys.executable)
    command = [sys.executable, str(Path(every_benchmark.__file__)), *words]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert first.stdout.startswith("step 1 of 1: cd_index-XS\n")
    rows = json.loads((tmp_path / "cd_index-XS.json").read_text())["rows"]
    took = {row["tool"]: row for row in rows if row["task"].startswith("XS: from Parquet")}
    assert took["sciscidata, 1 thread"]["cpu_s"] > 0
    assert took["sciscidata, 1 thread"]["note"].endswith("counts of 2,000 works equal joins")
    for peer in ("xfast_cdindex", "fast_cdindex", "cdindex"):
        assert took[peer]["note"].startswith("did not run: ModuleNotFoundError")
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert sum(line.startswith("| ") for line in lines) == len(rows) + 1
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=True)
    assert again.stdout.startswith("| | |")
    assert (tmp_path / "table.md").read_text().splitlines() == lines


def test_a_failed_step_is_a_row_and_is_run_again(tmp_path: Path):
    step = every_benchmark.Step("cd_index", "S", ["--size", "none"])
    rows = every_benchmark.run_step(step, sys.executable)
    assert [row["note"][:30] for row in rows] == ["failed: cd_index.py: error: ar"]
    file = tmp_path / "step.json"
    file.write_text(json.dumps({"arguments": step.arguments, "rows": rows}))
    assert not every_benchmark.is_done(step, file)
    file.write_text(json.dumps({"arguments": step.arguments, "rows": []}))
    assert every_benchmark.is_done(step, file)
    assert not every_benchmark.is_done(step._replace(arguments=["--size", "M"]), file)


def test_a_ratio_is_to_the_first_tool_of_the_task():
    rows = [("a", "ours", 2.0), ("a", "peer", 9.0), ("b", "ours", 0.5), ("b", "gone", None), ("b", "peer", 100.0)]
    lines = table(
        {"task": task, "tool": tool} | ({"cpu_s": cpu} if cpu else {"note": "did not run"}) for task, tool, cpu in rows
    ).splitlines()
    assert lines[2:] == [
        "| a | ours | 2 |  |  | 1 |  |",
        "|  | peer | 9 |  |  | 4.5 |  |",
        "| b | ours | 0.5 |  |  | 1 |  |",
        "|  | gone |  |  |  |  | did not run |",
        "|  | peer | 100 |  |  | 200 |  |",
    ]


def test_the_page_on_multiverses_says_what_was_kept():
    kept = json.loads((REPOSITORY / "benchmarks/results/multiverse.json").read_text())
    teams, decline = kept["teams, example"], kept["decline, five fields"]
    page, note = (
        (REPOSITORY / folder / "multiverse.md").read_text("utf-8") for folder in ("docs/measures", "benchmarks/notes")
    )
    for index, (median, above, below) in teams["by index"].items():
        cells = [f"{median:.2f}", f"{above:.0%}", f"{below:.0%}"]
        median, above, below = decline["by index"][index]
        row = [f"`{index}`", *cells, f"{median:.3f}", f"{above:.0%}", f"{below:.0%}"]
        assert f"| {' | '.join(row)} |".replace("%", " %") in note
    assert f"teams, {teams['specifications']:,} specifications" in note
    assert f"decline, {decline['specifications']:,} specifications" in note
    for text in (page, note):
        assert "main: {estimate:.1f}, interval {low:.1f} to {high:.1f}".format(**teams["main"]) in text
        assert "main: {estimate:.5f}, interval {low:.5f} to {high:.5f}".format(**decline["main"]) in text
    assert (teams["without estimate"], decline["without estimate"]) == (0, 0)


def test_the_main_specification_of_both_findings_is_the_one_that_was_kept(shared_data):
    kept = json.loads((REPOSITORY / "benchmarks/results/multiverse.json").read_text())
    first = {name: getattr(MultiverseConfig(), name)[:1] for name in CHOICES}
    corpus, authors = ssd.scan_example(), ssd.scan_authors(ssd.ExampleConfig())
    found = {
        "teams, example": run_multiverse(
            slope_of_teams, corpus.works, corpus.citations, MultiverseConfig(**first), authors=authors
        ),
        "decline, five fields": run_multiverse(
            slope_of_years, *read_papers(shared_data / "papers"), MultiverseConfig(**first)
        ),
    }
    for name, multiverse in found.items():
        assert summarise(multiverse)["main"] == kept[name]["main"]


@pytest.mark.parametrize("name", ["example", "XS"])
def test_explain_counts_as_all_works_and_as_joins_and_the_kept_result_says_so(name):
    row = compare(name, 20)
    kept = {one["graph"]: one for one in json.loads(KEPT.read_text())}
    assert row is not None
    for one in (row, kept[name]):
        assert (one["other than all works"], one["other than joins"]) == (0, 0)
        assert one["citations"] == row["citations"]
    assert len(kept) == 5
    assert sum(one["works"] for one in kept.values()) >= 1_000
