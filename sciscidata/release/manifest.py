"""The manifest of a release: what the release holds, how it is described, and how it is read back."""

from __future__ import annotations

import platform
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import polars as pl

from sciscidata.disruption.config import first_open_window
from sciscidata.eligibility import FILTERS, name_last_year
from sciscidata.errors import VerificationError
from sciscidata.judged import WINDOW_COMPLETE
from sciscidata.label_thresholds import count_labels
from sciscidata.own_label import OwnLabel, stated_label, vocabularies
from sciscidata.release.read import (
    FORMAT_VERSION,
    REMEDY,
    SCORES_FILE,
    SELF_HASH,
    Release,
    hash_manifest,
    list_data_files,
    list_splits,
    read_settings,
    render_manifest,
    sha256_of,
)
from sciscidata.schemas import MANIFEST, NOVELTY_COLUMNS, has_own_scores
from sciscidata.storage import hash_file

#: What describes a release, and follows from its manifest: the card, Croissant metadata, and how to cite it. A hub or
#: an author may change these, and ``verify`` says so.
CARD, CROISSANT, CITATION = "README.md", "croissant.json", "CITATION.cff"
DOCUMENTS: Final = (CARD, CROISSANT, CITATION)
#: What hubs put beside a release: settings of Git, its history, and notes of a download.
_OF_HUBS: Final = re.compile(r"\.gitattributes|\.git(?:/.*)?|\.cache/huggingface/.*", re.DOTALL)
#: What ``build`` adds to them, each where there is something to draw.
PICTURES: Final = ("comparison.png", "disruption.png", "label.png", "novelty.png", "novelty_by_year.png")

_PACKAGES: Final = ("sciscidata", "polars", "pyarrow", "numpy", "numba", "matplotlib")


def lacks_scores(manifest: Mapping[str, Any]) -> bool:
    """Whether the works of a release came from files without scores, so that it has its own label only."""
    return "undefined_score" in list_left_out(manifest)


def describe_ceiling(manifest: Mapping[str, Any]) -> str | None:
    """Say how high any predictor of the disruption labels can get, if the manifest knows it."""
    ceiling = manifest.get("ceiling")
    if ceiling is None:
        return None
    numbers = f"accuracy {ceiling['accuracy']:.3f}, macro-F1 {ceiling['macro_f1']:.3f}"
    share = round(100 * ceiling["accuracy"])
    return f"Even a perfect predictor would get about {share} % of these disruption labels right ({numbers})."


def describe_given_split(manifest: Mapping[str, Any]) -> str | None:
    """Say how others have split the works (``given_split`` of the source); None: they were drawn here."""
    stated = manifest.get("source", {}).get("given_split")
    if stated is None:
        return None
    return f"The split is that of others: {stated}. Rows are in this order, and a title may lie in both splits."


def describe_judged(manifest: Mapping[str, Any], *, of_these: bool = False) -> str | None:
    """Say how many works with a label are judged, of all and of the release, as far as the manifest knows it.

    ``of_these``: the sentence before has said how many works have a label.
    """
    if has_own_scores(manifest.get("source", {})) or lacks_scores(manifest):
        return None
    counts, filters = manifest.get("counts", {}), manifest.get("eligibility", {})
    there = counts.get("judged")
    if there is None and not (filters.get("complete_window") and filters.get("min_citations")):
        return None  # older releases do not count them; they know where filters leave no others
    splits = list_splits(manifest)
    n = sum(_sum_labels(manifest["class_counts"][split]) for split in splits)
    n_judged = n if there is None else sum(_sum_labels(there[split]) for split in splits if split in there)
    is_endless = (manifest.get("cd") or {}).get("window_years") is None
    over = "" if is_endless else f"their window was over before {name_last_year(manifest, 'their')}, and "
    meaning = f"{over}a work cites them{'' if is_endless else ' in it'}"
    here = f"{'All ' if n_judged == n else f'{n_judged:,} of the '}{n:,} works of this release are judged"
    if there is None:
        return f"{here}: {meaning}."
    every, judged = _sum_labels(counts["scored"]), _sum_labels(there["scored"])
    if not every:
        return None
    of = "these" if of_these else f"{every:,} works with a disruption label"
    return f"{judged:,} of {of} are judged: {meaning}. {here}."


def join_counts(release: Release, works: pl.DataFrame) -> pl.DataFrame:
    """Put ``n_i``, ``n_j`` and ``window_complete`` beside works of a release, as far as it knows them.

    Windows are over as the filters of the build judge it: before the last year that the manifest states. Published
    scores have windows of their own, so nothing is said of them.
    """
    manifest = release.manifest
    if SCORES_FILE not in list_data_files(manifest) or has_own_scores(manifest.get("source", {})):
        return works
    counts = release.scores.select("openalex_id", "n_i", "n_j")
    window, last_year = (manifest.get("cd") or {}).get("window_years"), manifest.get("counts", {}).get("last_year")
    first_open = first_open_window(window, last_year)
    over = [] if last_year is None and window is not None else [pl.lit(value=True).alias(WINDOW_COMPLETE)]
    if first_open is not None:
        over = [(pl.col("publication_year") < first_open).alias(WINDOW_COMPLETE)]
    return works.join(counts, on="openalex_id", how="left", maintain_order="left").with_columns(over)


def describe_coverage(manifest: Mapping[str, Any]) -> str | None:
    """Say how many of the works that are cited novelty can read, if the manifest knows it."""
    if not manifest["novelty"]["available"]:
        return None
    cited = next((check for check in manifest.get("diagnostics", []) if check["name"] == "cited_ids"), None)
    if cited is None or not cited["of"]:
        return None
    known = cited["of"] - cited["n"]
    return (
        f"The works cite {cited['of']:,} different works. The data hold {known:,} of them "
        f"({100 * known / cited['of']:.1f} %), and novelty reads these alone."
    )


def _sum_labels(by_label: Mapping[str, Mapping[str, int]]) -> int:
    return sum(by_label["disruption_label"].values())


def list_left_out(manifest: Mapping[str, Any]) -> list[str]:
    """Name the filters whose columns labelled files lacked, so that they were not applied."""
    return manifest.get("source", {}).get("filters_left_out", [])


def complete_manifest(stated: Mapping[str, Any], examples: Mapping[str, pl.DataFrame], folder: Path) -> dict[str, Any]:
    """Add to the caller's part of a manifest what rows and files say, and seal it. Equal runs give one manifest."""
    whole = {
        **_without_later_options(stated),
        **describe_examples(examples, stated_label(stated)),
        "format_version": FORMAT_VERSION,
        "versions": {package: version(package) for package in _PACKAGES} | {"python": platform.python_version()},
        "files": {name: describe_file(folder / name) for name in list_files(folder)},
    }
    return whole | {SELF_HASH: hash_manifest(whole)}


def _without_later_options(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out options that are off and that older releases knew nothing of, so that a manifest keeps its bytes."""
    kept = dict(stated)
    new = {name: row.options for name, row in FILTERS.items() if row.is_new}
    of_filters = {"where", *(option for options in new.values() for option in options)}
    for part, later in (("split", ("n_dev",)), ("thresholds", ("cells",)), ("eligibility", of_filters)):
        if part in stated:
            kept[part] = {name: value for name, value in stated[part].items() if value or name not in later}
    if "filters" in stated.get("counts", {}):
        chosen = kept.get("eligibility", {})
        off = {name for name, options in new.items() if not chosen.keys() & {*options}}
        filters = {name: n for name, n in stated["counts"]["filters"].items() if n or name not in off}
        kept["counts"] = {**stated["counts"], "filters": filters}
    return kept


def check_stated(manifest: Mapping[str, Any]) -> None:
    """Check the caller's part of a manifest before anything is computed for it."""
    read_settings(manifest)
    render_manifest(manifest)


@contextmanager
def of_a_stranger(folder: Path) -> Generator[None]:
    """Name the manifest of ``folder`` when the block fails at an entry that was made by hand, as was its SHA-256."""
    try:
        yield
    except VerificationError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise VerificationError(f"{folder / MANIFEST} was not written by sciscidata: {error!r}. {REMEDY}") from error


def describe_examples(examples: Mapping[str, pl.DataFrame], label: OwnLabel | None = None) -> dict[str, Any]:
    """Derive the part of a manifest that follows from the rows alone (EXAMPLE, by split), and can be derived again."""
    novel = any(frame[column].null_count() < frame.height for frame in examples.values() for column in NOVELTY_COLUMNS)
    novelty: dict[str, Any] = {"available": novel}
    if not novel:
        novelty["note"] = f"{', '.join(NOVELTY_COLUMNS)} are null in every row."
    return {
        "sides": {
            split: {
                "rows": frame.height,
                "ids_sha256": sha256_of("\n".join(frame["openalex_id"].drop_nulls()).encode()),
            }
            for split, frame in examples.items()
        },
        "class_counts": {
            split: {column: count_labels(frame, column, words) for column, words in vocabularies(label).items()}
            for split, frame in examples.items()
        },
        "novelty": novelty,
    }


def describe_file(path: Path) -> dict[str, Any]:
    """Measure one file as the manifest records it: ``bytes`` and ``sha256``."""
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def list_files(folder: Path) -> list[str]:
    """Name every file and every link under ``folder``, with forward slashes, sorted, without what hubs add."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = sorted(path.relative_to(folder).as_posix() for path in paths)
    return [name for name in names if not _OF_HUBS.fullmatch(name)]
