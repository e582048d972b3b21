"""What options reach of the cookbook's configuration, and what they do not, with the reason."""

from __future__ import annotations

import asyncio
import inspect
from typing import get_args

import chz
import pytest
import tinker
from tinker_cookbook.completers import TinkerTokenCompleter
from tinker_cookbook.hyperparam_utils import get_lr
from tinker_cookbook.rl import train

from sciscidata.options.commands import list_options
from sciscirl import make_builder
from sciscirl.cli.commands import PROGRAM
from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.dry_run import describe_server_training
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.hardware_options import PeftSftOptions
from sciscirl.lab.objectives.dynamic_sampling import DynamicSampling
from sciscirl.lab.sft.examples import make_papers_builder
from sciscirl.lab.sft.tinker_backend import make_config as make_sft_config
from sciscirl.lab.training.rl import list_settings, make_config, make_evaluator
from sciscirl.options import (
    NO_EFFECT,
    Recorded,
    TinkerSftOptions,
    TrainOptions,
    partial_of_preset,
    resolve_preset,
    resolve_run,
)
from sciscirl.presets import CHANGES, make_preset
from sciscirl.runs.record import begin_run
from sciscirl.task.experiment import LOSSES
from tests.conftest import REPOSITORY
from tests.sciscirl.toy import RENDERER

_ONLY_SPEED = "it changes how fast or how closely a run can be watched, not what is learned"
#: Fields of the cookbook's configuration of reinforcement learning that no option reaches, and why. Fields of other
#: versions may be among them.
NOT_REACHED = {
    "recipe_name": "follows from the target",
    "evaluator_builders": "always our evaluator, so that all runs are judged alike",
    "termination": "always off: the reward table alone says what a cut-off answer earns",
    "session_name": "only a name in Tinker's console",
    **dict.fromkeys(("wandb_project", "wandb_name"), "our console sends the rows, the last evaluation among them"),
    "enable_trace": _ONLY_SPEED,
    "span_chart_every": _ONLY_SPEED,
    "async_config": "`max_steps_off_policy` sets it, not beside `stream_minibatch_config`",
    "rolling_ttl_seconds": "two hours: only a run that ended a moment ago goes on from there",
    "num_groups_to_log": "4 readable examples a step; all rollouts are in the folder",
    "rollout_json_export": "always on: the collapse alarm and the batch term read the rollouts",
    "num_epochs": "(from 0.6.1 on) our batches hold all epochs of `n_epochs`",
}
#: What the cookbook's loop fixes or never sends, and a Tinker server would take.
FIXED = {
    "Adam's beta1, beta2, eps": "fixed at 0.9, 0.95, 1e-8; `sft` reaches them",
    "weight decay, gradient clipping": "never sent: none",
    "learning-rate schedule": "constant; `sft` falls linearly to 0",
    "division of advantages by their deviation": "none: rewards are only centred within a group",
    "seed and layers of the adapter": "never sent: the server's seed; all layers",
    "top_k and seed of sampling": "never sent: all tokens, and another draw each time",
}
NOTE = REPOSITORY / "benchmarks" / "notes" / "presets.md"
REFERENCE = "tinker://run/sampler_weights/000050"
#: Options away from their defaults: each reaches a field of the cookbook's configuration.
EVERYTHING = {
    "learning_rate": 1e-5, "max_tokens": 9, "eval_every": 7, "save_every": 8, "load_checkpoint": "tinker://a/weights/b",
    "kl_penalty_coef": 0.1, "kl_reference_config": {"load_checkpoint_path": REFERENCE}, "kl_discount_factor": 0.5,
    "loss_fn": "ppo", "loss_fn_config": ("clip_low_threshold:0.8", "clip_high_threshold:1.28"),
    "num_substeps": 3, "lora_rank": 4, "temperature": 0.9, "top_p": 0.8, "remove_constant_reward_groups": True,
    "base_url": "http://127.0.0.1:9",
    "ttl_seconds": 3, "max_steps": 5, "stream_minibatch_config": {"num_minibatches": 2}, "batch_size": 12,
    "compute_post_kl": True, "rolling_save_every": 6,
}  # fmt: skip


def test_every_field_of_the_cookbooks_config_is_reached_or_on_the_list(options):
    config = make_config(resolve_run(TrainOptions(**options, **EVERYTHING)))
    own = {name: getattr(config, name) for name in chz.chz_fields(train.Config)}
    required = {"learning_rate", "dataset_builder", "model_name", "recipe_name", "max_tokens", "log_path"}
    plain = train.Config(**{name: own[name] for name in required})
    reached = {name for name in own if own[name] != getattr(plain, name)} | required
    assert reached | NOT_REACHED.keys() >= own.keys()
    assert reached & NOT_REACHED.keys() == {"recipe_name", "evaluator_builders", "termination"}  # we set them


def test_training_may_go_on_with_answers_of_older_weights_or_in_parts(options):
    config = make_config(resolve_run(TrainOptions(**options, max_steps_off_policy=3, batch_size=8)))
    assert (config.async_config.max_steps_off_policy, config.async_config.groups_per_batch) == (3, 8)
    for more, said in (
        (
            {"max_steps_off_policy": 1, "stream_minibatch_config": {"num_minibatches": 2}},
            "max_steps_off_policy is 1, beside stream_minibatch_config, which",
        ),
        ({"max_steps_off_policy": 1, "preset": "exp6"}, r"max_steps_off_policy is 1, beside share_penalty 0\.5"),
        (
            {"stream_minibatch_config": {"num_minibatches": 3}},
            "batch_size is 16, needs a multiple of stream_minibatch_config.num_minibatches 3",
        ),
    ):
        with pytest.raises(SciSciRLError, match=said):
            make_config(resolve_run(TrainOptions(**options | more)))


def test_configurations_of_the_cookbook_are_taken_as_they_are_and_typed_as_they_are(options, capsys):
    reference = train.KLReferenceConfig(base_model="a/b", load_checkpoint_path=REFERENCE)
    stream = train.StreamMinibatchConfig(groups_per_batch=8, num_minibatches=2)
    given = {"kl_penalty_coef": 0.1, "batch_size": 8}
    config = make_config(
        TrainOptions(**options, **given, stream_minibatch_config=stream, kl_reference_config=reference)
    )
    assert (config.stream_minibatch_config, config.kl_reference_config) == (stream, reference)
    words = ["stream_minibatch_config.groups_per_batch=8", "--stream-minibatch-config.num-minibatches", "2"]
    words += ["kl_reference_config.base_model=a/b", f"kl_reference_config.load_checkpoint_path={REFERENCE}"]
    typed = PROGRAM.read("train", words)
    assert make_config(TrainOptions(**options, **given, **typed)).kl_reference_config == reference
    assert make_config(TrainOptions(**options, **given, **typed)).stream_minibatch_config == stream
    for wrong, said in (
        ({"groups_per_batch": 4, "num_minibatches": 2}, "groups_per_batch is 4, but a step has batch_size 8"),
        ({"groups_per_batch": 8}, "needs num_minibatches, a whole number from 1"),
        ({"num_minibatch": 8}, r"has no 'num_minibatch'\. Did you mean num_minibatches"),
    ):
        with pytest.raises(SciSciRLError, match=said):
            make_config(TrainOptions(**options, **given, stream_minibatch_config=wrong))
    with pytest.raises(SciSciRLError, match=r"kl_reference_config has no 'base'\. Did you mean base_model"):
        make_config(TrainOptions(**options, **given, kl_reference_config={"base": "a/b"}))


def test_names_of_the_cookbook_are_taken_for_ours(options, capsys):
    given = {"groups_per_batch": 4, "kl_discount_factor": 0.5, "kl_penalty_coef": 0.1}
    builder = make_builder("exp4", options["release"], options["model"], renderer_name=RENDERER,
                                              eval_split="test", **given)  # fmt: skip
    assert (builder.order.batch_size, builder.renderer_name) == (4, RENDERER)
    assert make_preset("mine", base="exp4", **given).optimiser.kl_discount_factor == 0.5
    words = ["groups_per_batch=4", "--renderer-name", RENDERER, f"model_name={options['model']}", "--dry-run"]
    more = [f"release={options['release']}", "eval_split=test", "preset=exp4", f"log_path={options['log_path']}"]
    assert main(["train", *words, *more]) == 0
    assert " of 4 papers x 2 answers" in capsys.readouterr().out


def test_the_learning_rate_may_follow_the_rule_of_the_cookbook():
    given = {"learning_rate": "auto", "model": "Qwen/Qwen3-8B"}
    assert resolve_preset(TrainOptions(**given)).optimiser.learning_rate == get_lr("Qwen/Qwen3-8B")
    assert resolve_run(TinkerSftOptions(**given)).preset.optimiser.learning_rate == get_lr("Qwen/Qwen3-8B")
    with pytest.raises(SciSciRLError, match="learning_rate is auto, for which the cookbook has no rule for a/b"):
        resolve_preset(TrainOptions(learning_rate="auto", model="a/b"))
    with pytest.raises(SciSciRLError, match="learning_rate is 'fast', needs a number above 0, up to 1, or auto"):
        TrainOptions(learning_rate="fast")
    assert PROGRAM.read("train", ["learning_rate=auto"]) == {"learning_rate": "auto"}


def test_what_the_loop_fixes_stands_in_the_note():
    note = NOTE.read_text("utf-8")
    for name, what in FIXED.items():
        assert f"- {name}: {what}\n" in note


def test_what_the_note_says_of_adam_and_sampling_is_what_the_cookbook_does():
    assert "beta1=0.9, beta2=0.95, eps=1e-8" in inspect.getsource(train.train_step)
    assert "weight_decay" not in inspect.getsource(train)
    assert "grad_clip_norm" not in inspect.getsource(train)
    sampled = inspect.getsource(TinkerTokenCompleter.__call__)
    assert "temperature=self.temperature" in sampled
    assert "top_p" not in sampled
    assert "top_k" not in sampled


def test_losses_are_those_of_the_installed_sdk():
    assert LOSSES.keys() <= {*get_args(tinker.types.LossFnType)}


def test_the_config_of_the_cookbook_has_loss_and_kl_of_the_options(options):
    config = make_config(resolve_run(TrainOptions(**options, **EVERYTHING)))
    assert (config.loss_fn, config.num_substeps) == ("ppo", 3)
    assert config.loss_fn_config == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}
    assert (config.kl_penalty_coef, config.kl_discount_factor) == (0.1, 0.5)
    reference = config.kl_reference_config
    assert (reference.base_model, reference.load_checkpoint_path) == (options["model"], REFERENCE)
    strategy = config.effective_rollout_strategy()
    assert strategy.top_p == 0.8
    config = make_config(resolve_run(TrainOptions(**options, kl_penalty_coef=0.1, dynamic_sampling=2, top_p=0.8)))
    assert config.kl_reference_config.load_checkpoint_path is None
    strategy = config.effective_rollout_strategy()
    assert isinstance(strategy, DynamicSampling)
    assert strategy.top_p == 0.8
    plain = make_config(resolve_run(TrainOptions(**options)))
    assert (plain.kl_reference_config, plain.loss_fn_config, plain.rollout_error_tolerance) == (None, None, None)


class Asked:
    """A sampling client that notes how it was asked."""

    def __init__(self) -> None:
        self.params: list[tinker.SamplingParams] = []

    async def sample(self, *, prompt, num_samples, sampling_params):
        self.params.append(sampling_params)
        raise SciSciRLError

    sample_async = sample  # as the cookbook's completer asks


def ask(policy) -> None:
    with pytest.raises(SciSciRLError):
        asyncio.run(policy(tinker.ModelInput.from_ints([1]), [2]))


def test_top_p_reaches_the_sampler_and_leaves_the_rest_as_it_was():
    client = Asked()
    policy = TinkerTokenCompleter(client, max_tokens=7, temperature=0.5)
    ask(DynamicSampling(top_p=0.8)._limit(policy))
    ask(policy)
    first, second = client.params
    assert (first.top_p, first.temperature, first.max_tokens, first.stop) == (0.8, 0.5, 7, [2])
    assert (second.top_p, second.temperature) == (1.0, 0.5)


def test_an_evaluation_in_training_samples_as_its_own_options_say(options):
    given = TrainOptions(**options, temperature=0.9, eval_temperature=0.25, eval_top_p=0.5, eval_group_size=2)
    run = resolve_run(given)
    evaluator = make_evaluator(run, make_config(run).dataset_builder)
    assert evaluator.sampling[1:3] == (0.25, 0.5)
    assert evaluator.env_group_builders_P[0].group_size == 2
    run = resolve_run(TrainOptions(**options))
    evaluator = make_evaluator(run, make_config(run).dataset_builder)
    assert evaluator.sampling[1:3] == (1.0, 1.0)


def test_evaluations_are_greedy_unless_a_published_preset_or_an_option_says_otherwise(tmp_path):
    def sampled(**more) -> tuple[float, float, int]:
        preset = find_subject(EvaluationConfig(release=tmp_path, model="a/b", **more)).preset
        return preset.judging.eval_temperature, preset.judging.eval_top_p, preset.judging.eval_group_size

    assert sampled() == (0.0, 1.0, 1)
    assert sampled(preset="baseline") == (1.0, 1.0, 1)
    assert sampled(preset="exp6") == (0.0, 1.0, 1)
    assert sampled(temperature=0.5, top_p=0.9, group_size=3) == (0.5, 0.9, 3)


def test_every_part_of_a_preset_is_an_option_or_has_no_effect_for_a_stated_reason():
    for command in ("train", "sft", "evaluate"):
        named = {option.name for option in list_options(PROGRAM.commands[command])}
        silent = NO_EFFECT[command]
        assert set(CHANGES) - {"change"} <= named | silent.keys(), command
        assert not silent.keys() & named, command


@pytest.mark.parametrize("command", sorted(NO_EFFECT))
def test_an_option_of_another_command_is_refused_with_the_reason(command, capsys):
    for name, reason in NO_EFFECT[command].items():
        for word in (f"{name}=1", f"--{name.replace('_', '-')}"):
            assert main([command, word]) == 1
            assert capsys.readouterr().err == (
                f"error: {name} has no effect in sciscirl {command}: {reason}. Leave it out.\n"
            )


@pytest.mark.parametrize("beta", [0.8, 0.99])
def test_adam_is_that_of_the_options_in_supervised_training_and_refused_in_reinforcement_learning(
    options, tmp_path, beta
):
    given = options | {"adam_beta1": beta, "adam_beta2": beta / 2, "adam_eps": 1e-6}
    config = make_sft_config(run := resolve_run(TinkerSftOptions(**given)), make_papers_builder(run))
    assert (config.adam_beta1, config.adam_beta2, config.adam_eps) == (beta, beta / 2, 1e-6)
    assert resolve_run(PeftSftOptions(**given)).preset.optimiser.adam_beta1 == beta
    path = tmp_path / "own.toml"
    path.write_text(f"base = 'exp4'\nadam_beta1 = {beta}\n", "utf-8")
    with pytest.raises(SciSciRLError, match="adam_beta1 has no effect in sciscirl train: the cookbook's loop"):
        make_config(resolve_run(TrainOptions(**options | {"preset": str(path)})))


def test_rules_are_options_of_every_way_to_train_and_judge(tmp_path):
    given = {
        "style": "ontology", "contract": "two_keys", "target": "novelty", "reward": "soft", "reward_wrong": -0.1,
        "class_weights": ("novel:2",), "max_paper_tokens": 99,
    }  # fmt: skip
    presets = [
        resolve_preset(TrainOptions(preset="exp4", **given)),
        resolve_run(TinkerSftOptions(**given)).preset,
        find_subject(EvaluationConfig(release=tmp_path, model="a/b", **given)).preset,
    ]
    for preset in presets:
        rules = preset.rules
        assert (rules.style, rules.contract, rules.target, rules.max_paper_tokens) == (
            "ontology", "two_keys", "novelty", 99
        )  # fmt: skip
        assert rules.reward == "soft(wrong=-0.1, class_weights=novel:2)"
        assert rules.table.best("novel") == 1.5
    with pytest.raises(SciSciRLError, match="class_weights is 'novel=2', needs NAME:NUMBER, for example disruptive:3"):
        resolve_preset(TrainOptions(class_weights=("novel=2",)))
    with pytest.raises(SciSciRLError, match="class_weights of 'novel' has no effect"):
        resolve_preset(TrainOptions(class_weights=("novel:2",)))


def test_a_dry_run_shows_a_prompt_and_a_reward_of_ones_own(options, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        "base = 'exp4'\n[reward]\nwrong = -0.25\n[prompt]\nsystem = 'Judge. $answer'\nuser = 'Sentinel: $record'",
        "utf-8",
    )
    given = TrainOptions(**options | {"preset": str(path)}, max_steps=1)
    text = describe_server_training(resolve_run(given))
    assert text.count("Sentinel: {") == 3
    assert '"wrong": -0.25' in text
    train_, _ = asyncio.run(make_config(resolve_run(given)).dataset_builder())
    assert train_.get_batch(0)[0].rules.table.wrong == -0.25


def test_a_resumed_run_must_have_the_same_prompt_and_reward(options, tmp_path, toy_slice):
    path, folder = tmp_path / "own.toml", tmp_path / "folder"
    folder.mkdir()
    texts = "[prompt]\nsystem = 'Judge. $answer'\nuser = '$record'\n[reward]\nwrong = {}"

    def begin(text: str, **how) -> None:
        path.write_text(f"base = 'exp4'\n{text}", "utf-8")
        run = resolve_run(TrainOptions(**options | {"preset": str(path)}))
        begin_run(folder, toy_slice, list_settings(run, make_config(run).dataset_builder), **how)

    begin(texts.format(-0.2), behavior="raise")
    begin(texts.format(-0.2), behavior="resume")
    for changed, name in (
        (texts.format(-0.3), "reward_table"),
        (texts.replace("Judge", "Read").format(-0.2), "prompt_sha256"),
    ):
        with pytest.raises(SciSciRLError, match=f"was begun with {name}=") as caught:
            begin(changed, behavior="resume")
        assert len(str(caught.value)) < 900


def test_an_option_that_a_marked_class_declares_is_in_the_record_of_a_run(options, toy_slice):
    @partial_of_preset()
    class PatientOptions(TrainOptions, Recorded):
        """Options.

        Attributes:
            patience: of the loop.
        """

        patience: int = 3

    run = resolve_run(PatientOptions(**options))
    settings = list_settings(run, make_config(run).dataset_builder)
    assert settings["patience"] == 3
    assert {"max_steps_off_policy", "stream_minibatch_config"} <= settings.keys()
    assert not {"collapse", "compute_post_kl", "rolling_save_every", "max_steps"} & settings.keys()
