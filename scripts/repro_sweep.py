"""Ask the same prompts under other number formats, batches, threads, kernels and devices: --help says how.

python scripts/repro_sweep.py --release slices/small --local-model models/Qwen3-4B --out sweeps/qwen

Of every option with several values the first one makes up the reference; then one at a time is another. What the
machine cannot do is reported as such. A sweep that was stopped goes on with the same command.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import get_args

from sciscidata._support.terminal import TextParser
from sciscirl.cli.command_line import run_script, show
from sciscirl.runs.folder import expand_home
from sciscirl.studies.repro.settings import Attention, Axes, Dtype


def main(words: Sequence[str]) -> None:
    """Read the options, run the sweep, and show its table."""
    options = vars(_parser().parse_args(words))
    names = ("batch_sizes", "dtypes", "thread_counts", "attentions", "devices", "n_repeats")
    axes = {name: options.pop(name) for name in names if name in options}
    axes = {name: tuple(value) if isinstance(value, list) else value for name, value in axes.items()}
    from sciscirl.studies.repro.sweep import ReproConfig, run_sweep

    options["against"] = tuple(options.get("against", ()))
    config = ReproConfig(**options, axes=Axes(**axes))
    asyncio.run(run_sweep(config))
    show((config.out / "sweep.md").read_text("utf-8"))
    show(f"result: {config.out}")


def _parser() -> argparse.ArgumentParser:
    parser = TextParser(
        description=__doc__,
        argument_default=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--release", type=expand_home, required=True, metavar="FOLDER", help="a slice")
    parser.add_argument(
        "--out", type=expand_home, required=True, metavar="FOLDER", help="where the sweep lies, or will"
    )
    parser.add_argument("--local-model", type=expand_home, metavar="FOLDER", help="a model to load here; or")
    parser.add_argument("--model", help="a base model on a Tinker server")
    parser.add_argument("--checkpoint", metavar="PATH", help="weights on that server (tinker://...)")
    parser.add_argument("--base-url", metavar="URL", help="that server (TINKER_BASE_URL, else Tinker)")
    parser.add_argument("--preset", help="whose prompt, contract and length of answer (baseline)")
    parser.add_argument("--renderer", help="chat format (the model's own, without thinking)")
    parser.add_argument("--split", choices=("train", "test"), help="of the slice (test)")
    parser.add_argument("--n-papers", type=int, help="prompts: the first so many (32)")
    parser.add_argument("--max-tokens", type=int, help="of an answer (the preset's)")
    parser.add_argument("--temperature", type=float, help="of the sampled runs (1)")
    parser.add_argument("--seed", type=int, help="of the sampled runs (0)")
    parser.add_argument("--repeats", type=int, dest="n_repeats", help="of the reference (2)")
    parser.add_argument("--batch-sizes", type=int, nargs="+", metavar="N", help="prompts at a time (1 4 16)")
    local = parser.add_argument_group("with --local-model")
    local.add_argument("--dtypes", nargs="+", choices=get_args(Dtype), help="number formats (all)")
    local.add_argument("--threads", type=int, nargs="+", dest="thread_counts", metavar="N", help="(1 2)")
    local.add_argument("--attentions", nargs="+", choices=get_args(Attention), help="kernels (all)")
    local.add_argument("--devices", nargs="+", help="as PyTorch names them (cpu cuda)")
    parser.add_argument(
        "--against", type=expand_home, nargs="+", metavar="FOLDER", help="sweeps made elsewhere, to compare with"
    )
    return parser


if __name__ == "__main__":
    sys.exit(run_script(main))
