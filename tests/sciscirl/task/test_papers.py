"""A paper is what may be seen of it and what it is judged by; its scores stay in the release."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import tempfile
from dataclasses import fields
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.errors import SciSciDataError
from sciscidata.release.read import Release
from sciscidata.schemas import SCORES as SCORES_OF_RELEASE
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.task.contracts import CONTRACTS, parse_answer, render_answer
from sciscirl.task.papers import CONTEXT, SEEN, TARGETS, Gold, PaperView, Reference
from sciscirl.task.predictions import make_prediction
from sciscirl.task.prompts import STYLES, render_prompt
from sciscirl.task.release import Part, read_split
from sciscirl.task.rewards import REWARDS, score_answer
from tests.conftest import REPOSITORY
from tests.sciscirl.papers import write_slice

SCORES = ("cd_index", "novelty_score", "conventionality_score")
PURE = (
    *(
        "errors",
        "presets",
        "task.papers",
        "task.release",
        "task.prompts",
        "task.contracts",
        "task.rewards",
        "task.experiment",
    ),
    *("task.rules", "metrics.metrics", "metrics.predictions", "lab.adversarial.rewards"),
    "lab.objectives.batch_term",
)
# Nine digits that neither a year nor a count of these tests has.
sentinels = st.tuples(*(st.integers(100_000_000, 999_999_999) for _ in SCORES))


def test_a_view_has_no_field_for_a_score_or_a_label():
    seen = {field.name for field in fields(PaperView)}
    assert seen == {*SEEN, *CONTEXT}
    assert SEEN == ("title", "abstract", "publication_year", "cited_by_count", "primary_field")
    # What a paper built on: works that it cites, and what earlier years made of these.
    assert CONTEXT == ("references", "at_publication")
    assert Reference._fields == ("title", "publication_year", "source_name")
    assert not seen & {*SCORES, "disruption_label", "novelty_label", "concepts", "openalex_id"}
    with pytest.raises(TypeError, match="cd_index"):
        PaperView("t", "a", 2000, 1, None, cd_index=0.5)  # type: ignore[call-arg]
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(PaperView("t", "a", 2000, 1, None), "cd_index", 0.5)


def test_the_file_of_scores_is_never_read_for_a_prompt(toy_slice, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(toy_slice, tmp_path / "slice"))
    papers = {split: read_split(folder, split) for split in ("train", "test")}
    # Not one byte of it decides about a paper, and its frame is not made.
    assert (folder / "scores.parquet").stat().st_size
    (folder / "scores.parquet").write_bytes(b"n_i 123456789")
    monkeypatch.setattr(Release, "scores", property(lambda _: pytest.fail("the scores were read")))
    opened = []
    monkeypatch.setattr(Path, "read_bytes", lambda path, read=Path.read_bytes: opened.append(path.name) or read(path))
    assert {split: read_split(folder, split) for split in papers} == papers
    assert set(opened) >= {"train.parquet", "test.parquet"}
    assert "scores.parquet" not in opened
    # No module of the learning half names the file, but the baselines, which read counts of it. Only task/release.py
    # opens one.
    sources = {path: path.read_text("utf-8") for path in (REPOSITORY / "sciscirl").rglob("*.py")}
    naming = {path.name for path, text in sources.items() if "scores.parquet" in text or "SCORES_FILE" in text}
    assert naming == {"baselines.py", "features.py"}
    assert {path.name for path, text in sources.items() if "read_release(" in text} == {"release.py"}
    assert not {field.name for field in fields(PaperView)} & {*SCORES_OF_RELEASE}


def test_papers_come_in_the_order_of_the_release_with_texts_unchanged(tmp_path):
    odd = 'a "quoted" <b> \\ \u2028 𝔘'
    rows = [
        {"title": odd, "novelty_label": None},
        {"abstract": odd, "primary_field": None, "cited_by_count": None},
        {"publication_year": None},
    ]
    folder = write_slice(tmp_path / "slice", rows, n_test=1)
    train, test = read_split(folder, "train"), read_split(folder, "test")
    assert [paper.openalex_id for paper in (*train, *test)] == ["W1", "W2", "W3"]
    assert train[0].view == PaperView(odd, "Abstract 0.", 2000, 0, "Physics")
    assert train[0].gold == Gold("disruptive", None)
    assert train[1].view == PaperView("Title 1", odd, 2000, None, None)
    assert test[0].view.publication_year is None
    assert test[0].gold == Gold("neutral", "conventional")


@pytest.mark.parametrize("split", ["train", "test"])
def test_only_an_altered_split_is_refused(tmp_path, split):
    folder = write_slice(tmp_path / "slice", [{}] * 4, n_test=2)
    path = folder / f"{split}.parquet"
    frame = pl.read_parquet(path).with_columns(disruption_label=pl.lit("neutral"))
    frame.write_parquet(path)
    with pytest.raises(ReleaseError, match=rf"{split}\.parquet is damaged.*rebuild"):
        read_split(folder, split)
    assert len(read_split(folder, "train" if split == "test" else "test")) == 2


def test_a_development_split_is_read_where_there_is_one(tmp_path):
    from sciscidata import BuildConfig, SplitConfig, SyntheticConfig, build

    with pytest.raises(ReleaseError, match=r"no development split.*sciscidata build --n-dev N"):
        read_split(write_slice(tmp_path / "slice", [{}] * 4), "dev")
    places = {"out": tmp_path / "dev", "cache_dir": tmp_path / "cache"}
    release = build(
        BuildConfig(source=SyntheticConfig(n_works=2_000), split=SplitConfig(n_train=30, n_test=9, n_dev=12), **places)
    )
    papers = read_split(release.folder, "dev")
    assert [paper.openalex_id for paper in papers] == release.dev["openalex_id"].to_list()
    assert len(papers) == 12


def test_more_papers_than_there_are_is_one_warning(toy_slice, caplog):
    every = read_split(toy_slice, "test")
    assert [Part(toy_slice, "test", n_papers=987_654).read("disruption") for _ in range(2)] == [every, every]
    assert [record.message for record in caplog.records] == [
        f"987,654 papers of test are asked for, and it has {len(every)}: all are taken."
    ]


def test_a_manifest_that_names_no_hash_vouches_for_nothing(tmp_path):
    from sciscidata.release.read import hash_manifest, render_manifest

    folder = write_slice(tmp_path / "slice", [{}] * 2)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    del manifest["files"]["train.parquet"]
    (folder / "manifest.json").write_bytes(render_manifest(manifest | {"manifest_sha256": hash_manifest(manifest)}))
    with pytest.raises(ReleaseError, match=r"not written by sciscidata: no train\.parquet"):
        read_split(folder, "train")


def test_a_changed_manifest_a_lost_file_and_no_folder_are_one_kind_of_error(tmp_path):
    folder = write_slice(tmp_path / "slice", [{}] * 2)
    with pytest.raises(ReleaseError, match="split is 'validation', needs one of: train, test, dev"):
        read_split(folder, "validation")  # type: ignore[arg-type]
    (folder / "train.jsonl").unlink()
    with pytest.raises(ReleaseError, match=r"lacks train\.jsonl"):
        read_split(folder, "train")
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text("utf-8").replace('"seed": 0', '"seed": 1'), "utf-8")
    with pytest.raises(ReleaseError, match="changed after it was written"):
        read_split(folder, "train")
    with pytest.raises(ReleaseError, match="is not a release"):
        read_split(tmp_path / "nowhere", "train")
    with pytest.raises(ReleaseError, match=r"no such folder is there\. Did you mean .*slice\? Check the path"):
        read_split(tmp_path / "slcie", "train")
    assert issubclass(ReleaseError, SciSciRLError)
    assert issubclass(SciSciRLError, SciSciDataError)


def test_a_release_without_a_needed_label_in_every_row_is_refused(tmp_path):
    rows = [{"disruption_label": None}, {"novelty_label": None}, {}]
    folder = write_slice(tmp_path / "slice", rows)
    with pytest.raises(ReleaseError, match="1 of 3 rows have no disruption_label, first W1"):
        read_split(folder, "train")
    with pytest.raises(ReleaseError, match="1 of 3 rows have no novelty_label, first W2"):
        read_split(folder, "train", needs=("novelty_label",))
    assert read_split(folder, "train", needs=())[0].gold.disruption_label is None
    folder = write_slice(tmp_path / "other", [{}, {"disruption_label": "sideways"}])
    with pytest.raises(ReleaseError, match="first W2"):
        read_split(folder, "train")


@settings(max_examples=20)
@given(st.lists(sentinels, min_size=1, max_size=4))
def test_no_score_of_a_release_reaches_a_prompt_an_answer_a_metric_or_a_log_line(scores):
    rows = [
        {name: float(f"0.{digits}") for name, digits in zip(SCORES, triple, strict=True)}
        | {"concepts": [f"concept {triple[0]}"], "title": f"Paper {index}"}
        for index, triple in enumerate(scores)
    ]
    lines: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    level = root.level
    root.addHandler(listener)
    root.setLevel(logging.DEBUG)
    try:
        with tempfile.TemporaryDirectory() as home:
            folder = write_slice(Path(home) / "slice", rows)
            assert str(scores[0][0]) in (folder / "train.jsonl").read_text("utf-8")
            said = [repr(paper) for paper in read_split(folder, "train")]
            for paper in read_split(folder, "train"):
                for style in STYLES:
                    for contract, target in product(CONTRACTS, TARGETS):
                        said += [message["content"] for message in render_prompt(paper.view, style, contract, target)]
                text = render_answer(paper.gold.disruption_label, "four_keys")
                answer = parse_answer(text, "four_keys")
                reward = score_answer(answer, paper.gold.disruption_label, REWARDS["strong"])
                row = make_prediction(paper.openalex_id, paper.gold.disruption_label, answer, reward, text)
                said += [str(row), str(measure_predictions([row]))]
    finally:
        root.removeHandler(listener)
        root.setLevel(level)
    everything = "\n".join((*said, *lines))
    for triple in scores:
        for digits in triple:
            assert str(digits)[:7] not in everything


def test_the_pure_half_loads_neither_tinker_nor_torch():
    program = f"import sys, {', '.join(f'sciscirl.{name}' for name in PURE)}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"tinker", "tinker_cookbook", "torch", "transformers", "chz", "numba", "matplotlib"}
    assert "sciscirl" in loaded
