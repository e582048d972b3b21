"""``sciscidata describe``: print what lies at a path, and show it on one page of HTML that needs no other file."""

from __future__ import annotations

import base64
import glob
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from sciscidata import plots
from sciscidata._support.quantiles import counted_quantiles
from sciscidata.cli.summary import (
    Part,
    Table,
    describe_classes,
    describe_rows,
    list_facts,
    list_numbers,
    name_removed,
    print_lines,
    print_path,
    remarks_by_flags,
    shown,
    tabulate_filters,
)
from sciscidata.corpus.folder import scan_corpus
from sciscidata.corpus.scores import read_score_facts
from sciscidata.errors import EmptyInputError
from sciscidata.judged import choose_works
from sciscidata.label_thresholds import VOCABULARIES, compute_disruption_labels
from sciscidata.own_label import stated_label
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.release.context import CONTEXT
from sciscidata.release.documents import describe_pictures, name_release
from sciscidata.release.export import LINES
from sciscidata.release.manifest import join_counts, lacks_scores
from sciscidata.release.methods import describe_methods
from sciscidata.release.read import Release, read_release
from sciscidata.release.record import list_counts, put_counts
from sciscidata.release.verify import kind_of
from sciscidata.schemas import EXAMPLE
from sciscidata.stages import find_measure
from sciscidata.storage import atomic_file, check_file
from sciscidata.terminal.messages import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GENERATOR: Final = '<meta name="generator" content="sciscidata describe">'
#: What readers call columns; others by their names, with blanks.
_NAMES: Final = {
    "publication_year": "year",
    "cited_by_count": "citations",
    "cd_index": "CD index",
    "primary_field": "field",
    "work_type": "type",
    "is_retracted": "retracted",
}
_NUMBERS: Final = ("publication_year", "cited_by_count", "cd_index", "novelty_score", "conventionality_score")
_SHARES: Final = {0.0: "min", 0.1: "p10", 0.5: "median", 0.9: "p90", 1.0: "max"}
#: Facts of a work that need no name.
_BARE: Final = ("publication_year", "primary_field")
#: No facts of an example: they stand elsewhere.
_ELSEWHERE: Final = (
    *("title", "abstract", "openalex_id", "work_id", ORIGINAL_ID, *CONTEXT),
    *("n_i", "n_j", "n_k", "cd_index", *VOCABULARIES, "label_confidence"),
    *(*_BARE, "concepts", "novelty_score", "conventionality_score"),
)
_LOOK: Final = plots.Look(width="one", title="")
_N_EXAMPLES, _MOST_FIELDS, _HEADING, _MOST_REMARKS = 20, 30, 90, 3
_READING: Final = (
    "Citers count within the window: n_i cite the work and none of its references, n_j cite both. n_k works cite only "
    "its references. "
    '"Comes back 26 %": with other citers, 26 of 100 such works would get this label again.'
)
_DRAWN: Final = "These works were drawn with equal classes, so their quantiles are not those of the source."
_STYLE: Final = """:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { line-height: 1.2; }
pre { white-space: pre-wrap; }
.first { border-left: .3rem solid #d55e00; padding: .1rem .7rem; }
.first h2 { margin: .3rem 0; font-size: 1.1rem; }
.wide { overflow-x: auto; overflow-wrap: normal; }
td, th { padding: .2rem .9rem .2rem 0; text-align: right; vertical-align: top; }
td:first-child, th:first-child, .left { text-align: left; white-space: pre-wrap; }
article { border-top: 1px solid #8884; padding: .4rem 0; }
article h3 { margin: 0; font-size: 1rem; }
article p { margin: .1rem 0; }
header { display: flex; justify-content: space-between; gap: 1rem; }
.counts { text-align: right; flex: none; }
img { background: #fff; box-sizing: border-box; padding: 6px; width: 100%; max-width: 60rem; }
figure { display: inline-block; width: 24rem; max-width: 100%; margin: 0 1rem 1rem 0; vertical-align: top; }
figure.stored { width: 100%; max-width: 60rem; overflow-x: auto; }
figure.stored img { min-width: 40rem; }
td:last-child, th:last-child { padding-right: 0; }
@media (max-width: 44rem) {
  body { padding: .5rem; } figure { margin-right: 0; } table { font-size: .7rem; } td, th { padding-right: .25rem; }
  header { display: block; } .counts { text-align: left; }
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
    parts, kind = print_path(path, verbose=verbose), kind_of(path)
    if kind == "release":
        title, body = _show_release(read_release(path))
    else:
        told, files = _report(parts)
        title, body = f"{kind.capitalize()} {path.resolve().name}", f"{told}{_sections(path)}{files}"
    write_page(html, title, body, check)
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
    """Write what is printed as HTML: facts and tables; and what comes last, files and hashes."""
    place, facts, files = parts.index(""), "", ""
    for number, part in enumerate(parts):
        if isinstance(part, Table):
            facts += _show_table(part)
        elif number >= place or "sha256" in part:
            files += f"{_text(part)}\n"
        elif part.startswith("  ") and facts.endswith("</p>"):  # a detail of the line before
            facts = f"{facts.removesuffix('</p>')} · {_text(part.strip())}</p>"
        else:
            facts += f"<p>{_text(part)}</p>"
    return facts, _fold("Files and hashes", f"<pre>{files}</pre>")


def _show_release(release: Release) -> tuple[str, str]:
    """Return the title of a release, and what it is: what to know, works, pictures, tables, and where it comes from."""
    manifest, label = release.manifest, stated_label(release.manifest)
    works = pl.concat(getattr(release, split).with_columns(split=pl.lit(split)) for split in release.splits)
    # The same number of each class first; the order within a class is that of the draw.
    is_own = str(manifest["split"].get("balance")).startswith("label")
    column = label.name if label is not None and is_own else "disruption_label"
    mixed = works.sort(pl.int_range(pl.len()).over(column), maintain_order=True).head(_N_EXAMPLES)
    date = manifest.get("source", {}).get("data_date")
    names = _NAMES | ({"cited_by_count": f"citations until {date}"} if date else {})
    remarks = [" ".join(filter(None, lines)) for lines in remarks_by_flags(manifest)]
    few, more = remarks[:_MOST_REMARKS], remarks[_MOST_REMARKS:]
    counted, by_split = join_counts(release, works).lazy(), {s: (pl.col("split") == s).sum() for s in release.splits}
    stored = [
        _figure(_image((release.folder / name).read_bytes(), text), f"{text}.", "stored")
        for name, text in describe_pictures(manifest).items()
    ]
    reading = "" if lacks_scores(manifest) else f"<p>{_READING}</p>"
    is_equal = manifest["split"].get("balance") != "none"
    drawn = f"<p>{_DRAWN}</p>" if is_equal else ""
    filters = tabulate_filters(manifest) if "filters" in manifest.get("counts", {}) else None
    parts = {
        f"{mixed.height} of {_count_works(works)}": reading + _articles(put_counts(release, mixed), names),
        "Pictures": "".join([*stored, _draw_works(counted)]),
        "Also to know": _list(more),
        "Labels": "".join(map(_show_part, describe_classes(manifest, verbose=True))),
        name_removed(manifest["counts"]) if filters else "": _show_part(filters) if filters else "",
        **{title: table + drawn for title, table in _quantiles(counted, names).items()},
        **_fields(counted, by_split),
    }
    box = f'<section class="first"><h2>Read this first</h2>{_list(few)}</section>' if few else ""
    about = f"<p>{_text(describe_rows(manifest))}</p>{box}{_join(parts)}"
    facts = "".join(f"{_text(line)}\n" for line in list_facts(release))
    return name_release(manifest), about + _fold("Source, files and hashes", f"<pre>{facts}</pre>")


def _count_works(works: pl.DataFrame) -> str:
    return f"{works.height:,} works" if works["cd_index"].count() else f"{works.height:,} texts"


def _sections(path: Path) -> str:
    """Show of what is no release what the terminal does not: quantiles, fields, pictures and works."""
    kind = kind_of(path)
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
        quantiles = _join(_quantiles(rows, numbers=("publication_year", *list_numbers(rows))))
        return quantiles + (draw_into_page(plot, rows) if plot else "")
    return ""


def _about(
    works: pl.LazyFrame, examples: pl.LazyFrame, by: str = "", values: Sequence[str] = (), pictures: Iterable[str] = ()
) -> str:
    counts = {value: (pl.col(by) == value).sum() for value in values}
    shown = _articles(examples.head(_N_EXAMPLES).collect(), _NAMES)
    drawn = "".join([*pictures, _draw_works(works)])
    return _join({"Works": shown, "Pictures": drawn, **_quantiles(works), **_fields(works, counts)})


def _draw_works(works: pl.LazyFrame) -> str:
    years = works.select(pl.col("publication_year").count()).collect(engine="streaming").item()
    return draw_into_page(plots.plot_works, works) if years else ""


def _fields(works: pl.LazyFrame, counts: dict[str, pl.Expr]) -> dict[str, str]:
    fields = works.group_by(field="primary_field").agg(works=pl.len(), **counts).collect(engine="streaming")
    fields = fields.with_columns(share=pl.format("{} %", (100 * pl.col("works") / pl.sum("works")).round(1)))
    listed = fields.sort("works", "field", descending=[True, False]).head(_MOST_FIELDS)
    rows = [[_value(*cell) for cell in row.items()] for row in listed.iter_rows(named=True)]
    title = f"Fields ({listed.height} of {fields.height}, the largest first)"
    return {title: _show_table(Table(listed.columns, rows))} if fields["field"].count() else {}


def _quantiles(
    rows: pl.LazyFrame, names: Mapping[str, str] = _NAMES, numbers: Sequence[str] = _NUMBERS
) -> dict[str, str]:
    columns = rows.collect_schema().names()
    choices = {name: choose_works(columns, name, "judged") for name in numbers if name in columns}
    if not choices:
        return {}
    counted = [
        (pl.col(name) if of.counts is None else pl.when(of.counts).then(name)).cast(pl.Float64).alias(name)
        for name, of in choices.items()
    ]
    found = counted_quantiles(rows.select(pl.lit(0).alias("all"), *counted), "all", [*_SHARES])
    shown = {name: _name(name, names) + (" (judged)" if of.counts is not None else "") for name, of in choices.items()}
    lines = [
        [shown[name], _value("", of["n"][0]), *(_value(name, value) for value in of["quantile"])]
        for (name,), of in found.group_by("column", maintain_order=True)
    ]
    table = _show_table(Table(["", "works", *_SHARES.values()], lines)) if lines else ""
    notes = {of.window: (name, of) for name, of in reversed(choices.items()) if of.counts is not None or of.lacks}
    for name, of in reversed(notes.values()):
        if said := of.count_left_out(rows, name).describe():
            table += f"<p>{_text(f'{shown[name]}:{said}')}</p>"
    return {"Years, citations and scores": table} if lines else {}


def _articles(works: pl.DataFrame, names: Mapping[str, str]) -> str:
    return "".join(_article(work, names) for work in works.iter_rows(named=True))


def _article(work: dict[str, Any], names: Mapping[str, str]) -> str:
    known = {name: value for name, value in work.items() if name not in _ELSEWHERE and value not in (None, [])}
    facts = [_value(name, value) for name in ("openalex_id", *_BARE) if (value := work.get(name)) is not None]
    cited = known.pop("cited_by_count", None)
    facts += [] if cited is None else [f"{cited:,} {names['cited_by_count']}"]
    facts += [f"{_name(name, names)} {_value(name, value)}" for name, value in known.items()]
    text = work["abstract"] or ""
    first = text if len(text) <= _HEADING else f"{text[:_HEADING].rsplit(' ', 1)[0]} …"
    counts = "".join(f"<div>{_text(line)}</div>" for line in list_counts(work))
    body = f"<h3>{_text(work['title'] or first or 'without a title')}</h3>"
    body = f'<header>{body}<div class="counts">{counts}</div></header>' if counts else body
    body += f"<p>{_text(' · '.join(facts))}</p>"
    topics = f"<p>Topics: {_text(', '.join(work['concepts']))}</p>" if work.get("concepts") else ""
    if text or topics:
        body += _fold("abstract" if work["title"] else "text", f"<p>{_text(text)}</p>{topics}")
    for name, lines in _list_context(work).items():
        body += _fold(name, _list(lines, "ul"))
    return f"<article>{body}</article>\n"


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


def _join(parts: Mapping[str, str]) -> str:
    return "".join(f"<h2>{_text(name)}</h2>{part}" for name, part in parts.items() if part)


def _show_part(part: Part) -> str:
    return _show_table(part) if isinstance(part, Table) else f"<p>{_text(part)}</p>" if part else ""


def _show_table(table: Table) -> str:
    def cells(row: Iterable[str], tag: str) -> str:
        marks = [' class="left"' if n and n in table.left else "" for n in range(len(table.head))]
        return "".join(f"<{tag}{mark}>{_text(cell)}</{tag}>" for mark, cell in zip(marks, row, strict=True))

    head = f"<tr>{cells(table.head, 'th')}</tr>" if any(table.head) else ""
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    return f'<div class="wide" tabindex="0"><table>{head}{body}</table></div>\n'


def _list(lines: Iterable[str], tag: str = "ol") -> str:
    listed = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<{tag}>{listed}</{tag}>" if listed else ""


def _fold(title: str, html: str) -> str:
    return f"<details><summary>{_text(title)}</summary>{html}</details>"


def _name(name: str, names: Mapping[str, str]) -> str:
    return names.get(name, name.replace("_", " "))


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
    return _figure(_image(content.getvalue(), caption), caption)


def _figure(image: str, caption: object, kind: str = "drawn") -> str:
    return f'<figure class="{kind}">{image}<figcaption>{_text(caption)}</figcaption></figure>'


def _image(png: bytes, what: object) -> str:
    return f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}" alt="{_text(what)}">'


def _text(value: object) -> str:
    """Escape a text; control characters in it mean nothing."""
    return escape(printable(value))
