"""Show runs in one page: python scripts/report.py runs/exp4 runs/exp6 evaluations/majority --out report.html."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sciscidata._support.terminal import TextParser
from sciscirl.cli.command_line import run_script, show
from sciscirl.report.report import ReportConfig, write_report
from sciscirl.runs.folder import expand_home


def main(words: Sequence[str]) -> None:
    """Read the options, write the report, and say where it is."""
    options = vars(_parser().parse_args(words))
    config = ReportConfig(**{**options, "runs": tuple(options["runs"])})
    show(f"report: {write_report(config)}")
    show(f"pictures: {config.pictures}")


def _parser() -> argparse.ArgumentParser:
    parser = TextParser(description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument(
        "runs", nargs="+", type=expand_home, metavar="RUN", help="folder of a training run or an evaluation"
    )
    parser.add_argument("--out", type=expand_home, metavar="FILE", help="where the page goes (report.html)")
    parser.add_argument(
        "--release", type=expand_home, metavar="FOLDER", help="the slice: show papers beside their answers"
    )
    parser.add_argument("--n-examples", type=int, help="right, wrong and invalid answers shown of each run (3)")
    parser.add_argument("--title", help="of the page")
    return parser


if __name__ == "__main__":
    sys.exit(run_script(main))
