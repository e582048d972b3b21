"""Write the drawn papers as token ids, without text: ``pack.py SLICES MODEL OUT.npz.xz``."""

from __future__ import annotations

import argparse
import io
import json
import lzma
from pathlib import Path

import numpy as np
import polars as pl
from slices import LABELS, SLICES
from tinker_cookbook import renderers
from transformers import AutoTokenizer

from sciscirl.envs.env import build_messages
from sciscirl.task.contracts import parse_answer, render_answer
from sciscirl.task.papers import Gold, Paper, PaperView
from sciscirl.task.rules import TaskRules

RENDERER = "qwen3_instruct"
SIDES = ("train", "dev", "test")
META = ("publication_year", "cited_by_count", "primary_field")
#: What a prompt hides, in each view.
VIEWS = {
    "text": META,
    "all": (),
    "title": ("abstract", *META),
    "abstract": ("title", *META),
    "text_probabilities": META,
}
MOST_TOKENS = 256


def write_soft(chances: list[float]) -> str:
    """Write the chance of each label as an answer: two digits, adding up to 1, one above the others."""
    units = [round(100 * p) for p in chances]
    top = max(range(len(units)), key=lambda at: chances[at])
    units[top] += 100 - sum(units)
    while sorted(units)[-1] == sorted(units)[-2]:
        low = min(range(len(units)), key=lambda at: (at == top, -units[at]))
        units[top], units[low] = units[top] + 1, units[low] - 1
    answer = json.dumps({label: round(unit / 100, 2) for label, unit in zip(LABELS, units, strict=True)})
    assert parse_answer(answer, "probabilities").is_valid, answer
    return answer


def main(slices: Path, model: Path, out: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    renderer = renderers.get_renderer(RENDERER, tokenizer)
    [end] = renderer.get_stop_sequences()
    pool = pl.read_parquet(slices / "pool.parquet")
    drawn = {name: pl.read_parquet(slices / f"{name}.parquet") for name in SLICES}
    needed = {view: {"two", "two_sure"} if view in ("all", "title", "abstract") else {*SLICES} for view in VIEWS}
    needed["text_probabilities"] = {"three"}
    fields = pool["primary_field"].unique().sort().to_list()
    soft = pool.select(f"p_{label}" for label in LABELS).to_numpy()
    arrays: dict[str, np.ndarray] = {
        "label": np.array([LABELS.index(label) for label in pool["disruption_label"]]),
        "soft": (soft / soft.sum(1, keepdims=True)).astype(np.float32),
        "field": np.array([fields.index(field) for field in pool["primary_field"]]),
        "tokenizer": np.array(tokenizer.backend_tokenizer.to_str()),
        "settings": np.array(
            json.dumps({"fields": fields, "end": end, "most_tokens": MOST_TOKENS, "renderer": RENDERER})
        ),
    }

    def encode(text: str) -> list[int]:
        return [*tokenizer.encode(text, add_special_tokens=False), end]

    for label in LABELS:
        arrays[f"answer_{label}"] = np.array(encode(render_answer(label, "two_keys")))
    for name, rows in drawn.items():
        for side in SIDES:
            arrays[f"{name}_{side}"] = rows.filter(side=side)["row"].sort().to_numpy().astype(np.int64)

    def store(name: str, lists: list[list[int]]) -> None:
        arrays[f"{name}_tokens"] = np.array([token for one in lists for token in one], np.uint16)
        arrays[f"{name}_ends"] = np.cumsum([0, *map(len, lists)])

    papers = [
        Paper(
            openalex_id=f"W{row['row']}",
            view=PaperView(
                row["title"], row["abstract"], row["publication_year"], row["cited_by_count"], row["primary_field"]
            ),
            gold=Gold(row["disruption_label"], None),
        )
        for row in pool.iter_rows(named=True)
    ]
    for view, hidden in VIEWS.items():
        contract = "probabilities" if view.endswith("probabilities") else "two_keys"
        rules = TaskRules(contract=contract, reward="strong", hide=hidden, max_paper_tokens=MOST_TOKENS)
        wanted = {row for name in needed[view] for row in drawn[name]["row"]}
        store(
            view,
            [
                renderer.build_generation_prompt(build_messages(paper, rules, renderer)).to_ints()
                if row in wanted
                else []
                for row, paper in enumerate(papers)
            ],
        )
        print(view, f"{len(wanted):,} papers, {len(arrays[f'{view}_tokens']):,} tokens", flush=True)
    three = {*drawn["three"]["row"]}
    store("soft_answer", [encode(write_soft(soft[row].tolist())) if row in three else [] for row in range(pool.height)])
    held = io.BytesIO()
    np.savez(held, **arrays)
    out.write_bytes(lzma.compress(held.getvalue(), preset=6))
    print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("slices", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    main(**vars(parser.parse_args()))
