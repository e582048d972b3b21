"""Every example of the site and the README runs, in the order of its page, and prints what the page says.

A block of Python runs; a block of text right after it is its output. A block of bash has ``<!-- runs -->`` or
``<!-- not run: REASON -->`` above it; so has one of Python that needs what is not here.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from conftest import kept_registries
from sciscidata.cli.main import main
from tests.conftest import REPOSITORY

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
#: Notes whose examples stood on their pages.
PAGES += [REPOSITORY / f"benchmarks/notes/{name}.md" for name in ("label_confidence", "multiverse", "regression")]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>runs|not run: .+?|tests|end) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)
_MATCHING = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    language: str
    mark: str
    code: str
    output: str | None
    line: int  # of the page, before the code


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = list(_BLOCK.finditer(text))
    blocks = []
    for block, following in zip(found, [*found[1:], None], strict=False):
        between = text[block.end() : following.start()] if following else "-"
        output = following["code"] if following and following["language"] == "text" and not between.strip() else None
        line = text.count("\n", 0, block.start("code"))
        blocks.append(Block(block["language"], block["mark"] or "", block["code"], output, line))
    return blocks


def name_of(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


WITH_EXAMPLES = [page for page in PAGES if any(b.language == "python" or b.mark == "runs" for b in blocks_of(page))]


def run_commands(block: str) -> None:
    """Run each line as the ``sciscidata`` command, in this process: starting another for each takes seconds."""
    for line in block.replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "sciscidata", line
        assert not main(words), line


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_the_examples_of_a_page_run_and_print_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # some examples leave a folder there
    names: dict[str, object] = {}
    with pl.Config(), kept_registries():  # what a page sets is gone at its end
        for block in blocks_of(page):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                if block.language == "python" and not block.mark.startswith("not run"):
                    exec(compile("\n" * block.line + block.code, str(page), "exec"), names)
                elif block.mark == "runs":
                    run_commands(block.code)
            if block.output is not None and (block.language == "python" or block.mark == "runs"):
                same = doctest.OutputChecker().check_output(block.output, printed.getvalue(), _MATCHING)
                assert same, f"{block.code}\nprinted:\n{printed.getvalue()}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_command_that_does_not_run_here_says_why(page):
    for block in blocks_of(page):
        if block.language == "bash":
            assert block.mark, (
                f"mark this block of {page.name} as <!-- runs --> or <!-- not run: REASON -->:\n{block.code}"
            )
        assert block.language, f"name the language of this block of {page.name}:\n{block.code}"
        wide = [line for line in block.code.splitlines() if len(line) > 95]
        assert page.name == "README.md" or not wide, f"the site cuts these lines of {page.name}: {wide}"
