"""What is hidden is in no prompt and in no baseline, is recorded, and cannot be hidden by a slip."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sciscirl.envs.env import build_messages
from sciscirl.errors import PromptError, SciSciRLError
from sciscirl.lab.analysis.baselines import BASELINES, evaluate_baselines, run_baseline
from sciscirl.lab.analysis.compare import CompareConfig, list_asked
from sciscirl.lab.analysis.seen import list_later
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.report.comparison import compare_files
from sciscirl.options import TrainOptions, resolve_preset
from sciscirl.presets import PRESETS, describe, find_preset, make_preset, recall_preset
from sciscirl.task.contracts import CONTRACTS
from sciscirl.task.papers import CONTEXT, LATER, SEEN, TARGETS, PaperView, Reference
from sciscirl.task.prompts import STYLES, PromptTemplate, render_prompt
from sciscirl.task.release import read_split
from sciscirl.task.rules import TaskRules
from tests.sciscirl.papers import NUMBERS
from tests.sciscirl.toy import make_builder

VIEW = PaperView("Zq title", "Zq abstract.", 1789, 65537, "Zq field")
MARKS = dict(zip(SEEN, ("Zq title", "Zq abstract", "1789", "65537", "Zq field"), strict=True))
HIDDEN = ("publication_year", "cited_by_count")


def records_of(messages) -> list[dict]:
    """Every record in a prompt: that of the paper and those of the examples."""
    lines = [line for message in messages for line in message["content"].splitlines()]
    return [json.loads(line) for line in lines if line.startswith('{"title"')]


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("target", TARGETS)
def test_a_hidden_field_is_null_in_every_record_of_a_prompt_which_says_so(name, style, target):
    rules = TaskRules(target=target, style=style, hide=(name,))
    messages = rules.render(VIEW)
    text = json.dumps(messages)
    assert [mark for mark in MARKS.values() if mark not in text] == [MARKS[name]]
    records = records_of(messages)
    assert len(records) == (4 if style == "checklist" else 1)
    assert all(
        record[name] is None and None not in [record[other] for other in SEEN if other != name] for record in records
    )
    assert "Not shown, and null there: " in messages[0]["content"]
    assert rules.prompt.render(rules.see(VIEW), rules.contract, target) == messages


@pytest.mark.parametrize("contract", CONTRACTS)
def test_what_hides_nothing_leaves_every_byte_of_a_prompt(contract):
    rules = TaskRules(style="checklist", contract=contract)
    assert rules.render(VIEW) == render_prompt(VIEW, "checklist", contract)
    assert "Not shown" not in rules.render(VIEW)[0]["content"]


@pytest.mark.parametrize("name", BASELINES)
def test_no_baseline_sees_what_is_hidden(name, toy_slice):
    train, test = read_split(toy_slice, "train"), read_split(toy_slice, "test")

    def scramble(papers):
        return [
            replace(paper, view=replace(paper.view, publication_year=1800 + number * 7 % 97, cited_by_count=number**2))
            for number, paper in enumerate(papers)
        ]

    rules = TaskRules(hide=HIDDEN)
    if name == "later_counts":
        with pytest.raises(SciSciRLError, match="later citations are not known, or hidden"):
            run_baseline(name, train, test, rules=rules)
        return
    blind = run_baseline(name, train, test, rules=rules).predictions
    assert run_baseline(name, scramble(train), scramble(test), rules=rules).predictions.equals(blind)
    if name == "at_publication":
        assert not run_baseline(name, train, test).predictions.equals(blind)


@pytest.mark.parametrize(
    ("name", "hide", "said"),
    [
        ("at_publication", ("publication_year", "primary_field"), "neither year, field nor references are known"),
        ("words_at_publication", ("title", "abstract"), "neither title nor abstract is known"),
        ("later_counts", ("cited_by_count",), "later citations are not known, or hidden"),
    ],
)
def test_a_baseline_without_anything_to_see_is_an_error(name, hide, said, toy_slice):
    train = read_split(toy_slice, "train")
    with pytest.raises(SciSciRLError, match=said):
        run_baseline(name, train, train, rules=TaskRules(hide=hide))


@pytest.mark.parametrize(
    ("hide", "said"),
    [
        (("citations",), r"hide names 'citations', needs some of title, .*cited_by_count"),
        (("cited_by_cuont",), r"Did you mean cited_by_count\?"),
        (("cd_index",), r"hide names 'cd_index', needs some of"),
        (SEEN, r"hide names every field of a paper. Leave one of"),
    ],
)
def test_what_cannot_be_hidden_is_said(hide, said):
    with pytest.raises(SciSciRLError, match=said):
        resolve_preset(TrainOptions(preset="exp4", hide=hide))


def test_a_prompt_of_ones_own_that_shows_a_hidden_field_is_refused_and_a_whole_record_is_not():
    shows = PromptTemplate(name="own", system="$task", user="$title $cited_by_count")
    with pytest.raises(PromptError, match=r"prompt 'own' shows \$cited_by_count, which hide names"):
        TaskRules(style="own", own_prompt=shows, hide=HIDDEN)
    whole = TaskRules(style="own", own_prompt=PromptTemplate(name="own", system="$task", user="$record"), hide=HIDDEN)
    (record,) = records_of(whole.render(VIEW))
    assert [name for name in SEEN if record[name] is None] == [*HIDDEN]
    assert "citations so far" in whole.render(VIEW)[0]["content"].partition("Not shown")[2]


def test_presets_options_and_records_of_runs_hold_what_is_hidden(toy_slice, toy_model, toy_renderer):
    preset = make_preset("own", base="exp4", hide=["cited_by_count", "publication_year"])
    assert preset.rules.hide == HIDDEN  # in the order of the record
    assert preset.rules == resolve_preset(TrainOptions(preset="exp4", hide=HIDDEN)).rules
    described = json.loads(json.dumps(describe(preset)))
    assert described["hide"] == [*HIDDEN]
    assert recall_preset(described).rules == preset.rules
    assert described["prompt_sha256"] != describe(find_preset("exp4"))["prompt_sha256"]
    assert all(describe(one)["hide"] == [] for one in PRESETS.values())
    assert describe(preset)["as_of"] == "release"
    builder = make_builder(toy_slice, toy_model, hide=HIDDEN)
    (record,) = records_of(build_messages(builder.eval_papers()[0], builder.rules(), toy_renderer))
    assert [record[name] for name in HIDDEN] == [None, None]


def test_baselines_record_what_they_did_not_see_and_a_comparison_marks_it(toy_slice, tmp_path):
    for name, hide in (("all", None), ("less", HIDDEN)):
        evaluate_baselines(EvaluationConfig(release=toy_slice, out=tmp_path / name, hide=hide))
    settings = json.loads((tmp_path / "less" / "majority" / "run.json").read_text("utf-8"))["settings"]
    assert settings["hide"] == [*HIDDEN]
    words = [f"{name}={tmp_path / name / 'words'}" for name in ("all", "less")]
    (pair,) = compare_files(words, CompareConfig()).pairs
    assert pair.asked_otherwise == ("hide",)
    assert list_asked({"style": "plain"})["hide"] == list_asked({"baseline": "majority"})["hide"] == []


# --- as of publication --------------------------------------------------------------------------------------------

PUBLISHED = ("baseline", "exp1", "exp2", "exp3", "exp4", "exp5", "novelty", "joint", "adversarial")


def test_presets_of_our_own_know_what_was_known_at_publication_and_published_ones_all_of_the_release():
    assert LATER == ("cited_by_count",)
    assert not {*LATER} & {*CONTEXT}
    assert [name for name, preset in PRESETS.items() if preset.rules.as_of == "release"] == [*PUBLISHED]
    for name, preset in PRESETS.items():
        assert preset.rules.hidden == (() if name in PUBLISHED else LATER), name


@pytest.mark.parametrize("show", [(), CONTEXT])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_that_came_later_reaches_a_prompt_as_of_publication(style, target, show):
    rules = TaskRules(target=target, style=style, as_of="publication", show=show)
    view = replace(VIEW, references=(Reference("Zq work", 1788, "Zq venue"),), at_publication=NUMBERS)
    messages = rules.render(view)
    assert messages == rules.render(replace(view, **dict.fromkeys(LATER, 7)))
    assert all(record[name] is None for record in records_of(messages) for name in LATER)
    assert "65537" not in json.dumps(messages)
    assert "65537" in json.dumps(replace(rules, as_of="release").render(view))
    assert ("Zq work (1788), Zq venue" in json.dumps(messages)) == bool(show)


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "later_counts"])
@pytest.mark.parametrize("as_of", ["publication", "release"])
def test_nothing_that_came_later_reaches_a_baseline_but_the_one_that_says_so(name, as_of, toy_slice):
    train, test = read_split(toy_slice, "train"), read_split(toy_slice, "test")

    def scramble(papers):
        return [
            replace(paper, view=replace(paper.view, **dict.fromkeys(LATER, number**2)))
            for number, paper in enumerate(papers)
        ]

    rules = TaskRules(as_of=as_of)
    known, other = (
        run_baseline(name, *papers, rules=rules) for papers in ((train, test), map(scramble, (train, test)))
    )
    assert other.predictions.equals(known.predictions)
    assert (known.settings["as_of"], list_later(known.settings["saw"])) == ("publication", ())
    later = run_baseline("later_counts", train, test, rules=rules).settings
    assert (later["as_of"], list_later(later["saw"])) == ("release", ("cited_by_count",))


def test_a_prompt_that_shows_what_came_later_is_refused_as_of_publication():
    shows = PromptTemplate(name="own", system="$task", user="$title $cited_by_count")
    with pytest.raises(PromptError, match=r"prompt 'own' shows \$cited_by_count, which nobody knew at publication"):
        TaskRules(style="own", own_prompt=shows, as_of="publication")
    assert TaskRules(style="own", own_prompt=shows).hidden == ()


def test_a_run_of_before_knew_all_of_the_release_whatever_its_preset_knows_today():
    stated = json.loads(json.dumps(describe(find_preset("exp6"))))
    assert recall_preset(stated).rules == find_preset("exp6").rules
    del stated["as_of"]
    assert recall_preset(stated).rules == replace(find_preset("exp6").rules, as_of="release")


def test_a_comparison_marks_what_was_known_when(toy_slice, tmp_path):
    evaluate_baselines(EvaluationConfig(release=toy_slice, out=tmp_path / "out", as_of="publication"))
    names = ("words", "at_publication", "later_counts")
    found = compare_files([str(tmp_path / "out" / name) for name in names], CompareConfig())
    asked_otherwise = {(pair.left, pair.right): pair.asked_otherwise for pair in found.pairs}
    assert asked_otherwise["words", "at_publication"] == ()
    assert asked_otherwise["words", "later_counts"] == asked_otherwise["at_publication", "later_counts"] == ("as_of",)
