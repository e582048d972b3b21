"""Draw the pictures of the pages anew, into docs/images: python docs/_pictures.py."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import polars as pl
from PIL import Image

import sciscidata as ssd
from sciscidata.indicators import compute_null_cd_index

mpl.use("agg")
import matplotlib.pyplot as plt

HOME = Path(__file__).resolve().parent
IMAGES = HOME / "images"


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


def draw_gallery() -> None:
    """Draw the pictures of docs/pictures.md from the works that come with the package."""
    plots, data = ssd.plots, "five reviews (OpenAlex)"
    works, citations, _ = ssd.scan_example()
    cd_5, cd_10 = (ssd.compute_cd_index(works, citations, ssd.CDConfig(window_years=years)) for years in (5, 10))
    facts = works.select("work_id", "publication_year", "primary_field", "cited_by_count")
    scores = cd_5.join(ssd.compute_atypicality(works, citations), on="work_id")
    labelled = ssd.compute_labels(scores).join(facts, on="work_id").collect()
    save_small(plots.plot_disruption(labelled, data=data), "gallery_distribution.png")
    save_small(plots.plot_by_year(labelled, complete_until=2016, data=data), "gallery_by_year.png")
    null = compute_null_cd_index(works, citations, n_draws=1_000)
    save_small(plots.plot_null_cd_index(null, data=data), "null_cd_index.png")
    save_small(plots.plot_windows(cd_5.collect(), cd_10.collect(), windows=(5, 10), data=data), "gallery_windows.png")
    save_small(plots.plot_by_field(labelled, data=data), "gallery_by_field.png")
    eligible = labelled.drop_nulls("disruption_label")
    drawn = ssd.draw_split(eligible, ssd.SplitConfig(n_train=300, n_test=30)).select("work_id")
    both = eligible.join(drawn, on="work_id", how="semi")
    save_small(plots.plot_drawn(eligible, both, data=data), "gallery_drawn.png")
    rank = pl.col("cited_by_count").rank("min", descending=True).over("publication_year")
    most_cited = rank <= 0.1 * pl.len().over("publication_year")
    save_small(plots.plot_uzzi_cells(labelled.with_columns(top=most_cited), hit="top", data=data), "gallery_uzzi.png")
    save_small(plots.plot_novelty_by_year(labelled, data=data), "gallery_novelty_by_year.png")


def draw_release(source: ssd.ExampleConfig | ssd.SyntheticConfig, name: str) -> None:
    """Build a release, and keep one of its pictures."""
    with TemporaryDirectory() as home:
        release = ssd.build(ssd.BuildConfig(source=source, out=Path(home) / "release", cache_dir=Path(home) / "cache"))
        with Image.open(release.folder / name) as picture:
            small = picture.convert("RGB").resize((1_280, round(1_280 * picture.height / picture.width)))
            small.quantize(200).save(IMAGES / name, optimize=True)


def main() -> None:
    """Draw all of them."""
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
