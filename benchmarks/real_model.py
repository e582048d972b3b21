"""Ask, fine-tune and reinforce a real model with several seeds, and compare: ``benchmarks/real_model.py run ...``.

    python benchmarks/real_model.py run slices/mine $MODEL runs/real --at-once 9    # on a GPU; one by one without it
    python benchmarks/real_model.py show runs/real                                  # tables and pictures

On a CPU, with short prompts and shorter runs (``--cpu``), here on labels whose best answers are known:

    python benchmarks/real_model.py make slices/known      # synthetic papers; a fifth of the labels are wrong
    python benchmarks/real_model.py run slices/known $MODEL runs/known --target label --cpu --presets exp4 exp6

Every run is a command of ``sciscirl``; ``commands.txt`` beside the runs lists them as they are typed. A run that is
done is not run again, so more seeds or presets can be added. A training that was stopped goes on from its last
checkpoint; its time is then that of the last part.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from threading import Lock

import matplotlib.pyplot as plt
import polars as pl

from sciscidata.plots.palette import COLOURS, INK, LINES
from sciscirl.lab.analysis.compare import compare_predictions
from sciscirl.lab.demo import WRONG_DIGITS, list_build_words
from sciscirl.lab.report.layout import show_estimate
from sciscirl.metrics.predictions import read_predictions
from sciscirl.runs.record import RUN_FILE

SHOWN = ("label_match", "macro_f1", "min_class_recall", "invalid")
SCORED = "--answers logprobs --prior-correction content_free"
SFT = "--batch-size 8 --micro-batch-size 8 --learning-rate 3e-4 --max-steps 36 --save-every 36 --eval-every 36"
RL = "--batch-size 8 --micro-batch-size 8 --learning-rate 2e-4 --max-steps 60 --save-every 15 --eval-every 15"
#: Prompts of 200 tokens instead of 1,100, and one pass for all answers of a step.
ASKED_ON_CPU = "--style plain --hide abstract"
#: At a rate of 3e-4, 48 steps of four papers did not teach even labels that the titles show.
SFT_ON_CPU = "--batch-size 16 --micro-batch-size 16 --learning-rate 1e-3 --max-steps 60 --save-every 20 --eval-every 20"
RL_ON_CPU = """--eval-split dev --batch-size 4 --micro-batch-size 16 --learning-rate 1e-4
    --max-steps 15 --save-every 5 --eval-every 5"""
TIMES = "times.json"


def make(out: Path) -> None:
    """Draw 240, 30 and 90 synthetic papers."""
    _, *words = list_build_words(out, 240, 30, 90)
    subprocess.run([sys.executable, "-m", "sciscidata", *words], check=True)
    ids = pl.read_parquet(out / "test.parquet", columns=["openalex_id"])["openalex_id"]
    right = ~(ids.str.slice(1).cast(pl.Int64) % 10).is_in(WRONG_DIGITS)
    print(f"\nthe best possible: {right.sum()} of the {len(ids)} test papers, {right.mean():.3f}")


def list_commands(
    release: Path,
    model: str,
    out: Path,
    target: str,
    seeds: list[int],
    rl_seeds: list[int],
    presets: list[str],
    cpu: bool,
) -> list[list[list[str]]]:
    """Return rounds of commands; those of a round may run at the same time."""
    asked, sft, rl = (ASKED_ON_CPU, SFT_ON_CPU, RL_ON_CPU) if cpu else ("", SFT, RL)
    asked += f" --target {target}"
    data = f"--release {shlex.quote(str(release))}"
    trained = f"""{data} --model {shlex.quote(model)} --quantize none --no-use-dora --dtype bfloat16
        --no-gradient-checkpointing --eval-temperature 0"""

    def ask(name: str, of: str, more: str = "") -> Iterable[str]:
        yield f"evaluate {of} {data} --split test --temperature 0 {more} --out {out / name}"
        yield f"evaluate {of} {data} --split test {SCORED} --out {out / name}_logprobs"

    as_it_comes = f"--local-model {shlex.quote(model)} --dtype bfloat16 --preset exp4 {asked}"
    first = [*ask("zero", as_it_comes, "--baselines")]
    tuned = [
        f"""sft --backend peft --preset exp4 {asked} {trained} --seed {seed} --n-epochs 9 {sft}
            --log-path {out}/sft_{seed}"""
        for seed in seeds
    ]
    begun = [(preset, seed) for preset in presets for seed in rl_seeds]
    reinforced = [
        f"""train --backend local --preset {preset} {asked} {trained} --seed {seed} --group-size 4 {rl}
            --load-checkpoint {out}/sft_{seed} --log-path {out}/rl_{preset}_{seed}"""
        for preset, seed in begun
    ]
    judged = [line for seed in seeds for line in ask(f"sft_{seed}_test", f"--run {out}/sft_{seed}")]
    last = [
        line for preset, seed in begun for line in ask(f"rl_{preset}_{seed}_test", f"--run {out}/rl_{preset}_{seed}")
    ]
    return [[shlex.split(line) for line in lines] for lines in (first + tuned, reinforced + judged, last)]


def run(release: Path, model: str, out: Path, at_once: int, **chosen) -> None:
    out.mkdir(parents=True, exist_ok=True)
    rounds = list_commands(release, model, out, **chosen)
    lines = [shlex.join(["sciscirl", *words]) for words in chain(*rounds)]
    (out / "commands.txt").write_text("\n".join(lines) + "\n", "utf-8")
    times, lock = read_times(out), Lock()

    def call(words: list[str]) -> None:
        name = Path(words[-1]).name
        if name in times:
            return
        is_begun = words[0] in ("sft", "train") and (out / name / RUN_FILE).exists()
        words = [*words, "behavior_if_log_dir_exists=resume"] if is_begun else words
        begun = time.monotonic()
        with (out / f"{name}.log").open("a") as log:
            process = subprocess.Popen([sys.executable, "-m", "sciscirl", *words], stdout=log, stderr=log)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            print(f"{name}: failed, see {log.name}", flush=True)
            return
        with lock:
            times[name] = {"seconds": time.monotonic() - begun, "cpu_seconds": used.ru_utime + used.ru_stime}
            (out / TIMES).write_text(json.dumps(times, indent=1), "utf-8")
        print(f"{name}: done, {times[name]['seconds']:.0f} s, {times[name]['cpu_seconds']:.0f} CPU s", flush=True)

    for words in rounds:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(call, words))


def read_times(out: Path) -> dict[str, dict[str, float]]:
    return json.loads((out / TIMES).read_text("utf-8")) if (out / TIMES).exists() else {}


def show(out: Path) -> None:
    times, found = read_times(out), {}
    for path in sorted(out.glob("*_test*/predictions.parquet")):
        way, seed, how = re.fullmatch(r"(.+)_(\d+)_test(.*)", path.parent.name).groups()
        found.setdefault(f"{way}{how}", {})[int(seed)] = read_predictions(path)
    beside = {name: read_predictions(out / name / "predictions.parquet") for name in ("zero", "zero_logprobs")}
    beside |= {
        path.parent.name: read_predictions(path) for path in sorted((out / "zero").glob("*/predictions.parquet"))
    }
    compared = compare_predictions(found, beside=beside)
    print(f"{compared.n_papers} papers; intervals of 95 % over seeds and papers\n")
    print(f"| | seeds | {' | '.join(SHOWN)} | CPU s, all seeds |\n|---|---|{'---|' * len(SHOWN)}---|")
    for name, scores in compared.scores.items():
        cells = [show_estimate(scores[metric]) for metric in SHOWN]
        spent = sum(times[one]["cpu_seconds"] for one in list_parts(name, found.get(name, ())) if one in times)
        shown = [name, len(found.get(name, ())) or "", *cells, f"{spent:.0f}" if spent else ""]
        print(f"| {' | '.join(map(str, shown))} |")
    print("\n| pair | difference of label_match | p | Holm |\n|---|---|---|---|")
    for pair in compared.pairs:
        one = pair.differences["label_match"]
        values = " | ".join(
            "" if p is None else f"{p:.2f}" for p in (pair.p["label_match"], pair.p_holm["label_match"])
        )
        print(f"| {pair.left} - {pair.right} | {one.value:+.2f} [{one.low:+.2f}, {one.high:+.2f}] | {values} |")
    if any(out.glob("rl_*/metrics.jsonl")):
        draw(out)
    draw_learning(out)


def list_parts(name: str, seeds: Iterable[int]) -> list[str]:
    """Name the commands behind a row: of each seed the training, and the answers."""
    way, scored, _ = name.partition("_logprobs")
    return [name, *(f"{way}_{seed}{part}" for seed in seeds for part in ("", f"_test{scored}"))]


def draw(out: Path) -> None:
    """Draw which labels the models said to training papers, a panel for each run."""
    runs = {path.parent.name: path for path in sorted(out.glob("rl_*/metrics.jsonl"))}
    n_seeds = len({name.rpartition("_")[2] for name in runs})
    rows = -(-len(runs) // n_seeds)
    figure, grid = plt.subplots(
        rows,
        n_seeds,
        sharex=True,
        sharey=True,
        figsize=(max(6, 1 + 2.7 * n_seeds), max(3, 2 * rows)),
        layout="constrained",
        squeeze=False,
    )
    for axes, (name, path) in zip(grid.flat, runs.items(), strict=True):
        lines = path.read_text("utf-8").splitlines()
        steps = [one for line in lines if "env/all/reward/total" in (one := json.loads(line))]
        at, start = [step["step"] for step in steps], "env/all/predicted_share/"
        labels = [key.removeprefix(start) for key in steps[0] if key.startswith(start) and not key.endswith("/invalid")]
        values = [[step.get(start + label, 0.0) for step in steps] for label in labels]
        axes.stackplot(at, values, labels=labels, colors=[COLOURS.get(label, INK) for label in labels])
        axes.plot(at, [step["env/all/label_match"] for step in steps], "k", label="right answers")
        _, preset, seed = name.split("_")
        axes.set(ylim=(0, 1), title=f"{preset}, seed {seed}")
    grid[0][0].legend(loc="lower right", fontsize="small")
    figure.supxlabel("step")
    figure.supylabel("share of answers to training papers")
    figure.savefig(out / "real_model.png", dpi=130)


def draw_learning(out: Path) -> None:
    """Draw how supervised runs learn the label: its loss in training, and right answers to dev papers."""
    figure, (loss, match) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for number, path in enumerate(sorted(out.glob("sft_*/metrics.jsonl"))):
        rows, name = [json.loads(line) for line in path.read_text("utf-8").splitlines()], path.parent.name
        trained = [(row["step"], row["label_nll"]) for row in rows if "label_nll" in row]
        judged = [(row["step"], row["dev/label_match"]) for row in rows if "dev/label_match" in row]
        loss.plot(*zip(*trained, strict=True), color=LINES[number % len(LINES)], label=name)
        match.plot(*zip(*judged, strict=True), "o-", color=LINES[number % len(LINES)], label=name)
    loss.axhline(math.log(3), color="0.5", linestyle=":", label="guessing")
    loss.set(xlabel="step", ylabel="loss of the label, nats", ylim=0)
    match.axhline(1 / 3, color="0.5", linestyle=":", label="guessing")
    match.set(xlabel="step", ylabel="right answers to dev papers", ylim=(0, 1))
    match.legend(fontsize="small")
    figure.savefig(out / "real_model_learning.png", dpi=130)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True, dest="kind")
    made, runs, shown = (kinds.add_parser(kind) for kind in ("make", "run", "show"))
    runs.add_argument("release", type=Path)
    runs.add_argument("model")
    for one in (made, runs, shown):
        one.add_argument("out", type=Path)
    runs.add_argument("--at-once", type=int, default=1)
    runs.add_argument("--target", default="disruption", help="the labels that are asked for; label: those of make")
    runs.add_argument("--cpu", action="store_true", help="short prompts, fewer answers")
    runs.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    runs.add_argument("--rl-seeds", type=int, nargs="+", default=[0, 1, 2], help="some of the seeds")
    runs.add_argument("--presets", nargs="*", default=["exp4", "exp5", "exp6"], help="of reinforcement learning")
    given = vars(parser.parse_args())
    {"make": make, "run": run, "show": show}[given.pop("kind")](**given)
