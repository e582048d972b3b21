"""Count how often 95 % intervals over seeds and papers hold the true accuracy: ``python benchmarks/seed_intervals.py``.

Answers are drawn from a model in which papers differ in difficulty (standard deviation 1 on the logit scale) and seeds
in skill. The intervals are those of ``compare_predictions``: papers are drawn with replacement, and Student's t widens
them for the seeds.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy.special import stdtrit

N_PAPERS, N_RESAMPLES, N_SWEEPS = 300, 500, 400


def share(logits):
    return 1 / (1 + np.exp(-logits))


def simulate(random, n_seeds, spread):
    """Return the share of sweeps whose interval holds the true accuracy, and whose interval of a difference holds 0."""
    truth = share(random.normal(size=200_000) + spread * random.normal(size=200_000)).mean()
    holds = np.zeros(2)
    for _ in range(N_SWEEPS):
        papers = random.normal(size=N_PAPERS)
        often = random.multinomial(N_PAPERS, np.full(N_PAPERS, 1 / N_PAPERS), size=N_RESAMPLES)
        drawn, scores = [], []
        for _ in range(2):
            skills = spread * random.normal(size=(n_seeds, 1))
            right = random.random((n_seeds, N_PAPERS)) < share(papers + skills)
            drawn.append((often @ right.T / N_PAPERS).mean(axis=1))
            scores.append(right.mean(axis=1))
        sides = ((drawn[0], scores[0], truth), (drawn[0] - drawn[1], scores[0] - scores[1], 0.0))
        for place, (values, by_seed, true) in enumerate(sides):
            middle, off = by_seed.mean(), stdtrit(n_seeds - 1, 0.975) * by_seed.std(ddof=1) / math.sqrt(n_seeds)
            low, high = np.abs(np.quantile(values, [0.025, 0.975]) - middle)
            holds[place] += middle - math.hypot(low, off) <= true <= middle + math.hypot(high, off)
    return holds / N_SWEEPS


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    random = np.random.default_rng(0)
    for spread in (0.1, 0.3):
        skills = spread * random.normal(size=(1_000, 1))
        accuracies = share(random.normal(size=(1_000, 300)) + skills).mean(axis=1)
        points = 100 * np.std(accuracies)
        print(f"standard deviation of seeds {points:.0f} points of accuracy")
        for n_seeds in (2, 3, 5, 10):
            accuracy, difference = simulate(random, n_seeds, spread)
            print(f"{n_seeds:3} seeds: accuracy {accuracy:.3f}, difference {difference:.3f}")
