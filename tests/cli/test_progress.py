"""What a long run says while it works: named steps, a first-use line, bars that do not look full, no empty widgets."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest
from numba import njit
from rich.console import Console

import sciscidata as ssd
from sciscidata._kernels import compile as compiling
from sciscidata.graph import graph as graphs
from sciscidata.storage import cache, cached_folder
from sciscidata.terminal import progress
from sciscidata.terminal.messages import show_cursor
from sciscidata.terminal.progress import AT_END, StepLines, begin_step, end_step, name_steps, progress_bar


def steps(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if re.match(r"\[\d/\d\] ", message)]


def test_a_build_names_its_steps_and_hashes_its_citations_once(tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    hashes, hashed = [], graphs._content_key
    monkeypatch.setattr(graphs, "_content_key", lambda *given: (hashes.append(1), hashed(*given))[1])
    source, split = ssd.SyntheticConfig(n_works=1_500), ssd.SplitConfig(n_train=9, n_test=0)
    ssd.build(ssd.BuildConfig(source=source, out=tmp_path / "slice", split=split, cache_dir=tmp_path / "cache"))
    assert steps(caplog) == [
        "[1/6] read works",
        "[2/6] build the citation graph",
        "[3/6] score disruption",
        "[4/6] score novelty",
        "[5/6] filter and draw",
        "[6/6] write the release",
    ]
    assert hashes == [1]
    caplog.clear()
    export = ssd.BuildConfig(source=source, out=tmp_path / "all", cache_dir=tmp_path / "cache", novelty=None)
    ssd.export_labelled(export)
    assert steps(caplog)[-1] == "[4/4] write labelled works"


def test_the_first_use_line_comes_once_and_only_when_our_loops_are_compiled(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(compiling._Compiling, "was_told", False)

    def loop(x):
        return x + 1

    loop.__module__ = "somebody.else"
    assert njit(loop)(1) == 2
    assert caplog.messages == []
    loop.__module__ = "sciscidata.tests"
    compiled = njit(loop)
    assert [compiled(1), compiled(2), compiled(1.5)] == [2, 3, 2.5]
    assert caplog.messages == ["compiling kernels, once (about 10 s)"]


@pytest.mark.parametrize("total", [None, 0])
def test_a_bar_without_a_total_is_no_bar(total, monkeypatch):
    assert "━" not in drawn(monkeypatch, total)
    assert "7 works" in drawn(monkeypatch, total)
    assert "━" in drawn(monkeypatch, 9)


def drawn(monkeypatch: pytest.MonkeyPatch, total: float | None) -> str:
    stream = io.StringIO()
    terminal = Console(file=stream, force_terminal=True, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **_: terminal)
    with progress_bar("sort", total, unit="works") as advance:
        advance(7)
        terminal.print()
    return stream.getvalue()


def test_a_notebook_shows_a_line_of_text_for_long_work_and_nothing_for_short(monkeypatch):
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content["text/plain"])

    def display(content, raw, display_id):
        shown.append(content["text/plain"])
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with progress_bar("sort", 9, unit="works") as advance:
        advance(9)
    assert shown == []
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "_PAUSE_S", 0.0)
    with progress_bar("sort\x1b", 9, unit="works") as advance:
        advance(3, "$1")
    assert shown == [r"sort\x1b: 3 works in 0 s 33% $1", r"sort\x1b: 3 works in 0 s done"]


def test_an_interrupt_clears_the_line_of_the_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    show_cursor()
    assert sys.stderr.getvalue() == "\r\x1b[2K\x1b[?25h"


class Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def on_screen(text: str) -> str:
    """What a terminal shows: a line that is cleared is written anew."""
    return "\n".join(line.rpartition("\r\x1b[2K")[2] for line in text.split("\n"))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_a_step_has_found_stands_behind_its_name_on_a_terminal_and_in_a_pipe(is_terminal, monkeypatch, caplog):
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "80")
    handler, said = StepLines(holds=True), logging.getLogger("sciscidata.said")
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    caplog.set_level(logging.INFO, "sciscidata")
    end_step("nothing runs")
    with name_steps("read", "draw works"):
        begin_step("read")
        end_step("", "2 works", "as of 2023-04-01")
        said.info("reusing /a/path", extra={"fact": "reused from cache"})
        said.info("reusing /b/path", extra={"fact": "reused from cache"})
        begin_step("draw works")
        said.warning("careful", extra=AT_END)
        said.warning("a word from elsewhere")
    handler.tell_held()
    shown = on_screen(stream.getvalue())
    assert shown.splitlines() == [
        "[1/2] read        2 works, as of 2023-04-01; reused from cache",
        "[2/2] draw works",
        "a word from elsewhere",
        "careful",
    ]
    assert ("\r" in stream.getvalue()) == is_terminal


def test_reusing_is_said_of_what_an_earlier_run_has_made_and_once(tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    for _ in range(2):
        cached_folder(tmp_path / "sum-1-2", lambda folder: (folder / "3").touch())
    assert caplog.messages == []
    monkeypatch.setattr(cache, "_of_this_run", set())  # as a later process begins
    for _ in range(2):
        cached_folder(tmp_path / "sum-1-2", lambda folder: (folder / "3").touch())
    assert caplog.messages == [f"reusing {tmp_path / 'sum-1-2'}"]
