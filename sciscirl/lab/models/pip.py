"""Install pinned files by pip: each must have a listed SHA-256, and nothing is built."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sciscidata.terminal.heartbeat import follow
from sciscidata.terminal.processes import python_command, python_environment

logger = logging.getLogger(__name__)


def make_environment(folder: Path) -> tuple[Path, str | None]:
    """Make a virtual environment; return its interpreter, and why that failed, or None."""
    made = _run(python_command("-m", "venv", str(folder)))
    return find_interpreter(folder), find_reason(made) if made.returncode else None


def find_interpreter(folder: Path) -> Path:
    """Return where the interpreter of an environment lies."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def run_pip(*words: str, python: str = sys.executable) -> str | None:
    """Run ``pip WORDS`` in an environment. Return why it failed, in pip's own words; None: it did not fail.

    What pip says is logged as it comes, with the number of packages so far.
    """
    if python == sys.executable and importlib.util.find_spec("pip") is None:  # uv makes environments without it
        with tempfile.TemporaryDirectory() as home:
            other, reason = make_environment(Path(home))
            return reason or run_pip(*words, python=str(other))
    verb, *more = words
    command = python_command("-m", "pip", verb, "--no-input", "--disable-pip-version-check", python=python)
    command += ["--require-hashes", "--only-binary", ":all:", *more]
    n_packages = 0

    def tell(line: str) -> None:
        nonlocal n_packages
        n_packages += line.startswith("Collecting ")
        logger.info("%s packages, %s", n_packages, " ".join(line.split()))

    done = follow(command, tell, python_environment())
    return find_reason(done) if done.returncode else None


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, env=python_environment()
    )


def find_reason(done: subprocess.CompletedProcess[str]) -> str:
    r"""Return the line of a command's output that says why it failed.

    Example:
        >>> find_reason(subprocess.CompletedProcess([], 1, "", "ERROR: No wheel\nERROR: No torch.\n[notice] New"))
        'No torch.'
    """
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no reason given"])[-1].removeprefix("ERROR:").strip().rstrip(".") + "."
