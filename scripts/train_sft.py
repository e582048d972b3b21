"""Train on the gold answers of a slice: python scripts/train_sft.py --backend peft preset=exp4 release=slices/openalex.

--list shows the experiments, --dry-run what is trained on, --help with a backend every option of it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from sciscirl.cli.command_line import read_options, run_script, show, take_word
from sciscirl.presets import render_presets

BACKENDS = ("tinker", "peft")


def main(words: Sequence[str]) -> None:
    """Read the options, do what they say, and tell where the result lies."""
    if "--list" in words:
        show(render_presets())
        return
    backend, words = take_word(words, "backend", BACKENDS)
    if backend is None:
        show(f"{__doc__}\nbackends: {', '.join(BACKENDS)} (docs/rl/sft.md)")
    elif backend == "tinker":
        from sciscirl.sft import tinker_backend

        options = read_options(tinker_backend.TinkerSftOptions, words)
        if isinstance(options, str):
            show(options)
        elif options.dry_run:
            show(tinker_backend.render_dry_run(options))
        else:
            show(f"run: {asyncio.run(tinker_backend.train_on_tinker(options))}")
    else:
        from sciscirl.sft import peft_backend

        options = read_options(peft_backend.PeftSftOptions, words)
        if isinstance(options, str):
            show(options)
        elif options.dry_run:
            show(peft_backend.render_dry_run(options))
        else:
            show(f"run: {peft_backend.train_with_peft(options)}")


if __name__ == "__main__":
    sys.exit(run_script(main))
