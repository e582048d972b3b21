from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from statistics import fmean

import chz
import pytest
from tinker_cookbook.rl import train
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig
from tinker_cookbook.stores.storage import storage_from_uri
from tinker_cookbook.stores.training_store import TrainingRunStore

from sciscidata.storage.sums import find_changed, seal_file
from sciscirl import LabelDatasetBuilder, make_builder
from sciscirl.cli.main import main
from sciscirl.envs.tokenizer import make_renderer
from sciscirl.errors import PromptError, ReleaseError, SciSciRLError
from sciscirl.lab.dry_run import describe_server_training, find_best_forecast
from sciscirl.lab.objectives.dynamic_sampling import DynamicSampling
from sciscirl.lab.training.rl import make_config, make_evaluator, train_preset
from sciscirl.options import TrainOptions, resolve_run
from sciscirl.presets import PRESETS
from sciscirl.runs.chat_format import choose_renderer
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.record import begin_run
from sciscirl.runs.server_checks import check_server
from sciscirl.task.release import Order, PaperChoice, read_split
from sciscirl.task.rewards import score_answer
from sciscirl.task.rules import TaskRules, find_shortest_answers
from tests.sciscirl.tinker_stub import serve_models
from tests.sciscirl.toy import LABELS, RENDERER, Scripted, make_slice, say


def test_the_config_of_the_cookbook_is_that_of_the_preset(options):
    config = make_config(resolve_run(TrainOptions(**options, max_steps=5)))
    preset = PRESETS["exp4"]
    assert (config.max_tokens, config.learning_rate, config.lora_rank) == (
        64,
        preset.optimiser.learning_rate,
        preset.optimiser.lora_rank,
    )
    builder = config.dataset_builder
    assert (builder.task.style, builder.task.contract, builder.task.reward) == ("checklist", "two_keys", "strong")
    assert (builder.order.batch_size, builder.group_size, builder.order.seed) == (16, 2, 0)
    assert (config.eval_every, config.max_steps, config.renderer_name) == (50, 5, RENDERER)
    assert (config.kl_penalty_coef, config.remove_constant_reward_groups) == (0.0, False)


def test_a_cut_off_answer_earns_what_the_table_says_whatever_the_model(options):
    config = make_config(resolve_run(TrainOptions(**options | {"model": "thinkingmachines/Inkling"})))
    assert config.effective_termination().zero_reward_on_limit is False


def test_a_preset_decides_on_order_and_refills_unless_the_command_line_does(options):
    config = make_config(resolve_run(TrainOptions(**options | {"preset": "exp9"}, max_steps=5)))
    assert (config.dataset_builder.order.interleave, config.dataset_builder.n_spares) == (True, 3)
    assert config.remove_constant_reward_groups is True
    assert isinstance(config.effective_rollout_strategy(), DynamicSampling)
    given = {"dynamic_sampling": 0, "interleave": False, "remove_constant_reward_groups": False}
    config = make_config(resolve_run(TrainOptions(**options | {"preset": "exp9"} | given, max_steps=5)))
    assert (config.dataset_builder.order.interleave, config.dataset_builder.n_spares) == (False, 0)
    assert config.remove_constant_reward_groups is False
    assert not isinstance(config.effective_rollout_strategy(), DynamicSampling)


@pytest.mark.parametrize(
    ("name", "more"), [("exp4", {}), ("exp9", {"seed": 3, "n_train": 12}), ("adversarial", {"hide": ("title",)})]
)
def test_the_cookbooks_loop_gets_the_builder_of_a_preset_in_one_call(options, name, more):
    more |= {"max_steps": 5, "batch_size": 4}
    config = make_config(resolve_run(TrainOptions(**options | {"preset": name}, **more)))
    more |= {key: options[key] for key in ("renderer", "eval_split")}
    builder = make_builder(name, options["release"], options["model"], **more)
    assert builder == config.dataset_builder
    assert type(builder) is type(config.dataset_builder)
    held_out = asyncio.run(chz.replace(builder, has_test=True)())[1]
    assert sum(len(held_out.get_batch(step)) for step in range(len(held_out))) == 9


def test_a_command_line_of_the_cookbook_reaches_every_part_of_the_builder(options):
    builder = {"release": options["release"], "model_name": options["model"], "renderer_name": RENDERER}
    builder |= {"task.style": "ontology", "task.target": "novelty", "task.hide": "title,abstract", "group_size": "4"}
    builder |= {"order.batch_size": "4", "choice.n_train": "12", "choice.eval_split": "test"}
    loop = {"model_name": "a/b", "learning_rate": "1e-4", "recipe_name": "mine", "max_tokens": "9", "log_path": "x"}
    words = [f"{name}={value}" for name, value in loop.items()]
    words += ["dataset_builder=sciscirl.envs.dataset:LabelDatasetBuilder"]
    words += [f"dataset_builder.{name}={value}" for name, value in builder.items()]
    made = chz.Blueprint(train.Config).make_from_argv(words).dataset_builder
    assert made == LabelDatasetBuilder(
        release=str(options["release"]), model_name=options["model"], renderer_name=RENDERER, group_size=4,
        task=TaskRules(style="ontology", target="novelty", hide=("title", "abstract")), order=Order(batch_size=4),
        choice=PaperChoice(n_train=12, eval_split="test"),
    )  # fmt: skip
    assert chz.Blueprint(train.Config).make_from_argv([*words, "...seed=7"]).dataset_builder.order.seed == 7


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in {"baseline", "exp1", "exp2", "exp3", "exp5"}
                                  and PRESETS[name].adversarial is None])  # fmt: skip
def test_every_kind_of_preset_makes_its_batches_and_its_evaluator(options, name):
    options = TrainOptions(**options | {"preset": name}, batch_size=4, max_steps=1, max_tokens=99)  # a letter each
    config, preset = make_config(resolve_run(options)), PRESETS[name]
    train, _ = asyncio.run(config.dataset_builder())
    rules = train.batches.rules
    assert (rules.target, rules.contract, rules.reward) == (
        preset.rules.target, preset.rules.contract, preset.rules.reward
    )  # fmt: skip
    assert bool(rules.class_counts) == rules.table.is_balanced
    assert (train.tracker is not None) == (name == "exp6")
    assert make_evaluator(resolve_run(options), config.dataset_builder).rules.target == preset.rules.target
    assert config.recipe_name == f"sciscirl_{preset.rules.target}"


def test_a_dry_run_shows_config_prompts_tokens_and_cost_without_a_server(options, toy_renderer, monkeypatch):
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:9")
    text = describe_server_training(resolve_run(TrainOptions(**options, max_steps=2, eval_every=1)))
    resolved = json.loads(text.partition("\n--- settings ---\n")[2])
    assert resolved["dataset_builder"]["task"]["reward"] == "strong"
    assert text.count("<|im_start|>assistant") == 3
    assert text.count(" of thing ") == 3
    assert text.count("You judge what kind of mark") == 1  # what all prompts share is shown once
    assert text.count("\n--- prompt ") == 3
    assert len(text.partition("\n--- prompt 1")[0].splitlines()) == 9  # facts come first
    assert text.startswith("preset exp4 (from exp3), model ")
    assert "judged by: 9 papers of test, as eval_split=test says\ntoo few to tell: take a larger release\n" in text
    assert "2 of 16 papers x 2 answers; 3 evaluations of 9 answers" in text
    assert "each of 24 training papers is shown 1.3 times" in text
    assert resolved["dataset_builder"]["choice"]["n_epochs"] == 2
    assert "steps: 100,000,000 of 16" in describe_server_training(resolve_run(TrainOptions(**options, max_steps=10**8)))
    assert "no list price known" in text
    assert not Path(options["log_path"]).exists()


def test_the_tokens_of_a_dry_run_are_those_of_the_prompts(options, toy_renderer):
    text = describe_server_training(resolve_run(TrainOptions(**options, max_steps=1, n_test=3)))
    builder = make_config(resolve_run(TrainOptions(**options, max_steps=1))).dataset_builder
    train, _ = asyncio.run(builder())
    counts = []
    for group in train.get_batch(0):
        env = asyncio.run(group.make_envs())[0]
        counts.append(asyncio.run(env.initial_observation())[0].length)
    mean = sum(counts) / len(counts)
    assert f"mean {mean:,.0f} (16 prompts counted)" in text
    n_answers = 16 * 2 + 2 * 3
    expected = (
        f"{round(n_answers * mean):,} tokens read, {n_answers * 64:,} sampled, {round(32 * (mean + 64)):,} trained"
    )
    assert expected in text


def test_a_dry_run_says_what_cheap_answers_earn(options, monkeypatch):
    text = describe_server_training(
        resolve_run(TrainOptions(**options | {"preset": "exp6"}, interleave=False, n_test=6))
    )
    # Two papers of each label: a constant answer has one of three right, and the years tell nothing.
    assert (
        "without the cost of labels said too often: 1.05 if right, 0.05 if wrong, -0.75 in another form, -1.00" in text
    )
    assert "best constant answer (disruptive) 0.38, a regression on year, field 0." in text
    monkeypatch.setitem(sys.modules, "sciscirl.lab.analysis.baselines", None)
    text = describe_server_training(resolve_run(TrainOptions(**options | {"preset": "exp5"})))
    assert "a regression on what was known at publication with scikit-learn" in text
    assert "an answer earns: 1.05 to 3.05 if right, -0.55 if wrong" in text
    assert "right answers to these papers earn 1.72, the best constant answer (disruptive) 0.65" in text


def test_no_constant_forecast_earns_more_than_the_best_of_a_dry_run(toy_slice):
    of_label = {
        label: [p for p in read_split(toy_slice, "train") if p.gold.disruption_label == label] for label in LABELS
    }
    papers = [paper for label, n in zip(LABELS, (6, 4, 5), strict=True) for paper in of_label[label][:n]]
    rules = TaskRules(contract="probabilities", reward="disruptive_x3")
    best, said = find_best_forecast(papers, rules)
    assert said == "disruptive 0.60, consolidating 0.18, neutral 0.22"  # papers times 3.6, 1.6, 1.6
    answer, earned = rules.parse(find_shortest_answers(rules)[0]), []
    for first, second in combinations_with_replacement(range(21), 2):  # twentieths
        shares = (first / 20, (second - first) / 20, (20 - second) / 20)
        answer = replace(answer, forecast=dict(zip(LABELS, shares, strict=True)))
        earned.append(fmean(score_answer(answer, paper.labels("disruption"), rules.table).total for paper in papers))
    assert best - 0.01 < max(earned) <= best


@pytest.mark.parametrize("long_one", ["train", "test"])
def test_a_dry_run_finds_the_one_paper_that_does_not_fit(options, tmp_path, long_one):
    folder = make_slice(tmp_path / "slice", 600, 9, long_title=f"{long_one}: 7")
    fits, does_not = (TrainOptions(**options | {"release": str(folder)}, max_paper_tokens=cap) for cap in (700, 400))
    assert "tokens: a prompt has" in describe_server_training(resolve_run(fits))
    with pytest.raises(PromptError, match=r"^max_paper_tokens=400 is too few: ") as refused:
        describe_server_training(resolve_run(does_not))
    least = int(str(refused.value).rpartition("=")[2].rstrip("."))  # under which all fit
    assert "tokens: a prompt has" in describe_server_training(resolve_run(replace(does_not, max_paper_tokens=least)))


def test_an_evaluation_inside_training_writes_predictions_and_rollouts_of_its_step(options, toy_renderer):
    train_options = TrainOptions(**options)
    run = resolve_run(train_options)
    evaluator = make_evaluator(run, make_config(run).dataset_builder)
    store = TrainingRunStore(storage_from_uri(options["log_path"]))
    export = RolloutSummaryExportConfig(split="eval/test", iteration=50, base_name="eval_test")
    policy = Scripted(toy_renderer.tokenizer, lambda _: say("neutral", 0.75))
    metrics = asyncio.run(evaluator.eval_token_completer(policy, rollout_summary_export=export, store=store))
    assert metrics["test/label_match"] == pytest.approx(1 / 3)
    assert metrics["test/macro_f1"] == pytest.approx(0.5 / 3)
    assert metrics["test/min_class_recall"] == 0.0
    assert (Path(options["log_path"]) / "predictions" / "test_000050.parquet").is_file()
    assert len(store.read_rollouts(50, "eval_test")) == 9


def test_the_last_weights_are_judged_when_they_are_saved_and_not_before(options):
    """The loop of the cookbook 0.6.1 asks for an evaluation at its end, where a collapse would lose the weights."""
    run = resolve_run(TrainOptions(**options))
    evaluator = make_evaluator(run, make_config(run).dataset_builder)
    evaluator.end_step = 4
    export = RolloutSummaryExportConfig(split="eval/test", iteration=4, base_name="eval_test")
    assert asyncio.run(evaluator(None, rollout_summary_export=export)) == {}  # it would fail if it asked
    assert evaluator.predictions is None


def test_a_run_begins_and_goes_on_only_as_what_it_was(tmp_path, toy_slice):
    folder = tmp_path / "run"
    folder.mkdir()
    assert begin_run(folder, toy_slice, {"seed": 0}, behavior="raise") == 0
    recorded = json.loads((folder / "run.json").read_text("utf-8"))
    assert len(recorded["release"]["manifest_sha256"]) == 64
    assert recorded["settings"] == {"seed": 0}
    assert {"tinker", "tinker-cookbook", "python"} <= set(recorded["versions"])
    assert "commit" in recorded
    with pytest.raises(SciSciRLError, match="behavior_if_log_dir_exists=resume"):
        begin_run(folder, toy_slice, {"seed": 0}, behavior="raise")
    with pytest.raises(SciSciRLError, match="begun with seed=0, not seed=1"):
        begin_run(folder, toy_slice, {"seed": 1}, behavior="resume")
    other = make_slice(tmp_path / "other", 6, 3)
    with pytest.raises(SciSciRLError, match="manifest_sha256"):
        begin_run(folder, other, {"seed": 0}, behavior="resume")


def test_metrics_of_steps_after_the_last_checkpoint_are_dropped_since_they_are_taken_again(tmp_path, toy_slice, caplog):
    folder = tmp_path / "run"
    folder.mkdir()
    begin_run(folder, toy_slice, {}, behavior="raise")
    rows = [json.dumps({"step": step, "loss": step}) for step in range(6)]
    (folder / "metrics.jsonl").write_text("\n".join([*rows, '{"step": 6, "lo']), "utf-8")
    checkpoint = {"name": "000004", "batch": 4, "state_path": "tinker://x/weights/000004"}
    (folder / "checkpoints.jsonl").write_text(json.dumps(checkpoint) + "\n", "utf-8")
    assert begin_run(folder, toy_slice, {}, behavior="resume") == 4
    assert (folder / "metrics.jsonl").read_text("utf-8").splitlines() == rows[:4]
    assert not caplog.records
    (folder / "SHA256SUMS").unlink()  # a run that was killed right after the checkpoint had not sealed its log yet
    (folder / "metrics.jsonl").write_text("\n".join(rows[:3]), "utf-8")
    assert begin_run(folder, toy_slice, {}, behavior="resume") == 4


def test_answers_of_the_weights_that_a_run_goes_on_from_stay_and_those_of_later_ones_go(tmp_path, toy_slice):
    folder = tmp_path / "run"
    (folder / "predictions").mkdir(parents=True)
    begin_run(folder, toy_slice, {}, behavior="raise")
    checkpoint = {"name": "000004", "batch": 4, "state_path": "tinker://x/weights/000004"}
    (folder / "checkpoints.jsonl").write_text(json.dumps(checkpoint) + "\n", "utf-8")
    for step in (2, 4, 6):
        (folder / f"iteration_{step:06d}").mkdir()
        paths = [folder / f"iteration_{step:06d}" / f"{of}_rollout_summaries.jsonl" for of in ("train", "eval_test")]
        for path in (*paths, folder / "predictions" / f"test_{step:06d}.parquet"):
            path.write_text("", "utf-8")
            seal_file(path)
    assert begin_run(folder, toy_slice, {}, behavior="resume") == 4
    kept = sorted(str(path.relative_to(folder)) for path in folder.glob("*_*/*.jsonl"))
    assert kept == [
        f"iteration_{name}_rollout_summaries.jsonl" for name in ("000002/eval_test", "000002/train", "000004/eval_test")
    ]
    assert sorted(path.name for path in (folder / "predictions").iterdir()) == [
        "test_000002.parquet", "test_000004.parquet"
    ]  # fmt: skip
    assert find_changed(folder) == find_changed(folder / "iteration_000004") == []


def test_a_folder_in_use_is_said_and_free_again_afterwards(tmp_path):
    holder = f"from pathlib import Path; from sciscirl.runs.folder import locked_folder\n" \
        f"with locked_folder(Path({str(tmp_path)!r})): print('held', flush=True); input()"  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", holder], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(SciSciRLError, match="in use by another run"), locked_folder(tmp_path):
            pass
        other.kill()  # the lock goes with its process
    with locked_folder(tmp_path):
        pass


def test_a_key_of_another_form_is_one_line(monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", "sk-123")
    with serve_models([]) as url, pytest.raises(SciSciRLError, match=r"'tml-' prefix.*Set TINKER_API_KEY"):
        check_server("a/b", url)


@pytest.mark.parametrize(
    ("asked", "first"), [("Qwen/Qwen3.5-9b", "Qwen/Qwen3.5-9B"), ("meta-llama/Llama-3.2-1B", "openai/gpt-oss-20b")]
)
def test_a_model_that_a_server_lacks_is_answered_by_names_like_it_then_by_the_cheapest(options, asked, first):
    names = ["Qwen/Qwen3.8-27B", "Qwen/Qwen3.5-9B", "Qwen/Qwen3-8B", "openai/gpt-oss-20b"]
    with serve_models([{"model_name": name} for name in names]) as url:
        with pytest.raises(SciSciRLError, match=rf"does not offer '{asked}'.*it offers: model={first}, ") as refused:
            check_server(asked, url)
        assert all(f"model={name}" in str(refused.value) for name in names)


def test_an_altered_slice_is_one_line_before_any_server_is_asked(options, tmp_path):
    folder = make_slice(tmp_path / "slice", 18, 3)
    path = folder / "test.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ReleaseError, match=r"\.parquet is damaged"):
        asyncio.run(train_preset(TrainOptions(**options | {"release": str(folder)}, base_url="http://127.0.0.1:9")))


def test_the_historical_model_is_said_to_be_retired_before_its_tokenizer_is_asked_for(options, monkeypatch):
    monkeypatch.setattr("sciscirl.envs.tokenizer.get_tokenizer", lambda name: pytest.fail(f"asked for {name}"))
    with (
        serve_models([{"model_name": "Qwen/Qwen3-8B"}]) as url,
        pytest.raises(SciSciRLError, match="model=Qwen/Qwen3-8B"),
    ):
        asyncio.run(train_preset(TrainOptions(preset="exp4", release=options["release"], base_url=url)))


@pytest.mark.parametrize(
    ("unknown", "near"),
    [
        ("Qwen/Qwen3-8X", " Did you mean Qwen/Qwen3-8B"),
        ("qwen3-8b", " Did you mean Qwen/Qwen3-8B"),
        ("smolm2", r" Did you mean smollm2\?"),
        ("models/mine", r" Another model of the hub needs its chat format"),
        ("mine", r" Another"),
    ],
)
def test_a_wrong_model_name_is_called_that_with_the_nearest_ones(unknown, near):
    with pytest.raises(SciSciRLError, match=f"'{unknown}' is neither a known model name nor a folder.{near}"):
        choose_renderer(unknown)


def test_a_folder_whose_chat_format_is_not_known_is_told_apart_from_a_wrong_name(toy_model, tmp_path):
    folder = shutil.copytree(toy_model, tmp_path / "mine")
    (folder / "chat_template.jinja").write_text("{{ 'nothing like it' }}", "utf-8")
    with pytest.raises(
        SciSciRLError, match=r"knows no chat format for .*mine', and none writes a prompt as its chat template"
    ):
        choose_renderer(str(folder))


def test_an_unknown_renderer_or_model_is_one_line(toy_model, tmp_path):
    with pytest.raises(SciSciRLError, match="renderer 'poem' does not work"):
        make_renderer(toy_model, "poem")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SciSciRLError, match=r"tokenizer of .* could not be loaded .*empty holds no model") as caught:
        make_renderer(str(tmp_path / "empty"), RENDERER)
    assert "resume" not in str(caught.value)
    # Transformers makes a tokenizer without words of a configuration alone, whose prompts had seven tokens.
    (tmp_path / "empty" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    with pytest.raises(
        SciSciRLError, match=r"vocabulary is missing\)\. A file there may be damaged.*another folder\.$"
    ):
        make_renderer(str(tmp_path / "empty"), RENDERER)


def test_a_command_that_is_interrupted_says_so(capsys, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr("sciscirl.cli.commands.PROGRAM.commands", {"presets": interrupt})
    assert main(["presets"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
