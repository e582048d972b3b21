"""Heads of a split, and the training papers that are held out: fair samples that no machine draws otherwise."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.label_thresholds import NOVELTY_LABELS
from sciscirl import make_builder
from sciscirl.errors import ReleaseError
from sciscirl.task.papers import Gold, Paper, PaperView
from sciscirl.task.release import PaperChoice, Part, hold_out, read_split, settle_choice, take_head
from tests.sciscirl.toy import LABELS, RENDERER, make_slice

PINNED = ["W2", "W7", "W9", "W13", "W18", "W22"]
VIEW = PaperView("On sleep", "We sleep.", 2001, 3, "Neuroscience")
paper_lists = st.lists(
    st.tuples(st.integers(1, 10**10), st.sampled_from([*LABELS, *[LABELS[0]] * 5]), st.sampled_from(NOVELTY_LABELS)),
    unique_by=lambda row: row[0],
    min_size=1,
    max_size=60,
).map(lambda rows: [Paper(f"W{number}", VIEW, Gold(label, other)) for number, label, other in rows])
targets = st.sampled_from(["disruption", "novelty", "joint"])


def ids(papers):
    return [paper.openalex_id for paper in papers]


@given(paper_lists, targets)
def test_every_head_has_each_class_within_one_of_its_share_and_holds_the_smaller_heads(papers, target):
    total = Counter(tuple(paper.labels(target).values()) for paper in papers)
    smaller: set[str] = set()
    for n in range(len(papers) + 1):
        head = take_head(papers, n, target)
        found = Counter(tuple(paper.labels(target).values()) for paper in head)
        assert len(head) == n
        assert all(abs(found[own] - n * count / len(papers)) < 1 for own, count in total.items())
        assert smaller <= set(ids(head))
        smaller = set(ids(head))


@given(paper_lists, st.integers(1, 70), targets, st.randoms())
def test_a_head_does_not_depend_on_the_order_and_keeps_it(papers, n, target, random):
    shuffled = random.sample(papers, len(papers))
    head = take_head(shuffled, n, target)
    assert set(ids(head)) == set(ids(take_head(papers, n, target)))
    assert head == [paper for paper in shuffled if paper in head]
    assert take_head(papers, None, target) == take_head(papers, len(papers), target) == papers


def test_a_head_is_the_same_on_every_machine():
    papers = [Paper(f"W{number}", VIEW, Gold(LABELS[number // 8], None)) for number in range(24)]
    assert ids(take_head(papers, 6, "disruption")) == PINNED
    assert len({paper.gold.disruption_label for paper in papers[:6]}) == 1  # the first rows are no sample


@given(paper_lists, st.integers(0, 60))
def test_held_out_papers_are_apart_and_more_of_them_hold_the_fewer(papers, n):
    trained, kept = hold_out(papers, n)
    assert sorted(ids(trained) + ids(kept)) == sorted(ids(papers))
    assert len(kept) == min(n, len(papers))
    assert set(ids(kept)) <= set(ids(hold_out(papers, n + 1)[1]))


def test_a_head_of_what_is_trained_on_is_not_drawn_by_the_hash_that_holds_out():
    papers = [Paper(f"W{number}", VIEW, Gold("neutral", None)) for number in range(400)]
    kept, head = hold_out(papers, 40)[1], take_head(papers, 40, "disruption")
    assert len(set(ids(kept)) & set(ids(head))) < 20  # 4 are expected


def test_a_published_preset_is_judged_by_dev_and_by_test_only_for_disruption_without_dev(toy_slice, tmp_path):
    with_dev = make_slice(tmp_path / "slice", n_dev=6)

    def judged_by(release, **options):
        made = make_builder("exp4", str(release), "a/b", renderer=RENDERER, max_steps=1, **options)
        return made.eval_split

    assert (judged_by(with_dev), judged_by(with_dev, target="novelty"), judged_by(toy_slice)) == ("dev", "dev", "test")
    assert judged_by(toy_slice, target="novelty") == "held_out"
    assert judged_by(with_dev, eval_split="test") == "test"


def test_without_a_development_split_training_papers_are_held_out(toy_slice):
    assert settle_choice(PaperChoice(), toy_slice).eval_split == "held_out"
    kept = Part(toy_slice, "held_out", n_held_out=5).read("disruption")
    trained = Part(toy_slice, "train", n_held_out=5).read("disruption")
    assert (len(kept), len(trained)) == (5, 19)
    assert Part(toy_slice, "test", n_held_out=5).read("disruption") == read_split(toy_slice, "test")
    with pytest.raises(ReleaseError, match="no run says which papers it kept out"):
        Part(toy_slice, "held_out").read("disruption")
    with pytest.raises(ReleaseError, match="is not a release"):
        settle_choice(PaperChoice(), toy_slice / "nowhere")
