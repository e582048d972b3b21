"""What a server, a disk or a kill does to a run or an evaluation: one line, and nothing that was paid for is lost."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import re
from pathlib import Path

import httpx
import polars as pl
import pytest
import tinker

from sciscidata.errors import ChangedFileError, StorageError
from sciscidata.storage.sums import SUMS
from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import SciSciRLError
from sciscirl.lab.analysis.baselines import evaluate_baselines
from sciscirl.lab.analysis.select_checkpoint import select_checkpoint
from sciscirl.lab.evaluation import evaluate
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.evaluation.results import save_evaluation
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.models.local_model import load_base_model
from sciscirl.lab.training.rl import guarded_run, make_config, train_preset
from sciscirl.metrics.predictions import check_predictions, read_predictions, write_predictions
from sciscirl.options import TrainOptions, resolve_run
from sciscirl.presets import PRESETS, describe
from sciscirl.runs.checkpoints import find_checkpoint, read_checkpoints
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.record import begin_run
from sciscirl.task.experiment import Preset
from sciscirl.task.predictions import make_prediction
from sciscirl.task.release import read_split
from sciscirl.task.rewards import score_answer
from sciscirl.task.rules import TaskRules
from tests.sciscirl.tinker_stub import KEY, serve_models
from tests.sciscirl.toy import RENDERER, say

URL = "http://127.0.0.1:9"


def refusal(detail: str) -> tinker.APIError:
    response = httpx.Response(400, request=httpx.Request("POST", URL))
    return tinker.BadRequestError(f"Error code: 400 - {detail}", response=response, body=None)


def meet(error: BaseException, folder: Path) -> None:
    """Let this happen while a run trains."""

    async def run() -> None:
        async with guarded_run(resolve_run(TrainOptions(log_path=str(folder), base_url=URL))):
            raise error

    asyncio.run(run())


def test_what_a_server_says_of_a_request_in_work_is_one_line_and_the_run_can_go_on(tmp_path):
    error = ValueError("Error retrieving result: ... for self.request_id='7' — exceeded 3 retries")
    error.__cause__ = refusal("the server was restarted")
    with pytest.raises(SciSciRLError) as caught:
        meet(error, tmp_path)
    assert str(caught.value) == (
        "http://127.0.0.1:9 answered 400: Error code: 400 - the server was restarted. "
        "The run goes on from its last checkpoint: behavior_if_log_dir_exists=resume."
    )


def test_a_mistake_of_ours_is_not_taken_for_the_servers(tmp_path):
    with pytest.raises(ValueError, match="a bug") as caught:
        meet(ValueError("a bug"), tmp_path)
    assert not isinstance(caught.value, SciSciRLError)


def test_a_disk_that_is_full_while_the_cookbook_writes_is_one_line_and_the_run_can_go_on(tmp_path):
    with pytest.raises(
        StorageError, match=r"No space left on device.*goes on from its last checkpoint: behavior_if_log"
    ):
        meet(OSError(errno.ENOSPC, "No space left on device"), tmp_path / "run")


def test_a_run_in_a_folder_below_this_one_knows_its_disk_by_the_whole_path_too(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    monkeypatch.chdir(tmp_path)
    for home in (tmp_path / "runs", tmp_path / "disk"):  # the cookbook resolves what it is given
        error = OSError(errno.ENOSPC, "No space left on device", str(home / "exp4" / "iteration_000001"))
        with pytest.raises(StorageError, match=r"^cannot write runs.exp4: No space left on device"):
            meet(error, Path("runs/exp4"))
    elsewhere = OSError(errno.ENOSPC, "No space left on device", str(tmp_path.parent / "other" / "file"))
    with pytest.raises(OSError, match="other") as caught:
        meet(elsewhere, Path("runs/exp4"))
    assert caught.value is elsewhere


def test_a_checkpoint_that_pytorch_could_not_write_is_one_line_and_other_errors_are_their_own(tmp_path):
    with pytest.raises(StorageError, match=r"PyTorch failed at.*Is the disk full.*behavior_if_log_dir_exists=resume"):
        meet(RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 127040 vs 126932"), tmp_path)
    with pytest.raises(RuntimeError, match="a bug"):
        meet(RuntimeError("a bug"), tmp_path)


def test_a_server_that_is_back_is_said(tmp_path, caplog, monkeypatch):
    answers = iter([False, True, False, False, False, True])

    async def get(_self: httpx.AsyncClient, url: str) -> None:
        assert url == f"{URL}/api/v1/healthz"
        if not next(answers, True):
            raise httpx.ReadTimeout(url)

    monkeypatch.setattr(httpx.AsyncClient, "get", get)

    async def run() -> None:
        async with guarded_run(resolve_run(TrainOptions(log_path=str(tmp_path), base_url=URL)), period_seconds=0.001):
            async with asyncio.timeout(60):
                while len(caplog.messages) < 2:
                    await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING, logger="sciscirl.lab.training.rl"):
        asyncio.run(run())
    first, second = caplog.messages  # one look that finds nobody is no outage
    assert first.startswith(f"no Tinker server answers at {URL} (ReadTimeout)")
    assert second == f"the Tinker server at {URL} answers again."


@pytest.fixture
def run(tmp_path, toy_slice) -> Path:
    """A run that was evaluated at step 4, of which a full disk has cut short the last lines."""
    folder = tmp_path / "run"
    folder.mkdir()
    begin_run(folder, toy_slice, describe(PRESETS["exp4"]) | {"renderer": RENDERER}, behavior="raise")
    paths = {"state_path": "tinker://x/weights/000004", "sampler_path": "tinker://x/sampler_weights/000004"}
    lines = [json.dumps({"name": "000004", "batch": 4, **paths}), '{"name": "000006", "batch": 6, "state_pa']
    (folder / "checkpoints.jsonl").write_text("\n".join(lines), "utf-8")
    return folder


def test_half_a_line_of_a_checkpoint_is_left_out_by_all_who_read_it(run, toy_slice, tmp_path):
    assert [record.name for record in read_checkpoints(run)] == ["000004"]
    assert find_checkpoint(run).state_path == "tinker://x/weights/000004"
    assert find_checkpoint(run, "no_such_path") is None
    subject = find_subject(EvaluationConfig(release=toy_slice, out=tmp_path / "out", run=run))
    assert subject.checkpoint == "tinker://x/sampler_weights/000004"
    rules = TaskRules(contract="two_keys", reward="strong")
    rows = []
    for paper in read_split(toy_slice, "test"):
        answer = rules.parse(say("neutral"))
        gold = paper.gold.disruption_label
        reward = score_answer(answer, gold, rules.table)
        rows.append(make_prediction(paper.openalex_id, gold, answer, reward, say("neutral")))
    write_predictions(check_predictions(rows), run / "predictions" / "test_000004.parquet")
    assert select_checkpoint(run).chosen.checkpoint == "tinker://x/sampler_weights/000004"


def test_a_run_that_goes_on_mends_what_the_cookbook_could_not_read(run, toy_slice):
    settings = json.loads((run / "run.json").read_text("utf-8"))["settings"]
    (run / "metrics.jsonl").write_bytes(b'{"step": 3}\n\xff\n5\n{"step": 4}\n')
    assert begin_run(run, toy_slice, settings, behavior="resume") == 4
    (line,) = (run / "checkpoints.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["name"] == "000004"
    assert (run / "metrics.jsonl").read_text("utf-8") == '{"step": 3}\n'


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"settings": 3, "release": {}}'])
def test_a_run_that_does_not_say_what_it_was_is_not_gone_on_with(run, toy_slice, content):
    (run / "run.json").write_bytes(content)
    with pytest.raises(ChangedFileError, match=r"run\.json differs from what was written"):
        begin_run(run, toy_slice, {}, behavior="resume")
    (run / SUMS).unlink()  # as in a run of an older version
    with pytest.raises(SciSciRLError, match=r"run\.json is damaged.*choose another folder.*checkpoints\.jsonl"):
        begin_run(run, toy_slice, {}, behavior="resume")
    assert (run / "run.json").read_bytes() == content


@pytest.fixture
def asked(monkeypatch):
    """How often a model was asked: evaluations get as far as that, and no further."""
    n_asked = []

    async def ask(*_: object) -> None:
        n_asked.append(1)
        raise SciSciRLError("asked")

    monkeypatch.setattr(evaluate, "_ask_server", ask)
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    return n_asked


def test_no_answer_is_paid_for_that_has_no_place_to_go(toy_slice, toy_model, tmp_path, asked):
    def judge(out: Path) -> None:
        known = {"release": toy_slice, "model": toy_model, "renderer": RENDERER}
        asyncio.run(evaluate_model(EvaluationConfig(**known, out=out, base_url=url)))

    with serve_models([{"model_name": toy_model}]) as url:
        (tmp_path / "file").touch()
        with pytest.raises(SciSciRLError, match=r"cannot be written: Not a directory.*folder: EvaluationConfig\.out"):
            judge(tmp_path / "file" / "out")
        with pytest.raises(SciSciRLError, match=r"cannot be written: File name too long\. Choose another folder"):
            judge(tmp_path / ("x" * 300))
        with locked_folder(tmp_path / "held"), pytest.raises(SciSciRLError, match="in use by another evaluation"):
            judge(tmp_path / "held")
        assert not asked
        with pytest.raises(SciSciRLError, match="asked"):
            judge(tmp_path / "out")
        assert asked


def test_answers_that_a_full_disk_does_not_take_are_kept_elsewhere(toy_slice, tmp_path, monkeypatch):
    def write(predictions: pl.DataFrame, path: Path) -> None:
        if path.is_relative_to(tmp_path / "out"):
            raise StorageError(f"cannot write {path}: No space left on device.")
        write_predictions(predictions, path)

    monkeypatch.setattr("sciscirl.lab.evaluation.results.write_predictions", write)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = {"gold": "neutral", "label": "neutral", "confidence": 0.9, "is_json": True, "is_valid": True}
    answers = pl.DataFrame([{"openalex_id": "W1", **said}])
    with pytest.raises(StorageError, match="No space left on device") as caught:
        save_evaluation(answers, EvaluationConfig(release=toy_slice, out=tmp_path / "out"), {})
    (kept,) = re.findall(r"The answers are kept in (\S+): sciscirl evaluate --from-predictions", str(caught.value))
    assert read_predictions(Path(kept)).equals(answers)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no-such-folder"))
    with pytest.raises(StorageError, match=r"out.predictions\.parquet: No space left on device\.$"):
        save_evaluation(answers, EvaluationConfig(release=toy_slice, out=tmp_path / "out"), {})


def test_nothing_is_added_to_a_slice(options, toy_slice, toy_model, asked):
    release, files = toy_slice, sorted(toy_slice.rglob("*"))
    known = {"release": release, "out": release, "model": toy_model, "renderer": RENDERER}
    with serve_models([{"model_name": toy_model}]) as url:
        with pytest.raises(SciSciRLError, match=r"is a release, which nothing is added to. Choose another log_path"):
            asyncio.run(train_preset(TrainOptions(**options | {"log_path": str(release), "base_url": url})))
        with pytest.raises(SciSciRLError, match=r"is a release.*folder: EvaluationConfig\.out"):
            asyncio.run(evaluate_model(EvaluationConfig(**known, base_url=url)))
    with pytest.raises(SciSciRLError, match=r"is a release.*folder: EvaluationConfig\.out"):
        evaluate_baselines(EvaluationConfig(release=release, out=release))
    assert not asked
    assert sorted(release.rglob("*")) == files


@pytest.mark.parametrize("path", ["runs/exp4", "tinker://", "tinker://x", "tinker://x/", "https://x/y"])
def test_what_is_no_path_of_weights_is_refused_before_a_server_is_asked(options, tmp_path, path):
    known = {"release": tmp_path, "out": tmp_path / "out", "model": "a/b"}
    with pytest.raises(SciSciRLError, match=r"^EvaluationConfig\.checkpoint is .* needs a path as checkpoints\.jsonl"):
        EvaluationConfig(**known, checkpoint=path)
    with pytest.raises(SciSciRLError, match=r"^load_checkpoint is "):
        make_config(resolve_run(TrainOptions(**options, load_checkpoint=path)))


def test_a_group_that_can_teach_nothing_and_a_model_without_a_name_are_refused(options):
    with pytest.raises(SciSciRLError, match="group_size is 1, needs at least 2: rewards are centred"):
        make_config(resolve_run(TrainOptions(**options, group_size=1)))
    with pytest.raises(SciSciRLError, match=r"^Preset\.model is '', needs text that is not empty"):
        Preset(name="x", change="", rules=TaskRules(), model="")


def test_a_gpu_that_is_not_there_is_one_line(toy_model, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SciSciRLError, match="PyTorch sees no CUDA device here, so not cuda:1: choose another"):
        load_base_model(toy_model, device="cuda:1")


def test_baselines_that_cannot_be_judged_are_said_before_a_model_is_asked(toy_slice, toy_model, tmp_path, asked):
    with serve_models([{"model_name": toy_model}]) as url:
        words = ["--release", toy_slice, "--model", toy_model, "--renderer", RENDERER, "--base-url", url]
        words += ["--baselines", "--split", "train", "--out", tmp_path / "out"]
        with pytest.raises(SciSciRLError, match="the baselines learn from train"):
            PROGRAM.act(["evaluate", *map(str, words)])
    assert not asked
    assert not (tmp_path / "out").exists()
