"""Train on a released slice: python scripts/train_rl.py preset=exp4 release=slices/openalex model=Qwen/Qwen3-8B.

--list shows the experiments, --dry-run what one would send and cost, --help every option.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from sciscirl.cli.command_line import read_options, run_script, show
from sciscirl.presets import render_presets


def main(words: Sequence[str]) -> None:
    """Read the options, do what they say, and tell where the result lies."""
    if "--list" in words:
        show(render_presets())
        return
    from sciscirl.rl.config import TrainOptions
    from sciscirl.rl.dry_run import render_dry_run
    from sciscirl.rl.train import train_preset

    options = read_options(TrainOptions, words)
    if isinstance(options, str):
        show(options)
    elif options.dry_run:
        show(render_dry_run(options))
    else:
        show(f"run: {asyncio.run(train_preset(options))}")


if __name__ == "__main__":
    sys.exit(run_script(main))
