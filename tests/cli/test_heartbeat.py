"""What a command shows while it works: a line for each step, in a log at least every few seconds, and no more."""

from __future__ import annotations

import io
import logging
import re
import sys
import time

import pytest

from sciscidata.terminal import heartbeat
from sciscidata.terminal.heartbeat import Heartbeat, follow
from sciscidata.terminal.progress import begin_step, show_steps


@pytest.fixture
def hurry(monkeypatch):
    monkeypatch.setattr(heartbeat, "SILENCE_S", 0.05)
    monkeypatch.setattr(heartbeat, "_PAUSE_S", 0.02)


def wait_for(said, pattern: str) -> None:
    end = time.monotonic() + 20
    while not re.search(pattern, said()) and time.monotonic() < end:
        time.sleep(0.01)
    assert re.search(pattern, said())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_for_each_step_and_one_while_it_runs(hurry, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_steps("fetch", "read", then="train", notes_of="a.tool"):
        begin_step("fetch")
        logging.getLogger("a.tool").info("3 packages, \x1b[31mtorch")
        wait_for(stream.getvalue, r"\[1/3\] fetch: \d+ s, 3 packages, +(\[31m)?torch\n")
        begin_step("read")
        begin_step("train")
        shown = stream.getvalue()
        time.sleep(0.2)
        assert stream.getvalue() == shown  # now the command speaks for itself
    lines = shown.splitlines()
    steps = [line for line in lines if not re.search(r": \d+ s", line)]
    assert steps == ["[1/3] fetch", "[2/3] read", "[3/3] train"]
    assert "\r" not in shown
    begin_step("fetch")  # outside of a command, nothing
    assert stream.getvalue() == shown


def test_a_terminal_has_one_line_that_changes_and_stays_at_the_end(hurry, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Heartbeat() as shown:
        shown.begin("step 1/1: load")
        shown.note("model\n")
        wait_for(stream.getvalue, r"\r\x1b\[2Kstep 1/1: load: \d+ s, model")
    assert re.search(r"\r\x1b\[2Kstep 1/1: load(, \d+ s)?\n$", stream.getvalue())


def test_the_lines_of_a_tool_come_while_it_runs_and_are_kept_for_an_error():
    told: list[str] = []
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    done = follow([sys.executable, "-c", code], told.append)
    assert (done.returncode, sorted(told), sorted(done.stdout.split())) == (3, ["one\n", "two\n"], ["one", "two"])
