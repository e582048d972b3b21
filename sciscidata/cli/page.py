"""``sciscidata describe``: print what lies at a path, and show it on one page of HTML that needs no other file."""

from __future__ import annotations

import base64
import glob
import io
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from sciscidata import plots
from sciscidata._support.quantiles import counted_quantiles
from sciscidata.cli.summary import Part, Table, list_numbers, print_lines, print_path, shown
from sciscidata.corpus.folder import scan_corpus
from sciscidata.corpus.scores import read_score_facts
from sciscidata.errors import EmptyInputError
from sciscidata.judged import choose_works
from sciscidata.label_thresholds import VOCABULARIES, compute_disruption_labels
from sciscidata.own_label import stated_label
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.release.context import CONTEXT
from sciscidata.release.export import LINES
from sciscidata.release.manifest import PICTURES, join_counts
from sciscidata.release.methods import describe_methods
from sciscidata.release.read import read_release
from sciscidata.release.verify import kind_of
from sciscidata.schemas import EXAMPLE
from sciscidata.stages import find_measure
from sciscidata.storage import atomic_file, check_file
from sciscidata.terminal.messages import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GENERATOR: Final = '<meta name="generator" content="sciscidata describe">'
_NUMBERS: Final = ("publication_year", "cited_by_count", "cd_index", "novelty_score", "conventionality_score")
_SHARES: Final = {0.0: "min", 0.1: "p10", 0.5: "median", 0.9: "p90", 1.0: "max"}
_ELSEWHERE: Final = ("title", "abstract", "openalex_id", "work_id", ORIGINAL_ID, *CONTEXT)  # no facts of an example
_LOOK: Final = plots.Look(width="one", title="")
_N_EXAMPLES, _MOST_FIELDS, _HEADING = 20, 30, 90
_STYLE: Final = """:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; }
.warning { border-left: .3rem solid #d55e00; padding-left: .7rem; }
.wide { overflow-x: auto; overflow-wrap: normal; }
.wide > img { min-width: 44rem; }
td, th { padding: .2rem .9rem .2rem 0; text-align: right; vertical-align: top; }
td:first-child, th:first-child { text-align: left; white-space: pre-wrap; }
img { background: #fff; box-sizing: border-box; padding: 6px; width: 100%; max-width: 60rem; }
figure { display: inline-block; width: 24rem; max-width: 100%; margin: 0 1rem 1rem 0; vertical-align: top; }
td:last-child, th:last-child { padding-right: 0; }
@media (max-width: 30rem) {
  body { padding: .5rem; } figure { margin-right: 0; } table { font-size: .7rem; } td, th { padding-right: .25rem; }
}"""


def describe_path(
    path: Path, *, html: Path | None = None, overwrite: bool = False, methods: bool = False, verbose: bool = False
) -> None:
    """Print what a release, corpus, graph, export, file of scores or background holds, and write a page about it.

    Args:
        path: where it lies.
        html: file of HTML to write: what is printed, and quantiles, fields, pictures and twenty works of a release, an
            export or a corpus; quantiles and pictures of scores. None: no page.
        overwrite: replace a file that is no page of this command.
        methods: print what to write of a release in a methods section, and nothing else.
        verbose: print of a release facts of its source, removed works by class, and the SHA-256 of every file, too.
    """
    if methods:
        print_lines(describe_methods(path).splitlines())
        return
    if html is None:
        print_path(path, verbose=verbose)
        return
    check = partial(check_file, html, _GENERATOR.encode(), "page of `describe`", overwrite=overwrite)
    check()
    told, files = _report(print_path(path))
    title = f"{kind_of(path).capitalize()} {path.resolve().name}"
    write_page(html, title, f"{told}{_sections(path)}{files}", check)
    print_lines([f"page: {shown(html)} ({html.stat().st_size:,} bytes)"])


def write_page(html: Path, title: str, body: str, check: Callable[[], None], generator: str = _GENERATOR) -> None:
    """Write one page of HTML that needs no other file."""
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">{generator}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{_text(title)}</title><style>{_STYLE}</style></head>
<body><h1>{_text(title)}</h1>{body}</body></html>
"""
    with atomic_file(html, recheck=check) as new:
        new.write_text(page, encoding="utf-8")


def _report(parts: Sequence[Part]) -> tuple[str, str]:
    """Write what is printed as HTML: warnings before facts and tables; and what comes last, files and hashes."""
    place, warnings, facts, files = parts.index(""), "", "", ""
    for number, part in enumerate(parts):
        if isinstance(part, Table):
            facts += _table(part.head[0], part.head, part.rows)
        elif number >= place or "sha256" in part:
            files += f"{_text(part)}\n"
        elif part.startswith("warning: "):
            warnings += f'<p class="warning">{_text(part)}</p>'
        elif part.startswith("  ") and facts.endswith("</p>"):  # a detail of the line before
            facts = f"{facts.removesuffix('</p>')} · {_text(part.strip())}</p>"
        else:
            facts += f"<p>{_text(part)}</p>"
    return warnings + facts, f"<details><summary>Files and hashes</summary><pre>{files}</pre></details>"


def _sections(path: Path) -> str:
    """Show what the terminal does not: quantiles, fields, pictures and works."""
    kind = kind_of(path)
    if kind == "release":
        release = read_release(path)
        label, manifest = stated_label(release.manifest), release.manifest
        works = pl.concat(getattr(release, split).with_columns(split=pl.lit(split)) for split in release.splits)
        # The same number of each class first; the order within a class is that of the draw.
        is_own = str(manifest["split"].get("balance")).startswith("label")
        column = label.name if label is not None and is_own else "disruption_label"
        examples = works.sort(pl.int_range(pl.len()).over(column), maintain_order=True)
        stored = [_wide(_image((path / name).read_bytes(), name)) for name in PICTURES if name in manifest["files"]]
        return _about(join_counts(release, works).lazy(), examples.lazy(), "split", release.splits, stored)
    if kind == "export":
        works = pl.scan_ndjson(glob.escape(str(path / LINES)), schema=EXAMPLE)
        pictures = [draw_into_page(plots.plot_by_year, works), draw_into_page(plots.plot_by_field, works, score="")]
        derived = compute_disruption_labels(works.rename({"disruption_label": "stated"}))
        differs = derived.select(pl.col("disruption_label").ne_missing(pl.col("stated")).any())
        if not differs.collect(engine="streaming").item():  # else its bands would be of other thresholds
            pictures.append(draw_into_page(plots.plot_disruption, works))
        return _about(works, works, "disruption_label", VOCABULARIES["disruption_label"], pictures)
    if kind == "corpus":
        works = scan_corpus(path).works
        is_own = ORIGINAL_ID in works.collect_schema()
        shown_id = pl.col(ORIGINAL_ID).cast(pl.String) if is_own else pl.format("W{}", "work_id")
        return _about(works, works.with_columns(openalex_id=shown_id))
    if kind == "scores":
        rows, plot = pl.scan_parquet(path, glob=False), find_measure(read_score_facts(path)["stage"]).plot
        return _quantiles(rows, ("publication_year", *list_numbers(rows))) + (
            draw_into_page(plot, rows) if plot else ""
        )
    return ""


def _about(
    works: pl.LazyFrame,
    examples: pl.LazyFrame,
    by: str = "",
    values: Sequence[str] | set[str] = (),
    pictures: Iterable[str] = (),
) -> str:
    counts = {value: (pl.col(by) == value).sum() for value in values}
    years = works.select(pl.col("publication_year").count()).collect(engine="streaming").item()
    drawn = [*pictures, *([draw_into_page(plots.plot_works, works)] if years else [])]
    articles = "".join(_article(work) for work in examples.head(_N_EXAMPLES).collect().iter_rows(named=True))
    parts = {"Pictures": "".join(drawn), "Works": articles}
    return _quantiles(works) + _fields(works, counts) + "".join(f"<h2>{k}</h2>{v}" for k, v in parts.items() if v)


def _fields(works: pl.LazyFrame, counts: dict[str, pl.Expr]) -> str:
    fields = works.group_by(field="primary_field").agg(works=pl.len(), **counts).collect(engine="streaming")
    fields = fields.with_columns(share=pl.format("{}%", (100 * pl.col("works") / pl.sum("works")).round(1)))
    listed = fields.sort("works", "field", descending=[True, False]).head(_MOST_FIELDS)
    rows = ([_value(*cell) for cell in row.items()] for row in listed.iter_rows(named=True))
    title = f"Fields ({listed.height} of {fields.height}, the largest first)"
    return _table(title, listed.columns, rows) if fields["field"].count() else ""


def _quantiles(rows: pl.LazyFrame, numbers: Sequence[str] = _NUMBERS) -> str:
    names = [name for name in numbers if name in rows.collect_schema()]
    if not names:
        return ""
    choices = {name: choose_works(rows.collect_schema().names(), name, "judged") for name in names}
    columns = [
        (pl.col(name) if of.counts is None else pl.when(of.counts).then(name)).cast(pl.Float64).alias(name)
        for name, of in choices.items()
    ]
    found = counted_quantiles(rows.select(pl.lit(0).alias("all"), *columns), "all", [*_SHARES])
    shown = {
        name: name.replace("_", " ") + (" (judged)" if of.counts is not None else "") for name, of in choices.items()
    }
    lines = [
        [shown[name], _value("", of["n"][0]), *(_value(name, value) for value in of["quantile"])]
        for (name,), of in found.group_by("column", maintain_order=True)
    ]
    table = _table("Years, citations and scores", ["", "works", *_SHARES.values()], lines) if lines else ""
    notes = {of.window: (name, of) for name, of in reversed(choices.items()) if of.counts is not None or of.lacks}
    for name, of in reversed(notes.values()):
        if said := of.count_left_out(rows, name).describe():
            table += f"<p>{_text(f'{shown[name]}:{said}')}</p>"
    return table


def _article(work: dict[str, Any]) -> str:
    known = {name: value for name, value in work.items() if name not in _ELSEWHERE and value not in (None, [])}
    facts = [work["openalex_id"], *(f"{name} {_value(name, value)}" for name, value in known.items())]
    text = work["abstract"] or ""
    first = text if len(text) <= _HEADING else f"{text[:_HEADING].rsplit(' ', 1)[0]} …"
    body = f"<p>{_text(' · '.join(facts))}</p>"
    if text:
        body += f"<details><summary>{'abstract' if work['title'] else 'text'}</summary><p>{_text(text)}</p></details>"
    for name, lines in _list_context(work).items():
        listed = "".join(f"<li>{_text(line)}</li>" for line in lines)
        body += f"<details><summary>{_text(name)}</summary><ul>{listed}</ul></details>"
    return f"<article><h3>{_text(work['title'] or first or 'without a title')}</h3>{body}</article>\n"


def _list_context(work: dict[str, Any]) -> dict[str, list[str]]:
    """List the references of a work, and what was known of them when it appeared, where the release has both."""
    if not work.keys() >= CONTEXT.keys():
        return {}
    cited = [" · ".join(_value(*part) for part in one.items() if part[1] is not None) for one in work["references"]]
    known = {name.replace("_", " "): value for name, value in work["at_publication"].items() if value is not None}
    told = {
        f"references ({len(cited)})": cited,
        "known at publication": [f"{k} {_value(k, v)}" for k, v in known.items()],
    }
    return {name: lines for name, lines in told.items() if lines}


def _table(title: str, head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<h2>{_text(title[:1].upper() + title[1:])}</h2>{_wide(f'<table><tr>{cells}</tr>{body}</table>')}\n"


def _value(name: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_count = isinstance(value, int) or name == "cited_by_count"
        return f"{value:{'.0f' if name.endswith(('year', '_id')) else ',.0f' if is_count else '.3g'}}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str("unknown" if value is None else value)


def draw_into_page(plot: Callable[..., Figure], works: object, **options: str) -> str:
    """Draw a picture into the page, none where there is nothing to draw."""
    try:
        figure = plot(works, **options, **_LOOK)
    except EmptyInputError:
        return ""
    content = io.BytesIO()
    figure.savefig(content, dpi=220, format="png")
    caption = figure.get_label()
    return f"<figure>{_image(content.getvalue(), caption)}<figcaption>{_text(caption)}</figcaption></figure>"


def _wide(html: str) -> str:
    """Put wide content into its own box, which scrolls."""
    return f'<div class="wide" tabindex="0">{html}</div>'


def _image(png: bytes, what: object) -> str:
    return f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}" alt="{_text(what)}">'


def _text(value: object) -> str:
    """Escape a text; control characters in it mean nothing."""
    return escape(printable(value))
