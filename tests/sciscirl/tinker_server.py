"""A real Tinker server on this machine, started as a user starts it, and the scripts run against it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from tests.conftest import REPOSITORY

_SECONDS_TO_STOP = 300
SECONDS_TO_RUN = 900  # the SDK itself would go on asking a server that is gone for two hours


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
        environment: of a process that is to reach the server, with MODEL and RENDERER as it printed them. A test that
            talks to it by itself sets TINKER_BASE_URL and TINKER_API_KEY of these.
    """

    base_url: str
    model: str
    renderer: str
    slice: Path
    state: Path
    environment: dict[str, str]

    def run(self, script: str, *words: str, check: bool = True, cwd: Path | None = None):
        """Run one of ``scripts/``; with ``check`` it has to end well."""
        return run_script(script, *words, environment=self.environment, check=check, cwd=cwd)

    @property
    def is_up(self) -> bool:
        address = urlsplit(self.base_url)
        with socket.socket() as probe:
            return probe.connect_ex((address.hostname, address.port)) == 0


def command(script: str, *words: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "scripts" / script), *words]


def run_script(script: str, *words: str, environment=os.environ, check: bool = True, cwd: Path | None = None):
    done = subprocess.run(
        command(script, *words),
        capture_output=True, text=True, check=False, env={**environment}, cwd=cwd, timeout=SECONDS_TO_RUN,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def page_commands(server: TinkerServer) -> list[list[str]]:
    """What the page of the local server says to type, as script and words, its variables filled in."""
    page = (REPOSITORY / "docs" / "rl" / "local_server.md").read_text("utf-8")
    block = re.search(r"paste the four lines.*?```bash\n(.*?)```", page, re.DOTALL)[1].replace("\\\n", "")
    lines = [shlex.split(Template(line).substitute(server.environment)) for line in block.splitlines()]
    assert {line[0] for line in lines} == {".venv/bin/python"}
    return [[line[1].removeprefix("scripts/"), *line[2:]] for line in lines]


@contextmanager
def served(release: Path, state: Path) -> Generator[TinkerServer]:
    """Run the script as a user would, and read from what it prints how to reach the server."""
    words = (
        "--tiny",
        "--release",
        str(release),
        "--style",
        "plain",
        "--contract",
        "four_keys",
        "--max-lora-rank",
        "8",
        "--max-lora-adapters",
        "12",  # the slot of a run is free 90 s after its end, and a file may train that many in that time
    )
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
        exported = dict(word.split("=", 1) for word in shlex.split(printed, comments=True) if word != "export")
        environment = {**os.environ, **exported, "HF_HUB_OFFLINE": "1", "TINKER_TELEMETRY": "0"}
        where, model, renderer = (exported[name] for name in ("TINKER_BASE_URL", "MODEL", "RENDERER"))
        yield TinkerServer(where, model, renderer, release, state, environment)
    finally:
        process.send_signal(signal.SIGINT)
        process.stdout.close()
        try:
            process.wait(_SECONDS_TO_STOP)
        finally:
            process.kill()  # where it has not ended: the server then ends by itself
