"""The graphs that figures of speed are of stay as they are, byte by byte."""

from __future__ import annotations

import hashlib
from pathlib import Path

from benchmarks.graphs import N_WORKS, generate
from benchmarks.real_graphs import read_handball

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
