from __future__ import annotations

import dataclasses
import json

import pytest

from sciscirl.errors import SciSciRLError
from sciscirl.experiments import HISTORICAL_MODEL, PRESETS, Preset, TaskRules, describe, find_preset, render_presets
from sciscirl.prices import PRICES, estimate_usage


def test_the_presets_are_the_published_runs_each_a_change_of_the_one_before():
    found = {name: (preset.rules.style, preset.rules.contract, preset.rules.reward) for name, preset in PRESETS.items()}
    assert found == {
        "baseline": ("plain", "four_keys", "soft"),
        "exp1": ("ontology", "four_keys", "soft"),
        "exp2": ("ontology", "four_keys", "strong"),
        "exp3": ("checklist", "four_keys", "strong"),
        "exp4": ("checklist", "two_keys", "strong"),
        "exp5": ("checklist", "two_keys", "disruptive_x3"),
    }
    assert [preset.max_tokens for preset in PRESETS.values()][-2:] == [64, 64]
    for preset in PRESETS.values():
        sizes = preset.batch_size, preset.group_size, preset.eval_group_size, preset.seed
        assert (*sizes, preset.model) == (16, 2, 1, 0, HISTORICAL_MODEL)


def test_presets_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRESETS["exp4"].seed = 1
    with pytest.raises(TypeError):
        PRESETS["exp7"] = PRESETS["exp4"]


def test_the_table_has_every_preset_and_nothing_hidden():
    lines = render_presets().splitlines()
    assert [line.split()[0] for line in lines] == ["name", *PRESETS]
    for line, preset in zip(lines[1:], PRESETS.values(), strict=True):
        assert line.endswith(preset.change)
        assert {preset.rules.style, preset.rules.contract, preset.rules.reward} <= set(line.split())


def test_a_preset_goes_into_json_and_back():
    for preset in PRESETS.values():
        flat = json.loads(json.dumps(describe(preset)))
        rules = TaskRules(**{field.name: flat.pop(field.name) for field in dataclasses.fields(TaskRules)})
        assert Preset(rules=rules, **flat) == preset


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0), ("group_size", 1.5), ("max_tokens", True), ("learning_rate", 0.0),
        ("learning_rate", float("inf")), ("temperature", -1.0), ("temperature", "hot"), ("lora_rank", None),
    ],
)  # fmt: skip
def test_impossible_values_are_refused_by_name(name, value):
    with pytest.raises(SciSciRLError, match=f"{name} is {value!r}".replace(".", r"\.")):
        dataclasses.replace(PRESETS["exp4"], **{name: value})


@pytest.mark.parametrize("name", ["style", "contract", "reward"])
def test_unknown_rules_are_refused_with_what_there_is(name):
    with pytest.raises(SciSciRLError, match=f"{name} is 'other', needs one of "):
        TaskRules(**{name: "other"})


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(SciSciRLError, match="baseline, exp1, exp2, exp3, exp4, exp5"):
        find_preset("exp6x")


def test_an_estimate_counts_every_answer_once():
    usage = estimate_usage(
        prompt_tokens=100, max_tokens=10, n_steps=3, batch_size=4, group_size=2, n_evaluations=2, n_test=5
    )
    assert (usage.prefill, usage.sample, usage.train) == (34 * 100, 34 * 10, 24 * 110)
    price = PRICES["Qwen/Qwen3-8B"]
    expected = (3400 * price.prefill + 340 * price.sample + 2640 * price.train) / 1e6
    assert usage.dollars("Qwen/Qwen3-8B") == pytest.approx(expected)


def test_no_price_is_made_up():
    usage = estimate_usage(
        prompt_tokens=1, max_tokens=1, n_steps=1, batch_size=1, group_size=1, n_evaluations=0, n_test=0
    )
    assert usage.dollars(HISTORICAL_MODEL) is None
    assert usage.dollars("openai/gpt-oss-20b") is None  # no price for training is listed
