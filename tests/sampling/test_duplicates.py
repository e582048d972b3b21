"""One paper under two records is one work, whichever way the records are linked."""

from __future__ import annotations

import random
import unicodedata

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.records.duplicates import find_duplicates, normalise_title, shares_name

Record = tuple[int, str | None, str | None]


def duplicates(records: list[Record]) -> list[int]:
    schema = {"work_id": pl.Int64, "title": pl.String, "doi": pl.String}
    return find_duplicates(pl.DataFrame(records, schema=schema, orient="row")).to_list()


def normalised(titles: list[str | None]) -> list[str | None]:
    frame = pl.DataFrame({"title": titles}, schema={"title": pl.String})
    return frame.select(normalise_title(pl.col("title"))).to_series().to_list()


def left_out_by_union(records: list[Record]) -> list[int]:
    """Join records pairwise until nothing changes: slow, and obviously right."""
    groups = [{work_id} for work_id, _, _ in records]
    for i, (_, title, doi) in enumerate(records):
        for j, (_, other_title, other_doi) in enumerate(records[:i]):
            if (title and title == other_title) or (doi and doi == other_doi):
                merged = groups[i] | groups[j]
                groups = [merged if group & merged else group for group in groups]
    return sorted({work_id for group in groups for work_id in group if work_id != min(group)})


keys = st.one_of(st.none(), st.just(""), st.sampled_from("abcdefgh"))


@given(st.lists(st.tuples(st.integers(1, 2**33), keys, keys), unique_by=lambda record: record[0]), st.randoms())
def test_groups_are_closed_under_shared_titles_and_dois(records: list[Record], rng: random.Random) -> None:
    expected = left_out_by_union(records)
    assert duplicates(records) == expected
    rng.shuffle(records)
    assert duplicates(records) == expected


def test_the_lowest_id_travels_through_higher_ones() -> None:
    # 5 and 9 share a title, 9 and 3 a DOI: 5 has no lower neighbour, and is the same work as 3 all the same.
    assert duplicates([(5, "a", None), (9, "a", "10.1/x"), (3, "b", "10.1/x")]) == [5, 9]
    # A chain whose low and high ids take turns, so that one pass finds no neighbour lower than the low ones.
    n = 60
    ids = [i if i % 2 else 1000 - i for i in range(n, 0, -1)]
    chain: list[Record] = [(ids[i], f"title {(i + 1) // 2}", f"10.1/{i // 2}") for i in range(n)]
    assert duplicates(chain) == sorted(set(ids) - {1})


def test_records_without_title_or_doi_equal_nothing() -> None:
    assert duplicates([(1, None, None), (2, None, None), (3, "", ""), (4, "?!", ""), (5, "—", None)]) == []


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("On Sleep: a review.", "on sleep — A Review"),
        ("The ﬁrst ＡＢＣ", "the first abc"),
        ("H₂O", "H2O"),
        ("caf\u00e9", "cafe\u0301"),
        ("  spaced\u00a0out\u2028title ", "spaced out title"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
    ],
)
def test_spelling_alone_does_not_make_another_title(left: str, right: str) -> None:
    assert len(set(normalised([left, right]))) == 1


@pytest.mark.parametrize(("left", "right"), [("Part 1", "Part 2"), ("कि", "का"), ("été", "ete"), ("A b", "Ab")])
def test_letters_marks_and_digits_make_another_title(left: str, right: str) -> None:
    assert len(set(normalised([left, right]))) == 2


@given(st.text())
def test_a_normalised_title_holds_letters_marks_digits_and_single_spaces(text: str) -> None:
    (title,) = normalised([text])
    if title is None:
        return
    assert title == title.strip(" ")
    assert "  " not in title
    # Python's and Polars' Unicode tables may differ for characters assigned lately.
    assigned = [letter for letter in title if letter != " " and unicodedata.category(letter) != "Cn"]
    assert all(unicodedata.category(letter)[0] in "LMN" for letter in assigned)


@given(st.lists(st.text(st.characters(codec="ascii")), min_size=1))
def test_ascii_titles_are_normalised_as_python_would(texts: list[str]) -> None:
    def plain(text: str) -> str | None:
        return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split()) or None

    assert normalised(list(texts)) == [plain(text) for text in texts]


words = st.sampled_from(
    ["On", "on", "ON", "a", "Å", "Å", "ﬁsh", "fish", "²", "2", "_", "-", "Straße", "İ", "K", "k", "é", ".", " "]
)
odd_titles = st.none() | st.lists(words, max_size=5).map("".join) | st.lists(words, max_size=5).map(" ".join)


@given(st.lists(st.tuples(odd_titles, keys), max_size=12), st.lists(st.tuples(odd_titles, keys), max_size=4))
def test_a_work_that_shares_a_name_is_found_whatever_its_title_is_written_in(rows, works):
    schema = {"title": pl.String, "doi": pl.String}
    frame, some = (pl.DataFrame(found, schema=schema, orient="row") for found in (rows, works))
    titles = {title for title in normalised(some["title"].to_list()) if title is not None}
    dois = {doi for doi in some["doi"] if doi}
    expected = [
        title in titles or doi in dois
        for title, doi in zip(normalised(frame["title"].to_list()), frame["doi"], strict=True)
    ]
    assert frame.select(shares_name(some).fill_null(value=False)).to_series().to_list() == expected
