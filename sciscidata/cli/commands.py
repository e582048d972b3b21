"""The commands: which function each one calls, with which options, and what it prints."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
import time
import tomllib
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sciscidata import __version__
from sciscidata.errors import ConfigError
from sciscidata.options.parser import ARGUMENTS, REQUIRED, Option, OptionParser, plain

if TYPE_CHECKING:
    from sciscidata.config import BuildConfig
    from sciscidata.engines.engine import Engine

#: What commands have in common that score a corpus.
_SCORES: Final[dict[str, Any]] = {
    **{"takes": "CORPUS", "cache": "CORPUS/cache", "writes": "Parquet file to write", "has_engine": True},
}
_CONFIG_HELP: Final = "TOML file of settings; flags go over it"


class Command(NamedTuple):
    """One command, as ``commands.toml`` states it: what it does, and an example that works, or would with such files.

    Options are ``sections`` of the settings file (or "all"), without the settings ``without``; ``top`` of its top
    level; and ``arguments`` of ``function`` ("module:function"). ``--help`` shows the flags ``main``. ``takes`` is its
    one positional argument. ``writes`` is what ``--out`` names. ``cache`` says where the cache lies, if not in the
    user's. ``goes_on``: a stopped run goes on where it ended. With ``has_engine``, fields of EngineConfig are options.
    """

    help: str
    run: Callable[[argparse.Namespace, Any], None]
    example: str
    next: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    top: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    function: str = ""
    arguments: tuple[str, ...] = ()
    main: tuple[str, ...] = ()
    takes: str = ""
    writes: str = ""
    cache: str = ""
    goes_on: bool = False
    has_engine: bool = False


def _engine(options: argparse.Namespace) -> AbstractContextManager[Engine | None]:
    """Connect to the engine that flags name; None if they name none."""
    from sciscidata.engines.config import EngineConfig
    from sciscidata.engines.engine import engine

    given = _given(options, [field.name for field in dataclasses.fields(EngineConfig)])
    return engine(**given) if given else nullcontext()


def _given(options: argparse.Namespace, names: Collection[str] | None = None) -> dict[str, Any]:
    """Return the arguments of a command that were given, by name; None: all of them."""
    start = f"{ARGUMENTS}."
    given = {key.removeprefix(start): value for key, value in vars(options).items() if key.startswith(start)}
    return {name: value for name, value in given.items() if names is None or name in names}


def _storage(config: BuildConfig) -> dict[str, Any]:
    return {"cache_dir": config.cache_dir, "overwrite": config.overwrite}


def build_arguments(*, dry_run: bool = False, print_config: bool = False, from_manifest: Path | None = None) -> None:
    """Declare what ``build`` can be asked for besides its settings.

    Args:
        dry_run: say what would be read, which classes are likely, and what it takes in time and dollars.
        print_config: print the settings of this run as a file for --config, and end.
        from_manifest: release, or its manifest.json, to repeat; it names no paths, so flags name those of its source.
    """
    _ = dry_run, print_config, from_manifest


def _build(options: argparse.Namespace, config: BuildConfig) -> None:
    from sciscidata.cli.summary import log_first_steps, print_lines, print_release
    from sciscidata.pipeline import build

    given = _given(options)
    if given.get("print_config"):
        from sciscidata.cli.run_settings import render_toml

        print_lines(render_toml(config).splitlines())
        return
    if given.get("dry_run"):
        from sciscidata.cli.dry_run import describe_plan

        print_lines(describe_plan(config))
        return
    is_first = not config.cache_dir.exists()
    release = build(config)
    print_release(release)
    if is_first:
        log_first_steps(release)
    if (path := given.get("from_manifest")) is not None:
        from sciscidata.cli.run_settings import compare_lines

        print_lines([compare_lines(release, Path(path))])


def _background(options: argparse.Namespace, config: BuildConfig) -> None:
    from sciscidata.cli.summary import print_background
    from sciscidata.pipeline import write_background

    start = time.monotonic()
    if config.novelty is None or config.background is not None:
        setting = "novelty = false" if config.novelty is None else f"background = {config.background}"
        raise ConfigError(
            f"{setting} has no effect: this command makes a null model of the source's own works. Leave it out."
        )
    with _engine(options) as engine:
        table = write_background(config.source, config.out, config.novelty, engine=engine, **_storage(config))
    print_background(table, time.monotonic() - start)


def _ingest(options: argparse.Namespace, config: BuildConfig) -> None:
    from sciscidata.cli.summary import measured, print_corpus
    from sciscidata.stages import ingest

    with measured(), _engine(options) as engine:
        ingest(config.source, config.out, engine=engine, **_given(options, ["texts"]), **_storage(config))
        print_corpus(config.out)


def _graph(_: argparse.Namespace, config: BuildConfig) -> None:
    from sciscidata.cli.summary import measured, print_graph
    from sciscidata.corpus.folder import open_corpus_graph
    from sciscidata.graph.graph import graph_folder
    from sciscidata.stages import warn_of_graph

    with measured():
        graph = open_corpus_graph(_corpus(config), cache_dir=config.cache_dir)
        warn_of_graph(graph, _corpus(config))
        print_graph(graph, graph_folder(graph))


def _score(options: argparse.Namespace, config: BuildConfig) -> None:
    """Score the corpus that the command names into the file of ``--out``, and print what it holds."""
    from sciscidata.cli.summary import measured, print_lines, print_result

    command = COMMANDS[options.command]
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in _given(options, command.arguments).items()
    }
    for section in command.sections:
        given["config"] = getattr(config, section)
    if options.command == "cd":
        # The first window of --window 5 10 has its columns without a name at their ends already.
        further = tuple(window for window in config.cd.windows if window != config.cd.window_years)
        given["config"] = dataclasses.replace(config.cd, windows=further)
    if "background" in command.top:
        given["background"] = config.background
    with measured(), _engine(options) as engine:
        file = _load(command)(_corpus(config), config.out, **given, engine=engine, **_storage(config))
        print_result(file)
        picture = file.with_suffix(".png")
        if options.command == "sweep" and picture.exists():  # there is none if no work has an index
            print_lines([f"picture: {picture}"])


def _export(options: argparse.Namespace, config: BuildConfig) -> None:
    from sciscidata.cli.summary import measured, print_labelled
    from sciscidata.pipeline import export_labelled

    with measured(), _engine(options) as engine:
        print_labelled(export_labelled(config, engine=engine), config.out)


def _verify(options: argparse.Namespace, _: None) -> None:
    from sciscidata.cli.summary import print_verified
    from sciscidata.release.verify import verify

    print_verified(verify(options.path))


def _describe(options: argparse.Namespace, _: None) -> None:
    from sciscidata.cli.page import describe_path

    given = _given(options)
    html = given.pop("html", None)
    describe_path(options.path, html=None if html is None else Path(html), **given)


def diagnose_corpus(folder: Path, cache_dir: Path, *, picture: Path | None = None) -> None:
    """Print every check of a corpus on disk.

    Args:
        folder: the corpus.
        cache_dir: for the graph.
        picture: file to draw the checks into: PNG, SVG or PDF. None: no picture.
    """
    from sciscidata.cli.summary import print_lines
    from sciscidata.corpus.folder import scan_corpus
    from sciscidata.diagnostics.diagnose import diagnose
    from sciscidata.diagnostics.picture import plot_diagnostics
    from sciscidata.plots.figure import check_picture

    if picture is not None:
        check_picture(Path(picture))
    works, citations, _ = scan_corpus(folder)
    checks = diagnose(works, citations, cache_dir=cache_dir)
    print_lines(f"{level:8} {text}" for level, text in checks.select("level", "text").rows())
    if picture is not None:
        plot_diagnostics(checks, picture, title=folder.name)


def _diagnose(options: argparse.Namespace, config: BuildConfig) -> None:
    diagnose_corpus(_corpus(config), config.cache_dir, **_given(options))


def _publish(options: argparse.Namespace, _: None) -> None:
    from sciscidata.cli.summary import print_published
    from sciscidata.hubs.publish import publish

    print_published(publish(options.path, **_given(options)))


def _fetch(options: argparse.Namespace, _: None) -> None:
    from sciscidata.cli.summary import print_verified
    from sciscidata.hubs.fetch import fetch
    from sciscidata.release.verify import verify

    print_verified(verify(fetch(options.address, **_given(options))))


def _complete(options: argparse.Namespace, _: None) -> None:
    from shtab import complete

    sys.stdout.write(complete(make_parser(*COMMANDS), options.shell) + "\n")


def _tasks(options: argparse.Namespace, _: None) -> None:
    from sciscidata.cli.summary import print_lines
    from sciscidata.engines.engine import do_listed

    print_lines(do_listed(options.path, **_given(options)))


def _corpus(config: BuildConfig) -> Path:
    """Return the corpus that the command names; it is a source like any other."""
    return Path(config.source.folder)  # pyright: ignore[reportAttributeAccessIssue]


_RUN: Final[Mapping[str, Callable[[argparse.Namespace, Any], None]]] = {
    "build": _build,
    "background": _background,
    "ingest": _ingest,
    "graph": _graph,
    **dict.fromkeys(("cd", "null-cd", "sweep", "novelty"), _score),
    "tasks": _tasks,
    "export": _export,
    "verify": _verify,
    "describe": _describe,
    "diagnose": _diagnose,
    "publish": _publish,
    "fetch": _fetch,
    "completion": _complete,
}


def _read_commands() -> Generator[tuple[str, Command]]:
    """Read ``commands.toml``."""
    table: Any = tomllib.loads(Path(__file__).with_name("commands.toml").read_text("utf-8"))
    for name, stated in table.items():
        shared = _SCORES if stated.pop("scores", False) else {}
        lists = {key: tuple(words) for key, words in stated.items() if isinstance(words, list)}
        main = tuple(stated.pop("main", "").split())
        yield name, Command(run=_RUN[name], **stated | lists | shared, main=main)


COMMANDS: Final[Mapping[str, Command]] = dict(_read_commands())


def list_options(name: str) -> list[Option]:
    """List the options of a command, in the order of the settings file."""
    from sciscidata.cli.settings import INGESTED, SECTIONS, SOURCES, list_arguments, list_settings
    from sciscidata.options.checks import Hint

    command, options = COMMANDS[name], list[Option]()
    of_groups: dict[str, Collection[str]] = {"all": SECTIONS, "ingested": INGESTED}
    sections = {section for name in command.sections for section in of_groups.get(name, (name,))}
    for option in list_settings() if command.top else ():
        if option.section == "" and option.name in command.top:
            if option.name == "source" and "all" not in command.sections:
                hint = Hint(Literal[*(kind for kind in SOURCES if kind in sections)])
                option = dataclasses.replace(option, hint=hint, default=None)
            options.append(_for_command(option, command))
        elif option.section in sections:
            options += [option] if option.name not in command.without else []
    if command.function:
        options += list_arguments(_load(command), command.arguments)
    if command.has_engine:
        from sciscidata.engines.config import EngineConfig

        options += list_arguments(EngineConfig, [field.name for field in dataclasses.fields(EngineConfig)])
    return options


def _load(command: Command) -> Callable[..., Any]:
    """Import the function that a command calls; its arguments are options of the command."""
    module, _, function = command.function.partition(":")
    return getattr(importlib.import_module(module), function)


def _for_command(option: Option, command: Command) -> Option:
    """Say of a setting of the top level what it is for this command."""
    if option.name == "out" and command.writes:
        return dataclasses.replace(option, text=command.writes, default=REQUIRED)
    if option.name == "out":
        return dataclasses.replace(option, default="slices/SOURCE")
    if option.name == "cache_dir":
        return dataclasses.replace(option, default=command.cache or "the user's cache folder")
    return option


def make_parser(*names: str) -> OptionParser:
    """Make the parser of the command line, with the options of the commands that are named."""
    parser = OptionParser(prog="sciscidata", description="Labels for scientific impact, from the citation record.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, command in COMMANDS.items():
        text = f"{command.help[0].upper()}{command.help[1:]}." + (
            " A run that was stopped goes on where it ended." if command.goes_on else ""
        )
        sub = commands.add_parser(name, help=command.help, description=text, example=command.example)
        if name == "completion":
            sub.add_argument("shell", choices=("bash", "zsh", "tcsh"), metavar="SHELL", help="bash, zsh or tcsh")
        elif command.takes == "CORPUS":
            sub.add_argument("corpus.folder", metavar="CORPUS", help="what `sciscidata ingest` has made")
        elif command.takes == "ADDRESS":
            sub.add_argument("address", metavar="ADDRESS", help="hf:OWNER/NAME, or hf:OWNER/NAME@REVISION")
        elif command.takes:
            sub.add_argument("path", type=_read_path, metavar="PATH", help="where it lies")
        if name in names and command.top:
            sub.add_argument("--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help=_CONFIG_HELP)
        if name in names and (command.top or command.function):
            sub.add_options(list_options(name), command.main, section_titles())
    return parser


def _read_path(text: str) -> Path:
    from sciscidata.remote.object_store import is_url

    if is_url(text):
        raise argparse.ArgumentTypeError("is a URL, needs a path on a disk. Copy the file out of the store first")
    return Path(text)


def section_titles() -> dict[str, str]:
    """Return the heading of each section of options, in the order of the settings file."""
    from sciscidata.cli.settings import SECTIONS

    about = {section: plain((kind.__doc__ or "").partition(".")[0]) for section, kind in SECTIONS.items()}
    titles = {section: f"[{section}] {text}" for section, text in about.items()}
    return {"": "general", ARGUMENTS: "this command only"} | titles
