"""The published split again, from made records in an order that leaves the published classes in test."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from sciscidata import read_release
from sciscidata.errors import ReleaseExistsError, VerificationError
from sciscidata.release.methods import describe_methods
from sciscidata.release.release import render_manifest
from sciscidata.release.verify import verify_release
from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import SciSciRLError
from sciscirl.lab import published_cut
from sciscirl.lab.published_cut import N_TRAIN, PUBLISHED, PUBLISHED_METRICS, PUBLISHED_TEST, find_shuffle, read_records
from sciscirl.lab.report.runs import read_runs
from sciscirl.lab.report.views import view_published
from sciscirl.task.release import read_split
from tests.commands import REPOSITORY
from tests.sciscirl.made_runs import make_evaluation, make_predictions

N = 5_600


def shuffle_list(n):
    order = [*range(n)]
    random.Random(0).shuffle(order)
    return order


BY_HAND = {
    "numpy.random.default_rng(0)": lambda n: np.random.default_rng(0).permutation(n).tolist(),
    "random.Random(0)": shuffle_list,
    "numpy.random.RandomState(0)": lambda n: np.random.RandomState(0).permutation(n).tolist(),
}


def make_records(order, path):
    """Write records of which the 500 after the first 5,000 of an order have the published classes."""
    draws = random.Random(1)
    labels = [("disruptive", "consolidating", "neutral")[number % 3] for number in range(N)]
    test = [label for label, n in PUBLISHED_TEST.items() for _ in range(n)]
    draws.shuffle(labels)
    draws.shuffle(test)
    for place, label in zip(order[5_000:5_500], test, strict=True):
        labels[place] = label
    signs = {"disruptive": 1, "consolidating": -1, "neutral": 0}
    lines = [
        json.dumps(
            {
                "openalex_id": f"https://openalex.org/W{number + 1}", "title": f"Title {number % 5_000}",
                "abstract": f"Abstract {number}.", "publication_year": 2015 + number % 10,
                "cited_by_count": number % 90, "cd_index": signs[label] * 0.001, "novelty_score": 0.4,
                "conventionality_score": 0.5, "disruption_label": label, "novelty_label": "balanced",
                "primary_field": "Physics", "concepts": ["Optics"],
            }
        )
        for number, label in enumerate(labels)
    ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n\n", "utf-8")
    return lines


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """The order, the lines of the file, the file, and the release that the command writes of it."""
    home = tmp_path_factory.mktemp("cut")
    order = BY_HAND["numpy.random.default_rng(0)"](N)
    lines = make_records(order, home / "balanced.jsonl")
    PROGRAM.act(["published-cut", str(home / "balanced.jsonl"), "--out", str(home / "slice")])
    return order, lines, home / "balanced.jsonl", home / "slice"


def test_a_release_has_the_records_of_the_cut_in_its_order_with_the_labels_as_given(cut, tmp_path):
    order, lines, records, folder = cut
    release = verify_release(folder)
    rows = [json.loads(lines[place]) for place in order]
    for split, expected in (("train", rows[:5_000]), ("test", rows[5_000:5_500])):
        frame = getattr(release, split)
        for name in (
            "openalex_id",
            "title",
            "abstract",
            "disruption_label",
            "cited_by_count",
            "publication_year",
            "cd_index",
        ):
            assert frame[name].to_list() == [row[name] for row in expected]
    assert release.manifest["class_counts"]["test"]["disruption_label"] == PUBLISHED_TEST
    (windows,) = [check for check in release.manifest["diagnostics"] if check["name"] == "complete_window"]
    assert windows["text"].endswith(": the others are not judged yet, but not left out")
    said = "5,600 records, shuffled with seed 0 by numpy.random.default_rng(0), as datasets shuffles"
    assert release.manifest["source"]["given_split"].startswith(said)
    assert release.manifest["source"]["inputs"][0]["name"] == "balanced.jsonl"
    assert said in (folder / "README.md").read_text("utf-8")
    assert said in " ".join(describe_methods(release).split())
    assert "SHA-256 of each work" not in " ".join(describe_methods(release).split())
    assert len(read_split(folder, "test")) == 500
    with pytest.raises(ReleaseExistsError):
        PROGRAM.act(["published-cut", str(records), "--out", str(folder)])


def test_a_work_in_both_splits_of_others_is_still_a_difference(cut, tmp_path):
    release = read_release(cut[3])
    folder = tmp_path / "slice"
    folder.mkdir()
    for path in cut[3].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "test.jsonl").write_bytes((cut[3] / "train.jsonl").read_bytes())
    (folder / "manifest.json").write_bytes(render_manifest(release.manifest))
    with pytest.raises(VerificationError, match=r"test\.jsonl"):
        verify_release(folder)


@pytest.mark.parametrize("name", BY_HAND)
def test_the_shuffle_is_the_one_that_leaves_the_published_classes_in_test(name, tmp_path):
    order = BY_HAND[name](N)
    make_records(order, tmp_path / "records.jsonl")
    records = read_records(tmp_path / "records.jsonl")
    found, chosen = find_shuffle(records, tmp_path)
    assert found.startswith(name)
    assert chosen == order[:5_500]


def test_records_of_another_order_are_refused_with_the_numbers_of_each_shuffle(cut, tmp_path, monkeypatch):
    lines = cut[1]
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(reversed(lines)), "utf-8")
    with pytest.raises(SciSciRLError, match="no shuffle with seed 0 leaves the published 145 disruptive, 166") as error:
        PROGRAM.act(["published-cut", str(other), "--out", str(tmp_path / "slice")])
    assert str(error.value).count(" neutral") == 1 + len(published_cut.SHUFFLES)
    assert not (tmp_path / "slice").exists()
    same = published_cut.SHUFFLES["numpy.random.default_rng(0), as datasets shuffles"]
    monkeypatch.setattr(published_cut, "SHUFFLES", {"one": same, "two": same})
    with pytest.raises(SciSciRLError, match="2 shuffles leave 145 disruptive"):
        PROGRAM.act(["published-cut", str(cut[2]), "--out", str(tmp_path / "slice")])


def test_a_work_that_is_in_the_cut_twice_is_refused_by_the_name_of_the_file(cut, tmp_path):
    order, lines = cut[0], [*cut[1]]
    record = json.loads(lines[order[7]])
    lines[order[7]] = json.dumps(record | {"openalex_id": json.loads(lines[order[9]])["openalex_id"]})
    (tmp_path / "twice.jsonl").write_text("\n".join(lines), "utf-8")
    with pytest.raises(SciSciRLError, match=r"twice\.jsonl: https://openalex.org/W\d+ is in the cut twice"):
        PROGRAM.act(["published-cut", str(tmp_path / "twice.jsonl"), "--out", str(tmp_path / "slice")])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"openalex_id": "W1"}', "line 1: Object missing required field `disruption_label`"),
        ('{"openalex_id": "W1", "disruption_label": "odd"}', "line 1: .*Each line needs"),
        (
            '{"openalex_id": "W1", "disruption_label": "neutral", "publication_year": 2000}',
            "line 1: .* `cd_index`. Each line needs",
        ),
        (
            '{"openalex_id": "", "disruption_label": "neutral", "publication_year": 2000, "cd_index": 0}',
            "line 1: .*`\\$.openalex_id`. Each line needs",
        ),
        ("\n[1]", "line 2: "),
        ("", "has 0 records, and the published runs took 5,000 to train and 500 to test"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_of_something_else_is_one_clear_error(text, match, tmp_path):
    if text is not None:
        (tmp_path / "records.jsonl").write_text(text, "utf-8")
    with pytest.raises(SciSciRLError, match=match):
        PROGRAM.act(["published-cut", str(tmp_path / "records.jsonl"), "--out", str(tmp_path / "slice")])


def test_the_published_figures_stand_beside_those_of_the_runs(cut, tmp_path):
    import hashlib

    from sciscirl.presets import find_preset

    golden = json.loads((REPOSITORY / "tests" / "golden" / "published.json").read_text("utf-8"))["runs"]
    for run in golden:
        printed = run["printed"]
        assert PUBLISHED[run["name"]] == tuple(float(printed[name].lstrip("~")) for name in PUBLISHED_METRICS)
    assert N_TRAIN == 5_000
    digest = hashlib.sha256((cut[3] / "manifest.json").read_bytes()).hexdigest()
    table = make_predictions(find_preset("exp4"), 30)
    mine = make_evaluation(tmp_path / "mine", table, {"weights": {"step": 250}}, manifest_sha256=digest)
    other = make_evaluation(tmp_path / "other", table, {})
    section = view_published(read_runs([mine, other]), cut[3])
    rows = section.tables[0].rows
    assert [row[0] for row in rows] == [*(f"published {name}" for name in PUBLISHED), "mine"]
    assert rows[4][1:4] == ["250", "0.3960", "0.9980"]
    assert rows[-1][1] == "250"
    assert view_published(read_runs([mine]), None) is None
