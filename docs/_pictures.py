"""Draw the pictures of the pages anew, into docs/images: python docs/_pictures.py [NAME ...].

All come from works that the package has, or from results that benchmarks/results keeps.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import polars as pl
from matplotlib.figure import Figure
from PIL import Image

import sciscidata as ssd
from sciscidata import plots
from sciscidata.diagnostics import of_release
from sciscidata.indicators import compute_cd_trajectory, compute_null_cd_index, run_multiverse

HOME = Path(__file__).resolve().parent
IMAGES = HOME / "images"
sys.path[:0] = [str(HOME.parent), str(HOME.parent / "benchmarks" / "judgement")]

Draw = Callable[..., Figure]


def save_both(name: str, draw: Draw) -> None:
    """Save a picture as wide as a page, and one for a phone, with few colours."""
    for width, dpi, file in (("two", 180, f"{name}.png"), ("one", 200, f"{name}_narrow.png")):
        draw(width=width).savefig(IMAGES / file, dpi=dpi)
        with Image.open(IMAGES / file) as picture:
            picture.convert("RGB").quantize(128).save(IMAGES / file, optimize=True)


def compute_multiverse(works: pl.LazyFrame, citations: pl.LazyFrame) -> pl.DataFrame:
    """Run the multiverse of docs/measures/multiverse.md."""
    page = (HOME / "measures" / "multiverse.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(import .*?\n)\n\ncorpus = ", page, re.DOTALL)
    there: dict[str, Any] = {}
    exec(code, there)
    return run_multiverse(there["slope"], works, citations).specifications


def list_example() -> dict[str, Callable[[], Draw]]:
    """Return what draws the pictures of the example."""
    corpus = ssd.scan_example()
    works, citations, _ = corpus
    data = {"data": corpus}
    cd_5, cd_10 = (ssd.compute_cd_index(works, citations, ssd.CDConfig(window_years=years)) for years in (5, 10))
    facts = works.select("work_id", "publication_year", "primary_field", "cited_by_count")
    scores = cd_5.join(ssd.compute_atypicality(works, citations), on="work_id")
    labelled = ssd.compute_labels(scores).join(facts, on="work_id").collect()

    def null() -> Draw:
        found = compute_null_cd_index(works, citations, n_draws=1_000).collect()
        counts = cd_5.select("work_id", "n_i", "n_j", "window_complete").collect()
        return partial(plots.plot_null_cd_index, found.join(counts, on="work_id"), **data)

    def changes() -> Draw:
        was_known = (pl.col("publication_year") <= 2016) & (pl.col("work_id") % 10 > 0)
        had_reference = (pl.col("citing_id") + pl.col("cited_id")) % 20 > 0
        family = ssd.CDConfig(family=True)
        before = ssd.compute_cd_index(works.filter(was_known), citations.filter(had_reference), family).collect()
        now = ssd.compute_cd_index(works, citations, family).collect()
        return partial(plots.plot_changes, ssd.compare(before, now).changes, **data)

    def field(*, width: str) -> Figure:
        own = data | {"title": "Chemistry disrupts more (23 % of 39 papers) than psychology (7 % of 309)"}
        return plots.plot_by_field(labelled, width=width, **({"score": ""} if width == "one" else {}), **own)

    def drawn() -> Draw:
        judged = labelled.filter(ssd.indicators.is_judged()).drop_nulls("disruption_label")
        texts = works.select("work_id", "title", "abstract", "doi").collect()
        title = pl.col("title").str.to_lowercase().str.replace_all(r"\W", "")
        once = title.is_first_distinct() & (pl.col("doi").is_null() | pl.col("doi").is_first_distinct())
        eligible = judged.join(texts, on="work_id").sort("work_id").drop_nulls(["title", "abstract"]).filter(once)
        chosen = ssd.draw_split(eligible, ssd.SplitConfig(n_train=120, n_test=30)).select("work_id")
        own = data | {"title": "The 150 drawn papers differ little from the 1,211 that may be drawn"}
        return partial(plots.plot_drawn, eligible, eligible.join(chosen, on="work_id", how="semi"), **own)

    def uzzi() -> Draw:
        rank = pl.col("cited_by_count").rank("min", descending=True).over("publication_year")
        top = labelled.with_columns(in_the_most_cited_tenth=rank <= 0.1 * pl.len().over("publication_year"))
        own = data | {"title": "All four kinds of papers are cited alike, within their intervals"}
        return partial(plots.plot_uzzi_cells, top, hit="in_the_most_cited_tenth", **own)

    def trajectory() -> Draw:
        found = compute_cd_trajectory(works, citations).collect()
        known = labelled.filter(pl.col("n_i") + pl.col("n_j") > 8).sort("cited_by_count", "work_id")["work_id"].tail(6)
        titles = found.join(works.select("work_id", "title", "publication_year").collect(), on="work_id")
        own = data | {"title": "From age 5 to 10 the index of five of these six papers moves by less than 0.05"}
        return partial(plots.plot_cd_trajectory, titles, known.to_list(), **own)

    def team_size(*, width: str) -> Figure:
        sized = cd_5.join(works.select("work_id", pl.col("n_authors").clip(upper_bound=10)), on="work_id")
        own = data | {"title": "1,239 papers are too few to tell small teams from large ones"}
        figure = plots.plot_by(sized, "n_authors", stat="percentile", width=width, **own)
        figure.axes[0].set_xticks(range(1, 11), [*map(str, range(1, 10)), "10+"])
        return figure

    def commonness() -> Draw:
        common = ssd.compute_commonness(works, citations).select("work_id", "commonness_novelty")
        return partial(plot_commonness, scores.join(common, on="work_id").select(*COMMON).drop_nulls().collect())

    work = ssd.explain("10.1016/j.arthro.2013.11.001", works, citations)
    by_year = data | {"title": "15 % of papers before 2005 disrupt, 8 % of later ones; the mean index does not fall"}
    z = data | {"title": "The usual pair of venues lies above chance in nearly every year, the rarest tenth near it"}
    windows = {"windows": (5, 10)} | data
    return {
        "gallery_by_year": lambda: partial(plots.plot_by_year, labelled, **by_year),
        "gallery_by_field": lambda: field,
        "gallery_windows": lambda: partial(plots.plot_windows, cd_5.collect(), cd_10.collect(), **windows),
        "gallery_work": lambda: partial(plots.plot_work, work, **data),
        "gallery_novelty_by_year": lambda: partial(plots.plot_novelty_by_year, labelled, **z),
        "gallery_multiverse": lambda: partial(plots.plot_multiverse, compute_multiverse(works, citations), **data),
        "gallery_team_size": lambda: team_size,
        "gallery_changes": changes,
        "gallery_drawn": drawn,
        "gallery_uzzi": uzzi,
        "gallery_trajectory": trajectory,
        "null_cd_index": null,
        "commonness": commonness,
    }


COMMON = ("z_p10", "commonness_novelty")
KEPT = ("collapse", "label_confidence", "label_stability", "missing_data", "real_model_learning", "real_model_labels")


def plot_commonness(both: pl.DataFrame, *, width: str) -> Figure:
    """Draw both measures of novelty of the same works."""
    from sciscidata.plots.figure import drawing

    with drawing({"width": width}, heights_mm=(70,)) as picture:
        (axes,) = picture.panels
        cells = axes.hexbin(*(both[name] for name in COMMON), gridsize=40, bins="log", mincnt=1, cmap="cividis", lw=0.1)
        bar = picture.figure.colorbar(cells, label="works (log scale)", shrink=0.8)
        bar.ax.yaxis.set_major_formatter("{x:,.0f}")
        bar.ax.minorticks_off()
        axes.set(xlabel="z, 10th percentile (low: atypical)", ylabel="novelty by commonness\n(high: novel)")
        spearman = both.select(pl.corr(*COMMON, method="spearman")).item()
        sign = "−" if spearman < 0 else ""
        picture.finding = (
            f"Both measures of novelty agree in direction, and only there (Spearman {sign}{abs(spearman):.2f})"
        )
        picture.caption = (
            f"Atypicality (Uzzi et al.) and commonness (Lee et al.) of {both.height:,} works. "
            "Data: the example (SYNERGY, 4,381 works)."
        )
    return picture.figure


def draw_wang() -> Draw:
    """Return what draws the share of works with a new pair in a synthetic world."""
    world = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=20_000))
    wang = ssd.compute_wang_novelty(world.works, world.citations)
    years = world.works.select("work_id", "publication_year")
    rows = wang.join(years, on="work_id").drop_nulls().with_columns(with_a_new_pair=pl.col("n_new_pairs") > 0)
    title = "Synthetic, and an artefact: the longer the history, the fewer first pairs"
    options = {"stat": "share", "title": title, "data": world}
    return partial(plots.plot_by, rows.collect(), "publication_year", "with_a_new_pair", **options)


def draw_release(name: str) -> Draw:
    """Build a release of the example, and return what draws one of its pictures."""
    calls: list[Draw] = []

    def note(*arguments: object, path: Path, **options: object) -> None:
        path.touch()
        arguments = tuple(one.collect() if isinstance(one, pl.LazyFrame) else one for one in arguments)
        calls.append(partial(getattr(plots, f"plot_{name}"), *arguments, **options))

    with TemporaryDirectory() as home, mock.patch.object(of_release, f"plot_{name}", note):
        ssd.build(
            ssd.BuildConfig(source=ssd.ExampleConfig(), out=Path(home) / "release", cache_dir=Path(home) / "cache")
        )
    return calls[0]


def draw_judgement() -> Draw:
    """Return what draws the answer of docs/rl/judgement.md."""
    import show

    from benchmarks import pictures

    slices, runs = show.read_results()
    return partial(pictures.judgement, show.list_dots(slices, runs), slices["two"]["ceiling"]["accuracy"])


def main() -> None:
    """Draw those that are named, or all of them."""
    from benchmarks import engines, pictures

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="without .png [all]")
    names = parser.parse_args().names
    every: dict[str, Callable[[], Draw]] = {
        **{name: partial(getattr, pictures, name) for name in KEPT},
        "engines": lambda: partial(pictures.engines, list(engines.WORKERS), engines.simulate_all()),
        "judgement": draw_judgement,
        "wang": draw_wang,
        "disruption": partial(draw_release, "disruption"),
        "novelty": partial(draw_release, "novelty"),
    }
    if not names or set(names) - set(every):
        every |= list_example()
    if unknown := set(names) - set(every):
        parser.error(f"no picture is called {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    for name in names or every:
        save_both(name, every[name]())


if __name__ == "__main__":
    main()
