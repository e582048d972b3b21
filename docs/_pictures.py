"""Draw the pictures of the pages anew, into docs/images: python docs/_pictures.py.

The gallery needs real data: ``SCISCI_SHARED_DATA``, or ``../shared/data``.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import polars as pl
from PIL import Image

import sciscidata as ssd
from sciscidata.indicators import compute_null_cd_index
from sciscidata.label_thresholds import compute_disruption_labels

mpl.use("agg")
import matplotlib.pyplot as plt

HOME = Path(__file__).resolve().parent
IMAGES = HOME / "images"
DATA = Path(os.environ.get("SCISCI_SHARED_DATA", HOME.parent.parent / "shared" / "data"))


def save(figure: plt.Figure, name: str) -> None:
    """Save a figure small: few colours are enough."""
    figure.tight_layout()
    figure.savefig(IMAGES / name, dpi=110, pil_kwargs={"optimize": True})
    plt.close(figure)


def save_small(figure: plt.Figure, name: str) -> None:
    """Save a picture of the gallery with few colours, for the screen."""
    figure.savefig(IMAGES / name, dpi=130)
    with Image.open(IMAGES / name) as picture:
        picture.convert("RGB").quantize(48).save(IMAGES / name, optimize=True)


def read_graph(name: str) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Read works and citations of one of the two real graphs."""
    nodes, edges = (pl.read_parquet(DATA / f"graph_{name}" / f"{table}.parquet") for table in ("nodes", "edges"))
    works = nodes.lazy().select(work_id=pl.nth(0).cast(pl.Int64), publication_year=pl.col("year").cast(pl.Int32))
    return works, edges.lazy().select(citing_id=pl.nth(0).cast(pl.Int64), cited_id=pl.nth(1).cast(pl.Int64))


def draw_gallery() -> None:
    """Draw the pictures of docs/pictures.md from real data."""
    plots, hepth, review = ssd.plots, "cit-HepTh (SNAP)", "SYNERGY reviews (OpenAlex)"
    works, citations = read_graph("hepth")
    labelled = compute_disruption_labels(ssd.compute_cd_index(works, citations)).join(works, on="work_id").collect()
    save_small(plots.plot_disruption(labelled, data=hepth), "gallery_distribution.png")
    save_small(plots.plot_by_year(labelled, complete_until=1998, data=hepth), "gallery_by_year.png")
    null = compute_null_cd_index(works, citations, n_draws=1_000)
    save_small(plots.plot_null_cd_index(null, data=hepth), "null_cd_index.png")
    windows = [
        ssd.compute_cd_index(*read_graph("handball"), ssd.CDConfig(window_years=years)).collect() for years in (5, 10)
    ]
    save_small(plots.plot_windows(*windows, windows=(5, 10), data="Handball (OpenAlex)"), "gallery_windows.png")

    files = (str(DATA / "openalex" / "synergy_A.works.jsonl.gz"),)
    works, citations, _ = ssd.scan_records(ssd.RecordsConfig(inputs=files))
    scores = ssd.compute_cd_index(works, citations).join(ssd.compute_atypicality(works, citations), on="work_id")
    facts = works.select("work_id", "publication_year", "primary_field", "cited_by_count")
    labelled = ssd.compute_labels(scores).join(facts, on="work_id").collect()
    most_cited = pl.col("cited_by_count").rank("min", descending=True).over("publication_year") <= 0.1 * pl.len().over(
        "publication_year"
    )
    save_small(plots.plot_by_field(labelled, data=review), "gallery_by_field.png")
    eligible = labelled.drop_nulls("disruption_label")
    drawn = ssd.draw_split(eligible, ssd.SplitConfig(n_train=300, n_test=30)).select("work_id")
    both = eligible.join(drawn, on="work_id", how="semi")
    save_small(plots.plot_drawn(eligible, both, data=review), "gallery_drawn.png")
    cells = plots.plot_uzzi_cells(labelled.with_columns(top=most_cited), hit="top", data=review)
    save_small(cells, "gallery_uzzi.png")
    save_small(plots.plot_novelty_by_year(labelled, data=review), "gallery_novelty_by_year.png")


def draw_release(source: ssd.ExampleConfig | ssd.SyntheticConfig, name: str) -> None:
    """Build a release, and keep one of its pictures."""
    with TemporaryDirectory() as home:
        release = ssd.build(ssd.BuildConfig(source=source, out=Path(home) / "release", cache_dir=Path(home) / "cache"))
        with Image.open(release.folder / name) as picture:
            small = picture.convert("RGB").resize((1_280, round(1_280 * picture.height / picture.width)))
            small.quantize(200).save(IMAGES / name, optimize=True)


def main() -> None:
    """Draw all of them."""
    if DATA.is_dir():
        draw_gallery()
    works, citations, _ = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=20_000))
    common = ssd.compute_commonness(works, citations).select("work_id", "commonness_novelty")
    both = ssd.compute_atypicality(works, citations).join(common, on="work_id").drop_nulls().collect()
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    axes.hexbin(
        both["z_p10"], both["commonness_novelty"], gridsize=50, extent=(-6, 12, -4, 4), bins="log", cmap="Greys"
    )
    axes.set_xlabel("z_p10 (low: atypical)")
    axes.set_ylabel("commonness_novelty (high: novel)")
    save(figure, "commonness.png")

    years = works.select("work_id", "publication_year")
    wang = ssd.compute_wang_novelty(works, citations).join(years, on="work_id").drop_nulls()
    share = wang.group_by("publication_year").agg((pl.col("n_new_pairs") > 0).mean().alias("share"))
    by_year = share.sort("publication_year").collect()
    figure, axes = plt.subplots(figsize=(6.4, 3.2))
    axes.plot(by_year["publication_year"], 100 * by_year["share"], color="#0072b2")
    axes.set_ylim(0)
    axes.set_xlabel("publication year")
    axes.set_ylabel("works with a new pair, %")
    save(figure, "wang.png")

    draw_release(ssd.ExampleConfig(), "disruption.png")
    draw_release(ssd.SyntheticConfig(), "novelty.png")


if __name__ == "__main__":
    main()
