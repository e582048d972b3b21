"""Embedding disruptiveness: against the formula of its authors' package, on vectors that a real graph gives."""

from __future__ import annotations

import math
import operator

import numpy as np
import polars as pl
import pytest

from sciscidata import indicators
from sciscidata._kernels.random import draw, stream_key
from sciscidata.disruption.embedding import compute_embedding_disruptiveness
from sciscidata.errors import SchemaMismatchError
from tests.real_graphs import scan_real

LISTS = pl.List(pl.Float64)


def scored(past, future, dtype=LISTS) -> list[float | None]:
    works = pl.LazyFrame({"past": past, "future": future}, schema=dict.fromkeys(("past", "future"), dtype))
    works = works.with_columns(work_id=pl.int_range(pl.len()))
    return compute_embedding_disruptiveness(works).collect()["embedding_disruptiveness"].to_list()


@pytest.fixture(scope="module")
def projected():
    """Real works with the mean of random vectors of their references and of the references of their citers."""
    works, citations = scan_real()
    n = works.select(pl.len()).collect().item()
    random = draw(stream_key(0, "test/embedding"), np.arange(n * 8)).reshape(n, 8)
    vectors = (random >> np.uint64(40)).astype(np.float64) / 2**23 - 1
    names = [f"x{i}" for i in range(8)]
    of_works = works.with_columns(pl.Series(name, vectors[:, i]) for i, name in enumerate(names))
    cited = citations.join(of_works, left_on="cited_id", right_on="work_id")
    past = cited.group_by("citing_id").agg(pl.col(names).mean())
    future = citations.join(past, on="citing_id").group_by("cited_id").agg(pl.col(names).mean())
    past, future = (
        past.select("citing_id", past=pl.concat_list(names)),
        future.select("cited_id", future=pl.concat_list(names)),
    )
    joined = works.join(past, left_on="work_id", right_on="citing_id", how="left")
    return joined.join(future, left_on="work_id", right_on="cited_id", how="left").collect()


def test_scores_of_a_real_graph_equal_the_formula_of_the_package_in_its_own_precision(projected):
    vectors = pl.Array(pl.Float32, 8)
    works = projected.lazy().with_columns(pl.col("past", "future").cast(vectors))
    scores = compute_embedding_disruptiveness(works).collect()
    assert scores["work_id"].equals(projected["work_id"])
    both = projected["past"].is_not_null() & projected["future"].is_not_null()
    assert scores["embedding_disruptiveness"].is_not_null().equals(both)
    assert both.sum() > 1_300
    x, y = (projected[name].filter(both).cast(vectors).to_numpy() for name in ("past", "future"))
    theirs = 1 - (x * y).sum(axis=1) / (np.sqrt((x * x).sum(axis=1)) * np.sqrt((y * y).sum(axis=1)))
    assert theirs.dtype == np.float32
    ours = scores["embedding_disruptiveness"].filter(both).to_numpy()
    assert np.abs(ours - theirs).max() < 1e-6
    in_double = [
        1 - math.fsum(map(operator.mul, a, b)) / (math.hypot(*a) * math.hypot(*b))
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    assert np.abs(ours - in_double).max() < 1e-15


def test_direction_decides_and_length_does_not():
    assert scored([[1, 2], [1e-200, 0], [1e200, 0]], [[3, 6], [0, 5], [-1e300, 0]]) == [0.0, pytest.approx(1), 2.0]
    assert scored([[3, 4]], [[4, 3]], pl.Array(pl.Int32, 2)) == [pytest.approx(1 - 24 / 25, abs=1e-16)]


def test_a_vector_without_direction_has_no_score():
    nan, infinite = math.nan, math.inf
    past = [None, [0, 0], [nan, 1], [1, infinite], [], [1, 1]]
    assert scored(past, [[1, 1]] * 6) == [None] * 5 + [0.0]
    assert scored([None], [[1.0, 2.0]]) == [None]


def test_the_result_does_not_depend_on_how_many_works_come_at_a_time(projected, monkeypatch):
    whole = compute_embedding_disruptiveness(projected.lazy()).collect()
    monkeypatch.setattr("sciscidata.disruption.embedding._ROWS_AT_ONCE", 1_000)
    assert compute_embedding_disruptiveness(projected.lazy()).collect().equals(whole)


def test_wrong_vectors_are_one_clear_error():
    with pytest.raises(SchemaMismatchError, match=r"'past' have 1 and 2 numbers, needs one length"):
        scored([[1], [1, 2]], [[1, 1], [1, 1]])
    with pytest.raises(SchemaMismatchError, match=r"'past' have 1 numbers, those in 'future' 2"):
        scored([[1.0]], [[1.0, 1.0]])
    works = pl.LazyFrame({"work_id": [1], "past": [[1.0]]})
    with pytest.raises(SchemaMismatchError, match=r"lacks column 'future' \(vectors\); it has work_id, past. Add it"):
        indicators.compute_embedding_disruptiveness(works)
    with pytest.raises(SchemaMismatchError, match=r"'past' is List\(List\(List\(Int64\)\)\), needs Array"):
        compute_embedding_disruptiveness(works.with_columns(past=[[[1]]]))


def test_the_ids_of_own_tables_stay_beside_the_scores():
    works = pl.LazyFrame({"work_id": [7], "original_id": ["P7"], "a": [[1.0, 0.0]], "b": [[0.0, 1.0]]})
    assert compute_embedding_disruptiveness(works, "a", "b").collect().rows() == [(7, "P7", 1.0)]
