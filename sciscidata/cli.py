"""The ``sciscidata`` command: build, verify and describe a release. Parses, calls once, prints what came out."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sciscidata.cdindex import COMPAT
from sciscidata.errors import SciSciDataError
from sciscidata.labels import PRESETS
from sciscidata.settings import SOURCES, Settings, merge, read_toml, resolve
from sciscidata.splits import BALANCED

_YES_NO = {"action": argparse.BooleanOptionalAction}


def _window(text: str) -> int | str:
    return "all" if text == "all" else int(text)


#: Flags of ``build``: group, flag, section and name of the setting, and what argparse needs to know.
_FLAGS: list[tuple[str, str, str, str, dict[str, Any]]] = [
    ("what to read", "--source", "", "source", {"choices": SOURCES, "help": "default: records if --input is given"}),
    ("what to read", "--input", "records", "inputs", {
        "nargs": "+", "metavar": "FILE",
        "help": "files, folders or patterns of OpenAlex works: JSON lines (.gz, .zst too), API pages, single works",
    }),
    ("what to read", "--strict", "records", "strict", {**_YES_NO, "help": "stop at the first corrupt line"}),
    ("what to read", "--n-works", "synthetic", "n_works", {"type": int, "help": "size of the synthetic world"}),
    ("what to read", "--world-seed", "synthetic", "seed", {"type": int, "help": "seed of the synthetic world"}),
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
    ("how to label", "--preset", "thresholds", "preset", {
        "choices": list(PRESETS), "help": "a named set of thresholds; other flags go over it",
    }),
    ("how to label", "--disruptive-min", "thresholds", "disruptive_min", {"type": float, "help": "(0.001)"}),
    ("how to label", "--consolidating-max", "thresholds", "consolidating_max", {"type": float, "help": "(-0.001)"}),
    ("how to label", "--inclusive", "thresholds", "inclusive", {
        **_YES_NO, "help": "a score at a cut-off is not neutral any more (yes)",
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
    ("which works may be drawn", "--require-abstract", "eligibility", "require_abstract", {**_YES_NO, "help": "(yes)"}),
    ("which works may be drawn", "--exclude-retracted", "eligibility", "exclude_retracted", {
        **_YES_NO, "help": "(yes)",
    }),
    ("where it goes", "--out", "", "out", {"metavar": "FOLDER", "help": "the release (slices/SOURCE)"}),
    ("where it goes", "--cache-dir", "", "cache_dir", {
        "metavar": "FOLDER", "help": "what later runs can use again (the user's cache folder)",
    }),
    ("where it goes", "--overwrite", "", "overwrite", {**_YES_NO, "help": "replace a release at --out"}),
]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0 done, 1 the user can mend it, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        options.run(options)
    except SciSciDataError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was released\n")
        return 130
    return 0


def build_main() -> int:
    """Run ``sciscidata build`` with the arguments of a script."""
    return main(["build", *sys.argv[1:]])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sciscidata", description="Labelled, balanced, frozen slices of science.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser(
        "build",
        help="read works, score and label them, release a slice",
        description="Read works, score and label them, and release a balanced, frozen slice. "
        "Defaults stand in brackets.",
        argument_default=argparse.SUPPRESS,
    )
    build.add_argument("--config", type=Path, metavar="FILE", help="a TOML file of settings; flags go over it")
    build.add_argument("--email", metavar="ADDRESS", help="who you are, for the OpenAlex API; never stored")
    groups: dict[str, Any] = {}
    for group, flag, section, name, details in _FLAGS:
        groups.setdefault(group, build.add_argument_group(group)).add_argument(
            flag, dest=_key(section, name), **details
        )
    build.set_defaults(run=_build)
    for name, run, text in (
        ("verify", _verify, "recompute every hash and count of a release"),
        ("describe", _describe, "print what a release holds and how it came about"),
    ):
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        command.add_argument("release", type=Path, metavar="FOLDER", help="the folder of a release")
        command.set_defaults(run=run)
    return parser


def _key(section: str, name: str) -> str:
    return f"{section}.{name}"


def _build(options: argparse.Namespace) -> None:
    from sciscidata.pipeline import build
    from sciscidata.summary import print_release

    given = vars(options)
    flags: Settings = {}
    for _, _, section, name, _ in _FLAGS:
        if _key(section, name) in given:
            flags.setdefault(section, {})[name] = given[_key(section, name)]
    config = resolve(merge(read_toml(given["config"]) if "config" in given else {}, flags))
    print_release(build(config))


def _verify(options: argparse.Namespace) -> None:
    from sciscidata.summary import print_verified
    from sciscidata.verification import verify_release

    print_verified(verify_release(options.release))


def _describe(options: argparse.Namespace) -> None:
    from sciscidata.release import read_release
    from sciscidata.summary import print_release

    print_release(read_release(options.release))
