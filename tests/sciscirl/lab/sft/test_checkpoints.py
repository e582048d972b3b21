"""Damaged checkpoints of a run on this machine: of a kill, a full disk, or a hand."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

if not all(map(find_spec, ("peft", "accelerate"))):  # to import them takes seconds, and other workers need not
    pytest.skip("no extra sft", allow_module_level=True)

from sciscidata.errors import ChangedFileError
from sciscidata.storage.sums import SUMS
from sciscirl.envs.tokenizer import load_tokenizer
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.lab.analysis.select_checkpoint import select_checkpoint
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.subject import find_subject
from sciscirl.lab.hardware_options import MergeOptions, PeftSftOptions
from sciscirl.lab.models.local_model import load_local_model, refuse_pickles
from sciscirl.lab.sft.checkpoints import find_damage, recover_checkpoint
from sciscirl.lab.sft.merge import merge_adapter
from sciscirl.lab.sft.peft_backend import Judge, train_with_peft
from sciscirl.options import resolve_run
from tests.sciscirl.toy import RENDERER

N_STEPS = 3
#: All that Transformers' loop would go on without, or end at with a traceback.
FILES = (
    "adapter_config.json", "adapter_model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt",
    "trained_on.json", "trainer_state.json",
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("one_thread")


def train(toy_slice, model, folder, **more) -> Path:
    options = {
        "preset": "exp4", "style": "plain", "release": str(toy_slice), "model": str(model), "renderer": RENDERER,
        "log_path": str(folder), "n_train": 4, "n_test": 3, "eval_split": "test",
        "n_epochs": N_STEPS, "batch_size": 4, "lora_rank": 2,
        "micro_batch_size": 4, "learning_rate": 0.01, "max_tokens": 32, "eval_temperature": 0.0, "save_every": 1,
        "eval_every": N_STEPS, "quantize": "none", "dtype": "float32",
    }  # fmt: skip
    return train_with_peft(resolve_run(PeftSftOptions(**options, **more)))


@pytest.fixture(scope="module")
def run(toy_slice, primed_model, tmp_path_factory) -> Path:
    return train(toy_slice, primed_model, tmp_path_factory.mktemp("sft") / "run")


@pytest.fixture
def copied(run, tmp_path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def checkpoint(run, step) -> Path:
    return run / "checkpoints" / f"checkpoint-{step}"


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def names(run) -> list[str]:
    return [json.loads(line)["name"] for line in (run / "checkpoints.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("damage", [Path.unlink, cut, flip])
@pytest.mark.parametrize("name", FILES)
def test_the_checkpoint_before_a_damaged_one_is_taken_and_the_damaged_one_named(copied, caplog, name, damage):
    damage(checkpoint(copied, 3) / name)
    with caplog.at_level(logging.WARNING, logger="sciscirl"):
        assert recover_checkpoint(copied).batch == 2
    (line,) = caplog.messages
    what = "is missing" if damage is Path.unlink else "is not what was written"
    assert f"checkpoint-3 is damaged: {name} {what}" in line
    assert "goes on from checkpoints/checkpoint-2" in line
    assert names(copied) == ["000001", "000002"]  # what is written over again is no checkpoint until it is whole


def test_a_run_goes_on_from_a_whole_checkpoint_to_the_very_same_weights(copied, run, toy_slice, primed_model):
    cut(checkpoint(copied, 3) / "optimizer.pt")
    shutil.rmtree(checkpoint(copied, 2))
    train(toy_slice, primed_model, copied, behavior_if_log_dir_exists="resume")
    for name in ("adapter/adapter_model.safetensors", "checkpoints/checkpoint-3/optimizer.pt", "metrics.jsonl"):
        assert (copied / name).read_bytes() == (run / name).read_bytes(), name
    assert names(copied) == names(run)
    assert recover_checkpoint(copied).batch == 3


def test_where_no_checkpoint_is_whole_one_error_names_all_and_touches_none(copied, toy_slice, primed_model):
    for step in (1, 2, 3):
        cut(checkpoint(copied, step) / "adapter_model.safetensors")
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file() and path.name != "config.json"}
    with pytest.raises(RunFolderError, match=r"no checkpoint of .* is whole.*-3 is .*-2 is .*-1 is .* delete the fold"):
        train(toy_slice, primed_model, copied, behavior_if_log_dir_exists="resume")
    assert {path: path.read_bytes() for path in before} == before


def test_what_was_not_written_to_its_end_is_no_checkpoint(copied, toy_slice, primed_model, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    folder = copied.with_name("killed")
    with monkeypatch.context() as patched:
        patched.setattr("sciscirl.lab.sft.checkpoints.flush_tree", die)
        with pytest.raises(KeyboardInterrupt):
            train(toy_slice, primed_model, folder)
    assert checkpoint(folder, 1).is_dir()
    assert recover_checkpoint(folder) is None


def test_a_run_that_had_ended_is_judged_by_the_weights_that_it_has(copied, run, toy_slice, primed_model, monkeypatch):
    step = f"test_{N_STEPS:06d}.parquet"
    answers = pl.read_parquet(run / "predictions" / step)
    assert not answers.equals(pl.read_parquet(run / "predictions" / "test_000000.parquet"))  # else nothing is shown
    adapter = (copied / "adapter" / "adapter_model.safetensors").read_bytes()
    shutil.rmtree(copied / "adapter")  # what is damaged there is made anew
    judged = []
    monkeypatch.setattr(Judge, "judge", lambda self, step, judge=Judge.judge: judged.append(step) or judge(self, step))
    train(toy_slice, primed_model, copied, behavior_if_log_dir_exists="resume")
    assert judged == [N_STEPS]
    assert pl.read_parquet(copied / "predictions" / step).equals(answers)
    assert (copied / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    assert (copied / "adapter" / "adapter_model.safetensors").read_bytes() == adapter


def test_what_people_write_into_the_card_of_a_model_does_no_harm(copied):
    (checkpoint(copied, 3) / "README.md").write_text("the one that I like", "utf-8")
    assert recover_checkpoint(copied).batch == 3


def test_a_file_that_cannot_be_read_is_damage(tmp_path):
    (tmp_path / "optimizer.pt").mkdir()
    assert find_damage(tmp_path, {"optimizer.pt": "0"}) == "optimizer.pt cannot be read (Is a directory)"


def say_nothing(path):
    path.write_text("{}", "utf-8")


def say_null(path):  # as PEFT does of a model that it was given without a name
    facts = {"base_model_name_or_path": None, "quantize": None, "dtype": None}
    path.write_text(json.dumps(facts), "utf-8")


@pytest.mark.parametrize("damage", [cut, say_nothing, say_null])
@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", "trained_on.json"])
def test_a_damaged_adapter_is_one_line_that_names_the_file(copied, tmp_path, name, damage):
    damage(copied / "adapter" / name)
    with pytest.raises(ChangedFileError, match=rf"{name} differs from what was written"):
        merge_adapter(copied, tmp_path / "merged", MergeOptions())
    (copied / "adapter" / SUMS).unlink()
    with pytest.raises(SciSciRLError, match=r"adapter is of another run"):
        merge_adapter(copied, tmp_path / "merged", MergeOptions())
    with pytest.raises(SciSciRLError, match=rf"{name} is damaged.* behavior_if_log_dir_exists=resume"):
        load_local_model(copied / "adapter")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", "trained_on.json"])
def test_a_run_that_lost_a_file_of_its_adapter_is_told_so(copied, toy_slice, tmp_path, name):
    (copied / "adapter" / name).unlink()
    with pytest.raises(SciSciRLError, match=rf"has lost {name}\. .* behavior_if_log_dir_exists=resume"):
        merge_adapter(copied, tmp_path / "merged", MergeOptions())
    with pytest.raises(SciSciRLError, match=rf"has lost {name}\. .* behavior_if_log_dir_exists=resume"):
        find_subject(EvaluationConfig(release=toy_slice, out=tmp_path / "judged", run=copied))


def test_an_adapter_without_weights_is_not_looked_for_on_the_hub(copied, monkeypatch):
    (copied / "adapter" / "adapter_model.safetensors").unlink()
    monkeypatch.chdir(copied.parent)  # "run/adapter" could be the name of somebody's model there
    with pytest.raises(SciSciRLError, match=r"an adapter without weights: it has no adapter_model\.safetensors"):
        load_local_model(Path("run/adapter"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "[]", "model .* could not be loaded .* A file there may be damaged"),
        ("model.safetensors", "{}", r"model .* could not be loaded .* model\.safetensors is damaged"),
        ("tokenizer.json", "{}", "tokenizer of .* could not be loaded .* A file there may be damaged"),
        ("tokenizer_config.json", "[]", "tokenizer of .* could not be loaded .* A file there may be damaged"),
    ],
)
def test_a_damaged_model_is_one_line(primed_model, tmp_path, name, content, message):
    folder = tmp_path / f"with-damaged-{name}"
    shutil.copytree(primed_model, folder)
    (folder / name).write_text(content, "utf-8")
    with pytest.raises(SciSciRLError, match=message):
        load_tokenizer(str(folder)) if "tokenizer" in name else load_local_model(folder)


def test_a_model_whose_weights_are_a_link_to_nothing_is_one_line(primed_model, tmp_path):
    folder = Path(shutil.copytree(primed_model, tmp_path / "linked"))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(tmp_path / "gone")
    with pytest.raises(SciSciRLError, match=r"could not be loaded .* model\.safetensors is damaged"):
        load_local_model(folder)


def test_an_adapter_on_its_way_is_chosen_and_judged_by_its_step(run, toy_slice, tmp_path, caplog):
    config = EvaluationConfig(release=toy_slice, out=tmp_path / "judged", run=run, step=2)
    assert find_subject(config).local_model == checkpoint(run, 2)
    kept = {one.step: one.checkpoint for one in select_checkpoint(run).candidates}
    assert kept == {0: None, N_STEPS: str(checkpoint(run, N_STEPS))}
    with caplog.at_level(logging.WARNING, logger="sciscirl"):
        load_local_model(checkpoint(run, 2))
    assert caplog.messages == []  # it says what it was trained on
    with pytest.raises(SciSciRLError, match=r"kept no weights at step 9\. It did at 1, 2, 3: choose one"):
        find_subject(replace(config, step=9))


def test_an_adapter_that_does_not_say_what_it_was_trained_on_is_warned_of(copied, caplog):
    (copied / "adapter" / "trained_on.json").unlink()
    with caplog.at_level(logging.WARNING, logger="sciscirl"):
        load_local_model(copied / "adapter")
    (line,) = caplog.messages
    assert line.endswith("does not say what it was trained on: its base model is taken as saved, not quantised.")


def test_a_device_that_nobody_knows_is_one_line(copied, tmp_path):
    with pytest.raises(SciSciRLError, match="device is 'gpu', needs one that PyTorch knows"):
        merge_adapter(copied, tmp_path / "merged", MergeOptions(device="gpu"))


def test_a_pickle_of_a_stranger_in_a_checkpoint_is_neither_run_nor_a_traceback(tmp_path):
    torch = pytest.importorskip("torch")
    marker = tmp_path / "executed"

    class Hostile:
        def __reduce__(self):
            return Path.touch, (marker,)

    torch.save(Hostile(), tmp_path / "optimizer.pt")
    says = r"was not written by this run, and is not loaded: it could run code"
    with pytest.raises(SciSciRLError, match=says), refuse_pickles(tmp_path):
        torch.load(tmp_path / "optimizer.pt", weights_only=True)
    assert not marker.exists()
