"""Look at the second test, once: ``second.py PAPERS SLICES OUT``.

What holds on the first test was chosen there, so a second one has to confirm it. Committed before anybody looked:

- Papers: ``second`` of ``slices.py``. All of them were for training. One look was taken earlier, of words only:
  ``deciles.py`` judged words by five folds of all titles.
- Rows: ROWS, in this order, each with columns as ``at_publication.py`` has them.
- Strengths: the one of ``baselines.STRENGTHS`` that is right most often on dev, the smallest if several are.
- Main result: the accuracy that words add to all columns, and that all columns have over words, paired by paper.
- Intervals: 95 %, from 2,000 draws of the test papers.

OUT is JSON: ``results/second.json``, with a label and the answers for each test paper, and no text.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from at_publication import ALL, WITH_WORDS, judge, make_inputs, read_pool, read_slice
from scipy.sparse import csr_matrix
from slices import LABELS, run

#: What each row sees.
ROWS = {
    "majority": "the shares of labels",
    "words": "title and abstract",
    "field and year": "field and year",
    "references": "field, year, references and their citations by the year before",
    ALL: "the same, earlier works that share references, and the references' CD index",
    WITH_WORDS: "all of these",
}


def main(papers: Path, slices: Path, out: Path) -> None:
    drawn = read_slice(read_pool(papers, slices), slices / "second.parquet")
    inputs = make_inputs(drawn)
    inputs["majority"] = csr_matrix((drawn.own.height, 1))  # a column without anything: the shares of labels are left
    is_test = drawn.sides["test"]
    ids = "\n".join(map(str, drawn.own.filter(is_test)["work_id"]))
    ran = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    found: dict[str, Any] = {
        "papers": {side: int(of.sum()) for side, of in drawn.sides.items()},
        "labels": LABELS[:2],
        "commit": ran.stdout.strip(),
        "sha256_of_work_ids": hashlib.sha256(ids.encode()).hexdigest(),
        "test": drawn.gold[is_test].tolist(),
        "field": drawn.own.filter(is_test)["primary_field"].to_list(),
        "rows": [],
    }
    bases = ("words", ALL)
    for row in judge({key: inputs[key] for key in ROWS}, drawn, bases):
        chance = np.round(row.pop("chances")[:, 0], 4)
        row |= {"saw": ROWS[row["set"]], "said": row["said"].tolist(), "chance_disruptive": chance.tolist()}
        found["rows"].append(row)
        print({key: value for key, value in row.items() if key not in ("said", "chance_disruptive")}, flush=True)
    out.write_text(json.dumps(found) + "\n", "utf-8")


if __name__ == "__main__":
    run(main, __doc__, "papers", "slices", "out")
