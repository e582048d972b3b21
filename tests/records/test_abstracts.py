"""The kernel that rebuilds abstracts agrees with a plain reading of the JSON, on real records and on odd ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.make_snapshot import export_index
from sciscidata.errors import SchemaMismatchError
from sciscidata.records.abstracts import decode_inverted_index, decode_inverted_indexes
from tests.conftest import example_lines


def reference_text(index: str | None) -> str | None:
    """What an inverted index means, in plain Python."""
    try:
        pairs = json.loads(index or "null", object_pairs_hook=lambda pairs: ("object", pairs))
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, tuple):
        return None
    pairs = pairs[1]
    fields = dict(pairs)
    is_number = isinstance(fields.get("IndexLength"), (int, float)) and fields["IndexLength"] not in (True, False)
    if is_number and isinstance(fields.get("InvertedIndex"), tuple):
        pairs = fields["InvertedIndex"][1]
    words = []
    for word, positions in pairs:
        if not isinstance(positions, list):
            return None
        if not all(type(position) is int and position >= 0 for position in positions):
            return None
        words += [(position, word) for position in positions if not (word == "" or word.isspace())]
    words.sort(key=lambda pair: pair[0])
    return re.sub("[\ud800-\udfff]", "\ufffd", " ".join(word for _, word in words)) or None


def decode(*indexes: str | None) -> list[str | None]:
    return decode_inverted_indexes(pl.Series("index", indexes, dtype=pl.String)).to_list()


ODDITIES = {
    "words stand in the order of their positions": ('{"b":[1,3],"a":[0,2]}', "a b a b"),
    "gaps close up": ('{"a":[3],"b":[9]}', "a b"),
    "positions far beyond the text": ('{"a":[70000000000],"b":[1]}', "b a"),
    "positions beyond 64 bits": ('{"a":[100000000000000000000001],"b":[100000000000000000000000]}', "b a"),
    "positions that 64 bits would wrap to small ones": (
        '{"b":[18446744073709551616],"c":[36893488147419103234],"a":[1]}', "a b c"),
    "two words at one position stay in the order of the file": ('{"z":[0],"a":[0],"m":[1]}', "z a m"),
    "a repeated key counts twice": ('{"a":[0],"b":[1],"a":[2]}', "a b a"),
    "one word at one position twice": ('{"a":[0,0]}', "a a"),
    "empty and blank words go": (r'{"":[0],"a":[1]," \n":[2],"\u00a0\u2003\u3000":[3],"b":[4],"\u001f":[5]}', "a b"),
    "blank words in raw bytes go": ('{"\u00a0":[0],"\u2028":[1],"\u1680":[2],"\u0085":[3],"é":[4]}', "é"),
    "a zero-width space is no whitespace": ('{"\u200b":[0]}', "\u200b"),
    "only blank words": ('{" ":[0],"":[1]}', None),
    "a word without a position": ('{"a":[],"b":[0]}', "b"),
    "no word with a position": ('{"a":[]}', None),
    "an empty index": ("{}", None),
    "an empty index, spaced": (" { } ", None),
    "the JSON null": ("null", None),
    "an empty string": ("", None),
    "the form of 2021": ('{"IndexLength":2,"InvertedIndex":{"b":[1],"a":[0]}}', "a b"),
    "the form of 2021, other order": ('{"InvertedIndex":{"b":[1],"a":[0]},"IndexLength":2}', "a b"),
    "the form of 2021, empty": ('{"IndexLength":0,"InvertedIndex":{}}', None),
    "an abstract about that form": ('{"IndexLength":[1],"InvertedIndex":[0]}', "InvertedIndex IndexLength"),
    "the form of 2021 without its length": ('{"InvertedIndex":{"a":[0]}}', None),
    "escapes": (r'{"\"q\"":[0],"a\\b\/c":[1],"\b\f\n\r\t.":[2],"caf\u00e9":[3]}', '"q" a\\b/c \b\f\n\r\t. café'),
    "a surrogate pair": (r'{"\ud83d\ude00":[0],"x\uD834\uDD1Ey":[1]}', "\U0001f600 x\U0001d11ey"),
    "the first and the last surrogates of either half": (
        r'{"\ud800\udc00":[0],"\udbff\udfff":[1],"\ud800\udfff":[2],"\udbff\udc00":[3]}',
        "\U00010000 \U0010ffff \U000103ff \U0010fc00"),
    "the neighbours of the surrogates": (
        r'{"\ud7ff\udc00":[0],"\ud800\udbff":[1],"\ud800\ue000":[2],"\udc00\udc00":[3],"\udfff":[4],"\ue000":[5]}',
        "\ud7ff\ufffd \ufffd\ufffd \ufffd\ue000 \ufffd\ufffd \ufffd \ue000"),
    "lone surrogates": (r'{"\ud83d":[0],"\ude00x":[1],"\ud83d\u0041":[2],"\ud83d\ud83d\ude00":[3]}',
                        "\ufffd \ufffdx \ufffdA \ufffd\U0001f600"),
    "an escaped NUL": (r'{"a\u0000b":[0]}', "a\0b"),
    "words longer than sixteen bytes": ('{"' + "long" * 9 + '":[1,3],"' + "é" * 33 + '":[0]}',
                                        "é" * 33 + " " + "long" * 9 + " " + "long" * 9),
    "spaces between all tokens": ('\t{ "a" :\r\n[ 0 , 2 ] , "b" : [ 1 ] } ', "a b a"),
    "a text much longer than its JSON": ('{"' + "x" * 300 + '":' + str(list(range(200))) + "}",
                                         " ".join(["x" * 300] * 200)),
}  # fmt: skip

BROKEN = [
    '{"a":[0]', '{"a":[0]}}', '{"a":[0]},', '{"a":[0],}', '{"a":[0,]}', '{"a":[,0]}', '{"a":[0 1]}', '{"a" [0]}',
    '{"a":0}', '{"a":"0"}', '{"a":["0"]}', '{"a":[0.0]}', '{"a":[1e0]}', '{"a":[-1]}', '{"a":[true]}', '{"a":[null]}',
    '{"a":[[0]]}', '{"a":{"0":0}}', '{"a":null}', '{"a":[01]}', '{"a":[00]}', '{a:[0]}', '["a"]', '"a"', "0", "{", "[",
    '{"', '{"a', '{"a"', '{"a":', '{"a":[', '{"a":[0', '{"a\\', '{"a\\":[0]}', '{"a\\x":[0]}', '{"\\u12":[0]}',
    '{"\\u12g4":[0]}', '{"a\tb":[0]}', '{"a\nb":[0]}', '{"a":[NaN]}', '{,}', '{"a":[0]"b":[1]}', "\ufeff{}", "nul",
    '{"IndexLength":true,"InvertedIndex":{"a":[0]}}', "[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize(("index", "text"), ODDITIES.values(), ids=ODDITIES.keys())
def test_an_oddity_decodes_as_written_down(index, text):
    assert reference_text(index) == text
    assert decode(index) == [text]


@pytest.mark.parametrize("index", BROKEN, ids=lambda index: index[:30])
def test_what_is_not_an_index_is_null(index):
    assert reference_text(index) is None
    assert decode(index) == [None]


def test_rows_do_not_leak_into_each_other():
    rows = [index for index, _ in ODDITIES.values()] + BROKEN + [None]
    mixed = [row for pair in zip(rows, reversed(rows), strict=True) for row in pair]
    assert decode(*mixed) == [reference_text(row) for row in mixed]


words = st.text(max_size=40) | st.sampled_from(["the", "", " ", "\u2028", '"', "\\", "\0", "\U0001f600", "\ud800"])
positions = st.lists(st.integers(0, 30) | st.integers(0, 2**70), max_size=4)
indexes = st.dictionaries(words, positions, max_size=12)


@given(indexes, st.booleans(), st.sampled_from([None, 1]))
def test_any_index_agrees_with_the_reference(index, ascii_only, indent):
    if not ascii_only:
        index = {re.sub("[\ud800-\udfff]", "?", word): places for word, places in index.items()}
    text = json.dumps(index, ensure_ascii=ascii_only, indent=indent)
    assert decode(text) == [reference_text(text)]


@given(indexes, st.data())
@example({"a": [0]}, None)
def test_a_damaged_index_agrees_with_the_reference(index, data):
    text = json.dumps(index)
    if data is not None:
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.sampled_from([*'"\\[]{},:0 u\n', "", "null"])) + text[at + gone :]
    assert decode(text, text) == [reference_text(text)] * 2


@pytest.fixture(scope="module")
def real_indexes() -> list[str]:
    return [json.dumps(json.loads(line)["abstract_inverted_index"]) for line in example_lines()]


def test_every_real_abstract_agrees_with_the_reference(real_indexes):
    expected = [reference_text(row) for row in real_indexes]
    assert sum(text is not None for text in expected) > 4000
    assert decode(*real_indexes) == expected


def test_of_an_index_that_openalex_cut_off_the_words_before_the_cut_are_kept():
    words = ["the" if place % 3 else f"word{place}" for place in range(9_000)]
    index: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        index.setdefault(word, []).append(place)
    cut = export_index(index)
    (decoded,) = decode(cut)
    assert " ".join(words).startswith(decoded)
    assert 500 < len(decoded.split()) < len(reference_text(cut).split())  # which strings together what is behind it


def test_the_expression_is_lazy_elementwise_and_the_same_in_both_engines():
    frame = pl.LazyFrame({"index": ['{"a":[0],"b":[1]}', None, "{"] * 4000})
    query = frame.select(text=decode_inverted_index("index"), same=decode_inverted_index(pl.col("index")))
    assert query.collect_schema() == {"text": pl.String, "same": pl.String}
    for engine in ("in-memory", "streaming"):
        got = query.collect(engine=engine)
        assert got["text"].to_list() == ["a b", None, None] * 4000
        assert got["same"].equals(got["text"])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_blocks_and_threads_change_nothing(threads, monkeypatch):
    rows = [index for index, _ in ODDITIES.values()] + BROKEN
    monkeypatch.setattr("sciscidata.records.abstracts._BLOCK_ROWS", 3)
    monkeypatch.setattr(pl, "thread_pool_size", lambda: threads)
    assert decode(*rows) == [reference_text(row) for row in rows]


def test_slices_chunks_and_empty_columns_keep_their_rows_and_name():
    column = pl.Series("index", ["{}", '{"a":[0]}', None, '{"b":[0]}'])
    assert decode_inverted_indexes(column[1:3]).to_list() == ["a", None]
    assert decode_inverted_indexes(column.append(column[:2])).to_list() == [None, "a", None, "b", None, "a"]
    assert decode_inverted_indexes(column[:0]).to_list() == []
    assert decode_inverted_indexes(pl.Series("index", [None, None])).to_list() == [None, None]
    assert decode_inverted_indexes(column).name == "index"


@pytest.mark.parametrize("column", [pl.Series("index", [1, 2]), pl.Series("index", [{"a": [0]}])])
def test_a_column_that_is_not_text_is_named_with_its_dtype_and_the_remedy(column):
    message = r"column 'index' is (Int64|Struct.*), needs String: the JSON text"
    with pytest.raises(SchemaMismatchError, match=message):
        decode_inverted_indexes(column)
    for engine in ("in-memory", "streaming"):
        with pytest.raises(SchemaMismatchError, match=message):
            column.to_frame().lazy().select(decode_inverted_index("index")).collect(engine=engine)


@pytest.mark.skipif(sys.platform == "win32", reason="forbids a page of memory by mprotect")
def test_no_byte_behind_the_rows_is_read():
    """Sixteen bytes are read at once; the page behind the last row is forbidden, so that one too far kills."""
    program = r"""
import ctypes, mmap
import numpy as np
from sciscidata.records._abstract_kernels import decode_rows
page = mmap.PAGESIZE
memory = np.frombuffer(mmap.mmap(-1, 2 * page), np.uint8)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mprotect(ctypes.c_void_p(memory.ctypes.data + page), ctypes.c_size_t(page), 0) == 0
whole = b'{"b":[1],"a":[0]}', b'{"a":[0]}', b'{"a\\n":[0]}'
for row in (*whole, b'{"a', b'{"a\\', b'{"a\\u00', b'{"a":[', b'{"a":[1', b'{'):
    data = memory[page - len(row) : page]
    data[:] = np.frombuffer(row, np.uint8)
    starts, ends = np.array([0]), np.array([len(row)])
    data.flags.writeable = False  # as Arrow's, for which the loop is compiled already
    text, offsets, status = decode_rows(data, starts, ends)
    print(text.tobytes())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["b'a b'", "b'a'", r"b'a\n'", *["b''"] * 6]
