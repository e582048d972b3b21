"""The picture of one work and its papers: every citer is a dot, wherever it fits."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure

import sciscidata as ssd
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.plots import plot_work


def world(n: int, share_both: float = 0.4, n_references: int = 12, n_others: int = 30):
    """A work of 2000 with ``n`` citers, of which a share cites its references too."""
    rng = np.random.default_rng(n)
    references, citers = [*range(1, n_references + 1)], [*range(1_000, 1_000 + n)]
    others = [*range(10**6, 10**6 + n_others)]
    years = {work: 1999 - work for work in references} | {500: 2000}
    years |= dict(zip(citers + others, (2001 + rng.integers(0, 5, n + n_others)).tolist(), strict=True))
    edges = [(500, work) for work in references] + [(work, 500) for work in citers]
    edges += [(work, 1 + work % n_references) for work in citers[: round(n * share_both)] + others]
    works = pl.DataFrame({"work_id": [*years], "publication_year": [*years.values()]})
    return works.cast({"publication_year": pl.Int32}), pl.DataFrame(edges, ["citing_id", "cited_id"], orient="row")


def explained(n: int, **options):
    return ssd.explain(500, *world(n, **options))


def dots(figure: Figure) -> int:
    points = [one for one in figure.axes[0].collections if isinstance(one, PathCollection)]
    return sum(len(one.get_offsets()) for one in points[1:])  # the first are references


def boxes_apart(figure: Figure) -> bool:
    """Whether no two texts or ticks of a picture overlap."""
    figure.draw_without_rendering()
    axes = figure.axes[0]
    ticks = [one.get_window_extent() for one in axes.get_xticklabels()]
    texts = [one.get_window_extent() for one in axes.texts]
    return not any(a.overlaps(b) for some in (ticks, texts) for n, a in enumerate(some) for b in some[:n])


@pytest.mark.parametrize("width", ["one", "two"])
@pytest.mark.parametrize("n", [1, 3, 30, 300, 3_000])
def test_every_citer_is_a_dot_inside_the_picture(n, width):
    figure = plot_work(explained(n), width=width)
    assert dots(figure) == n
    lines = [one for one in figure.axes[0].collections if isinstance(one, LineCollection)]
    assert bool(lines) == (n <= 60)
    for points in figure.axes[0].collections:
        if isinstance(points, PathCollection):
            offsets = np.asarray(points.get_offsets())
            assert (offsets >= 0).all()
            assert (offsets <= 1).all()
    assert boxes_apart(figure)


def test_dots_of_two_classes_do_not_touch():
    figure = plot_work(explained(3_000))
    points = [one for one in figure.axes[0].collections if isinstance(one, PathCollection)][1:]
    alone, both = (np.asarray(one.get_offsets())[:, 1] for one in points)
    assert alone.min() > both.max()


def test_bars_count_where_dots_would_be_too_small():
    figure = plot_work(explained(60_000, n_others=0), width="one")
    assert dots(figure) == 0
    assert len(figure.axes[0].patches) == 10


def test_counts_are_named_in_the_picture_and_its_title():
    figure = plot_work(explained(30), data="a demo")
    said = {text.get_text() for text in figure.axes[0].texts}
    assert {"it cites 12", "18 cite it, none of its references", "12 cite it and its references"} <= said
    assert "30 works cite\nonly its references,\nnot it" in said
    assert figure.get_label().startswith(
        "What W500 (2000) cites, and who cites it: 18 cite it and none of its references, 12 "
    )
    assert figure.get_label().endswith("Data: a demo.")
    assert " Left: its references, larger the more of its citers cite them too, hollow where no citer does. Data" in (
        figure.get_label()
    )
    assert figure.axes[0].get_xlabel() == "year (left of the work on a log scale of age)"


def test_many_references_and_years_are_told_apart():
    figure = plot_work(explained(300, n_references=400), width="one")
    assert boxes_apart(figure)
    works, citations = world(40)
    no_years = works.with_columns(publication_year=pl.when(pl.col("work_id") >= 500).then("publication_year"))
    figure = plot_work(ssd.explain(500, no_years, citations))
    assert figure.axes[0].get_xticklabels()[0].get_text() == "?"
    assert "?: of no known year." in figure.get_label()


def test_one_citer_cites_and_two_cite():
    works, citations = world(2)
    label = plot_work(ssd.explain(500, works, citations)).get_label()
    row = ssd.explain(500, works, citations).scores.row(0, named=True)
    for name, words in {"n_i": "it and none", "n_j": "both;", "n_k": "only its references"}.items():
        assert f" {row[name]} {'cites' if row[name] == 1 else 'cite'} {words}" in label
    assert 1 in (row["n_i"], row["n_j"], row["n_k"])


def test_a_work_that_nothing_cites_has_no_picture():
    works, citations = world(1)
    with pytest.raises(EmptyInputError, match="nothing to draw"):
        plot_work(ssd.explain(1_000, works, citations))
    with pytest.raises(ConfigError, match="has no option"):
        plot_work(explained(3), widht="one")


def test_a_work_that_is_not_judged_says_so_in_place_of_a_label():
    works, citations = world(30)  # up to 2005, so its window is not over
    assert ", not judged." in plot_work(ssd.explain(500, works, citations)).get_label()
    later = pl.concat([works, pl.DataFrame({"work_id": 7_777, "publication_year": 2006}, works.schema)])
    assert ", disruptive." in plot_work(ssd.explain(500, later, citations)).get_label()


def test_it_draws_in_axes_of_ones_own(tmp_path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3))
    assert plot_work(explained(30), ax=axes) is figure
    assert dots(figure) == 30
    plt.close(figure)
    for name in ("a.svg", "b.svg"):
        plot_work(explained(30), path=tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
