"""Merge what train_sft.py --backend peft has trained into one 16-bit model: python scripts/merge_adapter.py --help."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sciscidata._support.terminal import TextParser
from sciscirl.cli.command_line import run_script, show
from sciscirl.runs.folder import expand_home


def main(words: Sequence[str]) -> None:
    """Read the options, merge, and tell where the model lies."""
    parser = TextParser(description=__doc__)
    parser.add_argument("adapter", type=expand_home, help="its folder, or that of the run")
    parser.add_argument("--out", type=expand_home, required=True, metavar="FOLDER", help="where the model goes")
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16", help="of its weights"
    )
    parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, cuda:1 (cpu)")
    options = parser.parse_args(words)
    from sciscirl.sft.merge import merge_adapter

    show(f"model: {merge_adapter(options.adapter, options.out, dtype=options.dtype, device=options.device)}")


if __name__ == "__main__":
    sys.exit(run_script(main))
