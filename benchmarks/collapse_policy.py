"""A policy small enough to train in seconds, that answers in the contract's own words and is paid by its own reward.

It stands for a language model in what class collapse needs: one answer is sampled at a time, only sampled answers are
paid, and what the text says of the label is weak beside what a habit of saying one label earns.
"""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from sciscirl.envs.dataset import order_papers
from sciscirl.lab.objectives.batch_term import ShareTracker, batch_term
from sciscirl.task.contracts import render_answer
from sciscirl.task.experiment import Preset
from sciscirl.task.papers import VOCABULARIES, Paper
from sciscirl.task.rewards import score_answer

LABELS = VOCABULARIES["disruption_label"]
N_FEATURES = 2048
LEARNING_RATE = 0.01  # of Adam; the first value tried
#: What the published model said before it was trained: 9.55 % disruptive. The rest is not published: halves.
START = np.array([0.0955, 0.45225, 0.45225])
#: What is done to an answer: nothing, a key renamed, a code fence, thinking. Shares as the published Baseline had
#: them: 0.918 keep the contract, 0.048 are JSON that does not, 0.034 are no JSON.
FORMS = (
    (0.918, lambda text: text),
    (0.048, lambda text: json.dumps({f"{key}s": value for key, value in json.loads(text).items()})),
    (0.017, lambda text: f"```json\n{text}\n```"),
    (0.017, lambda text: f"<think>Hm.</think>{text}"),
)
GRID = 20  # forecasts are in twentieths; without those that name two labels, which the labels' order would decide
WIDTH = 0.15  # standard deviation of the forecasts that one paper gets


class Texts:
    """Title and abstract as hashed bags of words: log counts, weighted by rarity in the training split, length 1."""

    def __init__(self, papers: Sequence[Paper]) -> None:
        counts = self._count(papers)
        self.weights = np.log((1 + len(papers)) / (1 + (counts != 0).sum(axis=0))) + 1

    def __call__(self, papers: Sequence[Paper]) -> np.ndarray:
        """Return (papers, N_FEATURES)."""
        rows = self._count(papers) * self.weights
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    @staticmethod
    def _count(papers: Sequence[Paper]) -> np.ndarray:
        rows = np.zeros((len(papers), N_FEATURES))
        for row, paper in zip(rows, papers, strict=True):
            words = re.findall(r"[a-z]+", f"{paper.view.title} {paper.view.abstract}".lower())
            for word, n in Counter(words).items():
                place = zlib.crc32(word.encode())
                row[place % N_FEATURES] += (1 if place >> 31 else -1) * np.log1p(n)
        return rows


class Answers:
    """Every answer that the policy can give under a preset, judged and paid by the preset's own rules.

    Attributes:
        texts: by form and content, as sampled.
        answers: the same, judged.
        rewards: (forms, contents, labels): what each earns on a paper of each label.
        slopes: (contents, 3): how the logit of each content grows with the policy's three outputs.
        offsets: (contents): what it is without them.
    """

    def __init__(self, preset: Preset, train: Sequence[Paper]) -> None:
        self.rules = preset.rules.fitted(train)
        if preset.rules.contract == "probabilities":
            points = [
                p for p in itertools.product(range(GRID + 1), repeat=3) if sum(p) == GRID and p.count(max(p)) == 1
            ]
            forecasts = np.array(points) / GRID
            contents = [json.dumps(dict(zip(LABELS, map(float, row), strict=True))) for row in forecasts]
            # A bell around a third of the outputs z, -|p - z/3|^2 / 2s^2 without what all forecasts of a paper share.
            # A third, because a softmax at even odds has this slope: a step moves both kinds of policy alike.
            self.slopes, self.offsets = forecasts / (3 * WIDTH**2), -(forecasts**2).sum(axis=1) / (2 * WIDTH**2)
            self.start = 3 * START
        else:
            contents = [render_answer(label, preset.rules.contract, confidence=0.5) for label in LABELS]
            self.slopes, self.offsets, self.start = np.eye(len(LABELS)), np.zeros(len(LABELS)), np.log(START)
        self.texts = [[form(content) for content in contents] for _, form in FORMS]
        self.answers = [[self.rules.parse(text) for text in row] for row in self.texts]
        self.rewards = np.array(
            [[[score_answer(answer, label, self.rules.table).total for label in LABELS] for answer in row]
             for row in self.answers]
        )  # fmt: skip


class Adam:
    """Adam with Tinker's defaults, upwards."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights, self.step = weights, 0
        self.mean, self.square = np.zeros_like(weights), np.zeros_like(weights)

    def __call__(self, gradient: np.ndarray) -> None:
        """Move the weights, in place."""
        self.step += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.05 * (gradient**2 - self.square)
        mean, square = self.mean / (1 - 0.9**self.step), self.square / (1 - 0.95**self.step)
        self.weights += LEARNING_RATE * mean / (np.sqrt(square) + 1e-8)


class Policy:
    """Content: softmax of three outputs, each linear in the text. Form: softmax of biases."""

    def __init__(self, answers: Answers) -> None:
        self.space = answers
        self.words, self.bias = np.zeros((N_FEATURES, 3)), answers.start.copy()
        self.forms = np.log([share for share, _ in FORMS])
        self.steps = [Adam(weights) for weights in (self.words, self.bias, self.forms)]

    def chances(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how likely each content is, paper by paper, and each form."""
        outputs = rows @ self.words + self.bias
        return softmax(outputs @ self.space.slopes.T + self.space.offsets), softmax(self.forms)

    def learn(self, rows: np.ndarray, contents: np.ndarray, forms: np.ndarray, rewards: np.ndarray) -> None:
        """One step on (papers, answers) of what was sampled and earned: rewards less their group's mean, no more."""
        advantages = rewards - rewards.mean(axis=1, keepdims=True)
        by_content, by_form = self.chances(rows)
        slopes = self.space.slopes
        outputs = (advantages[..., None] * (slopes[contents] - (by_content @ slopes)[:, None, :])).sum(axis=1)
        of_form = (advantages[..., None] * (np.eye(len(FORMS))[forms] - by_form)).sum(axis=(0, 1))
        for step, gradient in zip(self.steps, (rows.T @ outputs, outputs.sum(axis=0), of_form), strict=True):
            step(gradient)


class Draws:
    """Choices from the raw numbers of Philox, a stream that no version of NumPy changes."""

    def __init__(self, seed: int) -> None:
        self.stream = np.random.Philox(key=seed)

    def choose(self, chances: np.ndarray, n: int) -> np.ndarray:
        """Draw ``n`` indices for each row of chances: (rows, n)."""
        uniform = (self.stream.random_raw(len(chances) * n) >> np.uint64(11)).reshape(len(chances), n) / 2.0**53
        above = uniform[:, :, None] >= np.cumsum(chances, axis=1)[:, None, :]
        return np.minimum(above.sum(axis=2), chances.shape[1] - 1)


class Trainer:
    """Trains a policy as a preset says: its rules, order of papers, batch and group size, batch term."""

    def __init__(self, preset: Preset, papers: Sequence[Paper], rows: np.ndarray, seed: int) -> None:
        self.preset, self.papers, self.rows, self.seed = preset, papers, rows, seed
        self.space = Answers(preset, papers)
        self.policy, self.draws = Policy(self.space), Draws(seed)
        self.gold = np.array([LABELS.index(str(paper.gold.disruption_label)) for paper in papers])
        self.order = endless_order(papers, seed, interleave=preset.order.interleave)
        self.tracker = ShareTracker(self.space.rules.class_counts) if self.space.rules.table.share_penalty else None
        self.n_steps = 0

    def step(self) -> None:
        """Sample a group of answers to each paper of a batch, pay them, learn."""
        batch = list(itertools.islice(self.order, self.preset.order.batch_size))
        by_content, by_form = self.policy.chances(self.rows[batch])
        contents = self.draws.choose(by_content, self.preset.sampling.group_size)
        forms = self.draws.choose(np.tile(by_form, (len(batch), 1)), self.preset.sampling.group_size)
        rewards = self.space.rewards[forms, contents, self.gold[batch][:, None]]
        if self.tracker is not None:
            rewards = rewards + self._batch_terms(self.tracker, forms, contents)
        self.policy.learn(self.rows[batch], contents, forms, rewards)
        self.n_steps += 1

    def _batch_terms(self, tracker: ShareTracker, forms: np.ndarray, contents: np.ndarray) -> np.ndarray:
        excess = tracker.find_excess(self.n_steps)
        terms = np.zeros(forms.shape)
        for place in np.ndindex(forms.shape):
            answer = self.space.answers[forms[place]][contents[place]]
            tracker.record(self.n_steps, answer)
            terms[place] = batch_term(answer, excess, self.space.rules.table)
        return terms


def train_supervised(papers: Sequence[Paper], rows: np.ndarray, seed: int, n_steps: int, batch_size: int) -> np.ndarray:
    """Fit the same three linear outputs to the labels: cross-entropy, each class with the same total weight.

    Optimiser, steps, batches and features are those of the policies.

    Returns:
        (N_FEATURES + 1, 3): words, and the bias last.
    """
    gold = np.array([LABELS.index(str(paper.gold.disruption_label)) for paper in papers])
    weights = len(papers) / (len(LABELS) * np.bincount(gold, minlength=len(LABELS)))
    words, bias = np.zeros((N_FEATURES, len(LABELS))), np.zeros(len(LABELS))
    steps, order = [Adam(words), Adam(bias)], endless_order(papers, seed, interleave=True)
    for _ in range(n_steps):
        batch = list(itertools.islice(order, batch_size))
        missing = np.eye(len(LABELS))[gold[batch]] - softmax(rows[batch] @ words + bias)
        outputs = missing * weights[gold[batch]][:, None]
        for step, gradient in zip(steps, (rows[batch].T @ outputs, outputs.sum(axis=0)), strict=True):
            step(gradient)
    return np.vstack([words, bias])


def endless_order(papers: Sequence[Paper], seed: int, *, interleave: bool) -> Iterator[int]:
    """Yield row numbers in the order in which training shows papers, epoch after epoch."""
    place = {paper.openalex_id: row for row, paper in enumerate(papers)}
    for epoch in itertools.count():
        for paper in order_papers(papers, seed, epoch, interleave=interleave):
            yield place[paper.openalex_id]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return shares along the last axis."""
    grown = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return grown / grown.sum(axis=-1, keepdims=True)
