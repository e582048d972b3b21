"""Start SkyRL's Tinker API on this machine, wait until its model is loaded, and stop it with all its children."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import platformdirs
from msgspec import Meta

from sciscidata.options.checks import PositiveInt, check_fields
from sciscidata.terminal.processes import python_command
from sciscirl.errors import LocalServerError
from sciscirl.runs.folder import locked_folder

logger = logging.getLogger(__name__)

#: The server accepts any key of Tinker's form.
API_KEY: Final = "tml-local"

_HOST: Final = "127.0.0.1"
_PROGRAM: Final = Path(__file__).with_name("skyrl_process.py")
_SECONDS_TO_STOP: Final = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalServerConfig:
    """Options of the server.

    Attributes:
        model: a model directory as Transformers saves it; clients name the model by this path, made absolute.
        state: the folder of checkpoints, database and log, which stay when the server ends (by default in the user's
            data folder).
        port: of this machine; 0 takes a free one.
        max_lora_rank: highest LoRA rank that a client may ask for; the cookbook's default is 32.
        max_lora_adapters: adapters in memory: one for the base model, one for each training run, and one for each
            other model that is sampled from. On a CPU each costs a little time in every pass, used or not.
        sample_batch: answers sampled in one pass.
        train_batch: sequences in one training pass. Both sizes are fixed, so that no other size has to be compiled.
        seconds_to_start: how long loading the model may take.
    """

    model: Path
    state: Path = platformdirs.user_data_path("sciscirl") / "server"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    max_lora_rank: PositiveInt = 32
    max_lora_adapters: PositiveInt = 4
    sample_batch: PositiveInt = 32
    train_batch: PositiveInt = 32
    seconds_to_start: Annotated[float, Meta(gt=0)] = 600.0

    def __post_init__(self) -> None:
        check_fields(self, LocalServerError)
        for name in ("config.json", "tokenizer.json"):
            if not (self.model / name).is_file():
                raise LocalServerError(
                    f"{self.model} holds no model: it has no {name}. Name a model directory as Transformers saves it, "
                    "or make a small one with get_tiny_model (sciscirl serve --tiny)."
                )


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that answers. ``process`` ends when it is stopped, or when it fails."""

    base_url: str
    model: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for a client: the address, and a key of the right form."""
        return {"TINKER_BASE_URL": self.base_url, "TINKER_API_KEY": API_KEY}


@contextmanager
def serve(config: LocalServerConfig, python: Path) -> Generator[LocalServer]:
    """Run the server by its interpreter while the block runs; it begins when the model is loaded."""
    log, ready = config.state / "server.log", config.state / "ready"
    if (log.exists() or ready.exists()) and not (config.state / ".lock").exists():
        raise LocalServerError(f"{config.state} is no folder of this server. Choose another: LocalServerConfig.state.")
    with locked_folder(config.state, user="server", option="folder: LocalServerConfig.state", error=LocalServerError):
        port = _choose_port(config.port)
        ready.unlink(missing_ok=True)
        with log.open("wb") as output:
            # Standard input is a pipe without a writer: it closes when this process ends, however it ends.
            process = subprocess.Popen(
                _command(config, python, port),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_child_environment(ready, python.parent.parent / "compiled"),
                start_new_session=True,
            )
        try:
            server = LocalServer(f"http://{_HOST}:{port}", str(config.model.resolve()), log, process)
            _wait_until_ready(server, ready, config.seconds_to_start)
            yield server
        finally:
            _stop(process)


def _command(config: LocalServerConfig, python: Path, port: int) -> list[str]:
    state = config.state.resolve()
    backend = {
        "max_lora_adapters": config.max_lora_adapters,
        "max_lora_rank": config.max_lora_rank,
        "sample_max_num_sequences": config.sample_batch,
        "train_micro_batch_size": config.train_batch,
    }
    options = {
        "--base-model": str(config.model.resolve()),
        "--backend": "jax",
        "--backend-config": json.dumps(backend),
        "--checkpoints-base": str(state / "checkpoints"),
        "--database-url": f"sqlite:///{state / 'server.db'}",
        # Clients send a heartbeat every ten seconds; the adapter slot of a killed one is soon free again.
        "--session-timeout-sec": "90",
        "--session-cleanup-interval-sec": "10",
        "--host": _HOST,
        "--port": str(port),
    }
    words = (word for option in options.items() for word in option)
    return python_command(str(_PROGRAM), "api", *words, python=python)


def _child_environment(ready: Path, compiled: Path) -> dict[str, str]:
    # The model is a folder, so no hub is asked; packages of this interpreter must not be visible.
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TINKER", "SKYRL"))}
    return {
        **mine,
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",
        "SCISCIRL_READY_FILE": str(ready.resolve()),
        # Compile once for a model and its batch sizes; hundreds of small programs take most of the time.
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def _choose_port(wanted: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # A closed port of an earlier server lingers for a minute.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, wanted))
        except OSError as error:
            raise LocalServerError(
                f"port {wanted} of {_HOST} cannot be used: {error.strerror}. Choose another, or 0 for a free one."
            ) from error
        return int(probe.getsockname()[1])


def _wait_until_ready(server: LocalServer, ready: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready.exists():  # the API listens before its engine has loaded the model
        if server.process.poll() is not None:
            said = _last_error(server.log)
            remedy = "It runs no code of a model: serve another. " if "custom code" in said else ""
            raise LocalServerError(
                f"the server ended while loading {server.model}: {said} {remedy}All it said: {server.log}."
            )
        if time.monotonic() > deadline:
            raise LocalServerError(
                f"the server has not loaded {server.model} in {seconds:.0f} s. What it says: {server.log}."
            )
        time.sleep(0.2)


def _last_error(log: Path) -> str:
    """Return the last line of the server's log that names an error: of a traceback, its last line."""
    lines = [line.strip() for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line]
    return (errors or lines or ["no reason given"])[-1].rstrip(".") + "."


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server, which ends its engine; then kill what is left."""
    try:
        if process.stdin:
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_STOP)
    finally:  # also when the user cannot wait that long
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
