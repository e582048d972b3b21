"""Small stand-ins: a slice, a tokenizer, and a model that says what it is told to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import tinker
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sciscidata.sampling.split import split_keys
from sciscirl.envs.dataset import LabelDatasetBuilder
from sciscirl.lab.sft.examples import GoldExamples, make_examples, make_papers_builder
from sciscirl.options import SftOptions, resolve_run
from sciscirl.task.contracts import render_answer
from sciscirl.task.release import Order, PaperChoice
from sciscirl.task.rules import TaskRules
from tests.sciscirl.papers import write_slice

LABELS = ("disruptive", "consolidating", "neutral")
SCORES = dict(zip(LABELS, (0.5, -0.5, 0.0), strict=True))
#: Novelty label by word in the abstract, and the two scores behind it.
NOVELTY = {
    "odd": ("novel", 0.9, 0.1), "assorted": ("balanced", 0.5, 0.5), "common": ("conventional", 0.1, 0.9)
}  # fmt: skip
RENDERER = "qwen3_instruct"


def gold_of(options: SftOptions) -> GoldExamples:
    """Return the gold answers that a supervised run trains on."""
    return make_examples(make_papers_builder(resolve_run(options)), options)


def make_builder(release: Path, model: Path | str, kind=LabelDatasetBuilder, **named: Any) -> LabelDatasetBuilder:
    """Return a builder with settings of its parts by their names."""
    parts = {"task": TaskRules, "order": Order, "choice": PaperChoice}
    for part, of in parts.items():
        own = {field.name: named.pop(field.name) for field in fields(of) if field.name in named}
        named[part] = of(**own)
    return kind(release=str(release), model_name=str(model), renderer_name=RENDERER, **named)


def make_slice(
    folder: Path, n_train: int = 24, n_test: int = 9, *, n_dev: int = 0, long_title: str = "", n_words: int = 90,
    has_counts: bool = False, **stated: object,
) -> Path:  # fmt: skip
    """Release papers whose titles tell their class, in equal numbers per class; abstracts tell their novelty.

    With ``has_counts`` it says how many citers each paper has, from four to twelve. ``stated`` goes into the manifest.

    The title of one may have so many words more: "train: 7" is the seventh of that split.
    """
    sizes = {"train": n_train, "test": n_test, "dev": n_dev}
    splits = [split for split, n in sizes.items() for _ in range(n)]
    labels = [LABELS[number % 3] for n in sizes.values() for number in range(n)]
    words = {"disruptive": "assay", "consolidating": "review", "neutral": "survey"}
    citers = {"disruptive": (3, 1, 0), "consolidating": (1, 3, 0), "neutral": (2, 2, 0)}
    keys = split_keys(pl.Series(range(1, len(splits) + 1), dtype=pl.Int64))
    rows = []
    for number, (label, key) in enumerate(zip(labels, keys, strict=True), start=1):
        kind = [*NOVELTY][(number - 1) // 3 % 3]  # each kind with each label
        counts = (n * (1 + number // 3 % 3) for n in citers[label])
        rows.append(
            {
                "publication_year": 1990 + number % 20,
                "title": f"A {words[label]} of thing {number}",
                "abstract": f"We present a {words[label]} of {kind} things and discuss what is {kind} in them.",
                "cited_by_count": number % 7,
                "primary_field": "Chemistry" if number % 2 else "Medicine",
                "concepts": ["Things"],
                "split_key": key,
                "cd_index": SCORES[label],
                "disruption_label": label,
                **dict(zip(("novelty_label", "novelty_score", "conventionality_score"), NOVELTY[kind], strict=True)),
                **dict(zip(("n_i", "n_j", "n_k"), counts, strict=True)),
            }
        )
    if long_title:
        part, _, place = long_title.partition(": ")
        rows[splits.index(part) + int(place) - 1]["title"] += " and of others" * (n_words // 3)
    return write_slice(folder, rows, n_test=n_test, n_dev=n_dev, balance="disruption", counts=has_counts, **stated)


def make_tokenizer(folder: Path) -> Path:
    """Save a tokenizer of single bytes with Qwen's turn marks; a token is a character, so lengths are plain to see."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE(vocab={mark: number for number, mark in enumerate(special + alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=["<|im_start|>"],
    ).save_pretrained(folder)
    return folder


def say(label: str, confidence: float = 0.5) -> str:
    return render_answer(label, "two_keys", confidence=confidence)


class Scripted(TokenCompleter):
    """Answers with the given texts in turn, each ended properly unless ``max_tokens`` is in its way."""

    def __init__(self, tokenizer, answers: Iterable[str] | Callable[[str], str], max_tokens: int = 10_000) -> None:
        self.tokenizer = tokenizer
        texts = iter(()) if callable(answers) else iter(answers)
        self.choose = answers if callable(answers) else lambda _: next(texts)
        self.max_tokens = max_tokens
        self.prompts: list[str] = []

    async def __call__(self, model_input: tinker.ModelInput, stop, *, max_tokens=None) -> TokensWithLogprobs:
        await asyncio.sleep(0)
        prompt = str(self.tokenizer.decode(model_input.to_ints()))
        self.prompts.append(prompt)
        tokens = self.tokenizer.encode(self.choose(prompt) + "<|im_end|>", add_special_tokens=False)
        is_cut = len(tokens) > self.max_tokens
        tokens = tokens[: self.max_tokens]
        return TokensWithLogprobs(
            tokens=tokens, maybe_logprobs=[-0.5] * len(tokens), stop_reason="length" if is_cut else "stop"
        )
