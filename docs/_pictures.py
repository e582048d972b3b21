"""Draw the pictures of the pages anew, into docs/images: python docs/_pictures.py."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import matplotlib as mpl
import polars as pl
from matplotlib.figure import Figure
from PIL import Image

import sciscidata as ssd
from sciscidata.diagnostics import of_release
from sciscidata.indicators import compute_cd_trajectory, compute_null_cd_index, run_multiverse

mpl.use("agg")
import matplotlib.pyplot as plt

HOME = Path(__file__).resolve().parent
IMAGES = HOME / "images"


def save(figure: plt.Figure, name: str, dpi: int = 180) -> None:
    """Save a picture with few colours, for the screen."""
    figure.savefig(IMAGES / f"{name}.png", dpi=dpi)
    with Image.open(IMAGES / f"{name}.png") as picture:
        picture.convert("RGB").quantize(128).save(IMAGES / f"{name}.png", optimize=True)
    plt.close(figure)


def save_both(name: str, plot: Callable[..., Figure], *arguments: object, **options: object) -> None:
    """Save a picture as wide as a page, and one for a phone."""
    save(plot(*arguments, **options), name)
    save(plot(*arguments, width="one", **options), f"{name}_narrow", dpi=200)


def compute_multiverse(works: pl.LazyFrame, citations: pl.LazyFrame) -> pl.DataFrame:
    """Run the multiverse of docs/measures/multiverse.md."""
    page = (HOME / "measures" / "multiverse.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(import .*?\n)\n\ncorpus = ", page, re.DOTALL)
    there: dict[str, Any] = {}
    exec(code, there)
    return run_multiverse(there["slope"], works, citations).specifications


def draw_gallery() -> None:
    """Draw the pictures of docs/pictures.md from the works that come with the package."""
    plots, data = ssd.plots, {"data": "five reviews (OpenAlex)"}
    works, citations, _ = ssd.scan_example()
    cd_5, cd_10 = (ssd.compute_cd_index(works, citations, ssd.CDConfig(window_years=years)) for years in (5, 10))
    facts = works.select("work_id", "publication_year", "primary_field", "cited_by_count")
    scores = cd_5.join(ssd.compute_atypicality(works, citations), on="work_id")
    labelled = ssd.compute_labels(scores).join(facts, on="work_id").collect()
    save_both("gallery_distribution", plots.plot_disruption, labelled, **data)
    save_both("gallery_by_year", plots.plot_by_year, labelled, **data)
    null = compute_null_cd_index(works, citations, n_draws=1_000).collect()
    counts = cd_5.select("work_id", "n_i", "n_j", "window_complete").collect()
    save_both("null_cd_index", plots.plot_null_cd_index, null.join(counts, on="work_id"), **data)
    save_both("gallery_windows", plots.plot_windows, cd_5.collect(), cd_10.collect(), windows=(5, 10), **data)
    was_known = (pl.col("publication_year") <= 2016) & (pl.col("work_id") % 10 > 0)
    had_reference = (pl.col("citing_id") + pl.col("cited_id")) % 20 > 0
    family = ssd.CDConfig(family=True)
    before = ssd.compute_cd_index(works.filter(was_known), citations.filter(had_reference), family).collect()
    now = ssd.compute_cd_index(works, citations, family).collect()
    save_both("gallery_changes", plots.plot_changes, ssd.compare(before, now).changes, **data)
    save(plots.plot_by_field(labelled, **data), "gallery_by_field")
    save(plots.plot_by_field(labelled, score="", width="one", **data), "gallery_by_field_narrow", dpi=200)
    eligible = labelled.drop_nulls("disruption_label")
    drawn = ssd.draw_split(eligible, ssd.SplitConfig(n_train=300, n_test=30)).select("work_id")
    both = eligible.join(drawn, on="work_id", how="semi")
    save_both("gallery_drawn", plots.plot_drawn, eligible, both, **data)
    rank = pl.col("cited_by_count").rank("min", descending=True).over("publication_year")
    most_cited = rank <= 0.1 * pl.len().over("publication_year")
    save_both("gallery_uzzi", plots.plot_uzzi_cells, labelled.with_columns(top=most_cited), hit="top", **data)
    save_both("gallery_novelty_by_year", plots.plot_novelty_by_year, labelled, **data)
    save_both("gallery_work", plots.plot_work, ssd.explain("10.1016/j.arthro.2013.11.001", works, citations), **data)
    curve = compute_multiverse(works, citations)
    save_both("gallery_multiverse", plots.plot_multiverse, curve, **data)
    trajectory = compute_cd_trajectory(works, citations).collect()
    known = labelled.filter(pl.col("n_i") + pl.col("n_j") > 8).sort("cited_by_count", "work_id")["work_id"].tail(6)
    titles = trajectory.join(works.select("work_id", "title", "publication_year").collect(), on="work_id")
    save_both("gallery_trajectory", plots.plot_cd_trajectory, titles, known.to_list(), **data)
    sizes = works.select("work_id", pl.col("n_authors").clip(upper_bound=10))
    sized = cd_5.join(sizes, on="work_id")
    save_both("gallery_team_size", plots.plot_by, sized, "n_authors", stat="percentile", **data)


def draw_release(source: ssd.ExampleConfig | ssd.SyntheticConfig, name: str) -> None:
    """Build a release, and draw one of its pictures."""
    plot = getattr(ssd.plots, f"plot_{name}")

    def draw(*arguments: object, path: Path, **options: object) -> None:
        path.touch()
        save_both(name, plot, *arguments, **options)

    with TemporaryDirectory() as home, mock.patch.object(of_release, f"plot_{name}", draw):
        ssd.build(ssd.BuildConfig(source=source, out=Path(home) / "release", cache_dir=Path(home) / "cache"))


def main() -> None:
    """Draw all of them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    draw_gallery()
    works, citations, _ = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=20_000))
    common = ssd.compute_commonness(works, citations).select("work_id", "commonness_novelty")
    both = ssd.compute_atypicality(works, citations).join(common, on="work_id").drop_nulls().collect()
    plt.rcParams.update(ssd.plots.STYLE)
    figure, axes = plt.subplots(figsize=(7.1, 3.2), layout="constrained")
    axes.hexbin(
        both["z_p10"], both["commonness_novelty"], gridsize=50, extent=(-6, 12, -4, 4), bins="log", cmap="Greys"
    )
    axes.set_xlabel("z_p10 (low: atypical)")
    axes.set_ylabel("commonness_novelty (high: novel)")
    save(figure, "commonness", dpi=110)

    years = works.select("work_id", "publication_year")
    wang = ssd.compute_wang_novelty(works, citations).join(years, on="work_id").drop_nulls()
    wang = wang.with_columns(with_a_new_pair=pl.col("n_new_pairs") > 0)
    figure = ssd.plots.plot_by(wang, "publication_year", "with_a_new_pair", stat="share", title="")
    save(figure, "wang", dpi=110)

    draw_release(ssd.ExampleConfig(), "disruption")
    draw_release(ssd.SyntheticConfig(), "novelty")


if __name__ == "__main__":
    main()
