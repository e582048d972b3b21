"""Pictures of these tests have few dots: more take most of the time, and change nothing that is looked at."""

from __future__ import annotations

import pytest

from sciscidata.plots import figure


@pytest.fixture(autouse=True)
def few_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure, "_DPI", 72)
