"""Measure sampling with a real model: tokens a second in this process, and with --skyrl on a local server beside it.

python benchmarks/local_sampling.py --model MODEL --release slices/mine --skyrl

Two rounds of the same prompts: one answer to each paper, as an evaluation asks, and several, as a step of reinforcement
learning does. No answer is stopped, so all have as many tokens. The server compiles in a first, uncounted round of each
kind. CPU seconds are those of this process, and of the server with its engine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tinker
import torch

from sciscirl.envs.env import build_messages
from sciscirl.envs.tokenizer import make_renderer
from sciscirl.lab.models.local_completer import LocalCompleter
from sciscirl.lab.models.local_model import count_threads, load_local_model
from sciscirl.presets import find_preset, lay_over
from sciscirl.runs.chat_format import choose_renderer
from sciscirl.task.release import read_split

Ask = Callable[[list[tinker.ModelInput], int], Awaitable[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--release", required=True)
    parser.add_argument("--preset", default="exp4")
    parser.add_argument("--style", default=None, help="of the prompt; None: the preset's")
    parser.add_argument("--hide", nargs="*", default=(), help="fields of a paper that are not shown")
    parser.add_argument("--split", default="train")
    parser.add_argument("--papers", type=int, default=24)
    parser.add_argument("--answers", type=int, default=8, help="to each paper in the second round")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--skyrl", action="store_true", help="ask a local server too; it needs about 8 GB")
    options = parser.parse_args()
    torch.set_num_threads(count_threads())
    changes = {"hide": tuple(options.hide)} | ({"style": options.style} if options.style else {})
    rules = lay_over(find_preset(options.preset), changes).rules
    renderer = make_renderer(options.model, choose_renderer(options.model))
    papers = read_split(options.release, options.split)[: options.papers]
    prompts = [renderer.build_generation_prompt(build_messages(paper, rules, renderer)) for paper in papers]
    few = prompts[: max(1, len(prompts) // options.answers)]
    rounds = {"zero-shot": (prompts, 1), "RL": (few, options.answers)}
    print(f"{options.dtype}, {torch.get_num_threads()} threads, {options.tokens} tokens an answer")
    measure("local", rounds, in_this_process(options, renderer.tokenizer), options.tokens, lambda: 0.0)
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB", flush=True)
    if options.skyrl:
        with on_a_server(options) as (ask, count_cpu):
            for prompts, n in rounds.values():
                asyncio.run(ask(prompts, n))
            measure("SkyRL", rounds, ask, options.tokens, count_cpu)


def measure(name: str, rounds: dict, ask: Ask, n_tokens: int, count_cpu: Callable[[], float]) -> None:
    for kind, (prompts, n) in rounds.items():
        begun, cpu = time.perf_counter(), time.process_time() + count_cpu()
        n_sampled = asyncio.run(ask(prompts, n))
        seconds, cpu = time.perf_counter() - begun, time.process_time() + count_cpu() - cpu
        assert n_sampled == len(prompts) * n * n_tokens, "an answer ended early"
        n_read = sum(prompt.length for prompt in prompts) / len(prompts)
        print(
            f"{name}, {kind}: {n} answers to {len(prompts)} papers, {n_read:,.0f} tokens a prompt: "
            f"{n_sampled / seconds:.0f} tokens a second, {n_sampled / cpu:.0f} a CPU second, {seconds:.1f} s",
            flush=True,
        )


def in_this_process(options: argparse.Namespace, tokenizer: Any) -> Ask:
    model = load_local_model(Path(options.model), dtype=options.dtype)

    async def ask(prompts: list[tinker.ModelInput], n: int) -> int:
        completer = LocalCompleter(
            model, tokenizer, max_tokens=options.tokens, temperature=1.0, batch_size=options.batch_size
        )
        answers = await asyncio.gather(*(completer(prompt, []) for prompt in prompts for _ in range(n)))
        return sum(len(answer.tokens) for answer in answers)

    return ask


@contextmanager
def on_a_server(options: argparse.Namespace) -> Iterator[tuple[Ask, Callable[[], float]]]:
    from sciscirl.lab.local_server.environment import set_up_environment
    from sciscirl.lab.local_server.server import LocalServerConfig, serve
    from sciscirl.runs.server_checks import open_sampling

    model = Path(options.model).resolve()
    with tempfile.TemporaryDirectory() as state:
        config = LocalServerConfig(
            model=model, state=Path(state), port=0, max_lora_rank=8, max_lora_adapters=2,
            sample_batch=options.batch_size, train_batch=1,
        )  # fmt: skip
        with serve(config, set_up_environment()) as server:
            os.environ.update(server.environment)
            wanted = tinker.SamplingParams(max_tokens=options.tokens, temperature=1.0, stop=[])

            async def ask(prompts: list[tinker.ModelInput], n: int) -> int:
                async with open_sampling(str(model), base_url=server.base_url) as client:
                    asked = (client.sample(prompt, num_samples=n, sampling_params=wanted) for prompt in prompts)
                    replies = await asyncio.gather(*asked)
                return sum(len(sequence.tokens) for reply in replies for sequence in reply.sequences)

            yield ask, lambda: cpu_seconds_of_group(server.process.pid)


def cpu_seconds_of_group(group: int) -> float:
    """Return the CPU seconds of all living processes of a group; Linux."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[2]) == group:
            found += int(fields[11]) + int(fields[12])
    return found / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
