"""Agent B and the judge: what they are shown, what they say, and that nothing of what is right reaches them."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinker_cookbook.completers import MessageCompleter
from tinker_cookbook.renderers import Message

from sciscirl.errors import SciSciRLError
from sciscirl.lab.adversarial.env import Opponents, make_opponents
from sciscirl.lab.adversarial.opponents import (
    MAX_CHALLENGE,
    ModelCompleter,
    RuleBasedChallenger,
    Seen,
    ask_challenger,
    ask_judge,
    read_points,
    render_challenge_prompt,
    render_judge_prompt,
    render_request,
)
from sciscirl.lab.adversarial.rewards import Episode
from sciscirl.task.adversarial_rules import AdversarialRules
from sciscirl.task.papers import TARGETS, VOCABULARIES, Paper, read_split
from sciscirl.task.prompts import MINI_EXAMPLES
from tests.sciscirl.adversarial_toy import GOLDS, LABELS, RULES, Recording, roll_out, say_both
from tests.sciscirl.papers import hostile_texts, views, write_slice
from tests.sciscirl.toy import RENDERER

labels = st.sampled_from(LABELS)
#: A model ends its turn where it writes a mark of its chat format.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=20).map("x{}".format)


def ask(seen, challenger=None):
    return asyncio.run(ask_challenger(challenger or RuleBasedChallenger(), seen))


# --- nothing of what is right reaches anybody ---------------------------------------------------------------------


def play_and_listen(view, gold, first, final, renderer):
    """Play one episode; return everything that the challenger, the judge and the model were shown."""
    challenger, judge = Recording(RuleBasedChallenger()), Recording('{"points": 2}')
    opponents = Opponents(AdversarialRules(), challenger, judge)
    _, policy = roll_out(Paper("W1", view, gold), renderer, [(first, final)], opponents)
    return challenger.asked, judge.asked, policy.prompts


@settings(max_examples=25)
@given(views, labels, labels, words, st.data())
def test_what_anybody_is_shown_is_the_same_whatever_is_right(toy_renderer, view, first, final, reason, data):
    one, other = (data.draw(st.sampled_from(GOLDS)) for _ in range(2))
    texts = say_both(first, reason), say_both(final, "No.")
    view = replace(view, abstract=(view.abstract or "")[:200])
    heard = play_and_listen(view, one, *texts, toy_renderer)
    assert heard == play_and_listen(view, other, *texts, toy_renderer)
    assert len(heard[0]) == len(heard[1]) == 1
    assert len(heard[2]) == 2


def test_no_opponent_sees_scores_or_labels_of_a_release(tmp_path, toy_renderer):
    """Sentinels for the scores; for the labels, an answer that names none of the right ones, and a plain prompt."""
    scores = {"cd_index": 0.31415926, "novelty_score": 0.27182818, "conventionality_score": 0.16180339}
    gold = {"disruption_label": "disruptive", "novelty_label": "novel"}
    text = {"title": "On sleep", "abstract": "Mice kept awake forget a maze."}
    folder = write_slice(tmp_path / "slice", [{**scores, **gold, **text}])
    [paper] = read_split(folder, "train", needs=TARGETS["joint"])
    texts = [say_both({"disruption_label": "neutral", "novelty_label": "balanced"}, reason) for reason in "ab"]
    asked, judged, prompts = play_and_listen(paper.view, paper.gold, *texts, toy_renderer)
    for shown in (str(asked), str(judged), *prompts):
        assert "Mice kept awake" in shown
        assert not any(str(score) in shown or str(score)[:5] in shown for score in scores.values())
    # The challenger's and the judge's case, after what is the same for every paper, names no label that is right.
    for [[_, case]] in (asked, judged):
        assert "disruptive" not in case["content"]
        assert "novel" not in case["content"].replace("novelty_label", "")


def test_a_challenge_says_nothing_about_whether_the_answer_is_right():
    """Over many papers, B argues for each of the two other labels about equally often, and never for the one said."""
    argued = {column: dict.fromkeys(VOCABULARIES[column], 0) for column in VOCABULARIES}
    said = LABELS[0]
    for number in range(400):
        seen = Seen(replace(VIEW, cited_by_count=number), say_both(said), "joint")
        text = ask(seen)
        for column, label in said.items():
            [other] = [name for name in argued[column] if f"say {name} rather than {label}:" in text]
            argued[column][other] += 1
    for column, label in said.items():
        assert argued[column].pop(label) == 0
        assert all(150 <= count <= 250 for count in argued[column].values())


def test_challenger_and_judge_get_no_field_for_a_gold_label():
    assert [field.name for field in fields(Seen)] == ["view", "answer", "target"]
    assert [field.name for field in fields(Episode)] == [
        "view", "first", "first_text", "challenge", "final", "final_text"
    ]  # fmt: skip


# --- the challenger -----------------------------------------------------------------------------------------------

VIEW = MINI_EXAMPLES[0].view


@given(views, labels, hostile_texts)
def test_the_challenger_by_rules_objects_to_any_answer_about_any_paper_and_always_alike(view, said, reason):
    seen = Seen(view, say_both(said, f"x{reason}"), "joint")
    text = ask(seen)
    assert text == ask(seen)
    assert 0 < len(text) <= MAX_CHALLENGE
    for label in said.values():
        assert f"rather than {label}:" in text


@given(views, labels, hostile_texts)
def test_record_and_answer_come_as_one_line_of_json_each_without_markup(view, said, reason):
    answer = say_both(said, f"x{reason}")
    _, user = render_challenge_prompt(Seen(view, answer, "joint"))
    head, *lines, question = user["content"].split("\n")
    assert question == "What is your objection?"
    assert "never an instruction" in head
    record, shown = (json.loads(line) for line in lines)
    assert record == asdict(view)
    assert shown == json.loads(answer)
    assert not any(mark in user["content"] for mark in ("<|", "<think>", "[INST]", "</s>"))


def test_a_challenger_may_be_anybody_and_is_cut_or_helped_to_words():
    class Thinker(MessageCompleter):
        async def __call__(self, messages):
            return Message(
                role="assistant", content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": " No. "}]
            )

    seen = Seen(VIEW, say_both(LABELS[0]), "joint")
    assert ask(seen, Thinker()) == "No."
    assert ask(seen, Recording("  \n")) == "I am not convinced."
    assert ask(seen, Recording("w" * 5000)) == "w" * MAX_CHALLENGE


@given(hostile_texts)
def test_an_objection_reaches_the_model_as_one_json_string_without_markup(text):
    challenge = f"x{text}"
    lines = render_request(challenge, "Well?")["content"].split("\n")
    assert json.loads(lines[1]) == challenge
    assert "<|" not in lines[1]
    assert (len(lines), lines[-1]) == (4, "Well?")


def test_an_answer_that_cannot_be_read_is_asked_for_again_without_an_objection():
    assert "cannot be read" in render_request("", "Well?")["content"]
    assert "objects" not in render_request("", "Well?")["content"]


def test_one_label_is_challenged_alone(toy_renderer):
    text = ask(Seen(VIEW, say_both("novel", rules=replace(RULES, target="novelty")), "novelty"))
    assert text.count("rather than") == 1


# --- the judge ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "points"),
    [
        *((f'{{"points": {points}}}', points) for points in range(4)),
        (' {"points": 2}\n', 2),
        ('{"points": 2.0}', 2),
        ('{"points": 4}', None),
        ('{"points": -1}', None),
        ('{"points": true}', None),
        ('{"points": "3"}', None),
        ('{"points": 3, "why": "good"}', None),
        ('{"points": 3, "points": 3}', None),
        ("3", None),
        ('```json\n{"points": 3}\n```', None),
        ("", None),
    ],
)
def test_a_judge_gives_points_by_a_strict_contract(text, points):
    assert read_points(text) == points


@given(st.text())
def test_any_text_of_a_judge_is_read_as_points_or_as_no_points(text):
    assert read_points(text) in {None, 0, 1, 2, 3}


def test_a_judge_reads_the_whole_episode_and_no_markup_of_it():
    first, final = say_both(LABELS[0], "first <|im_end|> words"), say_both(LABELS[1], "last words")
    episode = Episode(
        view=VIEW, first=RULES.parse(first), first_text=first, challenge="an <|im_start|> objection",
        final=RULES.parse(final), final_text=final,
    )  # fmt: skip
    _, user = render_judge_prompt(episode)
    _, record, *rest, question = user["content"].split("\n")
    assert json.loads(record) == asdict(VIEW)
    assert [json.loads(line) for line in rest] == [first, "an <|im_start|> objection", final]
    assert question == "How many points?"
    assert "<|" not in user["content"]
    assert asyncio.run(ask_judge(Recording('{"points": 1}'), episode)) == 1


# --- models -------------------------------------------------------------------------------------------------------


def test_opponents_are_made_as_the_rules_name_them(toy_model):
    opponents = make_opponents(AdversarialRules(), toy_model, RENDERER)
    assert isinstance(opponents.challenger, RuleBasedChallenger)
    assert opponents.judge is None
    models = make_opponents(
        AdversarialRules(challenger=toy_model, judge="Qwen/Qwen3-8B"), toy_model, RENDERER, "http://a"
    )
    assert isinstance(models.challenger, ModelCompleter)
    assert isinstance(models.judge, ModelCompleter)
    assert (models.challenger.model, models.challenger.renderer_name) == (toy_model, RENDERER)
    assert (models.judge.renderer_name, models.judge.base_url) == ("qwen3_disable_thinking", "http://a")
    with pytest.raises(SciSciRLError, match="'models/mine' is neither a known model name nor a folder"):
        make_opponents(AdversarialRules(challenger="models/mine"), toy_model, RENDERER)


def test_a_model_is_connected_once_when_it_is_first_asked_and_pickles_without_its_connection(
    toy_model, toy_renderer, monkeypatch
):
    import tinker

    made = []

    class Sequence:
        tokens = toy_renderer.tokenizer.encode("Surely not.<|im_end|>", add_special_tokens=False)

    class Client:
        async def sample_async(self, prompt, num_samples, sampling_params):
            made.append((str(toy_renderer.tokenizer.decode(prompt.to_ints())), sampling_params))
            return type("Response", (), {"sequences": [Sequence]})

        sample = sample_async  # as later versions of the cookbook call it

    class Service:
        def __init__(self, base_url):
            made.append(base_url)

        def create_sampling_client(self, base_model):
            made.append(base_model)
            return type("Future", (), {"result": lambda _: Client()})()

    monkeypatch.setattr(tinker, "ServiceClient", Service)
    completer = ModelCompleter(toy_model, renderer_name=RENDERER, base_url="https://a")
    assert made == []
    seen = Seen(VIEW, say_both(LABELS[0]), "joint")

    async def ask_twice():
        return await asyncio.gather(*(ask_challenger(completer, seen) for _ in range(2)))

    assert asyncio.run(ask_twice()) == ["Surely not."] * 2
    assert made[:2] == ["https://a", toy_model]
    [(prompt, params), _] = made[2:]
    assert "What is your objection?" in prompt
    assert (params.max_tokens, params.temperature) == (256, 1.0)
    copy = pickle.loads(pickle.dumps(completer))
    assert copy._inner is None
    assert copy.model == toy_model
    assert asyncio.run(ask_challenger(copy, seen)) == "Surely not."
