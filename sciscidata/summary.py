"""A release as a person wants to see it: what was read, what each filter removed, the classes, where it lies."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sciscidata.labels import DISRUPTION_LABELS
from sciscidata.manifest import MANIFEST
from sciscidata.release import Release
from sciscidata.splits import SIDES
from sciscidata.storage import storage_error

_FILTER_NOTES = {
    "retracted": "retracted",
    "work_type": "another work type",
    "language": "another language",
    "no_title": "no title",
    "no_abstract": "no abstract",
    "no_year": "no publication year",
    "year_range": "outside the years asked for",
    "few_references": "fewer than {min_references} references",
    "few_citations": "fewer than {min_citations} citing works inside the window",
    "window_incomplete": "window not over before {last_year}",
    "undefined_score": "CD index undefined",
    "duplicate": "same title or DOI as an older work",
}


def print_release(release: Release) -> None:
    """Print the summary of a release to standard output, as far as its writer has stated what there is to say.

    Raises:
        StorageError: it cannot be written there.
    """
    manifest = release.manifest
    with _standard_output() as console:
        _print_source(console, manifest.get("source", {}))
        if "filters" in manifest.get("counts", {}):
            console.print(_filters(manifest))
        console.print(_classes(manifest))
        if not manifest["novelty"]["available"]:
            console.print("novelty fields: null, not computed by this version")
        console.print(f"\nrelease: {_shown(release.folder)}")
        width = max(map(len, manifest["files"]))
        for name, facts in manifest["files"].items():
            console.print(f"  {name:<{width}} {facts['bytes']:>12,} bytes  sha256 {facts['sha256']}")
        console.print(f"  {MANIFEST:<{width}} {'':>12}        sha256 {manifest['manifest_sha256']} (without this line)")


def print_verified(release: Release) -> None:
    """Print that a release holds what its manifest says.

    Raises:
        StorageError: it cannot be written there.
    """
    rows = ", ".join(f"{side} {facts['rows']:,}" for side, facts in release.manifest["sides"].items())
    with _standard_output() as console:
        console.print(f"verified: {_shown(release.folder)} ({rows} works)")


@contextmanager
def _standard_output() -> Generator[Console]:
    """Print what records and paths hold as it is, not as markup."""
    try:
        yield Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        sys.stdout.flush()
    except OSError as error:
        # Python tries once more at its end, and would then exit with a status of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise storage_error(error, Path("standard output")) from error


def _shown(path: Path) -> str:
    """Write a path as short as it can be from where the user stands."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _print_source(console: Console, source: dict[str, Any]) -> None:
    """Print the kind of source and, for files, what could not be read in them."""
    console.print(f"source: {source.get('kind', 'not stated')}", style="bold")
    facts = source | source.get("config", {})
    for name, value in facts.items():
        if name == "kind" or isinstance(value, (dict, list, float)) or value is None:
            continue
        text = f"{value:,}" if type(value) is int and "year" not in name else str(value)
        console.print(f"  {name.replace('_', ' ')}: {text}")
    for file in source.get("inputs", []):
        console.print(f"  {file['name']}: sha256 {file['sha256']}")
    for line in source.get("first_corrupt_lines", []):
        console.print(f"  skipped: {line['file']} line {line['line']}: {line['reason']}")


def _filters(manifest: dict[str, Any]) -> Table:
    """Tabulate what each filter removed; filters that removed nothing are left out."""
    counts: dict[str, int] = manifest["counts"]["filters"]
    values = manifest["eligibility"] | {"last_year": manifest["counts"]["last_year"]}
    table = Table(title="which works may be drawn", title_justify="left", box=None)
    table.add_column("works")
    table.add_column("number", justify="right")
    table.add_row("read", f"{counts['works']:,}")
    for name, note in _FILTER_NOTES.items():
        if counts[name]:
            table.add_row(f"  removed: {note.format_map(values)}", f"-{counts[name]:,}")
    table.add_row("eligible", f"{counts['eligible']:,}")
    return table


def _classes(manifest: dict[str, Any]) -> Table:
    """Tabulate the disruption classes, from all scored works to the two sides."""
    table = Table(title="disruption classes", title_justify="left", box=None)
    table.add_column("works")
    for label in (*DISRUPTION_LABELS, "all"):
        table.add_column(label, justify="right")
    counts = manifest.get("counts", {})
    stages = {name: counts[name] for name in ("scored", "eligible") if name in counts}
    drawn = {side: manifest["class_counts"][side]["disruption_label"] for side in SIDES}
    for name, found in (stages | drawn).items():
        numbers = [found[label] for label in DISRUPTION_LABELS]
        table.add_row(name, *(f"{number:,}" for number in (*numbers, sum(numbers))))
    return table
