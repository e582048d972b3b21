"""Every script says how it is used, and by that changes no file."""

from __future__ import annotations

import subprocess

from tests.conftest import REPOSITORY
from tests.parse_only import ask

_FOLDERS = ("scripts", "docs", "benchmarks", "benchmarks/judgement")


def test_a_script_asked_for_help_says_how_it_is_used_and_writes_nothing():
    scripts = [
        path.relative_to(REPOSITORY).as_posix() for name in _FOLDERS for path in (REPOSITORY / name).glob("*.py")
    ]
    started = [name for name in scripts if '__name__ == "__main__"' in (REPOSITORY / name).read_text("utf-8")]
    assert len(started) > 40
    answers = ask([name, "--help"] for name in started)
    assert not {name: said for name, said in zip(started, answers, strict=True) if said}


def test_a_shell_script_asked_for_help_says_how_it_is_used():
    for path in (REPOSITORY / "packaging").glob("*.sh"):
        done = subprocess.run(["bash", path, "--help"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("usage: ")
