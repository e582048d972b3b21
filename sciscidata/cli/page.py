"""``sciscidata describe``: print what lies at a path, and show it on one page of HTML that needs no other file."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl
from rich.table import Table

from sciscidata import __version__
from sciscidata._support.quantiles import counted_quantiles
from sciscidata.cli.summary import (
    print_path,
    remarks_by_flags,
    shown,
    standard_output,
    tabulate_classes,
    tabulate_filters,
)
from sciscidata.corpus.folder import scan_corpus
from sciscidata.corpus.scores import read_score_facts
from sciscidata.errors import InputNotFoundError, ReleaseExistsError
from sciscidata.graph.graph import read_graph
from sciscidata.label_thresholds import VOCABULARIES, compute_disruption_labels
from sciscidata.novelty.background import read_background
from sciscidata.own_label import stated_label
from sciscidata.plots import plot_by_field, plot_by_year, plot_cd_sweep, plot_disruption, plot_null_cd_index, plot_works
from sciscidata.plots.figure import name_data
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.release.export import LINES, read_labelled
from sciscidata.release.manifest import PICTURES, lacks_scores
from sciscidata.release.release import read_release
from sciscidata.release.verify import kind_of
from sciscidata.schemas import EXAMPLE
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.storage import atomic_file, real_path
from sciscidata.terminal.messages import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GENERATOR: Final = "sciscidata describe"
_HEAD_BYTES: Final = 2_048  # within which a page says what has made it
_N_EXAMPLES: Final = 20
_MOST_LETTERS: Final = 3_000  # of an abstract
_MOST_FIELDS: Final = 30
_SHARES: Final = {0.0: "minimum", 0.1: "p10", 0.5: "median", 0.9: "p90", 1.0: "maximum"}
_NUMBERS: Final = {
    "publication_year": "year of publication",
    "cited_by_count": "citations",
    "cd_index": "CD index",
    "novelty_score": "novelty score",
    "conventionality_score": "conventionality score",
}
_DPI: Final = 220
_CHUNK_BYTES: Final = 64 << 20
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #16181d; --soft: #545a66; --line: #d5d9e0; --pale: #f3f5f8; --ground: #fff;
  --warn: #8a3b00; --disruptive: #b34700; --consolidating: #00609a; --neutral: #5c5c5c; --novel: #006b4e;
  --conventional: #8d3a6c; --balanced: #5c5c5c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaee; --soft: #a9b0bc; --line: #3a404b; --pale: #21252c; --ground: #15181d; --warn: #ffb37a;
    --disruptive: #ff9a57; --consolidating: #6cc3ff; --neutral: #bcbcbc; --novel: #4fd3ab; --conventional: #e9a3cb;
    --balanced: #bcbcbc; }
}
* { box-sizing: border-box; }
html { text-size-adjust: 100%; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem 1rem 4rem; color: var(--ink); background: var(--ground);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 0 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .2rem; }
section { border-top: 1px solid var(--line); margin-top: 1.6rem; padding-top: 1rem; }
p, li { max-width: 46rem; }
.soft { color: var(--soft); }
.warning { color: var(--warn); font-weight: 600; }
.scroll { overflow-x: auto; margin: .4rem 0 1rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; font-weight: 600; padding-bottom: .2rem; white-space: nowrap; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
.number { text-align: right; white-space: nowrap; }
code { font-size: .8rem; }
figure { margin: 0; }
figcaption { color: var(--soft); font-size: .85rem; margin-top: .3rem; }
img { display: block; background: #fff; border: 1px solid var(--line); border-radius: 4px; padding: 6px; height: auto; }
.pictures { columns: 20.5rem; column-gap: 1.2rem; }
.pictures figure { break-inside: avoid; padding-bottom: 1.2rem; }
.pictures img { width: 100%; max-width: 24rem; }
.wide { overflow-x: auto; margin-bottom: 1rem; }
.wide img { width: 100%; min-width: 40rem; max-width: 60rem; }
article { border-left: 4px solid var(--line); padding: .1rem 0 .1rem .8rem; margin: 0 0 1.1rem; }
article p { margin: .15rem 0; }
summary { cursor: pointer; color: var(--soft); }
.scroll:focus-visible, .wide:focus-visible, summary:focus-visible { outline: 2px solid var(--consolidating); }
"""


class _Page(NamedTuple):
    """What a page says: its title, the line below it, and HTML by heading."""

    title: str
    lead: str
    sections: dict[str, str]


def describe_path(path: Path, *, html: Path | None = None, overwrite: bool = False) -> None:
    """Print what a release, corpus, graph, export, file of scores or background holds, and write a page about it.

    Args:
        path: where it lies.
        html: file of HTML to write: counts, quantiles, fields, pictures and twenty works of a release, an export or a
            corpus; tables of anything else. None: no page.
        overwrite: replace a file that is no page of this command.

    Raises:
        InputNotFoundError: there is nothing to describe, or a folder of the cache.
        ReleaseExistsError: before anything is read, if ``html`` may not be replaced.
        SciSciDataError: as reading it raises.
    """
    if html is None:
        print_path(path)
        return
    _check_target(html, overwrite=overwrite)
    kind = kind_of(path)
    make = _PAGES.get(kind)
    if make is None:
        msg = f"{path} is a folder of the cache, of which there is no page. Name what was made from it, a release."
        raise InputNotFoundError(msg)
    print_path(path)
    content = _render(make(path)).encode()
    with atomic_file(html, recheck=lambda: _check_target(html, overwrite=overwrite)) as new:
        new.write_bytes(content)
    with standard_output() as console:
        console.print(f"page: {shown(html)} ({len(content):,} bytes)")


def _check_target(html: Path, *, overwrite: bool) -> None:
    target = real_path(html)
    if target.is_dir():
        msg = f"{html} is a folder. Name a file to write, for example {html / 'page.html'}."
        raise ReleaseExistsError(msg)
    if not target.exists() or overwrite:
        return
    is_ours = False
    if target.is_file():
        with target.open("rb") as file:
            is_ours = f'content="{_GENERATOR}'.encode() in file.read(_HEAD_BYTES)
    if not is_ours:
        msg = (
            f"{html} already exists, and is no page of `describe`. Choose another file, or replace it: overwrite=True."
        )
        raise ReleaseExistsError(msg)


# ---------- What there is to say of each kind.


def _describe_release(path: Path) -> _Page:
    release = read_release(path)
    manifest = release.manifest
    frames: dict[str, pl.DataFrame] = {split: getattr(release, split) for split in release.splits}
    works = pl.concat(frame.with_columns(split=pl.lit(split)) for split, frame in frames.items())
    tables = [] if lacks_scores(manifest) else [tabulate_classes(manifest, "disruption_label")]
    if manifest["novelty"]["available"]:
        tables.append(tabulate_classes(manifest, "novelty_label"))
    label = stated_label(manifest)
    if label is not None:
        tables.append(tabulate_classes(manifest, label.name))
    if "filters" in manifest.get("counts", {}):
        tables.insert(0, tabulate_filters(manifest))
    remarks = "".join(f'<p class="warning">{_text(remark)}</p>' for remark in remarks_by_flags(manifest))
    stored = [_show_stored((path / name).read_bytes(), name) for name in PICTURES if name in manifest["files"]]
    # The same number of each class first: the order within a class is that of the draw.
    column = label.name if label is not None and manifest["split"].get("balance") == "label" else "disruption_label"
    rank = pl.int_range(pl.len()).over(column).alias("rank")
    examples = works.with_columns(rank).sort("rank", maintain_order=True)
    files = [(name, f"{facts['bytes']:,}", facts["sha256"]) for name, facts in manifest["files"].items()]
    *first, last = [f"{frame.height:,} {split}" for split, frame in frames.items()]
    sizes = f"{', '.join(first)} and {last} works"
    return _Page(
        f"Release {path.resolve().name}",
        f"{sizes}, drawn from {name_data(release) or 'a source that the manifest does not name'}.",
        {
            "Counts": remarks + "".join(map(_table_of, tables)),
            "Years, citations and scores": _quantiles(works.lazy()),
            "Fields": _fields(works.lazy(), "split"),
            "Pictures": "".join(stored) + _pictures([plot_works(works, width="one", title="")]),
            f"{min(_N_EXAMPLES, works.height)} works": _examples(examples),
            "Source": _source(manifest.get("source", {})),
            "Files": _table(("file", "bytes", "SHA-256"), files, numbers=(1,), code=(2,)),
        },
    )


def _describe_export(path: Path) -> _Page:
    report = read_labelled(path)
    works = _scan_lines(path / LINES)
    classes = [
        _table(("label", "works"), [(label, f"{n:,}") for label, n in counts.items()], numbers=(1,), title=column)
        for column, counts in report["classes"].items()
    ]
    looks: dict[str, Any] = {"width": "one", "title": ""}
    figures = [plot_works(works, **looks), plot_by_year(works, **looks), plot_by_field(works, score="", **looks)]
    derived = compute_disruption_labels(works.rename({"disruption_label": "stated"}))
    differs = pl.col("disruption_label").ne_missing(pl.col("stated")).any()
    if not derived.select(differs).collect(engine="streaming").item():  # else the bands would be of other thresholds
        figures.insert(1, plot_disruption(works, **looks))
    return _Page(
        f"Labelled works {path.resolve().name}",
        f"{report['rows']:,} works, from {name_data(report['source']) or 'a source that the report does not name'}.",
        {
            "Counts": "".join(classes),
            "Years, citations and scores": _quantiles(works),
            "Fields": _fields(works, "disruption_label"),
            "Pictures": _pictures(figures),
            f"{_N_EXAMPLES} works": _examples(works.head(_N_EXAMPLES).collect()),
            "Source": _source(report["source"]),
        },
    )


def _scan_lines(path: Path) -> pl.LazyFrame:
    def read(columns: list[str]) -> Iterator[pl.DataFrame]:
        with path.open("rb") as file:
            while lines := file.readlines(_CHUNK_BYTES):
                yield pl.read_ndjson(io.BytesIO(b"".join(lines)), schema=EXAMPLE).select(columns)

    return scan_batches(read, EXAMPLE, "labelled works")


def _describe_corpus(path: Path) -> _Page:
    works, _, provenance = scan_corpus(path)
    counts = {name: provenance[name] for name in ("works", "citations") if isinstance(provenance.get(name), int)}
    own = ORIGINAL_ID in works.collect_schema()
    shown_id = pl.col(ORIGINAL_ID).cast(pl.String) if own else pl.format("W{}", "work_id")
    first = works.head(_N_EXAMPLES).with_columns(openalex_id=shown_id).collect()
    return _Page(
        f"Corpus {path.resolve().name}",
        f"{', '.join(f'{n:,} {name}' for name, n in counts.items())}, from {name_data(provenance)}.",
        {
            "Years and citations": _quantiles(works),
            "Fields": _fields(works, None),
            "Pictures": _pictures([plot_works(works, width="one", title="")]),
            f"The first {first.height} works": _examples(first),
            "Source": _source(provenance),
        },
    )


def _describe_graph(path: Path) -> _Page:
    graph = read_graph(path)
    by_year = [
        (str(year), f"{n:,}", f"{references:,}", f"{citers:,}")
        for year, n, references, citers in zip(
            graph.years.tolist(),
            np.diff(graph.year_offsets).tolist(),
            np.diff(graph.ref_offsets[graph.year_offsets]).tolist(),
            np.diff(graph.citer_offsets[graph.year_offsets]).tolist(),
            strict=True,
        )
    ]
    counts = {
        "works": graph.n_known,
        "works with a year": graph.n_dated,
        "works known only as references": graph.n_works - graph.n_known,
        "distinct citations": graph.n_citations,
    }
    return _Page(
        f"Citation graph {path.resolve().name}",
        f"{graph.n_known:,} works and {graph.n_citations:,} citations.",
        {
            "Counts": _table(("", "number"), [(name, f"{n:,}") for name, n in counts.items()], numbers=(1,)),
            "Years": _table(("year", "works", "references", "citations of them"), by_year, numbers=(1, 2, 3)),
        },
    )


def _describe_scores(path: Path) -> _Page:
    facts = read_score_facts(path)
    rows = pl.scan_parquet(path, glob=False)
    what = "Atypicality" if facts["stage"] == "novelty" else "CD index"
    plot = {"cd": plot_disruption, "null_cd": plot_null_cd_index, "cd_sweep": plot_cd_sweep}.get(facts["stage"])
    figures = [plot(rows, width="one", title="")] if plot else []
    source = {"kind": facts["source"], "corpus_sha256": facts["corpus_sha256"], **facts["config"]}
    return _Page(
        f"{what} in {path.name}",
        f"{facts['rows']:,} works.",
        {
            "Scores": _quantiles(rows),
            **({"Pictures": _pictures(figures)} if figures else {}),
            "Source": _source(source),
        },
    )


def _describe_background(path: Path) -> _Page:
    table = read_background(path)
    rows = [(f"{year}", *(f"{n:,}" for n in counts)) for year, *counts in table.counts.rows()]
    return _Page(
        f"Background {path.name}",
        f"The null model of novelty of {table.counts.height:,} years.",
        {
            "Years": _table(("year", *table.counts.columns[1:]), rows, numbers=range(1, table.counts.width)),
            "Null model": _source(table.null_model),
        },
    )


_PAGES: Final[Mapping[str, Callable[[Path], _Page]]] = {
    "release": _describe_release,
    "export": _describe_export,
    "corpus": _describe_corpus,
    "graph": _describe_graph,
    "scores": _describe_scores,
    "background": _describe_background,
}


# ---------- Sections.


def _quantiles(works: pl.LazyFrame) -> str:
    names = [name for name in _NUMBERS if name in works.collect_schema()]
    rows = works.select(pl.lit(0).alias("all"), *(pl.col(name).cast(pl.Float64) for name in names))
    found = counted_quantiles(rows, "all", [*_SHARES])
    lines: list[list[str]] = []
    for name in names:
        values = found.filter(column=name).sort("share")
        if values.height:
            numbers = [_number(name, value) for value in values["quantile"]]
            lines.append([_NUMBERS[name], f"{values['n'][0]:,}", *numbers])
    return _table(("", "works", *_SHARES.values()), lines, numbers=range(1, 7))


def _number(name: str, value: float) -> str:
    if name == "publication_year":
        return f"{value:.0f}"
    return f"{value:,.0f}" if name == "cited_by_count" else f"{value:.3g}"


def _fields(works: pl.LazyFrame, by: str | None) -> str:
    keys = ["primary_field", *([by] if by else [])]
    counts = works.select(keys).group_by(keys).len().collect(engine="streaming")
    totals = (
        counts.group_by("primary_field")
        .agg(pl.col("len").sum())
        .sort(pl.col("primary_field").is_null(), "len", "primary_field", descending=[False, True, False])
    )
    values = [value for value in (counts[by].unique().sort().to_list() if by else []) if value is not None]
    cells = {(row[0], row[1] if by else None): row[-1] for row in counts.rows()}
    total = max(int(totals["len"].sum()), 1)
    rows = [
        [field or "unknown", *(f"{cells.get((field, value), 0):,}" for value in values), f"{n:,}", f"{n / total:.1%}"]
        for field, n in totals.head(_MOST_FIELDS).rows()
    ]
    left = totals.height - len(rows)
    more = f'<p class="soft">{left:,} smaller fields are not listed.</p>' if left else ""
    return _table(("field", *values, "works", "share"), rows, numbers=range(1, len(values) + 3)) + more


def _examples(works: pl.DataFrame) -> str:
    return "".join(_example(work) for work in works.head(_N_EXAMPLES).iter_rows(named=True))


def _example(work: Mapping[str, Any]) -> str:
    facts = [
        work["openalex_id"],
        work.get("split"),
        work["publication_year"],
        None if work["cited_by_count"] is None else f"{work['cited_by_count']:,} citations",
        work["primary_field"],
        *(None if work.get(name) is None else f"{_NUMBERS[name]} {work[name]:.3g}" for name in [*_NUMBERS][2:]),
    ]
    labels = [str(work[column]) for column in VOCABULARIES if work.get(column) in VOCABULARIES[column]]
    colour = f' style="border-color: var(--{labels[0]})"' if labels else ""
    tags = ", ".join(f'<b style="color: var(--{label})">{label}</b>' for label in labels)
    own = [str(word) for name, word in work.items() if name.endswith("_label") and name not in VOCABULARIES and word]
    tags += "".join(f", <b>{_text(word)}</b>" for word in own)
    line = " · ".join(_text(fact) for fact in facts if fact is not None)
    abstract = work["abstract"]
    body = ""
    if abstract:
        cut = abstract if len(abstract) <= _MOST_LETTERS else f"{abstract[:_MOST_LETTERS]}…"
        body = f"<details><summary>abstract</summary><p>{_text(cut)}</p></details>"
    title = _text(work["title"] or "without a title")
    below = f"<p>{tags}</p>" if tags else ""
    return f'<article{colour}><h3>{title}</h3><p class="soft">{line}</p>{below}{body}</article>\n'


def _source(source: Mapping[str, Any]) -> str:
    config: Any = source.get("config")
    facts = {**source, **(config if isinstance(config, Mapping) else {})}
    rows = [
        (name.replace("_", " "), f"{value:,}" if type(value) is int and "year" not in name else str(value))
        for name, value in facts.items()
        if isinstance(value, str | int) and not name.endswith("sha256")
    ]
    inputs = [(file["name"], f"{file['bytes']:,}", file.get("sha256") or "") for file in source.get("inputs", [])]
    files = _table(("file read", "bytes", "SHA-256"), inputs, numbers=(1,), code=(2,)) if inputs else ""
    return _table(("", ""), rows) + files


def _pictures(figures: Iterable[Figure]) -> str:
    return f'<div class="pictures">{"".join(map(_show_figure, figures))}</div>'


def _show_figure(figure: Figure) -> str:
    content = io.BytesIO()
    figure.savefig(content, dpi=_DPI, format="png")
    caption = _text(figure.get_label())
    return (
        f'<figure><img src="{_as_url(content.getvalue())}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
    )


def _show_stored(content: bytes, name: str) -> str:
    return f'<div class="wide" tabindex="0"><img src="{_as_url(content)}" alt="{_text(name)} of the release"></div>\n'


# ---------- HTML.


def _render(page: _Page) -> str:
    sections = "".join(f"<section><h2>{_text(head)}</h2>\n{body}</section>\n" for head, body in page.sections.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="{_GENERATOR} {__version__}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{_text(page.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{_text(page.title)}</h1>
<p>{_text(page.lead)}</p>
{sections}</body>
</html>
"""


def _table_of(table: Table) -> str:
    """Write a table of the terminal as HTML."""
    rows = [*zip(*(map(str, column.cells) for column in table.columns), strict=True)]
    numbers = [i for i, column in enumerate(table.columns) if column.justify == "right"]
    return _table([str(column.header) for column in table.columns], rows, numbers=numbers, title=str(table.title or ""))


def _table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Iterable[int] = (),
    code: Iterable[int] = (),
    title: str = "",
) -> str:
    right, mono = {*numbers}, {*code}

    def cell(tag: str, i: int, text: str) -> str:
        inner = f"<code>{_text(text)}</code>" if i in mono and tag == "td" else _text(text)
        return f'<{tag} class="number">{inner}</{tag}>' if i in right else f"<{tag}>{inner}</{tag}>"

    lines = ["".join(cell("td", i, text) for i, text in enumerate(row)) for row in rows]
    heads = "".join(cell("th", i, text) for i, text in enumerate(head))
    caption = f"<caption>{_text(title)}</caption>" if title else ""
    top = f"<thead><tr>{heads}</tr></thead>" if any(head) else ""
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll" tabindex="0"><table>{caption}{top}<tbody>{body}</tbody></table></div>\n'


def _as_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _text(value: object) -> str:
    """Escape a text; control characters in it mean nothing."""
    return escape(printable(value))
