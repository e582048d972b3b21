"""A release of two labels: what a model is asked, how its labels are scored, and what a balanced reward does."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import sciscidata as ssd
from sciscirl.lab.label_scoring import LabelScoring, predict_labels
from sciscirl.task.release import read_split
from sciscirl.task.rules import TaskRules

TWO = ("disruptive", "consolidating")


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    home = tmp_path_factory.mktemp("two")
    split = ssd.SplitConfig(n_train=60, n_test=20, labels=TWO)
    source = ssd.SyntheticConfig(n_works=3_000)
    config = ssd.BuildConfig(source=source, out=home / "two", split=split, novelty=None, cache_dir=home / "cache")
    return ssd.build(config)


def test_the_ceiling_is_that_of_two_labels_and_papers_have_no_other(release):
    assert 0.5 < release.manifest["ceiling"]["accuracy"] < 1
    assert release.manifest["split"]["labels"] == list(TWO)
    papers = read_split(release.folder, "test")
    assert {paper.gold.disruption_label for paper in papers} == set(TWO)


def test_a_third_label_gets_no_probability_where_labels_are_scored(release, toy_renderer):
    papers, train = (read_split(release.folder, split)[:6] for split in ("test", "train"))

    async def score(prompts, endings):
        return [[-3.0, -2.0, -0.1][: len(endings)] for _ in prompts]  # neutral is by far the most probable

    for prior in ((), tuple(train)):
        scoring = LabelScoring(prior, TWO)
        table, told = asyncio.run(predict_labels(papers, TaskRules(), toy_renderer, score, scoring))
        assert set(table["label"]) <= set(TWO)
        assert np.isfinite(table["confidence"].to_numpy()).all()
        assert told.get("neutral", 0) == 0
    every, _ = asyncio.run(predict_labels(papers, TaskRules(), toy_renderer, score, LabelScoring()))
    assert set(every["label"]) == {"neutral"}
