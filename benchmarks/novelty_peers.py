"""Run one peer on one citing year: pyscisci 0.92 or novelpy 1.4. Started by novelty.py with the peers' interpreter.

Reads FOLDER/works.parquet (work_id, year, venue) and FOLDER/citations.parquet (citing_id, cited_id: all references
of the year's works); prints its seconds as JSON. pyscisci's scores and observed
counts are kept in FOLDER too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.append(str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import report, timed


def pyscisci(works: pd.DataFrame, citations: pd.DataFrame, year: int, folder: Path) -> dict[str, float]:
    from pyscisci.all import novelty_conventionality
    from pyscisci.sparsenetworkutils import dataframe2bipartite, project_bipartite_mat

    pub = works.rename(columns={"work_id": "PublicationId", "year": "Year", "venue": "JournalId"})
    pub2ref = citations.rename(columns={"citing_id": "CitingPublicationId", "cited_id": "CitedPublicationId"})
    np.random.seed(0)
    taken, scores = timed(lambda: novelty_conventionality(pub, pub2ref, n_samples=10))
    scores = scores.astype({"NoveltyScore": float, "ConventionalityScore": float})
    scores.columns = [str(name) for name in scores.columns]
    scores.to_parquet(folder / "pyscisci_scores.parquet")
    # Its matrix of observed counts, made by its own functions; it is not part of what it returns.
    venue_of = pub.set_index("PublicationId")["JournalId"]
    table = pd.DataFrame(
        {"venue": pub2ref["CitedPublicationId"].map(venue_of), "work": pd.factorize(pub2ref["CitingPublicationId"])[0]}
    )
    shape = (int(venue_of.max()) + 1, int(table["work"].max()) + 1)
    counts = project_bipartite_mat(dataframe2bipartite(table, "venue", "work", shape), project_to="row").tocoo()
    pairs = pd.DataFrame({"a": counts.row, "b": counts.col, "n": counts.data.astype("int64")})
    pairs[pairs["a"] < pairs["b"]].to_parquet(folder / "pyscisci_pairs.parquet")
    return taken


def novelpy(works: pd.DataFrame, citations: pd.DataFrame, year: int, folder: Path) -> dict[str, float]:
    """Write its JSON documents and its matrix of the year (not timed), then its indicator with its 20 samples."""
    os.chdir(folder)
    Path("Data/docs/works").mkdir(parents=True, exist_ok=True)
    from novelpy.indicators.Uzzi2013 import Uzzi2013
    from novelpy.utils.cooc_utils import create_cooc

    cited = works.set_index("work_id")
    references = defaultdict(list)
    known = citations[citations["cited_id"].isin(cited.index)]
    places = cited.loc[known["cited_id"]]
    for citing, venue, cited_year in zip(known["citing_id"], places["venue"], places["year"], strict=True):
        references[int(citing)].append({"item": str(venue), "year": int(cited_year)})
    documents = [{"PMID": work, "year": year, "c04_referencelist": row} for work, row in references.items()]
    Path(f"Data/docs/works/{year}.json").write_text(json.dumps(documents))
    variable = {"collection_name": "works", "year_var": "year", "var": "c04_referencelist", "sub_var": "item"}
    create_cooc(**variable, weighted_network=True, self_loop=True).main()
    indicator = Uzzi2013(
        collection_name="works",
        id_variable="PMID",
        year_variable="year",
        variable="c04_referencelist",
        sub_variable="item",
        focal_year=year,
    )
    return timed(indicator.get_indicator)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=("pyscisci", "novelpy"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("year", type=int)
    options = parser.parse_args()
    name, folder, year = options.peer, options.folder, options.year
    works, citations = (pd.read_parquet(folder / f"{part}.parquet") for part in ("works", "citations"))
    with contextlib.redirect_stdout(sys.stderr):
        taken = {"pyscisci": pyscisci, "novelpy": novelpy}[name](works, citations, year, folder)
    report(**taken, note={"pyscisci": "10 shuffles", "novelpy": "20 shuffles"}[name])


if __name__ == "__main__":
    main()
