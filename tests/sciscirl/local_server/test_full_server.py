"""A server whose adapter slots are all taken: said in one line, and no harm to those who hold them."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest
import tinker

from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.runs.server import clear_errors
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


def test_an_error_that_is_not_the_servers_is_left_alone():
    for error in (ValueError("of our own"), ReleaseError("of the slice")):
        with pytest.raises(ValueError, match=str(error)) as caught, clear_errors(URL):
            raise error
        assert caught.value is error


#: Keeps two models and lets go of them, takes every slot, and asks in each way for one more. In a process of its own,
#: since the SDK leaves its sockets open.
CLIENT = """
import sys, tinker
from sciscirl.errors import SciSciRLError
from sciscirl.runs.server import clear_errors, open_service

def train(client):
    return client.create_lora_training_client(sys.argv[1], rank=8).result()

def sample(sampler):
    return sampler.sample(tinker.ModelInput.from_ints([1]), 1, tinker.SamplingParams(max_tokens=1))

with open_service() as gone:
    kept = [train(gone) for _ in range(2)]
    state = kept[0].save_state("kept").result().path
    weights = [client.save_weights_for_sampler("kept").result().path for client in kept]
with open_service() as holder:
    held = []
    for ask in (
        lambda: held.extend(train(holder) for _ in range(20)),
        lambda: holder.create_training_client_from_state(state).result(),
        lambda: sample(holder.create_sampling_client(model_path=weights[0])).result(),
    ):
        try:
            with clear_errors():
                ask()
        except SciSciRLError as error:
            print("refused:", error)
    held = [client.save_state("still-here").result().path for client in held[:1]]
    # Asked within a tick of the server after the goodbye, when the slots are still to be freed; and both in one tick,
    # of which one at a time is loaded.
    next_one = tinker.ServiceClient()
    samplers = [next_one.create_sampling_client(model_path=path) for path in weights]
answers = [sample(sampler) for sampler in samplers * 2]
print("sampled:", *(len(answer.result().sequences) for answer in answers))
"""


@pytest.mark.slow
def test_a_server_that_is_full_refuses_in_one_line_whatever_needs_a_slot_and_serves_on(
    server_environment, grown_slice, tmp_path
):
    # A server of its own: at another, a run of another test may free its slot at any time, 90 s after its end.
    with served(grown_slice, tmp_path / "state") as server:
        words = [sys.executable, "-W", "ignore", "-c", CLIENT, server.model]
        done = subprocess.run(
            words, env=server.environment, capture_output=True, text=True, check=False, timeout=SECONDS_TO_RUN
        )
    *refused, last = done.stdout.splitlines()
    assert len(refused) == 3, done.stderr
    assert all(line.startswith("refused: http") and "all its adapter slots are taken" in line for line in refused)
    assert last == "sampled: 1 1 1 1", done.stderr
