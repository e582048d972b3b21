"""The card of a merged model: what it was trained on, by which run, and how it was judged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePath
from typing import Any, Final

from sciscidata.storage.small_files import read_whole
from sciscirl.runs.folder import (
    METRICS_FILE,
    RUN_FILE,
    find_eval_split,
    is_supervised,
    name_run,
    read_facts,
    read_judgement,
    read_rows,
)
from sciscirl.runs.lineage import render_start

_SHOWN: Final = (
    "n", "label_match", "macro_f1", "balanced_accuracy", "min_class_recall", "parse_ok", "format_strict_ok", "invalid",
)  # fmt: skip
_JUDGES: Final = {
    "test": "the test split of this release", "dev": "the development split of this release",
    "held_out": "training papers of this release that were held out",
}  # fmt: skip


def render_card(run: Path, *, step: int | None, weights: str, dtype: str) -> str:
    """Write the card of a run's model at a step (None: not known), as Markdown with the hub's YAML header."""
    facts = read_facts(run)
    settings: dict[str, Any] = facts["settings"]
    base, is_sft = str(settings.get("model")), is_supervised(settings)
    is_on_hub = not PurePath(base).is_absolute()
    shown = base if is_on_hub else PurePath(base).name
    header = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": base} if is_on_hub else {}),
        "tags": ["sciscirl", "sft" if is_sft else "rl"],
    }
    trained_by = "supervised fine-tuning" if is_sft else "reinforcement learning"
    rows = {
        "base model": shown,
        "trained by": f"{trained_by}, preset {settings.get('name') or settings.get('preset')}",
        "task": settings.get("target", "disruption"),
        "prompt and answer": f"style {settings.get('style')}, contract {settings.get('contract')}",
        "chat format": settings.get("renderer"),
        "run": f"{name_run(run.resolve())}, SHA-256 of {RUN_FILE} "
        f"`{hashlib.sha256(read_whole(run / RUN_FILE)).hexdigest()}`",
        "step": "unknown" if step is None else f"{step:,}",
        "begun from": render_start(facts.get("begun_from")) or "the base model",
        "release": f"{facts.get('release_folder')}, SHA-256 of manifest.json "
        f"`{facts['release'].get('manifest_sha256')}`",
        "weights": f"`{weights}`, merged in {dtype}",
        "code": facts.get("commit"),
    }
    split = find_eval_split(run)
    rows_of_step = [row for row in read_rows(run / METRICS_FILE) if step is not None and row.get("step") == step]
    judged = {
        name: value
        for name, value in next(filter(None, map(read_judgement, reversed(rows_of_step))), {}).items()
        if (name.rpartition("/")[2] in _SHOWN or "recall/" in name) and isinstance(value, int | float)
    }
    metrics = [
        f"On {_JUDGES[split]}, at step {step or 0:,}. An answer that is not valid counts as wrong. Where these papers "
        "chose the step, they flatter it.",
        "",
        *_table(
            {
                name: f"{value:,.0f}" if name.rpartition("/")[2] == "n" else f"{value:.4f}"
                for name, value in judged.items()
            }
        ),
    ]
    return "\n".join(
        [
            "---",
            *(f"{name}: {json.dumps(value)}" for name, value in header.items()),
            "---\n",
            f"# {shown}, trained on {facts.get('release_folder')}\n",
            "Says from the record of a paper what its label is. The label follows from citations, not from reading the "
            "paper: do not take it for a judgement of quality.\n",
            *_table(rows),
            "\n## Metrics\n",
            *(metrics if judged else ["The run did not evaluate this step."]),
            "\n## Use\n",
            "Ask it with the prompt and chat format above, as `sciscirl evaluate --local-model FOLDER` does.\n",
        ]
    )


def _table(rows: dict[str, Any]) -> list[str]:
    cells = {name: str(value).replace("|", "\\|").replace("\n", " ") for name, value in rows.items()}
    return ["| | |", "|---|---|", *(f"| {name} | {cell} |" for name, cell in cells.items())]
