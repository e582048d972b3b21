"""The ladder of the judgement: answers agree with chances, and it goes on after any stop. Its tokens are made."""

from __future__ import annotations

import importlib
import io
import json
import lzma
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from types import ModuleType

import numpy as np
import polars as pl
import pytest
import torch
from tokenizers import Tokenizer, decoders, models

from tests.conftest import REPOSITORY
from tests.sciscirl.lab.models.test_fetch_model import write_gguf

FOLDER = REPOSITORY / "benchmarks" / "judgement"
END, HEAD, TAIL = 2, 3, 7
LABEL_TOKENS = {"disruptive": 4, "consolidating": 5, "neutral": 6}
N_PAPERS = 60


@pytest.fixture
def ladder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("ladder")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A Llama with random weights, and a pack whose papers say their label by one of their 6 to 9 tokens, mostly."""
    words = {'{"disruption_label": "': HEAD, '", "confidence": 1.0}': TAIL, "<end>": END, **LABEL_TOKENS}
    words |= {f"word{token}": token for token in range(260) if token not in words.values()}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="word0"))
    tokenizer.decoder = decoders.Fuse()
    random = np.random.default_rng(0)
    labels = np.arange(N_PAPERS) % 3
    hints = np.where(random.random(N_PAPERS) < 0.8, labels, random.integers(0, 3, N_PAPERS))
    prompts = [[*random.integers(20, 260, random.integers(5, 9)), 10 + hint] for hint in hints]
    sides = np.array(["train", "train", "train", "dev", "test"])[np.arange(N_PAPERS) % 5]
    arrays = {
        "label": labels, "soft": np.full((N_PAPERS, 3), 1 / 3, np.float32), "field": np.zeros(N_PAPERS, int),
        "tokenizer": tokenizer.to_str(), "settings": json.dumps({"fields": ["one"], "end": END}),
        "soft_answer_tokens": np.array([HEAD, END]), "soft_answer_ends": np.array([0, 2]),
    }  # fmt: skip
    arrays |= {f"answer_{label}": np.array([HEAD, token, TAIL, END]) for label, token in LABEL_TOKENS.items()}
    for slice_, n_labels in {"two": 2, "three": 3}.items():
        arrays |= {f"{slice_}_{side}": np.flatnonzero((labels < n_labels) & (sides == side)) for side in {*sides}}
    for view in ("text", "long", "references", "numbers", "both"):
        arrays[f"{view}_tokens"] = np.concatenate(prompts).astype(np.uint16)
        arrays[f"{view}_ends"] = np.cumsum([0, *map(len, prompts)])
    held = io.BytesIO()
    np.savez(held, **arrays)
    (tmp_path / "pack.npz.xz").write_bytes(lzma.compress(held.getvalue()))
    write_gguf(tmp_path / "tiny.gguf")
    return tmp_path / "tiny.gguf", tmp_path / "pack.npz.xz"


def test_a_label_that_is_said_has_the_highest_chance(ladder: ModuleType, files: tuple[Path, Path], tmp_path: Path):
    worker = ladder.Worker(0, *files, tmp_path, "cpu")
    job = {"name": "sft", "way": "sft", "slice": "three", "seed": 0, "view": "text", "contract": "two_keys"}
    ended = worker.do(job | {"target": "label", "lr": 0.01, "n_epochs": 20, "batch": 6, "keep": True})
    assert ended["ended_with"]["file"] == "sft.pt"
    assert [one["side"] for one in ended["judged"]] == ["dev", "test"]
    for kind in (torch.float32, torch.bfloat16):
        worker.policy.to(kind)
        judged = worker.judge(job, "train")
        said, chances = np.array(judged["said"]), np.array(judged["chances"])
        assert judged["invalid"] == 0
        assert {*said} == {0, 1, 2}
        assert judged["right"] > 0.6
        assert np.array_equal(said, chances.argmax(1))
        assert np.allclose(chances.sum(1), 1, atol=1e-5)
    # In bfloat16 throughout, logits of different papers and labels fall on the same few numbers.
    hidden = torch.randn(400, 32, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    weight = worker.policy.embedding.weight
    assert (
        len(torch.nn.functional.linear(hidden, weight).unique()) < 10_000 < len(worker.policy.logits(hidden).unique())
    )


def test_an_answer_that_names_no_label_gets_the_chances_it_would_have_had(
    ladder: ModuleType, files: tuple[Path, Path], tmp_path: Path
):
    worker = ladder.Worker(0, *files, tmp_path, "cpu")
    worker.policy.load_state_dict(worker.start)
    job = {"slice": "two", "view": "text", "contract": "two_keys"}
    judged = worker.judge(job, "test")
    assert judged["said"] == [-1] * 8
    prompts = [worker.pack.prompt("text", row) for row in worker.pack.rows("two", "test")]
    for at, prompt in enumerate(prompts):
        chances = worker.label_chances([prompt])[0]  # alone, so without padding
        assert np.allclose(judged["chances"][at], chances, atol=2e-6)


def end(job: dict, right: float, mark: str = "first") -> dict:
    """Return what a job leaves: the policy that it keeps, and the one that it began with, go by a mark."""
    names = {"ended_with": job["name"] if job.get("keep") else None, "began_with": job.get("after")}
    files = {key: {"file": f"{name}.pt", "sha256": mark} for key, name in names.items() if name}
    return {"job": job, **files, "judged": [{"side": "dev", "right": right}, {"side": "test", "right": 1 - right}]}


def test_reinforcement_waits_for_the_best_view_on_dev_and_for_its_start(
    ladder: ModuleType, files: tuple[Path, Path], tmp_path: Path
):
    jobs = ladder.list_jobs(ladder.Pack(files[1]), 1e-4)
    assert len({job["name"] for job in jobs}) == len(jobs)
    views = (*ladder.SHOWN, "best")
    wanted = [job for job in jobs if job["view"] in views and job["name"].startswith(("sft_three", "exp"))]
    first = ladder.Queue(wanted, {}, tmp_path)
    right = {"both": 0.4, "references": 0.6, "numbers": 0.5}
    while (job := first.take()) and job["way"] == "sft":
        first.end(end(job, right[job["view"]]))
        (tmp_path / f"{job['name']}.pt").touch()
    assert (job["name"], job["view"], job["after"]) == ("exp4_best_three_0", "references", "sft_three_references_0")
    first.end(end(job, 0.7))
    # On another machine a policy is gone, so it is made again, and what began with the former one is done again.
    # Dev would choose another view now; what has begun stays.
    (tmp_path / "sft_three_references_0.pt").unlink()
    second = ladder.Queue(wanted, first.ended, tmp_path)
    taken = [second.take() for _ in range(5)]
    assert [job["name"] for job in taken] == [
        "sft_three_references_0", *(f"{name}_best_three_{seed}" for seed in (1, 2) for name in ("exp4", "exp6")),
    ]  # fmt: skip
    assert second.take() is None
    (tmp_path / "sft_three_references_0.pt").touch()
    second.end(end(taken[1], 0.7))
    second.end(end(taken[0], 0.1, "second"))
    assert [second.take()["name"] for _ in range(2)] == ["exp4_best_three_0", "exp6_best_three_0"]


def test_a_job_that_failed_holds_up_what_begins_with_it_and_nothing_else(ladder: ModuleType, tmp_path: Path):
    jobs = [{"name": "start", "view": "text"}, {"name": "next", "view": "text", "after": "start"}]
    jobs.append({"name": "other", "view": "text"})
    queue = ladder.Queue(jobs, {}, tmp_path)
    queue.end({"job": queue.take(), "error": "no memory"})
    assert queue.take() == jobs[2]
    assert queue.take() is None
    assert [job["name"] for job in queue.list_left()] == ["next"]


def test_a_killed_ladder_goes_on_where_it_was(files: tuple[Path, Path], tmp_path: Path):
    out = tmp_path / "out"
    words = ["work", *map(str, (*files, out)), "--device", "cpu", "--workers", "1", "--only", "sft_two_both"]
    command = [sys.executable, str(FOLDER / "ladder.py"), *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        while not any(out.glob("*.json")) and running.poll() is None:
            time.sleep(0.05)
        running.kill()
    [kept, *_] = sorted(out.glob("*.json"))
    before = kept.read_bytes()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert kept.read_bytes() == before
    assert f"{kept.stem}," not in done.stdout
    assert done.stdout.endswith("0 jobs are left\n")
    lines = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}
    assert {*lines} == {"sft_two_both_0", "sft_two_both_1", "sft_two_both_2"}
    assert all([one["side"] for one in line["judged"]] == ["dev", "test"] for line in lines.values())
    files[1].write_bytes(b"another pack")
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "was made from another model or pack" in refused.stderr
    assert "Traceback" not in refused.stderr


def write_papers(folder: Path) -> None:
    """Made papers: some that cite others cite their references, too, so that all three labels come up."""
    random = Random(0)
    cited: dict[int, set[int]] = {}
    for paper in range(600):
        cited[paper] = {random.randrange(max(0, paper - 120), paper - 5) for _ in range(2)} if paper > 20 else set()
        for one in sorted(cited[paper]):
            cited[paper] |= {*sorted(cited[one])[: 2 * (one % 2)]}
    papers = [
        {
            "work_id": paper + 1, "publication_year": 1995 + paper // 30, "title": f"Paper {paper}",
            "abstract": "Some words. " * 4, "primary_field": "one", "source_name": "Journal", "last_full_year": 2022,
        }
        for paper in cited
    ]  # fmt: skip
    pl.DataFrame(papers).write_parquet(folder / "works.parquet")
    edges = [{"citing_id": paper + 1, "cited_id": one + 1} for paper, own in cited.items() for one in sorted(own)]
    pl.DataFrame(edges).write_parquet(folder / "citations.parquet")


def test_a_pack_shows_in_each_view_what_it_names(ladder: ModuleType, tmp_path: Path):
    write_papers(tmp_path)
    write_gguf(tmp_path / "tiny.gguf")
    importlib.import_module("slices").main(tmp_path, tmp_path / "slices")
    pack_py = importlib.import_module("pack")
    pack_py.main(tmp_path, tmp_path / "slices", str(tmp_path / "tiny.gguf"), tmp_path / "pack.npz.xz")
    pack = ladder.Pack(tmp_path / "pack.npz.xz")
    assert all(len(pack.rows(name, side)) for name in ("two", "three", "second") for side in ("train", "dev", "test"))
    row = int(pack.rows("two", "test")[-1])
    records = {}
    for view in pack_py.VIEWS:
        if len(prompt := pack.prompt(view, row)):
            said = pack.tokenizer.decode([*prompt], skip_special_tokens=False)
            records[view] = json.loads(re.search(r'^{"title".*}', said, re.MULTILINE)[0])
    known = {"title", "abstract", "publication_year", "cited_by_count", "primary_field"}
    shown = {view: {*record} - known for view, record in records.items()}
    assert shown == {
        "text": set(), "all": set(), "title": set(), "abstract": set(), "long": set(), "references": {"references"},
        "numbers": {"at_publication"}, "both": {"references", "at_publication"},
    } | {view: set() for view in {*records} & {"text_probabilities"}}  # fmt: skip
    hidden = {view: {name for name in known if record[name] is None} for view, record in records.items()}
    assert hidden["text"] == {"publication_year", "cited_by_count", "primary_field"}
    assert all(hidden[view] == {"cited_by_count"} for view in ("long", *ladder.SHOWN))
    assert re.fullmatch(r"Paper \d+ \(\d+\), Journal", records["references"]["references"][0])
    assert re.match(r"\d+ references, ", records["numbers"]["at_publication"])
