"""Let a vLLM server on this machine sample with the adapter that is being trained."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import tinker
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs

from sciscirl.errors import SciSciRLError

_TIMEOUT: Final = httpx.Timeout(600, pool=None)
#: What the server takes from the model's generation_config.json, unless a request says it.
_NO_OTHER_SAMPLING: Final = {
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


@dataclass(frozen=True, kw_only=True)
class VllmServer:
    """A server that ``vllm serve MODEL`` has started, and the model that a run trains.

    Attributes:
        url: without a path, like http://127.0.0.1:8000. The environment's VLLM_API_KEY is sent to it.
        model: a folder, or a name of the hub.
        rank: of the adapters.
    """

    url: str
    model: str
    rank: int

    def check(self) -> None:
        """Make sure that it serves this model (SciSciRLError)."""
        served = self._call("GET", "/v1/models").get("data", [])
        names = [str(one.get("root") or one.get("id")) for one in served]
        if not any(name == self.model or _is_same_folder(name, self.model) for name in names):
            what = f"serves {', '.join(names) or 'nothing'}, but this run trains {self.model}"
            msg = f"the vLLM server at {self.url} {what}. {self._how_to_start()}"
            raise SciSciRLError(msg)

    @contextmanager
    def serving(self, model: Any, folder: Path) -> Generator[str]:  # noqa: ANN401 (PeftModel)
        """Serve the adapter as it is now, while the block runs; give its name. ``folder`` holds it meanwhile."""
        name = f"sciscirl-{secrets.token_hex(8)}"  # new weights need a new name: the server keeps what it computed
        with tempfile.TemporaryDirectory(prefix=".sampling-", dir=folder) as adapter:
            model.save_pretrained(adapter)
            self._call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(Path(adapter).absolute())})
            try:
                yield name
            finally:
                self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    def read(self, answer: httpx.Response) -> dict[str, Any]:
        """Return what the server answered (SciSciRLError if it refused)."""
        if answer.status_code == 404 and "lora_adapter" in answer.url.path:
            msg = f"the vLLM server at {self.url} takes no adapters. {self._how_to_start()}"
            raise SciSciRLError(msg)
        if answer.is_error:
            said = f"{answer.status_code}: {answer.text[:500]}"
            msg = f"the vLLM server at {self.url} refused {answer.url.path} with HTTP {said}"
            raise SciSciRLError(msg)
        try:
            found = answer.json()
        except ValueError:
            return {}  # loading an adapter is answered with a sentence
        return found if isinstance(found, dict) else {}

    def unreachable(self, error: httpx.HTTPError) -> SciSciRLError:
        """Say that there is no answer."""
        return SciSciRLError(
            f"no answer from a vLLM server at {self.url} ({type(error).__name__}). {self._how_to_start()}"
        )

    @property
    def headers(self) -> dict[str, str]:
        """What every request holds."""
        key = os.environ.get("VLLM_API_KEY")
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _call(self, verb: str, path: str, body: object = None) -> dict[str, Any]:
        try:
            answer = httpx.request(verb, self.url + path, json=body, headers=self.headers, timeout=_TIMEOUT)
        except httpx.HTTPError as error:
            raise self.unreachable(error) from None
        return self.read(answer)

    def _how_to_start(self) -> str:
        return (
            f"Start one: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve {self.model} --enable-lora "
            f"--max-lora-rank {self.rank}"
        )


@dataclass(eq=False, kw_only=True)
class VllmCompleter(TokenCompleter):
    """Answers of a server. Their seeds follow from that of the run, the prompt, and its place among equal ones."""

    server: VllmServer
    name: str  # of the adapter
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    _asked: Counter[tuple[int, ...]] = field(default_factory=Counter[tuple[int, ...]])

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        """Complete a prompt: tokens with the one that stopped it, and their log-probabilities at temperature 1."""
        prompt = model_input.to_ints()
        copy = self._asked[tuple(prompt)]
        self._asked[tuple(prompt)] += 1
        key = hashlib.sha256(f"{self.seed}:{copy}:{prompt}".encode()).digest()
        asked: dict[str, Any] = {
            "model": self.name,
            "prompt": prompt,
            "max_tokens": min(self.max_tokens, max_tokens or self.max_tokens),
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": int.from_bytes(key[:4]),
            "logprobs": 0,
            "return_token_ids": True,
            "ignore_eos": True,  # only what the chat format names ends an answer
            "stop_token_ids": [end for end in stop if isinstance(end, int)],
            "stop": [end for end in stop if isinstance(end, str)],
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            **_NO_OTHER_SAMPLING,
        }
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT, headers=self.server.headers) as client:
                answer = await client.post(f"{self.server.url}/v1/completions", json=asked)
        except httpx.HTTPError as error:
            raise self.server.unreachable(error) from None
        (choice,) = self.server.read(answer)["choices"]
        tokens, logprobs = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
        if not tokens or not logprobs or len(tokens) != len(logprobs):
            msg = f"the vLLM server at {self.server.url} sent no tokens with log-probabilities. Install a newer vLLM."
            raise SciSciRLError(msg)
        reason = "stop" if choice.get("finish_reason") == "stop" else "length"
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=logprobs, stop_reason=reason)


def _is_same_folder(one: str, other: str) -> bool:
    return Path(one).exists() and Path(other).exists() and Path(one).samefile(other)
