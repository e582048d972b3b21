"""Tables and figures of the judgement's note are those that kept results give; its page has them from there."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text("utf-8")
PAGE = (REPOSITORY / "docs/rl/judgement.md").read_text("utf-8")
NOTE = (REPOSITORY / "benchmarks/notes/judgement.md").read_text("utf-8")
_OWN = ("claims", "kept", "show", "slices")


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program of the page; its modules are beside it."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks/judgement"))
    yield importlib.import_module("show")
    for name in _OWN:
        sys.modules.pop(name, None)


def test_tables_and_figures_are_those_of_the_kept_results(show: ModuleType):
    slices, runs = show.read_results()
    tables = show.write_tables(slices, runs)
    assert not [name for name, table in tables.items() if f"-->\n{table}\n<!-- end of {name} -->" not in NOTE]
    claims = show.find_claims(slices, runs)
    assert len(claims) > 15
    assert not [claim for claim in claims if claim not in " ".join(NOTE.split())]


def test_the_page_quotes_the_note(show: ModuleType):
    said = " ".join(PAGE.split())
    assert len([claim for claim in show.find_claims(*show.read_results()) if claim in said]) >= 10
    added = next(row for row in show.read_kept("stack") if row["slice"] == "two")["added"]
    for name, to in {"words": "words", "numbers": "what was known", "words and numbers": "both"}.items():
        accuracy, auc = (show.say_kept(added[f"model to {name}"][what], 3, "+") for what in ("accuracy", "auc"))
        assert f"| {to} | {accuracy} | {auc} |" in PAGE


def test_figures_of_the_page_are_those_of_the_note():
    """The page rounds nothing anew: each of its figures and intervals is in the note."""
    figures = set(re.findall(r"[+-]?\d\.\d+(?: \[-?\d\.\d+, -?\d\.\d+\])?", " ".join(PAGE.split())))
    assert len(figures) > 25
    said = " ".join(NOTE.split())
    assert not [figure for figure in figures if figure not in said]


def test_the_readme_quotes_the_second_test(show: ModuleType):
    rows = {row["set"]: row for row in show.read_kept("second")["rows"]}
    known = "references, coupling and CD"
    middle, low, high = (100 * share for share in rows[known]["accuracy"])
    said = " ".join(README.split())
    assert f"without any text) gets {middle:.1f} % (95 % interval {low:.1f} to {high:.1f})" in said
    middle, low, high = (100 * share for share in rows[f"words, {known}"][f"over {known}"])
    assert f"Words of title and abstract add {middle:.1f} points ({low:.1f} to {high:.1f})" in said
