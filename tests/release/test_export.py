"""All labelled works in one file: scores found by id, and runs cut short."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from sciscidata.errors import InputNotFoundError, SchemaMismatchError, VerificationError, WorkIdError
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.release.export import add_labels, index_labels, read_labelled, verify_labelled, write_labelled
from sciscidata.schemas import EXAMPLE, WORKS
from sciscidata.storage import seal_json

SCORES = ("cd_index", "novelty_score", "conventionality_score", *VOCABULARIES)
SCHEMA = {"work_id": WORKS["work_id"], **{name: EXAMPLE[name] for name in SCORES}}
ids = st.integers(-5, 30) | st.integers(2**62, 2**62 + 5)
scores = st.none() | st.floats(allow_infinity=False)
labels = [st.none() | st.sampled_from(words) for words in VOCABULARIES.values()]


def lookup_of(rows: list[tuple[object, ...]]) -> pl.DataFrame:
    return index_labels(pl.DataFrame(rows, schema=SCHEMA, orient="row"))


@given(
    st.lists(st.tuples(st.none() | ids, scores, scores, scores, *labels), unique_by=lambda row: row[0]),
    st.lists(st.none() | ids, max_size=40),
)
def test_scores_are_found_as_by_a_join(rows, wanted):
    works = pl.DataFrame({"work_id": wanted}, schema={"work_id": pl.Int64}).with_row_index("place")
    labelled = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    found = add_labels(works, index_labels(labelled))
    expected = works.join(labelled, on="work_id", how="inner", maintain_order="left").with_columns(
        pl.when(pl.col(name) == 0).then(0.0).otherwise(pl.col(name).fill_nan(None)).alias(name) for name in SCORES[:3]
    )
    assert_frame_equal(found, expected, check_column_order=False, check_exact=True)


def test_a_work_labelled_twice_is_refused_by_its_id():
    row = (0.5, None, None, "disruptive", None)
    with pytest.raises(WorkIdError, match="names W7 twice"):
        lookup_of([(7, *row), (3, *row), (7, *row)])


@pytest.mark.parametrize(
    ("disruption", "novelty", "named"), [("Disruptive", None, "disruption"), (None, "", "novelty")]
)
def test_a_label_of_another_vocabulary_is_refused_by_its_column(disruption, novelty, named):
    with pytest.raises(SchemaMismatchError, match=f"{named}_label of the labelled frame holds other labels than "):
        lookup_of([(7, 0.5, None, None, disruption, novelty)])


def test_every_class_is_counted_also_those_without_a_work(tmp_path):
    works = pl.LazyFrame([{"work_id": number, "concepts": []} for number in range(9)], schema=WORKS)
    labels = ["neutral", None, "neutral", "disruptive"]
    labelled = pl.LazyFrame({"work_id": [5, 3, 8, 40], "cd_index": [0.0] * 4, "disruption_label": labels})
    report = write_labelled(works, labelled, tmp_path / "all")
    assert report["classes"]["disruption_label"] == {"disruptive": 0, "consolidating": 0, "neutral": 2, "null": 1}
    assert set(report["classes"]["novelty_label"].values()) == {0, 3}
    lines = (tmp_path / "all" / "labelled.jsonl").read_text().splitlines()
    assert [json.loads(line)["openalex_id"] for line in lines] == ["W3", "W5", "W8"]


def test_an_export_whose_report_differs_from_its_seal_or_lacks_an_entry_is_refused(tmp_path):
    works = pl.LazyFrame([{"work_id": 7, "concepts": []}], schema=WORKS)
    labelled = pl.LazyFrame({"work_id": [7], "cd_index": [0.0], "disruption_label": ["neutral"]})
    write_labelled(works, labelled, tmp_path / "all")
    report = tmp_path / "all" / "labelled.json"
    report.write_text(report.read_text().replace('"rows": 1', '"rows": 2'))
    for read in (read_labelled, verify_labelled):
        with pytest.raises(
            VerificationError, match=r"labelled.json is damaged: it differs from the SHA-256 .*remove it"
        ):
            read(tmp_path / "all")
    report.write_bytes(seal_json({"rows": 1}))
    with pytest.raises(InputNotFoundError, match="no readable"):
        verify_labelled(tmp_path / "all")
