"""What moved a label, against plain sets on random graphs, and against what an edit of a graph has changed."""

from __future__ import annotations

import polars as pl
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sciscidata.changes.causes import CAUSES
from sciscidata.changes.compare import compare
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import compute_cd_index
from sciscidata.label_thresholds import PRESETS, LabelThresholds
from tests import oracles
from tests.disruption.test_index import edge_lists, frames, years_of_works

CONFIG = CDConfig(family=True)
presets = st.sampled_from(sorted(PRESETS)).map(LabelThresholds.preset)


def label_of(index: float | None, cut: LabelThresholds) -> str | None:
    if index is None:
        return None
    if index > cut.disruptive_min or (cut.inclusive and index == cut.disruptive_min):
        return "disruptive"
    is_low = index < cut.consolidating_max or (cut.inclusive and index == cut.consolidating_max)
    return "consolidating" if is_low else "neutral"


def labels_of(years, edges, cut) -> dict[int, str | None]:
    scores = oracles.cd_family(years, edges, CONFIG)
    return {work: label_of(found and found["cd_index"], cut) for work, found in scores.items()}


def scored(years, edges) -> pl.DataFrame:
    works, citations = frames(years, edges)
    return compute_cd_index(works, citations, CONFIG).join(works, on="work_id").collect()


def references_of(edges) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for citing, cited in edges:
        if citing != cited:
            found.setdefault(citing, set()).add(cited)
    return found


def told_of(one, other, cut) -> str:
    """The cause by the definition on the page, of the counts of a work on both sides (with ``year``)."""
    if one["year"] != other["year"]:
        is_unknown = None in (one["year"], other["year"])  # references of a work without a year are not counted
        return "changed_year" if is_unknown or one["n_refs"] == other["n_refs"] else "several"
    citers = [side["n_i"] + side["n_j"] for side in (one, other)]
    up = {name: other[name] - one[name] for name in ("n_i", "n_j", "n_k", "n_refs")}

    def label(of_citers, of_n_k):
        total = of_citers["n_i"] + of_citers["n_j"] + of_n_k["n_k"]
        return label_of((of_citers["n_i"] - of_citers["n_j"]) / total if total else None, cut)

    before, after = (label_of(side["cd_index"], cut) for side in (one, other))
    halves = {"citers": label(other, one), "n_k": label(one, other)}
    moved_by = [half for half in halves if halves[half] == after and [*halves.values()].count(before) == 1]
    if up["n_refs"]:
        sign, cause = (1, "new_references") if up["n_refs"] > 0 else (-1, "lost_references")
        fits = sign * up["n_k"] >= 0 or moved_by == ["citers"]
        return cause if fits and citers[0] == citers[1] and sign * up["n_j"] >= 0 else "several"
    if not up["n_k"]:
        moved_by = ["citers"]
    elif not (up["n_i"] or up["n_j"]):
        moved_by = ["n_k"]
    if moved_by == ["n_k"]:
        return "citers_of_references"
    if moved_by == ["citers"]:
        return "new_citers" if citers[1] > citers[0] else "lost_citers" if citers[1] < citers[0] else "other_citers"
    return "several"


@given(years_of_works, edge_lists, years_of_works, edge_lists, presets)
@settings(max_examples=60)
def test_works_labels_and_causes_of_any_two_graphs_are_those_of_plain_sets(years, edges, others, other_edges, cut):
    other_years, edges_b = {**years, **others}, [*edges[10:], *other_edges[:15]]
    other_years.pop(min(other_years), None)
    assume(other_years.keys() & years.keys())
    found = compare(scored(years, edges), scored(other_years, edges_b), thresholds=cut)
    sides = [
        (years, oracles.cd_family(years, edges, CONFIG)),
        (other_years, oracles.cd_family(other_years, edges_b, CONFIG)),
    ]
    expected = {}
    for work in sorted(years.keys() | other_years.keys()):
        there = [work in years, work in other_years]
        status = {(True, True): "kept", (False, True): "gained", (True, False): "lost"}[there[0], there[1]]
        counts = [({**(scores[work] or {"cd_index": None})}) if work in times else {} for times, scores in sides]
        labels = [label_of(one.get("cd_index"), cut) for one in counts]
        cause = None
        if status == "kept" and labels[0] != labels[1]:
            n_refs = [len(references_of(some).get(work, set())) for some in (edges, edges_b)]
            for one, (times, _), n in zip(counts, sides, n_refs, strict=True):
                one |= {"year": times[work], "n_refs": n}
            cause = told_of(*counts, cut)
        expected[work] = (status, *labels, cause)
    rows = found.changes.collect()
    assert rows["work_id"].is_sorted()
    assert {
        row[0]: row[1:] for row in rows.select("work_id", "status", "label_a", "label_b", "cause").rows()
    } == expected
    assert rows["cause"].drop_nulls().is_in(list(CAUSES)).all()


@given(years_of_works, edge_lists, st.lists(st.sets(st.integers(1, 18), max_size=6), max_size=6), presets)
@settings(max_examples=60)
def test_citers_are_the_cause_where_the_works_that_cite_it_are_enough(years, edges, new, cut):
    """A month later: more works. Each half of the new ones is added alone."""
    later = {20 + at: 2003 for at in range(len(new))}
    more = [(20 + at, cited) for at, references in enumerate(new) for cited in references]
    found = compare(scored(years, edges), scored({**years, **later}, [*edges, *more]), thresholds=cut)
    moved = dict(found.changes.filter("moved").select("work_id", "cause").collect().rows())
    assert {*moved.values()} <= {"new_citers", "citers_of_references", "several"}
    for work, cause in moved.items():
        before, after = labels_of(years, edges, cut)[work], labels_of({**years, **later}, [*edges, *more], cut)[work]
        halves = {}
        for name, is_citer in (("new_citers", True), ("citers_of_references", False)):
            some = [edge for edge in more if (work in new[edge[0] - 20]) == is_citer]
            halves[name] = labels_of({**years, **later}, [*edges, *some], cut)[work]
        if cause != "several":
            assert halves.pop(cause) == after
            assert [*halves.values()] == [before]


@given(years_of_works, edge_lists, st.data(), presets)
@settings(max_examples=60)
def test_one_edit_of_a_work_is_told_as_it_is(years, edges, data, cut):
    dated = sorted(work for work, year in years.items() if year is not None)
    assume(dated)
    work = data.draw(st.sampled_from(dated))
    own = sorted(references_of(edges).get(work, set()))
    edit = data.draw(st.sampled_from(["changed_year", *(["lost_references"] if own else [])]))
    years_b, edges_b = dict(years), list(edges)
    if edit == "changed_year":
        years_b[work] = years[work] + data.draw(st.sampled_from([-2, -1, 1, 2]))
    else:
        gone = data.draw(st.sampled_from(own))
        edges_b = [edge for edge in edges if edge != (work, gone)]
    for sides in (((years, edges), (years_b, edges_b)), ((years_b, edges_b), (years, edges))):
        found = compare(*(scored(*side) for side in sides), thresholds=cut)
        moved = dict(found.changes.filter("moved").select("work_id", "cause").collect().rows())
        back = {"lost_references": "new_references"}
        told = edit if sides[0][0] is years else back.get(edit, edit)
        assert moved.pop(work, told) == told
        assert not {*moved.values()} & {"changed_year", "new_references", "lost_references"}


def test_without_counts_of_references_a_work_that_had_none_is_still_told():
    row = {"work_id": [1], "n_i": [3], "n_j": [0], "n_k": [0], "cd_index": [None]}
    bare = pl.DataFrame(row, schema_overrides={"cd_index": pl.Float64})
    whole = bare.with_columns(n_i=2, n_j=1, n_k=4, cd_index=1 / 7)
    found = compare(bare, whole)
    assert found.changes.collect()["cause"].to_list() == ["new_references"]
    assert found.causes.is_empty()  # without an index it is not judged
    assert "1 became judged, 1 of them with another label" in found.verdict
    back = compare(whole, bare)
    assert back.changes.collect()["cause"].to_list() == ["lost_references"]
    assert "1 is no longer judged" in back.verdict
