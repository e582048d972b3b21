"""What each baseline sees and says it saw, on a real release from tables that has no ``cited_by_count``."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

import sciscidata as ssd
from sciscidata.own_label import OwnLabel
from sciscirl.cli.main import main
from sciscirl.errors import ReleaseError
from sciscirl.lab.analysis.baselines import BASELINES, run_baseline
from sciscirl.lab.analysis.compare import CompareConfig, list_asked
from sciscirl.lab.analysis.features import OF_REFERENCES, Counts, Known, read_counts
from sciscirl.lab.analysis.seen import CITERS, say_seen
from sciscirl.lab.report import figures
from sciscirl.lab.report.answer import group_runs, judge_training
from sciscirl.lab.report.comparison import compare_files, render_comparison
from sciscirl.lab.report.runs import read_runs
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.presets import find_preset
from sciscirl.task.papers import OwnTarget, PaperView, Reference
from sciscirl.task.release import read_split
from sciscirl.task.rules import TaskRules
from sciscirl.task.targets import choose_target
from tests.sciscirl.made_runs import make_evaluation, make_predictions, make_run

KNOWN = ("words", "at_publication", "words_at_publication")
LABEL = OwnLabel(
    name="side_label",
    classes=("up", "down"),
    sql="CASE disruption_label WHEN 'disruptive' THEN 'up' WHEN 'consolidating' THEN 'down' END",
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The example, as tables of somebody who did not count citations."""
    home = tmp_path_factory.mktemp("tables")
    works, citations, _ = ssd.scan_example()
    works.drop("cited_by_count").collect().write_parquet(home / "works.parquet")
    citations.collect().write_parquet(home / "citations.parquet")
    return home


def draw(tables, out, **changes):
    source = ssd.TablesConfig(works=[str(tables / "works.parquet")], citations=[str(tables / "citations.parquet")])
    split = ssd.SplitConfig(n_train=120, n_test=48, balance="label" if "label" in changes else "disruption")
    return ssd.build(ssd.BuildConfig(source=source, out=out, split=split, novelty=None, **changes)).folder


@pytest.fixture(scope="module")
def release(tables, tmp_path_factory):
    return draw(tables, tmp_path_factory.mktemp("slices") / "tables")


@pytest.fixture(scope="module")
def papers(tables, tmp_path_factory):
    """Training and test papers of the same release with its context."""
    folder = draw(tables, tmp_path_factory.mktemp("slices") / "context", context=True)
    return [read_split(folder, split) for split in ("train", "test")]


def test_a_release_without_context_and_citations_says_so_and_what_each_baseline_saw(release, tmp_path, capsys, caplog):
    assert main(["evaluate", "--release", str(release), "--baselines", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    numbers = "year, field, number of references"
    saw = {
        "majority": "no paper",
        "words": "title, abstract",
        "at_publication": numbers,
        "words_at_publication": f"title, abstract, {numbers}",
        "later_counts": f"{numbers}; LATER: citers in the window, unknown at publication",
    }
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for name, said in saw.items():
        assert any(line.startswith(f"{name} ") and line.endswith(f" {said}") for line in lines), name
        settings = json.loads((tmp_path / "out" / name / "run.json").read_text("utf-8"))["settings"]
        assert say_seen(settings) == said
        assert settings["as_of"] == ("release" if name == "later_counts" else "publication")
    (warning,) = (message for message in caplog.messages if "--context" in message)
    assert warning.startswith(f"{release} has no facts on what its papers cite, so at_publication saw only {numbers}.")
    assert main(["evaluate", "--from-predictions", str(tmp_path / "out" / "words" / "predictions.parquet")]) == 0
    assert re.search(r"predictions +\d.* title, abstract\n", capsys.readouterr().out)

    compared = compare_files([str(tmp_path / "out" / "words")], CompareConfig(n_resamples=20), release=release)
    assert compared.saw["later_counts"] == saw["later_counts"]
    assert compared.to_json()["saw"] == compared.saw
    assert {*compared.scores} == {*BASELINES}


def test_with_its_context_a_baseline_sees_all_numbers_and_learns_from_them(papers):
    train, test = papers
    judged = {name: run_baseline(name, train, test) for name in (*KNOWN, "majority")}
    for name, numbers in (("at_publication", "year, field, numbers of references"), ("words", "title, abstract")):
        assert say_seen(judged[name].settings) == numbers
    assert {*OF_REFERENCES} < {*judged["at_publication"].settings["saw"]}
    matches = {name: measure_predictions(one.predictions)["label_match"] for name, one in judged.items()}
    assert max(matches["at_publication"], matches["words_at_publication"]) > matches["majority"]
    assert run_baseline("at_publication", train, test).predictions.equals(judged["at_publication"].predictions)


@pytest.mark.parametrize("name", KNOWN)
def test_later_counts_reach_no_baseline_that_was_known_at_publication(name, papers, release):
    rules = TaskRules(as_of="publication", contract="probabilities", reward="strong")
    counts = read_counts(release, "disruption")
    said = run_baseline(name, *papers, rules=rules, counts=counts)
    cited = [
        [replace(one, view=replace(one.view, cited_by_count=n**2)) for n, one in enumerate(side)] for side in papers
    ]
    moved = {key: own._replace(n_citers=n) for n, (key, own) in enumerate(counts.items())}
    other = run_baseline(name, *cited, rules=rules, counts=moved)
    assert other.predictions.equals(said.predictions)
    assert (said.settings["saw"], said.settings["as_of"]) == (other.settings["saw"], "publication")
    later = run_baseline("later_counts", *cited, rules=rules, counts=moved).settings
    assert (later["as_of"], later["saw"][-1]) == ("release", "cited_by_count")


def test_no_score_and_no_label_reaches_later_counts(papers, release):
    scores = ssd.read_release(release).scores
    counts = read_counts(release, "disruption")
    sums = {name: n_i + n_j for name, n_i, n_j in scores.select("openalex_id", "n_i", "n_j").iter_rows()}
    assert {name: own.n_citers for name, own in counts.items()} == sums  # the same whichever of them cite references
    assert Counts._fields == ("n_references", "n_citers")
    view = PaperView(None, None, None, None, None)
    rounded = [Known(view, Counts(n_citers=n)).of(CITERS) for n in range(16)]
    assert rounded == [0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4]  # odd and even alike
    train, test = papers
    blind = [replace(one, gold=replace(one.gold, disruption_label="neutral", scores={})) for one in test]
    said, other = (run_baseline("later_counts", train, asked, counts=counts).predictions for asked in (test, blind))
    assert said["label"].equals(other["label"])


def test_citers_of_an_own_label_are_seen_only_where_it_does_not_hide_citations(tables, tmp_path):
    for hidden in ((), ("cited_by_count",)):
        folder = draw(tables, tmp_path / f"hides {len(hidden)}", label=replace(LABEL, hidden=hidden))
        target = choose_target("side", folder)
        recalled = OwnTarget(OwnLabel(name="side_label", classes=target.label.classes, column="side_label"))
        for own in (target, recalled):
            assert all((one.n_citers is None) is bool(hidden) for one in read_counts(folder, own).values())
        assert any(one.n_citers for one in read_counts(folder, "disruption").values())
    assert main(["evaluate", "--release", str(folder), "--target", "side", "--baselines", "--out", str(tmp_path)]) == 0
    assert not (tmp_path / "later_counts").exists()
    assert (tmp_path / "words_at_publication").exists()


def test_words_see_titles_of_references_that_are_shown(papers, release):
    def cite(papers):
        seen = {"disruptive": "a", "consolidating": "b", "neutral": "c"}
        return [
            replace(one, view=replace(one.view, references=(Reference("quark" + seen[one.gold.disruption_label]),)))
            for one in papers
        ]

    train, test = map(cite, papers)
    rules = TaskRules(show=("references",), hide=("abstract",))
    told = run_baseline("words", train, test, rules=rules)
    assert say_seen(told.settings) == "title, titles of references"
    plain = run_baseline("words", train, test, rules=replace(rules, show=()))
    assert plain.settings["saw"] == ["title"]
    right = [measure_predictions(one.predictions)["label_match"] for one in (told, plain)]
    assert right[0] > right[1] + 0.2
    real = run_baseline("words", *papers, rules=TaskRules(show=("references",)))
    assert say_seen(real.settings) == "title, abstract, titles of references"
    assert real.settings["show"] == ["references"]
    with pytest.raises(ReleaseError, match="--context"):
        run_baseline("words", *(read_split(release, split) for split in ("train", "test")), rules=rules)


def test_a_picture_of_differences_marks_what_saw_later(tmp_path, monkeypatch):
    answers = make_predictions(find_preset("exp4"), 60, skill=0.5)
    for name, seen in {"words": ["title"], "later_counts": ["cited_by_count"]}.items():
        make_evaluation(tmp_path / name, answers, {"baseline": name, "saw": seen})
    drawn = []
    monkeypatch.setattr(figures, "_to_png", lambda figure: drawn.append(figure) or b"")
    compare_files([str(tmp_path / "words"), str(tmp_path / "later_counts")], CompareConfig(n_resamples=20), tmp_path)
    (panel,) = drawn[0].axes
    assert [one.get_text() for one in panel.get_yticklabels()] == ["words \N{MINUS SIGN}\nlater_counts (saw later)"]
    assert panel.get_xlabel().endswith("saw later: knew what came after publication")


def test_folders_of_older_baselines_say_what_they_saw_and_stand_beside_new_ones(tmp_path):
    answers = make_predictions(find_preset("exp4"), 60, skill=0.5)
    for name in ("tfidf_logistic", "metadata_boosting", "majority"):
        make_evaluation(tmp_path / name, answers, {"baseline": name, "hide": [], "as_of": "release"})
    settings = {"baseline": "words", "saw": ["title", "abstract"], "hide": [], "as_of": "publication"}
    make_evaluation(tmp_path / "words", answers, settings)
    compared = compare_files([str(tmp_path)], CompareConfig(n_resamples=20))
    later = "LATER: citations, unknown at publication"
    assert compared.saw == {
        "majority": "no paper",
        "metadata_boosting": f"year, field; {later}",
        "tfidf_logistic": f"title, abstract, year, field; {later}",
        "words": "title, abstract",
    }
    (pair,) = (one for one in compared.pairs if {one.left, one.right} == {"tfidf_logistic", "words"})
    assert pair.asked_otherwise == ("as_of",)
    rows = [line for line in render_comparison(compared).splitlines() if " \N{MINUS SIGN} " in line]
    pairs = {row.split("  ")[0]: row.endswith("saw what came later") for row in rows}
    both = "metadata_boosting \N{MINUS SIGN} tfidf_logistic"
    assert pairs == {pair: pair != both and ("_boosting" in pair or "tfidf" in pair) for pair in pairs}
    hidden = {"baseline": "metadata_boosting", "hide": ["primary_field"], "as_of": "publication"}
    assert say_seen(hidden) == "year"
    assert list_asked({"baseline": "majority"})["as_of"] == "release"  # of before, when nothing was stated


@pytest.mark.parametrize("as_of", ["publication", "release"])
def test_the_best_baseline_of_a_report_knows_no_more_than_the_prompts(as_of, tmp_path):
    first, last = (make_predictions(find_preset("exp4"), 60, skill=skill) for skill in (0.1, 0.6))
    run = make_run(tmp_path / "run", evaluations={0: first, 4: last}, settings={"as_of": as_of})
    folders = [run]
    for name, skill, saw in (("words", 0.3, ["title"]), ("later_counts", 0.9, ["cited_by_count"])):
        answers = make_predictions(find_preset("exp4"), 60, skill=skill)
        folders.append(make_evaluation(tmp_path / name, answers, {"baseline": name, "saw": saw}))
    (group,) = group_runs(read_runs(folders), None)
    best = judge_training(group.ways[0], group).baseline
    assert best.name == ("words" if as_of == "publication" else "later_counts")
