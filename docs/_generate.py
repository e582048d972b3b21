"""MkDocs hooks of the documentation site: they make pages from code and notebooks, and MathML from formulas.

Pages made from code: both command lines (from their parsers), both Python references (from ``__init__.pyi`` and
docstrings, a page for each name), and the architecture (from the layers in pyproject.toml and the first docstring line
of each module). Pages made from notebooks, with the outputs that ``_notebooks.py`` kept in them: one each, and the
gallery of their pictures.
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
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HOME = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((HOME / "notebooks").glob("*.ipynb"))
MEASUREMENTS = sorted([*(HOME / "benchmarks").glob("*.md"), *(HOME / "benchmarks" / "notes").glob("*.md")])
_PACKAGES = ("sciscidata", "sciscirl")
_RUN_NOTEBOOKS = (
    "To run notebooks, install what they need with `python3 scripts/install.py notebooks`. "
    "Then open them with `.venv/bin/jupyter lab notebooks`."
)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_PICTURE = re.compile(r'<img alt="[^"]*" src="([^"]+)"[^>]*>')
_OPTION_ROW = re.compile(r"<tr>(?=\s*<td><code>([^<]+)</code>)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the page of each public name below that of its package, and state the version at the foot of each page."""
    import sciscidata

    config.copyright = f"sciscidata {sciscidata.__version__}"
    (sections,) = (entry["Reference"] for entry in config.nav or [] if "Reference" in entry)
    for entry in sections:
        ((title, place),) = entry.items()
        package = Path(place).stem
        if package in _PACKAGES:
            names = sorted(read_public(package), key=str.lower)
            entry[title] = [{"All names": place}, *({name: f"reference/{package}/{name}.md"} for name in names)]
    notes = [path for path in MEASUREMENTS if path.parent.name == "notes"]
    sections.append({"Laboratory notes": [{read_title(path): f"measurements/notes/{path.name}"} for path in notes]})
    return config


def read_title(path: Path) -> str:
    """Return the first heading of a page."""
    return path.read_text("utf-8").partition("\n")[0].removeprefix("# ")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {
        "reference/sciscidata_command.md": render_command("sciscidata"),
        "reference/sciscirl_command.md": render_command("sciscirl"),
        **{name: page for package in _PACKAGES for name, page in render_api(package).items()},
        "reference/architecture.md": render_architecture(),
        **{f"measurements/{path.relative_to(HOME / 'benchmarks')}": render_measurements(path) for path in MEASUREMENTS},
        "changelog.md": (HOME / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "](").replace("](benchmarks/", "](measurements/"),
        "gallery.md": render_gallery(notebooks := [read_notebook(path) for path in NOTEBOOKS]),
        **{f"notebooks/{notebook.name}.md": notebook.page for notebook in notebooks},
        **{f"notebooks/{name}": drawn for notebook in notebooks for name, (_, drawn) in notebook.pictures.items()},
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Lead to the page of a notebook or of measurements, where the repository has its file."""
    markdown = re.sub(r"\]\(\.\./((?:\.\./)*)benchmarks/([\w/]+\.md)", r"](\1measurements/\2", markdown)
    return re.sub(r"\]\(\.\./((?:\.\./)*notebooks/\w+)\.ipynb", r"](\1.md", markdown)


def render_measurements(path: Path) -> str:
    """Turn a page of ``benchmarks/`` into one of the site, without links to files. Search leaves it out."""
    text = re.sub(r"(\]\((?:\.\./)+)docs/", r"\1", path.read_text("utf-8"))
    text = re.sub(r"!?\[([^\]]+)\]\((?![a-z]+:|#|[^)]*\.md[#)])[^)]*\)", r"\1", text)
    return f"---\nsearch:\n  exclude: true\n---\n\n{text}"


def on_page_content(content: str, page: Page, files: Files, **_: object) -> str:
    """Turn LaTeX into MathML, which needs no script; fit pictures to phones; let search find an option once."""
    content = _FORMULA.sub(_render_formula, content)
    folder = posixpath.dirname(page.file.src_uri)

    def fit(found: re.Match[str]) -> str:
        """Let a picture lead to its file, where it can be enlarged; take the narrow one on a phone if there is one."""
        narrow = found[1].replace(".png", "_narrow.png")
        source = f'<source media="(max-width: 44em)" srcset="{narrow}">'
        is_there = posixpath.normpath(posixpath.join(folder, narrow)) in files.src_uris
        return f'<a href="{found[1]}"><picture>{source if is_there else ""}{found[0]}</picture></a>'

    seen: set[str] = set()

    def skip(found: re.Match[str]) -> str:
        is_new = found[1] not in seen
        seen.add(found[1])
        return "<tr>" if is_new else "<tr data-search-exclude>"

    return _OPTION_ROW.sub(skip, _PICTURE.sub(fit, content)) if folder == "reference" else _PICTURE.sub(fit, content)


def _render_formula(found: re.Match[str]) -> str:
    latex = html.unescape(found[2]).strip()[2:-2]  # between \( and \), or \[ and \]
    display = "block" if found[1] == "div" else "inline"
    return f'<{found[1]} class="formula">{convert(latex, display=display)}</{found[1]}>'


class Notebook(NamedTuple):
    """A notebook as a page, and its pictures by name of file: caption and content."""

    name: str
    title: str
    question: str
    page: str
    pictures: dict[str, tuple[str, bytes]]


def read_notebook(path: Path) -> Notebook:
    """Make a page from a notebook and the outputs that are kept in it; nothing runs."""
    parts: list[str] = []
    pictures: dict[str, tuple[str, bytes]] = {}
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
                pictures[name] = printed, base64.b64decode(shown["image/png"])
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
        for name, (caption, _) in notebook.pictures.items():
            text = html.escape(caption, quote=True)
            image = f'<img src="notebooks/{name}" alt="{text}" loading="lazy">'
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


def render_api(package: str) -> dict[str, str]:
    """Make a page for every public name of a package, with signature and docstring, and one that lists them."""
    doc = ast.get_docstring(ast.parse((HOME / package / "__init__.py").read_text("utf-8"))) or ""
    parts = [f"# {package}", doc.replace("\nExample:\n", "\n**Example**\n\n")]
    pages: dict[str, str] = {}
    public, modules = read_public(package), griffe.load(package, search_paths=[HOME])
    for title, is_class in (("Functions", False), ("Configurations and other classes", True)):
        rows: list[str] = []
        for name in sorted((name for name in public if name.islower() != is_class), key=str.lower):
            place = f"reference/{package}/{name}.md"
            options = f"heading: {package}.{name}\n      heading_level: 1"
            pages[place] = f"::: {public[name]}\n    options:\n      {options}\n"
            described: Any = modules[public[name].partition(".")[2]]
            line = described.docstring.value.partition("\n")[0] if described.docstring else ""
            rows.append(f"- [`{name}`]({package}/{name}.md): {line}")
        parts += [f"## {title}", "\n".join(rows)] if rows else []
    return {f"reference/{package}.md": "\n\n".join(parts) + "\n", **pages}


def render_command(program: str) -> str:
    """Describe a command line as its own parsers do."""
    from sciscidata.options.commands import list_options, read_sections
    from sciscidata.options.parser import ARGUMENTS, plain

    commands = importlib.import_module(f"{program}.cli.commands").PROGRAM
    parts = [f"# The `{program}` command\n"]
    parts += ["An option may be written as `--option value` or as `option=value`.\n"] * commands.takes_pairs
    for name, command in commands.commands.items():
        said, headings = read_sections(command), {}
        parts += [f"## `{program} {name}`", "", said[""].strip(), ""]
        parts += ["```text", said["Example"], "```", ""] if "Example" in said else []
        for option in list_options(command):
            headings.setdefault(option.title, {}).setdefault(option.key, option)
        for title, options in headings.items():
            has_settings = any(option.section != ARGUMENTS for option in options.values())
            head = ["option", *["setting"] * has_settings, "values", "default", "what it does"]
            rows = [head, ["---"] * len(head)]
            for option in options.values():
                setting = "" if option.section == ARGUMENTS else f"`{option.name}`"
                default = f"`{option.default_text}`" if option.default_text else ""
                values, text = option.name_none(str(option.hint)), plain(option.text)
                cells = [f"`{option.flag}`", *[setting] * has_settings, values, default, text]
                rows.append([cell.replace("|", r"\|") for cell in cells])
            parts += [f"### {title}", "", *(f"| {' | '.join(row)} |" for row in rows)]
            parts.append("")
    return "\n".join(parts)
