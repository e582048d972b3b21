"""Ask a model in this process, under a chosen number format, attention kernel, device and number of threads."""

from __future__ import annotations

import hashlib
import platform
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.tokenizer_utils import Tokenizer
from transformers.utils.logging import disable_progress_bar

from sciscirl.errors import SciSciRLError
from sciscirl.runs.local_completer import LocalCompleter
from sciscirl.runs.local_model import load_base_model, require_packages
from sciscirl.studies.repro.settings import Setting


class LocalRunner:
    """A loaded model and how many prompts go through it at once.

    Args:
        model: a PreTrainedModel, in the mode in which it is to be asked.
        tokenizer: for stop conditions that are text.
        batch_size: prompts in one pass, padded on the left to the longest.
        max_tokens: of an answer.
        seed: of sampling: numbers are functions of seed, prompt and place, so that only the probabilities, and neither
            the order of prompts nor a library's generator, decide what is drawn.
    """

    def __init__(
        self,
        model: Any,  # noqa: ANN401
        tokenizer: Tokenizer,
        *,
        batch_size: int,
        max_tokens: int,
        seed: int,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.seed = seed

    def completer(self, temperature: float) -> TokenCompleter:
        """Return what samples; 0 is greedy."""
        return LocalCompleter(
            self.model,
            self.tokenizer,
            max_tokens=self.max_tokens,
            temperature=temperature,
            seed=self.seed,
            batch_size=self.batch_size,
        )

    @torch.no_grad()
    async def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return the log-probability of each token of an answer after its prompt, all answers in one pass.

        Args:
            pairs: of prompt and answer, neither empty.
        """
        rows = [prompt + answer for prompt, answer in pairs]
        longest, n_kept = max(map(len, rows)), max(len(answer) for _, answer in pairs)
        tokens = torch.tensor([[0] * (longest - len(row)) + row for row in rows], device=self.model.device)
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=self.model.device)
        logits = self.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            use_cache=False,
            logits_to_keep=n_kept + 1,
        ).logits
        scores = logits[:, :-1].float().log_softmax(dim=-1).gather(2, tokens[:, -n_kept:, None])[:, :, 0].tolist()
        return [row[n_kept - len(answer) :] for row, (_, answer) in zip(scores, pairs, strict=True)]


@contextmanager
def open_local(
    folder: Path, tokenizer: Tokenizer, setting: Setting, *, max_tokens: int, seed: int
) -> Generator[LocalRunner]:
    """Load a model under a setting; what the setting changes of this process is undone at the end.

    Raises:
        SciSciRLError: if this machine, PyTorch or Transformers cannot do that.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(setting.n_threads or threads)
    disable_progress_bar()  # of loading: the sweep has its own
    try:
        model = _load(folder, setting)
        yield LocalRunner(model, tokenizer, batch_size=setting.batch_size, max_tokens=max_tokens, seed=seed)
    finally:
        torch.set_num_threads(threads)


def _load(folder: Path, setting: Setting) -> Any:  # noqa: ANN401
    device, dtype = setting.device or "cpu", setting.dtype or "float32"
    if dtype != "int8":
        model = load_base_model(str(folder), dtype=dtype, device=device, attention=setting.attention)
    elif device == "cpu":
        model = _round_to_int8(
            load_base_model(str(folder), dtype="float32", device=device, attention=setting.attention)
        )
    else:
        require_packages("bitsandbytes")
        model = load_base_model(
            str(folder), quantize="int8", dtype="float16", device=device, attention=setting.attention
        )
    return model.eval()


def _round_to_int8(model: Any) -> Any:  # noqa: ANN401
    with warnings.catch_warnings():
        # Deprecated for torchao, one more dependency with the same kernels; torch is pinned to a version that has it.
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)  # pyright: ignore[reportDeprecated]


def describe_machine() -> dict[str, Any]:
    """Say in JSON types on what a model is run here: all that may change the last bit of a sum.

    Example:
        >>> sorted(describe_machine())
        ['float32_matmul', 'gpu', 'int8_engine', 'processor', 'system', 'torch', 'vector_width']
    """
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor_name(),
        "vector_width": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "float32_matmul": torch.get_float32_matmul_precision(),
        "int8_engine": torch.backends.quantized.engine,
    }


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or "unknown"


def hash_weights(folder: Path) -> str:
    """Return the SHA-256 over a model's configuration and weights, whatever its folder is called.

    Raises:
        SciSciRLError: if the folder holds no model.
    """
    files = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    if len(files) < 2 or not all(path.is_file() for path in files):
        msg = (
            f"{folder} holds no model: it needs config.json and *.safetensors. Give a folder as Transformers saves it, "
            "for example: huggingface-cli download Qwen/Qwen3-4B --local-dir models/Qwen3-4B."
        )
        raise SciSciRLError(msg)
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
