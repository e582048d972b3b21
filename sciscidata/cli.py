"""The ``sciscidata`` command: a release, or a null model on its own. Parses, calls once, prints what came out."""

from __future__ import annotations

import argparse
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_type_hints

# Nothing else up here: main has to be ready for Ctrl-C before the packages are loaded, which takes its time.
from sciscidata import __version__
from sciscidata.errors import SciSciDataError

if TYPE_CHECKING:
    from sciscidata.pipeline import BuildConfig

_YES_NO = {"action": argparse.BooleanOptionalAction}


def _window(text: str) -> int | str:
    try:
        return "all" if text == "all" else int(text)
    except ValueError:
        msg = f"{text!r} is neither a whole number nor 'all'"
        raise argparse.ArgumentTypeError(msg) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done. 1: the user can mend it. 2: wrong usage. 75: stopped; the same command goes on later. 130: interrupted.

    Args:
        arguments: None takes those of this process, which the command then has to itself: Ctrl-C ends it.
    """
    if arguments is not None:
        return _run(arguments)
    signal.signal(signal.SIGINT, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be text
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(sys.argv[1:])
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from sciscidata.storage import clear_unfinished

        # Polars runs what was deferred in threads of its own, which hear of no interrupt: what they would have
        # cleared away is done here, and the cursor shown that a progress bar of theirs has hidden.
        clear_unfinished()
        sys.stderr.write(("\x1b[?25h" if sys.stderr.isatty() else "") + "interrupted: nothing was released\n")
        sys.stderr.flush()
        # At once: the interpreter's own end would wait for, or break off inside, threads that are still at work.
        os._exit(130)


def build_main() -> int:
    """Run ``sciscidata build`` with the arguments of a script."""
    sys.argv.insert(1, "build")
    return main()


def _interrupt(*_: object) -> None:
    """Raise KeyboardInterrupt for the first Ctrl-C, and once only; a second one ends the process there and then.

    Polars raises its own for the same key press: another on top of it would cut short the removal of half work.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not isinstance(sys.exception(), KeyboardInterrupt):
        raise KeyboardInterrupt


def _run(arguments: Sequence[str]) -> int:
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        # Without their values: that of a misspelt --api-key is a key.
        names = [word.partition("=")[0] for word in unknown if word.startswith("--")]
        parser.error(f"unknown: {', '.join(names) or 'a value after the last flag that takes one'}. See --help.")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        options.run(options)
    except SciSciDataError as error:
        sys.stderr.write(f"error: {error}\n")
        return getattr(error, "exit_code", 1)
    return 0


class _Parser(argparse.ArgumentParser):
    """Repeats nothing that may be a key."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        # Where a flag stands before the command, its value is taken for one.
        if message.startswith("argument COMMAND: invalid choice"):
            message = "the first word needs to be one of build, background, verify, describe; flags come after it."
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sciscidata", description="Labelled, balanced, frozen slices of science.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser(
        "build",
        help="read works, score and label them, release a slice",
        description="Read works, score and label them, and release a balanced, frozen slice. "
        "Defaults stand in brackets.",
        argument_default=argparse.SUPPRESS,
    )
    _add_flags(build, _flags())
    build.set_defaults(run=_build)
    background = commands.add_parser(
        "background",
        help="save the null model of novelty of a whole corpus",
        description="Save how often every two venues are expected to meet in a reference list, by year, over all works "
        "of a source: build --background FILE scores other works against it. Defaults stand in brackets.",
        argument_default=argparse.SUPPRESS,
    )
    _add_flags(background, [flag for flag in _flags() if _is_for_background(*flag[2:4])])
    background.add_argument("--out", dest=_key("", "out"), metavar="FILE", required=True, help="the table to write")
    background.set_defaults(run=_background)
    for name, run, text in (
        ("verify", _verify, "recompute every hash and count of a release"),
        ("describe", _describe, "print what a release holds and how it came about"),
    ):
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        command.add_argument("release", type=Path, metavar="FOLDER", help="the folder of a release")
        command.set_defaults(run=run)
    return parser


def _add_flags(parser: argparse.ArgumentParser, flags: Sequence[tuple[str, str, str, str, dict[str, Any]]]) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file of settings; flags go over it")
    groups: dict[str, Any] = {}
    for group, flag, section, name, details in flags:
        groups.setdefault(group, parser.add_argument_group(group)).add_argument(
            flag, dest=_key(section, name), **details
        )


def _is_for_background(section: str, name: str) -> bool:
    if section == "":
        return name in ("source", "cache_dir", "overwrite")
    return section in ("records", "synthetic") or (section == "novelty" and name != "score")


def _flags() -> list[tuple[str, str, str, str, dict[str, Any]]]:
    """List all flags: group, flag, section and name of the setting, and what argparse needs to know."""
    from sciscidata.cdindex import COMPAT
    from sciscidata.labels import NOVELTY_RULES, PRESETS
    from sciscidata.novelty_config import COMPAT as NOVELTY_COMPAT
    from sciscidata.novelty_config import NoveltyConfig
    from sciscidata.settings import SOURCES
    from sciscidata.splits import BALANCED

    of_novelty = {name: get_args(hint) for name, hint in get_type_hints(NoveltyConfig).items()}
    return [
        ("what to read", "--source", "", "source", {"choices": SOURCES, "help": "openalex, or records with --input"}),
        ("what to read", "--input", "records", "inputs", {
            "nargs": "+", "metavar": "FILE",
            "help": "files, folders or patterns of OpenAlex works: JSON lines (.gz, .zst too), API pages, single works",
        }),
        ("what to read", "--strict", "records", "strict", {**_YES_NO, "help": "stop at the first corrupt line"}),
        ("what to read", "--n-works", "synthetic", "n_works", {"type": int, "help": "size of the synthetic world"}),
        ("what to read", "--world-seed", "synthetic", "seed", {"type": int, "help": "seed of the synthetic world"}),
        ("OpenAlex", "--email", "api", "email", {
            "metavar": "ADDRESS", "help": "told to OpenAlex as a courtesy; not kept",
        }),
        ("OpenAlex", "--api-key", "api", "api_key", {
            "metavar": "KEY", "help": "free at openalex.org/settings/api; better in OPENALEX_API_KEY",
        }),
        ("OpenAlex", "--base-url", "api", "base_url", {
            "metavar": "URL", "help": "another server; or OPENALEX_BASE_URL",
        }),
        ("OpenAlex", "--max-cost-usd", "api", "max_cost_usd", {"type": float, "help": "stop before spending more"}),
        ("OpenAlex", "--offline", "api", "offline", {**_YES_NO, "help": "only what earlier runs have fetched"}),
        ("OpenAlex", "--from-year", "openalex", "from_year", {
            "type": int, "help": "candidates from this year on (1990)",
        }),
        ("OpenAlex", "--to-year", "openalex", "to_year", {"type": int, "help": "candidates up to this year (2018)"}),
        ("OpenAlex", "--sample-seed", "openalex", "seed", {"type": int, "help": "seed of the candidates' samples (0)"}),
        ("OpenAlex", "--max-references", "openalex", "max_references", {
            "type": int, "help": "pass over candidates with more; beyond 500 each costs many calls (500)",
        }),
        ("OpenAlex", "--venues", "openalex", "venues", {
            **_YES_NO, "help": "also fetch the venues of references, for novelty (yes)",
        }),
        ("what to draw", "--n-train", "split", "n_train", {"type": int, "help": "training works (5000)"}),
        ("what to draw", "--n-test", "split", "n_test", {"type": int, "help": "test works (500)"}),
        ("what to draw", "--seed", "split", "seed", {"type": int, "help": "seed of the draw (0)"}),
        ("what to draw", "--balance", "split", "balance", {
            "choices": list(BALANCED), "help": "which classes get equal numbers (disruption); none: natural prevalence",
        }),
        ("how to score", "--window-years", "cd", "window_years", {
            "type": _window, "metavar": "N|all", "help": "citers count up to so many years after (5)",
        }),
        ("how to score", "--compat", "cd", "compat", {
            "choices": list(COMPAT), "help": "the convention of another implementation; other flags go over it",
        }),
        ("how to score", "--same-year", "cd", "same_year", {**_YES_NO, "help": "count citers of the same year"}),
        ("how to score", "--zero-references", "cd", "zero_references", {
            "choices": ["null", "keep"], "help": "score of a work without references on record (null)",
        }),
        ("novelty", "--novelty", "", "novelty", {**_YES_NO, "help": "score atypical combinations of venues (yes)"}),
        ("novelty", "--null", "novelty", "null", {
            "choices": of_novelty["null"], "help": "expected pairs in closed form, or from shuffles (analytic)",
        }),
        ("novelty", "--n-shuffles", "novelty", "n_shuffles", {"type": int, "help": "with --null permutation (10)"}),
        ("novelty", "--novelty-seed", "novelty", "seed", {"type": int, "help": "seed of the shuffles (0)"}),
        ("novelty", "--score", "novelty", "score", {
            "choices": of_novelty["score"], "help": "from z to 0 .. 1: by itself, or by rank within the year (sigmoid)",
        }),
        ("novelty", "--novelty-compat", "novelty", "compat", {
            "choices": list(NOVELTY_COMPAT), "help": "the convention of another implementation; other flags go over it",
        }),
        ("novelty", "--background", "", "background", {
            "metavar": "FILE", "help": "take the null model from a table that `sciscidata background` wrote",
        }),
        ("how to label", "--preset", "thresholds", "preset", {
            "choices": list(PRESETS), "help": "a named set of thresholds; other flags go over it",
        }),
        ("how to label", "--disruptive-min", "thresholds", "disruptive_min", {"type": float, "help": "(0.001)"}),
        ("how to label", "--consolidating-max", "thresholds", "consolidating_max", {"type": float, "help": "(-0.001)"}),
        ("how to label", "--inclusive", "thresholds", "inclusive", {
            **_YES_NO, "help": "a score at a cut-off is not neutral any more (yes)",
        }),
        ("how to label", "--novelty-rule", "thresholds", "novelty_rule", {
            "choices": list(NOVELTY_RULES), "help": "by the distance of the two scores, or by z as in Uzzi (margin)",
        }),
        ("how to label", "--novelty-margin", "thresholds", "novelty_margin", {
            "type": float, "help": "with the rule margin: nearer scores are balanced (0.15)",
        }),
        ("which works may be drawn", "--min-references", "eligibility", "min_references", {"type": int, "help": "(1)"}),
        ("which works may be drawn", "--min-citations", "eligibility", "min_citations", {
            "type": int, "help": "citing works inside the window (1)",
        }),
        ("which works may be drawn", "--language", "eligibility", "languages", {
            "nargs": "*", "metavar": "CODE", "help": "OpenAlex language codes (en); none given: any",
        }),
        ("which works may be drawn", "--keep-unknown-language", "eligibility", "keep_unknown_language", {
            **_YES_NO, "help": "keep works without a language on record (yes)",
        }),
        ("which works may be drawn", "--work-type", "eligibility", "work_types", {
            "nargs": "*", "metavar": "TYPE", "help": "OpenAlex types (any)",
        }),
        ("which works may be drawn", "--min-year", "eligibility", "min_year", {"type": int, "help": "(none)"}),
        ("which works may be drawn", "--max-year", "eligibility", "max_year", {"type": int, "help": "(none)"}),
        ("which works may be drawn", "--last-year", "eligibility", "last_year", {
            "type": int, "help": "the data's last year; windows must end before it (largest year found)",
        }),
        ("which works may be drawn", "--complete-window", "eligibility", "complete_window", {
            **_YES_NO, "help": "ask for a complete citation window (yes)",
        }),
        ("which works may be drawn", "--require-title", "eligibility", "require_title", {**_YES_NO, "help": "(yes)"}),
        ("which works may be drawn", "--require-abstract", "eligibility", "require_abstract", {
            **_YES_NO, "help": "(yes)",
        }),
        ("which works may be drawn", "--exclude-retracted", "eligibility", "exclude_retracted", {
            **_YES_NO, "help": "(yes)",
        }),
        ("where it goes", "--out", "", "out", {"metavar": "FOLDER", "help": "the release (slices/SOURCE)"}),
        ("where it goes", "--cache-dir", "", "cache_dir", {
            "metavar": "FOLDER", "help": "what later runs can use again (the user's cache folder)",
        }),
        ("where it goes", "--overwrite", "", "overwrite", {
            **_YES_NO, "help": "replace what an earlier run left at --out",
        }),
    ]  # fmt: skip


def _key(section: str, name: str) -> str:
    return f"{section}.{name}"


def _build(options: argparse.Namespace) -> None:
    from sciscidata.pipeline import build
    from sciscidata.summary import print_release

    print_release(build(_configuration(options)))


def _background(options: argparse.Namespace) -> None:
    from sciscidata.pipeline import build_background
    from sciscidata.summary import print_background

    start = time.monotonic()
    config = _configuration(options)
    table = build_background(
        config.source, config.out, config.novelty, cache_dir=config.cache_dir, overwrite=config.overwrite
    )
    print_background(table, time.monotonic() - start)


def _configuration(options: argparse.Namespace) -> BuildConfig:
    from sciscidata.settings import merge, read_toml, resolve

    given = vars(options)
    flags: dict[str, dict[str, Any]] = {}
    for _, _, section, name, _ in _flags():
        if _key(section, name) in given:
            flags.setdefault(section, {})[name] = given[_key(section, name)]
    return resolve(merge(read_toml(given["config"]) if "config" in given else {}, flags))


def _verify(options: argparse.Namespace) -> None:
    from sciscidata.summary import print_verified
    from sciscidata.verification import verify_release

    print_verified(verify_release(options.release))


def _describe(options: argparse.Namespace) -> None:
    from sciscidata.release import read_release
    from sciscidata.summary import print_release

    print_release(read_release(options.release))
