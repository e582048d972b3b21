"""QDoRA's whole way on a CPU: a tiny model that has learnt to read papers, and has all their labels wrong."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers

if not all(map(find_spec, ("peft", "accelerate"))):  # to import them takes seconds, and other workers need not
    pytest.skip("no extra sft", allow_module_level=True)

from safetensors.torch import load_file

from sciscirl.envs.model_folder import find_base_model
from sciscirl.errors import SciSciRLError
from sciscirl.lab.dry_run import describe_peft_training
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.hardware_options import MergeOptions, PeftSftOptions
from sciscirl.lab.local_server.tiny_model import TinyModelConfig, make_tiny_model
from sciscirl.lab.models.local_model import load_base_model, load_local_model
from sciscirl.lab.report.runs import read_run
from sciscirl.lab.report.views import view_cost
from sciscirl.lab.sft import peft_backend
from sciscirl.lab.sft.examples import GoldExamples, make_papers_builder
from sciscirl.lab.sft.merge import merge_adapter
from sciscirl.lab.sft.peft_backend import Recorder, collate, make_arguments, make_model, train_with_peft
from sciscirl.options import resolve_run
from sciscirl.task.papers import VOCABULARIES
from sciscirl.task.release import read_split
from tests.sciscirl.toy import RENDERER, gold_of, make_slice

LABELS = VOCABULARIES["disruption_label"]
N_PAPERS, N_STEPS, SAVE_EVERY = 8, 28, 16
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def contrary_model(toy_slice, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("contrary")
    papers = read_split(toy_slice, "train")
    make_tiny_model(folder, [paper.view for paper in papers], TinyModelConfig(priming_steps=60))
    builder = make_papers_builder(resolve_run(PeftSftOptions(**options_of(toy_slice, folder, folder))))
    rules, renderer = builder.rules(), builder.renderer()
    examples = []
    for paper in papers:
        wrong = LABELS[(LABELS.index(paper.gold.disruption_label) + 1) % 3]
        examples.append(
            GoldExamples([replace(paper, gold=replace(paper.gold, disruption_label=wrong))], rules, renderer)[0]
        )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0)
    for step in range(80):
        batch = collate([examples[(step * 8 + place) % len(examples)] for place in range(8)])
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return str(folder)


def options_of(toy_slice, model, log_path) -> dict:
    return {
        "preset": "exp4", "style": "plain", "release": str(toy_slice), "model": str(model), "renderer": RENDERER,
        "log_path": str(log_path), "n_train": N_PAPERS, "n_test": 3, "eval_split": "test",
        "n_epochs": N_STEPS, "batch_size": N_PAPERS,
        "micro_batch_size": 4, "learning_rate": 0.01, "lora_rank": 8, "max_tokens": 40, "eval_temperature": 0.0,
        "save_every": SAVE_EVERY, "eval_every": 14, "quantize": "none", "dtype": "float32",
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(toy_slice, contrary_model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("peft") / "run"
    return train_with_peft(resolve_run(PeftSftOptions(**options_of(toy_slice, contrary_model, folder))))


def judge(toy_slice, out, **subject) -> dict[str, float]:
    config = EvaluationConfig(
        release=toy_slice, out=out, split="train", n_papers=N_PAPERS, temperature=0.0, max_tokens=40, **subject
    )
    return asyncio.run(evaluate_model(config))


def read_rows(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def logits(model, options: PeftSftOptions) -> torch.Tensor:
    batch = collate(gold_of(options)[:4])
    del batch["labels"]
    with torch.no_grad():
        return model.eval()(**batch).logits


def test_a_model_that_was_wrong_about_eight_papers_gets_them_all_right(run, toy_slice, contrary_model, tmp_path):
    nll = [row["train_mean_nll"] for row in read_rows(run) if "train_mean_nll" in row]
    assert len(nll) == N_STEPS
    assert nll[-1] < 0.01 < 0.2 < nll[0]
    labels = [row["label_nll"] for row in read_rows(run) if "label_nll" in row]
    assert len(labels) == N_STEPS
    assert labels[-1] < 0.1 < math.log(3) < labels[0]  # at first worse than a guess
    before = judge(
        toy_slice, tmp_path / "before", local_model=Path(contrary_model), preset="baseline", renderer=RENDERER
    )
    assert before["label_match"] == 0
    after = judge(toy_slice, tmp_path / "after", run=run)
    assert (after["label_match"], after["format_strict_ok"]) == (1, 1)
    recorded = json.loads((tmp_path / "after" / "run.json").read_text("utf-8"))["settings"]
    assert recorded["local_model"].endswith("adapter")


def test_the_folder_of_a_run_is_like_the_others(run):
    evaluated = [row["step"] for row in read_rows(run) if "test/macro_f1" in row]
    assert evaluated == [0, 14, N_STEPS]
    assert [row["step"] for row in read_rows(run) if "learning_rate" in row] == list(range(N_STEPS))
    rates = [row["learning_rate"] for row in read_rows(run) if "learning_rate" in row]
    assert rates == pytest.approx([0.01 * (1 - step / N_STEPS) for step in range(N_STEPS)])
    assert sorted(path.name for path in (run / "predictions").iterdir()) == [
        "test_000000.parquet", "test_000014.parquet", "test_000028.parquet",
    ]  # fmt: skip
    recorded = json.loads((run / "run.json").read_text("utf-8"))
    assert recorded["settings"]["backend"] == "peft"
    assert recorded["settings"]["use_dora"] is True
    assert recorded["versions"]["peft"]
    assert len(recorded["release"]["manifest_sha256"]) == 64


def test_the_tokens_that_were_trained_on_are_counted_and_cost_no_dollars(run, toy_slice, contrary_model):
    options = PeftSftOptions(**options_of(toy_slice, contrary_model, run))
    examples = gold_of(options)
    logged = [row for row in read_rows(run) if "num_tokens" in row]
    assert len(logged) == N_STEPS
    assert sum(row["num_tokens"] for row in logged) == sum(len(example.tokens) - 1 for example in examples)
    assert sum(row["num_loss_tokens"] for row in logged) == sum(
        len(example.tokens) - example.n_prompt for example in examples
    )
    shown = read_run(run, "peft")
    assert shown.usage.train == sum(row["num_tokens"] for row in logged)
    priced = replace(shown, facts=shown.facts | {"settings": shown.settings | {"model": "Qwen/Qwen3-8B"}})
    assert view_cost([priced]).tables[0].rows[0][6:8] == [f"{shown.usage.train:,}", "own hardware"]


def test_the_merged_model_says_what_the_adapter_says(run, toy_slice, contrary_model, tmp_path):
    options = PeftSftOptions(**options_of(toy_slice, contrary_model, run))
    merge_adapter(run, tmp_path / "merged", MergeOptions(dtype="float32"))
    adapter, merged = load_local_model(run / "adapter"), load_local_model(tmp_path / "merged")
    assert any("magnitude" in name for name, _ in adapter.named_parameters())
    assert not any("lora" in name for name, _ in merged.named_parameters())
    torch.testing.assert_close(logits(merged, options), logits(adapter, options), atol=1e-4, rtol=1e-4)
    assert (logits(load_base_model(contrary_model), options) - logits(merged, options)).abs().max() > 1
    assert find_base_model(tmp_path / "merged") == str(tmp_path / "merged")
    after = judge(toy_slice, tmp_path / "judged", local_model=tmp_path / "merged", renderer=RENDERER, preset="exp4")
    assert after["n"] == N_PAPERS
    with pytest.raises(SciSciRLError, match="exists already"):
        merge_adapter(run, tmp_path / "merged", MergeOptions())
    with pytest.raises(SciSciRLError, match="nothing to merge"):
        merge_adapter(tmp_path / "merged", tmp_path / "again", MergeOptions())


def test_sixteen_bits_are_what_is_merged_into_by_default(run, tmp_path):
    weights = load_file(merge_adapter(run, tmp_path / "merged", MergeOptions()) / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    assert "quantization_config" not in json.loads((tmp_path / "merged" / "config.json").read_text("utf-8"))


def test_a_run_that_was_killed_goes_on_to_the_very_same_weights(run, toy_slice, contrary_model, tmp_path, monkeypatch):
    options = PeftSftOptions(**options_of(toy_slice, contrary_model, tmp_path / "run"))
    log = Recorder.on_log

    def log_and_die(self, args, state, control, **more):
        log(self, args, state, control, **more)
        if state.global_step == SAVE_EVERY + 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "on_log", log_and_die)
        with pytest.raises(KeyboardInterrupt):
            train_with_peft(resolve_run(options))
    assert not (tmp_path / "run" / "adapter").exists()
    with pytest.raises(SciSciRLError, match=r"has no adapter: .* Resume it if it is one"):
        merge_adapter(tmp_path / "run", tmp_path / "merged", MergeOptions())
    with pytest.raises(SciSciRLError, match="behavior_if_log_dir_exists=resume"):
        train_with_peft(resolve_run(options))
    # What a kill left of a checkpoint is not one.
    (tmp_path / "run" / "checkpoints" / f"checkpoint-{SAVE_EVERY + 4}").mkdir()
    options = PeftSftOptions(
        **options_of(toy_slice, contrary_model, tmp_path / "run"), behavior_if_log_dir_exists="resume"
    )
    train_with_peft(resolve_run(options))
    ours, theirs = (load_file(folder / "adapter" / "adapter_model.safetensors") for folder in (tmp_path / "run", run))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    def losses(folder):
        return [(row["step"], row["train_mean_nll"]) for row in read_rows(folder) if "train_mean_nll" in row]

    assert losses(tmp_path / "run") == losses(run)
    train_with_peft(resolve_run(options))  # there is nothing left to do
    assert losses(tmp_path / "run") == losses(run)


def test_a_run_is_not_resumed_as_another_one(run, toy_slice, contrary_model):
    other = {**options_of(toy_slice, contrary_model, run), "use_dora": False, "behavior_if_log_dir_exists": "resume"}
    with pytest.raises(SciSciRLError, match="begun with use_dora=True, not use_dora=False"):
        train_with_peft(resolve_run(PeftSftOptions(**other)))


def test_every_linear_layer_but_the_last_gets_an_adapter_without_dropout(toy_slice, contrary_model, tmp_path):
    options = PeftSftOptions(**options_of(toy_slice, contrary_model, tmp_path))
    model = make_model(resolve_run(options), make_arguments(resolve_run(options), 1))
    config = model.peft_config["default"]
    assert (config.use_dora, config.lora_dropout, config.r, config.lora_alpha) == (True, 0.0, 8, 32)
    trained = {
        name.split(".lora_")[0].split(".")[-1] for name, weight in model.named_parameters() if weight.requires_grad
    }
    assert trained == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_the_loss_of_a_batch_is_that_of_its_answers_alone(toy_slice, contrary_model):
    options = PeftSftOptions(**options_of(toy_slice, contrary_model, "unused"))
    examples, model = gold_of(options)[:5], load_base_model(contrary_model).eval()
    total = count = 0
    for example in examples:
        with torch.no_grad():
            scores = model(torch.tensor([example.tokens])).logits[0].log_softmax(-1)
        for place in range(example.n_prompt, len(example.tokens)):
            total -= scores[place - 1, example.tokens[place]].item()
            count += 1
    with torch.no_grad():
        assert model(**collate(examples)).loss.item() == pytest.approx(total / count, rel=1e-4)


def test_a_paper_that_teaches_each_label_counts_once_in_all(contrary_model, tmp_path):
    release = make_slice(tmp_path / "slice", has_counts=True)
    options = PeftSftOptions(
        **{**options_of(release, contrary_model, tmp_path / "run"), "weight": "chances", "n_epochs": 1}
    )
    model, loss, said, n_tokens = load_base_model(contrary_model).eval(), 0.0, 0.0, 0
    examples = gold_of(options)
    assert len(examples) == 3 * N_PAPERS
    for example in examples:
        with torch.no_grad():
            scores = model(torch.tensor([example.tokens])).logits[0].log_softmax(-1)
        nll = {place: -scores[place - 1, example.tokens[place]].item() for place in example.learned}
        loss += example.weight * sum(nll.values())
        said += example.weight * sum(nll[place] for place in example.labels)
        n_tokens += len(nll)
    row = read_rows(train_with_peft(resolve_run(options)))[1]
    assert row["train_mean_nll"] == pytest.approx(3 * loss / n_tokens, rel=1e-4)
    assert row["label_nll"] == pytest.approx(said / N_PAPERS, rel=1e-4)


def test_the_loss_on_the_label_is_learned_alone_and_logged_beside_the_loss(toy_slice, contrary_model, tmp_path):
    options = PeftSftOptions(
        **{**options_of(toy_slice, contrary_model, tmp_path / "run"), "loss_on": "label", "n_epochs": 20}
    )
    model, expected = load_base_model(contrary_model).eval(), 0.0
    for example in gold_of(options)[:N_PAPERS]:
        with torch.no_grad():
            scores = model(torch.tensor([example.tokens])).logits[0].log_softmax(-1)
        expected -= sum(scores[place - 1, example.tokens[place]].item() for place in example.labels) / N_PAPERS
    train_with_peft(resolve_run(options))
    rows = read_rows(tmp_path / "run")
    labels = [row["label_nll"] for row in rows if "label_nll" in row]
    assert labels[0] == pytest.approx(expected, rel=1e-3)
    assert labels[-1] < 0.1 < math.log(3) < labels[0]
    assert rows[1]["num_loss_tokens"] == sum(len(example.labels) for example in gold_of(options)[:N_PAPERS])
    # Judged by scored labels, on the way and afterwards.
    first, last = ([row for row in rows if "test/macro_f1" in row][place] for place in (0, -1))
    assert first["test/format_strict_ok"] == last["test/format_strict_ok"] == 1
    assert "test/forecast_brier" in first
    after = asyncio.run(
        evaluate_model(
            EvaluationConfig(
                release=toy_slice, out=tmp_path / "after", split="train", n_papers=N_PAPERS, run=tmp_path / "run"
            )
        )
    )
    assert after["label_match"] == 1
    assert json.loads((tmp_path / "after" / "run.json").read_text("utf-8"))["settings"]["answers"] == "logprobs"


def test_a_batch_that_passes_cannot_share_evenly_is_refused(toy_slice, contrary_model, tmp_path):
    options = {**options_of(toy_slice, contrary_model, tmp_path), "micro_batch_size": 3}
    with pytest.raises(SciSciRLError, match="batch_size is 8, needs a multiple of micro_batch_size, 3"):
        peft_backend.check_run(resolve_run(PeftSftOptions(**options)))
    with pytest.raises(SciSciRLError, match="batch_size is 8, needs a multiple of micro_batch_size, 3"):
        describe_peft_training(resolve_run(PeftSftOptions(**options)))


def test_a_missing_package_is_named(toy_slice, contrary_model, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "sciscirl.lab.models.local_model.importlib.util.find_spec", lambda name: None if name == "peft" else name
    )
    options = PeftSftOptions(**options_of(toy_slice, contrary_model, tmp_path / "run"))
    with pytest.raises(SciSciRLError, match=r"peft is not installed\. .*install\.py rl sft"):
        train_with_peft(resolve_run(options))
    assert '"use_dora": true' in describe_peft_training(resolve_run(options))
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_not_there_is_one_line(toy_slice, contrary_model, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SciSciRLError, match="holds no model"):
        find_base_model(empty)
    with pytest.raises(SciSciRLError, match=r"could not be loaded \(ValueError"):
        load_base_model(str(empty))


def test_the_base_model_of_an_adapter_is_found_from_any_folder(tmp_path, monkeypatch):
    adapter, base = tmp_path / "run" / "adapter", tmp_path / "run" / "models" / "tiny"
    base.mkdir(parents=True)
    adapter.mkdir()

    def find(name):
        (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": name}), "utf-8")
        return find_base_model(adapter)

    assert Path(find("../models/tiny")).samefile(base)
    assert find("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
    for gone in ("../gone", "./gone", "/gone/model", "~/gone", "a/b/c"):
        with pytest.raises(SciSciRLError, match=r"names the base model .*, and no such folder is there"):
            find(gone)
    monkeypatch.chdir(tmp_path / "run")
    assert Path(find("models/tiny")).samefile(base)


def test_four_bits_are_trained_on_and_merged_back_into_sixteen(toy_slice, contrary_model, tmp_path, monkeypatch):
    pytest.importorskip("bitsandbytes")
    options = PeftSftOptions(
        **{**options_of(toy_slice, contrary_model, tmp_path / "run"), "quantize": "nf4", "eval_every": 1, "n_epochs": 6}
    )
    kept = []
    monkeypatch.setattr(peft_backend, "make_model", lambda *words: kept.append(make_model(*words)) or kept[0])
    train_with_peft(resolve_run(options))
    trained = kept[0]
    assert any(type(weight).__name__ == "Params4bit" for weight in trained.parameters())
    nll = [row["train_mean_nll"] for row in read_rows(tmp_path / "run") if "train_mean_nll" in row]
    assert nll[-1] < nll[0] / 2  # although it was evaluated, which on a CPU repacks such weights, before every step
    merged = load_local_model(merge_adapter(tmp_path / "run", tmp_path / "merged", MergeOptions(dtype="float32")))
    ours, theirs = logits(merged, options), logits(trained, options)
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)
    # Into the weights from before the rounding it would not fit.
    (tmp_path / "run" / "adapter" / "trained_on.json").unlink()
    unfit = logits(load_local_model(tmp_path / "run" / "adapter"), options)
    assert (unfit - theirs).abs().max() > 10 * (ours - theirs).abs().max()
