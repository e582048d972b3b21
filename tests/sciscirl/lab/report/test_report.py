from __future__ import annotations

import base64
import io
import json
import math
import re
import shutil
import struct

import matplotlib as mpl
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sciscidata.errors import StorageError
from sciscirl.cli.main import run as run_command
from sciscirl.errors import ReleaseError, RunFolderError, SciSciRLError
from sciscirl.lab.report import figures, views
from sciscirl.lab.report.figures import Series, plot_confusion, plot_lines
from sciscirl.lab.report.layout import Example, Picture, Section, Table
from sciscirl.lab.report.report import ReportConfig, render_report, write_report
from sciscirl.lab.report.runs import find_repeated, name_folders, read_run, read_runs
from sciscirl.lab.report.tables import (
    PUBLISHED_EXP5,
    PUBLISHED_RUNS,
    _say_signs,
    view_comparison,
    view_cost,
    view_groups,
    view_overview,
    view_published,
    view_runs,
    view_seeds,
)
from sciscirl.lab.report.views import view_challenges, view_contract
from sciscirl.lab.seeds import compare_seeds
from sciscirl.metrics.metrics import GROUP_SQUARE, bin_by_confidence, find_right, measure_predictions
from sciscirl.presets import describe, find_preset
from tests.conftest import REPOSITORY
from tests.sciscirl.made_runs import make_evaluation, make_predictions, make_run, write_facts
from tests.sciscirl.pages import CHROMIUM, Page, measure_in_browser

PUBLISHED = json.loads((REPOSITORY / "tests" / "golden" / "published.json").read_text("utf-8"))
HOSTILE = (
    '</pre><script src="http://x.example/a.js">alert(1)</script><img src=//x.example/b onerror=alert(2)> &amp; "\''
)


def answers(skill=0.5, preset="exp4", n=60, **options):
    return make_predictions(find_preset(preset), n, skill=skill, **options)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Runs of every kind and in every state."""
    home = tmp_path_factory.mktemp("runs")
    make_run(home / "exp4", evaluations={0: answers(0.1, text=HOSTILE), 2: answers(0.4), 4: answers(0.8, text=HOSTILE)})
    make_run(home / "exp5", "exp5", evaluations={0: answers(0.1, "exp5"), 4: answers(0.1, "exp5", bias=1.0)}, seed=1)
    make_run(home / "sft", evaluations={0: answers(0.1), 4: answers(0.6)}, settings={"backend": "peft"})
    make_run(home / "joint", "joint", evaluations={0: answers(0.2, "joint"), 4: answers(0.6, "joint")})
    make_run(home / "base_only", evaluations={0: answers(0.1)}, n_steps=1, finished=False)
    make_run(home / "unjudged", evaluations={}, n_steps=2, finished=False)
    make_evaluation(home / "majority", answers(0.0, bias=1.0, broken=0.0), {"baseline": "majority", "seed": 0})
    just_begun = home / "begun"
    just_begun.mkdir()
    write_facts(just_begun, {"name": "exp4", "learning_rate": 4e-5, "model": "/srv/secret/mine"}, "5a" * 32)
    return home


@pytest.fixture(scope="module")
def report(home, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "report.html"
    folders = ("exp4", "exp5", "sft", "joint", "base_only", "unjudged", "majority", "begun")
    write_report(ReportConfig(runs=tuple(home / name for name in folders), out=out, title="Runs & <others>"))
    return out


@pytest.fixture(scope="module")
def page(report):
    return Page(report.read_text("utf-8"))


def test_the_page_needs_nothing_else_and_runs_nothing(page, report):
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,")), (tag, attributes)
    style = re.search(r"<style>(.*?)</style>", report.read_text("utf-8"), flags=re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_the_page_is_for_phones_print_and_readers(page, report):
    assert any(a.get("name") == "viewport" and "width=device-width" in a["content"] for _, a in page.tags)
    assert ("html", {"lang": "en"}) in page.tags
    assert "@media print" in report.read_text("utf-8")
    assert "prefers-color-scheme: dark" in report.read_text("utf-8")
    assert all(len(a["alt"]) > 20 for tag, a in page.tags if tag == "img")
    n_tables = sum(tag == "table" for tag, _ in page.tags)
    assert n_tables == sum(a.get("class") == "scroll" for _, a in page.tags)
    anchors = {a["href"][1:] for tag, a in page.tags if tag == "a"}
    assert anchors == {a["id"] for tag, a in page.tags if tag == "section"}
    assert page.open == []


def test_every_view_is_there(page):
    views = [a["id"] for tag, a in page.tags if tag == "section"]
    assert views == [
        "overview", "runs", "published", "comparison", "trajectories", "balance", "contract", "reliability",
        "confusion", "rewards", "examples", "cost",
    ]  # fmt: skip


def test_markup_in_titles_and_answers_is_shown_and_not_obeyed(page):
    assert HOSTILE in page.text
    assert "Runs & <others>" in page.text


def test_each_state_of_a_run_is_said(page):
    state = {name: page.row(name)[-1] for name in ("exp4", "base_only", "unjudged", "majority", "begun")}
    assert state == {
        "exp4": "finished after 4 steps",
        "base_only": "not finished, 1 step so far; evaluated only before training",
        "unjudged": "not finished, 2 steps so far; no evaluation",
        "majority": "evaluated",
        "begun": "no step taken yet; no evaluation",
    }


def test_results_are_those_of_the_last_evaluation_with_intervals(page):
    metrics = measure_predictions(answers(0.8, text=HOSTILE))
    _, label_match, macro_f1, recall, invalid, signs, n, step, *judged, _ = page.row("exp4")
    assert label_match.startswith(f"{metrics['label_match']:.3f} [0.")
    assert macro_f1.startswith(f"{metrics['macro_f1']:.3f} [0.")
    assert recall.startswith(f"{metrics['min_class_recall']:.3f} [0.")
    assert (invalid, signs, n, step) == (f"{metrics['invalid']:.3f}", "none", "60", "4")
    assert judged == ["test", "3"]
    assert "predicted_share/disruptive" in page.row("exp5")[5]
    assert page.row("unjudged")[1:5] == ["–"] * 4


def test_the_page_opens_with_the_best_run_of_each_task_its_interval_papers_slice_and_day(home, tmp_path):
    few = make_evaluation(tmp_path / "few", answers(1.0, broken=0.0, n=12), {"split": "test"})
    section = view_overview(read_runs([home / "exp5", home / "exp4", few, home / "joint", home / "begun"]))
    first, second = section.headline
    score = measure_predictions(answers(0.8, text=HOSTILE))["macro_f1"]
    assert first.startswith(f"Best of 2 on disruption: exp4, macro_f1 {score:.3f} [0.")  # not the one with 12 papers
    assert first.endswith("60 papers of test, openalex 5a5a5a5a5a5a, 1999-12-31. The papers that chose it flatter it.")
    assert second.startswith("Only one on joint: joint, macro_f1 0.")
    assert view_overview(read_runs([home / "begun"])).headline == []


def test_seeds_of_one_preset_stand_together(home, tmp_path):
    for seed, skill in ((0, 0.4), (1, 0.6), (2, 0.8)):
        make_run(tmp_path / f"seed{seed}", evaluations={4: answers(skill, seed=seed)}, seed=seed)
    names = [tmp_path / "seed0", home / "exp5", tmp_path / "seed1", tmp_path / "seed2", home / "majority"]
    section = view_seeds(read_runs(names))
    means, differences = section.tables
    scores = [
        measure_predictions(answers(skill, seed=seed))["label_match"] for seed, skill in ((0, 0.4), (1, 0.6), (2, 0.8))
    ]
    assert [row[:2] for row in means.rows] == [["seed0, seed1, seed2", "0, 1, 2"], ["exp5", "1"], ["majority", "–"]]
    assert means.rows[0][2].startswith(f"{sum(scores) / 3:.3f} [")
    assert [row[:2] for row in differences.rows] == [
        ["seed0, seed1, seed2 − exp5", metric] for metric in ("label_match", "macro_f1", "min_class_recall")
    ]
    assert differences.rows[0][5] == "reward"
    assert section.pictures[0].alt.startswith("Scores of ways to train. seed0, seed1, seed2: label_match 0.")
    assert view_seeds(read_runs([home / "exp4", home / "exp5"])) is None


def test_a_curve_of_seeds_is_their_mean_and_that_of_one_run_has_the_error_of_its_groups(tmp_path, monkeypatch):
    for seed in (0, 1):
        run = make_run(tmp_path / f"seed_{seed}", evaluations={0: answers(0.2, seed=seed), 4: answers(0.7)}, seed=seed)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
        for row in rows[:4]:
            row |= {"env/all/reward/total": 0.5 + seed, "env/all/total_episodes": 10, f"env/all/{GROUP_SQUARE}": 0.3125}
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    drawn = {}
    monkeypatch.setattr(views, "plot_lines", lambda lines, *, title, **_: drawn.setdefault(title, lines) and b"")
    both = read_runs([tmp_path / "seed_0", tmp_path / "seed_1"])
    views.view_rewards(both)
    (line,) = drawn["Mean reward"].values()
    assert (line.values, line.lows, line.highs) == ([1.0] * 4, [0.5] * 4, [1.5] * 4)
    views.view_trajectories(both)
    (line,) = drawn["macro-F1"].values()
    found = [[one.metrics["macro_f1"] for one in run.evaluations] for run in both]
    assert line.values == [sum(pair) / 2 for pair in zip(*found, strict=True)]
    drawn.clear()
    views.view_rewards(both[:1])
    (line,) = drawn["Mean reward"].values()
    assert (line.values, line.lows, line.highs) == ([0.5] * 4, [0.375] * 4, [0.625] * 4)


def test_runs_that_differ_in_more_than_the_seed_or_in_where_they_began_are_apart(tmp_path):
    def begin(name, kind, seed):
        run = make_run(
            tmp_path / name, evaluations={4: answers()}, seed=seed, settings={"load_checkpoint": f"t/{seed}"}
        )
        facts = json.loads((run / "run.json").read_text("utf-8"))
        facts["begun_from"] = {"path": f"t/{seed}", "folder": "x", "kind": kind, "step": 4}
        (run / "run.json").write_text(json.dumps(facts), "utf-8")
        return run

    names = [begin("a/seed_0", "sft", 0), begin("a/seed_1", "sft", 1), begin("b", "rl", 2)]
    names += [
        make_run(tmp_path / "c", evaluations={4: answers()}, seed=3),
        make_run(tmp_path / "d", evaluations={}, seed=3),
    ]
    found = {one.name: [*one.runs] for one in find_repeated(read_runs(names))}
    assert found == {"a": [0, 1], "b": [2], "c": [3], "d": [3]}


def test_final_evaluations_of_several_seeds_stand_together(tmp_path):
    for seed in (0, 1):
        run = make_run(tmp_path / "exp4" / f"seed_{seed}", evaluations={4: answers(seed=seed)}, seed=seed)
        make_evaluation(run / "final", answers(seed=2 + seed), {"preset": "exp4", "selected": {"step": seed}})
    make_run(tmp_path / "exp5" / "seed_0", "exp5", evaluations={4: answers()})
    folders = [tmp_path / name for name in ("exp4/seed_0", "exp4/seed_1", "exp5/seed_0")]
    found = {one.name: [*one.runs] for one in find_repeated(read_runs(folders))}
    assert found == {"exp4": [0, 1], "exp4, final, step 0, step 1": [0, 1], "exp5/seed_0": [0]}
    section = view_seeds(read_runs(folders))
    assert [row[:2] for row in section.tables[0].rows][:2] == [
        ["exp4", "0, 1"], ["exp4, final, step 0, step 1", "0, 1"]
    ]  # fmt: skip


def test_scores_of_seeds_are_drawn_where_they_are(monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "_to_png", lambda figure: drawn.append(figure) or b"")
    ways = {"good": {0: answers(0.9, seed=1), 1: answers(0.7, seed=2)}}
    found = compare_seeds(ways, beside={"majority": answers(0.0, bias=1.0, broken=0.0)})
    figures.plot_scores(found, n_columns=2)
    panel = drawn[0].axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["good", "majority"]
    assert panel.get_xlabel() == "label_match"
    strokes, mark = panel.lines[0], panel.lines[1]
    assert [*strokes.get_xdata()] == [*found.by_seed["good"]["label_match"]]
    assert [*mark.get_xdata()] == [found.scores["good"]["label_match"].value]


def test_a_folder_of_baselines_stands_for_each_of_them(home, tmp_path):
    for name in ("majority", "tfidf_logistic"):
        make_evaluation(tmp_path / "evaluations" / name, answers(0.1), {"baseline": name})
    make_evaluation(tmp_path / "evaluations" / "exp4", answers(0.1), {})  # of a run
    (tmp_path / "evaluations" / "other").mkdir()
    (tmp_path / "evaluations" / "other" / "run.json").write_text("[", "utf-8")
    runs = read_runs([home / "exp4", tmp_path / "evaluations"])
    assert [(run.name, run.kind) for run in runs[1:]] == [("majority", "baseline"), ("tfidf_logistic", "baseline")]


def test_a_model_that_writes_no_json_is_not_called_collapsed(tmp_path):
    lost = answers(0.0, n=80, broken=1.0)
    lost = lost.filter(~lost["is_json"]).head(12)
    run = make_evaluation(tmp_path / "lost", lost, {"contract": "two_keys"})
    (row,) = view_overview([read_run(run, "lost")]).tables[0].rows
    assert row[5].startswith("no verdict: 0 of 12 answers were JSON; does the model know the contract two_keys?")
    (few,) = (
        view_overview([read_run(make_evaluation(tmp_path / "few", answers(1.0, n=9, broken=0.0), {}), "few")])
        .tables[0]
        .rows
    )
    assert few[5] == "no verdict: 9 valid answers are too few to tell class collapse: 50 are needed."


@pytest.mark.parametrize(
    ("kind", "settings", "begun_from"),
    [
        ("sft", {"backend": "peft"}, None),
        ("rl from sft", {}, {"kind": "sft", "step": 4, "folder": "sft", "path": "x"}),
        ("evaluation of sft", {"weights": {"run": "sft", "step": 4, "is_taught": True}}, None),
    ],
)
def test_a_model_that_learned_from_gold_answers_is_not_sent_to_learn_from_them_first(
    tmp_path, kind, settings, begun_from
):
    lost = answers(0.0, n=80, broken=1.0)
    lost = lost.filter(~lost["is_json"]).head(12)
    if kind.startswith("evaluation"):
        run = make_evaluation(tmp_path / "run", lost, settings)
    else:
        run = make_run(tmp_path / "run", evaluations={4: lost}, settings={"learning_rate": 1e-4, **settings})
        facts = json.loads((run / "run.json").read_text("utf-8")) | {"begun_from": begun_from}
        (run / "run.json").write_text(json.dumps(facts), "utf-8")
    said = _say_signs(read_run(run, "run"))
    assert "More steps on gold answers teach it" in said
    assert "sciscirl sft" not in said


def test_the_contract_stands_beside_that_of_the_published_runs(home):
    (picture,) = view_published(read_runs([home / "exp4"])).pictures
    invalid = measure_predictions(answers(0.8, text=HOSTILE))["invalid"]
    assert "baseline, published: 91.8% keep it, 8.2% invalid" in picture.alt
    assert f"exp4: {1 - invalid:.1%} keep it, {invalid:.1%} invalid." in picture.alt


def test_a_model_in_a_folder_is_named_without_the_path(page):
    assert "mine" in page.row("model")
    assert "secret" not in page.text


def test_pictures_lie_beside_the_page_and_are_the_same(report, page):
    inline = {base64.b64decode(a["src"].partition(",")[2]) for tag, a in page.tags if tag == "img"}
    beside = {path.read_bytes() for path in report.with_name("report_pictures").iterdir()}
    assert inline == beside
    assert len(beside) > 20
    for png in beside:
        width, height = struct.unpack(">II", png[16:24])
        assert width == 704
        assert 200 < height < 1500


def test_the_same_runs_give_the_same_bytes(home, tmp_path):
    one = write_report(ReportConfig(runs=(home / "exp4",), out=tmp_path / "one.html"))
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "savefig.bbox": "tight"}):  # a user's own taste
        other = write_report(ReportConfig(runs=(home / "exp4",), out=tmp_path / "other.html"))
    assert one.read_bytes() == other.read_bytes()
    assert b"202" not in re.sub(rb"data:[^\"]*|prices of 2026-10|Part 2\), 2026", b"", one.read_bytes())  # no date


def test_published_figures_are_those_of_the_note():
    for run in PUBLISHED["runs"]:
        assert {name: float(value) for name, value in run["printed"].items()} == PUBLISHED_RUNS[run["name"]]
    assert len(PUBLISHED["runs"]) == len(PUBLISHED_RUNS)
    for step in PUBLISHED["exp5"]:
        number = int(step["name"].removeprefix("step "))
        assert {name: float(value) for name, value in step["printed"].items()} == PUBLISHED_EXP5[number]
    assert len(PUBLISHED["exp5"]) == len(PUBLISHED_EXP5)


def test_a_run_stands_below_the_published_one_that_it_replicates(home):
    section = view_published(read_runs([home / name for name in ("sft", "exp4", "exp5", "joint")]))
    runs, trajectory = section.tables
    names = [row[0] for row in runs.rows]
    assert names == [*(f"{name}, published" for name in PUBLISHED_RUNS), "exp4", "sft", "exp5"]  # sft replicates none
    assert runs.rows[0][runs.head.index("recall/neutral")] == "0.6085"
    assert trajectory.rows[1][trajectory.head.index("label_match")] == "0.3445"  # as printed, not rounded to 0.344
    assert [row[:2] for row in trajectory.rows[-2:]] == [["exp5", "0"], ["exp5", "4"]]
    assert view_published(read_runs([home / "joint"])) is None


def test_runs_are_compared_with_those_of_their_task_and_slice(home, tmp_path):
    other = make_evaluation(tmp_path / "elsewhere", answers(), {"split": "test"}, manifest_sha256="1b" * 32)
    runs = read_runs([home / "exp4", home / "joint", home / "majority", other])
    section = view_comparison(runs)
    assert [row[0] for row in section.tables[0].rows] == ["exp4 \u2212 majority"]
    assert "joint is alone" in section.text
    assert "elsewhere is alone" in section.text
    assert view_comparison(runs[:1]) is None
    several = make_evaluation(tmp_path / "several", pl.concat([answers(), answers()]), {"split": "test"})
    section = view_comparison(read_runs([home / "exp4", several]))
    assert "cannot be compared: several has 60 more answers than papers" in section.text
    assert not section.tables


def test_who_judged_fewer_papers_is_alone_and_keeps_nobody_from_being_compared(home, tmp_path):
    fewer = make_evaluation(tmp_path / "fewer", answers().head(30), {"split": "test"})
    section = view_comparison(read_runs([home / "exp4", fewer, home / "majority"]))
    assert [row[0] for row in section.tables[0].rows] == ["exp4 \u2212 majority"]
    assert "fewer is alone with its task, release and papers." in section.text


def test_a_paper_without_an_id_is_one_of_the_same_papers(tmp_path):
    nameless = answers().with_columns(pl.col("openalex_id").replace("W1", None))
    assert nameless["openalex_id"].null_count()
    folders = [make_evaluation(tmp_path / name, nameless, {"split": "test"}) for name in ("one", "other")]
    (table,) = view_comparison(read_runs(folders)).tables
    assert [row[0] for row in table.rows] == ["one \u2212 other"]


def test_the_release_that_an_evaluated_run_was_trained_on_is_named(home, tmp_path):
    judged = make_evaluation(tmp_path / "judged", answers(), {"split": "test", "trained_on": "5a" * 32})
    _, stated, *_ = view_runs(read_runs([home / "exp4", judged])).tables  # all runs of a kind lack it
    assert ["trained_on", "release 5a5a5a5a5a5a"] in [list(row) for row in stated.rows]
    differing = view_runs(read_runs([home / "exp4", home / "exp5", home / "sft", judged])).tables[0].rows
    assert ["seed", "0", "1", "0", "\u2013"] in [list(row) for row in differing]


def test_what_differs_stands_apart_from_what_does_not(home):
    differing, shared, *_ = view_runs(read_runs([home / "exp4", home / "exp5"])).tables
    assert ["seed", "0", "1"] in [list(row) for row in differing.rows]
    assert ["batch_size", "16"] in [list(row) for row in shared.rows]
    assert {row[0] for row in differing.rows}.isdisjoint(row[0] for row in shared.rows)
    assert "openalex 5a5a5a5a5a5a" in [row[1] for row in shared.rows]


def test_cost_is_counted_from_the_logs(home, tmp_path):
    folder = shutil.copytree(home / "exp4", tmp_path / "exp4")
    rollouts = folder / "iteration_000002" / "eval_test_rollout_summaries.jsonl"
    rollouts.parent.mkdir()
    rollouts.write_text('{"steps": [{"ob_len": 100, "ac_len": 10}]}\n' * 60 + '{"steps": [{"ob', "utf-8")
    run = read_run(folder, "exp4")
    assert (run.usage.prefill, run.usage.sample) == (4 * 6400 + 6000, 4 * 640 + 600)
    assert run.usage.train == 4 * 7040
    assert run.problems == ("iteration_000002/eval_test_rollout_summaries.jsonl: a damaged line left out",)
    (row,) = view_cost([run]).tables[0].rows
    dollars = (31600 * 0.195 + 3160 * 0.60 + 28160 * 0.44) / 1e6
    assert list(row) == ["exp4", "31,600", "3,160", "28,160", f"${dollars:.2f}", "8.0 s", "2.0 s"]
    sft, unjudged = read_run(home / "sft", "sft"), read_run(home / "majority", "majority")
    assert sft.usage.train == 3200
    assert list(view_cost([unjudged]).tables[0].rows[0][1:]) == ["–"] * 6


def test_ties_stand_beside_what_a_group_size_takes(home):
    table = view_groups(read_runs([home / "exp4", home / "sft"]))
    assert len(table.rows) == 1
    row = dict(zip(table.head, table.rows[0], strict=True))
    assert (row["group_size"], row["reward_uniform_group_rate"], row["share right"]) == ("2", "0.250", "0.300")
    assert row["rollouts per second"] == "16.00"
    assert row["mean reward"] == "0.000"
    assert view_groups(read_runs([home / "sft"])) is None


def test_tolerant_only_is_what_the_contract_alone_refuses(home):
    table = answers(1.0, broken=0.5)
    right = (table["tolerant_label"] == table["gold"]) & ~table["is_valid"]
    evaluation = make_evaluation(
        home / "broken", table, {"reward_table": describe(find_preset("exp4"))["reward_table"]}
    )
    (row,) = view_contract([read_run(evaluation, "broken")]).tables[0].rows
    assert row[5] == f"{right.sum() / len(table):.3f}" != "0.000"
    assert row[6] == f"{(table['reward'] <= -1).sum() / len(table):.3f}" != "0.000"
    counts = {name: int(n) for name, n in (one.split() for one in row[7].split(", "))}
    assert sum(counts.values()) == (~table["is_valid"]).sum()


@given(st.lists(st.tuples(st.none() | st.integers(0, 20), st.booleans()), min_size=1, max_size=40))
def test_the_bins_of_the_diagram_are_those_of_the_calibration_error(drawn):
    rows = []
    for twentieth, is_right in drawn:
        sure = None if twentieth is None else twentieth / 20
        label = None if sure is None else "neutral" if is_right else "disruptive"
        rows.append(
            {"gold": "neutral", "label": label, "confidence": sure, "is_json": True, "is_valid": sure is not None}
        )
    table = pl.DataFrame(rows, schema_overrides={"label": pl.String, "confidence": pl.Float64})
    bins = bin_by_confidence(table["confidence"], find_right(table))
    assert len(bins) == 10
    assert sum(one.n for one in bins) == len(drawn)
    ece = math.fsum(abs(one.confidence_sum - one.n_right) for one in bins) / len(drawn)
    assert measure_predictions(table)["ece"] == pytest.approx(ece)
    for number, one in enumerate(bins):
        assert number / 10 - 1e-9 <= one.confidence_sum / max(one.n, 1) <= (number + 1) / 10 + 1e-9 or not one.n


def test_damaged_files_are_said_and_the_rest_is_shown(home, tmp_path):
    folder = shutil.copytree(home / "exp4", tmp_path / "exp4")
    (folder / "predictions" / "test_000004.parquet").write_bytes(b"PAR1 not quite")
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 9, "env/all/reward/total": NaN}\n[1]\n{"step": 10, "env/al')
    run = read_run(folder, "exp4")
    assert [one.step for one in run.evaluations] == [0, 2, 4]
    assert run.last.predictions is None
    assert run.last.metrics["label_match"] == measure_predictions(answers(0.8, text=HOSTILE))["label_match"]
    assert len(run.problems) == 2
    assert "2 damaged lines" in run.problems[0]  # that of another kind too: nothing is left out silently
    assert run.problems[1].startswith("test_000004.parquet: it is no Parquet file")
    assert all(math.isfinite(value) for row in run.rows for value in row.values())
    out = write_report(ReportConfig(runs=(folder,), out=tmp_path / "r.html"))
    assert "test_000004.parquet: it is no Parquet file" in Page(out.read_text("utf-8")).text


def test_how_a_run_ended_is_told_by_what_it_left(home, tmp_path):
    stopped = shutil.copytree(home / "unjudged", tmp_path / "stopped")
    assert read_run(stopped, "r").state == "not finished, 2 steps so far; no evaluation"
    with (stopped / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 2, "collapse_stop": 1.0}\n')
    assert read_run(stopped, "r").state == "stopped after 2 steps: class collapse"
    local = shutil.copytree(home / "base_only", tmp_path / "local")
    (local / "adapter").mkdir()
    assert read_run(local, "r").state == "finished after 1 step; evaluated only before training"


def test_a_step_that_a_resumed_run_took_again_counts_once(home, tmp_path):
    folder = shutil.copytree(home / "exp4", tmp_path / "exp4")
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    again = json.loads(lines[1]) | {"env/all/label_match": 0.9}
    (folder / "metrics.jsonl").write_text("\n".join([*lines, json.dumps(again)]) + "\n", "utf-8")
    run = read_run(folder, "exp4")
    assert run.n_steps == len(run.rows) == 4
    assert run.rows[1]["env/all/label_match"] == 0.9


def test_evaluations_with_several_answers_to_a_paper_are_shown(home, tmp_path):
    make_run(tmp_path / "r", evaluations={0: answers(), 4: pl.concat([answers(), answers(seed=1)])})
    out = write_report(ReportConfig(runs=(tmp_path / "r", home / "majority"), out=tmp_path / "r.html"))
    assert Page(out.read_text("utf-8")).row("r")[6] == "120"


def test_what_a_challenge_did_is_shown_where_there_was_one(home, tmp_path):
    final = answers(0.5, n=12)
    first = [*final["gold"].to_list()[:8], *["neutral"] * 4]
    table = final.with_columns(pl.Series("first_label", first, dtype=pl.String))
    make_run(tmp_path / "challenged", evaluations={0: table, 4: table})
    shown = view_challenges(read_runs([tmp_path / "challenged", home / "exp4"]))
    ((name, kept_right, *_),) = shown.tables[0].rows
    right_twice = [a == b == c for a, b, c in zip(table["gold"], first, table["label"], strict=True)]
    assert 0 < sum(right_twice) < 8
    assert (name, kept_right) == ("challenged", f"{sum(right_twice) / 12:.3f}")
    assert shown.pictures
    assert view_challenges(read_runs([home / "exp4"])) is None
    out = write_report(ReportConfig(runs=(tmp_path / "challenged",), out=tmp_path / "r.html"))
    assert "before and after a challenge" in out.read_text("utf-8")


@pytest.mark.parametrize("content", [None, "{", "[]", '{"settings": 3}'])
def test_a_folder_that_is_no_run_is_one_clear_error(tmp_path, content):
    if content is not None:
        (tmp_path / "run.json").write_text(content, "utf-8")
    with pytest.raises(RunFolderError, match=r"run\.json"):
        write_report(ReportConfig(runs=(tmp_path,), out=tmp_path / "r.html"))
    assert not (tmp_path / "r.html").exists()


def test_mistakes_are_refused(home, tmp_path):
    with pytest.raises(RunFolderError, match="given twice"):
        read_runs([home / "exp4", home / "sft" / ".." / "exp4"])
    for options, match in (({"runs": ()}, "runs is"), ({"out": tmp_path}, r"\.html"), ({"n_examples": -1}, "-1")):
        with pytest.raises(SciSciRLError, match=match):
            ReportConfig(**{"runs": (home / "exp4",), **options})
    (tmp_path / "r_pictures").mkdir()
    (tmp_path / "r_pictures" / "thesis.docx").touch()
    with pytest.raises(SciSciRLError, match="something other than pictures"):
        write_report(ReportConfig(runs=(home / "exp4",), out=tmp_path / "r.html"))
    with pytest.raises(ReleaseError, match="not a release"):
        write_report(ReportConfig(runs=(home / "exp4",), out=tmp_path / "q.html", release=tmp_path))


def test_a_place_that_cannot_be_written_is_one_clear_error(home, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        write_report(ReportConfig(runs=(home / "majority",), out=tmp_path / "file" / "r.html"))


def test_a_report_that_fails_leaves_the_older_one_as_it_was(home, tmp_path, monkeypatch):
    out = write_report(ReportConfig(runs=(home / "majority",), out=tmp_path / "r.html"))
    before = {path.name: path.read_bytes() for path in (out, *(tmp_path / "r_pictures").iterdir())}
    monkeypatch.setattr("sciscirl.lab.report.report.atomic_file", lambda path: pytest.fail("reached too early"))
    monkeypatch.setattr("pathlib.Path.write_bytes", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(StorageError, match="disk"):
        write_report(ReportConfig(runs=(home / "exp4",), out=out))
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in (out, *(tmp_path / "r_pictures").iterdir())} == before


@given(st.lists(st.lists(st.sampled_from(["a", "b", "exp"]), min_size=1, max_size=4), min_size=1, max_size=5))
def test_names_of_folders_are_short_and_differ(parts):
    from pathlib import Path

    folders = list(dict.fromkeys(Path("/top", *names) for names in parts))
    names = name_folders(folders)
    assert len(set(names)) == len(folders)
    for folder, name in zip(folders, names, strict=True):
        assert str(folder).endswith(name)
        shorter = name.partition("/")[2]
        assert not shorter or sum(str(other).endswith(f"/{shorter}") for other in folders) > 1


def test_runs_whose_names_differ_in_signs_only_keep_their_pictures(home, tmp_path):
    for name in ("run_1", "run-1", "RUN 1"):
        make_run(tmp_path / name, evaluations={0: answers()})
    out = write_report(
        ReportConfig(runs=tuple(tmp_path / n for n in ("run_1", "run-1", "RUN 1")), out=tmp_path / "r.html")
    )
    names = {path.name for path in (tmp_path / "r_pictures").iterdir()}
    assert {"confusion_run-1.png", "confusion_run-1-2.png"} <= names
    assert len(names) == out.read_text("utf-8").count("<img ")


def test_a_second_report_replaces_the_first_and_its_pictures(home, tmp_path):
    out = tmp_path / "r.html"
    write_report(ReportConfig(runs=(home / "exp4", home / "sft"), out=out))
    write_report(ReportConfig(runs=(home / "majority",), out=out))
    assert "exp4" not in Page(out.read_text("utf-8")).rows[1]
    assert not list((tmp_path / "r_pictures").glob("*exp4*"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r_pictures"]


def test_papers_are_shown_beside_answers_where_the_slice_is_that_of_the_run(toy_slice, tmp_path):
    import hashlib

    from sciscirl.task.papers import read_split

    papers = read_split(toy_slice, "test")
    ids = [paper.openalex_id for paper in papers]
    table = answers(0.5, n=len(ids)).with_columns(openalex_id=pl.Series(ids))
    digest = hashlib.sha256((toy_slice / "manifest.json").read_bytes()).hexdigest()
    for name, sha in (("mine", digest), ("other", "1b" * 32)):
        make_run(tmp_path / name, evaluations={0: table}, manifest_sha256=sha)
    runs = (tmp_path / "mine", tmp_path / "other")
    out = write_report(ReportConfig(runs=runs, out=tmp_path / "r.html", release=toy_slice, n_examples=1))
    text = Page(out.read_text("utf-8")).text
    assert papers[0].view.abstract in text
    assert f"The papers of 1 run are not shown: {toy_slice.name} is not their release." in text


def test_examples_are_spread_over_gold_labels_and_outcomes(home):
    from sciscirl.lab.report.views import view_examples

    section = view_examples(read_runs([home / "exp4", home / "joint"]), n_each=3, release=None)
    for examples in section.examples.values():
        outcomes = [one.outcome for one in examples]
        assert outcomes == sorted(outcomes, key=("right", "wrong", "invalid").index)
        right = [one for one in examples if one.outcome == "right"]
        assert {one.facts["gold"].split(", ")[0] for one in right} == {"disruptive", "consolidating", "neutral"}
        for one in examples:
            assert (one.facts["gold"] == one.facts["answered"]) == (one.outcome == "right")
            assert one.facts["answered"].startswith("invalid: ") == (one.outcome == "invalid")
    assert view_examples(read_runs([home / "unjudged"]), n_each=3, release=None) is None


hostile = st.text(max_size=20) | st.sampled_from([HOSTILE, "a [b", "{{ 7 * 7 }}", "{% raw %}", "<wbr>", "a_b/c"])


@settings(max_examples=25)
@given(hostile, hostile, hostile)
def test_whatever_a_text_holds_it_is_text(one, two, three):
    section = Section(
        "s", one, two, [Table(three, [one], [[two, three]])], [Picture("p", b"png", three)],
        {one: [Example("right", two, {"paper": three}, one, two)]},
    )  # fmt: skip
    html = render_report([section], three)
    plain = Page(render_report([Section("s", "x", "y", [Table("z", ["x"], [["y", "z"]])], [Picture("p", b"png", "z")],
                                        {"x": [Example("right", "x", {"paper": "z"}, "x", "x")]})], "z"))  # fmt: skip
    page = Page(html)
    count = {tag for tag, _ in page.tags} - {"wbr", "span", "p"}
    assert count == {tag for tag, _ in plain.tags} - {"wbr", "span", "p"}
    assert "49" not in page.text or "49" in one + two + three


def test_a_picture_shows_what_it_is_given():
    base = {"a": Series(steps=[0, 1], values=[0.1, 0.2])}
    more = {"a": Series(steps=[0, 1], values=[0.1, 0.9])}
    assert plot_lines(base, title="t") == plot_lines(base, title="t") != plot_lines(more, title="t")
    counts = {gold: {name: int(gold == name) for name in ("x", "y", "invalid")} for gold in ("x", "y")}
    with Image.open(io.BytesIO(plot_confusion(counts, title="t"))) as image:
        colours = [image.getpixel((int(image.width * across), int(image.height * 0.2))) for across in (0.2, 0.5)]
    assert sum(colours[0][:3]) < sum(colours[1][:3])  # the diagonal is dark


def test_the_script_writes_the_page_and_a_mistake_is_one_line(home, tmp_path, capsys, script_here):
    run_command(["report", str(home / "majority"), "--out", str(tmp_path / "r.html"), "--title", "Mine"])
    assert capsys.readouterr().out == f"report: {tmp_path / 'r.html'}\npictures: {tmp_path / 'r_pictures'}\n"
    assert "<title>Mine</title>" in (tmp_path / "r.html").read_text("utf-8")
    done = script_here("report.py", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"error: {tmp_path} is not the folder of a run")


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="no browser")
def test_a_browser_needs_no_sideways_scrolling_on_a_phone(report, tmp_path):
    ((inside, shown, height, n_empty),) = measure_in_browser(report, tmp_path, [390])
    assert inside <= shown <= 390
    assert height > 5000
    assert n_empty == 0
