"""The cookbook's supervised loop, against a server of this process that remembers what it was trained on.

Its calls have two names each: the loop of 0.6.1 leaves out ``_async``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chz
import pytest
import tinker
import torch
from tinker_cookbook import checkpoint_utils
from tinker_cookbook.supervised import train

from sciscirl.lab.sft.examples import list_settings, make_papers_builder
from sciscirl.lab.sft.tinker_backend import make_config
from sciscirl.options import TinkerSftOptions, resolve_run
from sciscirl.runs.checkpoints import list_weights, read_checkpoints
from sciscirl.runs.record import Course, begin_run
from tests.sciscirl.toy import RENDERER, gold_of

N_STEPS, SIZE = 8, 3


@dataclass
class Server:
    """Takes requests in order, as a server does: a saved state holds every batch that was sent before."""

    kill_at: int | None = None
    saved: dict[str, list[str]] = field(default_factory=dict)

    def connect(self, **_: Any) -> Service:
        return Service(self)


@dataclass
class Service:
    server: Server

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    async def create_lora_training_client_async(self, **_: Any) -> Client:
        return Client(self.server, [])

    async def create_training_client_from_state_with_optimizer_async(self, path: str, **_: Any) -> Client:
        return Client(self.server, self.server.saved[path].copy())

    create_lora_training_client = create_lora_training_client_async
    create_training_client_from_state_with_optimizer = create_training_client_from_state_with_optimizer_async


@dataclass
class Future:
    """An answer that is there at once, to be awaited in the ways of both versions."""

    answer: SimpleNamespace

    async def result_async(self) -> SimpleNamespace:
        return self.answer

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result_async().__await__()


@dataclass
class Client:
    server: Server
    trained: list[str]

    def forward_backward(self, data: list[tinker.Datum], loss_fn: str) -> Future:
        if len(self.trained) == self.server.kill_at:
            raise KeyboardInterrupt
        self.trained.append(repr([datum.model_input.to_ints() for datum in data]))
        zeros = [torch.zeros(len(datum.loss_fn_inputs["weights"].data)) for datum in data]
        outputs = [{"logprobs": tinker.TensorData.from_torch(one)} for one in zeros]
        return Future(SimpleNamespace(loss_fn_outputs=outputs))

    def optim_step(self, *_: Any) -> Future:
        return Future(SimpleNamespace(metrics={}))

    def _save(self, name: str, kind: str) -> Future:
        path = f"tinker://run-{len(self.server.saved)}/{kind}/{name}"
        self.server.saved[path] = self.trained.copy()
        return Future(SimpleNamespace(path=path))

    def save_state(self, name: str, **_: Any) -> Future:
        return self._save(name, "weights")

    def save_weights_for_sampler(self, name: str, **_: Any) -> Future:
        return self._save(name, "sampler_weights")

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Future]]:
        call = getattr(self, name.removesuffix("_async")) if name.endswith("_async") else None
        if call is None:
            raise AttributeError(name)

        async def called(*words: Any, **more: Any) -> Future:
            return call(*words, **more)

        return called


@pytest.fixture
def options(toy_slice, toy_model, tmp_path, monkeypatch):
    async def check(*_: Any) -> None:
        """The chat format of a checkpoint is not what is tested here."""

    monkeypatch.setattr(checkpoint_utils, "check_renderer_name_for_checkpoint_async", check)
    root, handlers, level = logging.getLogger(), logging.getLogger().handlers.copy(), logging.getLogger().level
    yield TinkerSftOptions(
        release=str(toy_slice), model=toy_model, renderer=RENDERER, log_path=str(tmp_path / "run"), eval_split="test",
        batch_size=SIZE, n_epochs=1, save_every=2,
    )  # fmt: skip
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


def run(options: TinkerSftOptions, server: Server, monkeypatch, behavior="raise") -> list[str]:
    """Train as ``train_on_tinker`` does, without evaluations. Return the batches behind the last weights."""
    folder = Path(str(options.log_path))
    folder.mkdir(exist_ok=True)
    resolved = resolve_run(options)
    builder = make_papers_builder(resolved)
    settings = list_settings(resolved, builder)
    first_step = begin_run(folder, Path(options.release), settings, behavior, course=Course(steps_per_epoch=N_STEPS))
    monkeypatch.setattr(train.tinker, "ServiceClient", server.connect)
    config = chz.replace(make_config(resolved, builder, first_step=first_step), evaluator_builders=[])
    asyncio.run(train.main(config))
    return server.saved[str(read_checkpoints(folder)[-1].state_path)]


@pytest.mark.parametrize("kill_at", [1, 4, 5])
def test_a_resumed_run_trains_on_every_batch_once_and_in_order(options, monkeypatch, kill_at):
    examples = gold_of(options)
    prompts = [list(example.tokens[:-1]) for example in examples]
    batches = [repr(prompts[start : start + SIZE]) for start in range(0, len(prompts), SIZE)]
    assert len(set(batches)) == N_STEPS

    server = Server(kill_at=kill_at)
    with pytest.raises(KeyboardInterrupt):
        run(options, server, monkeypatch)
    folder = Path(str(options.log_path))
    assert [record.batch for record in read_checkpoints(folder)] == list(range(2, kill_at + 1, 2))
    server.kill_at = None
    assert run(options, server, monkeypatch, "resume") == batches
    # What is kept as a step has had that many steps, to resume from and to sample from.
    assert [*list_weights(folder)] == [2, 4, 6, N_STEPS]
    for step, path in list_weights(folder).items():
        assert server.saved[path] == batches[:step]
