"""Draw the pictures of the measure pages anew, into docs/images: python docs/_pictures.py."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl
import polars as pl
from PIL import Image

import sciscidata as ssd

mpl.use("agg")
import matplotlib.pyplot as plt

IMAGES = Path(__file__).resolve().parent / "images"


def save(figure: plt.Figure, name: str) -> None:
    """Save a figure small: few colours are enough."""
    figure.tight_layout()
    figure.savefig(IMAGES / name, dpi=110, pil_kwargs={"optimize": True})
    plt.close(figure)


def main() -> None:
    """Draw all of them."""
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

    with TemporaryDirectory() as home:
        config = ssd.BuildConfig(
            source=ssd.SyntheticConfig(), out=Path(home) / "release", cache_dir=Path(home) / "cache"
        )
        ssd.build(config)
        (IMAGES / "disruption.png").write_bytes((config.out / "disruption.png").read_bytes())
        with Image.open(config.out / "novelty.png") as picture:
            picture.convert("RGB").quantize(64).save(IMAGES / "novelty.png", optimize=True)


if __name__ == "__main__":
    main()
