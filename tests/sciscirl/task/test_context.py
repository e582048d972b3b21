"""What a paper built on is shown where it is asked for, in words that come from the release, and under the cap."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata import BuildConfig, SplitConfig, build, scan_example
from sciscidata.disruption.publication_features import PUBLICATION_FEATURES
from sciscidata.sources.example.source import ExampleConfig
from sciscirl.envs.dataset import check_fit
from sciscirl.envs.env import build_messages
from sciscirl.errors import PromptError, ReleaseError, SciSciRLError
from sciscirl.lab.adversarial.play import play_episode
from sciscirl.lab.analysis.compare import list_asked
from sciscirl.lab.label_scoring import make_content_free
from sciscirl.options import TrainOptions, resolve_preset
from sciscirl.presets import describe, find_preset, make_preset, recall_preset
from sciscirl.runs.record import plan_run
from sciscirl.task.context import name_reference, put_in_words
from sciscirl.task.contracts import CONTRACTS
from sciscirl.task.papers import CONTEXT, PAIRS, TARGETS, PairView, Reference
from sciscirl.task.prompts import STYLES, PromptTemplate, cap_view, render_prompt, render_record
from sciscirl.task.release import read_split
from sciscirl.task.rules import TaskRules
from tests.sciscirl.papers import NUMBERS, hostile_texts, views
from tests.sciscirl.toy import make_builder

references = st.builds(
    Reference, hostile_texts, st.none() | st.integers(1500, 2100), st.none() | hostile_texts
)  # fmt: skip
contexts = st.lists(references, max_size=8).map(tuple)


@pytest.fixture(scope="module")
def papers(context_slice):
    return read_split(context_slice, "train")


def record_of(messages) -> dict:
    (line,) = [line for line in messages[1]["content"].splitlines() if line.startswith('{"')]
    return json.loads(line)


def words(text: str) -> int:
    return len(text.split())


# --- in words -----------------------------------------------------------------------------------------------------


def test_numbers_are_said_in_one_line_in_a_fixed_order():
    said = (
        "33 references, 30 with a year, 8.5 years old on average, median 7.5, at least 0, at most 61; "
        "cited by 36.5 earlier works on average, median 12, at most 1,400, 9.1 of the last five years, "
        "12 % of references by nobody; 22 with a CD index, mean -0.021; "
        "some in common with 2,540 earlier works, two or more with 83, at most 9, 1.3 on average."
    )
    assert put_in_words(NUMBERS) == put_in_words(dict(reversed(NUMBERS.items()))) == said


def test_one_is_singular_and_nothing_known_is_nothing_said():
    one = dict.fromkeys(NUMBERS, 1)
    assert put_in_words(one).startswith("1 reference, 1 with a year, 1 year old on average")
    assert "cited by 1 earlier work on average" in put_in_words(one)
    assert "in common with 1 earlier work," in put_in_words(one)
    assert put_in_words({"n_references": 0} | dict.fromkeys([*NUMBERS][1:])) == "0 references."
    assert put_in_words(dict.fromkeys(NUMBERS)) is None
    assert put_in_words({"reference_cd_mean": -0.0001}) == "mean 0.000."  # and not minus nothing


def test_a_score_or_a_label_among_the_numbers_is_not_said():
    assert put_in_words({"cd_index": 0.5, "disruption_label": 1.0, "cited_by_count": 7}) is None
    assert [*NUMBERS] == PUBLICATION_FEATURES.names()[3:]
    for name, value in NUMBERS.items():  # all are said but sums
        assert (put_in_words({name: value}) is None) == name.endswith("citations"), name


counts = st.none() | st.integers(0, 10**6)
shares = st.none() | st.floats(0, 1)
numbers = st.fixed_dictionaries(
    {
        name: st.none() | st.floats(-1, 1)
        if name == "reference_cd_mean"
        else shares
        if name.startswith("share")
        else st.none() | st.floats(0, 10**6)
        if name.endswith(("mean", "median"))
        else counts
        for name in NUMBERS
    }
)


@given(numbers)
def test_each_number_that_is_said_comes_from_the_release_and_no_word_from_what_is_unknown(known):
    said = put_in_words(known) or ""
    allowed = set[str]()
    for name, value in known.items():
        if value is not None and name == "share_references_uncited":
            allowed.add(f"{100 * value:.0f}")
        elif value is not None:
            allowed |= {f"{value:,.1f}".removesuffix(".0"), f"{value:z.3f}"}
    assert {*re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?", said)} <= allowed
    assert "None" not in said
    assert "nan" not in said
    # A number alone changes its words alone.
    for name in known:
        less = put_in_words(known | {name: None}) or ""
        assert words(less) <= words(said)


def test_references_are_one_line_each_as_far_as_they_are_known():
    known = Reference("On\n  sleep", 1998, "Journal\tof Sleep"), Reference("On dreams"), Reference("On rest", 2001)
    assert [*map(name_reference, known)] == ["On sleep (1998), Journal of Sleep", "On dreams", "On rest (2001)"]


# --- what a prompt shows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
def test_prompts_keep_every_byte_on_a_release_with_context(style, papers, toy_slice):
    before = read_split(toy_slice, "train")[1]
    assert papers[1].view.references
    assert before.view.references is None
    for contract, target in product(CONTRACTS, TARGETS):
        rules = TaskRules(target=target, style=style, contract=contract)
        assert rules.render(papers[1].view) == render_prompt(papers[1].view, style, contract, target)
        assert rules.render(papers[1].view) == rules.render(before.view) == rules.render(rules.see(before.view))


@pytest.mark.parametrize("show", [CONTEXT, CONTEXT[:1], CONTEXT[1:]])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_shown_is_in_the_record_after_all_else_and_the_task_names_it(show, style, target, papers):
    rules = TaskRules(target=target, style=style, show=show)
    messages = rules.render(papers[2].view)
    record = record_of(messages)
    assert [*record][5:] == [*show]
    if "references" in show:
        own = papers[2].openalex_id
        assert record["references"] == [f"Work 0 before {own}, Old", f"Work 1 before {own} (1979), Old"]
    if "at_publication" in show:
        assert record["at_publication"] == put_in_words(papers[2].view.at_publication)
    system = messages[0]["content"]
    names = {"references": "works that it cites", "at_publication": "what was known of its references when it appeared"}
    seen = system.partition("(")[2].partition(")")[0]
    assert [name for name, text in names.items() if text in seen] == [*show]
    assert ("not the works that it cites" in system) == (target == "novelty" and "references" not in show)
    examples = [json.loads(line) for line in system.splitlines() if line.startswith('{"title"')]
    assert all([*one][5:] == [*show] and one[show[0]] for one in examples)
    assert len(examples) == (3 if style == "checklist" else 0)
    # What a run records of its prompt writes the same.
    assert rules.prompt.render(rules.see(papers[2].view), rules.contract, target, ()) == messages
    assert rules.prompt.sha256 != replace(rules, show=()).prompt.sha256


def test_a_paper_without_references_shows_that_it_has_none(papers):
    assert record_of(TaskRules(show=("references",)).render(papers[0].view))["references"] == []


def test_no_empty_list_stands_beside_a_number_of_references(papers):
    rules = TaskRules(show=("references", "at_publication"))
    untitled = replace(papers[1].view, references=())
    record = record_of(rules.render(untitled))
    assert "references" not in record
    assert record["at_publication"].startswith("34 references")
    none = replace(untitled, at_publication={**untitled.at_publication, "n_references": 0})
    assert record_of(rules.render(none))["references"] == []


def test_two_papers_show_what_each_built_on(papers):
    rules = TaskRules(target=PAIRS, show=CONTEXT)
    record = record_of(rules.render(PairView(papers[1].view, papers[2].view)))
    assert [len(record[letter]["references"]) for letter in "AB"] == [1, 2]
    assert record["B"]["at_publication"].startswith("35 references, ")


def test_a_prompt_of_ones_own_sees_what_it_names(papers):
    own = PromptTemplate(name="own", system="$task", user="$title\n$references\n$at_publication")
    rules = TaskRules(style="own", own_prompt=own)
    _, built_on, known = rules.render(papers[1].view)[1]["content"].splitlines()
    assert json.loads(built_on) == [f"Work 0 before {papers[1].openalex_id}, Old"]
    assert json.loads(known) == put_in_words(papers[1].view.at_publication)
    assert "works that it cites, what was known of its references" in rules.render(papers[1].view)[0]["content"]
    assert own.render(papers[1].view, rules.contract, "disruption") == rules.render(papers[1].view)
    whole = TaskRules(style="own", own_prompt=PromptTemplate(name="own", system="$task", user="$record"))
    assert CONTEXT[0] not in record_of(whole.render(papers[1].view))
    assert CONTEXT[0] in record_of(replace(whole, show=CONTEXT).render(papers[1].view))


def test_an_adversarial_episode_and_records_that_say_nothing_show_it_too(papers):
    preset = find_preset("adversarial_disruption").with_settings(show=CONTEXT)

    async def policy(_):
        return {"role": "assistant", "content": "{}"}

    played = asyncio.run(play_episode(papers[1], preset, policy))
    assert record_of(played.turns)["references"] == [f"Work 0 before {papers[1].openalex_id}, Old"]
    rules = TaskRules(show=CONTEXT)
    for paper in make_content_free():
        record = record_of(rules.render(paper.view))
        assert (record["references"], record["at_publication"]) == ([], None)


@given(views, contexts)
def test_no_reference_has_a_special_token_or_ends_the_line(view, built_on):
    view = replace(view, references=built_on, at_publication=NUMBERS)
    record = render_record(view)
    assert "\n" not in record
    assert not re.search(r"<[^\s]|\[/?[A-Za-z_]|[\u2028\u2029]", record)
    # An empty list is left out beside a number of references.
    assert json.loads(record).get("references") == ([*map(name_reference, built_on)] or None)


# --- the cap ------------------------------------------------------------------------------------------------------


@given(views, contexts, st.integers(1, 400), st.sampled_from([len, words]))
def test_references_leave_from_the_end_before_the_abstract_is_cut(view, built_on, cap, count):
    view = replace(view, references=built_on)
    bare = replace(view, references=())
    least = count(render_record(replace(bare, abstract=view.abstract and "")))
    if min(least, count(render_record(view))) > cap:
        with pytest.raises(PromptError, match=rf"max_paper_tokens={cap} is too few: .* Set max_paper_tokens={least}\."):
            cap_view(view, cap, count)
        return
    capped = cap_view(view, cap, count)
    assert count(render_record(capped)) <= cap
    n = len(capped.references)
    assert capped.references == built_on[:n]
    if capped.abstract != view.abstract:
        assert n == 0
        assert capped == cap_view(bare, cap, count)  # as without references
    elif n < len(built_on):
        assert count(render_record(replace(view, references=built_on[: n + 1]))) > cap


def test_half_of_the_cap_is_for_each_of_two_papers(papers):
    view = PairView(*(replace(papers[place].view, at_publication=None) for place in (3, 3)))
    capped = cap_view(view, len(render_record(view)) - 40, len)
    assert len(capped.A.references) == len(capped.B.references) == 2
    assert capped.A.abstract == view.A.abstract


def test_a_run_shows_what_fits(context_slice, toy_model, toy_renderer):
    builder = make_builder(context_slice, toy_model, show=("references",), max_paper_tokens=1000)
    paper = next(one for one in builder.read("train") if len(one.view.references) == 3)
    n_whole = len(record_of(build_messages(paper, builder.rules(), toy_renderer))["references"])
    assert n_whole == 3
    n_tokens = len(toy_renderer.tokenizer.encode(render_record(builder.rules().see(paper.view)))) - 1
    less = replace(builder.rules(), max_paper_tokens=n_tokens)
    assert len(record_of(build_messages(paper, less, toy_renderer))["references"]) == 2


# --- what is refused ----------------------------------------------------------------------------------------------


def test_a_release_without_context_is_one_clear_error(toy_slice, toy_renderer):
    papers = read_split(toy_slice, "train")
    rules = TaskRules(show=("at_publication",))
    for ask in (lambda: rules.render(papers[0].view), lambda: check_fit(papers, rules, toy_renderer)):
        with pytest.raises(ReleaseError, match=r"the prompt shows at_publication.*sciscidata build \.\.\. --context\."):
            ask()
    own = PromptTemplate(name="own", system="$task", user="$title $references")
    with pytest.raises(ReleaseError, match=r"shows references.*--context"):
        TaskRules(style="own", own_prompt=own).render(papers[0].view)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"show": ("references",), "hide": ("references",)}, "hide and show both name references"),
        ({"show": ("reference",)}, r"show is \('reference',\), needs .*references, at_publication.*Did you mean"),
        ({"show": ("cd_index",)}, r"show is \('cd_index',\), needs"),
        ({"hide": ("reference",)}, r"hide names 'reference', needs some of .*at_publication\. Did you mean references"),
    ],
)
def test_what_cannot_be_shown_is_said(options, said):
    with pytest.raises(SciSciRLError, match=said):
        resolve_preset(TrainOptions(preset="exp4", **options))


def test_what_a_prompt_has_no_place_for_or_is_hidden_is_refused():
    own = PromptTemplate(name="own", system="$task", user="$title")
    with pytest.raises(PromptError, match=r"show names references, and prompt 'own' has no place for it"):
        TaskRules(style="own", own_prompt=own, show=("references",))
    own = PromptTemplate(name="own", system="$task", user="$title $references")
    assert TaskRules(style="own", own_prompt=own, show=("references",)).unseen == ("at_publication",)
    with pytest.raises(PromptError, match=r"prompt 'own' shows \$references, which hide names"):
        TaskRules(style="own", own_prompt=own, hide=("references",))


def test_a_paper_may_be_judged_by_what_it_built_on_alone(papers):
    rules = TaskRules(hide=("title", "abstract", "publication_year", "cited_by_count", "primary_field"), show=CONTEXT)
    record = record_of(rules.render(papers[1].view))
    assert [name for name, value in record.items() if value] == [*CONTEXT]


# --- presets, records ---------------------------------------------------------------------------------------------


def test_presets_options_and_records_of_runs_say_what_is_shown():
    preset = make_preset("own", base="exp4", show=["at_publication", "references"])
    assert preset.rules.show == CONTEXT  # in the order of the record
    assert preset.rules == resolve_preset(TrainOptions(preset="exp4", show=CONTEXT)).rules
    described = json.loads(json.dumps(describe(preset)))
    assert described["show"] == [*CONTEXT]
    assert recall_preset(described).rules == preset.rules
    assert described["prompt_sha256"] != describe(find_preset("exp4"))["prompt_sha256"]
    del described["show"]
    assert recall_preset(described).rules.show == ()


def test_a_comparison_marks_what_was_shown_and_older_runs_showed_nothing():
    plain, shown = (list_asked(describe(find_preset("exp4").with_settings(show=show))) for show in ((), CONTEXT))
    assert {name for name in plain if plain[name] != shown[name]} == {"show", "prompt_sha256"}
    assert list_asked({"style": "plain"})["show"] == list_asked({"baseline": "majority"})["show"] == []


def test_a_run_that_was_begun_before_it_could_show_goes_on_where_it_shows_nothing(toy_slice, tmp_path):
    settings = json.loads(json.dumps(describe(find_preset("exp4"))))
    facts = plan_run(tmp_path / "run", toy_slice, settings, behavior="raise")
    del facts["settings"]["show"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps(facts), "utf-8")
    assert plan_run(tmp_path / "run", toy_slice, settings, behavior="resume") is None
    with pytest.raises(SciSciRLError, match=r"was begun with show=\[\], not show="):
        plan_run(tmp_path / "run", toy_slice, settings | {"show": ["references"]}, behavior="resume")


# --- a release that is really built -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_built_release_shows_works_of_its_corpus_and_keeps_other_prompts(tmp_path):
    plain, whole = (
        build(
            BuildConfig(
                source=ExampleConfig(), split=SplitConfig(n_train=60, n_test=9), context=context,
                out=tmp_path / str(context), cache_dir=tmp_path / "cache",
            )
        )
        for context in (False, True)
    )  # fmt: skip
    titles = {*scan_example().works.select("title").collect()["title"]}
    before, after = (read_split(one.folder, "train") for one in (plain, whole))
    assert [one.openalex_id for one in before] == [one.openalex_id for one in after]
    n_shown = 0
    for older, paper in zip(before, after, strict=True):
        assert TaskRules().render(older.view) == TaskRules().render(paper.view)
        assert {one.title for one in paper.view.references} <= titles
        known = [one.publication_year for one in paper.view.references if one.publication_year is not None]
        assert known == sorted(known, reverse=True)
        assert max(known, default=0) <= paper.view.publication_year
        record = record_of(TaskRules(show=CONTEXT).render(paper.view))
        assert record["at_publication"].startswith(f"{paper.view.at_publication['n_references']} reference")
        n_shown += len(record.get("references", []))
    assert n_shown > 60
    assert [*after[0].view.at_publication] == [*NUMBERS]


def test_a_hidden_year_is_not_told_by_the_years_of_references(papers):
    view = papers[2].view
    assert any(cited.publication_year for cited in view.references)
    record = record_of(TaskRules(hide=("publication_year",), show=CONTEXT).render(view))
    assert record["publication_year"] is None
    assert record["references"] == [name_reference(one._replace(publication_year=None)) for one in view.references]
    assert record["at_publication"] == record_of(TaskRules(show=CONTEXT).render(view))["at_publication"]
