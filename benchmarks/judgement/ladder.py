"""Train and judge SmolLM2 on the packed slices, several jobs side by side: ``ladder.py work MODEL.gguf PACK OUT``.

Needs PyTorch, tokenizers and scikit-learn, and nothing of this repository beside this folder. So it runs on a bare GPU
machine. ``pack.py`` writes PACK, ``show.py`` reads OUT. ``OUT/NAME.json`` is a job that has ended, ``OUT/NAME.pt`` a
policy that another job starts from. The same command goes on after any stop, on another machine, too: a job whose
result is there is not done again, unless its policy is missing and a job that is left starts from it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import math
import queue
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from policy import Policy, Rows, read_model, sample
from tokenizers import Tokenizer

LABELS = ("disruptive", "consolidating", "neutral")
SFT = {"n_epochs": 2, "batch": 32, "lr": 5e-5}
RL = {"n_steps": 48, "batch": 32, "group": 8, "lr": 1e-5}
#: What a prompt may show beside title and abstract. Reinforcement starts from the one that dev finds best.
SHOWN = ("both", "references", "numbers")


class Pack:
    """The papers as token ids, their labels and sides; no text."""

    def __init__(self, path: Path) -> None:
        with lzma.open(path) as file:
            held = np.load(file, allow_pickle=False)
            self.arrays = {name: held[name] for name in held.files}
        self.settings = json.loads(str(self.arrays["settings"]))
        self.end: int = self.settings["end"]
        self.tokenizer = Tokenizer.from_str(str(self.arrays["tokenizer"]))
        self.labels, self.soft, self.field = (self.arrays[name] for name in ("label", "soft", "field"))
        self.answers = [list(map(int, self.arrays[f"answer_{label}"])) for label in LABELS]
        first = next(at for at, tokens in enumerate(zip(*self.answers, strict=False)) if len(set(tokens)) > 1)
        self.label_at = first
        self.label_tokens = [answer[first] for answer in self.answers]
        longest = max(map(len, self.answers)), int(np.diff(self.arrays["soft_answer_ends"]).max())
        #: An answer that is longer is cut off.
        self.most = {"two_keys": 2 * longest[0], "probabilities": 3 * longest[1] // 2}

    def prompt(self, view: str, row: int) -> np.ndarray:
        begin, end = self.arrays[f"{view}_ends"][[row, row + 1]]
        return self.arrays[f"{view}_tokens"][begin:end]

    def soft_answer(self, row: int) -> list[int]:
        begin, end = self.arrays["soft_answer_ends"][[row, row + 1]]
        return self.arrays["soft_answer_tokens"][begin:end].tolist()

    def rows(self, name: str, side: str) -> np.ndarray:
        """``two``; ``two-archaeology`` tests on a field that neither train nor dev has."""
        name, _, field = name.partition("-")
        rows = self.arrays[f"{name}_{side}"]
        if not field:
            return rows
        is_field = self.field[rows] == self.settings["fields"].index(field)
        return rows[is_field if side == "test" else ~is_field]


def read_two_keys(text: str) -> tuple[str, int | None]:
    value, problem = read_object(text)
    if problem:
        return problem, None
    is_valid = (
        set(value) == {"disruption_label", "confidence"}
        and value["disruption_label"] in LABELS
        and is_share(value["confidence"])
    )
    return ("", LABELS.index(value["disruption_label"])) if is_valid else ("broken", None)


def read_probabilities(text: str) -> tuple[str, list[float] | None]:
    value, problem = read_object(text)
    if problem:
        return problem, None
    if set(value) != set(LABELS) or not all(map(is_share, value.values())):
        return "broken", None
    said = [value[label] for label in LABELS]
    if abs(round(math.fsum(said) - 1, 9)) > 1e-3 or said.count(max(said)) > 1:
        return "broken", None
    return "", [p / math.fsum(said) for p in said]


def read_object(text: str) -> tuple[Any, str]:
    repeated = False

    def pairs(items):
        nonlocal repeated
        repeated |= len(dict(items)) < len(items)
        return dict(items)

    def refuse(name):
        raise ValueError(name)

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_int=float, parse_constant=refuse)
    except ValueError:
        return None, "not_json"
    return (value, "") if isinstance(value, dict) and not repeated else (None, "broken")


def is_share(value: object) -> bool:
    return isinstance(value, float) and 0 <= value <= 1


class Reward:
    """What an answer earns. The names of sciscirl's rewards give what sciscirl pays; the others are tried here.

    - ``least_recall``: a right answer earns 3 times the dual variable of its class. The variables add up to 1, and grow
      where the running recall is low (multiplicative weights, rate 0.2 a step).
    - ``label_centred``: what ``balanced`` pays, less the mean of what answers with the same label earned lately. So no
      label is worth more than another, and only the choice between papers pays.
    - ``soft``: under probabilities, the quadratic score against the chance of each label instead of the label drawn.
    """

    def __init__(self, name: str, contract: str, shares: list[float]) -> None:
        self.name, self.contract, self.shares = name, contract, shares
        n_labels = sum(share > 0 for share in shares)
        self.weights = [1 / (n_labels * share) if share else 1.0 for share in shares]
        self.dual = [1 / len(LABELS)] * len(LABELS)
        self.recent: deque[Counter] = deque()
        self.earned: deque[np.ndarray] = deque(maxlen=4)  # right answers and all answers, by label, of each batch

    def pay(self, text: str, gold: int, soft: np.ndarray) -> tuple[float, int | None]:
        """Return the reward and the label said."""
        problem, said = read_two_keys(text) if self.contract == "two_keys" else read_probabilities(text)
        think = -1.0 if "<think>" in text else 0.0
        if problem:
            return (-1.0 if problem == "not_json" else -0.75) + think, None
        weight = self.weights[gold]
        label = said if self.contract == "two_keys" else int(np.argmax(said))
        if self.contract == "probabilities":
            aim = soft if self.name == "soft" else np.eye(len(LABELS))[gold]
            score = 1 - sum((p - q) ** 2 for p, q in zip(said, aim, strict=True)) / 2
            task = score if self.name == "soft" else weight * score
            return round(0.05 + task + think, 9), label
        right = label == gold
        task = {
            "strong": 1.0 if right else -0.6,
            "disruptive_x3": (3.0 if gold == 0 else 1.0) if right else -0.6,
            "balanced": weight * right,
            "balanced_shares": weight * right - 0.5 * self.excess(label),
            "least_recall": 3 * self.dual[gold] * right,
            "label_centred": weight * right - self.usual(label),
        }[self.name]
        return round(0.05 + task + think, 9), label

    def excess(self, label: int) -> float:
        n_said = sum(one.total() for one in self.recent)
        return sum(one[label] for one in self.recent) / n_said - self.shares[label] if n_said else 0.0

    def usual(self, label: int) -> float:
        right, n_said = sum(one[:, label] for one in self.earned) if self.earned else (0, 0)
        return float(right / n_said) if n_said else 0.0

    def end_batch(self, said: list[int | None], golds: list[int]) -> None:
        self.recent.append(Counter(label for label in said if label is not None))
        while len(self.recent) > 1 and sum(one.total() for one in self.recent) - self.recent[0].total() >= 256:
            self.recent.popleft()
        earned = np.zeros((2, len(LABELS)))
        for label, gold in zip(said, golds, strict=True):
            if label is not None:
                earned[:, label] += self.weights[gold] * (label == gold), 1
        self.earned.append(earned)
        if self.name == "least_recall":
            for gold in {*golds}:
                recall = np.mean([s == g for s, g in zip(said, golds, strict=True) if g == gold])
                self.dual[gold] *= math.exp(-0.2 * float(recall))
            self.dual = [one / math.fsum(self.dual) for one in self.dual]


class Worker:
    def __init__(self, number: int, model: Path, pack: Path, out: Path, device: str) -> None:
        torch.set_num_threads(1)
        torch.backends.cuda.matmul.allow_tf32 = True
        self.device, self.out, self.pack, self.number = device, out, Pack(pack), number
        self.kind = torch.bfloat16 if device == "cuda" else torch.float32
        shape, self.start = read_model(model)
        self.policy = Policy(shape).to(device)
        self.fast = Policy(shape).to(device, self.kind)  # answers in training: the same weights, rounded once a step

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        begun = time.monotonic()
        torch.manual_seed(job["seed"])
        self.rng = np.random.default_rng(job["seed"])
        files = {}
        if after := job.get("after"):
            files["began_with"] = name_file(self.out / f"{after}.pt")
        self.policy.load_state_dict(torch.load(self.out / f"{after}.pt") if after else self.start)
        result = getattr(self, job["way"])(job)
        if job.get("keep"):
            part = self.out / f"part_{self.number}.pt"
            torch.save({n: p.to(torch.bfloat16) for n, p in self.policy.state_dict().items()}, part)
            files["ended_with"] = name_file(part.replace(self.out / f"{job['name']}.pt"))
        return {"job": job, **files, **result, "seconds": round(time.monotonic() - begun, 1)}

    def sync(self) -> None:
        with torch.no_grad():
            for fast, own in zip(self.fast.parameters(), self.policy.parameters(), strict=True):
                fast.copy_(own)
        self.fast.eval()

    # judging

    def judge(self, job: dict[str, Any], side: str, **more) -> dict[str, Any]:
        """Let the policy answer greedily, and read the chance of each label where the answer names it.

        Both come from the same logits, in float32. So a label that is said there has the highest chance. An answer that
        begins otherwise gets the chances that it would have had.
        """
        rows = self.pack.rows(job["slice"], side)
        said, chances = np.full(len(rows), -1), np.zeros((len(rows), len(LABELS)))
        is_label = job["contract"] == "two_keys"
        watch = (self.pack.label_at, self.pack.label_tokens) if is_label else ()
        for part in self.in_parts(job, rows, 192):
            prompts = [self.pack.prompt(job["view"], row) for row in rows[part]]
            most = self.pack.most[job["contract"]]
            answers, logits = sample(self.policy, prompts, 1, most, self.pack.end, self.device, watch=watch)
            if is_label:
                usual = self.pack.answers[0][: self.pack.label_at]
                other = [at for at, answer in enumerate(answers) if answer[0][: self.pack.label_at] != usual]
                if logits is not None:
                    chances[part] = logits[:, 0].softmax(-1).cpu().numpy()
                if other:
                    chances[part[other]] = self.label_chances([prompts[at] for at in other])
            for at, answer in zip(part, answers, strict=True):
                problem, read = (read_two_keys if is_label else read_probabilities)(self.read_text(answer[0]))
                if not problem:
                    said[at] = read if is_label else int(np.argmax(read))
                    if not is_label:
                        chances[at] = read
        return {
            "side": side, **more, "said": said.tolist(), "chances": np.round(chances, 6).tolist(),
            "right": float(np.mean(said == self.pack.labels[rows])), "invalid": float(np.mean(said < 0)),
        }  # fmt: skip

    def in_parts(self, job: dict[str, Any], rows: np.ndarray, size: int) -> list[np.ndarray]:
        order = np.argsort([len(self.pack.prompt(job["view"], row)) for row in rows], kind="stable")
        return [order[first : first + size] for first in range(0, len(order), size)]

    @torch.no_grad()
    def label_chances(self, prompts: list[np.ndarray]) -> np.ndarray:
        """Return the chance of each label after what comes before it in every answer."""
        before = Rows(prompts, [[self.pack.answers[0][: self.pack.label_at + 1]]] * len(prompts), self.device)
        return before.logits(self.policy)[:, 0, -1, self.pack.label_tokens].softmax(-1).cpu().numpy()

    def read_text(self, tokens: list[int]) -> str:
        ended = tokens and tokens[-1] == self.pack.end
        text = self.pack.tokenizer.decode(tokens[:-1] if ended else tokens, skip_special_tokens=False)
        return text if ended else f"{text}…"  # an answer that was cut off is not JSON

    # ways of training

    def zero(self, job: dict[str, Any]) -> dict[str, Any]:
        return {"judged": [self.judge(job, side) for side in ("dev", "test")]}

    def hidden(self, job: dict[str, Any]) -> dict[str, Any]:
        """Fit a logistic regression to frozen hidden states; dev chooses layer and strength."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler

        self.sync()
        n_layers, seen = self.fast.shape.n_layers, {}
        layers = sorted({math.ceil(n_layers * part / 6) for part in (2, 4, 5, 6)})
        for side in ("train", "dev", "test"):
            rows = self.pack.rows(job["slice"], side)
            states = {layer: np.zeros((len(rows), 2 * self.fast.shape.hidden), np.float32) for layer in layers}
            for part in self.in_parts(job, rows, 64):
                batch = Rows(
                    [self.pack.prompt(job["view"], row) for row in rows[part]], [[[0]]] * len(part), self.device
                )
                with torch.no_grad():
                    _, kept = self.fast(batch.tokens, batch.positions, batch.mask, keep=layers)
                own = batch.mask[:, 0].any(-2) & (batch.mask[:, 0].sum(-2) > 1)
                for layer, x in zip(layers, kept, strict=True):
                    mean = (x[:, :-1] * own[:, :-1, None]).sum(1) / own[:, :-1].sum(1, keepdim=True)
                    states[layer][part] = torch.cat((mean, x[:, -2]), 1).float().cpu().numpy()
            seen[side] = rows, states
        best = None
        for layer in layers:
            scale = StandardScaler().fit(seen["train"][1][layer])
            at = {side: scale.transform(states[layer]) for side, (_, states) in seen.items()}
            for strength in (1e-4, 1e-3, 1e-2):
                model = LogisticRegression(C=strength, max_iter=300).fit(
                    at["train"], self.pack.labels[seen["train"][0]]
                )
                right = float(np.mean(model.predict(at["dev"]) == self.pack.labels[seen["dev"][0]]))
                if best is None or right > best[0]:
                    best = right, layer, strength, model, at
        right, layer, strength, model, at = best
        judged = []
        for side in ("dev", "test"):
            chances = np.zeros((len(at[side]), len(LABELS)))
            chances[:, model.classes_] = model.predict_proba(at[side])
            said = chances.argmax(1)
            judged.append({
                "side": side, "said": said.tolist(), "chances": np.round(chances, 6).tolist(), "invalid": 0.0,
                "right": float(np.mean(said == self.pack.labels[seen[side][0]])),
            })  # fmt: skip
        return {"judged": judged, "layer": layer, "strength": strength, "dev": right}

    def sft(self, job: dict[str, Any]) -> dict[str, Any]:
        """Learn answers.

        ``target``: the label; the chance of each label (soft, quadratic); an answer that writes chances down, those of
        the paper (written) or 0.7 for its label (leaning); or the reward expected of the policy's labels (expected).
        ``memory`` learns the test papers with their labels shuffled, and is then asked for them by title and abstract.
        """
        chosen = SFT | job
        rows = self.pack.rows(job["slice"], "test" if job.get("memory") else "train")
        labels = self.pack.labels.copy()
        if job.get("memory"):
            self.pack.labels[rows] = self.rng.permutation(self.pack.labels[rows])
        n_steps = chosen["n_epochs"] * math.ceil(len(rows) / chosen["batch"])
        optimizer = torch.optim.AdamW(self.policy.parameters(), chosen["lr"], (0.9, 0.95), weight_decay=0.01)
        warm = max(1, n_steps // 10)
        judged, losses, step = [], [], 0
        for _ in range(chosen["n_epochs"]):
            order = self.rng.permutation(len(rows))
            for part in np.array_split(order, math.ceil(len(rows) / chosen["batch"])):
                rate = min((step + 1) / warm, (1 + math.cos(math.pi * max(0, step - warm) / (n_steps - warm))) / 2)
                for group in optimizer.param_groups:
                    group["lr"] = chosen["lr"] * rate
                loss = self.learn_answers(job, rows[part])
                self.apply(optimizer, loss)
                losses.append(float(loss.detach()))
                step += 1
        if not job.get("memory"):
            judged.append(self.judge(job, "dev", epoch=chosen["n_epochs"]))
        for view in ("text", "title", "abstract") if job.get("memory") else (job["view"],):
            judged.append(self.judge(job | {"view": view}, "test", epoch=chosen["n_epochs"], view=view))
        if job.get("memory"):
            judged[-1]["shuffled"] = self.pack.labels[rows].tolist()
            self.pack.labels[:] = labels
        return {
            "judged": judged,
            "losses": [round(float(np.mean(part)), 4) for part in np.array_split(losses, min(12, len(losses)))],
        }

    def learn_answers(self, job: dict[str, Any], rows: np.ndarray) -> torch.Tensor:
        self.policy.train()
        labels = self.pack.labels[rows]
        answers = [[self.write_answer(job["target"], row, label)] for row, label in zip(rows, labels, strict=True)]
        with torch.autocast(self.device, self.kind, enabled=self.device == "cuda"):
            batch = Rows([self.pack.prompt(job["view"], row) for row in rows], answers, self.device)
            logits = batch.logits(self.policy)[:, 0]
        cost = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none").view(len(rows), -1)
        if job["target"] in ("soft", "quadratic", "expected"):
            at = logits[:, self.pack.label_at]
            chance = torch.tensor(self.pack.soft[rows], device=self.device)
            forecast = at.softmax(-1)[:, self.pack.label_tokens]
            if job["target"] == "soft":
                cost[:, self.pack.label_at] = -(chance * at.log_softmax(-1)[:, self.pack.label_tokens]).sum(-1)
            elif job["target"] == "quadratic":
                cost[:, self.pack.label_at] = ((forecast - chance) ** 2).sum(-1)
            else:  # exp4's reward, as its mean over the labels that the policy might say
                right = torch.tensor(labels[:, None] == np.arange(len(LABELS)), device=self.device)
                return -(forecast * torch.where(right, 1.0, -0.6)).sum(-1).mean()
        return (cost * batch.is_answer[:, 0]).sum(-1).mean()

    def write_answer(self, target: str, row: int, label: int) -> list[int]:
        if target == "written":
            return self.pack.soft_answer(row)
        if target == "leaning":
            chances = {name: 0.7 if at == label else 0.15 for at, name in enumerate(LABELS)}
            return [
                *self.pack.tokenizer.encode(json.dumps(chances), add_special_tokens=False).ids,
                self.pack.end,
            ]
        return self.pack.answers[label]

    def apply(self, optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        optimizer.step()

    def rl(self, job: dict[str, Any]) -> dict[str, Any]:
        """GRPO as the cookbook has it: rewards less their group's mean, importance sampling, one update a step."""
        chosen = RL | job
        rows = self.pack.rows(job["slice"], "train")
        shares = [float(np.mean(self.pack.labels[rows] == label)) for label in range(len(LABELS))]
        reward = Reward(job["reward"], job["contract"], shares)
        optimizer = torch.optim.AdamW(self.policy.parameters(), chosen["lr"], (0.9, 0.95), weight_decay=0.0)
        generator = torch.Generator(self.device).manual_seed(job["seed"])
        order = self.interleave(rows) if job["interleave"] else self.rng.permutation(rows)
        order = np.resize(order, chosen["n_steps"] * chosen["batch"])
        paid: dict[tuple[str, int, str], float] = {}
        judged = [self.judge(job, "test", step=0)]
        logged = []
        for step in range(chosen["n_steps"]):
            part = order[step * chosen["batch"] : (step + 1) * chosen["batch"]]
            prompts = [self.pack.prompt(job["view"], row) for row in part]
            self.sync()
            most = self.pack.most[job["contract"]]
            answers, _ = sample(
                self.fast, prompts, chosen["group"], most, self.pack.end, self.device, generator=generator
            )
            rewards, said, golds = np.zeros((len(part), chosen["group"])), [], []
            dual = [*reward.dual]
            for at, row in enumerate(part):
                for number, answer in enumerate(answers[at]):
                    text, gold = self.read_text(answer), int(self.pack.labels[row])
                    rewards[at, number], label = reward.pay(text, gold, self.pack.soft[row])
                    said.append(label)
                    golds.append(gold)
                    if reward.name in ("strong", "disruptive_x3", "balanced") and len(paid) < 4000:
                        paid[text, gold, reward.name] = float(rewards[at, number])
            reward.end_batch(said, golds)
            self.learn_rewards(optimizer, prompts, answers, rewards)
            logged.append(self.log(rewards, said, golds, dual))
            if step + 1 in (chosen["n_steps"] // 2, chosen["n_steps"]):
                judged.append(self.judge(job, "test", step=step + 1))
        judged.append(self.judge(job, "dev", step=chosen["n_steps"]))
        return {
            "judged": judged,
            "logged": logged,
            "paid": [[*key, value] for key, value in paid.items()],
            "shares": shares,
        }

    def interleave(self, rows: np.ndarray) -> np.ndarray:
        each = [self.rng.permutation(rows[self.pack.labels[rows] == label]) for label in range(len(LABELS))]
        each = [one for one in each if len(one)]
        return np.stack([one[: min(map(len, each))] for one in each], 1).ravel()

    def learn_rewards(self, optimizer, prompts, answers, rewards: np.ndarray) -> None:
        gains = torch.tensor(rewards - rewards.mean(1, keepdims=True), device=self.device, dtype=torch.float32)
        batch = Rows(prompts, answers, self.device)
        with torch.no_grad():
            before = batch.logprobs(self.fast)
        self.policy.train()
        with torch.autocast(self.device, self.kind, enabled=self.device == "cuda"):
            now = batch.logprobs(self.policy)
        ratio = (now - before).exp() * batch.is_answer
        self.apply(optimizer, -(ratio * gains[:, :, None]).sum() / gains.numel())

    @staticmethod
    def log(rewards: np.ndarray, said: list[int | None], golds: list[int], dual: list[float]) -> dict[str, Any]:
        shares = [sum(one == label for one in said) / len(said) for label in range(len(LABELS))]
        named = [share for share in shares if share]
        recalls = [
            float(np.mean([s == g for s, g in zip(said, golds, strict=True) if g == label])) if label in golds else None
            for label in range(len(LABELS))
        ]
        return {
            "reward": round(float(rewards.mean()), 4), "shares": [round(share, 4) for share in shares],
            "invalid": round(sum(one is None for one in said) / len(said), 4),
            "entropy": round(-sum(share * math.log(share) for share in named), 4), "recalls": recalls,
            "uniform_groups": round(float(np.mean(rewards.min(1) == rewards.max(1))), 4), "dual": dual,
        }  # fmt: skip


def name_file(path: Path) -> dict[str, str]:
    return {"file": path.name, "sha256": hash_file(path)}


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_jobs(pack: Pack, lr: float) -> list[dict[str, Any]]:
    """Return the jobs in the order of their worth; what comes last may be left out for want of time.

    A job whose view is ``best`` waits until ``choose_view`` has chosen.
    """
    seeds = range(3)
    jobs: list[dict[str, Any]] = []

    def add(
        name: str, way: str, slice_: str, seed: int = 0, view: str = "text", contract: str = "two_keys", **more
    ) -> None:
        view = f"{view}_probabilities" if contract == "probabilities" else view
        jobs.append(
            {
                "name": f"{name}_{seed}",
                "way": way,
                "slice": slice_,
                "seed": seed,
                "view": view,
                "contract": contract,
                **more,
            }
        )

    def tune(name: str, slice_: str, target: str, seed: int, **more) -> None:
        add(name, "sft", slice_, seed, target=target, lr=lr, **more)

    two_keys = {
        "exp4": ("strong", False), "exp6": ("balanced_shares", True), "label_centred": ("label_centred", True),
        "exp5": ("disruptive_x3", False), "least_recall": ("least_recall", True),
    }  # fmt: skip
    probabilities = {"exp8": "balanced", "exp8_soft": "soft"}
    for seed in seeds:
        tune("sft_two_both", "two", "label", seed, view="both")
    for seed in seeds:
        tune("sft_two_long", "two", "label", seed, view="long")
    for view in SHOWN:
        for seed in seeds:
            tune(f"sft_three_{view}", "three", "label", seed, view=view, keep=True)
    for seed in seeds:
        for name in ("exp4", "exp6"):
            reward, interleave = two_keys[name]
            more = {"reward": reward, "interleave": interleave, "after": f"sft_three_best_{seed}"}
            add(f"{name}_best_three", "rl", "three", seed, view="best", n_steps=84, **more)
    if "second_test" in pack.arrays:
        for seed in seeds:
            tune("sft_second_both", "second", "label", seed, view="both")
    for seed in seeds:
        tune("sft_two_references", "two", "label", seed, view="references")
        tune("sft_two_numbers", "two", "label", seed, view="numbers")
        tune("sft_three_long", "three", "label", seed, view="long")
    for seed in seeds:
        tune("sft_three", "three", "label", seed, keep=True)
        for name, (reward, interleave) in two_keys.items():
            more = {"reward": reward, "interleave": interleave, "after": f"sft_three_{seed}"}
            n_steps = 84 if name in ("exp4", "exp6", "label_centred") else RL["n_steps"]
            add(f"{name}_three", "rl", "three", seed, n_steps=n_steps, **more)
        tune("leaning_three", "three", "leaning", seed, contract="probabilities", keep=True)
        for name, reward in probabilities.items():
            more = {"reward": reward, "interleave": True, "after": f"leaning_three_{seed}"}
            add(f"{name}_three", "rl", "three", seed, contract="probabilities", **more)
        more = {"n_epochs": 1, "after": f"sft_three_{seed}"}
        add("expected_three", "sft", "three", seed, target="expected", lr=RL["lr"], **more)
    for field in pack.settings["fields"]:
        tune(f"sft_without_{field}", f"two-{field}", "label", 0)
    tune("memory_sure", "two_sure", "label", 0, memory=True, n_epochs=10)
    for seed in seeds:
        tune("soft_two", "two", "soft", seed)
    for seed in seeds:
        more = {"reward": "strong", "interleave": False, "after": f"sft_three_{seed}"}
        add("exp4_long_three", "rl", "three", seed, n_steps=252, **more)
    add("just_rl_three", "rl", "three", 0, reward="strong", interleave=False, n_steps=20)
    for view in ("all", "abstract", "title"):
        tune(f"sft_two_{view}", "two", "label", 0, view=view)
    for seed in seeds:
        tune("sft_two", "two", "label", seed)
        tune("written_three", "three", "written", seed, contract="probabilities")
        tune("soft_three", "three", "soft", seed)
        tune("sft_sure", "two_sure", "label", seed, n_epochs=4)
    for slice_ in ("three", "two", "two_sure"):
        add(f"zero_{slice_}", "zero", slice_)
        add(f"hidden_{slice_}", "hidden", slice_)
    return jobs


def choose_view(ended: dict[str, dict[str, Any]]) -> str | None:
    """Return the view of ``SHOWN`` with the highest accuracy on the dev papers of ``three``, mean over seeds.

    Once a job has begun with it, it stays.
    """
    if begun := next((line["job"]["view"] for name, line in ended.items() if "_best_" in name), None):
        return begun
    right: dict[str, list[float]] = {view: [] for view in SHOWN}
    for view in SHOWN:
        for seed in range(3):
            if (line := ended.get(f"sft_three_{view}_{seed}")) is None:
                return None
            right[view] += [one["right"] for one in line["judged"] if one["side"] == "dev"]
    return max(SHOWN, key=lambda view: math.fsum(right[view]))


def read_ended(out: Path, made_from: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the jobs that have ended, by name; refuse those of another model or pack."""
    ended = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(out.glob("*.json"))}
    other = next((name for name, line in ended.items() if line["made_from"] != made_from), None)
    if other:
        raise SystemExit(f"{out / other}.json was made from another model or pack; name another folder for these")
    return ended


class Queue:
    """The jobs that are left, and which of them can begin."""

    def __init__(self, jobs: list[dict[str, Any]], ended: dict[str, dict[str, Any]], out: Path) -> None:
        self.by_name = {job["name"]: job for job in jobs}
        self.ended, self.out = ended, out
        self.running: set[str] = set()
        self.failed: set[str] = set()
        self.forget_other_starts()

    def list_left(self) -> list[dict[str, Any]]:
        gone = {*self.ended, *self.running, *self.failed}
        return [job for name, job in self.by_name.items() if name not in gone]

    def take(self) -> dict[str, Any] | None:
        """Return the first job whose start is at hand; or the job that makes a start which is not."""
        for job in self.list_left():
            if job["view"] == "best":
                if (best := choose_view(self.ended)) is None:
                    continue
                job = job | {"view": best, "after": job["after"].replace("_best_", f"_{best}_")}
            after = job.get("after")
            if after and not (after in self.ended and (self.out / f"{after}.pt").exists()):
                if after in self.failed or after not in self.by_name:
                    continue
                job = self.by_name[after]
            if job["name"] not in self.running and after not in self.running:
                self.running.add(job["name"])
                return job
        return None

    def end(self, result: dict[str, Any]) -> None:
        name = result["job"]["name"]
        self.running.discard(name)
        if "error" in result:
            self.failed.add(name)
        else:
            self.ended[name] = result
            self.forget_other_starts()

    def forget_other_starts(self) -> None:
        """Do again what began with another policy than the one that is kept, so that each seed has one start."""
        for name in self.by_name:
            if began := self.ended.get(name, {}).get("began_with"):
                start = self.ended.get(Path(began["file"]).stem, {})
                if start.get("ended_with") != began:
                    del self.ended[name]


def serve(number: int, model: Path, pack: Path, out: Path, device: str, asked, ended) -> None:
    """Do the jobs that are asked for, until the process that asks is gone."""
    worker = Worker(number, model, pack, out, device)
    made_from = {"model": hash_file(model), "pack": hash_file(pack)}
    while True:
        try:
            job = asked.get(timeout=5)
        except queue.Empty:
            if not mp.parent_process().is_alive():
                return
            continue
        try:
            result = {"made_from": made_from, **worker.do(job)}
        except Exception as error:  # a job that fails must not end the others
            result = {"job": job, "error": repr(error)[:400], "seconds": 0}
            if device == "cuda":
                torch.cuda.empty_cache()
        else:
            part = out / f"part_{number}"
            part.write_text(json.dumps(result) + "\n", "utf-8")
            part.replace(out / f"{job['name']}.json")
        ended.put((number, result))


def work(
    model: Path, pack: Path, out: Path, n_workers: int, seconds: float, rates: list[float], only: str, device: str
) -> None:
    begun = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    done = read_ended(out, {"model": hash_file(model), "pack": hash_file(pack)})
    context = mp.get_context("spawn")
    ended = context.Queue()
    asked = [context.Queue() for _ in range(n_workers)]
    crew = [
        context.Process(target=serve, args=(n, model, pack, out, device, asked[n], ended), daemon=True)
        for n in range(n_workers)
    ]
    for one in crew:
        one.start()
    free = deque(range(n_workers))

    def run(jobs: list[dict[str, Any]]) -> None:
        left = Queue(jobs, done, out)
        while time.monotonic() - begun < seconds:
            if free and (job := left.take()):
                asked[free.popleft()].put(job)
                continue
            if not left.running:
                break  # nothing is left, or what is left waits for a job that failed
            try:
                number, result = ended.get(timeout=5)
            except queue.Empty:
                if not any(one.is_alive() for one in crew):
                    raise SystemExit("every worker has died; its message stands above") from None
                continue
            free.append(number)
            left.end(result)
            shown = [f"{one['side']} {one['right']:.3f}" for one in result.get("judged", [])]
            print(
                f"{time.monotonic() - begun:5.0f} s: {result['job']['name']}, {result['seconds']} s:",
                result.get("error") or " ".join(shown[-6:]),
                flush=True,
            )
        print(f"{len(left.list_left()) + len(left.running)} jobs are left", flush=True)

    rate = rates[0] if rates else SFT["lr"]
    if len(rates) > 1:
        first = {"way": "sft", "slice": "two", "seed": 9, "view": "text", "contract": "two_keys", "target": "label"}
        run([first | {"name": f"rate_{rate:g}", "lr": rate, "n_epochs": 1} for rate in rates])
        tried = {rate: done[f"rate_{rate:g}"] for rate in rates if f"rate_{rate:g}" in done}
        rate = max(tried, key=lambda rate: next(one["right"] for one in tried[rate]["judged"] if one["side"] == "dev"))
    print("learning rate", rate, flush=True)
    run([job for job in list_jobs(Pack(pack), rate) if only in job["name"]])
    for one in crew:
        one.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=["work"])
    parser.add_argument("model", type=Path)
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=520)
    parser.add_argument("--rates", type=float, nargs="*", default=[2e-4])
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="cuda")
    chosen = parser.parse_args()
    work(
        chosen.model, chosen.pack, chosen.out, chosen.workers, chosen.seconds, chosen.rates, chosen.only, chosen.device
    )
