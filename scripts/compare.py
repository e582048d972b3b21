"""Compare models on one held-out split: python scripts/compare.py sft=runs/sft rl=runs/exp6 evaluations/majority.

Each is the folder of a training run (its last evaluation), that of an evaluation, or a predictions file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sciscidata._support.terminal import TextParser
from sciscirl.cli.command_line import run_script, show
from sciscirl.metrics.compare import CompareConfig
from sciscirl.report.comparison import compare_files, render_comparison
from sciscirl.runs.folder import expand_home


def main(words: Sequence[str]) -> None:
    """Read the options, compare, and print both tables."""
    options = vars(_parser().parse_args(words))
    predictions, out = options.pop("predictions"), options.pop("out", None)
    show(render_comparison(compare_files(predictions, CompareConfig(**options), out)))
    if out is not None:
        show(f"result: {out}")


def _parser() -> argparse.ArgumentParser:
    parser = TextParser(description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument("predictions", nargs="+", metavar="[NAME=]PATH", help="a run, an evaluation, or a file")
    parser.add_argument("--reference", metavar="NAME", help="compare the others with this one only (every pair)")
    parser.add_argument("--n-resamples", type=int, help="of the papers, for intervals (2000)")
    parser.add_argument("--level", type=float, help="of intervals (0.95)")
    parser.add_argument("--seed", type=int, help="of the resamples (0)")
    parser.add_argument("--out", type=expand_home, metavar="FOLDER", help="also write comparison.json and pictures")
    return parser


if __name__ == "__main__":
    sys.exit(run_script(main))
