from __future__ import annotations

import base64
import io
import json
import math
import os
import re
import shutil
import stat
from types import SimpleNamespace

import matplotlib as mpl
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sciscidata.errors import ReleaseExistsError, StorageError
from sciscidata.storage.sums import find_changed, seal_file
from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import ReleaseError, RunFolderError, SciSciRLError
from sciscirl.lab.analysis.compare import CompareConfig, Estimate, compare_predictions
from sciscirl.lab.report import figures
from sciscirl.lab.report.answer import group_runs, view_answer
from sciscirl.lab.report.comparison import compare_files
from sciscirl.lab.report.figures import Series, plot_estimates, plot_lines
from sciscirl.lab.report.layout import Example, Picture, Section, Table
from sciscirl.lab.report.report import ReportConfig, render_report, write_report
from sciscirl.lab.report.runs import find_repeated, name_folders, read_run, read_runs
from sciscirl.lab.report.verdict import judge_training
from sciscirl.lab.report.views import say_signs, view_answers, view_cost, view_curves, view_examples, view_runs
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.presets import find_preset
from sciscirl.runs.folder import locked_folder
from tests.sciscirl.made_runs import make_evaluation, make_predictions, make_run, write_facts
from tests.web_pages import Page

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


def rows_of(table):
    return {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows}


# --- the answer ---------------------------------------------------------------------------------------------------


def answer_of(*folders, release=None):
    return view_answer(group_runs(read_runs(folders), release))


def test_the_first_line_says_whether_training_helped_by_how_much_and_against_what(home):
    first, joint, worst = answer_of(home / "exp4", home / "exp5", home / "joint", home / "majority").headline
    last, before = (measure_predictions(answers(skill, text=HOSTILE)) for skill in (0.8, 0.1))
    assert first.startswith(f"Training helped exp4. macro-F1 {last['macro_f1']:.3f} [0.")
    assert f"+{last['macro_f1'] - before['macro_f1']:.3f} [+0." in first
    assert f"against itself before training ({before['macro_f1']:.3f})" in first
    assert "against the best baseline, majority (0.167)" in first
    assert "the same 60 papers of test, task disruption. Trained minus start is the sum of " in first
    assert "One seed: this is about these weights, not about the recipe." in first
    assert first.endswith("Prompts showed what came after publication: cited_by_count.")
    assert joint.startswith("Training helped joint.")
    assert "baseline" not in joint
    assert worst.startswith(("Training hurt exp5", "Whether training helped exp5 is open"))


def test_a_gain_in_form_alone_is_called_that(tmp_path):
    broken = answers(0.3, n=90, broken=1.0)
    for name, skill, left, said in (
        ("lost", 0.9, 1.0, "Not even the form was learned by"),
        ("guess", 0.0, 0.0, "Only the form was learned by"),
        ("know", 0.9, 0.0, "Training helped"),
    ):
        run = make_run(tmp_path / name, evaluations={0: broken, 4: answers(skill, n=90, broken=left)})
        (line,) = answer_of(run).headline
        assert line.startswith(f"{said} {name}")
        assert f"{100 - 100 * broken['is_valid'].mean():.0f} % of the first answers were invalid" in line
    assert "beyond the form" in line


def test_gains_are_those_of_paired_papers(tmp_path):
    table = answers(0.5, n=90, broken=0.0)
    wrong = table["label"] != table["gold"]
    better = table.with_columns(label=pl.when(wrong.cum_sum() <= 12).then("gold").otherwise("label"))
    run = make_run(tmp_path / "run", evaluations={0: table, 4: better})
    (group,) = group_runs(read_runs([run]), None)
    verdict = judge_training(group.ways[0], group)
    assert verdict.start.gain.value == pytest.approx(
        measure_predictions(better)["macro_f1"] - measure_predictions(table)["macro_f1"]
    )
    unpaired = verdict.score.high - verdict.score.low
    assert verdict.start.gain.low > 0
    assert verdict.start.gain.high - verdict.start.gain.low < unpaired


def test_an_evaluated_model_is_compared_with_the_untrained_one_that_was_asked_alike(tmp_path):
    asked = {"preset": "exp4", "style": "plain", "temperature": 0.0}
    for name, more in (("other", {"answers": "logprobs"}), ("zero_shot", {})):
        make_evaluation(tmp_path / name, answers(0.1), asked | more)
    weights = {"run": "rl", "step": 4}
    hidden = {"hide": ["abstract"], "as_of": "publication", "show": ["references"]}
    make_evaluation(tmp_path / "rl_test", answers(0.8), asked | {"weights": weights} | hidden)
    section = answer_of(*(tmp_path / name for name in ("other", "zero_shot", "rl_test")))
    (line,) = section.headline
    assert line.startswith("Training helped rl_test.")
    assert "against zero_shot (" in line
    assert line.endswith(
        "Prompts withheld: abstract, cited_by_count. Prompts showed what the papers built on: references."
    )
    assert rows_of(section.tables[0])["rl_test"]["withheld"] == "abstract, cited_by_count"
    assert (
        answer_of(tmp_path / "zero_shot")
        .headline[0]
        .startswith("No trained model was given, so this page cannot say whether training helps.")
    )


def test_the_ceiling_of_the_release_and_its_baselines_stand_beside_the_runs(toy_slice, tmp_path, monkeypatch):
    import hashlib

    from sciscirl.lab.report import answer
    from sciscirl.task.release import read_split

    papers = read_split(toy_slice, "test")
    digest = hashlib.sha256((toy_slice / "manifest.json").read_bytes()).hexdigest()
    golds = [paper.gold.disruption_label for paper in papers]
    last = answers(n=len(papers), broken=0.0).with_columns(
        openalex_id=pl.Series(paper.openalex_id for paper in papers), gold=pl.Series(golds), label=pl.Series(golds)
    )
    first = last.with_columns(label=pl.lit("neutral"))
    make_run(tmp_path / "run", evaluations={0: first, 4: last}, manifest_sha256=digest)
    stated = SimpleNamespace(manifest={"ceiling": {"accuracy": 0.7, "macro_f1": 0.65, "works": 9}})
    monkeypatch.setattr(answer, "open_release", lambda _: stated)
    section = answer_of(tmp_path / "run", release=toy_slice)
    assert "These labels let a model expect macro-F1 0.650 at most." in section.headline[0]
    assert "are judged" not in section.text  # this release does not know it
    known = "All 9 works of this release are judged: a work cites them."
    monkeypatch.setattr(answer, "say_judged", lambda _: known)
    assert answer_of(tmp_path / "run", release=toy_slice).text.endswith(known)
    models, baselines, *_ = section.tables
    assert "majority" in rows_of(baselines)
    assert baselines.is_folded
    assert "majority" not in rows_of(models)
    elsewhere = make_run(tmp_path / "elsewhere", evaluations={0: first, 4: last})
    assert "at most" not in answer_of(elsewhere, release=toy_slice).headline[0]


def test_baselines_alone_are_no_training_and_stand_from_a_guess_to_what_knows_most(tmp_path):
    for name in ("words", "later_counts", "majority"):
        folder = make_evaluation(tmp_path / "all" / name, answers(0.1), {"baseline": name})
        facts = json.loads((folder / "run.json").read_text("utf-8")) | {"ceiling": {"accuracy": 0.6, "macro_f1": 0.6}}
        (folder / "run.json").write_text(json.dumps(facts), "utf-8")
    page = Page(write_report(ReportConfig(runs=(tmp_path / "all",), out=tmp_path / "r.html")).read_text("utf-8"))
    assert page.text.strip().startswith("Baselines on disruption")
    assert "Did training help?" not in page.text
    section = view_answer(group_runs(read_runs([tmp_path / "all"]), None))
    assert section.title == "How well do they judge?"
    assert [row[0] for row in section.tables[0].rows] == ["majority", "words", "later_counts"]
    assert "No model can be expected to exceed 60.0 %" in section.text
    assert "p comes from a test" not in section.text  # nothing was trained
    assert "class collapse" not in page.text  # columns in which no row says anything


def test_six_answers_are_not_drawn(home, tmp_path):
    make_run(tmp_path / "few", evaluations={0: answers(0.1, n=6), 4: answers(0.8, n=6)})
    assert answer_of(tmp_path / "few").pictures == []
    assert answer_of(home / "exp4").pictures
    assert {one.alt.partition(" over steps")[0] for one in view_curves(read_runs([tmp_path / "few"])).pictures} == {
        "Mean reward", "Groups whose rewards are all equal"
    }  # fmt: skip


def test_seeds_of_one_preset_stand_together(home, tmp_path):
    for seed, skill in ((0, 0.4), (1, 0.6), (2, 0.8)):
        make_run(tmp_path / f"seed{seed}", evaluations={4: answers(skill, seed=seed)}, seed=seed)
    section = answer_of(tmp_path / "seed0", home / "exp5", tmp_path / "seed1", tmp_path / "seed2", home / "majority")
    scores = [measure_predictions(answers(skill, seed=n))["label_match"] for n, skill in enumerate((0.4, 0.6, 0.8))]
    rows = rows_of(section.tables[0])
    assert [(name, row["seed"]) for name, row in rows.items()] == [("seed0, seed1, seed2", "0, 1, 2"), ("exp5", "1")]
    assert rows["seed0, seed1, seed2"]["accuracy"].startswith(f"{sum(scores) / 3:.3f} [")
    assert "Intervals are over 3 seeds and the papers." in " ".join(section.headline)
    pairs = answer_of(tmp_path / "seed0", tmp_path / "seed1", home / "exp5").tables[-1]
    assert [row[:2] for row in pairs.rows] == [
        ["seed0, seed1 − exp5", metric] for metric in ("accuracy", "macro-F1", "worst-class recall")
    ]
    assert pairs.rows[0][-1] == "reward"


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


def test_what_cannot_be_paired_is_left_out_and_keeps_nothing_else_from_being_compared(home, tmp_path):
    other = make_evaluation(tmp_path / "elsewhere", answers(), {}, manifest_sha256="1b" * 32)
    fewer = make_evaluation(tmp_path / "fewer", answers().head(30), {})
    several = make_evaluation(tmp_path / "several", pl.concat([answers(), answers().head(9)]), {})
    twice = make_evaluation(tmp_path / "twice", pl.concat([answers(), answers()]), {})
    nameless = answers().with_columns(pl.col("openalex_id").replace("W1", None))
    nameless = [make_evaluation(tmp_path / name, nameless, {}) for name in ("one", "two")]
    groups = group_runs(read_runs([home / "exp4", home / "joint", other, fewer, several, twice, *nameless]), None)
    assert [[way.name for way in group.ways] for group in groups] == [
        ["exp4", "twice"], ["joint"], ["elsewhere"], ["fewer"], ["one", "two"]
    ]  # fmt: skip
    out = write_report(ReportConfig(runs=(several, home / "majority"), out=tmp_path / "r.html"))
    assert Page(out.read_text("utf-8")).row("several")[3] == "69"


# --- the page -----------------------------------------------------------------------------------------------------


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
    anchors = [a["href"][1:] for tag, a in page.tags if tag == "a"]
    assert anchors == [a["id"] for tag, a in page.tags if tag == "section"]
    assert anchors == ["answer", "runs", "cost", "classes", "curves", "answers", "examples"]
    pictures = [base64.b64decode(a["src"].partition(",")[2]) for tag, a in page.tags if tag == "img"]
    assert len({*pictures}) == len(pictures) >= 8
    for png in pictures:
        with Image.open(io.BytesIO(png)) as image:
            assert image.width == 704
            assert 200 < image.height < 1500


def test_markup_and_names_of_folders_are_shown_and_not_obeyed(page):
    assert HOSTILE in page.text
    assert "Runs & <others>" in page.text
    assert "mine" in page.row("model")
    assert "secret" not in page.text


def test_each_state_of_a_run_is_said(page):
    state = {name: page.row(name)[1] for name in ("unjudged", "begun")}
    assert state == {
        "unjudged": "not finished, 2 steps so far; no evaluation", "begun": "no step taken yet; no evaluation"
    }  # fmt: skip


def test_a_run_that_lost_its_log_is_not_said_to_have_taken_no_step(tmp_path):
    make_run(tmp_path / "exp4", evaluations={0: answers(0.1), 2: answers(0.4)}, n_steps=2)
    (tmp_path / "exp4" / "metrics.jsonl").unlink()
    assert read_runs([tmp_path / "exp4"])[0].state == "metrics.jsonl is missing or empty"


def test_every_run_says_what_judged_it_how_often_and_whether_it_collapsed(home):
    table = rows_of(view_runs(read_runs([home / name for name in ("exp4", "exp5", "base_only", "majority")])).tables[0])
    assert [*table["exp4"].values()] == ["exp4", "finished after 4 steps", "4", "test", "60", "3", "no sign", "", ""]
    assert "predicted_share/disruptive" in table["exp5"]["class collapse"]
    assert table["base_only"]["state"] == "not finished, 1 step so far; evaluated only before training"
    assert (table["majority"]["state"], table["majority"]["class collapse"]) == ("evaluated", "–")


def test_settings_that_differ_come_first(home, tmp_path):
    judged = make_evaluation(tmp_path / "judged", answers(), {"split": "test", "trained_on": "5a" * 32})
    rows = view_runs(read_runs([home / "exp4", home / "exp5", judged])).tables[1].rows
    differs = [len({*row[1:]} - {"–"}) > 1 for row in rows]
    assert differs == sorted(differs, reverse=True)
    assert ["seed", "0", "1", "–"] in rows
    assert ["batch_size", "16", "16", "–"] in rows
    assert ["trained_on", "–", "–", "5a" * 32] in rows


def test_the_same_runs_give_the_same_bytes(home, tmp_path):
    one = write_report(ReportConfig(runs=(home / "exp4",), out=tmp_path / "one.html"))
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "savefig.bbox": "tight"}):  # a user's own taste
        other = write_report(ReportConfig(runs=(home / "exp4",), out=tmp_path / "other.html"))
    assert one.read_bytes() == other.read_bytes()
    assert "<title>Training on disruption</title>" in one.read_text("utf-8")
    assert b"202" not in re.sub(rb"data:[^\"]*|prices of 2026-10", b"", one.read_bytes())  # no date


def test_a_folder_of_baselines_stands_for_each_of_them(home, tmp_path):
    for name in ("majority", "tfidf_logistic"):
        make_evaluation(tmp_path / "evaluations" / name, answers(0.1), {"baseline": name})
    make_evaluation(tmp_path / "evaluations" / "exp4", answers(0.1), {})  # of a run
    (tmp_path / "evaluations" / "other").mkdir()
    (tmp_path / "evaluations" / "other" / "run.json").write_text("[", "utf-8")
    runs = read_runs([home / "exp4", tmp_path / "evaluations"])
    assert [(run.name, run.kind) for run in runs[1:]] == [("majority", "baseline"), ("tfidf_logistic", "baseline")]


@pytest.mark.parametrize(
    ("kind", "settings", "begun_from", "remedy"),
    [
        ("evaluation", {"contract": "two_keys"}, None, "does the model know the contract two_keys? Fine-tune first"),
        ("sft", {"backend": "peft"}, None, "More steps on gold answers teach it"),
        ("rl from sft", {}, {"kind": "sft", "step": 4, "folder": "sft", "path": "x"}, "More steps on gold answers"),
        ("evaluation of sft", {"weights": {"run": "sft", "step": 4, "is_taught": True}}, None, "More steps on gold"),
    ],
)
def test_a_model_that_writes_no_json_is_not_called_collapsed(tmp_path, kind, settings, begun_from, remedy):
    lost = answers(0.0, n=80, broken=1.0)
    lost = lost.filter(~lost["is_json"]).head(12)
    if kind.startswith("evaluation"):
        run = make_evaluation(tmp_path / "run", lost, settings)
    else:
        run = make_run(tmp_path / "run", evaluations={4: lost}, settings={"learning_rate": 1e-4, **settings})
        facts = json.loads((run / "run.json").read_text("utf-8")) | {"begun_from": begun_from}
        (run / "run.json").write_text(json.dumps(facts), "utf-8")
    said = say_signs(read_run(run, "run"))
    assert said.startswith("no verdict: 0 of 12 answers were JSON")
    assert remedy in said


def test_a_curve_of_seeds_is_their_mean(tmp_path, monkeypatch):
    from sciscirl.lab.report import views

    for seed in (0, 1):
        run = make_run(tmp_path / f"seed_{seed}", evaluations={0: answers(0.2, seed=seed), 4: answers(0.7)}, seed=seed)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
        for row in rows[:4]:
            row["env/all/reward/total"] = 0.5 + seed
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    drawn = {}
    monkeypatch.setattr(views, "plot_lines", lambda lines, *, title, **_: drawn.setdefault(title, lines) and b"")
    both = read_runs([tmp_path / "seed_0", tmp_path / "seed_1"])
    view_curves(both)
    (line,) = drawn["Mean reward"].values()
    assert (line.values, line.lows, line.highs) == ([1.0] * 4, [0.5] * 4, [1.5] * 4)
    (line,) = drawn["macro-F1"].values()
    found = [[one.metrics["macro_f1"] for one in run.evaluations] for run in both]
    assert line.values == [sum(pair) / 2 for pair in zip(*found, strict=True)]


def test_cost_is_that_of_all_seeds_of_a_way_counted_from_the_logs(home, tmp_path):
    folder = shutil.copytree(home / "exp4", tmp_path / "exp4")
    rollouts = folder / "iteration_000002" / "eval_test_rollout_summaries.jsonl"
    rollouts.parent.mkdir()
    rollouts.write_text('{"steps": [{"ob_len": 100, "ac_len": 10}]}\n' * 60 + '{"steps": [{"ob', "utf-8")
    run = read_run(folder, "exp4")
    assert (run.usage.prefill, run.usage.sample) == (4 * 6400 + 6000, 4 * 640 + 600)
    assert run.usage.train == 4 * 7040
    assert run.problems == ("iteration_000002/eval_test_rollout_summaries.jsonl: a damaged line left out",)
    dollars = (31600 * 0.195 + 3160 * 0.60 + 28160 * 0.44) / 1e6
    sft, majority = read_run(home / "sft", "sft"), read_run(home / "majority", "majority")
    rows = view_cost([run, sft, majority]).tables[0].rows
    assert rows[0] == [
        "exp4", "reinforcement learning", "1", "4", "31,600", "3,160", "28,160", f"${dollars:.2f}", "8.0 s", "2.0 s"
    ]  # fmt: skip
    assert rows[1][:2] + rows[1][6:8] == ["sft", "supervised fine-tuning", "3,200", "own hardware"]
    make_run(tmp_path / "more", evaluations={}, seed=1)
    (row,) = view_cost([read_run(home / "exp4", "a"), read_run(tmp_path / "more", "b")]).tables[0].rows
    assert row[:5] == ["a, b", "reinforcement learning", "2", "8", "51,200"]
    assert view_cost([majority]) is None


def test_form_and_confidence_stand_beside_each_other(home, tmp_path):
    table = answers(1.0, broken=0.5)
    (measured,) = view_answers(read_runs([make_evaluation(tmp_path / "broken", table, {}), home / "exp4"])).tables
    rows = rows_of(measured)
    assert rows["broken"]["keep the contract"].startswith(f"{table['is_valid'].mean():.3f} [")
    assert {"JSON", "Brier", "ECE"} <= rows["exp4"].keys()


def test_what_a_challenge_did_is_shown_where_there_was_one(home, tmp_path):
    final = answers(0.5, n=12)
    first = [*final["gold"].to_list()[:8], *["neutral"] * 4]
    table = final.with_columns(pl.Series("first_label", first, dtype=pl.String))
    make_run(tmp_path / "challenged", evaluations={0: table, 4: table})
    shown = rows_of(view_answers(read_runs([tmp_path / "challenged", home / "exp4"])).tables[0])
    right_twice = [a == b == c for a, b, c in zip(table["gold"], first, table["label"], strict=True)]
    assert 0 < sum(right_twice) < 8
    assert shown["challenged"]["challenged: kept right"].startswith(f"{sum(right_twice) / 12:.3f}")
    assert shown["exp4"]["challenged: kept right"] == "–"


def test_examples_are_spread_over_gold_labels_and_outcomes(home):
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


def test_papers_are_shown_beside_answers_with_what_the_prompt_withheld(toy_slice, tmp_path):
    import hashlib

    from sciscirl.task.release import read_split

    papers = read_split(toy_slice, "test")
    table = answers(0.5, n=len(papers)).with_columns(openalex_id=pl.Series(one.openalex_id for one in papers))
    digest = hashlib.sha256((toy_slice / "manifest.json").read_bytes()).hexdigest()
    for name, sha in (("mine", digest), ("other", "1b" * 32)):
        settings = {"hide": ["abstract", "publication_year"]}
        make_run(tmp_path / name, evaluations={0: table}, manifest_sha256=sha, settings=settings)
    section = view_examples(read_runs([tmp_path / "mine", tmp_path / "other"]), n_each=1, release=toy_slice)
    first = section.examples["mine"][0]
    shown = next(one.view for one in papers if one.openalex_id == first.facts["paper"])
    assert (first.title, first.abstract) == (shown.title, f"(withheld from the prompt) {shown.abstract}")
    assert first.facts["year"] == f"{shown.publication_year} (withheld from the prompt)"
    assert section.text.endswith(f"The papers of 1 run are not shown: {toy_slice.name} is not their release.")
    assert section.examples["other"][0].abstract == ""


# --- reading, mistakes and damage ---------------------------------------------------------------------------------


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


@pytest.mark.parametrize("content", [None, "{", "[]", '{"settings": 3}'])
def test_a_folder_that_is_no_run_is_one_clear_error(tmp_path, content):
    if content is not None:
        (tmp_path / "run.json").write_text(content, "utf-8")
    with pytest.raises(RunFolderError, match=r"run\.json"):
        write_report(ReportConfig(runs=(tmp_path,), out=tmp_path / "r.html"))
    assert not (tmp_path / "r.html").exists()


def test_a_run_whose_record_is_damaged_or_missing_is_a_row_and_the_others_are_reported(home, tmp_path):
    changed, gone = (shutil.copytree(home / "exp4", tmp_path / name) for name in ("changed", "gone"))
    seal_file(changed / "run.json")
    (changed / "run.json").write_text("{}", "utf-8")
    (gone / "run.json").unlink()
    out = write_report(ReportConfig(runs=(changed, home / "exp4", gone), out=tmp_path / "r.html"))
    text = Page(out.read_text("utf-8")).text
    assert "Training helped exp4." in text
    assert "Training on disruption" in text
    table = view_runs(read_runs([changed, home / "exp4", gone])).tables[0]
    rows = rows_of(table)
    assert [rows[name]["state"] for name in ("changed", "gone")] == ["not readable"] * 2
    assert rows["changed"]["not readable"].startswith("run.json differs from what was written")
    assert rows["gone"]["not readable"].startswith("it is not the folder of a run: it has no run.json")
    with pytest.raises(RunFolderError, match="nowhere"):
        read_runs([home / "exp4", tmp_path / "nowhere"])


def test_mistakes_are_refused(home, tmp_path):
    with pytest.raises(RunFolderError, match="given twice"):
        read_runs([home / "exp4", home / "sft" / ".." / "exp4"])
    for options, match in (({"runs": ()}, "runs is"), ({"out": tmp_path}, r"\.html"), ({"n_examples": -1}, "-1")):
        with pytest.raises(SciSciRLError, match=match):
            ReportConfig(**{"runs": (home / "exp4",), **options})
    with pytest.raises(ReleaseError, match="not a release"):
        write_report(ReportConfig(runs=(home / "exp4",), out=tmp_path / "q.html", release=tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        write_report(ReportConfig(runs=(home / "majority",), out=tmp_path / "file" / "r.html"))


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


hostile = st.text(max_size=20) | st.sampled_from([HOSTILE, "a [b", "{{ 7 * 7 }}", "{% raw %}", "<wbr>", "a_b/c"])


@settings(max_examples=25)
@given(hostile, hostile, hostile)
def test_whatever_a_text_holds_it_is_text(one, two, three):
    section = Section(
        "s", one, two, [Table(three, [one], [[two, three]])], [Picture(b"png", three)],
        {one: [Example("right", two, {"paper": three}, one, two)]}, headline=[three],
    )  # fmt: skip
    html = render_report([section], three)
    same = Section("s", "x", "y", [Table("z", ["x"], [["y", "z"]])], [Picture(b"png", "z")],
                   {"x": [Example("right", "x", {"paper": "z"}, "x", "x")]}, ["x"])  # fmt: skip
    plain, page = Page(render_report([same], "z")), Page(html)
    count = {tag for tag, _ in page.tags} - {"wbr", "span", "p"}
    assert count == {tag for tag, _ in plain.tags} - {"wbr", "span", "p"}
    assert "49" not in page.text or "49" in one + two + three


def test_a_picture_shows_what_it_is_given(monkeypatch):
    base = {"a": Series(steps=[0, 1], values=[0.1, 0.2])}
    more = {"a": Series(steps=[0, 1], values=[0.1, 0.9])}
    assert plot_lines(base, title="t") == plot_lines(base, title="t") != plot_lines(more, title="t")
    drawn = []
    monkeypatch.setattr(figures, "_to_png", lambda figure: drawn.append(figure) or b"")
    found = compare_predictions({"good": {seed: answers(0.9, seed=seed) for seed in (1, 2, 3)}})
    scores, seeds = found.scores["good"]["macro_f1"], found.by_seed["good"]["macro_f1"]
    other = Estimate(-0.2, -0.3, 0.1)
    plot_estimates({"gain": {"good": scores, "other": other}}, seeds={"gain": {"good": seeds}}, is_share=False)
    (panel,) = drawn[0].axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["good", "other"]
    strokes, mark, *rest = panel.lines
    assert [*strokes.get_xdata()] == [*seeds]
    assert [*mark.get_xdata()] == [scores.value]
    assert mark.get_markerfacecolor() != "white"
    assert any([*line.get_xdata()] == [-0.2] and line.get_markerfacecolor() == "white" for line in rest)


@pytest.mark.parametrize(("name", "n_columns"), [("run", 2), ("a run with a long name of its own", 1)])
def test_the_legend_of_a_picture_stays_inside(monkeypatch, name, n_columns):
    drawn = []
    monkeypatch.setattr(figures, "_to_png", lambda figure: drawn.append(figure) or b"")
    plot_lines({f"{name} {number}": Series(steps=[0, 1], values=[0.1, 0.2]) for number in range(3)}, title="t")
    (legend,) = drawn[0].legends
    drawn[0].draw_without_rendering()
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= drawn[0].bbox.x1
    assert legend._ncols == n_columns


def test_the_script_writes_the_page_and_a_mistake_is_one_line(home, tmp_path, capsys, script_here):
    PROGRAM.act(["report", str(home / "majority"), "--out", str(tmp_path / "r.html"), "--title", "Mine"])
    assert capsys.readouterr().out == f"report: {tmp_path / 'r.html'}\n"
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "<title>Mine</title>" in page
    assert "cannot be compared" not in page  # a baseline alone
    done = script_here("report.py", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"error: {tmp_path} is not the folder of a run")


def test_a_report_replaces_a_report_and_no_other_file(home, tmp_path):
    out = tmp_path / "report.html"
    config = ReportConfig(runs=(home / "begun",), out=out)
    write_report(config)
    first = out.read_bytes()
    write_report(config)
    assert out.read_bytes() == first
    thesis = tmp_path / "thesis"
    out.unlink()
    for place in (out, thesis):
        out.unlink(missing_ok=True)
        if place == thesis:
            out.symlink_to(thesis)
        place.write_text('<h1>mine</h1><meta name="generator" content="another">')
        with pytest.raises(ReleaseExistsError, match=r"report\.html already exists, and is no report"):
            write_report(config)
        assert place.read_text().startswith("<h1>mine</h1>")
    out.unlink()
    os.mkfifo(out)
    with pytest.raises(StorageError, match="it is a pipe, which is never replaced"):
        write_report(config)
    out.unlink()
    out.symlink_to("/dev/null")
    with pytest.raises(StorageError, match="it is a device, which is never replaced"):
        write_report(config)
    assert stat.S_ISCHR(out.stat().st_mode)


def test_a_comparison_replaces_its_own_files_and_no_others(tmp_path):
    runs = [str(make_evaluation(tmp_path / name, answers(skill), {})) for name, skill in (("a", 0.2), ("b", 0.9))]
    out = tmp_path / "compared"
    for _ in range(2):
        compare_files(runs, CompareConfig(), out)
    assert find_changed(out) == []
    for name in ("comparison.json", "difference_macro_f1.png"):
        other = tmp_path / name.partition(".")[0]
        other.mkdir()
        (other / name).write_text("mine")
        with pytest.raises(ReleaseExistsError, match=rf"{name} already exists"):
            compare_files(runs, CompareConfig(), other)
        assert (other / name).read_text() == "mine"
        assert [path.name for path in other.iterdir()] == [name]


def test_a_folder_with_a_device_or_a_pipe_gets_no_run(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(StorageError, match=r"metrics\.jsonl: it is a pipe"), locked_folder(tmp_path):
        raise AssertionError
