"""Ask, fine-tune and reinforce a real model with three seeds, and compare: ``python benchmarks/real_model.py run ...``.

    python benchmarks/real_model.py run slices/mine $MODEL runs/real --at-once 9    # on a GPU; one by one without it
    python benchmarks/real_model.py show runs/real                                  # tables, and real_model.png

Every run is a command of ``sciscirl``; ``runs/real/commands.txt`` lists them as they are typed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import matplotlib.pyplot as plt

from sciscirl.metrics.predictions import read_predictions
from sciscirl.metrics.seeds import compare_seeds
from sciscirl.report.layout import show_estimate

SEEDS, PRESETS, LABELS = (0, 1, 2), ("exp4", "exp5", "exp6"), ("disruptive", "consolidating", "neutral")
SHOWN = ("label_match", "macro_f1", "min_class_recall", "invalid")
SCORED = "--answers logprobs --prior-correction content_free"


def list_commands(release: Path, model: str, out: Path) -> list[list[list[str]]]:
    """Return rounds of commands; those of a round may run at the same time."""
    data = f"--release {shlex.quote(str(release))}"
    trained = f"""{data} --model {shlex.quote(model)} --quantize none --no-use-dora --dtype bfloat16 --batch-size 8
        --no-gradient-checkpointing --eval-temperature 0"""

    def ask(name: str, of: str) -> Iterable[str]:
        yield f"evaluate {of} {data} --split test --temperature 0 --out {out / name}"
        yield f"evaluate {of} {data} --split test {SCORED} --out {out / name}_logprobs"

    first = [*ask("zero", f"--local-model {shlex.quote(model)} --preset exp4")]
    tuned = [
        f"""sft --backend peft --preset exp4 {trained} --seed {seed} --n-epochs 9 --learning-rate 3e-4 --max-steps 36
            --micro-batch-size 8 --save-every 36 --eval-every 36 --log-path {out}/sft_{seed}"""
        for seed in SEEDS
    ]
    reinforced = [
        f"""train --backend local --preset {preset} {trained} --seed {seed} --learning-rate 2e-4 --group-size 4
            --max-steps 60 --micro-batch-size 8 --save-every 15 --eval-every 15 --load-checkpoint {out}/sft_{seed}
            --log-path {out}/rl_{preset}_{seed}"""
        for preset in PRESETS
        for seed in SEEDS
    ]
    asked = [line for seed in SEEDS for line in ask(f"sft_{seed}_test", f"--run {out}/sft_{seed}")]
    last = [
        line
        for preset in PRESETS
        for seed in SEEDS
        for line in ask(f"rl_{preset}_{seed}_test", f"--run {out}/rl_{preset}_{seed}")
    ]
    return [[shlex.split(line) for line in lines] for lines in (first + tuned, reinforced + asked, last)]


def run(release: Path, model: str, out: Path, at_once: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    rounds = list_commands(release, model, out)
    lines = [shlex.join(["sciscirl", *words]) for words in chain(*rounds)]
    (out / "commands.txt").write_text("\n".join(lines) + "\n", "utf-8")

    def call(words: list[str]) -> None:
        name = Path(words[-1]).name
        with (out / f"{name}.log").open("w") as log:
            code = subprocess.run([sys.executable, "-m", "sciscirl", *words], stdout=log, stderr=log, check=False)
        print(f"{name}: {'done' if code.returncode == 0 else f'failed, see {log.name}'}", flush=True)

    for words in rounds:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(call, words))


def show(out: Path) -> None:
    found = {
        name: {seed: read_predictions(path) for seed in SEEDS if (path := find(out, name, seed)).exists()}
        for name in ["sft", *(f"rl_{preset}" for preset in PRESETS)]
    }
    found |= {f"{name} logprobs": {seed: read_predictions(path) for seed in SEEDS
              if (path := find(out, name, seed, "_logprobs")).exists()} for name in [*found]}  # fmt: skip
    beside = {
        name: read_predictions(out / folder / "predictions.parquet")
        for name, folder in {"zero-shot": "zero", "zero-shot logprobs": "zero_logprobs"}.items()
    }
    beside |= {
        path.parent.name: read_predictions(path) for path in sorted((out / "zero").glob("*/predictions.parquet"))
    }
    ways = {name: tables for name, tables in found.items() if tables}
    compared = compare_seeds(ways, beside=beside)
    print(f"{compared.n_papers} papers; intervals of 95 % over seeds and papers\n")
    print(f"| | seeds | {' | '.join(SHOWN)} |\n|---|---|{'---|' * len(SHOWN)}")
    for name, scores in compared.scores.items():
        cells = [show_estimate(scores[metric]) for metric in SHOWN]
        print(f"| {name} | {len(ways[name]) if name in ways else ''} | {' | '.join(cells)} |")
    print("\n| pair | difference of label_match | p | Holm |\n|---|---|---|---|")
    for pair in compared.pairs:
        one = pair.differences["label_match"]
        values = " | ".join(
            "" if p is None else f"{p:.2f}" for p in (pair.p["label_match"], pair.p_holm["label_match"])
        )
        print(f"| {pair.left} - {pair.right} | {one.value:+.2f} [{one.low:+.2f}, {one.high:+.2f}] | {values} |")
    draw(out)


def find(out: Path, name: str, seed: int, how: str = "") -> Path:
    return out / f"{name}_{seed}_test{how}" / "predictions.parquet"


def draw(out: Path) -> None:
    """Draw which labels the models said to training papers, a panel for each run."""
    figure, grid = plt.subplots(
        len(PRESETS), len(SEEDS), sharex=True, sharey=True, figsize=(9, 6), layout="constrained"
    )
    for row, preset in zip(grid, PRESETS, strict=True):
        for axes, seed in zip(row, SEEDS, strict=True):
            lines = (out / f"rl_{preset}_{seed}" / "metrics.jsonl").read_text("utf-8").splitlines()
            steps = [one for line in lines if "env/all/reward/total" in (one := json.loads(line))]
            shares = [[step.get(f"env/all/predicted_share/{label}", 0.0) for step in steps] for label in LABELS]
            axes.stackplot([step["step"] for step in steps], shares, labels=LABELS, colors=("C3", "C0", "0.8"))
            axes.set(ylim=(0, 1), title=f"{preset}, seed {seed}")
    grid[0][0].legend(loc="lower right", fontsize="small")
    figure.supxlabel("step")
    figure.supylabel("share of answers to training papers")
    figure.savefig(out / "real_model.png", dpi=130)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True, dest="kind")
    for kind in ("run", "show"):
        one = kinds.add_parser(kind)
        if kind == "run":
            one.add_argument("release", type=Path)
            one.add_argument("model")
        one.add_argument("out", type=Path)
        if kind == "run":
            one.add_argument("--at-once", type=int, default=1)
    given = vars(parser.parse_args())
    {"run": run, "show": show}[given.pop("kind")](**given)
