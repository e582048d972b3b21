"""A server whose adapter slots are all taken: said in one line, and no harm to those who hold them."""

from __future__ import annotations

import httpx
import pytest
import tinker

from sciscirl.errors import FullServerError, ReleaseError, SciSciRLError
from sciscirl.runs.server_checks import clear_errors

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
