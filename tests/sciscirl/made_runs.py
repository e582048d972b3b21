"""Folders of runs that look as training leaves them, made in no time; answers drawn by chance."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from sciscidata.storage.sums import SUMS, seal_file
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.predictions import write_predictions
from sciscirl.presets import describe, find_preset
from sciscirl.task.contracts import render_answer
from sciscirl.task.experiment import Preset
from sciscirl.task.papers import TARGETS, VOCABULARIES
from sciscirl.task.predictions import make_prediction, prediction_schema
from sciscirl.task.rewards import score_answer

SLICE = "5a" * 32
DATE = "1999-12-31"


def make_predictions(
    preset: Preset, n: int, *, skill: float = 0.4, bias: float = 0.0, broken: float = 0.1, seed: int = 0, text: str = ""
) -> pl.DataFrame:
    """Answer about n papers, gold labels in turn.

    Args:
        skill: share of answers that know the label.
        bias: share of the others that say the first label; the rest guess.
        broken: share that is not JSON, breaks the contract, or is cut off.
        text: written before a broken answer.
    """
    rules = preset.rules
    if rules.table.is_balanced:
        counts = tuple((label, 1) for column in TARGETS[rules.target] for label in VOCABULARIES[column])
        rules = replace(rules, class_counts=counts)
    random_ = random.Random(seed)
    rows = []
    for number in range(n):
        gold = {
            column: VOCABULARIES[column][(number // 3**place) % 3] for place, column in enumerate(TARGETS[rules.target])
        }
        said = {
            column: label
            if random_.random() < skill
            else VOCABULARIES[column][0 if random_.random() < bias else random_.randrange(3)]
            for column, label in gold.items()
        }
        written = render_answer(said, rules.contract, rules.target, confidence=random_.choice((0.4, 0.6, 0.8, 0.95)))
        is_cut = False
        if random_.random() < broken:
            kind = random_.randrange(3)
            written = (f"{text}I think so", f"{text} {written}", written)[kind]
            is_cut = kind == 2
        answer = rules.parse(written, "length" if is_cut else None)
        rows.append(make_prediction(f"W{number + 1}", gold, answer, score_answer(answer, gold, rules.table), written))
    return pl.DataFrame(rows, schema=prediction_schema(rules.target))


def make_run(
    folder: Path,
    preset: str = "exp4",
    *,
    evaluations: Mapping[int, pl.DataFrame],
    n_steps: int = 4,
    finished: bool = True,
    seed: int = 0,
    settings: Mapping[str, object] | None = None,
    manifest_sha256: str = SLICE,
    sealed: bool = False,
) -> Path:
    """Write a training run: run.json, metrics.jsonl, checkpoints.jsonl, predictions; no SHA256SUMS: an older one.

    It was judged greedily.
    """
    (folder / "predictions").mkdir(parents=True)
    kept = describe(find_preset(preset)) | {"model": "Qwen/Qwen3-8B", "seed": seed, "eval_temperature": 0.0}
    kept |= settings or {}
    write_facts(folder, kept, manifest_sha256)
    split = kept.get("eval_split", "test")
    rows: list[dict[str, float]] = []
    for step in range(n_steps):
        row: dict[str, float] = {"step": step, "progress/batch": step, "time/total": 2.0}
        if "backend" in kept:
            row |= {"progress": 0.5, "train_mean_nll": 2.0 / (step + 1), "num_tokens": 800}
        else:
            parts = {"parse": -0.1, "contract": -0.05, "task": 0.1 * step, "think": 0.0}
            row |= {f"env/all/reward/{part}": value for part, value in parts.items()}
            row |= {
                "env/all/reward/total": sum(parts.values()), "env/all/label_match": 0.3, "env/all/total_episodes": 32,
                "env/all/total_ob_tokens": 6400, "env/all/total_ac_tokens": 640, "env/all/reward_tie_group_rate": 0.5,
                "env/all/reward_uniform_group_rate": 0.25, "env/all/reward_tie_pair_rate": 0.25,
                "env/all/reward_unique_fraction_mean": 0.75,
            }  # fmt: skip
        rows.append(row)
    for step, table in evaluations.items():
        write_predictions(table, folder / "predictions" / f"{split}_{step:06d}.parquet")
        judged = {f"{split}/{name}": value for name, value in measure_predictions(table).items()}
        if step < len(rows):
            rows[step] |= judged
        else:
            rows.append({"step": step, **judged})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    names: Sequence[str] = ("000002", "final") if finished else ("000002",)
    lines = [json.dumps({"name": name, "batch": 2, "sampler_path": f"tinker://x/{name}"}) for name in names]
    (folder / "checkpoints.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return settle(folder, sealed=sealed)


def make_evaluation(
    folder: Path,
    table: pl.DataFrame,
    settings: Mapping[str, object],
    *,
    manifest_sha256: str = SLICE,
    sealed: bool = False,
) -> Path:
    """Write what an evaluation leaves; ``sealed`` as of ``make_run``."""
    write_predictions(table, folder / "predictions.parquet")
    (folder / "metrics.json").write_text(json.dumps(measure_predictions(table)), "utf-8")
    write_facts(folder, {"split": "test", **settings}, manifest_sha256)
    return settle(folder, sealed=sealed)


def settle(folder: Path, *, sealed: bool) -> Path:
    """Leave SHA256SUMS of all files, or none."""
    for path in folder.glob("*.json*") if sealed else ():
        seal_file(path)
    if not sealed:
        (folder / SUMS).unlink(missing_ok=True)
    return folder


def write_facts(folder: Path, settings: Mapping[str, object], manifest_sha256: str) -> None:
    facts = {
        "settings": dict(settings),
        "release": {"manifest_sha256": manifest_sha256},
        "release_folder": "openalex",
        "date": DATE,
        "commit": "0123456789abcdef" * 2,
        "versions": {"sciscidata": "0.1.0", "python": "3.11.7"},
    }
    (folder / "run.json").write_text(json.dumps(facts), "utf-8")
