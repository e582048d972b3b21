from __future__ import annotations

import asyncio
from collections import Counter

import pytest
import tinker
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sciscirl.lab.models.local_completer import LocalCompleter
from sciscirl.lab.models.local_model import count_threads, set_threads

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPTS = ["A", "The record, as one JSON object.", "Which label fits this paper? " * 7, '{"title": "On sleep"}']


@pytest.fixture(scope="module")
def model(random_model):
    return AutoModelForCausalLM.from_pretrained(random_model).eval()


@pytest.fixture(scope="module")
def tokenizer(random_model):
    return AutoTokenizer.from_pretrained(random_model)


@pytest.fixture
def ask(model, tokenizer):
    def ask(prompts=PROMPTS, stop=(), per_call=None, **options):
        completer = LocalCompleter(model, tokenizer, **{"max_tokens": 12, **options})

        async def all_of_them():
            inputs = [tinker.ModelInput.from_ints(tokenizer.encode(prompt)) for prompt in prompts]
            return await asyncio.gather(*(completer(one, list(stop), max_tokens=per_call) for one in inputs))

        return asyncio.run(all_of_them())

    return ask


def test_greedy_answers_are_those_of_transformers_own_loop(ask, model, tokenizer):
    for prompt, answer in zip(PROMPTS, ask(temperature=0), strict=True):
        ids = torch.tensor([tokenizer.encode(prompt)])
        # A score for every token keeps its loop from stopping, and pads nothing.
        expected = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=12,
            eos_token_id=-1,
            pad_token_id=0,
        )
        assert answer.tokens == expected[0, ids.shape[1] :].tolist()
        assert answer.stop_reason == "length"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_neither_the_batch_nor_the_order_changes_an_answer(ask, temperature):
    together = ask(temperature=temperature)
    alone = ask(temperature=temperature, batch_size=1)
    backwards = ask(PROMPTS[::-1], temperature=temperature, batch_size=3)[::-1]
    assert [answer.tokens for answer in together] == [answer.tokens for answer in alone]
    assert [answer.tokens for answer in together] == [answer.tokens for answer in backwards]


def test_the_log_probabilities_are_those_of_one_pass_over_the_whole(ask, model, tokenizer):
    for prompt, answer in zip(PROMPTS, ask(temperature=0.7), strict=True):
        ids = tokenizer.encode(prompt)
        with torch.no_grad():
            scores = model(torch.tensor([ids + answer.tokens])).logits[0].log_softmax(-1)
        expected = [scores[len(ids) - 1 + place, token].item() for place, token in enumerate(answer.tokens)]
        assert answer.logprobs == pytest.approx(expected, abs=1e-4)


class Counted:
    """Counts the tokens that a model reads, and the largest pass."""

    def __init__(self, model):
        self.model, self.device, self.config, self.passes = model, model.device, model.config, []

    def __call__(self, **words):
        cache = words.get("past_key_values")
        before = 0 if cache is None else cache.get_seq_length()
        n_rows, n_new = words["input_ids"].shape
        self.passes.append((n_rows, n_new, before))
        return self.model(**words)


@pytest.fixture
def count(model, tokenizer):
    def count(prompts, **options):
        counted = Counted(model)
        completer = LocalCompleter(counted, tokenizer, **{"max_tokens": 6, "temperature": 0.0, **options})

        async def all_of_them():
            return await asyncio.gather(*(completer(tinker.ModelInput.from_ints(prompt), []) for prompt in prompts))

        return asyncio.run(all_of_them()), counted.passes

    return count


def test_a_beginning_that_all_prompts_share_is_read_once_and_changes_no_answer(count, tokenizer):
    beginning = tokenizer.encode("Judge this paper by the record. " * 6)
    endings = [tokenizer.encode(text) for text in ("On sleep", "On the sleep of reason, with a longer title", "X")]
    together, passes = count([beginning + ending for ending in endings])
    # What the endings begin with may be shared, too.
    assert passes[0][0] == 1
    assert len(beginning) <= passes[0][1] <= len(beginning) + 2
    n_shared = passes[0][1]
    assert passes[1] == (3, max(len(beginning + ending) for ending in endings) - n_shared, n_shared)
    assert passes[2][:2] == (3, 1)
    for ending, answer in zip(endings, together, strict=True):
        (alone,), _ = count([beginning + ending])
        assert answer.tokens == alone.tokens
        assert answer.logprobs == pytest.approx(alone.logprobs, abs=1e-4)


def test_a_prompt_with_several_answers_is_read_once(count, tokenizer):
    prompt, other = tokenizer.encode("The record, as one JSON object."), tokenizer.encode("A paper on sleep " * 3)
    answers, passes = count([prompt, other, prompt, prompt, other], temperature=1.0)
    read = [one for one in passes if one[1] > 1]
    assert sum(n_rows * n_new for n_rows, n_new, _ in read) <= 2 * max(len(prompt), len(other))
    assert passes[-1][:2] == (5, 1)
    assert len({tuple(answer.tokens) for answer in answers}) == 5
    again, _ = count([prompt, other, prompt, prompt, other], temperature=1.0, batch_size=1)
    assert [answer.tokens for answer in again] == [answer.tokens for answer in answers]


def test_answers_that_have_ended_leave_the_batch(model, tokenizer):
    counted = Counted(model)
    completer = LocalCompleter(counted, tokenizer, max_tokens=12, temperature=0.0)

    async def ask_all():
        prompts = [tinker.ModelInput.from_ints([5 + n, 6, 7 + n]) for n in range(4)]
        return await asyncio.gather(
            *(completer(one, [], max_tokens=2 + 10 * (n == 3)) for n, one in enumerate(prompts))
        )

    answers = asyncio.run(ask_all())
    assert [len(answer.tokens) for answer in answers] == [2, 2, 2, 12]
    assert [one[0] for one in counted.passes if one[1] == 1] == [4] + [1] * 10


def test_answers_to_one_prompt_differ_and_seeds_do_too(ask):
    prompts = ["The record"] * 6
    answers = ask(prompts, seed=0)
    assert len({tuple(answer.tokens) for answer in answers}) == 6
    assert [answer.tokens for answer in ask(prompts, seed=0, batch_size=4)] == [answer.tokens for answer in answers]
    assert [answer.tokens for answer in ask(prompts, seed=1)] != [answer.tokens for answer in answers]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_probable(model, tokenizer, temperature):
    completer = LocalCompleter(model, tokenizer, max_tokens=1, temperature=temperature)
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().expand(4000, 4)
    chosen = completer._choose(scores, [f"key {number}" for number in range(4000)])
    drawn = Counter(chosen.tolist())
    weights = [share ** (1 / temperature) for share in (0.1, 0.2, 0.3, 0.4)]
    for token, weight in enumerate(weights):
        assert drawn[token] / 4000 == pytest.approx(weight / sum(weights), abs=0.03)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.35, {3}), (0.45, {2, 3}), (0.7, {2, 3}), (0.75, {1, 2, 3}), (1.0, {0, 1, 2, 3})]
)
def test_only_the_most_probable_tokens_with_the_share_top_p_are_drawn(model, tokenizer, top_p, kept):
    completer = LocalCompleter(model, tokenizer, max_tokens=1, top_p=top_p)
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4])
    chosen = completer._choose(shares.log().expand(4000, 4), [f"key {number}" for number in range(4000)])
    drawn, whole = Counter(chosen.tolist()), sum(shares[token] for token in kept)
    assert set(drawn) == kept
    for token in kept:
        assert drawn[token] / 4000 == pytest.approx(float(shares[token] / whole), abs=0.03)


def test_an_impossible_token_is_never_drawn(model, tokenizer):
    completer = LocalCompleter(model, tokenizer, max_tokens=1)
    scores = torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(500, 3)
    assert set(completer._choose(scores, [str(number) for number in range(500)]).tolist()) == {1}


def test_an_answer_ends_with_the_token_or_the_text_that_stops_it(ask, tokenizer):
    whole = ask(PROMPTS[1:2], temperature=0)[0].tokens
    place = next(place for place, token in enumerate(whole) if place > 2 and token not in whole[:place])
    by_token = ask(PROMPTS, stop=[whole[place]], temperature=0)[1]
    assert (by_token.tokens, by_token.stop_reason) == (whole[: place + 1], "stop")
    assert len(by_token.logprobs) == place + 1
    text = str(tokenizer.decode(whole[:3]))
    by_text = ask(PROMPTS[1:2], stop=[text], temperature=0)[0]
    assert (by_text.tokens, by_text.stop_reason) == (whole[:3], "stop")


def test_the_smaller_limit_on_tokens_counts(ask):
    assert {len(answer.tokens) for answer in ask(per_call=5)} == {5}
    assert {len(answer.tokens) for answer in ask(per_call=50)} == {12}


def test_what_goes_wrong_reaches_everyone_who_waits(tokenizer):
    class Broken:
        device = "cpu"

        def __call__(self, **_):
            raise RuntimeError("out of memory")

    completer = LocalCompleter(Broken(), tokenizer, max_tokens=3, batch_size=2)

    async def ask_all():
        one = tinker.ModelInput.from_ints([5, 6])
        return await asyncio.gather(*(completer(one, []) for _ in range(5)), return_exceptions=True)

    assert [str(error) for error in asyncio.run(ask_all())] == ["out of memory"] * 5


@pytest.mark.parametrize(("cores", "busy", "found"), [(8, 2.0, 4), (8, 64.0, 3), (2, 100.0, 1)])
def test_only_cores_at_rest_compute(cores, busy, found, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("psutil.cpu_percent", lambda seconds: busy)
    assert count_threads() == found
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert count_threads() == 4


@pytest.mark.parametrize(
    ("recorded", "resume", "found"),
    [('{"n_threads": 1}', True, 1), ('{"n_threads": 1}', False, 2), ("[]", True, 2), ('{"n_threads": "1"', True, 2)],
)
def test_a_run_that_is_resumed_computes_with_as_many_threads_as_it_began_with(
    recorded, resume, found, monkeypatch, tmp_path
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("sciscirl.lab.models.local_model.count_threads", lambda: 2)
    (tmp_path / "config.json").write_text(recorded)
    before = torch.get_num_threads()
    try:
        assert set_threads(tmp_path, resume=resume) == torch.get_num_threads() == found
    finally:
        torch.set_num_threads(before)
