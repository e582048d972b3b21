"""Train with groups of several sizes and compare: python scripts/group_size_sweep.py preset=exp4 sizes=4,8,16.

It takes what train_rl.py takes, but for group_size, batch_size, log_path and resume; --help shows every option.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from sciscirl.cli.command_line import read_options, run_script, show


def main(words: Sequence[str]) -> None:
    """Read the options, train and compare, and tell where the result lies."""
    from sciscirl.studies.group_sizes import GroupSizeOptions, render_group_sizes, run_group_sizes

    options = read_options(GroupSizeOptions, words)
    if isinstance(options, str):
        show(options)
        return
    show(render_group_sizes(asyncio.run(run_group_sizes(options))))
    show(f"result: {options.out}")


if __name__ == "__main__":
    sys.exit(run_script(main))
