from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from filelock import FileLock

from sciscirl.lab.local_server import environment
from sciscirl.lab.local_server.environment import set_up_environment


def test_a_set_up_says_that_it_waits_for_another(tmp_path, monkeypatch, caplog):
    def install(folder, *_):
        folder.mkdir()
        (folder / "complete").touch()

    monkeypatch.setattr(environment, "_install", install)
    python = set_up_environment(cache=tmp_path)
    assert "waiting" not in caplog.text
    folder = python.parents[1]
    with ThreadPoolExecutor() as pool:
        with FileLock(folder.with_suffix(".lock")):
            waiting = pool.submit(set_up_environment, cache=tmp_path)
            deadline = time.monotonic() + 120
            while "waiting" not in caplog.text and time.monotonic() < deadline:
                time.sleep(0.01)
            assert f"waiting for another process, which sets up the server's environment in {folder}" in caplog.text
            assert not waiting.done()
        assert waiting.result(timeout=120) == python
