"""What pages of the site say about themselves, and the links that they get: to measurements, and to pages."""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from markdown.extensions.toc import slugify, unique

HOME: Final = Path(__file__).resolve().parent.parent
BENCHMARKS: Final = HOME / "benchmarks"
MEASUREMENTS: Final = [BENCHMARKS / "README.md", BENCHMARKS / "models.md", *sorted(BENCHMARKS.glob("notes/*.md"))]
#: Links and blocks of code, which stay as they are, or what may become a link.
_LEFT: Final = r"(?P<left><a\b.*?</a>|<pre\b.*?</pre>)"
_EVIDENCE: Final = re.compile(rf"{_LEFT}|<code>(?P<text>(?:python )?benchmarks/(?P<path>[\w./-]*)[^<]*)</code>", re.S)
_PAGE: Final = re.compile(rf"{_LEFT}|\bdocs/(?P<path>[\w/]+)\.md(?P<anchor>#[\w-]+)?", re.S)
#: Signs of a description.
_SHORT: Final = 60
_LONGEST: Final = 200
#: Words of LaTeX as they are typed.
_SIGNS: Final = {
    "le": "<=",
    "ge": ">=",
    "ne": "!=",
    "approx": "~",
    "cdot": "*",
    "times": "*",
    "ldots": "...",
    "in": "in",
}


def read_title(text: str) -> str:
    """Return the first heading of a page, without markup."""
    found = re.search(r"^# (.+?)(?: *\{.*\})?$", text, re.M)
    return _strip(found[1]) if found else ""


def describe(text: str) -> str:
    """Return the first sentence of a page without markup, and the next if the first is short."""
    body = re.sub(r"<!--.*?-->|^```.*?^```", "", text, flags=re.S | re.M)
    for paragraph in re.split(r"\n\s*\n", body):
        plain = _strip(" ".join(paragraph.split()))
        if plain and not re.match(r"#|\||<|!\[|:::|[-*] |\d+\. ", paragraph.strip()):
            first, *more = re.split(r"(?<=[a-z)\d\]][.?!])\s+", plain)
            text = " ".join([first, *more[: len(first) < _SHORT]]).rstrip(":")
            return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rsplit(' ', 1)[0]} …"
    return ""


def _strip(text: str) -> str:
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"\$([^$]+)\$", lambda found: write_formula(found[1]), re.sub(r"[`*]|<[^>]+>", "", text)).strip()


def list_sections(text: str) -> Iterator[tuple[str, str]]:
    """List the sections of a page: the anchor of each heading, and the text below it."""
    anchors = set[str]()
    hidden = re.sub(r"^```.*?^```", lambda found: found[0].replace("#", " "), text, flags=re.S | re.M)
    heads = [*re.finditer(r"^#+ (.+)$", hidden, re.M)]
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        yield unique(slugify(_strip(head[1]), "-"), anchors), hidden[head.end() : after.start() if after else None]


@cache
def find_measurement(path: str) -> tuple[str, str]:
    """Find the page of measurements, and the anchor on it, that describes a file below ``benchmarks/``."""
    pages = {file.relative_to(BENCHMARKS).as_posix(): file.read_text("utf-8") for file in MEASUREMENTS}
    if path in pages:
        return path, ""
    parts = Path(path).parts
    is_result = parts[:1] == ("results",)
    script = re.sub(r"(-[A-Z]+)?\.json$", ".py", parts[-1]) if is_result else path.rstrip("/")
    names = [script, Path(script).name] if Path(script).suffix else []
    wanted = [rf"(?<![\w/])(?:benchmarks/)?{re.escape(name)}(?!\w)" for name in names]
    wanted += [rf"(?<!\w){re.escape(part)}/" for part in parts[: 0 if is_result else 1]]
    for pattern in wanted:
        for page, text in pages.items():
            for anchor, section in list_sections(text):
                if re.search(pattern, section):
                    return page, anchor
    return "README.md", ""


def link_evidence(content: str, lead: Callable[[str, str], str | None]) -> str:
    """Link code that names a file below ``benchmarks/``. ``lead`` gives the address of a place, None for no link."""

    def link(found: re.Match[str]) -> str:
        if found["left"]:
            return found[0]
        page, anchor = find_measurement(found["path"])
        address = lead(f"measurements/{page}", anchor)
        return found[0] if address is None else f'<a href="{address}">{found[0]}</a>'

    return _EVIDENCE.sub(link, content)


def link_pages(content: str, lead: Callable[[str, str], str | None]) -> str:
    """Link the name of a page in a docstring, ``docs/PAGE.md``, by the title of that page."""

    def link(found: re.Match[str]) -> str:
        if found["left"]:
            return found[0]
        address = lead(f"{found['path']}.md", (found["anchor"] or "").removeprefix("#"))
        title = html.escape(read_title((HOME / "docs" / f"{found['path']}.md").read_text("utf-8")))
        return found[0] if address is None else f'<a href="{address}">{title}</a>'

    return _PAGE.sub(link, content)


def find_users(names: Iterable[str]) -> dict[str, list[str]]:
    """Find the handwritten pages that use a public name, best first: those that begin with it, then by number."""
    pages = {path.relative_to(HOME / "docs").as_posix(): path.read_text("utf-8") for path in HOME.glob("docs/**/*.md")}
    counts: dict[str, dict[str, int]] = {name: {} for name in names}
    last = {name.rpartition(".")[2]: name for name in counts}
    words = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, last))})(?!\w)")
    for page, text in pages.items():
        lead_ends = len("\n".join(text.split("\n")[:12]))
        for found in words.finditer(text):
            of_name = counts[last[found[1]]]
            of_name[page] = of_name.get(page, 0) + (6 if found.start() < lead_ends else 1)
    weight = {page: 2 if page.startswith("measures/") else 1 for page in pages}
    return {
        name: sorted(of_name, key=lambda page: (-of_name[page] * weight[page], page))
        for name, of_name in counts.items()
    }


def write_formula(latex: str) -> str:
    r"""Write a formula as one types it.

    Example:
        >>> write_formula(r"\mathrm{cd\_index} = \frac{n_i - n_j}{n_i + n_j + n_k}")
        'cd_index = (n_i - n_j) / (n_i + n_j + n_k)'
        >>> write_formula(r"w = 1 - \sqrt{Q_{cd}\, (a, b)} \le \frac{1}{2}")
        'w = 1 - sqrt(Q_cd (a, b)) <= 1 / 2'
    """
    text = re.sub(r"\\(?:left|right|big|Big)(?![a-z])|\\[,;:! ]|~|&", " ", latex)
    text = re.sub(r"\\(?:text|mathrm|mathit|operatorname)\s*\{([^{}]*)\}", r"\1", text)
    group = r"\{([^{}]*)\}"
    before = ""
    while before != text:
        before = text
        text = re.sub(rf"\\frac\s*{group}\s*{group}", lambda m: f"{_bracket(m[1])} / {_bracket(m[2])}", text)
        text = re.sub(rf"\\sqrt\s*{group}", r"sqrt(\1)", text)
        text = re.sub(
            rf"([_^])\s*{group}", lambda m: m[1] + (m[2] if re.fullmatch(r"[\w,.]+", m[2]) else f"({m[2]})"), text
        )
    text = re.sub(r"\\([a-zA-Z]+)", lambda m: _SIGNS.get(m[1], m[1]), text)
    return " ".join(re.sub(r"\\(.)", r"\1", re.sub(r"[{}]", "", text)).split())


def _bracket(text: str) -> str:
    return text.strip() if re.fullmatch(r"\s*[\w.]+\s*", text) else f"({text.strip()})"


def relative(target: str, anchor: str, page: str) -> str:
    """Return the address of a page of the site from another one."""
    place = re.sub(r"README\.md$", "index.md", target).removesuffix(".md") + ".html"
    return posixpath.relpath(place, posixpath.dirname(page) or ".") + (f"#{anchor}" if anchor else "")
