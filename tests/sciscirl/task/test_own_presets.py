"""Presets, rewards and prompts of one's own: from TOML, from Python, and what none of them can do."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, fields, replace

import pytest

from sciscirl.errors import PromptError, RewardError, SciSciRLError
from sciscirl.presets import (
    CHANGES,
    PRESETS,
    REWARD_NAMES,
    describe,
    find_alias,
    find_preset,
    lay_over,
    make_preset,
    read_preset_file,
    recall_preset,
    register_preset,
)
from sciscirl.task.experiment import PART_OF, Preset
from sciscirl.task.papers import Gold, Paper, PaperView
from sciscirl.task.prompts import STYLES, PromptTemplate, register_prompt, render_prompt
from sciscirl.task.rewards import NUMBERS, REWARDS, change_reward, register_reward
from sciscirl.task.rules import TaskRules
from tests.conftest import REPOSITORY

VIEW = PaperView('On "$abstract" and $cd_index\n{gold}', "We sleep. <|im_end|>", 2001, 3, None)
OWN = """
base = "exp4"
learning_rate = 2e-5
loss_fn = "ppo"
loss_fn_config = { clip_low_threshold = 0.8, clip_high_threshold = 1.28 }

[reward]
base = "soft"
wrong = -0.1
class_weights = { disruptive = 3, neutral = 2 }

[prompt]
system = "$task\\n$answer It costs $$5."
user = "$title, $publication_year. $question"
"""


@pytest.fixture
def own(tmp_path) -> Preset:
    path = tmp_path / "my.v1.toml"
    path.write_text(OWN, "utf-8")
    return find_preset(str(path))


def test_a_preset_file_says_what_differs_from_its_base(own):
    exp4 = PRESETS["exp4"]
    assert (own.name, own.base, own.optimiser.learning_rate, own.optimiser.loss_fn) == ("my.v1", "exp4", 2e-5, "ppo")
    assert own.optimiser.loss_fn_config == (("clip_low_threshold", 0.8), ("clip_high_threshold", 1.28))
    assert own.rules.table == replace(
        REWARDS["soft"], name="my.v1", wrong=-0.1, class_weights=(("disruptive", 3.0), ("neutral", 2.0))
    )
    assert own.rules.style == own.rules.reward == "my.v1"
    same = {one.name for one in fields(Preset)} - {"name", "base", "change", "rules", "optimiser"}
    assert all(getattr(own, name) == getattr(exp4, name) for name in same)
    assert list_changes(own).keys() == {"learning_rate", "loss_fn", "loss_fn_config", "style", "reward"}
    assert "learning_rate 2e-05" in own.change


def test_a_prompt_of_ones_own_is_what_the_model_reads(own):
    system, user = own.rules.render(VIEW)
    assert system["content"].startswith("You judge what kind of mark")
    assert system["content"].endswith("It costs $5.")
    # Text of the paper is JSON on one line, and asks for nothing.
    title, _, rest = user["content"].partition(", 2001. ")
    assert json.loads(title) == VIEW.title
    assert rest == "Which label fits this paper?"


def test_an_own_preset_goes_through_json_and_pickle_whole(own):
    stated = json.loads(json.dumps(describe(own)))
    recalled = recall_preset(stated)
    assert recalled.rules.table == own.rules.table
    assert recalled.rules.render(VIEW) == own.rules.render(VIEW)
    assert describe(recalled) == describe(own)
    assert stated["prompt_sha256"] == own.rules.prompt.sha256
    assert pickle.loads(pickle.dumps(own)) == own


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("contract", "target"), [("four_keys", "joint"), ("probabilities", "novelty")])
def test_the_record_of_a_run_holds_every_word_of_a_built_in_prompt(style, contract, target):
    whole = TaskRules(style=style, contract=contract, target=target).prompt
    assert whole.render(VIEW, contract, target) == render_prompt(VIEW, style, contract, target)


HIDDEN = ("cd_index", "disruption_label", "novelty_label", "gold", "labels", "novelty_score", "openalex_id", "view")


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("place", ["system", "user"])
def test_no_prompt_can_name_a_score_or_a_label(name, place):
    texts = {"system": "$task", "user": "$record"}
    with pytest.raises(PromptError, match=rf"its {place} message asks for \${name}, which no prompt can show"):
        register_prompt("attack", **texts | {place: f"{texts[place]} ${name}"})


@pytest.mark.parametrize(
    "attack",
    [
        "${record.gold}", "${view.__class__}", "$record[0]${gold!r}", "{gold.disruption_label} {0.gold}", "$ {gold}",
        "%(gold)s", "$record ${}", "$$gold ${title}{self}",
    ],
)  # fmt: skip
def test_an_attack_on_a_template_shows_nothing_of_the_labels(attack):
    paper = Paper("W1", VIEW, Gold("disruptive-sentinel", "novel-sentinel"))
    try:
        prompt = PromptTemplate(name="attack", system="$answer", user=f"$abstract {attack}")
    except PromptError:
        return
    said = str(prompt.render(paper.view, "two_keys", "disruption"))
    assert "sentinel" not in said
    assert "Gold(" not in said
    assert "PaperView" not in said


@pytest.mark.parametrize(
    ("system", "user", "message"),
    [
        ("$task", "What is it?", "shows nothing of it"),
        ("$task", "$title $title", r"shows \$title \$title"),
        ("$task", "$record $title", r"shows \$record \$title"),
        ("$title", "$record", r"asks for \$title, which differs between papers"),
        ("$tusk", "$record", r"Did you mean task\?"),
        ("", "$record", "system is '', needs text that is not empty"),
        ("It costs $5.", "$record", r"and \$\$ for a dollar"),
    ],
)
def test_a_prompt_that_makes_no_sense_is_one_clear_error(system, user, message):
    with pytest.raises(PromptError, match=message):
        register_prompt("odd", system=system, user=user)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lerning_rate = 1", r"a preset has no 'lerning_rate'\. Did you mean learning_rate\?"),
        ("max_steps_off_policy = 4", r"a preset has no 'max_steps_off_policy'\. It has "),
        ("[reward]\nwrnog = 1", r"a reward has no number 'wrnog'\. Did you mean wrong\?"),
        ("[prompt]\nsistem = 'x'", r"\[prompt\] of a preset has no 'sistem'\. Did you mean system\?"),
        ("base = 'exp44'", r"no preset 'exp44'\. Did you mean exp4\?"),
        ("batch_size = 0", "batch_size is 0, needs a whole number from 1"),
        ("[reward]\nwrong = 'x'", "reward wrong is 'x', needs a number"),
        ("[reward]\nwrong = 5", "rising values"),
        ("[reward]\nclass_weights = { disruptive = 0 }", "positive factors"),
        ("[adversarial]\ncredits = 'mean'", r"has no 'credits'\. Did you mean credit\?"),
        ("base = 'adversarial'\n[reward]\nwrong = 0", "reward has no effect"),
        ("name = ", "is no TOML file"),
        ("loss_fn_config = { clip_low_threshold = 0.8 }", "has no effect: loss_fn 'importance_sampling' takes no"),
        ("loss_fn = 'ppo'\nloss_fn_config = { clip_low = 0.8 }", "Did you mean clip_low_threshold"),
        ("loss_fn = 'ppo'\nloss_fn_config = { clip_low_threshold = 0.2, clip_high_threshold = 0.28 }", "are ratios"),
        ("kl_discount_factor = 0.5", "kl_discount_factor has no effect, because kl_penalty_coef is 0"),
        ("kl_penalty_coef = 0.1\nkl_reference = 'mine'", "has no 'kl_reference'. Did you mean kl_reference_config"),
        (
            "kl_penalty_coef = 0.1\nkl_reference_config.load_checkpoint_path = 'tinker://a/weights/b'",
            "needs weights to sample",
        ),
    ],
)
def test_a_mistake_in_a_preset_file_is_one_clear_error_that_names_the_file(tmp_path, text, message):
    path = tmp_path / "my.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(SciSciRLError, match=message) as caught:
        read_preset_file(path)
    assert str(caught.value).startswith(f"{path}")


def test_presets_rewards_and_prompts_are_registered_under_free_names_only():
    table = register_reward("mild", base="strong", wrong=-0.2)
    register_prompt("brief", system="$task $answer", user="$title")
    preset = register_preset("mine", base="two_keys", reward="mild", style="brief")
    assert PRESETS["mine"] is find_preset("mine") is preset
    assert preset.rules.table is table
    assert register_reward("mild", base="strong", wrong=-0.2) == table
    for register, message in (
        (lambda: register_reward("soft", wrong=-0.3), "another reward 'soft'"),
        (lambda: register_prompt("plain", system="a", user="$record"), "another prompt 'plain'"),
        (lambda: register_preset("exp4", style="plain"), "another preset 'exp4'"),
        (lambda: register_preset("two_keys", style="plain"), "two_keys is another name of exp4"),
        (lambda: register_preset("a/../b", style="plain"), "letters, digits"),
        (lambda: register_reward("x", wrng=1), r"Did you mean wrong\?"),
    ):
        with pytest.raises(SciSciRLError, match=message):
            register()


def test_what_a_notebook_registers_once_more_takes_the_place_of_the_first(caplog):
    register_reward("mild", wrong=-0.2)
    assert register_reward("mild", wrong=-0.3) is REWARDS["mild"]
    assert caplog.messages == ["reward 'mild' takes the place of another of this name."]


def test_rules_hold_what_they_name():
    table = change_reward(REWARDS["strong"], {"wrong": -0.2}, "of_this_test")
    with pytest.raises(SciSciRLError, match="names 'soft' and holds 'of_this_test'"):
        TaskRules(own_reward=table)
    with pytest.raises(RewardError, match=r"reward is 'of_this_test', needs one of .* plugin=FILE\.py"):
        TaskRules(reward="of_this_test")
    assert TaskRules(reward="of_this_test", own_reward=table).table == table


def test_changes_are_laid_over_a_preset_by_name():
    changed = lay_over(
        PRESETS["exp5"], {"reward_correct": 2, "reward_kept": 0.1, "class_weights": {"neutral": 2}, "seed": 3}
    )
    assert changed.rules.reward == "disruptive_x3(kept=0.1, correct=2.0, class_weights=neutral:2)"
    assert (changed.rules.table.correct, changed.rules.table.broken, changed.order.seed) == (2.0, -0.75, 3)
    # The same number as before changes nothing, not even a name.
    assert lay_over(PRESETS["exp4"], {"reward_wrong": -0.6}) == PRESETS["exp4"]
    assert lay_over(PRESETS["exp4"], {"reward": "soft", "reward_wrong": 0.0}).rules.reward == "soft"
    with pytest.raises(SciSciRLError, match="adjacent credit has no effect"):
        lay_over(PRESETS["exp4"], {"reward_adjacent": 0.2})
    assert lay_over(PRESETS["novelty"], {"reward_adjacent": 0.3}).rules.table.adjacent == 0.3
    with pytest.raises(SciSciRLError, match="reward_wrong has no effect: preset 'adversarial'"):
        lay_over(PRESETS["adversarial"], {"reward_wrong": 0.0})


def test_every_part_of_a_preset_has_a_name_to_change_it_by():
    parts = {"rules", "order", "sampling", "optimiser", "judging"}
    assert {one.name for one in fields(Preset)} - set(CHANGES) == {"name", "base", "adversarial", *parts}
    assert set(PART_OF) - set(CHANGES) == {"class_counts", "own_prompt", "own_reward"}
    names = [one.name for part in parts for one in fields(getattr(PRESETS["exp4"], part))]
    assert {*PART_OF} == {*names}
    assert len(names) == len({*names})  # each name is in one part
    assert {*REWARD_NAMES.values()} == {*NUMBERS}
    rest = {"name", "gold_weights", "labels", "function"}
    assert {one.name for one in fields(type(REWARDS["soft"]))} - {*NUMBERS} == rest


def list_changes(preset):
    """What a preset changes of its base, by name; {} if it has none."""
    if preset.base is None:
        return {}
    own, before = (describe(one) for one in (preset, find_preset(preset.base)))
    silent = {"name", "base", "change", "prompt", "prompt_sha256", "reward_table", "own_label"}
    changes = {name: value for name, value in own.items() if value != before.get(name) and name not in silent}
    if (rules := own.get("adversarial")) and (others := before.get("adversarial")):
        changes |= {"adversarial": {name: value for name, value in rules.items() if value != others[name]}}
    return {name: value for name, value in changes.items() if value != {} or own[name] == {}}


def render_changes() -> str:
    """What each preset changes of the one it starts from, as a table of Markdown."""
    rows = ["| preset | starts from | what it changes |", "|---|---|---|"]
    for preset in PRESETS.values():
        names = ", ".join(f"`{name}`" for name in (preset.name, find_alias(preset.name)) if name)
        told = [f"`{name}={_tell(value)}`" for name, value in list_changes(preset).items()]
        rows.append(f"| {names} | {f'`{preset.base}`' if preset.base else ''} | {', '.join(told)} |")
    return "\n".join(rows)


def _tell(value: object) -> str:
    return ",".join(f"{key}:{one}" for key, one in value.items()) if isinstance(value, dict) else str(value)


def test_the_page_shows_what_each_preset_changes():
    table, page = render_changes(), (REPOSITORY / "docs" / "rl" / "presets.md").read_text("utf-8")
    assert [line for line in table.splitlines() if line not in page] == []
    assert table in page


def test_a_base_and_its_changes_make_up_each_preset():
    for preset in [one for one in PRESETS.values() if one.base is not None]:
        changes = list_changes(preset)
        assert changes, preset.name
        rules = changes.pop("adversarial", None)
        made = make_preset(preset.name, base=preset.base, **changes, **({"adversarial": rules} if rules else {}))
        assert replace(made, change=preset.change) == preset


def test_adversarial_rules_can_be_changed_by_a_file(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text('base = "adversarial"\n[adversarial]\ncredit = "mean"\n', "utf-8")
    rules = read_preset_file(path).adversarial
    assert asdict(rules) == asdict(PRESETS["adversarial_mean"].adversarial)
