"""Notes that keep the longer examples of a page: these run, too, and print what the note says."""

from __future__ import annotations

import pytest

from tests.conftest import REPOSITORY
from tests.docs import test_examples as examples

NOTES = [REPOSITORY / "benchmarks/notes" / f"{name}.md" for name in ("presets", "python", "questions")]


@pytest.mark.parametrize("note", NOTES, ids=examples.name_of)
def test_the_examples_of_a_note_run_and_print_what_it_says(note, tmp_path, monkeypatch):
    examples.test_the_examples_of_a_page_run_and_print_what_it_says(note, tmp_path, monkeypatch)
