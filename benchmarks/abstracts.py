"""Inverted index to text, beside DuckDB, expressions of Polars and a ``json.loads`` loop over the same real rows.

    python benchmarks/abstracts.py [--rows 50000] [--peers PYTHON]

The rows are the abstracts of the works that come with the package. Ours decodes them repeated, the others once; what
they take is scaled up. Every text is compared with that of the loop.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.measure import ONE_THREAD, Row, in_own_process, report, timed, try_process

SQL = """
    SELECT string_agg(word, ' ' ORDER BY place)
    FROM (SELECT row, key AS word, unnest(CAST(value AS INTEGER[])) AS place
          FROM rows, json_each(index) WHERE trim(key) <> '') GROUP BY row ORDER BY row
"""


def decode_by_loop(column: pl.Series) -> list[str | None]:
    """Decode as one would write it first; the value to agree with."""
    texts = []
    for index in column:
        pairs = [(place, word) for word, places in json.loads(index).items() for place in places]
        pairs.sort(key=lambda pair: pair[0])
        texts.append(" ".join(word for _, word in pairs if word.strip()) or None)
    return texts


def decode_by_duckdb(column: pl.Series) -> list[str | None]:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("rows", pl.DataFrame({"index": column}).with_row_index("row").to_arrow())
        return [text for (text,) in connection.execute(SQL).fetchall()]


def decode_by_polars(column: pl.Series) -> pl.Series:
    entry = pl.col("index").str.extract_all(r'"(?:[^"\\]|\\.)*":\[[\d,]*\]')
    word = pl.col("index").str.extract(r'^("(?:[^"\\]|\\.)*"):').str.json_decode(pl.String)
    place = pl.col("index").str.extract(r":\[([\d,]*)\]$").str.split(",")
    entries = pl.DataFrame({"index": column}).with_row_index("row").with_columns(entry).explode("index")
    words = entries.select("row", word=word, place=place).explode("place").cast({"place": pl.Int32})
    words = words.filter(pl.col("word").str.strip_chars() != "").sort("row", "place")
    return words.group_by("row", maintain_order=True).agg(pl.col("word").str.join(" "))["word"]


def decode_by_sciscidata(column: pl.Series) -> pl.Series:
    from sciscidata.records.abstracts import decode_inverted_indexes

    return decode_inverted_indexes(column)


DECODERS = {
    "sciscidata": decode_by_sciscidata,
    "DuckDB": decode_by_duckdb,
    "Polars": decode_by_polars,
    "json.loads": decode_by_loop,
}


def decode(tool: str, file: Path, n: int) -> None:
    """Time one way, and count the texts that are those of the loop."""
    column = pl.read_parquet(file)["index"]
    one, repeats, many = DECODERS[tool], 1, column
    if tool == "sciscidata":
        one(column[:10])  # compiles
        repeats, many = 3, pl.concat([column] * (n // len(column) + 1))[:n]
    cost, texts = timed(lambda: one(many), repeats)
    scaled = {name: taken * n / len(many) for name, taken in cost.items()}
    n_equal = sum(a == b for a, b in zip(texts, decode_by_loop(column), strict=False))
    how = f"{n / scaled['cpu_s']:,.0f} rows a CPU second{'' if n == len(many) else ', time scaled'}"
    report(**scaled, note=f"{how}; {n_equal:,} of {len(column):,} texts equal")


def write_real_indexes(file: Path) -> None:
    import zstandard

    from sciscidata.sources.example.source import WORKS_FILE

    with zstandard.open(WORKS_FILE, "rb") as lines:
        rows = lines.read().splitlines()
    found = [index for row in rows if (index := json.loads(row).get("abstract_inverted_index"))]
    texts = [json.dumps(index, separators=(",", ":"), ensure_ascii=False) for index in found]
    pl.DataFrame({"index": texts}).write_parquet(file)
    report()


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--file", type=Path, help=measure.HIDDEN)
    options = parser.parse_args()
    if options.part == "write":
        return write_real_indexes(options.file)
    if options.part:
        return decode(options.part, options.file, options.rows)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "indexes.parquet"
        in_own_process(__file__, "--part", "write", "--file", str(file))
        for tool in DECODERS:
            for threads in ("1", "2") if tool == "sciscidata" else ("1",):
                python = sys.executable if tool == "sciscidata" else options.peers
                name = f"{tool}, {threads} thread{'s' * (threads > '1')}" if tool == "sciscidata" else tool
                arguments = ("--part", tool, "--rows", str(options.rows), "--file", str(file))
                environment = ONE_THREAD | {"POLARS_MAX_THREADS": threads}
                task = f"{options.rows:,} abstracts to text"
                rows.append(try_process(task, name, __file__, *arguments, python=python, **environment))
    return measure.show(rows, options)


if __name__ == "__main__":
    main()
