"""Labels by rank within field and five years: the cut-offs are fitted once, and a release keeps them."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata import (
    BuildConfig,
    CorpusConfig,
    LabelThresholds,
    OpenAlexConfig,
    SplitConfig,
    SyntheticConfig,
    build,
    compute_cd_index,
    compute_label_confidence,
    compute_labels,
    find_label_ceiling,
    ingest,
    scan_synthetic,
    verify,
)
from sciscidata.cli.main import main
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError, VerificationError
from sciscidata.release.read import hash_manifest, render_manifest
from sciscidata.schemas import CD_SCORES, Corpus


def make_scores(n: int, seed: int) -> pl.DataFrame:
    """Scores with many ties, of small and large cells."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for work_id in range(n):
        n_i, n_j, n_k = draw.randrange(6), draw.randrange(6), draw.randrange(4)
        total = n_i + n_j + n_k
        field, year = draw.choices(["Art", "Law", None], [6, 3, 1])[0], draw.randrange(1990, 2000)
        index = (n_i - n_j) / total if total else None
        rows.append(
            {"work_id": work_id, "n_i": n_i, "n_j": n_j, "n_k": n_k, "cd_index": index}
            | {"primary_field": field, "publication_year": year}
        )
    return pl.DataFrame(rows, schema={**CD_SCORES, "primary_field": pl.String, "publication_year": pl.Int32})


def fit_plainly(scores: pl.DataFrame, share: float) -> dict[str, tuple[float, ...]]:
    values: dict[str, list[float]] = defaultdict(list)
    for row in scores.rows(named=True):
        if row["cd_index"] is not None and row["n_i"] + row["n_j"]:
            values[f"{row['primary_field'] or ''} {row['publication_year'] // 5 * 5}"].append(row["cd_index"])
    cells: dict[str, tuple[float, ...]] = {}
    for cell, found in values.items():
        found.sort()
        last = len(found) - 1
        low, middle = found[math.floor(share * last)], found[math.ceil((0.5 - share / 2) * last)]
        upper, high = found[math.floor((0.5 + share / 2) * last)], found[math.ceil((1 - share) * last)]
        if len(found) >= 50 and low < middle <= upper < high:
            cells[cell] = (low, middle, upper, high)
    return cells


@settings(max_examples=40, deadline=None)
@given(st.integers(50, 900), st.sampled_from([0.05, 0.1, 0.3]), st.integers(0, 10**6))
def test_cut_offs_and_labels_are_those_of_sorted_lists_whatever_the_order_of_rows(
    n: int, share: float, seed: int
) -> None:
    scores = make_scores(n, seed)
    cells = fit_plainly(scores, share)
    if not cells:
        with pytest.raises(EmptyInputError, match="no cell of field and five years has 50 works"):
            LabelThresholds.fit(scores, share)
        return
    thresholds = LabelThresholds.fit(scores.lazy(), share)
    assert thresholds.cells == cells
    assert LabelThresholds.fit(scores.sample(fraction=1, shuffle=True, seed=seed), share) == thresholds
    labelled = compute_labels(scores, thresholds).collect()
    assert labelled.columns == [*scores.columns, "disruption_label"]
    for row in labelled.rows(named=True):
        cell, cd, label = f"{row['primary_field'] or ''} {row['publication_year'] // 5 * 5}", row["cd_index"], None
        if cd is not None and cell in cells:
            low, middle, upper, high = cells[cell]
            label = "consolidating" if cd <= low else "disruptive" if cd >= high else None
            label = "neutral" if middle <= cd <= upper else label
        assert row["disruption_label"] == label


def test_the_confidence_of_a_cell_is_that_of_its_cut_offs() -> None:
    scores = make_scores(600, 1)
    plain = {"Art": LabelThresholds(), "Law": LabelThresholds(consolidating_max=-0.2, disruptive_min=0.3)}
    cells: dict[str, Any] = {}
    for field, cut in plain.items():
        low, high = cut.consolidating_max, cut.disruptive_min
        # Without gaps, which plain thresholds do not have.
        cells |= {
            f"{field} {year}": (low, math.nextafter(low, 1), math.nextafter(high, -1), high) for year in (1990, 1995)
        }
    by_rank = LabelThresholds(cells=cells)
    found = compute_label_confidence(compute_labels(scores, by_rank), by_rank).collect()
    columns = ["label_confidence", "p_consolidating", "p_neutral", "p_disruptive"]
    for field, cut in plain.items():
        expected = compute_label_confidence(compute_labels(scores, cut), cut).collect().filter(primary_field=field)
        assert found.filter(primary_field=field).select(columns).equals(expected.select(columns))
    assert found.filter(pl.col("primary_field").is_null()).select(columns).null_count().row(0) == (
        found["primary_field"].null_count(),
    ) * len(columns)
    # Works between the cut-offs have no label, but that has a probability.
    gaps = LabelThresholds(cells=dict.fromkeys(cells, (-0.5, -0.1, 0.1, 0.5)))
    found = compute_label_confidence(compute_labels(scores, gaps), gaps).collect().drop_nulls("p_neutral")
    assert found.select(pl.sum_horizontal(columns[1:]) < 1).to_series().all()
    assert found["label_confidence"].is_null().equals(found["disruption_label"].is_null(), check_names=False)
    with pytest.raises(ConfigError, match="the ceiling of labels by rank is not known"):
        find_label_ceiling(scores, gaps)


def test_a_release_keeps_the_cut_offs_and_verify_labels_by_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    works, citations, _ = scan_synthetic(SyntheticConfig(n_works=6_000))
    fields = works.select("work_id", "primary_field", "publication_year")
    thresholds = LabelThresholds.fit(compute_cd_index(works, citations).join(fields, on="work_id"), 0.2)
    split = SplitConfig(n_train=60, n_test=9)
    options: dict[str, Any] = {"thresholds": thresholds, "split": split, "novelty": None, "cache_dir": tmp_path / "c"}
    release = build(BuildConfig(source=SyntheticConfig(n_works=6_000), out=tmp_path / "memory", **options))
    done = verify(release.folder).recomputed
    assert done is not None
    assert done.done["disruption_label"] == "cd_index, primary_field, publication_year"
    assert LabelThresholds(**release.manifest["thresholds"]) == thresholds
    assert "ceiling" not in release.manifest
    sure = release.label_confidence
    assert sure.height == 69
    assert (sure["label_confidence"] > 0).all()
    assert "by rank within field and five years" in (release.folder / "README.md").read_text()

    ingest(Corpus(works, citations, {}), tmp_path / "corpus", cache_dir=tmp_path / "c")
    late = build(BuildConfig(source=CorpusConfig(folder=str(tmp_path / "corpus")), out=tmp_path / "disk", **options))
    assert all(
        (late.folder / name).read_bytes() == (release.folder / name).read_bytes()
        for name in ("train.jsonl", "test.jsonl")
    )

    assert main(["build", "--from-manifest", str(release.folder), "--out", str(tmp_path / "again")]) == 1
    assert "are by rank, with cut-offs of cells that no flag names" in capsys.readouterr().err

    # A work at a cut-off of its cell changes its label if the manifest has another one.
    path = release.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["thresholds"]["cells"] = {cell: [-3, -2, 2, 3] for cell in thresholds.cells}
    path.write_bytes(render_manifest(manifest | {"manifest_sha256": hash_manifest(manifest)}))
    with pytest.raises(VerificationError, match="train: disruption_label of 40 rows contradicts the score"):
        verify(release.folder)


def test_what_labels_by_rank_need_is_said(tmp_path: Path) -> None:
    scores = make_scores(900, 3)
    with pytest.raises(SchemaMismatchError, match="lacks column 'primary_field'"):
        LabelThresholds.fit(scores.drop("primary_field"))
    with pytest.raises(ConfigError, match=r"share is 0\.5, needs a number above 0, up to 0.3"):
        LabelThresholds.fit(scores, 0.5)
    with pytest.raises(ConfigError, match="needs each above the one before"):
        LabelThresholds(cells={"Art 1990": (0.1, 0.0, 0.2, 0.3)})
    thresholds = LabelThresholds.fit(scores)
    with pytest.raises(SchemaMismatchError, match="lacks column 'primary_field'"):
        compute_labels(scores.select(*CD_SCORES), thresholds)
    with pytest.raises(ConfigError, match=r"LabelThresholds\.cells needs all works of a field and five years"):
        BuildConfig(source=OpenAlexConfig(), out=tmp_path, thresholds=thresholds)
