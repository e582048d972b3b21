"""Evaluate a model or checkpoint in a split of a slice: python scripts/evaluate.py --help."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from sciscidata._support.terminal import TextParser
from sciscirl.cli.command_line import run_script, show
from sciscirl.errors import SciSciRLError
from sciscirl.evaluation.evaluate import (
    EvaluationConfig,
    evaluate_baselines,
    evaluate_model,
    evaluate_predictions,
    render_metrics,
)
from sciscirl.presets import PRESETS
from sciscirl.runs.folder import expand_home


def main(words: Sequence[str]) -> None:
    """Read the options, evaluate, and print the main metrics."""
    options = vars(_parser().parse_args(words))
    if "from_predictions" in options and len(options) > 1:
        msg = f"--from-predictions needs nothing else, got {', '.join(sorted(options))}. Leave the others out."
        raise SciSciRLError(msg)
    predictions, baselines = options.pop("from_predictions", None), options.pop("baselines", False)
    seed, has_model = options.pop("seed", 0), bool({"model", "checkpoint", "local_model", "run"} & set(options))
    if predictions is not None:
        show(render_metrics({predictions.stem: evaluate_predictions(predictions)}))
        return
    if "release" not in options or not (has_model or baselines):
        msg = (
            "nothing to do. Give --release with --model, --checkpoint, --local-model, --run or --baselines; or "
            "--from-predictions."
        )
        raise SciSciRLError(msg)
    config = EvaluationConfig(**{"out": Path("evaluations") / options["release"].name, **options})
    judged = evaluate_baselines(config, seed=seed) if baselines else {}  # first: what they refuse has cost nothing yet
    results = {"model": asyncio.run(evaluate_model(config))} if has_model else {}
    show(render_metrics(results | judged))
    show(f"result: {config.out}")


def _parser() -> argparse.ArgumentParser:
    parser = TextParser(description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument("--release", type=expand_home, metavar="FOLDER", help="a slice")
    parser.add_argument("--split", choices=("train", "test"), help="of the slice (test)")
    parser.add_argument("--model", help="a base model; with --checkpoint, the one it was trained from")
    parser.add_argument("--checkpoint", metavar="PATH", help="weights to sample from (tinker://...)")
    parser.add_argument(
        "--local-model", type=expand_home, metavar="FOLDER", help="a model or adapter to load here, no server"
    )
    parser.add_argument("--run", type=expand_home, metavar="FOLDER", help="a training run: its last checkpoint")
    parser.add_argument("--step", type=int, help="of the run, where not its last checkpoint is meant")
    parser.add_argument("--baselines", action="store_true", help="majority, random by prior, TF-IDF and regression")
    parser.add_argument(
        "--from-predictions", type=expand_home, metavar="FILE", help="recompute metrics; needs nothing else"
    )
    parser.add_argument("--preset", choices=tuple(PRESETS), help="prompt, contract and reward (baseline)")
    parser.add_argument("--renderer", help="chat format (the model's own, without thinking)")
    parser.add_argument("--temperature", type=float, help="of sampling; 0 is greedy (the preset's)")
    parser.add_argument("--max-tokens", type=int, help="of an answer (the preset's)")
    parser.add_argument("--group-size", type=int, help="answers to each paper (1)")
    parser.add_argument("--challenger", metavar="WHO", help="adversarial: rules, or a base model (the preset's)")
    parser.add_argument("--judge", metavar="MODEL", help="adversarial: who judges reasoning (the preset's rubric)")
    parser.add_argument("--n-papers", type=int, help="only the first so many")
    parser.add_argument("--seed", type=int, help="of the random baseline (0)")
    parser.add_argument("--base-url", metavar="URL", help="a Tinker server (TINKER_BASE_URL, else Tinker)")
    parser.add_argument("--out", type=expand_home, metavar="FOLDER", help="where the result goes (evaluations/RELEASE)")
    return parser


if __name__ == "__main__":
    sys.exit(run_script(main))
