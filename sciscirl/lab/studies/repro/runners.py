"""Ask a model under one setting: in this process (number format, kernel, device, threads) or on a Tinker server."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import platform
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tinker
import torch
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.tokenizer_utils import Tokenizer
from transformers.utils.logging import disable_progress_bar

from sciscirl.errors import SciSciRLError
from sciscirl.lab.models.local_completer import LocalCompleter
from sciscirl.lab.models.local_model import load_base_model
from sciscirl.lab.models.local_scores import pad_left
from sciscirl.lab.studies.repro.settings import Setting

_log = logging.getLogger(__name__)


@dataclass
class LocalRunner:
    """A loaded model in evaluation mode. Random numbers depend on seed, prompt and place alone."""

    model: Any  # a PreTrainedModel
    tokenizer: Tokenizer
    batch_size: int
    max_tokens: int
    seed: int

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

    async def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return the log-probability of each token of an answer after its prompt, all answers in one pass."""
        with torch.no_grad():  # as a decorator it would end before a coroutine begins
            return self._score(pairs)

    def _score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        tokens, mask, positions = pad_left([prompt + answer for prompt, answer in pairs], self.model.device)
        n_kept = max(len(answer) for _, answer in pairs)
        logits = self.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            use_cache=False,
            logits_to_keep=n_kept + 1,
        ).logits
        scores = logits[:, :-1].float().log_softmax(dim=-1).gather(2, tokens[:, -n_kept:, None])[:, :, 0].tolist()
        return [row[n_kept - len(answer) :] for row, (_, answer) in zip(scores, pairs, strict=True)]


@dataclass
class SeededCompleter(TokenCompleter):
    """The cookbook's ``TinkerTokenCompleter``, with a seed."""

    client: tinker.SamplingClient
    max_tokens: int
    temperature: float
    seed: int

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        """Sample one answer to a prompt."""
        parameters = tinker.SamplingParams(
            max_tokens=min(self.max_tokens, max_tokens or self.max_tokens),
            seed=self.seed,
            stop=stop,
            temperature=self.temperature,
        )
        response = await self.client.sample(model_input, num_samples=1, sampling_params=parameters)
        (sequence,) = response.sequences
        return TokensWithLogprobs(
            tokens=sequence.tokens, maybe_logprobs=sequence.logprobs, stop_reason=sequence.stop_reason
        )


@dataclass
class ServerRunner:
    """A client that may have ``batch_size`` requests open at a time."""

    client: tinker.SamplingClient
    batch_size: int
    max_tokens: int
    seed: int

    def completer(self, temperature: float) -> TokenCompleter:
        """Return what samples; 0 is greedy."""
        return SeededCompleter(self.client, self.max_tokens, temperature, self.seed)

    async def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]] | None:
        """Return the log-probability of each token of an answer after its prompt; None if the server has none."""
        inputs = [tinker.ModelInput.from_ints(prompt + answer) for prompt, answer in pairs]
        try:
            found = await asyncio.gather(*(self.client.compute_logprobs(one) for one in inputs))
        except (tinker.RequestFailedError, tinker.APIStatusError) as error:
            _log.warning("the server computes no log-probabilities: %s", " ".join(str(error).split())[:200])
            return None
        scores = [row[len(row) - len(answer) :] for row, (_, answer) in zip(found, pairs, strict=True)]
        if any(value is None for row in scores for value in row):
            return None
        return [[float(value or 0.0) for value in row] for row in scores]


@contextmanager
def open_local(
    folder: Path, tokenizer: Tokenizer, setting: Setting, *, max_tokens: int, seed: int
) -> Generator[LocalRunner]:
    """Load a model under a setting; the number of threads is restored at the end."""
    threads = torch.get_num_threads()
    torch.set_num_threads(setting.n_threads or threads)
    disable_progress_bar()  # of loading: the sweep has its own
    try:
        model = _load(folder, setting)
        yield LocalRunner(model, tokenizer, setting.batch_size, max_tokens, seed)
    finally:
        torch.set_num_threads(threads)


def _load(folder: Path, setting: Setting) -> Any:  # noqa: ANN401
    device, dtype = setting.device or "cpu", setting.dtype or "float32"
    load = partial(load_base_model, str(folder), device=device, attention=setting.attention)
    if dtype != "int8":
        return load(dtype=dtype).eval()
    return (_round_to_int8(load(dtype="float32")) if device == "cpu" else load(quantize="int8", dtype="float16")).eval()


def _round_to_int8(model: Any) -> Any:  # noqa: ANN401
    with warnings.catch_warnings():
        # Deprecated for torchao, one more dependency with the same kernels; torch is pinned to a version that has it.
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)  # pyright: ignore[reportDeprecated]


def describe_machine() -> dict[str, Any]:
    """Describe this machine in JSON types: everything that may change the last bit of a sum.

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
    """Return the SHA-256 over a model's configuration and weights; the folder's name has no part in it."""
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
