"""Reinforcement learning in TRL's loop: a step is the cookbook's, and the folder of a run is as all others."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl")
pytest.importorskip("peft")

from safetensors.torch import load_file
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

from sciscidata.storage import hash_file
from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import CollapseError, SciSciRLError
from sciscirl.lab import grpo
from sciscirl.lab.analysis.select_checkpoint import select_checkpoint
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.evaluator import LabelEvaluator
from sciscirl.lab.grpo import (
    NOT_HERE,
    Player,
    make_arguments,
    make_trainer,
    name_losses,
    refuse_options,
    train_locally,
)
from sciscirl.lab.hardware_options import LocalTrainOptions, MergeOptions, PeftSftOptions
from sciscirl.lab.models.local_model import load_local_model
from sciscirl.lab.report.report import ReportConfig, write_report
from sciscirl.lab.report.runs import read_run
from sciscirl.lab.sft.merge import merge_adapter
from sciscirl.lab.sft.peft_backend import Recorder, make_model, train_with_peft
from sciscirl.lab.training.rl import make_run_builder
from sciscirl.metrics.collapse import CollapseAlarm
from sciscirl.options import resolve_preset, resolve_run
from sciscirl.presets import find_preset
from sciscirl.runs.existing_run import refuse_to_delete
from sciscirl.runs.lineage import find_start
from sciscirl.runs.logs import write_json
from sciscirl.runs.record import begin_run
from tests.sciscirl.toy import RENDERER

N_STEPS = 3
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
]


@pytest.fixture(scope="module")
def options_of(toy_slice, primed_model):
    def options_of(folder, kind=LocalTrainOptions, **more):
        common = {
            "preset": "exp4", "style": "plain", "release": str(toy_slice), "model": str(primed_model),
            "renderer": RENDERER, "log_path": str(folder), "n_test": 3, "eval_split": "test", "batch_size": 3,
            "lora_rank": 2, "learning_rate": 0.02, "max_tokens": 24, "eval_temperature": 0.0, "quantize": "none",
            "dtype": "float32", "max_steps": N_STEPS, "save_every": 1, "eval_every": 2,
        }  # fmt: skip
        own = {"group_size": 4, "micro_batch_size": 6} if kind is LocalTrainOptions else {"micro_batch_size": 3}
        return kind(**{**common, **own, **more})

    return options_of


@pytest.fixture(scope="module")
def run(options_of, tmp_path_factory) -> Path:
    return train_locally(resolve_run(options_of(tmp_path_factory.mktemp("rl") / "run")))


def read_rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


class Played(Player):
    """Keeps the groups of the last step."""

    async def _play(self, builders, completer):
        self.groups = await super()._play(builders, completer)
        return self.groups


def play_a_step(options: LocalTrainOptions):
    """Sample and score one step. Return trainer, groups, and what TRL trains on, in its passes."""
    run = resolve_run(options)
    preset, builder, arguments = run.preset, make_run_builder(run), make_arguments(run, 1)
    dataset, _ = asyncio.run(builder())
    player = Played(dataset, Path(options.log_path), preset, 32, builder.renderer().tokenizer)
    trainer = make_trainer(make_model(run, arguments), arguments, player)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = arguments.gradient_accumulation_steps
    prompts = [{"prompt": str(n)} for n in range(preset.order.batch_size) for _ in range(preset.sampling.group_size)]
    trainer._prepare_inputs(prompts)
    return trainer, player.groups, trainer._buffered_inputs


def gradients(model) -> dict[str, torch.Tensor]:
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return found


def count_log_probs(model, datum) -> torch.Tensor:
    tokens = torch.tensor([datum.model_input.to_ints()])
    targets = torch.tensor(datum.loss_fn_inputs["target_tokens"].tolist())
    return model(input_ids=tokens).logits[0].float().log_softmax(-1).gather(1, targets[:, None])[:, 0]


@pytest.mark.parametrize(
    "loss",
    [
        {},
        {"loss_fn": "ppo", "loss_fn_config": ("clip_low_threshold:0.8", "clip_high_threshold:1.28")},
        {"loss_fn": "cispo", "loss_fn_config": ("clip_low_threshold:0.8", "clip_high_threshold:1.2")},
    ],
)
def test_a_step_has_the_advantages_and_the_gradient_of_the_cookbooks(options_of, tmp_path, loss):
    options = options_of(tmp_path / "run", use_dora=False, **loss)
    preset = resolve_preset(options)
    trainer, groups, passes = play_a_step(options)
    expected = compute_advantages(groups)
    data, _ = assemble_training_data(groups, expected)
    assert max(advantages.abs().max() for advantages in expected) > 0.1
    by_answer = {
        tuple(trajectory.transitions[0].ac.tokens): float(advantage)
        for group, advantages in zip(groups, expected, strict=True)
        for trajectory, advantage in zip(group.trajectories_G, advantages, strict=True)
    }
    n_seen = 0
    for part in passes:
        for tokens, mask, advantage in zip(
            part["completion_ids"], part["completion_mask"], part["advantages"], strict=True
        ):
            answer = tuple(tokens[mask.bool()].tolist())
            assert float(advantage) == pytest.approx(by_answer[answer], abs=1e-6)
            n_seen += 1
    assert n_seen == len(data) == preset.order.batch_size * preset.sampling.group_size
    loss_of_trl = 0.0
    for part in passes:
        part_loss = trainer.compute_loss(trainer.model, part)
        part_loss.backward()
        loss_of_trl += float(part_loss.detach())
    found = gradients(trainer.model)
    # Tinker sums -ratio * advantage over all tokens; https://tinker-docs.thinkingmachines.ai/losses
    total = torch.zeros(())
    for datum in data:
        log_probs = count_log_probs(trainer.model, datum)
        sampled = torch.tensor(datum.loss_fn_inputs["logprobs"].tolist())
        ratio = torch.exp(log_probs - sampled)
        mask = torch.tensor(datum.loss_fn_inputs["mask"].tolist())
        assert (log_probs - sampled)[mask.bool()].abs().max() < 1e-4
        total = total - (ratio * torch.tensor(datum.loss_fn_inputs["advantages"].tolist()) * mask).sum()
    total.backward()
    theirs = gradients(trainer.model)
    n_tokens = sum(int(torch.tensor(datum.loss_fn_inputs["mask"].tolist()).sum()) for datum in data)
    scale = n_tokens if preset.optimiser.loss_fn == "cispo" else len(data) * preset.max_tokens
    assert found.keys() == theirs.keys()
    largest = max(float(gradient.abs().max()) for gradient in theirs.values())
    assert largest > 1e-3
    for name, gradient in theirs.items():
        torch.testing.assert_close(found[name] * scale, gradient, atol=1e-4 * largest, rtol=1e-3)
    if preset.optimiser.loss_fn != "cispo":
        assert loss_of_trl * scale == pytest.approx(float(total.detach()), abs=1e-3)
        assert trainer.args.adam_epsilon * scale == pytest.approx(1e-8)  # so that Adam's steps are equal, too


def test_the_folder_of_a_run_is_like_the_others(run):
    rows = read_rows(run)
    steps = [row for row in rows if "env/all/reward/total" in row]
    assert [row["step"] for row in steps] == [row["progress/batch"] for row in steps] == [*range(N_STEPS)]
    assert steps[-1]["progress/done_frac"] == 1
    for row in steps:
        assert {"env/all/format_strict_ok", "env/all/total_ac_tokens", "optim/lr", "optim/entropy", "time/total"} <= {
            *row
        }
        assert row["env/all/total_episodes"] == 12
        assert row["time/total"] >= row["time/sampling"] > 0
    assert {row["optim/lr"] for row in steps} == {0.02}
    # Sampling and training compute the same probabilities, in another order.
    assert all(0 < row["optim/kl_sample_train_v2"] < 1e-6 > abs(row["optim/kl_sample_train_v1"]) for row in steps)
    assert all(row["optim/grad_norm"] >= 0 and 0 <= row["env/all/at_floor"] <= 1 for row in steps)
    assert [row["step"] for row in rows if "test/macro_f1" in row] == [0, 2, N_STEPS]
    recorded = json.loads((run / "run.json").read_text("utf-8"))
    assert recorded["settings"]["backend"] == "local"
    assert recorded["versions"]["trl"]
    rollouts = (run / "iteration_000001" / "train_rollout_summaries.jsonl").read_text("utf-8").splitlines()
    assert len(rollouts) == 12
    assert sorted(path.name for path in (run / "checkpoints").glob("checkpoint-*")) == [
        f"checkpoint-{step}" for step in (1, 2, 3)
    ]


def test_the_weights_learn(run, options_of):
    first, last = (load_file(run / "checkpoints" / f"checkpoint-{n}" / "adapter_model.safetensors") for n in (1, 3))
    assert any((first[name] - last[name]).abs().max() > 1e-3 for name in first)
    kept = load_file(run / "adapter" / "adapter_model.safetensors")
    assert all(torch.equal(kept[name], last[name]) for name in last)


def test_evaluation_selection_merge_and_report_take_the_run(run, toy_slice, tmp_path):
    judged = asyncio.run(evaluate_model(EvaluationConfig(release=toy_slice, run=run, step=2, out=tmp_path / "judged")))
    on_the_way = next(row for row in read_rows(run) if row["step"] == 2 and "test/macro_f1" in row)
    assert judged["reward"] == pytest.approx(on_the_way["test/reward"])
    base = find_subject(EvaluationConfig(release=toy_slice, run=run, step=0))
    assert base.local_model == Path(base.preset.model)
    assert {one.step for one in select_checkpoint(run).candidates} == {0, 2, N_STEPS}
    merged = merge_adapter(run, tmp_path / "merged", MergeOptions(dtype="float32"))
    assert "reinforcement" in (merged / "README.md").read_text("utf-8")
    shown = read_run(run, "local")
    assert shown.kind == "rl"
    assert shown.usage.sample > 0
    page = write_report(ReportConfig(runs=(run,), release=toy_slice, out=tmp_path / "report.html"))
    assert "exp4" in page.read_text("utf-8")


def train_until_killed(options, monkeypatch):
    """Train until the log of step 2 is written."""
    log = Recorder.on_log

    def log_and_die(self, args, state, control, **more):
        log(self, args, state, control, **more)
        if state.global_step == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "on_log", log_and_die)
        with pytest.raises(KeyboardInterrupt):
            train_locally(resolve_run(options))


def test_a_run_that_was_killed_goes_on_to_the_very_same_weights(run, options_of, tmp_path, monkeypatch):
    options = options_of(tmp_path / "run")
    train_until_killed(options, monkeypatch)
    assert not (tmp_path / "run" / "adapter").exists()
    with pytest.raises(SciSciRLError, match="behavior_if_log_dir_exists=resume"):
        train_locally(resolve_run(options))
    train_locally(resolve_run(replace(options, behavior_if_log_dir_exists="resume")))
    ours, theirs = (load_file(one / "adapter" / "adapter_model.safetensors") for one in (tmp_path / "run", run))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    again, once = read_rows(tmp_path / "run"), read_rows(run)
    assert [row["step"] for row in again] == [row["step"] for row in once]
    assert [row.get("env/all/reward/total") for row in again] == [row.get("env/all/reward/total") for row in once]


@pytest.mark.parametrize(("kind", "train"), [(LocalTrainOptions, train_locally), (PeftSftOptions, train_with_peft)])
def test_a_model_that_cannot_be_loaded_costs_no_older_run(kind, train, options_of, primed_model, tmp_path):
    broken, folder = tmp_path / "broken", tmp_path / "run"
    shutil.copytree(primed_model, broken)
    (broken / "model.safetensors").write_bytes((broken / "model.safetensors").read_bytes()[:1_000])
    options = options_of(folder, kind, model=str(broken), behavior_if_log_dir_exists="delete")
    folder.mkdir()
    begin_run(folder, Path(options.release), {}, "raise")
    before = hash_files(folder)
    with pytest.raises(SciSciRLError, match="could not be loaded"):
        train(resolve_run(options))
    assert before.items() <= hash_files(folder).items()


def hash_files(folder: Path) -> dict[str, str]:
    return {str(one.relative_to(folder)): hash_file(one) for one in sorted(folder.rglob("*")) if one.is_file()}


def test_a_run_that_was_killed_draws_the_same_evaluations_and_an_ended_one_is_left_as_it_is(
    options_of, tmp_path, monkeypatch, caplog
):
    drawn = {"eval_temperature": 1.0, "eval_group_size": 2, "eval_every": 1}
    once, killed = (options_of(tmp_path / name, **drawn) for name in ("once", "killed"))
    train_locally(resolve_run(once))
    train_until_killed(killed, monkeypatch)
    asked = []
    roll_out = LabelEvaluator._roll_out
    monkeypatch.setattr(
        LabelEvaluator, "_roll_out", lambda self, policy, number: asked.append(number) or roll_out(self, policy, number)
    )
    train_locally(resolve_run(replace(killed, behavior_if_log_dir_exists="resume")))
    assert asked == [0, 1, 2] * 2  # papers, at steps 2 and 3: what the weights of step 1 answered was kept
    both = [hash_files(tmp_path / name / "predictions") for name in ("once", "killed")]
    assert both[0] == both[1]
    assert [*both[0]] == [f"test_{step:06d}.parquet" for step in range(N_STEPS + 1)]
    judged = [
        [{name: value for name, value in row.items() if name.startswith("test/")} for row in read_rows(tmp_path / name)]
        for name in ("once", "killed")
    ]
    assert judged[0] == judged[1]
    before = hash_files(tmp_path / "killed")
    with caplog.at_level(logging.INFO, logger="sciscirl"):
        train_locally(resolve_run(replace(killed, behavior_if_log_dir_exists="resume")))
    assert "has ended after 3 of 3 steps" in caplog.text
    assert hash_files(tmp_path / "killed") == before
    assert len(asked) == 6
    train_locally(
        resolve_run(replace(killed, behavior_if_log_dir_exists="resume", max_steps=4))
    )  # more steps: only their weights are asked
    assert len(asked) == 9
    assert [row["step"] for row in read_rows(tmp_path / "killed") if "test/n" in row] == [0, 1, 2, 3, 4]
    assert {name: before[name] for name in before if "predictions" in name}.items() <= hash_files(
        tmp_path / "killed"
    ).items()


def test_a_run_in_four_bits_that_was_killed_samples_the_same_answers(options_of, tmp_path, monkeypatch):
    pytest.importorskip("bitsandbytes")
    few = {"quantize": "nf4", "dtype": "bfloat16", "max_steps": 2, "eval_every": 9, "n_test": 1, "learning_rate": 0.1}
    once, killed = (options_of(tmp_path / name, **few) for name in ("once", "killed"))
    train_locally(resolve_run(once))
    train_until_killed(killed, monkeypatch)
    train_locally(resolve_run(replace(killed, behavior_if_log_dir_exists="resume")))
    names = ("iteration_000001/train_rollout_summaries.jsonl", "adapter/adapter_model.safetensors")
    for name in names:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()


def test_training_goes_on_from_a_supervised_run(options_of, tmp_path, caplog):
    sft = train_with_peft(resolve_run(options_of(tmp_path / "sft", PeftSftOptions, n_epochs=1, max_steps=2)))
    options = options_of(tmp_path / "rl", load_checkpoint=str(sft), max_steps=1, learning_rate=1e-9)
    with caplog.at_level(logging.INFO, logger="sciscirl"):
        rl = train_locally(resolve_run(options))
    assert "step 0 of 1: reward" in caplog.text
    begun = json.loads((rl / "run.json").read_text("utf-8"))["begun_from"]
    assert (begun["folder"], begun["kind"], begun["step"]) == ("sft", "sft", 2)
    asked = find_subject(EvaluationConfig(release=Path(options.release), run=rl, step=0))
    assert asked.local_model == sft / "checkpoints" / "checkpoint-2"
    ours, theirs = (load_file(one / "adapter" / "adapter_model.safetensors") for one in (rl, sft))
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, atol=1e-6, rtol=0)
    assert max(weight.abs().max() for name, weight in theirs.items() if "lora_B" in name) > 1e-3
    with pytest.raises(SciSciRLError, match=r"lora_rank is 4.*Set lora_rank=2"):
        train_locally(resolve_run(replace(options, lora_rank=4, log_path=str(tmp_path / "other"))))
    with pytest.raises(SciSciRLError, match=r"use_dora is False.*Set use_dora=True"):
        train_locally(resolve_run(replace(options, use_dora=False, log_path=str(tmp_path / "other"))))
    damaged = tmp_path / "damaged"
    shutil.copytree(sft, damaged)
    (damaged / "checkpoints" / "checkpoint-2" / "adapter_model.safetensors").write_bytes(b"half")
    with pytest.raises(SciSciRLError, match=r"is damaged: adapter_model\.safetensors is not what was written"):
        train_locally(resolve_run(replace(options, load_checkpoint=str(damaged), log_path=str(tmp_path / "other"))))
    facts = json.loads((sft / "run.json").read_text("utf-8"))
    del facts["settings"]["backend"]
    write_json(sft / "run.json", facts)
    with pytest.raises(SciSciRLError, match="a run on a server"):
        train_locally(resolve_run(replace(options, log_path=str(tmp_path / "other"))))
    with pytest.raises(SciSciRLError, match="needs the folder of a run that was trained on your own hardware"):
        find_start("tinker://a/weights/b", tmp_path, find_preset("exp4"), {})


def test_a_collapse_ends_the_run_and_leaves_it_whole(options_of, tmp_path, monkeypatch):
    def collapse(self, metrics, step):
        if step == 2:
            message = "collapsed"
            raise CollapseError(message, metrics={"test/collapse": 1.0}, step=step)
        return {}

    monkeypatch.setattr(CollapseAlarm, "__call__", collapse)
    make_alarm = grpo.make_alarm
    monkeypatch.setattr(grpo, "make_alarm", lambda run, is_over=False: None if is_over else make_alarm(run))
    with pytest.raises(CollapseError):
        train_locally(resolve_run(options_of(tmp_path / "run", collapse="stop")))
    (stop,) = [row for row in read_rows(tmp_path / "run") if "collapse_stop" in row]
    assert (stop["step"], stop["test/collapse"]) == (2, 1.0)
    assert load_local_model(tmp_path / "run" / "adapter")


MODES = ("max_steps_off_policy", "rolling_save_every", "stream_minibatch_config", "compute_post_kl")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_substeps": 4}, r"num_substeps is 4, which backend=local cannot do.*Set num_substeps=1"),
        ({"loss_fn": "dro"}, r"loss_fn is dro, which TRL does not have"),
        ({"kl_penalty_coef": 0.1, "kl_discount_factor": 0.5}, r"kl_discount_factor is 0\.5"),
        (
            {"kl_penalty_coef": 0.1, "kl_reference_config": {"base_model": "a"}},
            "kl_reference_config is {'base_model': 'a'}",
        ),
        ({"preset": "adversarial"}, "preset adversarial challenges answers"),
        ({"group_size": 1}, "group_size is 1, needs at least 2"),
        ({"micro_batch_size": 5}, r"micro_batch_size is 5, needs a divisor of 12: 3 papers"),
        *(
            ({name: value}, f"{name} has no effect with backend=local")
            for name, value in dict.fromkeys(NOT_HERE, "x").items()
            if name not in {"ttl_seconds", "evaluators", *MODES}
        ),
        *(({name: 1}, f"{name} has no effect with backend=local") for name in MODES[:-2]),
        (
            {"stream_minibatch_config": {"num_minibatches": 2}},
            "stream_minibatch_config has no effect with backend=local",
        ),
        ({"compute_post_kl": True}, "compute_post_kl has no effect with backend=local"),
        ({"ttl_seconds": 3}, "ttl_seconds has no effect with backend=local"),
        ({"evaluators": ("ifeval",)}, "evaluators has no effect with backend=local"),
    ],
)
def test_what_trl_cannot_do_is_refused_by_name(options_of, tmp_path, given, said):
    with pytest.raises(SciSciRLError, match=said):
        refuse_options(resolve_run(options_of(tmp_path / "run", **given)))


def test_a_run_holds_nothing_that_would_keep_it_from_being_deleted(run):
    refuse_to_delete(run)


def test_a_run_from_other_weights_has_no_kl_term_to_the_base_model(options_of, tmp_path):
    run = replace(resolve_run(options_of(tmp_path / "run", kl_penalty_coef=0.1)), begun_from={"path": "adapter"})
    with pytest.raises(SciSciRLError, match=r"kl_penalty_coef is 0\.1"):
        refuse_options(run)


def test_several_gpus_in_one_process_are_refused(options_of, tmp_path, monkeypatch):
    options = options_of(tmp_path / "run")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with pytest.raises(SciSciRLError, match="3 GPUs are visible"):
        refuse_options(resolve_run(options))


def test_clip_thresholds_are_trls():
    assert name_losses(find_preset("dapo")) == {"loss_type": "dr_grpo", "epsilon": 0.2, "epsilon_high": 0.28}


def test_the_command_shows_a_run_and_knows_each_backends_options(options_of, tmp_path, capsys):
    options = options_of(tmp_path / "run")
    words = [f"{name}={getattr(options, name)}" for name in ("preset", "release", "model", "renderer", "log_path")]
    words += ["batch_size=3", "eval_split=test", "n_test=3", "max_steps=2", "--dry-run"]
    PROGRAM.act(["train", "--backend", "local", "use_dora=no", *words])
    shown = capsys.readouterr().out
    assert '"backend": "local"' in shown
    assert '"use_dora": false' in shown
    assert "steps: 2 of 3 papers" in shown
    assert "$" not in shown.partition("\n--- ")[0]
    with pytest.raises(SciSciRLError, match="--backend tinker has no option --use-dora"):
        PROGRAM.act(["train", "use_dora=no", *words])
    assert not (tmp_path / "run").exists()


def test_four_bits_are_fine_tuned_and_reinforced(options_of, tmp_path):
    """On a GPU where there is one: what QDoRA was written for."""
    pytest.importorskip("bitsandbytes")
    four_bits = {"quantize": "nf4", "use_dora": True, "dtype": "bfloat16", "max_steps": 1, "save_every": 1}
    train_with_peft(resolve_run(options_of(tmp_path / "sft", PeftSftOptions, **four_bits, learning_rate=1e-4)))
    train_locally(resolve_run(options_of(tmp_path / "rl", load_checkpoint=str(tmp_path / "sft"), **four_bits)))
    before, after = (load_file(tmp_path / name / "adapter" / "adapter_model.safetensors") for name in ("sft", "rl"))
    magnitudes = [name for name in before if "magnitude" in name]
    assert magnitudes
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in magnitudes)
    assert all(torch.isfinite(weight).all() for weight in after.values())
    release = Path(options_of(tmp_path / "rl").release)
    with pytest.raises(SciSciRLError, match="in four bits, which cannot be asked without an adapter"):
        find_subject(EvaluationConfig(release=release, run=tmp_path / "sft", step=0))
