"""The reference of both command lines, made from their parsers: an overview, a page a command, and options of sources.

Commands that read a source have the same options for it: these stand once, on a page that the commands link.
"""

from __future__ import annotations

import html
import importlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from sciscidata.options.commands import Program, list_options, read_sections, summarise
from sciscidata.options.parser import ARGUMENTS, REQUIRED, Option, make_flag

_FOLDER: Final = "reference/commands"
#: So many options have a heading of their own.
_MANY: Final = 3
#: Titles of these pages weigh less in the search than those of handwritten pages.
_BOOST: Final = 0.6
_OWN: Final = ("general", "this command only")
#: Headings of the page of sources, by section of a settings file.
_SOURCES: Final = {
    "records": "Record files",
    "tables": "Your own tables",
    "exports": "Web of Science and Scopus",
    "labelled": "Labelled files",
    "corpus": "Corpus on disk",
    "openalex": "OpenAlex API",
    "api": "Requests to OpenAlex",
    "snapshot": "OpenAlex snapshot",
    "sciscinet": "SciSciNet",
    "synthetic": "Synthetic world",
}
#: Headings of other sections, on the pages of commands.
_SECTIONS: Final = {
    "cd": "CD index",
    "novelty": "Novelty",
    "thresholds": "Thresholds of labels",
    "eligibility": "Which works may be drawn",
    "label": "A label of your own",
    "split": "Draw",
}
_ENGINES: Final = ("Who runs the tasks of a stage, and what each task may take", "Several machines")

Options = dict[str, Option]
#: What each source is, and its options: all that some command takes.
Sources = Mapping[str, tuple[str, Options]]


def list_pages(program: str) -> dict[str, str]:
    """List the pages of a program in the order of the menu: titles, and their places."""
    commands = {name: _place(program, name) for name in _read(program).commands}
    sources = {"Options of sources": _place(program, "sources")} if _find_sources(program) else {}
    return {"All commands": f"reference/{program}_command.md", **commands, **sources}


def render_commands(program: str) -> dict[str, str]:
    """Describe a command line as its own parsers do: pages by place. Search finds an option on the first of them."""
    sources, seen = _find_sources(program), set[tuple[str, str]]()
    pages = {f"reference/{program}_command.md": _render_overview(program)}
    if sources:
        pages[_place(program, "sources")] = _render_sources(program, sources)
    for name in _read(program).commands:
        pages[_place(program, name)] = _render_command(program, name, sources, seen)
    return pages


def _read(program: str) -> Program:
    return importlib.import_module(f"{program}.cli.commands").PROGRAM


def _place(program: str, name: str) -> str:
    return f"{_FOLDER}/{program}_{re.sub('[ -]', '_', name)}.md"


def _group(program: str, name: str) -> dict[str, Options]:
    """Group the options of a command by the title that they stand below; the first of a name counts."""
    groups: dict[str, Options] = {}
    for option in list_options(_read(program).commands[name]):
        groups.setdefault(option.title, {}).setdefault(option.key, option)
    return groups


def _find_sources(program: str) -> Sources:
    found: dict[str, tuple[str, Options]] = {}
    for name in _read(program).commands:
        for title, options in _group(program, name).items():
            section = next(iter(options.values())).section
            if section in _SOURCES:
                _, known = found.setdefault(section, (title.partition("] ")[2], {}))
                known.update({key: option for key, option in options.items() if key not in known})
    return {section: found[section] for section in _SOURCES if section in found}


def _render_overview(program: str) -> str:
    commands = _read(program)
    lines = [f"# The `{program}` command", "", f"{commands.about} Each command has a page with all its options.", ""]
    lines += ["| command | what it does |", "|---|---|"]
    for name, command in commands.commands.items():
        place = _place(program, name).removeprefix("reference/")
        lines.append(f"| [`{name}`]({place}) | {summarise(command)} |")
    says = [f"Type `{program} COMMAND --help` for the main options and an example, and `--help-all` for all options."]
    switches = [
        one.flag for name in commands.commands for one in list_options(commands.commands[name]) if one.default is True
    ]
    says += [
        f"A switch that is on by default is turned off by `--no-`, as in `--no-{flag[2:]}`." for flag in switches[:1]
    ]
    says += ["An option may be written as `--option value` or as `option=value`."] * commands.takes_pairs
    if _find_sources(program):
        place = _place(program, "sources").removeprefix("reference/")
        says.append(f"Commands that read works share the [options of sources]({place}).")
    return "\n".join([*lines, "", " ".join(says), ""])


def _render_command(program: str, name: str, sources: Sources, seen: set[tuple[str, str]]) -> str:
    said = read_sections(_read(program).commands[name])
    parts = [f"# {program} {name}", said[""].strip()]
    parts += [f"```bash\n{said['Example']}\n```"] if "Example" in said else []
    own, others, shared = Options(), dict[str, Options](), dict[str, Options]()
    for title, options in _group(program, name).items():
        section = next(iter(options.values())).section
        if section in sources:
            shared[section] = options
        elif title in _OWN or len(options) < _MANY:
            own |= options
        else:
            others[title] = options
    tags: list[str] = []
    for title, options in {"Options": own, **others}.items():
        known = {key for key, option in options.items() if (option.flag, option.text) in seen}
        seen |= {(option.flag, option.text) for option in options.values()}
        heading, lead = _read_heading(title, options)
        if options:
            parts.append(f"## {heading}" + " {data-search-exclude}" * (len(known) == len(options)))
            parts += [lead] if lead else []
            parts.append(render_table(options.values(), known))
            tags += list_tags(option for key, option in options.items() if key not in known)
    if shared:
        parts += ["## Where works come from", "These options are on [one page](" + _link(program) + "):"]
        parts.append("\n".join(_render_share(program, section, sources, shared[section]) for section in shared))
    return _front(tags) + "\n\n".join(parts) + "\n"


def _front(tags: list[str]) -> str:
    """Begin a page with what the search knows of it: flags, which assets/search.js asks for by these tags."""
    return f"---\nsearch: {{boost: {_BOOST}}}\ntags: {json.dumps(tags)}\n---\n\n"


def list_tags(options: Iterable[Option]) -> list[str]:
    """List the tags of options in the search, such as ``flag_n_train``."""
    return [f"flag_{option.flag[2:].replace('-', '_')}" for option in options if option.has_flag]


def _read_heading(title: str, options: Options) -> tuple[str, str]:
    """Return the heading of options, and a sentence on what they are if the heading does not say it."""
    section, about = next((option.section for option in options.values()), ""), title.rpartition("] ")[2]
    if section in _SECTIONS:
        return _SECTIONS[
            section
        ], f"{about}. This is section `[{section}]` of a [settings file](../../configuration.md)."
    return (_ENGINES[1], f"{about}.") if title == _ENGINES[0] else (f"{title[:1].upper()}{title[1:]}", "")


def _link(program: str, section: str = "") -> str:
    anchor = f"#{_SOURCES[section].lower().replace(' ', '-')}" if section else ""
    return f"{program}_sources.md{anchor}"


def _render_share(program: str, section: str, sources: Sources, options: Options) -> str:
    """Link the options of a source, and name those that a command does not take."""
    about, known = sources[section]
    lacking = [f"`{option.flag}`" for key, option in known.items() if key not in options]
    without = f" Here without {', '.join(lacking)}." if lacking else ""
    return (
        f"- [{_SOURCES[section]}]({_link(program, section)}), `[{section}]`: {about[:1].lower()}{about[1:]}.{without}"
    )


def _render_sources(program: str, sources: Sources) -> str:
    commands = [name for name in _read(program).commands if {*sources} & _list_sections(program, name)]
    links = [f"[`{name}`]({_place(program, name).removeprefix(f'{_FOLDER}/')})" for name in commands]
    parts = [
        "# Options of sources",
        "These options say where works come from. [Choose a source](../../sources/index.md) first.",
    ]
    parts += [
        f"They are for {', '.join(links)}. Each section of a [settings file](../../configuration.md) is one source."
    ]
    for section, (about, options) in sources.items():
        parts += [f"## {_SOURCES[section]}", f"Section `[{section}]`: {about[:1].lower()}{about[1:]}."]
        parts.append(render_table(options.values()))
    tags = list_tags(option for _, options in sources.values() for option in options.values())
    return _front(tags) + "\n\n".join(parts) + "\n"


def _list_sections(program: str, name: str) -> set[str]:
    return {option.section for options in _group(program, name).values() for option in options.values()}


def render_table(options: Iterable[Option], known: Collection[str] = ()) -> str:
    """Draw a table of options: the flag, what it does, values and default. Search finds the first two.

    ``known`` are keys of options that search finds on another page.
    """
    hide = " data-search-exclude"
    heads = "".join(f"<th>{name}</th>" for name in ("option", "what it does", "values", "default"))
    lines = ['<div class="options"><table>', f"<thead{hide}><tr>{heads}</tr></thead>", "<tbody>"]
    for option in options:
        flag = f"<code>{option.flag}</code>"
        if option.section != ARGUMENTS and option.flag != make_flag(option.name):
            flag += f" <small{hide}>setting <code>{option.name}</code></small>"
        is_switch = bool in option.hint.kinds
        values = "yes or no" if is_switch else option.name_none(str(option.hint))
        cells = f"<td{hide}>{html.escape(values)}</td> <td{hide}>{_render_default(option)}</td>"
        row = f"<tr{hide * (option.key in known)}>"
        lines.append(f"{row}<td>{flag}</td> <td>{_render_text(option)}</td> {cells}</tr>")
    return "\n".join([*lines, "</tbody>", "</table></div>"])


def _render_text(option: Option) -> str:
    """Turn the text of a docstring into that of a page, which ends with a full stop and leaves out the default."""
    text = option.text
    if option.default in (None, ()) and option.default_text:  # the text says it, and its own column, too
        said = re.compile(r"(^|[.;,] +)(?:None|[Ee]mpty): [^.;(]+(?:[.;]|$)(?! *\()")
        text = said.sub(lambda found: ". " if found[1] and text[found.end() :].strip() else "", text).replace(
            ".  ", ". "
        )
    quoted = re.sub(r"``(.*?)``", r"<code>\1</code>", html.escape(text.strip() or option.text, quote=False))
    return quoted if quoted.endswith((".", "?", "!")) or not quoted else f"{quoted}."


def _render_default(option: Option) -> str:
    text = html.escape(option.default_text, quote=False)
    is_word = option.default in (None, (), REQUIRED) or bool in option.hint.kinds or " " in text
    return text if is_word or not text else f"<code>{text}</code>"
