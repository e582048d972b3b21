"""Label probabilities against brute force: every answer read whole, one after the other, without a cache."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import polars as pl
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM

from sciscirl.envs.env import build_messages
from sciscirl.errors import SciSciRLError
from sciscirl.lab.analysis.compare import CompareConfig
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.label_scoring import (
    Ending,
    LabelScoring,
    find_label_tokens,
    make_content_free,
    make_endings,
    place_answer,
    predict_labels,
    score_on_server,
)
from sciscirl.lab.models.local_completer import score_here
from sciscirl.lab.report.comparison import compare_files
from sciscirl.metrics.predictions import read_predictions
from sciscirl.task.contracts import render_answer
from sciscirl.task.papers import TARGETS, list_labels
from sciscirl.task.release import read_split
from sciscirl.task.rules import TaskRules
from tests.sciscirl.toy import RENDERER, make_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
TWO_KEYS = TaskRules(contract="two_keys", reward="strong", max_paper_tokens=220)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A model that knows nothing; a token is a byte, so every label has many."""
    folder = make_tokenizer(tmp_path_factory.mktemp("scored") / "model")
    shape = {
        "vocab_size": 260, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8192, "dtype": "float32",
    }  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**shape))
    for weights in (weights for weights in model.parameters() if weights.dim() > 1):
        torch.nn.init.normal_(weights, std=0.3)  # so that every paper gets other numbers
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(model_folder):
    return Qwen3ForCausalLM.from_pretrained(model_folder).eval()


@pytest.fixture(scope="module")
def papers(toy_slice):
    return read_split(toy_slice, "test", needs=TARGETS["joint"])[:5]


def read_whole(model, tokens) -> list[float]:
    """The log-probability of each token but the first."""
    with torch.no_grad():
        said = model(torch.tensor([tokens])).logits[0].double().log_softmax(-1)
    return said[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()


def add_logprobs(model, paper, rules, renderer) -> dict[tuple[str, ...], float]:
    """The log-probability of each answer: the bytes of its labels and their closing quotes, and no others, count."""
    totals = {}
    columns = list_labels(rules.target)
    for labels in product(*columns.values()):
        answer = render_answer(dict(zip(columns, labels, strict=True)), rules.contract, rules.target)
        prompt, tokens = place_answer(build_messages(paper, rules, renderer), answer, renderer)
        logprobs, total = read_whole(model, prompt + tokens), 0.0
        for column, label in zip(columns, labels, strict=True):
            start = answer.index(f'"{column}": "') + len(f'"{column}": "')  # a token is a byte
            for place in range(start, start + len(label) + 1):
                total += logprobs[len(prompt) + place - 1]
        totals[labels] = total
    return totals


def brute_force(model, paper, rules, renderer) -> dict[tuple[str, ...], float]:
    """The probability of each answer."""
    totals = add_logprobs(model, paper, rules, renderer)
    highest = max(totals.values())
    shares = {labels: math.exp(total - highest) for labels, total in totals.items()}
    return {labels: share / sum(shares.values()) for labels, share in shares.items()}


def ask(model, papers, rules, renderer, prior=()):
    async def score(prompts, endings):
        return score_here(model, prompts, endings)

    return asyncio.run(predict_labels(papers, rules, renderer, score, LabelScoring(tuple(prior))))


@pytest.mark.parametrize("rules", [TWO_KEYS, replace(TWO_KEYS, contract="four_keys", hide=("title",))])
def test_probabilities_are_those_of_every_answer_read_whole(model, papers, rules, toy_renderer):
    frame, prior = ask(model, papers, rules, toy_renderer)
    assert prior == {}
    assert frame["is_valid"].all()
    assert frame["text"].n_unique() == len(papers)
    for paper, row in zip(papers, frame.iter_rows(named=True), strict=True):
        expected = brute_force(model, paper, rules, toy_renderer)
        forecast = json.loads(row["forecast"])
        assert forecast == pytest.approx({label: share for (label,), share in expected.items()}, abs=1e-5)
        totals = {label: total for (label,), total in add_logprobs(model, paper, rules, toy_renderer).items()}
        assert json.loads(row["text"]) == pytest.approx(totals, abs=1e-3)
        assert row["label"] == max(forecast, key=forecast.__getitem__)
        assert (row["confidence"], row["gold"]) == (forecast[row["label"]], paper.gold.disruption_label)
        assert row["reward"] == pytest.approx(1.05 if row["label"] == row["gold"] else -0.55)


def test_in_the_joint_task_the_second_label_is_read_behind_the_first(model, papers, toy_renderer):
    rules = replace(TWO_KEYS, target="joint")
    frame, _ = ask(model, papers[:2], rules, toy_renderer)
    for paper, row in zip(papers[:2], frame.iter_rows(named=True), strict=True):
        expected = brute_force(model, paper, rules, toy_renderer)
        for place, name in enumerate(("disruption", "novelty")):
            shares = dict.fromkeys(list_labels(rules.target)[f"{name}_label"], 0.0)
            for labels, share in expected.items():
                shares[labels[place]] += share
            assert json.loads(row[f"forecast_{name}"]) == pytest.approx(shares, abs=1e-5)
        assert row["confidence"] == pytest.approx(expected[row["label_disruption"], row["label_novelty"]], abs=1e-5)


def test_the_models_own_bias_is_divided_out(model, papers, toy_renderer):
    prior_papers = [*papers[3:], *make_content_free()]
    raw = [brute_force(model, paper, TWO_KEYS, toy_renderer) for paper in prior_papers]
    mean = {label: sum(one[(label,)] for one in raw) / len(raw) for (label,) in raw[0]}
    frame, prior = ask(model, papers[:3], TWO_KEYS, toy_renderer, prior_papers)
    assert prior == pytest.approx(mean, abs=1e-5)
    for paper, forecast in zip(papers[:3], map(json.loads, frame["forecast"]), strict=True):
        shares = {
            label: share / mean[label] for (label,), share in brute_force(model, paper, TWO_KEYS, toy_renderer).items()
        }
        assert forecast == pytest.approx(
            {label: share / sum(shares.values()) for label, share in shares.items()}, abs=1e-5
        )
    # Over the papers that it was measured on, a corrected model favours no label.
    alone, _ = ask(model, papers[:1], TWO_KEYS, toy_renderer, papers[:1])
    assert json.loads(alone["forecast"][0]) == pytest.approx(dict.fromkeys(mean, 1 / 3))


class Server:
    """Answers as a server does: one number for each token, none for the first, or for those not asked for."""

    def __init__(self, model, is_mute: bool = False, is_old: bool = False) -> None:
        self.model, self.is_mute, self.is_old, self.n_refused = model, is_mute, is_old, 0

    async def compute_logprobs(self, prompt, prompt_logprobs_last_n=None):
        if self.is_old and prompt_logprobs_last_n:
            self.n_refused += 1
            raise RuntimeError(
                "prompt_logprobs_last_n=2 was requested but the server returned prompt logprobs before that suffix"
            )
        told = [None, *read_whole(self.model, prompt.to_ints())]
        n_hidden = len(told) if self.is_mute else len(told) - (prompt_logprobs_last_n or len(told))
        return [None] * n_hidden + told[n_hidden:]


def test_a_server_is_asked_for_the_same_numbers(model, papers, toy_renderer):
    endings = [*make_endings(papers[0], TWO_KEYS, toy_renderer).values()]
    prompts = [
        toy_renderer.build_generation_prompt(build_messages(p, TWO_KEYS, toy_renderer)).to_ints() for p in papers[:2]
    ]
    here = score_here(model, prompts, endings)
    there = asyncio.run(score_on_server(Server(model), prompts, endings))
    assert torch.tensor(here) == pytest.approx(torch.tensor(there), abs=1e-4)
    old = Server(model, is_old=True)
    assert asyncio.run(score_on_server(old, prompts, endings)) == there
    assert old.n_refused == 1
    with pytest.raises(SciSciRLError, match=r"does not state the log-probabilities.*answers=sampled"):
        asyncio.run(score_on_server(Server(model, is_mute=True), prompts, endings))


def test_layers_that_cannot_go_on_from_a_cache_read_the_prompt_again(papers, toy_renderer):
    torch.manual_seed(0)
    shape = {
        "vocab_size": 260, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8,
        "num_attention_heads": 2, "num_key_value_heads": 1, "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 1, "linear_num_value_heads": 1, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
    }  # fmt: skip
    mixed = Qwen3NextForCausalLM(Qwen3NextConfig(**shape)).eval()
    for weights in (weights for weights in mixed.parameters() if weights.dim() > 1):
        torch.nn.init.normal_(weights, std=0.3)
    frame, _ = ask(mixed, papers[:2], TWO_KEYS, toy_renderer)
    for paper, row in zip(papers[:2], frame.iter_rows(named=True), strict=True):
        totals = {label: total for (label,), total in add_logprobs(mixed, paper, TWO_KEYS, toy_renderer).items()}
        assert json.loads(row["text"]) == pytest.approx(totals, abs=1e-3)


def test_labels_of_one_token_take_one_pass(model):
    class Counting:
        device, n_passes = model.device, 0

        def __call__(self, **inputs):
            self.n_passes += 1
            return model(**inputs)

    counting = Counting()
    endings = [Ending((7, 8, last), (2,)) for last in (9, 10)]
    ((first, second),) = score_here(counting, [[3, 4, 5]], endings)
    assert counting.n_passes == 1
    said = read_whole(model, [3, 4, 5, 7, 8, 9])[-1], read_whole(model, [3, 4, 5, 7, 8, 10])[-1]
    assert (first, second) == pytest.approx(said, abs=1e-5)


def test_the_tokens_of_a_label_are_those_that_overlap_with_it_or_its_closing_quote():
    pieces = ["", '{"disruption_label":', ' "con', "solid", 'ating",', ' "novelty_label": "', "novel", '"', "}"]
    tokenizer = SimpleNamespace(decode=lambda tokens: "".join(pieces[token] for token in tokens))
    answer = [*range(1, len(pieces))]
    assert find_label_tokens(answer, ["disruption_label"], tokenizer) == (1, 2, 3)
    assert find_label_tokens(answer, ["disruption_label", "novelty_label"], tokenizer) == (1, 2, 3, 5, 6)
    assert find_label_tokens(answer, ["other_label"], tokenizer) == ()


def judge(toy_slice, model_folder, out, **options):
    options = {"answers": "logprobs", "preset": "exp4", **options}
    config = EvaluationConfig(
        release=toy_slice, out=out, local_model=model_folder, renderer=RENDERER, max_paper_tokens=220, **options
    )
    return asyncio.run(evaluate_model(config))


def test_an_evaluation_by_label_probabilities_is_one_like_others(
    toy_slice, model_folder, model, tmp_path, toy_renderer
):
    metrics = judge(toy_slice, model_folder, tmp_path / "raw")
    assert (metrics["n"], metrics["format_strict_ok"]) == (9, 1)
    assert 0 < metrics["forecast_brier"] < 1
    settings = json.loads((tmp_path / "raw" / "run.json").read_text("utf-8"))["settings"]
    assert settings["answers"] == "logprobs"
    assert not {"temperature", "top_p", "max_tokens", "prior"} & set(settings)
    corrected = judge(toy_slice, model_folder, tmp_path / "corrected", prior_correction="train", n_prior=6)
    assert corrected["n"] == 9
    settings = json.loads((tmp_path / "corrected" / "run.json").read_text("utf-8"))["settings"]
    assert settings["prior_correction"] == "train"
    assert sum(settings["prior"].values()) == pytest.approx(1)
    raw, mended = (read_predictions(tmp_path / name / "predictions.parquet") for name in ("raw", "corrected"))
    for before, after in zip(map(json.loads, raw["text"]), map(json.loads, mended["text"]), strict=True):
        assert after == pytest.approx(before, abs=1e-3)  # before any correction
    for before, after in zip(map(json.loads, raw["forecast"]), map(json.loads, mended["forecast"]), strict=True):
        shares = {label: share / settings["prior"][label] for label, share in before.items()}
        assert after == pytest.approx({label: one / sum(shares.values()) for label, one in shares.items()}, abs=1e-4)
    (pair,) = compare_files([str(tmp_path / "raw"), str(tmp_path / "corrected")], CompareConfig()).pairs
    assert pair.asked_otherwise == ("prior_correction",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": 0.5}, "temperature has no effect: answers=logprobs samples nothing"),
        ({"max_tokens": 8}, "max_tokens has no effect"),
        ({"answers": "sampled", "prior_correction": "train"}, "prior_correction has no effect on sampled answers"),
        ({"answers": None, "prior_correction": "train"}, "prior_correction has no effect on sampled answers"),
        ({"contract": "probabilities", "preset": "exp6"}, "contract=two_keys"),
        ({"preset": "adversarial"}, "is adversarial: its answers are challenged, not scored"),
        ({"answers": "logprob"}, "Did you mean logprobs"),
    ],
)
def test_what_cannot_be_scored_is_said(toy_slice, model_folder, tmp_path, options, said):
    with pytest.raises(SciSciRLError, match=said):
        judge(toy_slice, model_folder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_only_a_model_in_this_process_can_be_scored_by_a_completer(papers, toy_renderer):
    from sciscirl.lab.evaluator import AnswerSampling, LabelEvaluator
    from tests.sciscirl.toy import Scripted

    evaluator = LabelEvaluator(papers, TWO_KEYS, toy_renderer, AnswerSampling(9), scoring=LabelScoring())
    with pytest.raises(SciSciRLError, match="a Scripted only samples"):
        asyncio.run(evaluator.eval_token_completer(Scripted(toy_renderer.tokenizer, [])))


def test_a_server_is_scored_by_the_evaluator(model, papers, toy_renderer):
    from sciscirl.lab.evaluator import AnswerSampling, LabelEvaluator

    evaluator = LabelEvaluator(papers[:2], TWO_KEYS, toy_renderer, AnswerSampling(9), scoring=LabelScoring())
    metrics = asyncio.run(evaluator(Server(model)))
    assert metrics["test/n"] == 2
    here, _ = ask(model, papers[:2], TWO_KEYS, toy_renderer)
    assert isinstance(evaluator.predictions, pl.DataFrame)
    assert evaluator.predictions["label"].equals(here["label"])
