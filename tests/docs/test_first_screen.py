"""The first screen is the same in the README and on the site, and its numbers are those that the package computes."""

from __future__ import annotations

import re
import statistics
from typing import Any

import sciscidata as ssd
from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text("utf-8")
HOME = (REPOSITORY / "docs/index.md").read_text("utf-8")
_ROW = re.compile(r"^ *(\d+) +(\d+) +(\d+) +(-?\d\.\d\d) +(\w+) +(\d+) %  (.+) \.\.\.$", re.MULTILINE)


def cells(work: dict[str, Any]) -> list[str]:
    counts = [str(work[name]) for name in ("n_i", "n_j", "n_k")]
    return [*counts, f"{work['cd_index']:.2f}", work["disruption_label"], f"{100 * work['label_confidence']:.0f}"]


def test_readme_and_home_begin_with_the_same_words():
    first, _, _ = README.partition("\n## ")
    here = first.replace("](docs/", "](").replace("](notebooks/", "](../notebooks/")
    assert HOME.startswith(here.rstrip())


def test_rows_and_counts_are_those_of_the_example():
    works, citations, _ = ssd.scan_example()
    labelled = ssd.compute_label_confidence(ssd.compute_labels(ssd.compute_cd_index(works, citations)))
    judged = labelled.filter(ssd.indicators.is_judged()).join(works, on="work_id").collect().rows(named=True)
    shown = _ROW.findall(README)
    assert [label for *_, label, _, _ in shown] == ["disruptive", "disruptive", "consolidating"]
    for *row, title in shown:
        assert row in [cells(work) for work in judged if (work["title"] or "").startswith(title)]
    disruptive = [work for work in judged if work["disruption_label"] == "disruptive"]
    single = sum(work["n_i"] + work["n_j"] == 1 for work in disruptive)
    said = " ".join(README.split())
    assert f"The example has {len(disruptive)} disruptive papers whose five years are over" in said
    assert f"{single} of them have a single citer" in said
    assert f"half of the {len(disruptive)} labels would come back less than 25 times in 100" in said
    assert statistics.median(work["label_confidence"] for work in disruptive) < 0.25
