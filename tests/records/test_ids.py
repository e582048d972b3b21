"""The numbers of ids: the rule against a slow one in plain Python, and against published hashes."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.errors import SchemaMismatchError, WorkIdError
from sciscidata.records import ids
from sciscidata.records.ids import (
    _plain_forms,
    number_ids,
    openalex_number,
    openalex_numbers,
    original_ids_beside,
    refuse_shared_numbers,
    with_original_ids,
)

MASK = (1 << 64) - 1
P = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)

#: From the sanity checks of xxHash and its Python and Go bindings, seed 0.
PUBLISHED = {
    "": 0xEF46DB3751D8E999,
    "a": 0xD24EC4F1A98C6E5B,
    "as": 0x1C330FB2D66BE179,
    "asd": 0x631C37CE72A97393,
    "asdf": 0x415872F599CEA71E,
    "abc": 0x44BC2CF5AD770999,
    "Call me Ishmael. Some years ago--never mind how long precisely-": 0x02A2E85470D6FD96,
}


def rotate(x: int, n: int) -> int:
    return ((x << n) | (x >> (64 - n))) & MASK


def lane_round(lane: int, word: int) -> int:
    return rotate((lane + word * P[1]) & MASK, 31) * P[0] & MASK


def xxh64(data: bytes) -> int:
    """XXH64 as its specification has it, with seed 0."""
    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
    stripes = len(data) // 32
    if stripes:
        lanes = [(P[0] + P[1]) & MASK, P[1], 0, -P[0] & MASK]
        for i, word in enumerate(words[: stripes * 4]):
            lanes[i % 4] = lane_round(lanes[i % 4], word)
        h = sum(rotate(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            h = ((h ^ lane_round(0, lane)) * P[0] + P[3]) & MASK
    else:
        h = P[4]
    h = (h + len(data)) & MASK
    rest = data[stripes * 32 :]
    while len(rest) >= 8:
        h = (rotate(h ^ lane_round(0, int.from_bytes(rest[:8], "little")), 27) * P[0] + P[3]) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        h = (rotate(h ^ (int.from_bytes(rest[:4], "little") * P[0] & MASK), 23) * P[1] + P[2]) & MASK
        rest = rest[4:]
    for byte in rest:
        h = rotate(h ^ (byte * P[4] & MASK), 11) * P[0] & MASK
    for shift, prime in ((33, P[1]), (29, P[2])):
        h = (h ^ (h >> shift)) * prime & MASK
    return h ^ (h >> 32)


def number(text: str, letter: str = "W") -> int | None:
    if not text:
        return None
    text = text.strip()
    letters = "[SV]" if letter == "S" else letter
    openalex = rf"(?i:(?:https?://(?:api\.)?openalex\.org/(?:works/|sources/|venues/)?)?{letters})0*([0-9]+)/?"
    if found := re.fullmatch(openalex, text, re.ASCII) or re.fullmatch(r"(-?[0-9]+)(?:\.0+)?", text, re.ASCII):
        text = re.sub("^(-?)0+(?=[0-9])", r"\1", found[1])
        if text[0] != "-" and int(text) < 2**62:
            return int(text)
    elif re.match(r"(?i:https?://|dx\.|www\.|doi\.org/|doi:|\s)*10\.[0-9]+/", text, re.ASCII):
        text = (
            re.sub(r"^(?:(?:https?://)?(?:dx\.|www\.)?doi\.org/\s*|doi:\s*)+", "", text.lower()).strip().rstrip("./ ")
        )
    return 2**62 + (xxh64(text.encode()) >> 2)


TEXTS = st.one_of(
    st.text(max_size=80),
    st.integers(-(2**70), 2**70).map(str),
    st.builds(
        "{}{}{}".format, st.sampled_from(["", "W", "S", "https://openalex.org/W", "https://openalex.org/"]),
        st.sampled_from(["", "0", "00"]), st.integers(0, 2**64),
    ),
    st.builds(
        "{}{}{}".format, st.sampled_from(["", " ", "https://DOI.org/", "doi:", "w", "V", "http://api.openalex.org/w"]),
        st.sampled_from(["007", "10.1/A;b", "10.12/é", "7.0", "1.0.0", "-3.00"]), st.sampled_from(["", ".", "/", " "]),
    ),
)  # fmt: skip


@pytest.mark.parametrize(("text", "digest"), PUBLISHED.items())
def test_the_hash_is_the_published_one(text, digest):
    assert xxh64(text.encode()) == digest
    if text:
        assert number_ids(pl.Series([text])).item() == 2**62 + (digest >> 2)


#: Texts that hold one id: no list of several.
ONE = TEXTS.filter(lambda text: text.isprintable() and not re.fullmatch(r"\s*(\[.*\]|\{.*\}|c?\(.*\))\s*", text))


@given(st.lists(ONE, max_size=20), st.sampled_from("WS"))
def test_numbers_are_those_of_the_rule_in_plain_python(texts, letter):
    assert number_ids(pl.Series("id", texts, pl.String), letter).to_list() == [number(text, letter) for text in texts]


_DIGITS = st.text("0123456789", max_size=20)
_ADDRESSES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["https://openalex.org/W", "W", "http://openalex.org/w", ""]),
    _DIGITS,
    st.sampled_from(["", "", "/", "x", " "]),
)


@given(st.lists(st.none() | _ADDRESSES, max_size=20))
def test_a_column_of_addresses_has_the_numbers_of_each(values):
    expected = [openalex_number(value, "W") or -1 for value in values]
    assert openalex_numbers(pl.Series(values, dtype=pl.String), "W").tolist() == expected


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_whole_number_has_the_number_of_its_text(value):
    assert number_ids(pl.Series([value], dtype=pl.Int64)).item() == number(str(value))


@pytest.mark.parametrize("dtype", [pl.UInt8, pl.Int128, pl.UInt64, pl.Float64, pl.Decimal(38, 0), pl.Categorical])
def test_the_type_of_a_column_changes_no_number(dtype):
    values = pl.Series("id", ["7", None, "9"])
    assert number_ids(values.cast(dtype)).to_list() == [7, None, 9]


def test_a_large_unsigned_number_has_the_number_of_its_text():
    assert number_ids(pl.Series([2**64 - 1], dtype=pl.UInt64)).item() == number(str(2**64 - 1))


@pytest.mark.parametrize("values", [[1.5], [2.0**60], [True], [[1]], [float("inf")]])
def test_what_is_no_id_is_refused(values):
    with pytest.raises(SchemaMismatchError, match="'id'"):
        number_ids(pl.Series("id", values))


def test_a_slice_of_a_column_has_the_numbers_of_its_rows():
    whole = pl.Series([f"P{i}" for i in range(100)])
    assert number_ids(whole[40:60]).equals(number_ids(whole)[40:60])


def test_chunks_nulls_over_a_text_and_texts_in_a_row_have_the_numbers_of_single_texts():
    texts = ["10.1000/a.long.enough", "10.1000/b.long.enough", "P1", "", "https://doi.org/10.1000/B.long.enough", "P1"]
    twice = pl.Series([text for text in texts for _ in range(2)])
    hidden = pl.select(pl.when(pl.Series([i % 4 != 1 for i in range(12)])).then(twice)).to_series()
    column = pl.concat([twice, twice[3:9], hidden], rechunk=False)
    assert column.n_chunks() == 3
    assert number_ids(column).to_list() == [None if text is None else number(text) for text in column]


#: Texts that begin as DOIs do, with what their plain form loses, and with what makes lists of them.
DOIS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "doi.org/", "https://", "https://doi.org//"])
    | st.sampled_from(["https://doi.org/", "http://dx.doi.org/", "httpdoi.org/"]),
    st.sampled_from(["10.1/", "10.1234/", "10.12.3/", "10./", "10/", "10.x/"]),
    st.text("aZ1.-/doiDOI?#%&;,| '\"()é", max_size=40),
    st.sampled_from(["", "x", ".", "/", ")", "doi.org/10.1/x"]),
)  # fmt: skip


@given(st.lists(DOIS, max_size=20), st.sampled_from([1, 100]))
def test_dois_have_the_numbers_of_their_plain_forms(texts, n_many):
    column = pl.Series("id", texts, pl.String)
    try:
        plain, _ = _plain_forms(column, "W")
    except SchemaMismatchError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "_MANY", n_many)
        numbers = number_ids(column).to_list()
    assert numbers == [2**62 + (xxh64(text.encode()) >> 2) if text else None for text in plain]


def test_two_rows_of_one_id_are_called_repeated_and_two_ids_of_one_number_by_name():
    with pytest.raises(WorkIdError, match=r"1 id occurs more than once, for example 'P1'"):
        refuse_shared_numbers(pl.DataFrame({"work_id": [5, 5, 6], "original_id": ["P1", "P1", "x"]}), "works")
    with pytest.raises(WorkIdError, match=r"'5' and 'W5' have one number, 5"):
        refuse_shared_numbers(pl.DataFrame({"work_id": [4, 4, 5, 5], "original_id": ["4", "4", "5", "W5"]}), "works")


def test_original_ids_are_joined_to_batches_as_to_the_whole():
    ids = pl.Series("work_id", range(0, 3_000, 3))
    works = pl.DataFrame({"work_id": ids, "original_id": [f"P{i}" for i in ids], "title": "x"}).lazy()
    scores = pl.DataFrame({"work_id": ids, "cd_index": 0.5})[100:900]
    batches = [scores[i : i + 77] for i in range(0, scores.height, 77)]
    assert pl.concat(original_ids_beside(batches, works)).equals(with_original_ids(scores.lazy(), works).collect())
    assert next(original_ids_beside([scores], works.drop("original_id"))) is scores
