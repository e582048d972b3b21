"""Write the drawn papers as token ids, without text: ``pack.py PAPERS SLICES MODEL OUT.npz.xz``.

PAPERS and SLICES are those of ``slices.py``; works.parquet has ``source_name``, too. MODEL is the GGUF file that
``ladder.py`` trains.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from slices import LABELS, SLICES
from tinker_cookbook import renderers
from transformers import AutoTokenizer

from sciscidata.graph.graph import build_graph
from sciscidata.release.context import find_context
from sciscirl.envs.env import build_messages
from sciscirl.lab.models.fetch_model import fetch_model
from sciscirl.task.contracts import parse_answer, render_answer
from sciscirl.task.papers import CONTEXT, Gold, Paper, PaperView, Reference
from sciscirl.task.rules import TaskRules

RENDERER = "qwen3_instruct"
SIDES = ("train", "dev", "test")
META = ("publication_year", "cited_by_count", "primary_field")
MOST_TOKENS = 256
#: What a prompt hides and shows, and the most tokens of a paper's record, in each view.
VIEWS: dict[str, dict[str, Any]] = {
    "text": {"hide": META},
    "all": {},
    "title": {"hide": ("abstract", *META)},
    "abstract": {"hide": ("title", *META)},
    "text_probabilities": {"hide": META},
    # With year and field. Nearly half of all records are cut at 256 tokens, and references would leave first.
    "long": {"hide": ("cited_by_count",), "max_paper_tokens": 640},
    "references": {"hide": ("cited_by_count",), "max_paper_tokens": 640, "show": ("references",)},
    "numbers": {"hide": ("cited_by_count",), "max_paper_tokens": 640, "show": ("at_publication",)},
    "both": {"hide": ("cited_by_count",), "max_paper_tokens": 640, "show": CONTEXT},
}
#: The slices whose papers have a view.
NEEDED = {"two", "two_sure", "three", "second"}
TWO = {"two", "two_sure"}
NEEDED_BY = {"all": TWO, "title": TWO, "abstract": TWO, "text_probabilities": {"three"}}


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


def read_context(papers: Path, pool: pl.DataFrame) -> list[tuple[tuple[Reference, ...], dict[str, float | None]]]:
    """Return what each paper of the pool cites, and the numbers at publication, in their order."""
    works = pl.scan_parquet(papers / "works.parquet")
    years = works.select("work_id", "publication_year")
    graph = build_graph(years, pl.scan_parquet(papers / "citations.parquet"), cache_dir=None, n_threads=None)
    context = pool.select("work_id").join(find_context(pool["work_id"], graph, works), on="work_id", how="left")
    return [
        (tuple(Reference(**one) for one in references), numbers)
        for references, numbers in context.select(CONTEXT).iter_rows()
    ]


def main(papers: Path, slices: Path, model: str, out: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(fetch_model(model))
    renderer = renderers.get_renderer(RENDERER, tokenizer)
    [end] = renderer.get_stop_sequences()
    pool = pl.read_parquet(slices / "pool.parquet")
    drawn = {name: pl.read_parquet(slices / f"{name}.parquet") for name in (*SLICES, "second")}
    fields = pool["primary_field"].unique().sort().to_list()
    soft = pool.select(f"p_{label}" for label in LABELS).to_numpy()
    arrays: dict[str, np.ndarray] = {
        "label": np.array([LABELS.index(label) for label in pool["disruption_label"]]),
        "soft": (soft / soft.sum(1, keepdims=True)).astype(np.float32),
        "field": np.array([fields.index(field) for field in pool["primary_field"]]),
        "tokenizer": np.array(tokenizer.backend_tokenizer.to_str()),
        "settings": np.array(json.dumps({"fields": fields, "end": end, "views": VIEWS, "renderer": RENDERER})),
    }

    def encode(text: str) -> list[int]:
        return [*tokenizer.encode(text, add_special_tokens=False), end]

    for label in LABELS:
        arrays[f"answer_{label}"] = np.array(encode(render_answer(label, "two_keys")))
    for name, rows in drawn.items():
        for side in SIDES:
            arrays[f"{name}_{side}"] = rows.filter(side=side)["row"].sort().to_numpy().astype(np.int64)

    def store(name: str, lists: list[list[int]]) -> None:
        kind = np.uint16 if len(tokenizer) <= 2**16 else np.uint32
        arrays[f"{name}_tokens"] = np.array([token for one in lists for token in one], kind)
        arrays[f"{name}_ends"] = np.cumsum([0, *map(len, lists)])

    known = ("title", "abstract", "publication_year", "cited_by_count", "primary_field")
    told = [
        Paper(openalex_id=f"W{row}", view=PaperView(*own, *context), gold=Gold(label, None))
        for row, (own, context, label) in enumerate(
            zip(pool.select(known).iter_rows(), read_context(papers, pool), pool["disruption_label"], strict=True)
        )
    ]
    for view, seen in VIEWS.items():
        contract = "probabilities" if view.endswith("probabilities") else "two_keys"
        rules = TaskRules(contract=contract, reward="strong", **{"max_paper_tokens": MOST_TOKENS} | seen)
        wanted = {row for name in NEEDED_BY.get(view, NEEDED) for row in drawn[name]["row"]}
        store(
            view,
            [
                renderer.build_generation_prompt(build_messages(paper, rules, renderer)).to_ints()
                if row in wanted
                else []
                for row, paper in enumerate(told)
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
    parser.add_argument("papers", type=Path)
    parser.add_argument("slices", type=Path)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    main(**vars(parser.parse_args()))
