from __future__ import annotations

import pytest

from sciscirl.errors import SciSciRLError
from sciscirl.presets import PRESETS, render_presets
from sciscirl.runs.prices import PRICES, Usage
from sciscirl.task.experiment import HISTORICAL_MODEL
from sciscirl.task.rules import TaskRules

PUBLISHED = {
    "baseline": ("plain", "four_keys", "soft"),
    "exp1": ("ontology", "four_keys", "soft"),
    "exp2": ("ontology", "four_keys", "strong"),
    "exp3": ("checklist", "four_keys", "strong"),
    "exp4": ("checklist", "two_keys", "strong"),
    "exp5": ("checklist", "two_keys", "disruptive_x3"),
}


def test_the_published_runs_come_first_each_a_change_of_the_one_before():
    found = {name: (preset.rules.style, preset.rules.contract, preset.rules.reward) for name, preset in PRESETS.items()}
    assert list(found.items())[:6] == list(PUBLISHED.items())
    assert [PRESETS[name].max_tokens for name in PUBLISHED] == [256] * 4 + [64, 64]
    for name in PUBLISHED:
        preset = PRESETS[name]
        sizes = preset.order.batch_size, preset.sampling.group_size, preset.judging.eval_group_size, preset.order.seed
        assert (*sizes, preset.model, preset.rules.target) == (16, 2, 1, 0, HISTORICAL_MODEL, "disruption")
        assert (
            preset.order.interleave,
            preset.sampling.remove_constant_reward_groups,
            preset.sampling.dynamic_sampling,
        ) == (False, False, 0)


def test_the_table_has_every_preset_and_nothing_hidden():
    lines = render_presets().splitlines()
    assert [line.split()[0] for line in lines] == ["name", *PRESETS]
    for line, preset in zip(lines[1:], PRESETS.values(), strict=True):
        assert line.endswith(preset.change)
        rules = preset.rules
        reward = rules.reward if preset.adversarial is None else "adversarial"
        assert {rules.target, rules.style, rules.contract, reward} <= set(line.split())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0), ("group_size", 1.5), ("max_tokens", True), ("learning_rate", 0.0),
        ("learning_rate", float("inf")), ("temperature", -1.0), ("temperature", "hot"), ("lora_rank", None),
        ("dynamic_sampling", -1), ("dynamic_sampling", 0.5),
    ],
)  # fmt: skip
def test_impossible_values_are_refused_by_name(name, value):
    with pytest.raises(SciSciRLError, match=f"{name} is {value!r}".replace(".", r"\.")):
        PRESETS["exp4"].with_settings(**{name: value})


@pytest.mark.parametrize("name", ["target", "style", "contract", "reward"])
def test_unknown_rules_are_refused_with_what_there_is(name):
    with pytest.raises(SciSciRLError, match=f"{name} is 'other', needs one of "):
        TaskRules(**{name: "other"})


def test_partial_credit_and_probabilities_do_not_go_together():
    with pytest.raises(SciSciRLError, match="'partial' gives partial credit for labels"):
        TaskRules(contract="probabilities", reward="partial")


def test_dollars_are_those_of_the_price_list_and_none_is_made_up():
    usage, price = Usage(prefill=3400, sample=340, train=2640), PRICES["Qwen/Qwen3-8B"]
    expected = (3400 * price.prefill + 340 * price.sample + 2640 * price.train) / 1e6
    assert usage.dollars("Qwen/Qwen3-8B") == pytest.approx(expected)
    assert usage.dollars(HISTORICAL_MODEL) is None
    assert usage.dollars("openai/gpt-oss-20b") is None  # no price for training is listed
