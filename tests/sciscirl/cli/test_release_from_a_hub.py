"""A release that a command of the learning half takes from a hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from sciscidata.hubs import publish
from sciscirl.cli.main import main
from tests.hubs.test_hubs import NAME, made, pytestmark, release, server  # noqa: F401 (fixtures)
from tests.servers.hub_server import HubServer


def test_sciscirl_takes_a_release_from_the_hub(
    release: Path,  # noqa: F811
    server: HubServer,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    commit = publish(release, to=NAME).revision
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "--release", f"{NAME}@{commit}", "--baselines"]) == 0
    assert f"hf-ada-slices-{commit}" in capfd.readouterr().out
    assert main(["evaluate", "--release", "hf:ada", "--baselines"]) == 1
    assert "'hf:ada' names no data set on the hub" in capfd.readouterr().err
