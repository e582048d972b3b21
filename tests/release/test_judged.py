"""How many works of a release are judged: the manifest counts them; card, summary, page and pictures say so."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from PIL import Image

import sciscidata as ssd
from sciscidata.cli.main import main
from sciscidata.disruption.config import first_open_window
from sciscidata.release.documents import render_documents
from sciscidata.release.manifest import describe_judged, join_counts
from sciscidata.release.read import Release

EVERY = ssd.EligibilityConfig(min_citations=0, complete_window=False)


def release_of(home: Path, filters: ssd.EligibilityConfig | None = None, **settings) -> Release:
    split = ssd.SplitConfig(n_train=60, n_test=12)
    config = {"source": ssd.SyntheticConfig(n_works=3_000), "split": split, "eligibility": filters or EVERY} | settings
    return ssd.build(ssd.BuildConfig(**config, out=home / "slice", cache_dir=home / "cache"))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return release_of(tmp_path_factory.mktemp("judged"))


def totals(release: Release) -> dict[str, int]:
    return {name: sum(of["disruption_label"].values()) for name, of in release.manifest["counts"]["judged"].items()}


def test_the_manifest_counts_the_works_that_the_scores_call_judged(release: Release) -> None:
    works, citations, _ = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=3_000))
    scores = ssd.compute_cd_index(works, citations).join(works.select("work_id", "publication_year"), on="work_id")
    first_open = first_open_window(5, release.manifest["counts"]["last_year"])
    judged = scores.filter(pl.col("n_i") + pl.col("n_j") > 0, pl.col("publication_year") < first_open)
    assert totals(release)["scored"] == judged.drop_nulls("cd_index").collect().height
    for split in release.splits:
        rows = join_counts(release, getattr(release, split)).drop_nulls("disruption_label")
        assert totals(release)[split] == rows.filter(ssd.indicators.is_judged()).height


def test_it_counts_the_same_where_texts_are_read_late(release: Release, tmp_path: Path) -> None:
    ssd.ingest(ssd.SyntheticConfig(n_works=3_000), tmp_path / "corpus", cache_dir=tmp_path / "cache")
    late = release_of(tmp_path, source=ssd.CorpusConfig(folder=tmp_path / "corpus"))
    assert late.train.equals(release.train)
    assert {**totals(late), "eligible": 0} == {**totals(release), "eligible": 0}  # some texts are not read


def test_card_and_summary_say_how_many_are_judged(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    said, n = describe_judged(release.manifest), totals(release)
    assert said is not None
    drawn = n["train"] + n["test"]
    assert drawn < 72
    assert said.startswith(f"{n['scored']:,} of ")
    assert said.endswith(f"{drawn} of the 72 works of this release are judged.")
    assert said in (release.folder / "README.md").read_text("utf-8")
    assert main(["describe", str(release.folder)]) == 0
    printed = capsys.readouterr().out
    assert said in " ".join(printed.split())
    rows = re.findall(r"^ +judged .*?  ([\d,]+(?: / [\d,]+)?)$", printed, re.M)
    numbers = [int(number.replace(",", "")) for row in rows for number in row.split(" / ")]
    assert numbers == [n[name] for name in ("scored", "eligible", "train", "test")]


def test_the_page_has_quantiles_of_judged_works(release: Release, tmp_path: Path) -> None:
    assert main(["describe", str(release.folder), "--html", str(tmp_path / "page.html")]) == 0
    page, n = (tmp_path / "page.html").read_text("utf-8"), totals(release)
    assert f"<td>CD index (judged)</td><td>{n['train'] + n['test']}</td>" in page
    assert "CD index (judged): Left out: " in page


def test_the_picture_of_the_draw_counts_judged_works(release: Release) -> None:
    title = " ".join(Image.open(release.folder / "disruption.png").text["Title"].split())
    assert f"CD index of {totals(release)['eligible']:,} works that may be drawn" in title
    assert "Left out: " in title


def test_all_works_are_judged_by_the_filters_that_are_on_at_first(tmp_path: Path) -> None:
    release = release_of(tmp_path, ssd.EligibilityConfig())
    assert totals(release)["train"] == 60
    said = describe_judged(release.manifest)
    assert said is not None
    assert said.endswith("All 72 works of this release are judged.")
    older = {**release.manifest, "counts": {**release.manifest["counts"], "judged": None}}
    assert str(describe_judged(older)).startswith("All 72 works of this release are judged: their window was over")


def test_of_published_scores_it_says_that_this_is_not_known_and_whom_to_cite(release: Release) -> None:
    source = {"kind": "mine", "name": "MyCatalogue", "scores": "as published"}
    manifest = {**release.manifest, "source": source}
    assert describe_judged(manifest) is None
    card = render_documents(manifest)["README.md"].decode()
    assert "Which works are judged is not known" in card
    assert "labels computed from the citation record" not in card
    assert "labels by the scores of MyCatalogue, taken as they are" in card
    assert "- Who published the scores (MyCatalogue)." in card
