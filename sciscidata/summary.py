"""A release as a person wants to see it: what was read, what each filter removed, the classes, where it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sciscidata.labels import DISRUPTION_LABELS
from sciscidata.release import Release

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
    """Print the summary of a release to standard output."""
    manifest = release.manifest
    console = Console(highlight=False, soft_wrap=True)
    _print_source(console, manifest["source"])
    console.print(_filters(manifest))
    console.print(_classes(manifest))
    if not manifest["novelty"]["available"]:
        console.print("novelty fields: null, not computed by this version")
    console.print(f"\nrelease: {_shown(release.folder)}")
    for name, facts in manifest["files"].items():
        console.print(f"  {name:<14} {facts['bytes']:>12,} bytes  sha256 {facts['sha256']}")
    for name in ("manifest.json", *manifest["extra_files"]):
        console.print(f"  {name}")


def print_verified(release: Release) -> None:
    """Print that a release holds what its manifest says."""
    console = Console(highlight=False, soft_wrap=True)
    rows = {side: facts["rows"] for side, facts in release.manifest["sides"].items()}
    console.print(
        f"verified: {_shown(release.folder)} ({', '.join(f'{side} {n:,}' for side, n in rows.items())} works)"
    )


def _shown(path: Path) -> str:
    """Write a path as short as it can be from where the user stands."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _print_source(console: Console, source: dict[str, Any]) -> None:
    """Print the kind of source and, for files, what could not be read in them."""
    console.print(f"source: {source['kind']}", style="bold")
    facts = source | source.get("config", {})
    for name, value in facts.items():
        if name == "kind" or isinstance(value, (dict, list, float)) or value is None:
            continue
        text = f"{value:,}" if type(value) is int and "year" not in name else str(value)
        console.print(f"  {name.replace('_', ' ')}: {text}")
    for file in source.get("inputs", []):
        console.print(f"  {file['name']}: sha256 {file['sha256']}")
    for line in source.get("first_corrupt_lines", []):
        console.print(f"  skipped: {line}")


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
    drawn = manifest["class_counts"]
    for name, counts in (
        ("scored", manifest["counts"]["scored"]),
        ("eligible", manifest["counts"]["eligible"]),
        ("train", drawn["train"]["disruption_label"]),
        ("test", drawn["test"]["disruption_label"]),
    ):
        numbers = [counts[label] for label in DISRUPTION_LABELS]
        table.add_row(name, *(f"{number:,}" for number in (*numbers, sum(numbers))))
    return table
