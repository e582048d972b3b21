"""The collapse benchmark in small: the direction of its result, and that what it pays is what the presets pay."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.collapse import build_synthetic, read_slice, run, run_reference
from benchmarks.collapse_policy import Answers, Policy, softmax
from sciscirl.presets import PRESETS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return read_slice(build_synthetic(tmp_path_factory.mktemp("world"), n_works=20_000, n_train=2_000, n_test=600))


def test_the_reward_of_exp5_collapses_the_policy_and_the_balanced_ones_do_not(data):
    _, (collapsed, likeliest) = run("exp5", data, seed=0, n_steps=300, eval_every=300)
    assert min(collapsed["predicted_share/disruptive"], likeliest["predicted_share/disruptive"]) > 0.9
    assert max(collapsed["min_class_recall"], likeliest["min_class_recall"]) < 0.05
    curve, (kept, _) = run("exp6", data, seed=0, n_steps=1_000, eval_every=500)
    best, _ = run_reference(data, seed=0, n_steps=1_000)
    assert [step for step, _ in curve] == [0, 500, 1_000]
    assert kept["min_class_recall"] > best["min_class_recall"] - 0.1
    assert kept["entropy"] > 0.9
    assert kept["macro_f1"] > collapsed["macro_f1"] + 0.1


@pytest.mark.parametrize("name", ["exp4", "exp8"])
def test_the_mean_step_over_pairs_of_answers_is_the_gradient_of_the_expected_reward(data, name):
    answers = Answers(PRESETS[name], data.train)
    rows, n_contents = np.array([[0.5, -0.5]]), len(answers.slopes)
    earned = answers.rewards[0, :, 0]
    policy, moves = Policy(answers), []
    policy.words = np.array([[0.5, -0.3, 0.1], [0.0, 0.2, -0.1]])
    policy.steps = [moves.append] * 3
    chances = policy.chances(rows)[0][0]
    step = np.zeros(3)
    for first in range(n_contents):
        pairs = np.array([[first, second] for second in range(n_contents)])
        often = chances[first] * chances  # advantages are linear in rewards, so a pair's weight can go with them
        moves.clear()
        policy.learn(np.repeat(rows, n_contents, axis=0), pairs, np.zeros_like(pairs), earned[pairs] * often[:, None])
        step += moves[1]

    def expect(bias: np.ndarray) -> float:
        return earned @ softmax((rows @ policy.words + bias) @ answers.slopes.T + answers.offsets)[0]

    nudges = 1e-6 * np.eye(3)
    slope = [(expect(policy.bias + nudge) - expect(policy.bias - nudge)) / 2e-6 for nudge in nudges]
    assert step == pytest.approx(np.array(slope), abs=1e-6)
    assert moves[0].shape == (2, 3)
    assert np.abs(slope).max() > 0.01
