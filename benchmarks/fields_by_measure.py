"""Four measures by field, each of all works that have it and of judged works alone.

python benchmarks/fields_by_measure.py PAPERS     the folder has works.parquet and citations.parquet

Prints the table of benchmarks/notes/disruption.md, and writes benchmarks/results/fields_by_measure.json. No text is
read. A field needs ENOUGH judged works with each measure.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks.label_confidence import read_papers
from sciscidata.indicators import is_judged

OUT = Path(__file__).resolve().parent / "results" / "fields_by_measure.json"
ENOUGH = 200
#: What a cell shows: a name, and the expression whose mean it is.
MEASURES = {
    "CD index: share disruptive": pl.col("cd_index") >= ssd.LabelThresholds().disruptive_min,
    "atypicality (Uzzi): share with tail novelty": pl.col("z_p10") < 0,
    "new pairs (Wang): share with one": pl.col("n_new_pairs") > 0,
    "commonness (Lee): mean novelty": pl.col("commonness_novelty"),
}


def measure_fields(works: pl.LazyFrame, citations: pl.LazyFrame) -> dict[str, Any]:
    """Return for each field and measure the mean and the number of works, of all works and of judged ones."""
    scores = ssd.compute_cd_index(works, citations)
    for compute in (ssd.compute_atypicality, ssd.compute_wang_novelty, ssd.compute_commonness):
        scores = scores.join(compute(works, citations), on="work_id", suffix=compute.__name__)
    scores = scores.join(works.select("work_id", "primary_field"), on="work_id").collect()
    found: dict[str, Any] = {}
    for (field,), of in scores.group_by("primary_field"):
        cells = {}
        for name, value in MEASURES.items():
            of_all, judged = (
                rows.select(value.alias("value"))["value"].drop_nulls() for rows in (of, of.filter(is_judged()))
            )
            cells[name] = {
                "all": {"works": len(of_all), "mean": round(float(of_all.mean()), 4)},
                "judged": {"works": len(judged), "mean": round(float(judged.mean()), 4)},
            }
        found[str(field)] = cells
    return dict(sorted(found.items(), key=lambda cell: -cell[1]["CD index: share disruptive"]["all"]["works"]))


def show(found: dict[str, Any]) -> None:
    """Print the table, and the fields that have too few works for it."""
    few = {field for field, cells in found.items() if any(cell["judged"]["works"] < ENOUGH for cell in cells.values())}
    fields = [field for field in found if field not in few]
    print(f"| measure, of | {' | '.join(fields)} |\n|---|{'---|' * len(fields)}")
    for name in MEASURES:
        for of in ("all", "judged"):
            cells = [found[field][name][of] for field in fields]
            form = "{:.1%}" if "share" in name else "{:.2f}"
            row = " | ".join(f"{form.format(cell['mean'])} ({cell['works']:,})" for cell in cells)
            print(f"| {name if of == 'all' else ''}, {of} | {row} |")
    print(f"too few works: {', '.join(sorted(few)) or 'no field'}")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", type=Path, help="folder with works.parquet and citations.parquet")
    papers = parser.parse_args().papers
    logging.basicConfig(level=logging.ERROR)
    found = measure_fields(*read_papers(papers))
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    show(found)


if __name__ == "__main__":
    main()
