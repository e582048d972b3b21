"""Which edit moved a label where several came at once: against the same edits made in plain sets of citations."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings

import sciscidata as ssd
from sciscidata.changes.edits import Cited, name_edits
from sciscidata.corpus.writer import write_corpus
from sciscidata.graph.graph import build_graph
from sciscidata.schemas import WORKS, Corpus
from tests import oracles
from tests.changes.test_causes import CONFIG, labels_of, presets
from tests.disruption.test_index import edge_lists, frames, years_of_works


def edits_of(work, years, edges, others, other_edges):
    """Make each edit of a work alone: what kind it is, with years and citations."""
    old, new = ({edge for edge in some if edge[0] != edge[1]} for some in (edges, other_edges))
    own = [{edge for edge in some if edge[0] == work} for some in (old, new)]
    cites = [{citing for citing, cited in some if cited == work} for some in (old, new)]
    everyone = {citing for citing, _ in old | new} - {work}
    groups = {
        "citers": cites[0] ^ cites[1],
        "other_citers": cites[0] & cites[1],
        "citers_of_references": everyone - cites[0] - cites[1],
    }
    for kind, group in groups.items():
        of_group = {edge for edge in new if edge[0] in group} | {edge for edge in old if edge[0] not in group}
        yield kind, {**others, **years}, sorted(of_group)
    yield "references", {**others, **years}, sorted((old - own[0]) | own[1])
    yield "changed_year", {**others, **years, work: others[work]}, sorted(old)


def expect(work, years, edges, others, other_edges, cut):
    """Return the cause, by the definition; None where several edits move the label, or none does alone."""
    before, after = (labels_of(*side, cut).get(work) for side in ((years, edges), (others, other_edges)))
    made = [*edits_of(work, years, edges, others, other_edges)]
    moving = [edit for edit in made if labels_of(edit[1], edit[2], cut).get(work) != before]
    if len(moving) != 1 or labels_of(*moving[0][1:], cut).get(work) != after:
        return None

    def citers(some_years, some_edges):
        found = oracles.cd_family(some_years, some_edges, CONFIG).get(work)
        return found["n_i"] + found["n_j"] if found else 0

    kind, *edited = moving[0]
    n_listed = [len({edge for edge in some if edge[0] == work != edge[1]}) for some in (edges, other_edges)]
    more = {"citers": citers(*edited) - citers(years, edges), "references": n_listed[1] - n_listed[0]}
    names = {
        "citers": ("lost_citers", "other_citers", "new_citers"),
        "references": ("lost_references", None, "new_references"),
    }
    return names[kind][(more[kind] > 0) - (more[kind] < 0) + 1] if kind in names else kind


@given(years_of_works, edge_lists, years_of_works, edge_lists, presets)
@settings(max_examples=25)
def test_an_edit_is_the_cause_where_it_alone_moves_the_label(years, edges, others, other_edges, cut):
    sides = (years, edges), (others, other_edges)
    labels = [labels_of(*side, cut) for side in sides]
    moved = [work for work in sorted(years) if work in others and labels[0].get(work) != labels[1].get(work)]
    graphs = [build_graph(*frames(*side)) for side in sides]
    found = dict(name_edits(moved, Cited((graphs[0], graphs[1]), ssd.CDConfig(), cut), lambda _: None).rows())
    expected = {work: expect(work, years, edges, others, other_edges, cut) for work in moved}
    assert found == {work: cause for work, cause in expected.items() if cause is not None}


def test_two_corpora_tell_more_than_their_counts(tmp_path):
    """A citer came, and a reference that nobody else cites was lost: only the citer moves the label."""
    years = {1: 1990, 2: 1990, 3: 2000, 4: 2001, 5: 2002}
    before, after = [(3, 1), (3, 2), (4, 1), (4, 3)], [(3, 1), (4, 1), (4, 3), (5, 3), (6, 3)]
    for name, some, edges in (("a", years, before), ("b", {**years, 6: 2003}, after)):
        works, citations = (frame.lazy() for frame in frames(some, edges))
        others = {column: dtype for column, dtype in WORKS.items() if column not in works.collect_schema()}
        works = works.with_columns(pl.lit(None, dtype).alias(column) for column, dtype in others.items()).select(*WORKS)
        write_corpus(Corpus(works, citations, {"kind": "records"}), tmp_path / name, texts=False)
    family = ssd.CDConfig(family=True)
    scores = [ssd.write_cd_index(tmp_path / name, tmp_path / f"{name}.parquet", family) for name in "ab"]
    for sides, cause in ((scores, "several"), ((tmp_path / "a", tmp_path / "b"), "new_citers")):
        assert ssd.compare(*sides).changes.filter(work_id=3).collect()["cause"].to_list() == [cause]
