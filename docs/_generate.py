"""MkDocs hooks of the documentation site: they make pages from code and notebooks, and MathML from formulas.

Pages made from code: both command lines (``_commands.py``), both Python references (from ``__init__.pyi`` and
docstrings, a page for each name), and the architecture (from the layers in pyproject.toml and the first docstring line
of each module). Pages made from notebooks, with the outputs that ``_notebooks.py`` kept in them: one each, and the
gallery of their pictures. Pages of measurements are those of ``benchmarks/``.

Every page gets the title of its first heading, its first sentence as description, and links to evidence
(``_links.py``). Search leaves out formulas and what several commands share.
"""

from __future__ import annotations

import ast
import base64
import html
import importlib
import json
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import griffe
from _commands import list_pages, render_commands
from _links import (
    BENCHMARKS,
    HOME,
    MEASUREMENTS,
    describe,
    find_users,
    link_evidence,
    link_pages,
    read_title,
    relative,
    write_formula,
)
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

NOTEBOOKS = sorted((HOME / "notebooks").glob("*.ipynb"))
_PACKAGES = ("sciscidata", "sciscirl")
_HOME_TITLE = "sciscidata: disruption and novelty of papers, with their uncertainty"
#: First words of functions that have a heading of their own in the reference; a word with fewer names has none.
_VERBS = ("scan", "compute", "find", "plot", "write", "read", "make", "register")
_LEAST_NAMES = 3
#: Titles that weigh less or more in the search, by folder or page.
_BOOSTS = {
    "measures/label_confidence_evidence": 0.5,
    "measures/atypicality_method": 0.5,
    "measures/label_confidence": 3,
    "measures/": 2,
    "notebooks/": 0.8,
    "reference/": 0.3,
    "design_notes": 0.3,
    "changelog": 0.3,
}
_RUN_NOTEBOOKS = (
    "To run notebooks, install what they need with `python3 scripts/install.py notebooks`. "
    "Then open them with `.venv/bin/jupyter lab notebooks`."
)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_PICTURE = re.compile(r'<img alt="[^"]*" src="([^"]+)"[^>]*>')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List generated pages in the menu, and state the version at the foot of each page."""
    import sciscidata

    config.copyright = f"sciscidata {sciscidata.__version__}"
    (sections,) = (entry["Reference"] for entry in config.nav or [] if "Reference" in entry)
    for entry in [entry for section in sections for entries in section.values() for entry in entries]:
        ((title, place),) = entry.items()
        package = Path(place).stem.removesuffix("_command")
        if package in _PACKAGES and place.endswith("_command.md"):
            entry[title] = [{name: page} for name, page in list_pages(package).items()]
        elif package in _PACKAGES:
            groups = [{group: [_name_page(package, name) for name in names]} for group, names in group_names(package)]
            entry[title] = [{"All names": place}, *groups]
    notes = [path for path in MEASUREMENTS if path.parent.name == "notes"]
    listed = [{read_title(path.read_text("utf-8")): f"measurements/notes/{path.name}"} for path in notes]
    (evidence,) = (section["Evidence"] for section in sections if "Evidence" in section)
    evidence.append({"Laboratory notes": listed})
    return config


def _name_page(package: str, name: str) -> dict[str, str]:
    return {name.rpartition(".")[2]: f"reference/{package}/{name}.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {
        **{name: page for package in _PACKAGES for name, page in render_commands(package).items()},
        **{name: page for package in _PACKAGES for name, page in render_api(package).items()},
        "reference/architecture.md": render_architecture(),
        **{f"measurements/{path.relative_to(BENCHMARKS)}": render_measurements(path) for path in MEASUREMENTS},
        **{f"measurements/{path.name}": path.read_bytes() for path in BENCHMARKS.glob("*.png")},
        "changelog.md": re.sub(r"\]\(docs/", "](", (HOME / "CHANGELOG.md").read_text("utf-8")).replace(
            "](benchmarks/", "](measurements/"
        ),
        "gallery.md": render_gallery(notebooks := [read_notebook(path) for path in NOTEBOOKS]),
        **{f"notebooks/{notebook.name}.md": notebook.page for notebook in notebooks},
        **{f"notebooks/{name}": drawn for one in notebooks for name, drawn in one.list_files().items()},
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Name and describe a page by its text. Lead to pages where the repository has a notebook or measurements."""
    is_home = page.file.src_uri == "index.md"
    page.meta.setdefault("title", _HOME_TITLE if is_home else read_title(markdown))
    boosts = [boost for start, boost in _BOOSTS.items() if page.file.src_uri.startswith(start)]
    page.meta.setdefault("search", {"boost": boosts[0]} if boosts else {})
    page.meta["description"] = html.escape(
        page.meta.get("description") or (str(config.site_description) if is_home else describe(markdown))
    )
    markdown = re.sub(r"\]\(\.\./((?:\.\./)*)benchmarks/([\w/]+\.md)", r"](\1measurements/\2", markdown)
    return re.sub(r"\]\(\.\./((?:\.\./)*notebooks/\w+)\.ipynb", r"](\1.md", markdown)


def render_measurements(path: Path) -> str:
    """Turn a page of ``benchmarks/`` into one of the site, without links to files. Search leaves it out."""
    text = re.sub(r"(\]\((?:\.\./)+)docs/", r"\1", path.read_text("utf-8"))

    def show(found: re.Match[str]) -> str:
        is_picture = found[0].startswith("!") and (path.parent / found[2]).exists()
        return found[0] if is_picture else found[1]

    text = re.sub(r"!?\[([^\]]+)\]\((?![a-z]+:|#|[^)]*\.md[#)])([^)]*)\)", show, text)
    title = f"Note: {read_title(text)}" if path.parent.name == "notes" else read_title(text)
    return f"---\ntitle: {json.dumps(title)}\nsearch:\n  exclude: true\n---\n\n{text}"


def on_page_content(content: str, page: Page, files: Files, **_: object) -> str:
    """Turn LaTeX into MathML, which needs no script; fit pictures to phones; link evidence; copy commands only."""
    place = page.file.src_uri
    folder = posixpath.dirname(place)

    def fit(found: re.Match[str]) -> str:
        """Let a picture lead to its file, where it can be enlarged; take the narrow one on a phone if there is one."""
        is_there = posixpath.normpath(posixpath.join(folder, _name_narrow(found[1]))) in files.src_uris
        return f'<a href="{found[1]}">{_choose(found[1], found[0]) if is_there else found[0]}</a>'

    def lead(target: str, anchor: str) -> str | None:
        return relative(target, anchor, place) if target != place and target in files.src_uris else None

    content = _PICTURE.sub(fit, _FORMULA.sub(_render_formula, content))
    content = link_evidence(content, lead)
    if folder.startswith("reference/"):
        content = link_pages(content, lead)
    if len([*page.toc]) < 2 and not any(head.children for head in page.toc):  # wide tables have the whole width
        page.meta.setdefault("hide", []).append("toc")
    return content.replace('class="language-text highlight"', 'class="language-text highlight no-copy"')


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the site once in the title of a page."""
    twice = f"{page.meta.get('title')} - {config.site_name}</title>"
    is_named = config.site_name in str(page.meta.get("title"))
    return output.replace(twice, f"{page.meta.get('title')}</title>") if is_named else output


def _render_formula(found: re.Match[str]) -> str:
    latex = html.unescape(found[2]).strip()[2:-2]  # between \( and \), or \[ and \]
    display = "block" if found[1] == "div" else "inline"
    drawn = f'<{found[1]} class="formula" data-search-exclude>{convert(latex, display=display)}</{found[1]}>'
    return f"{drawn}<span hidden>{html.escape(write_formula(latex))}</span>"


def _name_narrow(name: str) -> str:
    """Name the file for phones of a picture."""
    return name.replace(".png", "_narrow.png")


def _choose(name: str, image: str) -> str:
    """Show a picture, on a phone its narrow twin."""
    return f'<picture><source media="(max-width: 44em)" srcset="{_name_narrow(name)}">{image}</picture>'


class Drawing(NamedTuple):
    """A picture of a notebook, as wide as a page and as wide as a phone."""

    caption: str
    wide: bytes
    narrow: bytes


class Notebook(NamedTuple):
    """A notebook as a page, and its pictures by name of file."""

    name: str
    title: str
    question: str
    page: str
    pictures: dict[str, Drawing]

    def list_files(self) -> dict[str, bytes]:
        """Return the files of its pictures, by name."""
        narrow = {_name_narrow(name): drawn.narrow for name, drawn in self.pictures.items()}
        return {name: drawn.wide for name, drawn in self.pictures.items()} | narrow


def read_notebook(path: Path) -> Notebook:
    """Make a page from a notebook and the outputs that are kept in it; nothing runs."""
    parts: list[str] = []
    pictures: dict[str, Drawing] = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text.replace("](../docs/", "](../")))
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            shown = output.get("data", {"text/plain": output.get("text")})
            printed = "".join(shown.get("text/plain", []))
            if "text/markdown" in shown:
                parts.append("".join(shown["text/markdown"]))
            elif "image/png" in shown:
                name = f"{path.stem}_{len(pictures) + 1}.png"
                kept = shown["image/png"], output["metadata"]["narrow"]
                pictures[name] = Drawing(printed, *map(base64.b64decode, kept))
                parts.append(f"![{printed}]({name})")
            else:
                parts.append(f"```text\n{printed.rstrip()}\n```")
    title, _, rest = parts[0].removeprefix("# ").partition("\n")
    where = f"This page is `notebooks/{path.name}` of the repository, as it last ran. {_RUN_NOTEBOOKS}"
    page = "\n\n".join([f"# {title}", where, rest.strip(), *parts[1:]])
    return Notebook(path.stem, title, rest.strip().partition("\n\n")[0], page + "\n", pictures)


def render_gallery(notebooks: list[Notebook]) -> str:
    """Show every picture of the notebooks below the question of its notebook; a picture leads to its page."""
    intro = "Notebooks with a question each, most of them on real papers. A picture leads to its page."
    more = "[Pictures and pages](pictures.md) has the pictures that are one call each."
    lines = ["# Gallery", "", f"{intro} {more}", "", _RUN_NOTEBOOKS]
    for notebook in notebooks:
        lines += ["", f"## {notebook.title}", "", notebook.question, "", f"[Read it](notebooks/{notebook.name}.md)", ""]
        lines.append('<div class="gallery">')
        for name, drawn in notebook.pictures.items():
            text = html.escape(drawn.caption, quote=True)
            image = _choose(f"notebooks/{name}", f'<img src="notebooks/{name}" alt="{text}" loading="lazy">')
            link = f'<a href="notebooks/{notebook.name}.html">{image}</a>'
            lines.append(f"<figure>{link}<figcaption>{text}</figcaption></figure>")
        lines.append("</div>")
    return "\n".join(lines) + "\n"


def read_first_line(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


def render_architecture() -> str:
    """List every module below its layer, each with the first line of its docstring."""
    lines = [
        "# Architecture",
        "",
        "This page is made from the code: the layers in `pyproject.toml`, and the first docstring line of each module.",
        "Layers are listed from low to high. A test checks that a module imports only from lower layers, and that no",
        "imports form a cycle. A file that starts with `_` is private to its folder. `sciscidata` never imports",
        "`sciscirl`.",
        "",
    ]
    package, house = "", tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["tool"]["house"]
    for layer in house["layers"]:
        for unit in layer:
            if unit.partition(".")[0] != package:
                package = unit.partition(".")[0]
                lines += [f"## {package}", "", *_render_table(HOME / package / "__init__.py")]
            if unit != package:
                path = HOME / unit.replace(".", "/")
                lines += _render_unit(path if path.is_dir() else path.with_suffix(".py"))
    return "\n".join(lines) + "\n"


def _render_unit(path: Path) -> list[str]:
    relative = path.relative_to(HOME).as_posix()
    if path.is_file():
        return [f"### `{relative}`", "", read_first_line(path), ""]
    modules = [path / "__init__.py", *sorted(set(path.rglob("*.py")) - {path / "__init__.py"})]
    if relative == "sciscirl/lab":  # its folders are units of their own
        modules = modules[:1]
    return [f"### `{relative}/`", "", read_first_line(modules[0]), "", *_render_table(*modules[1:], below=path)]


def _render_table(*modules: Path, below: Path | None = None) -> list[str]:
    rows = [(m.relative_to(below or HOME).as_posix(), read_first_line(m).replace("|", "\\|")) for m in modules]
    return (
        ["| file | what it does |", "|---|---|", *(f"| `{name}` | {line} |" for name, line in rows), ""] if rows else []
    )


def read_public(package: str) -> dict[str, str]:
    """Map the public names of a package to where they are defined, in the order of ``__init__.pyi``."""
    stub = HOME / package / "__init__.pyi"
    if not stub.exists():
        return {}
    found: dict[str, str] = {}
    for node in ast.parse(stub.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {name.asname or name.name: f"{package}.{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.ImportFrom):  # a folder that has public names
            for folder in node.names:
                names = importlib.import_module(f"{package}.{folder.name}").__all__
                found |= {f"{folder.name}.{name}": f"{package}.{folder.name}.{name}" for name in names}
    return found


def group_names(package: str) -> list[tuple[str, list[str]]]:
    """Group the public names of a package as the menu does: functions by their first word, then classes."""
    names = sorted(read_public(package), key=lambda name: name.rpartition(".")[2].lower())
    functions = [name for name in names if name.islower()]
    verbs = {verb: [name for name in functions if _read_verb(name) == verb] for verb in _VERBS}
    groups = {verb.capitalize(): found for verb, found in verbs.items() if len(found) >= _LEAST_NAMES}
    used = {name for found in groups.values() for name in found}
    groups["Other functions"] = [name for name in functions if name not in used]
    groups["Configurations"] = [name for name in names if name.endswith("Config")]
    used |= {name for found in groups.values() for name in found}
    groups["Other classes"] = [name for name in names if name not in used]
    return [(group, found) for group, found in groups.items() if found]


def _read_verb(name: str) -> str:
    return name.rpartition(".")[2].partition("_")[0]


def render_api(package: str) -> dict[str, str]:
    """Make a page for every public name of a package, with signature and docstring, and one that lists them."""
    doc = ast.get_docstring(ast.parse((HOME / package / "__init__.py").read_text("utf-8"))) or ""
    parts = [f"# {package} in Python", doc.replace("\nExample:\n", "\n**Example**\n\n")]
    pages: dict[str, str] = {}
    public, modules = read_public(package), griffe.load(package, search_paths=[HOME])
    users = find_users(public)
    for title, names in group_names(package):
        are_classes = title in ("Configurations", "Other classes")
        rows = ["| name | what it does |" + " returns |" * (not are_classes), "|---|---|" + "---|" * (not are_classes)]
        for name in names:
            described: Any = modules[public[name].partition(".")[2]]
            text = described.docstring.value if described.docstring else ""
            line = text.partition("\n")[0]
            pages[f"reference/{package}/{name}.md"] = _render_name(package, name, public[name], described, users[name])
            cells = [f"[`{name}`]({package}/{name}.md)", line, *[_read_returns(described)] * (not are_classes)]
            rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        parts += [f"## {title}", "\n".join(rows)]
    return {f"reference/{package}.md": "\n\n".join(parts) + "\n", **pages}


def _render_name(package: str, name: str, path: str, described: Any, users: list[str]) -> str:  # noqa: ANN401
    """Make the page of one public name, which ends with the pages that use it most."""
    text = described.docstring.value if described.docstring else ""
    said = re.sub("[`*]", "", text.partition("\n")[0]) or f"The public name {name} of {package}."
    meta: dict[str, Any] = {"title": f"{package}.{name}", "description": said}
    if name.endswith("Config"):
        meta["tags"] = [field for field, one in described.members.items() if one.is_attribute and field[0] != "_"]
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in meta.items()), "---", ""]
    lines += [f"::: {path}", "    options:", f"      heading: {package}.{name}", "      heading_level: 1", ""]
    links = [
        f"[{read_title((HOME / 'docs' / page).read_text('utf-8'))}](../../{page})" for page in users[:_LEAST_NAMES]
    ]
    lines += [f"**See also:** {' · '.join(links)}", ""] if links else []
    return "\n".join(lines)


def _read_returns(described: Any) -> str:  # noqa: ANN401
    """Say what a function returns: its type, and the first sentence of its docstring about it."""
    kind = re.sub(r"\b(?:pl|pd|np)\.", "", str(getattr(described, "returns", None) or ""))
    text = described.docstring.value if described.docstring else ""
    found = re.search(r"^Returns:\n((?: {4}.*\n?|\n)+)", text, re.MULTILINE)
    said = re.split(r"(?<=\w[.;:])\s", " ".join(found[1].split()))[0].rstrip(".;:") if found else ""
    is_short = " " in said and len(said) < 80 and not said.endswith((")", "``")) and said.count("(") == said.count(")")
    return f"`{kind}`" + (f": {said}" if is_short else "") if kind not in ("", "None") else ""
