"""Write tables in the schema of SciSciNet-v2, of any size, in bounded memory: same seed and size, same rows.

    python benchmarks/make_sciscinet.py FOLDER --works 500000 [--references 10] [--abstract-bytes 2800] [--no-texts]
    python benchmarks/make_sciscinet.py FOLDER --works 500000 --version v1

Seven files, a row group at a time. Ids are scattered, so that no table is sorted by them; abstracts come from a pool of
a few thousand, each about as long as asked for as an inverted index. Citation counts are those of the references;
disruption and atypicality are drawn at random, 0.0 and null where the original has them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

BATCH = 100_000
POOL = 4_096
N_SOURCES = 5_000
FIRST_YEAR, LAST_YEAR = 1970, 2023
FIELD_COLUMNS = (
    *("id", "wikidata", "display_name", "level", "description", "works_count", "cited_by_count"),
    *("image_url", "image_thumbnail_url", "works_api_url", "updated_date", "fieldid"),
)


def work_ids(numbers):
    """Scatter 0, 1, 2 .. over the ids without a collision: an odd factor is a permutation of 32 bits."""
    return 2_000_000_000 + (numbers.astype(np.uint64) * np.uint64(2_654_435_761) % np.uint64(2**32)).astype(np.int64)


def named(letter, numbers):
    return pl.select(pl.lit(letter) + pl.lit(pl.Series(numbers)).cast(pl.String)).to_series()


class Table:
    """One Parquet file, a row group after the other."""

    def __init__(self, folder, name, *, compression="snappy", page_index=False):
        self.path, self.writer = Path(folder) / f"sciscinet_{name}.parquet", None
        # No dictionary: real texts repeat nothing, and the pool must not be stored once.
        self.options = {"compression": compression, "write_page_index": page_index, "use_dictionary": False}

    def write(self, frame):
        """Append a row group."""
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, table.schema, **self.options)
        self.writer.write_table(table, row_group_size=BATCH)

    def close(self):
        """Write the footer."""
        if self.writer is not None:
            self.writer.close()


def batches(n):
    return ((number, np.arange(start, min(start + BATCH, n))) for number, start in enumerate(range(0, n, BATCH)))


def year_of(numbers, n):
    return FIRST_YEAR + (numbers * (LAST_YEAR - FIRST_YEAR + 1) // n)


def references(numbers, n, mean, seed):
    """Draw every work's references among older works, younger ones more often."""
    rng = np.random.Generator(np.random.PCG64(seed))
    degrees = np.minimum(rng.geometric(1 / (mean + 1), len(numbers)) - 1, numbers)
    citing = np.repeat(numbers, degrees)
    cited = citing - 1 - (citing * rng.random(len(citing)) ** 3).astype(np.int64)
    return degrees, citing, np.maximum(cited, 0)


def write_references(folder, n, mean, seed):
    """Write paperrefs; return how many references each work has, and how many citations."""
    n_references, n_citations = np.zeros(n, np.int32), np.zeros(n, np.int32)
    table = Table(folder, "paperrefs")
    for number, numbers in batches(n):
        degrees, citing, cited = references(numbers, n, mean, [seed, 1, number])
        n_references[numbers] = degrees
        n_citations += np.bincount(cited, minlength=n).astype(np.int32)
        year, ref_year = year_of(citing, n), year_of(cited, n)
        table.write(
            pl.DataFrame(
                {
                    "citing_paperid": named("W", work_ids(citing)),
                    "cited_paperid": named("W", work_ids(cited)),
                    "year": year,
                    "ref_year": ref_year,
                    "year_diff": year - ref_year,
                }
            )
        )
    table.close()
    return n_references, n_citations


def write_papers(folder, n, seed, n_references, n_citations):
    table = Table(folder, "papers")
    for number, numbers in batches(n):
        rng = np.random.Generator(np.random.PCG64([seed, 2, number]))
        size = len(numbers)
        ids, years = work_ids(numbers), year_of(numbers, n)
        refs, cites = n_references[numbers], n_citations[numbers]
        scored = (refs > 0) & (cites > 0)
        pairs = refs.astype(np.int64) * (refs - 1) // 2
        z_low = rng.normal(4, 12, size)
        count = {
            name: rng.poisson(mean, size).astype(np.uint32)
            for name, mean in {"patent": 0.2, "newsfeed": 0.05, "nct": 0.02, "nih": 0.1, "nsf": 0.05}.items()
        }
        floats = {name: rng.gamma(2, 1, size) for name in ("WSB_mu", "WSB_sigma", "WSB_Cinf", "SB_B")}
        frame = pl.DataFrame(
            {
                "paperid": named("W", ids),
                "doi": "https://doi.org/10.1234/" + named("s", ids),
                "year": years.astype(np.int64),
                "date": pl.Series(years).cast(pl.String) + "-06-01",
                "doctype": np.where(rng.random(size) < 0.9, "article", "book-chapter").tolist(),
                "cited_by_count": cites.astype(np.int64) + 1,
                "is_retracted": rng.random(size) < 0.0005,
                "reference_count": refs.astype(np.uint32),
                "citation_count": cites.astype(np.uint32),
                **{f"C{k}": (cites * share).astype(np.uint32) for k, share in ((3, 0.3), (5, 0.5), (10, 0.8))},
                "disruption": np.where(scored, np.clip(rng.normal(0, 0.01, size), -1, 1), 0.0),
                "Atyp_Median_Z": z_low + rng.gamma(2, 30, size),
                "Atyp_10pct_Z": z_low,
                "Atyp_Pairs": pairs,
                **floats,
                "SB_T": rng.integers(0, 20, size),
                "team_size": rng.poisson(3, size).astype(np.uint32) + np.uint32(1),
                "institution_count": rng.poisson(2, size).astype(np.uint32),
                **{f"{name}_count": count[name] for name in ("patent", "newsfeed", "nct", "nih", "nsf")},
            }
        )
        no_pairs = pl.col("Atyp_Pairs") == 0
        atypical = ("Atyp_Median_Z", "Atyp_10pct_Z", "Atyp_Pairs")
        table.write(frame.with_columns(pl.when(~no_pairs).then(pl.col(name)).alias(name) for name in atypical))
    table.close()


def write_fields_and_sources(folder, n, seed):
    levels = [0] * 19 + [1] * 284
    fields = {
        "id": [f"https://openalex.org/C{1000 + i}" for i in range(len(levels))],
        "display_name": [f"Field {i:03}" for i in range(len(levels))],
        "level": levels,
        "works_count": list(range(len(levels))),
        "cited_by_count": list(range(len(levels))),
        "fieldid": [f"C{1000 + i}" for i in range(len(levels))],
    }
    text = {name: pl.Series([""] * len(levels)) for name in FIELD_COLUMNS if name not in fields}
    pl.DataFrame(fields | text).select(FIELD_COLUMNS).write_parquet(Path(folder) / "sciscinet_fields.parquet")
    sources = {
        "sourceid": [f"S{1 + i}" for i in range(N_SOURCES)],
        "display_name": [f"Journal of {i}" for i in range(N_SOURCES)],
    }
    pl.DataFrame(sources).write_parquet(Path(folder) / "sciscinet_sources.parquet")
    links, venues = Table(folder, "paperfields"), Table(folder, "papersources")
    for number, numbers in batches(n):
        rng = np.random.Generator(np.random.PCG64([seed, 3, number]))
        ids = named("W", work_ids(numbers))
        repeated = np.repeat(np.arange(len(numbers)), rng.integers(0, 10, len(numbers)))
        links.write(
            pl.DataFrame(
                {
                    "paperid": ids.gather(repeated),
                    "fieldid": named("C", 1000 + rng.integers(0, len(levels), len(repeated))),
                    "score_openalex": rng.random(len(repeated)).round(6),
                }
            )
        )
        published = np.flatnonzero(rng.random(len(numbers)) < 0.8)
        journals = 1 + (N_SOURCES * rng.random(len(published)) ** 2).astype(np.int64)
        venues.write(pl.DataFrame({"paperid": ids.gather(published), "sourceid": named("S", journals)}))
    links.close()
    venues.close()


def abstract_pool(n_bytes, seed):
    """Make inverted indexes of about ``n_bytes``, of words that come as often as words do."""
    rng = np.random.Generator(np.random.PCG64([seed, 4]))
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = ["".join(letters[rng.integers(0, 22, length)]) for length in rng.integers(2, 12, 20_000)]
    pool = []
    for _ in range(POOL):
        length = max(int(n_bytes / 13.3 * rng.uniform(0.6, 1.4)), 5)
        index = {}
        for position, word in enumerate((20_000 * rng.random(length) ** 4).astype(int)):
            index.setdefault(words[word], []).append(position)
        pool.append(json.dumps(index, separators=(",", ":")))
    return pl.Series(pool)


def write_texts(folder, n, seed, n_bytes, **options):
    pool = abstract_pool(n_bytes, seed)
    table = Table(folder, "papertitleabstract", **options)
    for number, numbers in batches(n):
        rng = np.random.Generator(np.random.PCG64([seed, 5, number]))
        ids = work_ids(numbers)
        frame = pl.DataFrame(
            {
                "paperid": named("W", ids),
                "title": "On the measurement of matter " + named("no. ", ids),
                "abstract_inverted_index": pool.gather(rng.integers(0, POOL, len(numbers))),
                "language": np.where(rng.random(len(numbers)) < 0.85, "en", "de").tolist(),
            }
        )
        absent = pl.lit(pl.Series(rng.random(len(numbers)) < 0.15))
        table.write(
            frame.with_columns(
                pl.when(~absent).then("abstract_inverted_index").alias("abstract_inverted_index")
            ).filter(pl.lit(pl.Series(rng.random(len(numbers)) < 0.95)))
        )
    table.close()
    return pool.str.len_bytes().mean()


def make(folder, n, *, mean_references=10, n_bytes=2_800, seed=0, texts=True, **options):
    """Write all tables; ``options`` say how the texts are compressed, and whether their pages have an index."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    pa.set_cpu_count(1)
    n_references, n_citations = write_references(folder, n, mean_references, seed)
    write_papers(folder, n, seed, n_references, n_citations)
    write_fields_and_sources(folder, n, seed)
    return write_texts(folder, n, seed, n_bytes, **options) if texts else None


def write_version_1(folder):
    """Turn the tables of version 2 into those of version 1: tab-separated, numbers for ids, no abstracts."""

    def scan(name):
        return pl.scan_parquet(Path(folder) / f"sciscinet_{name}.parquet")

    def number(name):
        return pl.col(name).str.slice(1).cast(pl.Int64)

    # Whole numbers with a missing one among them are written as pandas writes them: 13.0.
    journals = scan("papersources").select("paperid", number("sourceid").cast(pl.Float64).alias("JournalID"))
    titles = scan("papertitleabstract").select("paperid", pl.col("title").alias("PaperTitle"))
    names = {"doctype": "DocType", "year": "Year", "reference_count": "Reference_Count", "disruption": "Disruption"}
    kept = ["Citation_Count", "C5", "C10", "Atyp_Median_Z", "Atyp_10pct_Z", "Atyp_Pairs"]
    papers = scan("papers").with_columns(
        number("paperid").alias("PaperID"),
        pl.col("doi").str.strip_prefix("https://doi.org/").alias("DOI"),
        pl.col("Atyp_Pairs").cast(pl.Float64),
        # Lin et al. 2023 have no score where there is no reference or no citation, and no 0 either.
        pl.when(pl.col("reference_count") > 0, pl.col("citation_count") > 0).then("disruption").alias("disruption"),
    )
    papers = papers.rename({**names, "citation_count": "Citation_Count"}).join(journals, on="paperid", how="left")
    level = pl.col("level").replace_strict({0: "Top", 1: "Sub"}, return_dtype=pl.String).alias("Field_Type")
    tables = {
        "Papers": papers.select("PaperID", "DOI", *names.values(), "JournalID", *kept),
        "PaperDetails": papers.join(titles, on="paperid").select("PaperID", "DOI", "PaperTitle"),
        "PaperReferences": scan("paperrefs").select(
            number("citing_paperid").alias("Citing_PaperID"), number("cited_paperid").alias("Cited_PaperID")
        ),
        "PaperFields": scan("paperfields").select(
            number("paperid").alias("PaperID"), number("fieldid").alias("FieldID")
        ),
        "Fields": scan("fields").select(
            number("fieldid").alias("FieldID"), pl.col("display_name").alias("Field_Name"), level
        ),
        "Journals": scan("sources").select(
            number("sourceid").alias("JournalID"), pl.col("display_name").alias("Journal_Name")
        ),
    }
    for name, table in tables.items():
        table.sink_csv(Path(folder) / f"SciSciNet_{name}.tsv", separator="\t", quote_style="never")
    for path in Path(folder).glob("sciscinet_*.parquet"):
        path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--works", type=int, default=500_000)
    parser.add_argument("--references", type=float, default=10)
    parser.add_argument("--abstract-bytes", type=int, default=2_800)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-texts", action="store_true")
    parser.add_argument("--text-compression", default="snappy", help="snappy, zstd ..")
    parser.add_argument("--page-index", action="store_true", help="write an index of the pages of the texts")
    parser.add_argument("--version", choices=["v1", "v2"], default="v2")
    options = parser.parse_args()
    mean = make(
        options.folder,
        options.works,
        mean_references=options.references,
        n_bytes=options.abstract_bytes if options.version == "v2" else 100,
        seed=options.seed,
        texts=not options.no_texts,
        compression=options.text_compression,
        page_index=options.page_index,
    )
    if options.version == "v1":
        write_version_1(options.folder)
        for path in sorted(options.folder.glob("*.tsv")):
            print(f"{path.name:<40} {path.stat().st_size / 1e6:>10,.1f} MB")
    for path in sorted(options.folder.glob("*.parquet")):
        print(f"{path.name:<40} {path.stat().st_size / 1e6:>10,.1f} MB  {pq.read_metadata(path).num_rows:>12,} rows")
    if mean is not None:
        print(f"abstracts: {mean:,.0f} bytes as an inverted index")


if __name__ == "__main__":
    main()
