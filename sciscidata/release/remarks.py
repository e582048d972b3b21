"""What to know before a release is used: each remark in words of frequency, and apart from it what to do."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from sciscidata.eligibility import list_removed
from sciscidata.intervals import wilson_interval
from sciscidata.own_label import stated_label
from sciscidata.records.last_year_of_data import remark_on_later_works
from sciscidata.release.read import list_splits
from sciscidata.sampling.manifest_entries import find_one_sided, remark_on_novelty
from sciscidata.terminal.messages import printable
from sciscidata.terminal.shares import percent

_MOST_SEEN: Final = 0.5  # of references that novelty sees, and a remark says so
_PARTS: Final = ("corrupt", "malformed_references", "duplicate_ids")


class Remark(NamedTuple):
    """What to know of a release, and what to do about it: that names options of Python, as errors do.

    ``is_warning``: whether a build warns of it. What was known before works were drawn was told then.
    """

    text: str
    remedy: str = ""
    is_warning: bool = True


@cache
def read_texts() -> dict[str, Any]:
    """Read what the documents of a release say, whatever its works are."""
    return tomllib.loads(Path(__file__).with_name("documents.toml").read_text("utf-8"))


def list_remarks(manifest: Mapping[str, Any], source: str) -> list[Remark]:
    """List what to know of a release by its manifest: faults of the data first, then labels and novelty.

    ``source`` is the name of its source.
    """
    counts, said = manifest.get("counts", {}), read_texts()["checks"]
    remarks: list[Remark] = []
    if manifest.get("eligibility", {}).get("last_year") is None:
        for text in remark_on_later_works(counts.get("later_works"), counts.get("last_year")):
            fact, _, remedy = text.partition(" If the dates are right, ")
            remarks.append(Remark(fact, f"If the dates are right, {remedy}", is_warning=False))
    checks = {check["name"]: check for check in manifest.get("diagnostics", []) if check["level"] == "warning"}
    checks.pop("label_confidence", None)
    coverage = _remark_on_coverage(manifest, is_warning=checks.pop("cited_ids", None) is not None)
    for name, check in checks.items():
        fact, colon, why = check["text"].partition(": ")
        own = not colon or "not left out" in why  # the check says more than its row
        row = None if own else said.get("swapped" if "swapped" in why else name)
        remarks.append(Remark(f"{fact}. {row['means']}", row["remedy"]) if row else Remark(check["text"]))
    remarks += remark_on_labels(manifest) + coverage
    texts = remark_on_novelty(manifest.get("atypicality"), manifest["thresholds"].get("novelty_rule"), source)
    return remarks + [Remark(text) for text in texts]


def list_one_sided(manifest: Mapping[str, Any]) -> list[str]:
    """Say which filters removed almost only works of one class."""
    counts, said = manifest.get("counts", {}), read_texts()["one_sided"]
    notes = {name: note for name, note, _ in list_removed(manifest)} if "filters" in counts else {}
    return [
        said["text"].format(note=notes.get(one.name, one.name), found=one.describe())
        + said["uncited"] * (one.name == "few_citations" and one.label == "neutral")
        for one in find_one_sided(counts)
    ]


def find_unsure(text: str) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Read what the check of label confidence found, by label: of 100 how many come back, and how many are sure of all.

    Example:
        >>> find_unsure("labels that may change if works are cited anew, by mean confidence: neutral 0.10 "
        ...     "(EligibilityConfig.min_label_confidence=0.67 would remove about 60 of 63 neutral works)")
        ({'neutral': 10}, {'neutral': (3, 63)})
    """
    means, _, costs = text.partition(" (")
    back = {label: round(100 * float(mean)) for label, mean in re.findall(r"(\w+) (\d\.\d+)", means)}
    n = [
        (label, *(int(one.replace(",", "")) for one in of))
        for *of, label in re.findall(r"([\d,]+) of ([\d,]+) (\w+)", costs)
    ]
    return back, {label: (of - lost, of) for label, lost, of in n}


def remark_on_labels(manifest: Mapping[str, Any]) -> list[Remark]:
    """Say how many labels come back, how high any model gets, and what is left of sure ones."""
    checks = [one for one in manifest.get("diagnostics", []) if one["name"] == "label_confidence"]
    unsure = next((check["text"] for check in checks if check["level"] == "warning"), "")
    back, left = find_unsure(unsure)
    lines, remedy = list[str](), ""
    if back:
        (label, n), *others = back.items()
        more = [f"{n} of 100 {label} ones {label}" for label, n in others]
        again = ", and ".join([f"{n} of 100 {label} works would be {label} again", *more])
        of = unsure.partition(" alone: ")
        alone = f" in {of[0].removeprefix('of ')}" if of[1] else ""
        lines.append(f"Labels are unsure{alone}. Cited anew, {again}.")
        kept = " and ".join(f"{n:,} of {of:,} {label}" for label, (n, of) in left.items())
        remedy = f"Surer labels: EligibilityConfig.min_label_confidence=0.67 leaves about {kept} works."
    lines += describe_limits(manifest)
    return [Remark(" ".join(lines), remedy, is_warning=bool(back))] if lines else []


class Limits(NamedTuple):
    """What a model can reach: shares of right answers, on how many works, and what half of an interval spans."""

    guess: float
    best: float | None
    n: int
    half: float
    noun: str
    kind: str

    @property
    def is_small(self) -> bool:
        """Whether an interval is as wide as the way from a guess to the best, so that no two models differ."""
        return self.best is not None and 2 * self.half >= self.best - self.guess


def find_limits(manifest: Mapping[str, Any]) -> Limits | None:
    """Find what a model can reach on the works that judge it: the test works, or all of a release without any."""
    label = stated_label(manifest)
    splits = list_splits(manifest) if "sides" in manifest else ()
    column, balance = "disruption_label", str(manifest["split"].get("balance"))
    if label is not None and (balance.startswith("label") or "ceiling" not in manifest):
        column = label.name
    elif balance.startswith("novelty"):
        column = "novelty_label"
    judged = ["test"] if any(manifest["class_counts"][s][column].values() for s in splits if s == "test") else splits
    by_class = [manifest["class_counts"][split][column].values() for split in judged]
    sums = [sum(of) for of in zip(*by_class, strict=True)]
    if not (n := sum(sums)):
        return None
    low, high = wilson_interval(0.5, n)
    best = manifest["ceiling"]["accuracy"] if column == "disruption_label" and "ceiling" in manifest else None
    noun = "test works" if judged == ["test"] else "works"
    kind = column.removesuffix("_label").replace("_", " ")
    return Limits(max(sums) / n, best, n, float(high - low) / 2, noun, kind)


def describe_limits(manifest: Mapping[str, Any]) -> list[str]:
    """Say how high a guess gets on a release, the best model if that is known, and how sure a result is."""
    limits = find_limits(manifest)
    if limits is None:
        return []
    guess = percent(limits.guess)
    text = f"Guessing gets {guess} of the {limits.kind} labels right."
    if limits.best is not None:
        text = f"The best possible model gets {percent(limits.best)} right here; guessing gets {guess}."
    return [text, f"With {limits.n:,} {limits.noun}, a result is known within {100 * limits.half:.0f} points."]


def is_demonstration(manifest: Mapping[str, Any]) -> bool:
    """Whether the works are of the package: what they lack is known, and no mistake of who builds."""
    return manifest.get("source", {}).get("kind") in read_texts()["demonstrations"]["kinds"]


def _remark_on_coverage(manifest: Mapping[str, Any], *, is_warning: bool) -> list[Remark]:
    """Say how many references novelty sees, where they are few."""
    checks = {check["name"]: check for check in manifest.get("diagnostics", [])}
    if not manifest.get("atypicality") or not {"references_with_venue", "merged"} <= checks.keys():
        return []
    seen, of = checks["references_with_venue"]["n"], checks["references_with_venue"]["of"]
    total = of + checks["merged"]["of"]
    if not total or (seen > _MOST_SEEN * total and not is_warning):
        return []
    said, share = read_texts()["coverage"], round(100 * seen / total)
    of_100 = share or "fewer than 1"
    return [
        Remark(
            said["text"].format(of_100=of_100, seen=seen, total=total),
            said["by_design" if is_demonstration(manifest) else "remedy"],
            is_warning,
        )
    ]


def list_skipped(source: Mapping[str, Any]) -> list[str]:
    """Say which parts of the input could not be read, and were left out."""
    found = [f"{source[name]:,} {name.replace('_', ' ')}" for name in _PARTS if source.get(name)]
    lines = [f"The input had {', '.join(found)}: these were left out."] if found else []
    return lines + [
        f"skipped: {line['file']} line {line['line']}: {printable(line['reason'])}"
        for line in source.get("first_corrupt_lines", [])
    ]
