from __future__ import annotations

import asyncio
import hashlib
import pickle
from collections import Counter

import chz
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscirl.envs.dataset import Epochs, LabelDataset, LabelDatasetBuilder, order_papers
from sciscirl.envs.env import LabelGroupBuilder
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.subject import find_subject, read_asked
from sciscirl.lab.objectives.dataset import RunDataset, RunDatasetBuilder
from sciscirl.task.papers import TARGETS, Gold, Paper, PaperView
from sciscirl.task.release import PaperChoice, read_split, take_head
from sciscirl.task.rules import TaskRules
from tests.sciscirl.toy import LABELS, make_builder, make_slice

VIEW = PaperView("On sleep", "We sleep.", 2001, 3, "Neuroscience")
PINNED = ["W2", "W6", "W4", "W1", "W3", "W0", "W5", "W7"]
paper_lists = st.lists(
    st.tuples(st.integers(1, 10**10), st.sampled_from(LABELS)), unique_by=lambda pair: pair[0], max_size=40
).map(lambda pairs: [Paper(f"W{number}", VIEW, Gold(label, None)) for number, label in pairs])


def run_builder_of(toy_slice, toy_model, **options):
    return builder_of(toy_slice, toy_model, RunDatasetBuilder, **options)


def builder_of(toy_slice, toy_model, kind=LabelDatasetBuilder, **options):
    return make_builder(toy_slice, toy_model, kind, **{"eval_split": "test", **options})


def ids(papers):
    return [paper.openalex_id for paper in papers]


@given(paper_lists, st.integers(), st.integers(0, 5), st.booleans(), st.randoms())
def test_the_order_depends_on_nothing_but_seed_epoch_and_ids(papers, seed, epoch, interleave, random):
    shuffled = random.sample(papers, len(papers))
    ordered = order_papers(papers, seed, epoch, interleave=interleave)
    assert ordered == order_papers(shuffled, seed, epoch, interleave=interleave)
    assert sorted(ids(ordered)) == sorted(ids(papers))


def test_the_order_is_pinned():
    papers = [Paper(f"W{number}", VIEW, Gold(LABELS[number % 3], None)) for number in range(8)]
    assert ids(order_papers(papers, 0)) == PINNED
    assert ids(order_papers(papers, 1)) != PINNED
    assert ids(order_papers(papers, 0, epoch=1)) != PINNED


@given(paper_lists, st.integers())
def test_removing_a_paper_keeps_the_order_of_the_others(papers, seed):
    ordered = order_papers(papers, seed)
    assert order_papers(papers[1:], seed) == [paper for paper in ordered if paper not in papers[:1]]


@given(paper_lists, st.integers(0, 99), st.booleans(), st.data())
def test_epochs_are_the_orders_one_after_the_other_wherever_one_looks_first(papers, n_shown, interleave, data):
    n_shown = n_shown if papers else 0
    shown = Epochs(papers, n_shown, 5, interleave=interleave)
    whole = [paper for epoch in range(99) for paper in order_papers(papers, 5, epoch, interleave=interleave)][:n_shown]
    for place in data.draw(st.lists(st.integers(-n_shown, n_shown - 1), max_size=9) if n_shown else st.just([])):
        assert shown[place] is whole[place]
    cut = data.draw(st.slices(n_shown))
    assert shown[cut] == whole[cut]
    assert list(pickle.loads(pickle.dumps(shown)).first(7)) == whole[:7]
    with pytest.raises(IndexError):
        _ = shown[n_shown]


def test_a_run_of_a_hundred_million_steps_takes_no_memory_before_it_begins(toy_slice, toy_model):
    builder = run_builder_of(toy_slice, toy_model, n_epochs=10**8, n_spares=2, interleave=True)
    train, _ = asyncio.run(builder())
    assert len(train) == 24 * 10**8 // 16
    last = train.get_batch(len(train) - 1)
    assert [one.group.paper for one in last] == order_papers(
        train.batches.papers.papers, 0, 10**8 - 1, interleave=True
    )[-16:]
    assert len(asyncio.run(builder_of(toy_slice, toy_model, n_epochs=10**30)())[0]) > 10**17


@given(paper_lists, st.integers(0, 3), st.integers(1, 16))
def test_interleaved_any_stretch_has_each_class_in_proportion(papers, seed, size):
    ordered = order_papers(papers, seed, interleave=True)
    total = Counter(paper.gold.disruption_label for paper in papers)
    for start in range(len(ordered)):
        stretch = ordered[start : start + size]
        found = Counter(paper.gold.disruption_label for paper in stretch)
        for label, count in total.items():
            assert abs(found[label] - len(stretch) * count / len(papers)) <= 2


def test_training_batches_are_full_and_held_out_batches_hold_every_paper(toy_slice, toy_model):
    builder = builder_of(toy_slice, toy_model, batch_size=7, group_size=3, n_epochs=2)
    train, test = asyncio.run(builder())
    assert len(train) == 2 * 24 // 7
    assert {len(train.get_batch(index)) for index in range(len(train))} == {7}
    assert {group.group_size for group in train.get_batch(0)} == {3}
    held_out = [group for index in range(len(test)) for group in test.get_batch(index)]
    assert [group.paper for group in held_out] == read_split(toy_slice, "test")
    assert {group.group_size for group in held_out} == {1}
    with pytest.raises(IndexError, match="batch 6 of 6"):
        train.get_batch(6)
    with pytest.raises(IndexError, match="batch -1"):
        train.get_batch(-1)


def test_datasets_and_builders_pickle(toy_slice, toy_model):
    builder = builder_of(toy_slice, toy_model)
    assert pickle.loads(pickle.dumps(builder)) == builder
    train, _ = asyncio.run(builder())
    assert [group.paper for group in pickle.loads(pickle.dumps(train)).get_batch(0)] == [
        group.paper for group in train.get_batch(0)
    ]


def test_too_few_papers_for_a_batch_is_said(toy_slice, toy_model):
    with pytest.raises(SciSciRLError, match=r"has 24 training papers, too few for one batch of 25 .* has 24\. Lower"):
        builder_of(toy_slice, toy_model, batch_size=25).train_papers()
    with pytest.raises(SciSciRLError, match=r"has 3 training papers, too few .* has 24\. Lower batch_size"):
        builder_of(toy_slice, toy_model, batch_size=4, n_train=3).train_papers()
    with pytest.raises(SciSciRLError, match="has 1 training paper, too few"):  # not that it lacks two classes
        builder_of(toy_slice, toy_model, reward="balanced", batch_size=4, n_train=1).rules()


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"group_size": 0}, {"group_size": True}])
def test_impossible_sizes_are_refused(toy_renderer, options):
    with pytest.raises(SciSciRLError, match="needs a whole number from 1"):
        LabelDataset([], TaskRules(), toy_renderer, **{"batch_size": 1, "group_size": 1} | options)


def test_interleaved_by_both_labels_every_pair_of_a_joint_task_is_spread(toy_slice, toy_model):
    builder = builder_of(toy_slice, toy_model, target="joint", contract="two_keys", interleave=True, batch_size=9)
    papers = builder.train_papers()
    for start in (0, 9):
        pairs = {(paper.gold.disruption_label, paper.gold.novelty_label) for paper in papers[start : start + 9]}
        assert len(pairs) >= 8  # 24 papers of nine pairs


def test_a_release_without_the_labels_of_the_task_is_refused(tmp_path, toy_model):
    from tests.sciscirl.papers import write_slice

    folder = write_slice(tmp_path / "slice", [{"novelty_label": None}, {}, {}], n_test=1)
    builder = builder_of(folder, toy_model, target="joint", batch_size=1)
    with pytest.raises(ReleaseError, match="have no novelty_label"):
        asyncio.run(builder())
    assert len(builder_of(folder, toy_model, batch_size=1).train_papers()) == 2


def test_a_balanced_reward_is_fitted_to_the_training_papers_that_are_used(toy_slice, toy_model):
    builder = builder_of(toy_slice, toy_model, contract="two_keys", reward="balanced", n_train=7, batch_size=3)
    papers = take_head(read_split(toy_slice, "train"), 7, "disruption")
    counts = Counter(paper.gold.disruption_label for paper in papers)
    assert dict(builder.rules().class_counts) == counts
    train, test = asyncio.run(builder())
    assert {group.rules for group in (*train.get_batch(0), *test.get_batch(0))} == {builder.rules()}


def test_every_group_has_spares_of_its_own_class_that_its_batch_does_not_show(toy_slice, toy_model):
    builder = run_builder_of(toy_slice, toy_model, batch_size=6, n_spares=2, interleave=True, n_epochs=2)
    train, _ = asyncio.run(builder())
    for index in range(len(train)):
        groups = train.get_batch(index)
        shown = {one.group.paper.openalex_id for one in groups}
        spares = [paper for group in groups for paper in group.spares]
        assert len(spares) == len(set(ids(spares))) == 12
        assert not shown & set(ids(spares))
        for one in groups:
            assert {paper.gold.disruption_label for paper in one.spares} == {one.group.paper.gold.disruption_label}
    again, _ = asyncio.run(builder())
    assert [group.spares for group in again.get_batch(1)] == [group.spares for group in train.get_batch(1)]


@pytest.mark.parametrize("n_spares", [1, 3, 99])
def test_no_spare_is_missed_by_looking_two_epochs_far(toy_slice, toy_model, toy_renderer, n_spares):
    papers = read_split(toy_slice, "train")[:11]
    shown = Epochs(papers, 11 * 7, 3, interleave=True)
    options = {"batch_size": 4, "group_size": 2}
    both = (LabelDataset(these, TaskRules(), toy_renderer, **options) for these in (shown, list(shown)))
    near, far = (RunDataset(these, n_spares) for these in both)
    for index in range(len(near)):
        assert [group.spares for group in near.get_batch(index)] == [group.spares for group in far.get_batch(index)]


def test_where_a_class_runs_out_of_spares_they_are_dealt_out_evenly(toy_slice, toy_model):
    train, _ = asyncio.run(run_builder_of(toy_slice, toy_model, batch_size=18, n_spares=3, interleave=True)())
    spares = [len(group.spares) for group in train.get_batch(0)]
    assert sum(spares) == 6  # all that 24 papers have left
    assert set(spares) == {0, 1}


def test_only_the_training_split_has_spares_and_a_batch_term(toy_slice, toy_model):
    options = {"contract": "two_keys", "batch_size": 3, "n_spares": 2}
    train, test = asyncio.run(run_builder_of(toy_slice, toy_model, reward="balanced_shares", **options)())
    assert train.tracker.class_counts == builder_counts(toy_slice)
    assert {type(group) for group in test.get_batch(0)} == {LabelGroupBuilder}
    other, _ = asyncio.run(run_builder_of(toy_slice, toy_model, reward="balanced", **options)())
    assert other.tracker is None
    assert other.get_batch(0)[0].excess == {}


def test_a_builder_is_judged_by_dev_or_by_held_out_papers_unless_test_is_asked_for(toy_slice, toy_model, tmp_path):
    with_dev = make_slice(tmp_path / "dev", n_dev=6)
    for release, split in ((toy_slice, "held_out"), (with_dev, "dev")):
        builder = make_builder(release, toy_model, batch_size=4, contract="two_keys")
        assert builder.eval_split == split == builder.describe_papers()["eval_split"]
        assert pickle.loads(pickle.dumps(builder)) == builder
        assert chz.replace(builder, choice=PaperChoice(eval_split=split)) == builder
        judged = {group.paper.openalex_id for group in asyncio.run(builder())[1].get_batch(0)}
        assert not judged & ({*ids(read_split(release, "test"))} | {*ids(builder.train_papers().papers)})


def test_an_option_of_a_builder_that_would_do_nothing_is_refused(toy_slice, toy_model):
    with pytest.raises(TypeError, match="collapse"):  # without the folder of a run, nothing can be watched
        run_builder_of(toy_slice, toy_model, contract="two_keys", collapse="stop")
    with pytest.raises(SciSciRLError, match=r"'balanced_shares' has a share_penalty, .* sciscirl\.make_builder"):
        asyncio.run(builder_of(toy_slice, toy_model, contract="two_keys", reward="balanced_shares")())


def builder_counts(folder):
    counts = Counter(paper.gold.disruption_label for paper in read_split(folder, "train", needs=TARGETS["disruption"]))
    return tuple((label, counts[label]) for label in LABELS)


def test_what_is_held_out_is_never_trained_on_whatever_the_seed_and_the_task(toy_slice, toy_model):
    every = set(ids(read_split(toy_slice, "train")))
    chosen = set()
    for seed, target in ((0, "disruption"), (7, "novelty"), (1, "joint")):
        options = {"eval_split": "held_out", "batch_size": 4, "seed": seed, "target": target, "contract": "two_keys"}
        builder = builder_of(toy_slice, toy_model, n_epochs=3, **options)
        train, held_out = asyncio.run(builder())
        judged = {group.paper.openalex_id for index in range(len(held_out)) for group in held_out.get_batch(index)}
        shown = {group.paper.openalex_id for index in range(len(train)) for group in train.get_batch(index)}
        assert len(judged) == 4  # a tenth is 3, and a batch is more
        assert judged | shown == every
        assert not judged & shown
        chosen.add(frozenset(judged))
        facts = {"eval_split": "held_out", "n_train": None, "n_test": None, "n_held_out": 4, "held_out_seed": 0}
        assert builder.describe_papers() == facts
    assert len(chosen) == 1


def test_a_head_of_the_training_papers_is_beside_those_that_are_held_out(toy_slice, toy_model):
    whole = builder_of(toy_slice, toy_model, eval_split="held_out", batch_size=4)
    part = chz.replace(whole, choice=PaperChoice(eval_split="held_out", n_train=6, n_test=2))
    assert part.n_held_out() == 4
    assert set(ids(part.eval_papers())) < set(ids(whole.eval_papers()))
    assert not set(ids(part.read("train"))) & set(ids(whole.eval_papers()))


def test_a_list_of_ids_says_which_papers_of_each_split_are_used(toy_slice, toy_model, tmp_path):
    splits = {split: ids(read_split(toy_slice, split)) for split in ("train", "test")}
    file = tmp_path / "ids.txt"
    file.write_text("\n".join([*splits["train"][:9], *splits["test"][3:6], ""]), "utf-8")
    builder = builder_of(toy_slice, toy_model, ids=str(file), batch_size=4, contract="two_keys", reward="balanced")
    assert (ids(builder.read("train")), ids(builder.eval_papers())) == (splits["train"][:9], splits["test"][3:6])
    facts = builder.describe_papers()
    assert facts["class_counts"] == Counter(paper.gold.disruption_label for paper in builder.read("train"))
    assert facts["ids_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    config = EvaluationConfig(release=toy_slice, model="a/b", preset="exp4", ids=file)
    assert ids(read_asked(config, find_subject(config))) == splits["test"][3:6]
    file.write_text("\n".join(f"https://openalex.org/{one}" for one in splits["test"][3:6]), "utf-8")
    assert ids(builder.eval_papers()) == splits["test"][3:6]
    with pytest.raises(SciSciRLError, match=r"the run has 0 training papers, .* n_train or ids"):
        builder.train_papers()
    for text, said in (("W1\nW999999\n", "names 1 that .* does not have, first W999999"), ("", "ids.txt has no ids")):
        file.write_text(text, "utf-8")
        with pytest.raises(ReleaseError, match=said):
            builder.eval_papers()


def test_a_split_is_read_once(toy_slice, toy_model, monkeypatch):
    read = []
    monkeypatch.setattr("sciscirl.envs.dataset.read_split", lambda *a, **k: read.append(a[1]) or read_split(*a, **k))
    builder = builder_of(toy_slice, toy_model, eval_split="held_out", batch_size=4, contract="two_keys")
    asyncio.run(builder())
    builder.describe_papers()
    assert read == ["train"]


def test_a_release_too_small_to_hold_papers_out_says_what_to_do(toy_slice, toy_model):
    builder = builder_of(toy_slice, toy_model, eval_split="held_out", batch_size=16)
    with pytest.raises(
        SciSciRLError, match=r"has 8 training papers, .* has 24, and 16 of these .* Lower batch_size, .*dev"
    ):
        builder.train_papers()
