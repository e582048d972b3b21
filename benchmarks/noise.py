"""What noise in the CD index does to regressions and differences, in worlds with a known truth; and two other models.

python benchmarks/noise.py                     worlds like cit-HepTh, and the models on it
python benchmarks/noise.py --graph handball    worlds like another graph, and the models on it

A world takes 2,000 works of the graph. Their rates of citers and of n_k are those observed; the share of n_i is drawn
from the graph's prior, higher in one of two groups. Counts are Poisson. The truth is the mean index at these rates. The
outcome is 1 + 2 truth + noise. Results go to benchmarks/results/noise.json.

The models are of n_i among n_i + n_j: a beta-binomial and a logistic one with a random intercept for each work, both by
maximum likelihood. Each is fitted to one half of the citers, and says what share of n_i the other half has. The second
is the likelihood part of the multilevel model of Mutz & Bornmann 2023 (doi:10.55835/644117475a1411a1cb49918d), whose
abstract alone was read. Theirs is Bayesian, and may have predictors and further levels.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy import optimize, special

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.label_confidence import is_cited, pair_up, read_graphs, score
from sciscidata.disruption.label_prior import LabelPrior, classes_of
from sciscidata.indicators import compute_cd_interval, find_label_prior, find_noise_effect

OUT = Path(__file__).resolve().parent / "results" / "noise.json"
WORLDS, WORKS, SLOPE = 200, 2_000, 2.0


def fit(y: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of a least-squares line, and their errors, robust to unequal spread."""
    x = np.column_stack([np.ones(y.size), *columns])
    inverse = np.linalg.inv(x.T @ x)
    slopes = inverse @ x.T @ y
    rest = (y - x @ slopes)[:, None] * x
    return slopes, np.sqrt(np.diag(inverse @ (rest.T @ rest) @ inverse))


def make_world(rng: np.random.Generator, counts: np.ndarray, prior: LabelPrior) -> tuple[pl.DataFrame, np.ndarray]:
    """Return CD_SCORES with the group, and the true index of each work."""
    counts = counts[rng.integers(0, len(counts), WORKS)]
    citers, others = (counts[:, 0] + counts[:, 1]).astype(float), counts[:, 2].astype(float)
    group, at = rng.integers(0, 2, WORKS), classes_of(counts[:, 2])
    share = rng.beta(np.array(prior.a)[at] + group * 0.5, np.array(prior.b)[at])
    drawn = np.column_stack([rng.poisson(citers * share), rng.poisson(citers * (1 - share)), rng.poisson(others)])
    reach = citers / (citers + others) * np.expm1(-citers - others) / np.expm1(-citers)
    cited = drawn[:, :2].sum(axis=1) > 0
    return score(drawn[cited], pl.DataFrame({"group": group[cited]})), ((2 * share - 1) * reach)[cited]


def simulate(counts: np.ndarray, prior: LabelPrior) -> dict[str, Any]:
    """Return means over worlds and the coverage of 95 % intervals, before and after correction."""
    rng, rows = np.random.default_rng(1), []
    for _ in range(WORLDS):
        scores, truth = make_world(rng, counts, prior)
        index, group = scores["cd_index"].to_numpy(), scores["group"].to_numpy()
        control = truth + rng.normal(0, 2 * truth.std(), truth.size)
        outcome = 1 + SLOPE * truth + 0.5 * control + rng.normal(0, 0.5, truth.size)
        alone = outcome - 0.5 * control
        effect, within = find_noise_effect(scores), find_noise_effect(scores, by="group")
        row = {"reliability": effect.reliability, "true reliability": np.corrcoef(index, truth)[0, 1] ** 2}
        explained = np.corrcoef(index, control)[0, 1] ** 2
        for name, y, others, r2 in (
            ("slope", alone, (), 0.0),
            ("slope with a control", outcome, (control,), explained),
        ):
            slopes, errors = fit(y, index, *others)
            right = effect.correct_slope(slopes[1], errors[1], explained=r2)
            row |= {name: slopes[1], f"{name}, corrected": right.slope}
            row[f"{name}, covered"] = abs(slopes[1] - SLOPE) < 1.96 * errors[1]
            row[f"{name}, corrected, covered"] = right.low < SLOPE < right.high
        shrunk = compute_cd_interval(scores, prior=find_label_prior(scores)).select("cd_shrunk").collect().to_series()
        slopes, errors = fit(alone, shrunk.to_numpy())
        row |= {
            "slope on cd_shrunk": slopes[1],
            "slope on cd_shrunk, covered": abs(slopes[1] - SLOPE) < 1.96 * errors[1],
        }
        gap, (slopes, errors) = truth[group == 1].mean() - truth[group == 0].mean(), fit(index, group)
        row |= {"true difference": gap, "difference of means": slopes[1], "error of the difference": errors[1]}
        inside = np.sqrt(np.mean([truth[group == one].var() for one in (0, 1)]))
        d = slopes[1] / np.sqrt(within.variance)
        row |= {"d": d, "d, corrected": within.correct_difference(d), "true d": gap / inside}
        rows.append(row)
    means = {name: round(float(np.mean([row[name] for row in rows])), 3) for name in rows[0]}
    gap = np.mean([row["true difference"] for row in rows])
    near = [abs(row["difference of means"] - gap) < 1.96 * row["error of the difference"] for row in rows]
    return means | {"difference of means, covered": round(float(np.mean(near)), 3)}


def beta_binomial(n: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """Return the mean share of n for n of n + m each, of the likeliest beta-binomial distribution."""

    def loss(logs: np.ndarray) -> float:
        a, b = np.exp(logs)
        return -float((special.betaln(n + a, m + b) - special.betaln(a, b)).sum())

    a, b = np.exp(optimize.minimize(loss, [0.0, 0.0], method="Nelder-Mead").x)
    return (n + a) / (n + m + a + b), {"a": a, "b": b}


def logistic(n: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """Return the same of a logistic model with a normal random intercept for each work."""
    points, weights = np.polynomial.hermite_e.hermegauss(61)

    def logs(mean: float, spread: float) -> tuple[np.ndarray, np.ndarray]:
        odds = mean + spread * points
        of_point = -n[:, None] * np.log1p(np.exp(-odds)) - m[:, None] * np.log1p(np.exp(odds)) + np.log(weights)
        return of_point, odds

    def loss(at: np.ndarray) -> float:
        return -float(special.logsumexp(logs(at[0], np.exp(at[1]))[0], axis=1).sum())

    mean, log_spread = optimize.minimize(loss, [-1.0, 0.5], method="Nelder-Mead").x
    of_point, odds = logs(mean, np.exp(log_spread))
    chance = np.exp(of_point - special.logsumexp(of_point, axis=1, keepdims=True))
    return chance @ special.expit(odds), {"mean": mean, "spread": np.exp(log_spread)}


def compare(scores: pl.DataFrame) -> dict[str, Any]:
    """Return how well each model, fitted to one half of the citers, says what the other half does."""
    rows: list[dict[str, float]] = []
    for known, other in pair_up("random halves", scores)[:2]:
        both = is_cited(known) & is_cited(other)
        n, m, n_k = (known.filter(both)[name].to_numpy().astype(float) for name in ("n_i", "n_j", "n_k"))
        x, y = (other.filter(both)[name].to_numpy().astype(float) for name in ("n_i", "n_j"))
        prior = find_label_prior(known).of_classes()[classes_of(n_k)]
        models = {
            "beta-binomial": beta_binomial(n, m),
            "logistic": logistic(n, m),
            "by n_k": ((n + prior[:, 0]) / (n + m + prior.sum(axis=1)), {}),
            "observed": ((n + 1e-3) / (n + m + 2e-3), {}),
        }
        row: dict[str, float] = {"works": float(n.size)}
        for name, (share, facts) in models.items():
            row[f"{name}: log score a citer"] = float((x * np.log(share) + y * np.log1p(-share)).sum() / (x + y).sum())
            row[f"{name}: squared error of the share"] = float(((share - x / (x + y)) ** 2).mean())
            row |= {f"{name}: {fact}": float(value) for fact, value in facts.items()}
        row["correlation of both"] = float(np.corrcoef(models["beta-binomial"][0], models["logistic"][0])[0, 1])
        rows.append(row)
    return {name: round(float(np.mean([row[name] for row in rows])), 4) for name in rows[0]}


def main() -> None:
    """Measure what was asked for."""
    parser = measure.parser(__doc__)
    parser.add_argument("--graph", default="hepth", help="the graph whose works the worlds take")
    parser.add_argument("--papers", type=Path, help="a folder with works.parquet and citations.parquet of one's own")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    graph = read_graphs(options.papers)[options.graph]
    scores = ssd.compute_labels(ssd.compute_cd_index(graph.works, graph.citations)).sort("work_id").collect()
    cited = scores.filter(is_cited(scores))
    prior = find_label_prior(cited)
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    counts = cited.select("n_i", "n_j", "n_k").to_numpy().astype(np.int64)
    kept[options.graph] = {"worlds": simulate(counts, prior), "models": compare(cited)}
    OUT.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(kept[options.graph], indent=1))


if __name__ == "__main__":
    main()
