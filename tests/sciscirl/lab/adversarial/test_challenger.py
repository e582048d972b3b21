"""Agent B objects to every answer alike, and nothing of what is right reaches it."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sciscirl.lab.adversarial.challenger import object_by_rules, render_request
from sciscirl.task.papers import VOCABULARIES, Paper
from sciscirl.task.prompts import MINI_EXAMPLES
from tests.sciscirl.adversarial_toy import GOLDS, LABELS, roll_out, say_both
from tests.sciscirl.papers import hostile_texts, views

VIEW = MINI_EXAMPLES[0].view
labels = st.sampled_from(LABELS)
#: A model ends its turn where it writes a mark of its chat format.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=20).map("x{}".format)


@settings(max_examples=25)
@given(views, labels, labels, words, st.data())
def test_what_the_model_is_shown_is_the_same_whatever_is_right(toy_renderer, view, first, final, reason, data):
    view = replace(view, abstract=(view.abstract or "")[:200])
    script = [(say_both(first, reason), say_both(final, "No."))]
    heard = [
        roll_out(Paper("W1", view, data.draw(st.sampled_from(GOLDS))), toy_renderer, script)[1].prompts for _ in "ab"
    ]
    assert heard[0] == heard[1]
    assert len(heard[0]) == 2


def test_an_objection_says_nothing_about_whether_the_answer_is_right():
    """Over many papers, B argues for each of the two other labels about equally often, and never for the one said."""
    argued = {column: dict.fromkeys(VOCABULARIES[column], 0) for column in VOCABULARIES}
    for number in range(400):
        text = object_by_rules(replace(VIEW, cited_by_count=number), LABELS[0])
        for column, label in LABELS[0].items():
            [other] = [name for name in argued[column] if f"say {name} rather than {label}:" in text]
            argued[column][other] += 1
    for column, label in LABELS[0].items():
        assert argued[column].pop(label) == 0
        assert all(150 <= count <= 250 for count in argued[column].values())


@given(views, labels)
def test_any_paper_and_answer_meet_an_objection_and_always_the_same(view, said):
    text = object_by_rules(view, said)
    assert text == object_by_rules(view, said)
    assert all(f"rather than {label}:" in text for label in said.values())
    assert object_by_rules(view, {"novelty_label": "novel"}).count("rather than") == 1


@given(hostile_texts)
def test_an_objection_reaches_the_model_as_one_json_string_without_markup(text):
    lines = render_request(f"x{text}", "Well?")["content"].split("\n")
    assert json.loads(lines[1]) == f"x{text}"
    assert "<|" not in lines[1]
    assert (len(lines), lines[-1]) == (4, "Well?")
