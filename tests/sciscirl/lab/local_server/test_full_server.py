"""A server whose adapter slots are all taken: said in one line, and no harm to those who hold them."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest
import tinker

from sciscirl.errors import FullServerError, ReleaseError, SciSciRLError
from sciscirl.runs.server_checks import clear_errors
from tests.sciscirl.tinker_server import SECONDS_TO_RUN, served

URL = "http://127.0.0.1:9"
FULL = "Maximum number of LoRA adapters (8) reached"


def refuse(said: str, status: int = 400) -> tinker.APIStatusError:
    answer = httpx.Response(status, request=httpx.Request("POST", URL))
    return tinker.APIStatusError(f"Error code: {status} - {{'detail': '{said}'}}", response=answer, body=None)


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        (
            FULL,
            r"127\.0\.0\.1:9 cannot take another model: all its adapter slots .*--max-lora-adapters.* \(8\) reached",
        ),
        (
            "Model m not loaded (likely stale request from previous server)",
            r"does not hold the model .* Ask for it again \(.*not loaded",
        ),
        ("Model m not loaded", r"does not hold the model .* Ask for it again \(.*not loaded"),
        ("LoRA rank 16 must be between 1 and 8", r"answered 400: .*rank 16 must be between 1 and 8"),
    ],
)
def test_what_a_server_failed_at_is_one_line_in_whatever_form_the_sdk_raises_it(said, meaning):
    def raise_plain():
        raise refuse(said)

    def raise_wrapped():  # as the SDK does once it has retried
        raise ValueError(f"Error retrieving result: {said}") from refuse(said)

    for ask in (raise_plain, raise_wrapped):
        with pytest.raises(SciSciRLError, match=meaning) as caught, clear_errors(URL):
            ask()
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, FullServerError) == (said == FULL)


def test_an_error_that_is_not_the_servers_is_left_alone():
    for error in (ValueError("of our own"), ReleaseError("of the release")):
        with pytest.raises(ValueError, match=str(error)) as caught, clear_errors(URL):
            raise error
        assert caught.value is error


@pytest.mark.slow
def test_the_third_run_of_a_sweep_waits_for_the_place_of_one_that_ended(tinker_server, tmp_path):
    """Places for two runs, and three at once: sessions that ended runs left open would keep the third out for hours."""
    with served(tinker_server.release, tmp_path / "state", adapters=3) as full:
        words = [
            "--preset", "exp4", "--release", full.release, "--model", full.model, "--renderer", full.renderer,
            "--seeds", "0", "1", "2", "--jobs", "3", "--lora-rank", "8", "--max-tokens", "64", "--batch-size", "2",
            "--max-paper-tokens", "96", "--group-size", "4", "--max-steps", "2", "--n-test", "4",
            "--eval-split", "test", "--out", tmp_path / "sweep",
        ]  # fmt: skip
        command = [sys.executable, "-m", "sciscirl", "sweep", *map(str, words)]
        done = subprocess.run(
            command, env=full.environment, capture_output=True, text=True, timeout=SECONDS_TO_RUN, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "waits for a free place" in done.stderr
    assert "DEPRECATED" not in done.stderr
    assert len([*tmp_path.glob("sweep/exp4/seed_*/run.json")]) == 3
