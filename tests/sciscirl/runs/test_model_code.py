"""A model's folder may bring Python files (auto_map): no command runs them unless that is asked for."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from tinker_cookbook import tokenizer_utils

from sciscirl.cli.main import main
from sciscirl.envs.tokenizer import load_tokenizer
from sciscirl.errors import SciSciRLError
from sciscirl.lab.models.local_model import load_base_model
from sciscirl.runs.chat_format import writes_as_template
from tests.sciscirl.tinker_stub import KEY, serve_models
from tests.sciscirl.toy import RENDERER

REMEDY = "which is not run unasked. If you have read it and trust it, give --trust-remote-code"
CODE = """
with open({mark!r}, "a") as file:
    file.write(__name__ + " ")
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
class Tokenizer(PreTrainedTokenizerFast): ...
class Config(Qwen3Config):
    model_type = "stranger"
class Model(Qwen3ForCausalLM):
    config_class = Config
def generate(model, **_):
    raise RuntimeError
"""


def change(path: Path, **facts: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


class Stranger:
    """Makes a model with code in some of its places; ``mark`` is written when one runs."""

    def __init__(self, model: Path, home: Path) -> None:
        self.folder, self.mark = Path(shutil.copytree(model, home / "stranger")), home / "mark"
        for place in (self.folder, self.folder / "custom_generate"):
            place.mkdir(exist_ok=True)
            (place / f"{'code' if place == self.folder else 'generate'}.py").write_text(
                CODE.format(mark=str(self.mark))
            )

    def write(self, *places: str) -> str:
        if "tokenizer" in places:
            auto = {"AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"]}
            change(self.folder / "tokenizer_config.json", auto_map=auto, tokenizer_class="Tokenizer")
        if "weights" in places:
            auto = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model", "AutoModel": "code.Model"}
            change(self.folder / "config.json", auto_map=auto, model_type="stranger")
        return str(self.folder)


@pytest.fixture
def stranger(random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    monkeypatch.delenv("HF_TRUST_REMOTE_CODE", raising=False)
    monkeypatch.chdir(tmp_path)
    return Stranger(random_model, tmp_path)


COMMANDS = {
    "train --dry-run": "train --release SLICE --model MODEL --dry-run",
    "train --dry-run, own template": "train --release SLICE --model MODEL --renderer qwen3 --dry-run",
    "train": "train --release SLICE --model MODEL --max-steps 1 --eval-split test --base-url SERVER --log-path runs/a",
    "train --backend local": "train --backend local --release SLICE --model MODEL --max-steps 1 --quantize none "
    "--eval-split test --log-path runs/b",
    "sft --backend tinker": "sft --backend tinker --release SLICE --model MODEL --eval-split test --base-url SERVER "
    "--log-path runs/c",
    "sft --dry-run": "sft --backend tinker --release SLICE --model MODEL --dry-run",
    "sft --backend peft": "sft --backend peft --release SLICE --model MODEL --quantize none --eval-split test "
    "--log-path runs/d",
    "sft --backend peft --dry-run": "sft --backend peft --release SLICE --model MODEL --dry-run",
    "evaluate --model": "evaluate --release SLICE --model MODEL --base-url SERVER --out runs/e",
    "evaluate --local-model": "evaluate --release SLICE --local-model MODEL --out runs/f",
    "sweep": "sweep --preset exp4 --seeds 0 --release SLICE --model MODEL --base-url SERVER --max-steps 1 "
    "--eval-split test --out runs/g",
    "sweep repro": "sweep repro --release SLICE --local-model MODEL --out runs/h",
    "model": "model MODEL",
    "demo": "demo --model MODEL --release SLICE --short --out runs/i",
    "merge": "merge ADAPTER --out runs/j",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_code_of_a_models_folder(
    command: str, stranger: Stranger, toy_slice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    model = stranger.write("tokenizer", "weights")
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": model, "peft_type": "LORA"}))
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    with serve_models([{"model_name": model}]) as server:
        names = {"SLICE": str(toy_slice), "MODEL": model, "SERVER": server, "ADAPTER": str(adapter)}
        status = main([names.get(word, word) for word in COMMANDS[command].split()])
    printed = capfd.readouterr()
    assert not stranger.mark.exists(), stranger.mark.read_text()
    assert (status, REMEDY in printed.err) == (1, True), printed


@pytest.mark.parametrize("places", [(), ("tokenizer",), ("weights",)])
def test_what_needs_no_code_is_loaded_and_what_does_is_refused(
    stranger: Stranger, places: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    model = stranger.write(*places)  # custom_generate is always there
    load_tokenizer(model)  # Transformers has one for this kind of model
    assert ("brings a tokenizer of its own as code, which was not run" in caplog.text) == ("tokenizer" in places)
    if "weights" in places:
        with pytest.raises(SciSciRLError, match=REMEDY):
            load_base_model(model)
    else:
        load_base_model(model)
    assert not stranger.mark.exists(), stranger.mark.read_text()


def test_the_cookbook_itself_runs_no_code_either(stranger: Stranger, toy_model: str) -> None:
    load_tokenizer(toy_model)
    with pytest.raises(ValueError, match="trust_remote_code"):
        tokenizer_utils.get_tokenizer(stranger.write("tokenizer", "weights"))
    assert not stranger.mark.exists()


def test_a_chat_template_runs_no_code(stranger: Stranger) -> None:
    escape = "cycler.__init__.__globals__.__builtins__.open"
    template = f"{{{{ {escape}({str(stranger.mark)!r}, 'w') }}}}{{{{ ''.__class__.__mro__[1].__subclasses__() }}}}"
    (stranger.folder / "chat_template.jinja").write_text(template)
    change(stranger.folder / "tokenizer_config.json", chat_template=template)
    assert not writes_as_template(load_tokenizer(str(stranger.folder)), RENDERER)
    assert not stranger.mark.exists()


@pytest.mark.parametrize("name", ["moonshotai/Kimi-K2-Thinking", "moonshotai/Kimi-K2.6:some"])
def test_a_known_model_whose_tokenizer_is_code_is_refused_with_the_remedy(stranger: Stranger, name: str) -> None:
    with pytest.raises(SciSciRLError, match=REMEDY):
        load_tokenizer(name)


def test_the_option_runs_it(stranger: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TRUST_REMOTE_CODE", "0")  # what the option sets is unset after the test
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = ["model", stranger.write("tokenizer", "weights")]
    for more in ([], ["--trust-remote-code"]):
        assert (main([*words, *more]) == 0, stranger.mark.exists()) == (bool(more), bool(more))
