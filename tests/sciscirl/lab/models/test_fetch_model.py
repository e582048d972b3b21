"""Models from GGUF files: what is written is what the file holds, and its chat format is found."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import struct
import zipfile

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf import GGUFWriter

from sciscirl.envs.models import SHORT_NAMES
from sciscirl.envs.tokenizer import load_tokenizer, make_renderer
from sciscirl.errors import SciSciRLError
from sciscirl.lab.models import fetch_model as fetching
from sciscirl.lab.models.fetch_model import PACKAGED, PackagedModel, fetch_model
from sciscirl.lab.models.local_model import load_base_model
from sciscirl.runs.chat_format import choose_renderer, warn_of_renderer

TEMPLATE = (
    r"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'}}"
    r"{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXTS = ['{"disruption_label": "neutral", "confidence": 0.95}', "naïve café, β-catenin  1,234\n\n\tx", "don't 2024"]


def alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def write_gguf(path, *, kind="gpt2", split="smollm", template=TEMPLATE):
    """Write a Llama of one layer whose tokens are bytes, and three marks before them."""
    random = np.random.default_rng(0)
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *alphabet(), "ne"]
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(4096)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(split)
    writer.add_token_list(words)
    writer.add_token_types([3, 3, 3, *[1] * (len(words) - 3)])
    writer.add_token_merges(["n e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    if template:
        writer.add_chat_template(template)
    shapes = {
        "token_embd": (len(words), 32), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,),
        "blk.0.attn_q": (32, 32), "blk.0.attn_k": (16, 32), "blk.0.attn_v": (16, 32), "blk.0.attn_output": (32, 32),
        "blk.0.ffn_gate": (64, 32), "blk.0.ffn_up": (64, 32), "blk.0.ffn_down": (32, 64),
    }  # fmt: skip
    weights = {}
    for name, shape in shapes.items():
        array = random.standard_normal(shape).astype(np.float32) * 0.3
        quantised = len(shape) == 2 and "embd" not in name
        kind_of = gguf.GGMLQuantizationType.Q4_1 if quantised else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(array, kind_of)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind_of)
        weights[name] = gguf.quants.dequantize(data, kind_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    home = tmp_path_factory.mktemp("gguf")
    weights = write_gguf(home / "tiny.gguf")
    return home / "tiny.gguf", fetch_model(str(home / "tiny.gguf"), dtype="float32", cache=home / "cache"), weights


@pytest.mark.parametrize("n_entries", [1 << 60, 1 << 23])
def test_a_list_of_more_entries_than_any_model_has_is_refused_before_it_takes_memory(tmp_path, n_entries):
    write_gguf(tmp_path / "tiny.gguf")
    content = (tmp_path / "tiny.gguf").read_bytes()
    at = content.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 8
    bomb = content[:at] + struct.pack("<Q", n_entries) + content[at + 8 :]
    (tmp_path / "bomb.gguf").write_bytes(bomb)
    with pytest.raises(SciSciRLError, match="a list of its header is cut off, or has more than 4,194,304 entries"):
        fetch_model(str(tmp_path / "bomb.gguf"), cache=tmp_path)


def test_a_chat_template_that_never_ends_is_stopped(made, tmp_path, monkeypatch):
    monkeypatch.setattr("sciscirl.runs.chat_format._TEMPLATE_S", 0.2)
    model = shutil.copytree(made[1], tmp_path / "model")
    loops = "".join(f"{{% for {name} in range(9999) %}}" for name in "abcd") + "{% endfor %}" * 4
    tokenizer = load_tokenizer(str(model))
    tokenizer.chat_template = loops
    tokenizer.save_pretrained(model)
    with pytest.raises(SciSciRLError, match=r"the chat template of this model computes for more than 0\.2 s"):
        choose_renderer(str(model))
    with pytest.raises(SciSciRLError, match="the chat template of this model"):
        warn_of_renderer(str(model), "role_colon")


def test_weights_are_those_of_the_file_and_no_more_rounded(made):
    _, folder, weights = made
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert not hasattr(model.config, "quantization_config")
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    for ours, theirs in (
        ("token_embd", "model.embed_tokens"),
        ("blk.0.ffn_down", "model.layers.0.mlp.down_proj"),
        ("blk.0.attn_v", "model.layers.0.self_attn.v_proj"),
    ):
        assert np.array_equal(state[f"{theirs}.weight"], weights[ours])
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (2, 2)


def test_the_tokenizer_comes_back_and_no_token_has_another_number(made):
    tokenizer = load_tokenizer(str(made[1]))
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *alphabet(), "ne"]
    assert tokenizer.convert_tokens_to_ids(words) == [*range(len(words))]
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert tokenizer.encode("<|im_start|>ne<|im_end|>", add_special_tokens=False) == [1, len(words) - 1, 2]
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token) == (words[1], words[2], words[0])


def test_the_chat_format_is_the_one_that_writes_as_the_models_template_does(made):
    name = choose_renderer(str(made[1]))
    assert name == "qwen3_instruct"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    tokenizer = load_tokenizer(str(made[1]))
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt = make_renderer(str(made[1]), name).build_generation_prompt(messages).to_ints()
    assert prompt == tokenizer.encode(text, add_special_tokens=False)


def test_a_format_given_by_hand_that_writes_another_prompt_is_warned_of(made, tmp_path, caplog):
    model = str(made[1])
    for name in (None, "qwen3_instruct"):
        warn_of_renderer(model, name)
    assert not caplog.messages
    warn_of_renderer(model, "role_colon")
    (said,) = caplog.messages
    assert "renderer 'role_colon' writes another prompt than the chat template" in said
    assert "renderer=qwen3_instruct" in said
    caplog.clear()
    bare = shutil.copytree(model, tmp_path / "bare")
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((bare / "tokenizer_config.json").read_text("utf-8"))
    config.pop("chat_template", None)
    (bare / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    assert load_tokenizer(str(bare)).chat_template is None
    warn_of_renderer(str(bare), "role_colon")
    assert not caplog.messages


@pytest.mark.parametrize("package", ["accelerate", "bitsandbytes"])
def test_a_missing_package_of_an_extra_names_the_extra(made, monkeypatch, package):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == package else find(name, *more))
    quantize = "nf4" if package == "bitsandbytes" else "none"
    with pytest.raises(SciSciRLError, match=rf"{package} is not installed\. Run .*install\.py rl sft"):
        load_base_model(str(made[1]), quantize=quantize, device="cpu")


def test_a_model_whose_template_no_format_writes_needs_one_named(tmp_path):
    write_gguf(tmp_path / "odd.gguf", template="{{ messages[0]['content'] }}!")
    folder = fetch_model(str(tmp_path / "odd.gguf"), cache=tmp_path)
    with pytest.raises(SciSciRLError, match="none writes a prompt as its chat template does"):
        choose_renderer(str(folder))


def test_what_was_made_is_used_again_and_another_number_format_is_made_beside_it(made):
    file, folder, _ = made
    at = (folder / "model.safetensors").stat().st_mtime_ns
    assert fetch_model(str(file), dtype="float32", cache=folder.parent) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == at
    other = fetch_model(str(file), cache=folder.parent)
    assert other != folder
    assert transformers.AutoModelForCausalLM.from_pretrained(other).dtype == torch.bfloat16
    assert fetch_model(str(folder)) == folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, r"there is no .*x\.gguf\. Give smollm2, a GGUF file, a folder"),
        (lambda path: path.write_bytes(b"PK34"), r"cannot be read \(ValueError: GGUF magic invalid"),
        (lambda path: path.write_bytes(b"GGUF"), "cannot be read"),
        (lambda path: path.mkdir(), "holds no config.json"),
        (lambda path: write_gguf(path, kind="llama"), "tokenizer of kind 'llama'"),
        (lambda path: write_gguf(path, split="klingon"), "splits words as 'klingon'"),
    ],
)
def test_a_file_that_does_not_do_is_one_clear_error_and_nothing_is_left(tmp_path, make, message):
    make(tmp_path / "x.gguf")
    with pytest.raises(SciSciRLError, match=message):
        fetch_model(str(tmp_path / "x.gguf"), cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/")) or not any((tmp_path / "cache").rglob("config.json"))


def packaged(monkeypatch, tmp_path, **changes):
    """Offer a wheel with a tiny GGUF in a folder, as an index would."""
    write_gguf(tmp_path / "tiny.gguf")
    wheel = tmp_path / "index" / "tiny_model-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.write(tmp_path / "tiny.gguf", "tiny_model/tiny.gguf")
        packed.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        packed.writestr(
            "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr("tiny_model-1.0.dist-info/RECORD", "")
    named = {
        "package": "tiny-model",
        "version": "1.0",
        "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "module": "tiny_model",
        "file": "tiny.gguf",
        "file_sha256": hashlib.sha256((tmp_path / "tiny.gguf").read_bytes()).hexdigest(),
        "about": "a tiny model",
    }
    monkeypatch.setattr(fetching, "PACKAGED", {"tiny": PackagedModel(**(named | changes))})
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_a_packaged_model_is_fetched_by_its_hash_and_once(monkeypatch, tmp_path):
    packaged(monkeypatch, tmp_path)
    folder = fetch_model("tiny", cache=tmp_path / "cache")
    assert (folder / "model.safetensors").is_file()
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert fetch_model("tiny", cache=tmp_path / "cache") == folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wheel_sha256": "0" * 64}, "could not be fetched: THESE PACKAGES DO NOT MATCH THE HASHES"),
        ({"file_sha256": "0" * 64}, "is damaged: its SHA-256 is"),
        ({"version": "2.0"}, "could not be fetched: No matching distribution"),
    ],
)
def test_another_file_than_the_pinned_one_is_refused(monkeypatch, tmp_path, changes, message):
    packaged(monkeypatch, tmp_path, **changes)
    with pytest.raises(SciSciRLError, match=message):
        fetch_model("tiny", cache=tmp_path / "cache")
    assert not any((tmp_path / "cache").rglob("config.json"))


def test_without_a_network_a_name_on_the_hub_is_one_clear_error(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SciSciRLError, match=r"could not be fetched from huggingface\.co .* sciscirl model smollm2"):
        fetch_model("no-such-owner/no-such-model")


def test_pins_of_packaged_models_are_hashes():
    for model in PACKAGED.values():
        assert len(bytes.fromhex(model.wheel_sha256)) == len(bytes.fromhex(model.file_sha256)) == 32


def test_every_short_name_of_a_model_has_a_chat_format():
    assert SHORT_NAMES.keys() == PACKAGED.keys()
