"""What reaches a terminal is text, and a stream that cannot be written is one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sciscidata.config import BuildConfig
from sciscidata.pipeline import build
from sciscidata.release.read import hash_manifest, render_manifest
from sciscidata.sampling.config import SplitConfig
from sciscidata.sources.synthetic.source import SyntheticConfig
from sciscidata.terminal.messages import printable
from tests.program import run

#: Writes the clipboard of many terminals; clears the screen; turns a line around; forges a line; ends a C1 string.
HOSTILE = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\u202e\nverified: all\r\x9b"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    home = tmp_path_factory.mktemp("release")
    split = SplitConfig(n_train=30, n_test=3)
    places = {"out": home / "slice", "cache_dir": home / "cache"}
    build(BuildConfig(source=SyntheticConfig(n_works=2_000), split=split, novelty=None, **places))
    return home / "slice"


def assert_is_text(done: subprocess.CompletedProcess[bytes]) -> str:
    """Make sure that no control character but ends of lines came out, and give all that did."""
    said = (done.stdout + done.stderr).decode()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", said), said
    assert "Traceback" not in said
    assert "verified: all" not in said.splitlines()
    return said


def test_no_control_character_survives_and_every_letter_does():
    every = "".join(map(chr, (*range(0x3000), *range(0xD7F0, 0xE010), 0x1F600)))
    shown = printable(every)
    assert shown.isascii() is False
    assert "é夢".encode().decode() == printable("é夢")
    hidden = set(map(chr, (*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A))))
    hidden |= set(map(chr, range(0xD800, 0xE000)))
    assert not hidden & set(shown)
    assert set(every) - hidden <= set(shown)


def test_what_a_manifest_says_is_shown_and_not_executed(release, tmp_path):
    folder = tmp_path / "slice"
    folder.mkdir()
    for file in release.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((release / "manifest.json").read_bytes())
    manifest["source"] |= {"kind": HOSTILE, HOSTILE: HOSTILE, "inputs": [{"name": HOSTILE, "sha256": HOSTILE}]}
    manifest["source"]["first_corrupt_lines"] = [{"file": HOSTILE, "line": 1, "reason": HOSTILE}]
    (folder / "manifest.json").write_bytes(render_manifest(manifest | {"manifest_sha256": hash_manifest(manifest)}))
    command = [sys.executable, "-m", "sciscidata", "describe", "slice", "--verbose"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=600)
    said = assert_is_text(done)
    assert done.returncode == 0, said
    assert r"source: \x1b]52;c;cm0gLXJm\x07\x1b[2J\u202e\nverified: all\r\x9b" in said


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
def test_names_of_files_and_ids_of_records_are_shown_and_not_executed(tmp_path):
    name = HOSTILE.replace("/", "-") + ".jsonl"
    (tmp_path / name).write_text(json.dumps({"id": HOSTILE}) + "\n" + json.dumps({"id": "W1", "title": 5}) + "\n")
    for words in (
        ("build", "--input", name, "--strict", "--out", "a"),
        ("describe", HOSTILE.replace("/", "-")),
        ("build", f"--{HOSTILE}", "--source", "synthetic"),
        ("build", "--n-train", HOSTILE),
        ("build", "--config", name),
    ):
        caches = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = run(*words, cwd=tmp_path, env=caches)
        assert done.returncode in (1, 2)
        assert r"\x1b" in assert_is_text(done)


@pytest.mark.skipif(sys.platform == "win32", reason="no such terminals there")
def test_on_a_terminal_too_only_our_own_commands_come_out():
    import pty

    program = f"""
from sciscidata.terminal.progress import progress_bar
from sciscidata.cli.summary import standard_output
hostile = {HOSTILE!r} + "[red]x[/nosuch]"
with progress_bar(hostile, 3, unit="works") as advance:
    advance(1, hostile)
with standard_output() as console:
    console.print(hostile, style="bold")
"""
    said = b""
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-c", program])
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        said += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said
    os.close(terminal)
    assert rb"\x1b]52;c;cm0gLXJm\x07\x1b[2J" in said
    for command in (b"\x1b]", b"\x1b[2J", b"\x07", "\u202e".encode(), "\x9b".encode()):
        assert command not in said


@pytest.mark.skipif(sys.platform == "win32", reason="no such shell there")
@pytest.mark.parametrize(("words", "streams"), [("describe", ">&-"), ("describe", "2>&-"), ("verify", "<&- >&- 2>&-")])
def test_a_stream_that_is_closed_is_one_line(release, words, streams, tmp_path):
    command = f'"{sys.executable}" -m sciscidata {words} "{release}" {streams}'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, cwd=tmp_path, check=False, timeout=600)
    assert_loss_is_one_line(done, is_lost=streams != "2>&-", is_told="2>" not in streams)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_stream_that_cannot_be_written_is_one_line(release, stream, tmp_path):
    with Path("/dev/full").open("wb") as full:
        done = run("verify", release, cwd=tmp_path, **{stream: full})
    assert_loss_is_one_line(done, is_lost=stream == "stdout", is_told=stream == "stdout")
    assert stream == "stderr" or b"standard output: No space left on device." in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no such shell there")
def test_a_reader_that_leaves_early_is_one_line():
    """``sciscirl --help | head -1``; without a buffer the write itself fails, and not the last flush."""
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "sciscirl", "--help"]
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, env=environment, check=False, text=True, timeout=600
    )
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == "error: cannot write to a pipe that its reader has closed: Broken pipe.\n"


def assert_loss_is_one_line(done: subprocess.CompletedProcess[bytes], *, is_lost: bool, is_told: bool) -> None:
    assert done.returncode == int(is_lost)
    lines = (done.stderr or b"").decode().splitlines()
    assert len(lines) == int(is_lost and is_told), lines
    assert all(line.startswith("error: cannot write standard output") for line in lines)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory otherwise")
@pytest.mark.parametrize(("limit", "megabytes"), [("-v", 400), ("-v", 1_000), ("-d", 600)])
def test_too_little_memory_to_load_the_packages_is_one_line(limit, megabytes, tmp_path):
    command = f'ulimit {limit} {megabytes * 1000}; "{sys.executable}" -m sciscidata build --source synthetic'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, cwd=tmp_path, check=False, timeout=600)
    assert done.returncode == 1
    line = done.stderr.decode().splitlines()[-1]  # below 0.5 GB Python itself may have warned before
    assert "Traceback" not in done.stderr.decode()
    assert re.fullmatch(rf"error: this process may have .* \(ulimit {limit}\), and needs .* Raise the limit: .*", line)
    assert not list(tmp_path.iterdir())


def test_tracebacks_and_what_others_colour_are_shown_and_not_executed(tmp_path):
    program = f"""
import logging, sys, threading
from sciscidata.terminal.messages import open_terminal
open_terminal()
logging.basicConfig(level=logging.INFO, format="%(message)s")
def fail():
    raise RuntimeError({HOSTILE!r})
class Dropped:
    def __del__(self):
        fail()
try:
    fail()
except RuntimeError:
    for name in ("sciscidata", "other"):
        logging.getLogger(name).exception("logged of " + name)
logging.getLogger("other").info("\\x1b[33mtoken\\x1b[0m \\x1b[1;32mnext\\x1b[m")
logging.getLogger("other").info("\\x1b[\\x1b[0m31mred")
logging.getLogger("sciscirl").info("\\x1b[33mours")
thread = threading.Thread(target=fail, name="a\\x1b[2Jb")
thread.start()
thread.join()
del thread
Dropped()
fail()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False, timeout=600)
    said = done.stderr.decode()
    assert done.returncode == 1
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", said), said
    assert len(re.findall(r"^RuntimeError: \\x1b\]52;c;cm0gLXJm\\x07", said, re.M)) == 5  # logged twice, three hooks
    lines = said.splitlines()
    assert {"logged of sciscidata", "logged of other", "token next", r"\x1b[31mred", r"\x1b[33mours"} <= set(lines)
    assert r"Exception in thread a\x1b[2Jb:" in lines
    assert any(line.startswith("Exception ignored in: <function Dropped.__del__") for line in lines)
