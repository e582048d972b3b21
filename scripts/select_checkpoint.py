"""Choose the checkpoint of a training run: python scripts/select_checkpoint.py RUN, the run's log_path.

Not named select.py: beside the other scripts, that would hide Python's own module of this name from all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import get_args

from sciscidata._support.terminal import TextParser
from sciscirl.cli.command_line import run_script, show
from sciscirl.evaluation.checkpoints import Criterion, Rule, SelectionConfig, render_selection, select_checkpoint
from sciscirl.runs.folder import expand_home


def main(words: Sequence[str]) -> None:
    """Read the options, choose, and print the table."""
    options = vars(_parser().parse_args(words))
    run = options.pop("run")
    show(render_selection(select_checkpoint(run, SelectionConfig(**options))))


def _parser() -> argparse.ArgumentParser:
    parser = TextParser(description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument("run", type=expand_home, metavar="RUN", help="the folder of a training run")
    parser.add_argument("--metric", choices=get_args(Criterion), help="the more, the better (macro_f1)")
    parser.add_argument(
        "--rule",
        choices=get_args(Rule),
        help="the earliest within one standard error of the best, the earliest whose difference from it may be 0 by "
        "its interval, or the best (one_se)",
    )
    parser.add_argument("--name", help="of the evaluations (test)")
    parser.add_argument("--n-resamples", type=int, help="of the bootstrap (2000)")
    parser.add_argument("--level", type=float, help="of the intervals (0.95)")
    parser.add_argument("--seed", type=int, help="of the bootstrap (0)")
    return parser


if __name__ == "__main__":
    sys.exit(run_script(main))
