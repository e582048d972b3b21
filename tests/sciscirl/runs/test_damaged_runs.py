"""Damage to what a run writes and reads again: the right result or a named error, never other numbers."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from sciscidata.errors import ChangedFileError, SciSciDataError
from sciscidata.release.verify import verify
from sciscidata.storage import cached_folder
from sciscidata.storage.sums import SUMS, find_changed, seal_file, sealed_file
from sciscirl.errors import SciSciRLError
from sciscirl.lab.analysis.calibrate import calibrate_evaluation, fit_temperatures
from sciscirl.lab.models.local_model import load_base_model, load_local_model
from sciscirl.lab.report.runs import read_run
from sciscirl.lab.sweep_folder import begin_sweep, read_sweep, write_table
from sciscirl.metrics.predictions import read_predictions, write_predictions
from sciscirl.presets import find_preset
from sciscirl.runs.checkpoints import find_checkpoint
from sciscirl.runs.logs import find_rollouts, open_store, read_answers, read_rows, seal_new, write_json
from sciscirl.runs.record import begin_run, read_facts
from tests.sciscirl.made_runs import make_evaluation, make_predictions, make_run

N_DAMAGES = int(os.environ.get("SCISCI_DAMAGES", "200"))


class Kind(NamedTuple):
    """``make`` fills a folder, with other content for another seed; ``read`` gives what its files say."""

    make: Callable[[Path, int], object]
    read: Callable[[Path], Any]


def _make_run(folder: Path, seed: int) -> None:
    tables = {step: make_predictions(find_preset("exp4"), 30, seed=10 * seed + step) for step in (0, 4)}
    make_run(folder, evaluations=tables, seed=seed, n_steps=5 + seed, sealed=True)


def _read_predictions(folder: Path) -> list[Any]:
    return [read_predictions(path).to_dicts() for path in sorted((folder / "predictions").glob("*"))]


def _read_logs(folder: Path) -> list[Any]:
    return [read_facts(folder), read_rows(folder / "metrics.jsonl"), find_checkpoint(folder, "sampler_path").to_dict()]


def _make_calibration(folder: Path, seed: int) -> None:
    test, dev = (make_predictions(find_preset("exp4"), 30, seed=one + seed, broken=0.0) for one in (0, 50))
    dev = dev.with_columns(pl.col("openalex_id") + "000")
    for name, table in (("test", test), ("dev", dev)):
        (folder / name).mkdir(parents=True)
        make_evaluation(folder / name, table, {"preset": "exp4", "split": name, "seed": seed}, sealed=True)
    calibrate_evaluation(folder / "test", folder / "dev", folder / "calibrated")


def _read_calibration(folder: Path) -> list[Any]:
    verify(folder / "calibrated")
    tables = {name: read_predictions(folder / name / "predictions.parquet") for name in ("test", "dev", "calibrated")}
    facts = [read_facts(folder / name) for name in tables]
    return [*facts, fit_temperatures(tables["dev"]), *(table.to_dicts() for table in tables.values())]


def _make_rollouts(folder: Path, seed: int) -> None:
    for step in range(3):
        records = [{"steps": [{"ob_len": 5, "ac_len": n, "logs": {"label": f"{seed}{n}"}}]} for n in range(9)]
        open_store(folder).write_rollouts(step, records)
        seal_new(find_rollouts(folder, step))


def _read_rollouts(folder: Path) -> list[Any]:
    return [read_answers(folder, step) for step in range(3)]


def _make_sweep(folder: Path, seed: int) -> None:
    begin_sweep(folder, {"settings": {"seed": seed}, "runs": []})
    write_table(folder, "sweep", pl.DataFrame({"name": ["exp4"], "macro_f1": [0.5 + seed / 10]}))


def _read_sweep(folder: Path) -> list[Any]:
    verify(folder)
    return [read_sweep(folder)]


def _make_model(folder: Path, seed: int) -> None:
    cached_folder(folder / "model-1", lambda new: _fill_model(new, seed))


def _fill_model(new: Path, seed: int = 0) -> None:
    (new / "config.json").write_text(json.dumps({"seed": seed}))
    (new / "model.safetensors").write_bytes(random.Random(seed).randbytes(999))


def _read_model(folder: Path) -> list[bytes]:
    made = cached_folder(folder / "model-1", _fill_model)
    return [path.read_bytes() for path in sorted(made.iterdir())]


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "tiny"
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, dtype="float32",
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def make_adapter(base: Path, folder: Path, seed: int = 0, *, sealed: bool = True) -> Path:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    get_peft_model(load_base_model(str(base)), config).save_pretrained(folder)
    (folder / "README.md").unlink()
    write_json(folder / "trained_on.json", {"quantize": "none", "dtype": "float32"})
    seal_file(folder / "adapter_config.json")
    seal_file(folder / "adapter_model.safetensors")
    if not sealed:
        (folder / SUMS).unlink()
    return folder


def _read_adapter(folder: Path) -> list[Any]:
    weights = load_local_model(folder, device="cpu").state_dict()
    return [weights[name].tolist() for name in sorted(weights) if "lora_" in name]


KINDS = {
    "predictions": Kind(_make_run, _read_predictions),
    "run.json and logs": Kind(_make_run, _read_logs),
    "calibrations": Kind(_make_calibration, _read_calibration),
    "rollouts": Kind(_make_rollouts, _read_rollouts),
    "sweep tables": Kind(_make_sweep, _read_sweep),
    "model cache": Kind(_make_model, _read_model),
    "adapters": Kind(make_adapter, _read_adapter),
}
FILES = {"predictions": "predictions/*", "run.json and logs": "*.json*", "calibrations": "[tc]*/*"}


def damage(path: Path, name: str, other: Path, older: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if name == "flip":
        place = draw.randrange(len(content))
        content[place] ^= 1 << draw.randrange(8)
    elif name == "cut":
        content = content[: draw.randrange(len(content))]
    else:
        content = {"of another run": other, "older": older}[name].read_bytes()
    path.write_bytes(content)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_gives_the_right_result_or_a_named_error(kind, base, tmp_path):
    make, read = KINDS[kind]
    whole, other, older, place = (tmp_path / name for name in ("whole", "other", "older", "place"))
    for number, folder in enumerate((whole, other, older)):
        make(base, folder, number) if kind == "adapters" else make(folder, number)
    shutil.copytree(whole, place)
    expected = read(place)
    files = [
        path.relative_to(whole)
        for path in sorted([*whole.glob(FILES.get(kind, "**/*")), *whole.glob(f"**/{SUMS}")])
        if path.is_file() and path.name[0] != "."
    ]
    draw, outcomes = random.Random(kind), Counter[tuple[str, str]]()
    for number in range(N_DAMAGES):
        name = ("flip", "cut", "of another run", "older")[number % 4]
        file = draw.choice(files)
        shutil.rmtree(place)
        shutil.copytree(whole, place)
        damage(place / file, name, other / file, older / file, draw)
        try:
            found = read(place)
            outcome = "right" if found == expected else f"WRONG: {file}"
        except SciSciDataError as error:
            outcome = "named error" if "\n" not in str(error) else f"several lines: {error}"
        outcomes[name, outcome] += 1
    print(kind, dict(outcomes))
    assert {outcome for _, outcome in outcomes} <= {"right", "named error"}, outcomes
    assert outcomes.total() == N_DAMAGES


def test_a_report_names_changed_predictions_and_shows_no_number_of_theirs(tmp_path):
    for seed in (0, 1):
        _make_run(tmp_path / str(seed), seed)
    before = read_run(tmp_path / "0", "0")
    shutil.copy(tmp_path / "1/predictions/test_000004.parquet", tmp_path / "0/predictions")
    after = read_run(tmp_path / "0", "0")
    assert "test_000004.parquet: it differs from what was written" in after.problems[0]
    assert after.last.predictions is None
    assert after.last.metrics["label_match"] == before.last.metrics["label_match"]
    with pytest.raises(SciSciDataError, match=r"predictions/test_000004\.parquet"):
        verify(tmp_path / "0")
    shutil.copy(tmp_path / "1/predictions/test_000004.parquet", tmp_path / "0/predictions/test_000002.parquet")
    assert "is not in the list" in read_run(tmp_path / "0", "0").problems[0]


def test_predictions_without_a_list_are_read_with_one_warning_and_damage_is_no_panic(tmp_path, caplog):
    path, draw = tmp_path / "predictions.parquet", random.Random(0)
    write_predictions(make_predictions(find_preset("exp4"), 30), path)
    (tmp_path / SUMS).unlink()
    whole = path.read_bytes()
    read_predictions(path)
    for _ in range(200):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
        with suppress(SciSciRLError):
            read_predictions(path)
    assert caplog.text.count(f"{tmp_path} has no SHA256SUMS") == 1


def test_a_file_that_is_replaced_is_listed_at_every_moment(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    for text in ("1", "2"):
        with sealed_file(path) as new:
            new.write_text(text)
            assert not find_changed(tmp_path) or text == "1"
    monkeypatch.setattr("sciscidata.storage.sums.atomic_file", _killed_before_the_file_has_its_name)
    with pytest.raises(KeyboardInterrupt), sealed_file(path) as new:
        new.write_text("3")
    assert find_changed(tmp_path) == []
    path.write_text("1")  # the one before
    assert find_changed(tmp_path) == ["config.json"]


class _killed_before_the_file_has_its_name:
    def __init__(self, target: Path) -> None:
        self.new = target.with_name("new")

    def __enter__(self) -> Path:
        return self.new

    def __exit__(self, *_: object) -> None:
        raise KeyboardInterrupt


def test_a_log_may_grow_after_it_was_sealed_and_only_there(tmp_path):
    _make_run(tmp_path / "run", 0)
    log = tmp_path / "run" / "metrics.jsonl"
    rows = read_rows(log)
    with log.open("a") as file:
        file.write('{"step": 9}\n')
    assert read_rows(log) == [*rows, {"step": 9}]
    log.write_text(log.read_text().replace('"step": 0', '"step": 7'))
    with pytest.raises(ChangedFileError, match=r"metrics\.jsonl differs"):
        read_rows(log)


def test_answers_of_steps_that_are_taken_again_are_dropped(tmp_path):
    _make_rollouts(tmp_path, 0)
    release = tmp_path / "release"
    release.mkdir()
    (release / "manifest.json").write_text("{}")
    begin_run(tmp_path, release, {"seed": 0}, behavior="raise")
    row = {"name": "000001", "batch": 1, "state_path": "tinker://a/weights/1"}
    (tmp_path / "checkpoints.jsonl").write_text(json.dumps(row) + "\n")
    assert begin_run(tmp_path, release, {"seed": 0}, behavior="resume") == 1
    assert [path.name for path in tmp_path.glob("iteration_*")] == ["iteration_000000"]


STRANGE = {
    "renamed": lambda name: name.replace("q_proj", "r_proj"),
    "of another kind": lambda name: name.replace("lora_A", "lora_X"),
    "missing": lambda name: None if "layers.1.mlp.up_proj" in name else name,
    "half missing": lambda name: None if "layers.1.mlp.up_proj.lora_B" in name else name,
}


@pytest.mark.parametrize("change", STRANGE)
def test_an_adapter_with_other_tensors_is_refused_by_name(base, tmp_path, change):
    adapter = make_adapter(base, tmp_path / "adapter", sealed=False)
    expected = _read_adapter(adapter)
    weights = load_file(adapter / "adapter_model.safetensors")
    assert _read_adapter(adapter) == expected
    changed = {STRANGE[change](name): weight for name, weight in weights.items() if STRANGE[change](name)}
    save_file(changed, adapter / "adapter_model.safetensors")
    with pytest.raises(SciSciRLError, match=r"adapter_model\.safetensors (lacks|has the strange) tensor"):
        load_local_model(adapter, device="cpu")


def test_a_model_that_lacks_a_tensor_is_refused(base, tmp_path):
    shutil.copytree(base, tmp_path / "model")
    weights = load_file(base / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SciSciRLError, match=r"lack 1 tensors, for example model\.layers\.1\.mlp\.up_proj\.weight"):
        load_base_model(str(tmp_path / "model"))
