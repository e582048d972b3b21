"""When two records are the same paper: works with one normalised title, or one DOI, count as one work."""

from __future__ import annotations

import polars as pl


def normalise_title(title: pl.Expr) -> pl.Expr:
    """Reduce a title to its letters with their marks and its digits: NFKC, lower case, single spaces; null if blank."""
    words = (
        title.str.normalize("NFKC").str.to_lowercase().str.replace_all(r"[^\p{L}\p{M}\p{N}]+", " ").str.strip_chars(" ")
    )
    return pl.when(words != "").then(words)


def shares_name(works: pl.DataFrame) -> pl.Expr:
    """Mark rows with the normalised title or the DOI of one of ``works``; others are false or null.

    Made for all titles of a corpus: one in ASCII is only normalised if it begins and ends like one of the works'.
    """
    title = pl.col("title")
    wanted = works.select(normalise_title(title).alias("title"), pl.when(pl.col("doi") != "").then("doi"))
    titles, dois = (wanted[name].drop_nulls().unique() for name in ("title", "doi"))
    ends = titles.to_frame().select(_ends(title))["title"].drop_nulls().unique()
    is_ascii = title.str.len_bytes() == title.str.len_chars()
    # Where it is null, there is nothing to normalise.
    likely = pl.when(~is_ascii | _ends(title).is_in(ends.implode())).then(title)
    return normalise_title(likely).is_in(titles.implode()) | pl.col("doi").is_in(dois.implode())


def _ends(title: pl.Expr) -> pl.Expr:
    """Return the first and the last word of a title in ASCII: normalising does not change them."""
    first, last = title.str.extract(r"([A-Za-z0-9]+)"), title.str.extract(r"([A-Za-z0-9]+)[^A-Za-z0-9]*$")
    return (first + " " + last).str.to_lowercase()


def find_duplicates(works: pl.DataFrame) -> pl.Series:
    """Find works to leave out, so that no two share a normalised title or DOI. Each group keeps its lowest ``work_id``.

    Works that share either are one group, and groups that share a work are one group too. Blank names equal nothing.
    """
    keys = ("title", "doi")
    named = works.select("work_id", normalise_title(pl.col("title")), pl.when(pl.col("doi") != "").then("doi"))
    # Nearly every title and DOI is unique; the rest is small enough to pass over again and again.
    shared = named.filter(
        pl.any_horizontal(pl.col(key).is_not_null() & pl.col(key).is_duplicated() for key in keys)
    ).with_columns(pl.col("work_id").alias("group"))
    while True:
        lowest = [pl.when(pl.col(key).is_not_null()).then(pl.col("group").min().over(key)) for key in keys]
        merged = shared.with_columns(pl.min_horizontal("group", *lowest).alias("group"))
        if merged["group"].equals(shared["group"]):
            break
        shared = merged
    return shared.filter(pl.col("group") != pl.col("work_id"))["work_id"].sort()
