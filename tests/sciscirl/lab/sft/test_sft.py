from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from pathlib import Path

import pytest
import tinker
from tinker_cookbook.supervised import train
from tinker_cookbook.utils import ml_log

import sciscirl
from sciscirl.envs.env import LabelEnv, read_action
from sciscirl.envs.tokenizer import make_renderer
from sciscirl.errors import SciSciRLError
from sciscirl.lab.dry_run import MARKS, describe_server_sft, render_sft_plan, show_example
from sciscirl.lab.hardware_options import PeftSftOptions
from sciscirl.lab.sft.examples import GoldExamples, gold_answer, list_settings, make_papers_builder, to_datum
from sciscirl.lab.sft.peft_backend import collate, collate_labels
from sciscirl.lab.sft.tinker_backend import (
    GoldDatasetBuilder,
    NumberedEvaluator,
    make_config,
    measured_labels,
    train_on_tinker,
)
from sciscirl.lab.training.rl import make_evaluator, make_run_builder
from sciscirl.options import TinkerSftOptions, TrainOptions, resolve_preset, resolve_run
from sciscirl.presets import PRESETS
from sciscirl.runs import prices
from sciscirl.task.contracts import CONTRACTS, parse_answer
from sciscirl.task.papers import Gold, Paper, PaperView, list_labels
from sciscirl.task.prompts import STYLES
from sciscirl.task.release import read_split
from sciscirl.task.rules import TaskRules
from tests.sciscirl.toy import RENDERER, Scripted, gold_of, say


@pytest.fixture
def options(toy_slice, toy_model, tmp_path):
    log_path = str(tmp_path / "run")
    return {
        "release": str(toy_slice), "model": toy_model, "renderer": RENDERER, "log_path": log_path, "eval_split": "test"
    }  # fmt: skip


@pytest.fixture
def paper(toy_slice):
    return read_split(toy_slice, "train")[0]


# --- examples -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("renderer_name", ["qwen3_instruct", "qwen3_disable_thinking", "role_colon"])
def test_the_gold_answer_stands_behind_the_prompt_that_is_sampled_from(
    toy_slice, toy_model, style, contract, renderer_name
):
    rules, renderer = TaskRules(style=style, contract=contract), make_renderer(toy_model, renderer_name)
    for paper in read_split(toy_slice, "train")[:3]:
        example = GoldExamples([paper], rules, renderer)[0]
        observation, _ = asyncio.run(LabelEnv(paper, rules, renderer).initial_observation())
        assert list(example.tokens[: example.n_prompt]) == observation.to_ints()
        text, is_ended = read_action(list(example.tokens[example.n_prompt :]), renderer)
        assert is_ended
        answer = parse_answer(text, contract)
        assert answer.is_valid
        assert answer.label == paper.gold.disruption_label
        assert answer.confidence == 1.0


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_gold_answer_that_its_contract_takes(name):
    gold = Gold("neutral", "novel", "A")
    rules = resolve_preset(PeftSftOptions(preset=name)).rules
    answer = rules.parse(gold_answer(Paper("W1", PaperView("t", "a", 2001, 3, None), gold), rules))
    assert answer.is_valid
    assert {answer.labels[column] for column in list_labels(rules.target)} <= {"neutral", "novel", "A"}


def test_only_the_answer_and_its_end_are_trained_on(paper, toy_renderer):
    rules = TaskRules(contract="two_keys")
    example = GoldExamples([paper], rules, toy_renderer, confidence=0.5)[0]
    datum = to_datum(example)
    weights, targets = (datum.loss_fn_inputs[name].tolist() for name in ("weights", "target_tokens"))
    trained = [token for token, weight in zip(targets, weights, strict=True) if weight > 0]
    text = toy_renderer.tokenizer.decode(trained)
    assert text == f'{{"disruption_label": "{paper.gold.disruption_label}", "confidence": 0.5}}<|im_end|>'
    assert sum(weights) == pytest.approx(1)
    shown = show_example(example, toy_renderer.tokenizer)
    assert shown.endswith(f"{MARKS[0]}{text}{MARKS[1]}")
    assert datum.model_input.to_ints() == list(example.tokens[:-1])


@pytest.mark.parametrize(("target", "said"), [("disruption", ['"']), ("joint", ['", "novelty_label": "', '"'])])
def test_the_loss_on_the_label_alone_is_on_its_tokens_and_closing_quote(toy_slice, toy_renderer, target, said):
    paper = read_split(toy_slice, "train", target=target)[0]
    rules = TaskRules(contract="two_keys", target=target, reward="strong")
    example = GoldExamples([paper], rules, toy_renderer, loss_on="label")[0]
    datum = to_datum(example)
    weights, targets = (datum.loss_fn_inputs[name].tolist() for name in ("weights", "target_tokens"))
    trained = [token for token, weight in zip(targets, weights, strict=True) if weight > 0]
    labels = paper.labels(rules.target).values()
    assert toy_renderer.tokenizer.decode(trained) == "".join(f'{label}"' for label in labels)
    assert {*weights} == {0, 1}  # so that the loss is -log p(label)
    shown = show_example(example, toy_renderer.tokenizer)
    assert all(f'{MARKS[0]}{label}"{MARKS[1]}' in shown for label in labels)
    whole = GoldExamples([paper], rules, toy_renderer)[0]
    assert whole.labels == example.labels == example.learned
    assert len(whole.learned) == len(whole.tokens) - whole.n_prompt
    batch, every = collate_labels([example, whole]), collate([whole])
    assert [token for token in batch["labels"][0].tolist() if token != -100] == trained
    assert batch["labels"][1].tolist() == every["labels"][0].tolist()
    kept = batch["input_ids"][:, -batch["logits_to_keep"] :]
    assert [row[marks].tolist() for row, marks in zip(kept, batch["says_label"], strict=True)] == [trained, trained]


def test_a_run_on_the_label_alone_says_so_and_is_judged_by_scored_labels(options):
    chosen = PeftSftOptions(**options, preset="exp4", loss_on="label", quantize="none")
    run = resolve_run(chosen)
    settings = list_settings(run, builder := make_papers_builder(run))
    assert (settings["loss_on"], settings["answers"]) == ("label", "logprobs")
    assert make_evaluator(run, builder).scoring is not None
    whole = resolve_run(PeftSftOptions(**options, preset="exp4", quantize="none"))
    assert (list_settings(whole, builder)["answers"], make_evaluator(whole, builder).scoring) == ("sampled", None)
    with pytest.raises(SciSciRLError, match=r"loss_on=label trains on one label.*contract=two_keys"):
        gold_of(PeftSftOptions(**options, preset="exp4", contract="probabilities", loss_on="label"))


@pytest.mark.parametrize("loss_on", ["answer", "label"])
def test_the_loop_of_the_cookbook_logs_the_loss_on_the_label(toy_slice, toy_renderer, loss_on):
    """Its two functions that are stood in for are called as its loop calls them."""
    rules = TaskRules(contract="two_keys", target="joint", reward="strong")
    examples = [
        GoldExamples([paper], rules, toy_renderer, loss_on=loss_on)[0]
        for paper in read_split(toy_slice, "train", target="joint")[:3]
    ]
    data = [to_datum(example) for example in examples]
    targets, weights = ([datum.loss_fn_inputs[name] for datum in data] for name in ("target_tokens", "weights"))
    logprobs = [
        tinker.TensorData(data=[-place / 64 for place in range(len(one.data))], dtype="float32", shape=one.shape)
        for one in targets
    ]
    rows = []

    class Logger:
        def log_metrics(self, metrics, step=None):
            rows.append((step, metrics))

    before = train.compute_bpb, ml_log.setup_logging
    ml_log.setup_logging = lambda **_: Logger()
    try:
        with measured_labels(["disruption_label", "novelty_label"], loss_on):
            logger = ml_log.setup_logging(log_dir="run")
            measured = train.compute_bpb(logprobs, weights, targets, toy_renderer.tokenizer)
            logger.log_metrics(metrics={"train_mean_nll": 0.5}, step=7)
            logger.log_metrics(metrics={"test/n": 1}, step=8)
    finally:
        train.compute_bpb, ml_log.setup_logging = before
    assert measured == before[0](logprobs, weights, targets, toy_renderer.tokenizer)
    # The token at a place is the target of the place before it.
    expected = [sum((place - 1) / 64 for place in example.labels) for example in examples]
    assert rows == [(7, {"train_mean_nll": 0.5, "label_nll": pytest.approx(sum(expected) / 3)}), (8, {"test/n": 1})]


def test_a_chat_format_that_puts_thinking_in_front_of_the_answer_is_refused(paper, toy_model):
    thinking = make_renderer(toy_model, "qwen3")
    with pytest.raises(SciSciRLError, match=r"Qwen3Renderer does not write exactly the answer.*renderer="):
        GoldExamples([paper], TaskRules(), thinking)[0]


@pytest.mark.parametrize("confidence", [0.0, 0.3, 1 / 3])
def test_probabilities_that_do_not_say_the_gold_label_are_no_target(paper, confidence):
    with pytest.raises(SciSciRLError, match="needs a number above 1/3"):
        gold_answer(paper, TaskRules(contract="probabilities"), confidence)
    assert gold_answer(paper, TaskRules(contract="two_keys"), confidence)


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan")])
def test_a_confidence_that_no_contract_allows_is_refused(paper, confidence):
    with pytest.raises(SciSciRLError, match="from 0 to 1"):
        gold_answer(paper, TaskRules(), confidence)


# --- options ------------------------------------------------------------------------------------------------------


def test_papers_come_in_the_order_of_reinforcement_learning_epoch_after_epoch(options):
    examples = gold_of(PeftSftOptions(**options, n_epochs=2, batch_size=5, interleave=True, seed=3))
    rl = TrainOptions(**options, preset="exp4", n_epochs=2, batch_size=5, interleave=True, seed=3)
    papers = make_run_builder(resolve_run(rl)).train_papers()
    assert [example.openalex_id for example in examples] == [paper.openalex_id for paper in papers][:45]
    assert len(examples) == 45  # 48, less what fills no batch


def test_fewer_steps_are_taken_where_so_many_are_asked_for(options):
    assert len(gold_of(PeftSftOptions(**options, n_epochs=9, batch_size=8, max_steps=2))) == 16
    assert len(gold_of(PeftSftOptions(**options, n_epochs=1, batch_size=8, max_steps=99))) == 24


def settings_of(options):
    run = resolve_run(options)
    return list_settings(run, make_papers_builder(run))


def test_settings_name_whatever_would_change_a_run(options):
    base = PeftSftOptions(**options)
    settings = settings_of(base)
    changes = {"confidence": 0.9, "n_train": 9, "interleave": True, "n_epochs": 4, "max_steps": 7, "seed": 4}
    changes |= {"batch_size": 3, "learning_rate": 1.0, "style": "plain", "contract": "four_keys", "lora_rank": 2}
    for name, value in changes.items():
        assert settings_of(dataclasses.replace(base, **{name: value})) != settings, name
    assert settings["backend"] == "peft"


# --- Tinker, without a server -------------------------------------------------------------------------------------


def test_the_config_is_the_cookbooks_and_its_data_are_the_gold_answers(options):
    run = resolve_run(TinkerSftOptions(**options, batch_size=8, n_epochs=2, learning_rate=3e-4, lora_rank=4))
    config = make_config(run, make_papers_builder(run))
    assert isinstance(config, train.Config)
    assert config.ttl_seconds == 90 * 86_400
    assert (config.num_epochs, config.learning_rate, config.lora_rank) == (1, 3e-4, 4)
    assert isinstance(config.dataset_builder, GoldDatasetBuilder)
    dataset, held_out = config.dataset_builder()
    assert held_out is None  # judged by our own evaluator
    assert len(dataset) == 6
    given = {**options, "groups_per_batch": 8, "num_epochs": 2}  # the cookbook's names will do
    again, _ = sciscirl.make_gold_builder("exp4", **given)()
    assert again.get_batch(2)[0].model_input == dataset.get_batch(2)[0].model_input
    dataset.set_epoch(1)
    examples = config.dataset_builder()[0].examples
    assert [datum.model_input.to_ints() for datum in dataset.get_batch(2)] == [
        list(example.tokens[:-1]) for example in examples[16:24]
    ]


@pytest.mark.parametrize(("first_step", "steps"), [(0, [0, 4, 8]), (3, [4, 8]), (4, [4, 8])])
def test_an_evaluation_is_written_under_the_step_at_which_the_loop_asks_for_it(
    options, toy_renderer, tmp_path, first_step, steps, monkeypatch
):
    from tinker_cookbook.stores.storage import storage_from_uri
    from tinker_cookbook.stores.training_store import TrainingRunStore

    store = TrainingRunStore(storage_from_uri(str(tmp_path)))
    run = resolve_run(PeftSftOptions(**options | {"log_path": str(tmp_path)}, n_test=3))
    evaluator = make_evaluator(run, make_papers_builder(run))
    policy = Scripted(toy_renderer.tokenizer, lambda _: say("neutral"))
    monkeypatch.setattr(type(evaluator), "__call__", lambda self, _, **more: self.eval_token_completer(policy, **more))
    numbered = NumberedEvaluator(evaluator, first_step=first_step, every=4, store=store)
    for _ in steps:
        assert asyncio.run(numbered(None))["test/label_match"] == pytest.approx(1 / 3)
    written = sorted(path.name for path in (tmp_path / "predictions").iterdir())
    assert written == [f"test_{step:06d}.parquet" for step in steps]
    assert all(len(store.read_rollouts(step, "eval_test")) == 3 for step in steps)


def test_a_dry_run_shows_which_tokens_are_trained_on_and_asks_no_server(options, monkeypatch):
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:9")
    text = describe_server_sft(resolve_run(TinkerSftOptions(**options, batch_size=8, n_epochs=1)))
    resolved = json.loads(text.partition("\n--- settings ---\n")[2])
    assert resolved["dataset_builder"]["options"]["preset"] == "exp4"
    assert text.count(f'<|im_start|>assistant\n{MARKS[0]}{{"disruption_label": "') == 3
    assert text.count(f'"confidence": 1.0}}<|im_end|>{MARKS[1]}') == 3
    assert "steps: 3 of 8 papers; each of 24 training papers is shown 1.0 times" in text
    assert "no list price known, without evaluations" in text
    assert "right answers to these papers earn 1.05, the best constant answer (disruptive) -0.02, a regression" in text
    assert not Path(options["log_path"]).exists()


def test_a_dry_run_on_a_server_says_what_training_costs_and_on_your_own_gpu_it_costs_nothing(options, monkeypatch):
    monkeypatch.setattr(prices, "PRICES", {options["model"]: prices.Price(1.0, 1.0, 1000.0)})
    given = TinkerSftOptions(**options, batch_size=8, n_epochs=1)
    said = re.search(
        r"with their prompts: about ([\d,]+) tokens\ncost: \$([\d.]+) \(list", describe_server_sft(resolve_run(given))
    )
    n_tokens = int(said[1].replace(",", ""))
    examples = gold_of(given)
    assert n_tokens == pytest.approx(sum(len(example.tokens) for example in examples), rel=0.01)
    assert float(said[2]) == pytest.approx(n_tokens / 1000, abs=0.01)
    run = resolve_run(PeftSftOptions(**options, batch_size=8, n_epochs=1))
    own = render_sft_plan(run, make_papers_builder(run), {}, settings_of(given))
    assert f"about {n_tokens:,} tokens\n--- example 1" in own


def test_a_server_that_is_down_is_one_line_and_leaves_no_folder(options, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    with pytest.raises(SciSciRLError, match="no Tinker server answers"):
        asyncio.run(train_on_tinker(resolve_run(TinkerSftOptions(**options, base_url="http://127.0.0.1:9"))))
    assert not Path(options["log_path"]).exists()
