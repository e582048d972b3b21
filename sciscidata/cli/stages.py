"""The commands that do one stage: ingest, graph, cd, novelty, export. Each parses, calls once, prints what came out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sciscidata.cli.flags import Flag, add_flags, list_flags

if TYPE_CHECKING:
    from sciscidata.config import BuildConfig

#: From the parsed arguments, and settings that they go over, to one configuration.
Configure = Callable[[argparse.Namespace, dict[str, Any]], "BuildConfig"]

_SOURCES = ("records", "synthetic", "sciscinet", "snapshot")
_TOP = {"cache_dir", "overwrite"}
_EXPORT = {"source", "cache_dir", "novelty", "background"}
_FAMILY = Flag(
    "how to score",
    "--family",
    "cd",
    "family",
    {"action": argparse.BooleanOptionalAction, "help": "also DI_5, mCD, dependence and others (no)"},
)


def add_stages(commands: Any, configure: Configure) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add these commands to the parser's."""
    ingest = _command(commands, "ingest", "read a whole source once into a corpus on disk")
    flags = [flag for flag in list_flags() if flag.section in _SOURCES or _is_top(flag, {*_TOP, "source"})]
    whole = {"choices": _SOURCES, "help": "synthetic; or what --input, --sciscinet or --snapshot name"}
    flags = [flag._replace(details=flag.details | whole) if flag.name == "source" else flag for flag in flags]
    add_flags(ingest, [flag for flag in flags if flag.flag != "--recompute"])
    ingest.add_argument("--out", dest=".out", metavar="CORPUS", required=True, help="the folder to write")
    ingest.add_argument(
        "--texts", action=argparse.BooleanOptionalAction, default=True, help="titles and abstracts too (yes)"
    )
    ingest.set_defaults(run=partial(_ingest, configure))
    graph = _command(commands, "graph", "build the citation graph of a corpus")
    _add_corpus(graph, {"cache_dir"}, ())
    graph.set_defaults(run=partial(_graph, configure))
    scores = _command(commands, "cd", "score every work of a corpus by its CD index")
    _add_corpus(scores, _TOP, ("cd",), _FAMILY)
    scores.add_argument(
        "--shard", metavar="K/N", default=None, help="only the K-th of N shares of the works, as 2/8 (the whole)"
    )
    scores.set_defaults(run=partial(_cd, configure))
    novelty = _command(commands, "novelty", "score every work of a corpus by its venue pairs")
    _add_corpus(novelty, {*_TOP, "background"}, ("novelty",))
    novelty.set_defaults(run=partial(_novelty, configure))
    export = _command(commands, "export", "label every work of a source, instead of drawing a slice", resumes=False)
    sections = (*_SOURCES, "corpus", "cd", "novelty", "thresholds")
    add_flags(export, [flag for flag in list_flags() if flag.section in sections or _is_top(flag, _EXPORT)])
    export.add_argument("--out", dest=".out", metavar="FOLDER", required=True, help="the folder to write")
    export.set_defaults(run=partial(_export, configure))
    for command in (scores, novelty):
        command.add_argument("--out", dest=".out", metavar="FILE", required=True, help="the Parquet file to write")


def _command(commands: Any, name: str, text: str, *, resumes: bool = True) -> argparse.ArgumentParser:  # noqa: ANN401
    goes_on = " A run that was stopped goes on where it ended." if resumes else ""
    description = f"{text[0].upper()}{text[1:]}.{goes_on} Defaults stand in brackets."
    return commands.add_parser(name, help=text, description=description, argument_default=argparse.SUPPRESS)


def _is_top(flag: Flag, names: set[str]) -> bool:
    return flag.section == "" and flag.name in names


def _add_corpus(parser: argparse.ArgumentParser, top: set[str], sections: tuple[str, ...], *more: Flag) -> None:
    flags = [flag for flag in list_flags() if flag.section in sections or _is_top(flag, top)]
    cache = {"help": "the graph, and what is finished of a run that was stopped (CORPUS/cache)"}
    flags = [flag._replace(details=flag.details | cache) if flag.name == "cache_dir" else flag for flag in flags]
    add_flags(parser, [*flags, *more])
    parser.add_argument("corpus.folder", metavar="CORPUS", help="what `sciscidata ingest` has made")


def _ingest(configure: Configure, options: argparse.Namespace) -> None:
    from sciscidata.cli.summary import measured, print_corpus
    from sciscidata.stages import ingest

    config = configure(options, {})
    with measured():
        ingest(config.source, config.out, cache_dir=config.cache_dir, texts=options.texts, overwrite=config.overwrite)
        print_corpus(config.out)


def _graph(configure: Configure, options: argparse.Namespace) -> None:
    from sciscidata.cli.summary import measured, print_graph
    from sciscidata.corpus.graph import graph_folder, open_corpus_graph

    folder, config = _of_corpus(configure, options)
    with measured():
        graph = open_corpus_graph(folder, cache_dir=config.cache_dir)
        print_graph(graph, graph_folder(graph))


def _cd(configure: Configure, options: argparse.Namespace) -> None:
    from sciscidata.cli.summary import measured, print_result
    from sciscidata.stages import write_cd_index

    folder, config = _of_corpus(configure, options)
    with measured():
        path = write_cd_index(
            folder,
            config.out,
            config.cd,
            shard=options.shard,
            cache_dir=config.cache_dir,
            overwrite=config.overwrite,
        )
        print_result(path)


def _novelty(configure: Configure, options: argparse.Namespace) -> None:
    from sciscidata.cli.summary import measured, print_result
    from sciscidata.stages import write_atypicality

    folder, config = _of_corpus(configure, options)
    with measured():
        path = write_atypicality(
            folder,
            config.out,
            config.novelty,
            background=config.background,
            cache_dir=config.cache_dir,
            overwrite=config.overwrite,
        )
        print_result(path)


def _export(configure: Configure, options: argparse.Namespace) -> None:
    from sciscidata.cli.summary import measured, print_labelled
    from sciscidata.pipeline import export_labelled

    config = configure(options, {})
    with measured():
        print_labelled(export_labelled(config), config.out)


def _of_corpus(configure: Configure, options: argparse.Namespace) -> tuple[Path, BuildConfig]:
    """Find the corpus, and its own cache unless another one is named."""
    folder = Path(getattr(options, "corpus.folder"))
    return folder, configure(options, {"": {"cache_dir": str(folder / "cache")}})
