"""A real Tinker server on this machine, started as a user starts it, and the scripts run against it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from tests.conftest import REPOSITORY
from tests.forks import may_fork, start_fork
from tests.servers.serving import choose_port

_SECONDS_TO_STOP = 300
SECONDS_TO_RUN = 3600  # a bound on what hangs, also on a busy machine: the SDK itself would wait for two hours
#: One for the base model, one for a model that is only sampled from, and one for each of the 13 trainings of all tests:
#: a slot is free 90 s after the end of its run, so that fewer might not suffice.
_ADAPTERS = 15


@dataclass(frozen=True)
class TinkerServer:
    """A running server, the one model that it serves, and the release whose papers that model's tokenizer is made for.

    The tiny model is primed for the baseline preset: plain prompt, four keys.

    Attributes:
        base_url: for ``base_url=`` and ``--base-url``.
        model: the model's folder, by which clients ask for it.
        renderer: its chat format.
        release: 96 + 12 works of a synthetic world, and 8 of dev.
        state: the server's checkpoints and database.
        environment: of a process that is to reach the server, with MODEL and RENDERER as it printed them. A test that
            talks to it by itself sets TINKER_BASE_URL and TINKER_API_KEY of these.
    """

    base_url: str
    model: str
    renderer: str
    release: Path
    state: Path
    environment: dict[str, str]

    def start(self, script: str, *words: str, cwd: Path | None = None, is_fork: bool = True) -> Script:
        """Start one of ``scripts/``."""
        return Script(command(script, *words), environment=self.environment, cwd=cwd, is_fork=is_fork)

    def run(self, script: str, *words: str, check: bool = True, cwd: Path | None = None, is_fork: bool = True):
        """Run one of ``scripts/``; with ``check`` it has to end well."""
        done = self.start(script, *words, cwd=cwd, is_fork=is_fork).finish()
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    @property
    def is_up(self) -> bool:
        address = urlsplit(self.base_url)
        with socket.socket() as probe:
            return probe.connect_ex((address.hostname, address.port)) == 0


def command(script: str, *words: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "scripts" / script), *words]


class Script:
    """A process that runs a program of Python; ``out`` and ``err`` are the files that it writes to.

    Args:
        words: those of its command line.
        environment: its variables.
        cwd: its folder.
        is_fork: start it with its libraries loaded, where that makes no difference: see ``tests.forks``.
    """

    def __init__(
        self, words: list[str], *, environment: Mapping[str, str] = os.environ, cwd: Path | None = None,
        is_fork: bool = True,
    ) -> None:  # fmt: skip
        self.words, self.folder = words, tempfile.TemporaryDirectory()
        self.done: subprocess.CompletedProcess[str] | None = None
        self.out, self.err = (Path(self.folder.name, name) for name in ("out", "err"))
        for path in (self.out, self.err):
            path.touch()
        assert words[0] == sys.executable
        self._process: ForkServerProcess | subprocess.Popen[bytes]
        if is_fork and may_fork(environment):
            self._process = start_fork(words[1:], environment=environment, cwd=cwd, out=self.out, err=self.err)
        else:
            with self.out.open("w") as out, self.err.open("w") as err:
                self._process = subprocess.Popen(words, env=dict(environment), cwd=cwd, stdout=out, stderr=err)

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self._process.poll() if isinstance(self._process, subprocess.Popen) else self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def _wait(self) -> None:
        if isinstance(self._process, subprocess.Popen):
            self._process.wait(SECONDS_TO_RUN)
        else:
            self._process.join(SECONDS_TO_RUN)

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end, as ``subprocess.run`` does. A second call returns what the first returned."""
        if self.done is None:
            try:
                self._wait()
                status = self.poll()
                assert status is not None, f"still runs after {SECONDS_TO_RUN} s: {self.words}"
            finally:
                self.kill()
            out, err = (path.read_text("utf-8") for path in (self.out, self.err))
            self.folder.cleanup()
            self.done = subprocess.CompletedProcess(self.words, status, out, err)
        return self.done


def run_script(script: str, *words: str, environment: Mapping[str, str] = os.environ, check: bool = True):
    """Run one of ``scripts/`` in a process that loads all by itself; with ``check`` it has to end well."""
    done = Script(command(script, *words), environment=environment, is_fork=False).finish()
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@contextmanager
def served(release: Path, state: Path, adapters: int = _ADAPTERS) -> Generator[TinkerServer]:
    """Run the script as a user would, and read from what it prints how to reach the server."""
    options = {
        "--release": release, "--style": "plain", "--contract": "four_keys", "--port": choose_port(), "--state": state,
        "--max-lora-rank": 8, "--max-lora-adapters": adapters,
        "--sample-batch": 8, "--train-batch": 8,  # most tests ask for less, and every pass is padded to it
        "--seconds-to-start": SECONDS_TO_RUN,
    }  # fmt: skip
    words = [str(word) for pair in options.items() for word in pair]
    process = subprocess.Popen(command("serve_local_tinker.py", "--tiny", *words), stdout=subprocess.PIPE, text=True)
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
        process.send_signal(signal.SIGTERM)  # a shell may have started the tests with Ctrl-C ignored
        process.stdout.close()
        try:
            process.wait(_SECONDS_TO_STOP)
        finally:
            process.kill()  # where it has not ended: the server then ends by itself


@contextmanager
def shared_server(home: Path, make_release: Callable[[Path], Path]) -> Generator[TinkerServer]:
    """One server for all processes of a test run: the first starts it, and stops it once no other uses it.

    Args:
        home: a folder that these processes have in common.
        make_release: builds the release in a folder that is not there yet.
    """
    home.mkdir(exist_ok=True)
    known, turn, mine = home / "server.json", FileLock(home / "turn.lock"), FileLock(home / f"{os.getpid()}.user")
    with ExitStack() as mine_to_stop:
        with turn:
            mine.acquire()
            if known.exists():
                facts = json.loads(known.read_text("utf-8"))
                server = TinkerServer(**facts | {name: Path(facts[name]) for name in ("release", "state")})
            else:
                number = time.monotonic_ns()
                release = make_release(home / f"release-{number}")
                server = mine_to_stop.enter_context(served(release, home / f"state-{number}"))
                known.write_text(json.dumps(asdict(server), default=str), "utf-8")
                mine_to_stop.callback(_retire, home, turn, known)
        try:
            yield server
        finally:
            mine.release()


def _retire(home: Path, turn: FileLock, known: Path) -> None:
    """Wait for the other users, and let nobody begin to use the server from then on."""
    while True:
        with turn:
            if not any(_is_held(user) for user in home.glob("*.user")):
                known.unlink()
                return
        time.sleep(0.1)


def _is_held(path: Path) -> bool:
    try:
        FileLock(path, timeout=0).acquire().lock.release()
    except Timeout:
        return True
    return False
