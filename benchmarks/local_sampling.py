"""Measure sampling with a model in this process: tokens a second, seconds a paper, memory.

python benchmarks/local_sampling.py --model MODEL --release slices/mine --papers 24 --answers 1
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from pathlib import Path

import torch

from sciscirl.envs.env import build_messages
from sciscirl.presets import find_preset
from sciscirl.runs.chat_format import choose_renderer, make_renderer
from sciscirl.runs.local_completer import LocalCompleter
from sciscirl.runs.local_model import count_threads, load_local_model
from sciscirl.task.papers import read_split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--release", required=True)
    parser.add_argument("--preset", default="exp4")
    parser.add_argument("--split", default="train")
    parser.add_argument("--papers", type=int, default=24)
    parser.add_argument("--answers", type=int, default=1, help="to each paper")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer; none is stopped, so all have as many")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(count_threads())
    rules = find_preset(options.preset).rules
    renderer = make_renderer(options.model, choose_renderer(options.model))
    papers = read_split(options.release, options.split)[: options.papers]
    prompts = [renderer.build_generation_prompt(build_messages(paper, rules, renderer)) for paper in papers]
    prompts = [prompt for prompt in prompts for _ in range(options.answers)]
    model = load_local_model(Path(options.model), dtype=options.dtype)
    completer = LocalCompleter(
        model, renderer.tokenizer, max_tokens=options.tokens, temperature=1.0, batch_size=options.batch_size
    )

    async def ask() -> list:
        return await asyncio.gather(*(completer(prompt, []) for prompt in prompts))

    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun, cpu = time.perf_counter(), time.process_time()
    answers = asyncio.run(ask())
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    n_sampled, n_read = sum(len(answer.tokens) for answer in answers), sum(prompt.length for prompt in prompts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if torch.cuda.is_available():
        peak, loaded = torch.cuda.max_memory_allocated() // 1024, 0
    print(
        f"{torch.get_num_threads()} threads, {options.dtype}: {len(prompts)} answers to {len(papers)} papers, "
        f"{n_read / len(prompts):,.0f} tokens a prompt, {n_sampled:,} sampled: "
        f"{n_sampled / seconds:.0f} tokens a second, "
        f"{seconds / len(papers):.2f} s a paper ({cpu / len(papers):.2f} CPU s), "
        f"at most {peak / 2**20:.1f} GB ({loaded / 2**20:.1f} GB before)"
    )


if __name__ == "__main__":
    main()
