"""Judge a model of an OpenAI-compatible server: it gets messages, and each answer is kept when it comes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import polars as pl

from sciscidata.remote.retries import Patience, asked_wait_s, keep_trying
from sciscidata.remote.urls import check_address, show_address
from sciscidata.storage.disk_errors import errors_about
from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluation.results import OUT_OPTION, check_unused, save_evaluation
from sciscirl.lab.evaluation.subject import fit_rules, read_asked
from sciscirl.presets import describe_rules
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.logs import read_rows
from sciscirl.task.contracts import is_cut_off
from sciscirl.task.papers import Paper
from sciscirl.task.predictions import make_prediction, prediction_schema
from sciscirl.task.rules import TaskRules

if TYPE_CHECKING:
    from sciscirl.lab.evaluation.config import EvaluationConfig
    from sciscirl.lab.evaluation.subject import Subject

#: Answers by the hash of what was asked, a line each, in the folder of the evaluation.
ANSWERS_FILE: Final = "answers.jsonl"
_AT_A_TIME: Final = 16
_PATIENCE: Final = Patience(lambda error: getattr(error, "may_pass", False), lambda _: 6, 1.0, 60.0)
_TIMEOUT: Final = httpx.Timeout(600, connect=30)


class _NoAnswerError(SciSciRLError):
    """A server refused a request, or does not answer; ``may_pass`` says whether to try again, ``wait_s`` when."""

    def __init__(self, message: str, *, may_pass: bool, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.may_pass, self.wait_s = may_pass, wait_s


async def evaluate_on_chat_server(
    config: EvaluationConfig, subject: Subject, stated: Mapping[str, object]
) -> dict[str, float]:
    """Ask about each paper once, with whole abstracts, as ``evaluate_model``; go on with answers in ``config.out``."""
    preset, url, key = subject.preset, str(config.chat_url).rstrip("/"), os.environ.get("OPENAI_API_KEY")
    check_address(url, name="chat_url", key="the key", secret=key)
    if preset.adversarial is not None or preset.judging.eval_group_size > 1:
        what = "is adversarial" if preset.adversarial is not None else "asks for several answers to a paper"
        raise SciSciRLError(f"preset {preset.name!r} {what}, and chat_url=... asks once. Choose another preset.")
    papers, rules = read_asked(config, subject), fit_rules(preset.rules, config.release)
    sampling = {
        "max_tokens": preset.max_tokens,
        "temperature": preset.judging.eval_temperature,
        "top_p": preset.judging.eval_top_p,
    }
    asked = {
        paper.openalex_id: {"model": preset.model, "messages": rules.render(rules.see(paper.view)), **sampling}
        for paper in papers
    }
    with (
        locked_folder(config.out, user="evaluation", option=OUT_OPTION),
        httpx.Client(headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=_TIMEOUT) as client,
    ):
        check_unused(config.out)  # once more: another evaluation may have ended meanwhile
        answers = await _ask_all(client, f"{url}/chat/completions", asked, config.out / ANSWERS_FILE)
        rows = [_make_row(paper, rules, answers[paper.openalex_id]) for paper in papers]
        settings = {"model": preset.model, "chat_url": show_address(url, key), **sampling, "preset": preset.name}
        settings |= describe_rules(preset.rules) | {"max_paper_tokens": None}
        settings |= {"answers": "sampled", "split": config.split or subject.eval_split, "n_papers": config.n_papers}
        return save_evaluation(pl.DataFrame(rows, prediction_schema(rules.target)), config, {**settings, **stated})


async def _ask_all(
    client: httpx.Client, url: str, asked: Mapping[str, Mapping[str, Any]], file: Path
) -> dict[str, Mapping[str, Any]]:
    """Return the answers by paper: those of the file, and those that the server gives."""
    keys = {
        paper: hashlib.sha256(json.dumps([paper, body], sort_keys=True).encode()).hexdigest()
        for paper, body in asked.items()
    }
    rows = [row for row in read_rows(file) if {"key", "text", "is_whole"} <= row.keys()]  # none that was cut off
    kept = {str(row["key"]): {"text": str(row["text"]), "is_whole": bool(row["is_whole"])} for row in rows}

    def ask(paper: str) -> None:
        answer = keep_trying(lambda: _post(client, url, asked[paper]), _PATIENCE)
        line = json.dumps({"key": keys[paper], **answer})
        with errors_about(file, " The same command goes on from here."), file.open("a", encoding="utf-8") as lines:
            lines.write(f"\n{line}")  # first the end of a line that a killed evaluation has not ended
        kept[keys[paper]] = answer

    pool = ThreadPoolExecutor(_AT_A_TIME)
    try:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(pool, ask, name) for name in asked if keys[name] not in kept))
    finally:
        pool.shutdown(cancel_futures=True)
    return {paper: kept[key] for paper, key in keys.items()}


def _post(client: httpx.Client, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer = client.post(url, json=body)
    except httpx.HTTPError as error:
        raise _NoAnswerError(
            f"no answer from {show_address(url)} ({type(error).__name__}). Start the server, or mend chat_url=....",
            may_pass=not isinstance(error, httpx.ConnectError),  # no server runs at the address
        ) from None
    try:
        if answer.is_error:
            raise ValueError(answer.text[:300])
        choice = answer.json()["choices"][0]
        return {"text": choice["message"]["content"] or "", "is_whole": not is_cut_off(choice.get("finish_reason"))}
    except (ValueError, LookupError, TypeError) as error:
        said = f"HTTP {answer.status_code}: {error}"
        raise _NoAnswerError(
            f"{show_address(url)} gave no answer ({said}). Mend that; the same command asks only for what is missing.",
            may_pass=answer.status_code in {408, 429} or answer.status_code >= 500,
            wait_s=asked_wait_s(answer),
        ) from None


def _make_row(paper: Paper, rules: TaskRules, said: Mapping[str, Any]) -> dict[str, Any]:
    answer = rules.parse(said["text"], None if said["is_whole"] else "length")
    gold, reward = paper.labels(rules.target), rules.score(answer, paper)
    return make_prediction(paper.openalex_id, gold, answer, reward, said["text"])
