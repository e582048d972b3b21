"""Serve Tinker's API on this machine, for a small model or your own: python scripts/serve_local_tinker.py --help."""

from __future__ import annotations

import argparse
import logging
import shlex
import signal
import sys
from collections.abc import Sequence

import platformdirs

from sciscidata._support.terminal import TextParser
from sciscirl.cli.command_line import run_script, show
from sciscirl.errors import LocalServerError
from sciscirl.local_server.environment import set_up_environment
from sciscirl.local_server.server import LocalServerConfig, serve
from sciscirl.local_server.tiny_model import TINY_RENDERER, TinyModelConfig, get_tiny_model
from sciscirl.runs.folder import expand_home
from sciscirl.task.papers import read_split

N_PAPERS = 50  # of a slice, to make the tiny model's tokenizer from


def main(words: Sequence[str]) -> None:
    """Set up what is missing, start the server, and stay until it is interrupted."""
    options = read_options(words)
    model, renderer = options.model, None
    if options.tiny:
        views = [paper.view for paper in read_split(options.slice, "train")[:N_PAPERS]] if options.slice else []
        tiny = TinyModelConfig(priming_steps=options.priming_steps, contract=options.contract, style=options.style)
        model, renderer = get_tiny_model(views, tiny, cache=options.cache), TINY_RENDERER
    config = LocalServerConfig(
        model=model,
        state=options.state,
        port=options.port,
        max_lora_rank=options.max_lora_rank,
        max_lora_adapters=options.max_lora_adapters,
        sample_batch=options.sample_batch,
        train_batch=options.train_batch,
    )
    python = set_up_environment(cuda=options.cuda, cache=options.cache)
    with serve(config, python) as server:
        exported = {**server.environment, "MODEL": server.model, "RENDERER": renderer}
        for name, value in exported.items():
            if value is not None:
                show(f"export {name}={shlex.quote(value)}")
        show(f"# log: {server.log}; stop with Ctrl-C", flush=True)
        status = server.wait()
    msg = f"the server ended by itself with status {status}. What it said: {server.log}."
    raise LocalServerError(msg)


def read_options(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = TextParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    served = parser.add_mutually_exclusive_group(required=True)
    served.add_argument("--tiny", action="store_true", help="make and serve a model that knows nothing")
    served.add_argument(
        "--model", type=expand_home, metavar="DIR", help="serve a model directory as Transformers saves it"
    )
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    state = platformdirs.user_data_path("sciscirl") / "server"
    parser.add_argument("--state", type=expand_home, default=state, metavar="DIR", help="checkpoints, database and log")
    cache = platformdirs.user_cache_path("sciscirl")
    parser.add_argument(
        "--cache", type=expand_home, default=cache, metavar="DIR", help="the server's environment, tiny models"
    )
    parser.add_argument("--cuda", action="store_true", help="run on an NVIDIA GPU")
    parser.add_argument("--max-lora-rank", type=int, default=32)
    parser.add_argument("--max-lora-adapters", type=int, default=4, help="models in memory at a time, and one")
    parser.add_argument("--sample-batch", type=int, default=32, help="answers sampled at a time")
    parser.add_argument("--train-batch", type=int, default=32, help="sequences in one pass")
    tiny = parser.add_argument_group("with --tiny")
    tiny.add_argument(
        "--slice", type=expand_home, metavar="DIR", help="make the tokenizer for the papers of this release"
    )
    tiny.add_argument("--priming-steps", type=int, default=500, help="teach it what an answer looks like; 0: random")
    tiny.add_argument("--contract", choices=("two_keys", "four_keys"), default="two_keys", help="of these answers")
    tiny.add_argument("--style", choices=("plain", "ontology", "checklist"), default="plain", help="of the prompts")
    return parser.parse_args(words)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # children are stopped either way
    sys.exit(run_script(main))
