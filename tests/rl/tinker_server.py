"""A real Tinker server on this machine, started as a user starts it, and the scripts run against it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sciscirl.local_server.tiny_model import TINY_RENDERER
from tests.conftest import REPOSITORY

_SECONDS_TO_STOP = 60


@dataclass(frozen=True)
class TinkerServer:
    """A running server, the one model that it serves, and the slice whose papers that model's tokenizer is made for.

    The tiny model is primed for the baseline preset: plain prompt, four keys.

    Attributes:
        base_url: for ``base_url=`` and ``--base-url``.
        model: the model's folder, by which it is asked for.
        renderer: its chat format.
        slice: a release of 96 + 12 works of a synthetic world.
        state: the server's checkpoints and database.
        environment: of a process that is to reach the server. A test that talks to it by itself sets the two of
            TINKER_BASE_URL and TINKER_API_KEY in there.
    """

    base_url: str
    model: str
    renderer: str
    slice: Path
    state: Path
    environment: dict[str, str]

    def run(self, script: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of ``scripts/``; with ``check`` it has to end well."""
        return run_script(script, *words, environment=self.environment, check=check)

    @property
    def is_up(self) -> bool:
        address = urlsplit(self.base_url)
        with socket.socket() as probe:
            return probe.connect_ex((address.hostname, address.port)) == 0


def command(script: str, *words: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "scripts" / script), *words]


def run_script(script: str, *words: str, environment=os.environ, check: bool = True):
    done = subprocess.run(command(script, *words), capture_output=True, text=True, env={**environment}, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@contextmanager
def served(release: Path, state: Path) -> Generator[TinkerServer]:
    """Run the script as a user would, and read from what it prints how to reach the server."""
    words = ("--tiny", "--slice", str(release), "--style", "plain", "--contract", "four_keys", "--max-lora-rank", "8")
    process = subprocess.Popen(
        command("serve_local_tinker.py", *words, "--port", "0", "--state", str(state)),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        printed = ""
        while "stop with Ctrl-C" not in printed:
            line = process.stdout.readline()
            assert line, f"the server's script ended: {process.wait()}"
            printed += line
        exported = dict(re.findall(r"export (\w+)=(.*)", printed))
        environment = {**os.environ, **exported, "HF_HUB_OFFLINE": "1", "TINKER_TELEMETRY": "0"}
        model = re.search("model=(.*) r", printed)[1]
        yield TinkerServer(exported["TINKER_BASE_URL"], model, TINY_RENDERER, release, state, environment)
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        process.wait(_SECONDS_TO_STOP)
