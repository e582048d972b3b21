"""Merging the adapter of a run on a server, which a stub of its archives gives out."""

from __future__ import annotations

import io
import json
import tarfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load, load_file, save
from transformers import Qwen3Config, Qwen3ForCausalLM

from sciscidata.remote import answers
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.lab.hardware_options import MergeOptions
from sciscirl.lab.sft.merge import merge_adapter
from sciscirl.presets import describe, find_preset
from sciscirl.runs.server_checks import is_tinker
from tests.sciscirl.made_runs import SLICE, make_predictions, make_run
from tests.sciscirl.runs.test_model_code import REMEDY, Stranger, change
from tests.sciscirl.tinker_stub import KEY
from tests.sciscirl.toy import RENDERER, make_tokenizer
from tests.servers.serving import Handler, Server

RANK, ALPHA = 2, 32
NAME = "model.layers.0.self_attn.q_proj"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = make_tokenizer(tmp_path_factory.mktemp("base") / "tiny")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=259, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, dtype="float32",
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def make_adapter() -> dict[str, bytes]:
    torch.manual_seed(1)
    weights = {
        f"base_model.model.{NAME}.lora_A.weight": torch.randn(RANK, 16),
        f"base_model.model.{NAME}.lora_B.weight": torch.randn(16, RANK),
    }
    return {
        "adapter_config.json": json.dumps({"r": RANK, "lora_alpha": ALPHA, "peft_type": "LORA"}).encode(),
        "adapter_model.safetensors": save(weights),
    }


def pack(files: dict[str, bytes], **links: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        root = tarfile.TarInfo("")  # as SkyRL begins its archives
        root.type = tarfile.DIRTYPE
        archive.addfile(root)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, goal in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, goal
            archive.addfile(member)
    return packed.getvalue()


@contextmanager
def archives(content: bytes, elsewhere: str | None = None):
    """Give out one archive for checkpoint 000002 of model "x:train:0"; or say where it lies. Records who asked."""

    class Archives(Handler):
        def do_GET(self) -> None:
            self.server.asked.append((self.path, self.headers.get("X-API-Key")))
            is_there = self.path in {"/api/v1/training_runs/x%3Atrain%3A0/checkpoints/000002/archive", "/signed"}
            if not is_there or elsewhere:
                self.send(302 if is_there else 404, headers={"Location": elsewhere} if elsewhere else {})
            else:
                self.send(200, content)

    server = Server(Archives)
    server.asked = []
    with server:
        yield server


@pytest.fixture
def run(tmp_path, base, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    settings = {"model": str(base), "renderer": RENDERER}
    table = make_predictions(find_preset("exp4"), 30, skill=0.9)
    folder = make_run(tmp_path / "rl-run", evaluations={2: table}, n_steps=4, settings=settings)
    rows = [
        {"name": name, "batch": step, "state_path": f"tinker://x:train:0/weights/{name}",
         "sampler_path": f"tinker://x:train:0/{kind}{name}"}
        for name, step, kind in (("000002", 2, "sampler_weights/"), ("final", 4, ""))
    ]  # fmt: skip
    (folder / "checkpoints.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    facts = json.loads((folder / "run.json").read_text("utf-8"))
    begun_from = {"folder": "sft-tinker-exp4", "step": 40, "path": "tinker://m/weights/final"}
    (folder / "run.json").write_text(json.dumps(facts | {"begun_from": begun_from}), "utf-8")
    return folder


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_the_merged_model_is_base_plus_adapter_and_the_key_goes_to_the_server_alone(run, base, tmp_path, is_elsewhere):
    files, out = make_adapter(), tmp_path / "merged"
    with (
        archives(pack(files)) as store,
        archives(pack(files), f"{store.url}/signed" if is_elsewhere else None) as server,
    ):
        assert merge_adapter(run, out, MergeOptions(dtype="float32", step=2, base_url=server.url)) == out
        assert [key for _, key in server.asked] == [KEY]
        assert [key for _, key in store.asked] == ([None] if is_elsewhere else [])
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "a").write_bytes(files["adapter_model.safetensors"])
    adapter, before, after = (
        load_file(path) for path in (tmp_path / "adapter" / "a", base / "model.safetensors", out / "model.safetensors")
    )
    low, high = (adapter[f"base_model.model.{NAME}.lora_{side}.weight"] for side in "AB")
    expected = before[f"{NAME}.weight"] + ALPHA / RANK * high @ low
    torch.testing.assert_close(after[f"{NAME}.weight"], expected)
    assert not torch.equal(after[f"{NAME}.weight"], before[f"{NAME}.weight"])
    same = [name for name in before if name != f"{NAME}.weight"]
    assert len(same) == len(after) - 1
    assert all(torch.equal(before[name], after[name]) for name in same)
    assert (out / "tokenizer.json").is_file()


def test_the_card_names_release_run_step_parent_and_metrics_and_no_folder_of_this_machine(run, tmp_path):
    with archives(pack(make_adapter())) as server:
        merge_adapter(run, tmp_path / "merged", MergeOptions(step=2, base_url=server.url))
    card = (tmp_path / "merged" / "README.md").read_text("utf-8")
    header = yaml.safe_load(card.split("---")[1])
    assert header == {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["sciscirl", "rl"]}
    cells = dict(
        line.strip("| ").split(" | ", 1) for line in card.splitlines() if line.startswith("| ") and line != "| | |"
    )
    assert SLICE in cells["release"]
    assert cells["begun from"] == "sft-tinker-exp4, step 40"
    assert (cells["step"], cells["base model"]) == ("2", "tiny")
    assert cells["run"].startswith("rl-run, SHA-256 of run.json")
    assert cells["trained by"] == "reinforcement learning, preset exp4"
    preset = describe(find_preset("exp4"))
    assert cells["prompt and answer"] == f"style {preset['style']}, contract {preset['contract']}"
    (logged,) = [
        row
        for row in map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())
        if "test/label_match" in row
    ]
    assert cells["macro_f1"] == f"{logged['test/macro_f1']:.4f}"
    assert cells["n"] == "30"
    assert cells["recall/disruptive"] == f"{logged['test/recall/disruptive']:.4f}"
    assert str(tmp_path) not in card


def test_what_cannot_be_merged_says_why_and_leaves_nothing(run, tmp_path):
    out = tmp_path / "merged"
    with archives(pack(make_adapter())) as server:
        for message, options in (
            (r"step is -1, needs a whole number from 0", {"step": -1}),
            (r"kept no weights at step 3\. Choose one of 2, 4\.", {"step": 3}),
            (r"gives out no archive of .*/final \(it answered 404\)", {}),
            (r"device is 'cuda', but an adapter from a server", {"device": "cuda"}),
        ):
            with pytest.raises(SciSciRLError, match=message):
                merge_adapter(run, out, MergeOptions(base_url=server.url, **options))
    for content, message in (
        (b"no archive", r"archive of .* is damaged"),
        (pack({"../escaped": b"x"}), r"holds '\.\./escaped', which is"),
        (pack({"/tmp/escaped": b"x"}), r"holds '/tmp/escaped', which is"),
        (pack({}, **{"adapter_config.json": "/etc/passwd"}), r"holds 'adapter_config\.json', which is a link"),
        (pack({"adapter_config.json": b"{}"}), r"has no adapter_model\.safetensors"),
    ):
        with archives(content) as server, pytest.raises(SciSciRLError, match=message):
            merge_adapter(run, out, MergeOptions(step=2, base_url=server.url))
    (run / "checkpoints.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"has no checkpoint to merge\. Wait for one, or resume the run\."):
        merge_adapter(run, out, MergeOptions())
    assert not out.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".merged", "escaped"))]
    with pytest.raises(SciSciRLError, match=r"^base_url has no effect: the adapter of .* lies on this machine"):
        merge_adapter(tmp_path, out, MergeOptions(base_url="http://localhost:1"))


def test_merging_runs_no_code_of_the_base_model(run, base, tmp_path):
    stranger = Stranger(base, tmp_path)
    change(run / "run.json", settings={"model": stranger.write("tokenizer", "weights"), "renderer": RENDERER})
    with archives(pack(make_adapter())) as server, pytest.raises(SciSciRLError, match=REMEDY):
        merge_adapter(run, tmp_path / "merged", MergeOptions(step=2, base_url=server.url))
    assert not stranger.mark.exists()


def without_half():
    """Return the adapter without one tensor of a pair."""
    files = make_adapter()
    held = load(files["adapter_model.safetensors"])
    del held[f"base_model.model.{NAME}.lora_A.weight"]
    return pack(files | {"adapter_model.safetensors": save(held)})


DAMAGED = {
    "last checksum": lambda: flip(pack(make_adapter()), -6),
    "last length": lambda: flip(pack(make_adapter()), -2),
    "cut at the end": lambda: pack(make_adapter())[:-4],
    "half of a pair": without_half,
}


def flip(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 16
    return bytes(changed)


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_archive_or_a_strange_tensor_is_refused(run, tmp_path, damage):
    with archives(DAMAGED[damage]()) as server, pytest.raises(SciSciRLError, match=r"is damaged|could not be loaded"):
        merge_adapter(run, tmp_path / "merged", MergeOptions(step=2, base_url=server.url))
    assert not (tmp_path / "merged").exists()


def bomb() -> bytes:
    """Pack 100 MB of zeros as weights, in some 100 KB."""
    head = json.dumps({"w": {"dtype": "U8", "shape": [100 << 20], "data_offsets": [0, 100 << 20]}}).encode()
    weights = len(head).to_bytes(8, "little") + head + bytes(100 << 20)
    return pack({"adapter_config.json": b"{}", "adapter_model.safetensors": weights})


def sparse() -> bytes:
    """Pack a file that states 300 GB and holds nothing."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("adapter_model.safetensors")
        member.size = 512
        member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(300 << 30)}
        archive.addfile(member, io.BytesIO(b"0\n".ljust(512, b"\0")))
    return packed.getvalue()


def device() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("adapter_model.safetensors")
        member.type, member.devmajor, member.devminor = tarfile.CHRTYPE, 1, 3
        archive.addfile(member)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (bomb, r"unpacks to more than 16,777,216 bytes"),
        (sparse, r"holds 'adapter_model\.safetensors', which is"),
        (device, r"holds 'adapter_model\.safetensors', which is"),
        (lambda: pack({f"{number}": b"" for number in range(1_001)}), "more than 1,000 files"),
        (lambda: pack({"adapter_config.json": bytes(2 << 20)}), r"adapter_config\.json has 2,097,152 bytes"),
    ],
)
def test_an_archive_that_is_more_than_an_adapter_needs_is_refused_before_it_fills_the_disk(run, tmp_path, make, says):
    content = make()
    assert len(content) < 400_000
    with archives(content) as server, pytest.raises(SciSciRLError, match=says):
        merge_adapter(run, tmp_path / "merged", MergeOptions(step=2, base_url=server.url))
    assert not [path for path in tmp_path.iterdir() if "merged" in path.name]


def test_an_archive_that_drips_ends_in_a_clear_error(run, tmp_path, monkeypatch):
    class Drip(Handler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    time.sleep(0.1)
                    self.wfile.write(b"a")

    monkeypatch.setattr(answers, "_SPAN_S", 0.5)
    with Server(Drip) as server, pytest.raises(SciSciRLError, match=r"gives out no archive .* less than 1 KB a second"):
        merge_adapter(run, tmp_path / "merged", MergeOptions(step=2, base_url=server.url))


def test_from_tinker_the_state_is_exported_because_its_sdk_has_no_archives(run, tmp_path, monkeypatch):
    asked = {}

    def export(*, tinker_path, output_dir, base_url):
        asked["path"] = tinker_path
        for name, content in make_adapter().items():
            Path(output_dir, name).write_bytes(content)
        return output_dir

    monkeypatch.setattr("tinker_cookbook.weights.download", export)
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    assert is_tinker(None)
    merge_adapter(run, tmp_path / "merged", MergeOptions())
    assert asked == {"path": "tinker://x:train:0/weights/final"}
    assert "The run did not evaluate this step." in (tmp_path / "merged" / "README.md").read_text("utf-8")
