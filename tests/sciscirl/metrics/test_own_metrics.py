"""Metrics of one's own: what they may return, and which commands show them, with values that are counted by hand."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import polars as pl
import pytest

from sciscidata.options.commands import list_options
from sciscirl.cli.commands import PROGRAM
from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.analysis.compare import CompareConfig, compare_predictions
from sciscirl.lab.analysis.select_checkpoint import SelectionConfig, select_checkpoint
from sciscirl.lab.evaluation.bootstrap import bootstrap_intervals, draw_below
from sciscirl.lab.evaluation.results import measure
from sciscirl.lab.report.comparison import compare_files
from sciscirl.metrics import own_metrics
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.metrics.own_metrics import METRICS, register_metric
from sciscirl.metrics.predictions import read_predictions
from sciscirl.presets import find_preset
from tests.sciscirl.made_runs import make_evaluation, make_predictions, make_run
from tests.web_pages import Page

#: Taking a disruptive paper for a consolidating one, or the reverse, costs three times as much as another mistake.
PLUGIN = """\
import sciscirl

FAR = {"disruptive", "consolidating"}


def cost(predictions):
    paid = [
        0 if row["label"] == row["gold"] else 3 if {row["label"], row["gold"]} == FAR else 1
        for row in predictions
    ]
    return sum(paid) / len(paid)


sciscirl.register_metric("cost", cost, bounds=(0, 3), higher_is_better=False)
"""


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN, "utf-8")
    return file


def answers(skill=0.5, preset="exp4", n=60, **options):
    return make_predictions(find_preset(preset), n, skill=skill, **options)


def cost_by_hand(table):
    counts = table.group_by("gold", "label").len().rows()
    far = {("disruptive", "consolidating"), ("consolidating", "disruptive")}
    return sum(n * (0 if gold == said else 3 if (gold, said) in far else 1) for gold, said, n in counts) / len(table)


def share_right(predictions):
    return sum(row["label"] == row["gold"] for row in predictions) / len(predictions)


def rows_below(page, head, n):
    place = page.rows.index(head)
    return page.rows[place + 1 : place + 1 + n]


def test_evaluations_comparisons_and_reports_have_it_with_its_interval(plugin, tmp_path, toy_slice, capsys):
    out = tmp_path / "evaluations"
    words = [f"--release={toy_slice}", "--preset=exp4", "--baselines", f"--out={out}", f"--plugin={plugin}"]
    assert main(["evaluate", *words]) == 0
    shown = capsys.readouterr().out
    assert "  cost (less is better)  " in shown.splitlines()[2]
    tables = {folder.name: read_predictions(folder / "predictions.parquet") for folder in out.glob("[a-z]*")}
    record = json.loads((out / "majority/run.json").read_text("utf-8"))
    source = PLUGIN.partition("def")[2].partition("\n\n\n")[0]
    function = {"name": "cost", "sha256": hashlib.sha256(f"def{source}\n".encode()).hexdigest()}
    assert record["metrics"] == [{"name": "cost", "bounds": [0, 3], "higher_is_better": False, "function": function}]
    for name, table in tables.items():
        kept = json.loads((out / name / "metrics.json").read_text("utf-8"))
        assert kept["cost"] == pytest.approx(cost_by_hand(table))
        ends = f" [{kept['cost/low']:.4f}, {kept['cost/high']:.4f}]" if "cost/low" in kept else ""  # none if all right
        assert f"{kept['cost']:.4f}{ends}" in shown

    pair = [str(out / "prior_random"), str(out / "majority")]
    assert main(["compare", *pair, f"--out={tmp_path / 'compared'}", f"--plugin={plugin}"]) == 0
    difference = cost_by_hand(tables["prior_random"]) - cost_by_hand(tables["majority"])
    assert f"prior_random − majority  cost (less is better)  {difference:+.3f} [" in capsys.readouterr().out
    written = json.loads((tmp_path / "compared/comparison.json").read_text("utf-8"))
    assert written["metrics"] == record["metrics"]
    assert (tmp_path / "compared/difference_cost.png").is_file()
    results = sorted((tmp_path / "compared/results").glob("*.json"))
    assert main(["compare", *map(str, results), f"--plugin={plugin}"]) == 0
    assert f"cost (less is better)  {-difference:+.3f} [" in capsys.readouterr().out  # files come by name

    page = tmp_path / "report.html"
    assert main(["report", str(out), f"--out={page}", f"--plugin={plugin}"]) == 0
    rows = rows_below(Page(page.read_text("utf-8")), ["", "cost (less is better)"], len(tables))
    assert {name: value.split()[0] for name, value in rows} == {
        name: f"{cost_by_hand(one):.3f}" for name, one in tables.items()
    }
    predictions = out / "prior_random/predictions.parquet"
    assert main(["evaluate", f"--from-predictions={predictions}", f"--plugin={plugin}"]) == 0
    assert f"  {cost_by_hand(tables['prior_random']):.4f} [" in capsys.readouterr().out


def test_without_its_function_a_record_still_shows_it_and_says_what_is_missing(tmp_path, capsys, caplog):
    register_metric("share", share_right, bounds=(0, 1))
    stated = own_metrics.describe_metrics()
    runs = [
        make_run(tmp_path / "run", evaluations={0: answers(0.1), 4: answers(0.6)}),
        make_evaluation(tmp_path / "base", answers(0.3, seed=1), {"preset": "exp4", "model": "base"}),
    ]
    for run in runs:
        facts = json.loads((run / "run.json").read_text("utf-8"))
        (run / "run.json").write_text(json.dumps({**facts, "metrics": stated}), "utf-8")
    values = [f"{share_right(table.to_dicts()):.3f}" for table in (answers(0.6), answers(0.3, seed=1))]
    own_metrics._METRICS.clear()

    page = tmp_path / "report.html"
    assert main(["report", *map(str, runs), f"--out={page}"]) == 0
    shown = Page(page.read_text("utf-8"))
    assert "To compute it here, give the file that registers it: --plugin FILE.py." in shown.text
    assert rows_below(shown, ["", "share"], 2) == [["run", values[0]], ["base", values[1]]]
    assert main(["compare", *map(str, runs)]) == 0
    assert f"not registered here, so it is not compared. Kept: run {values[0]}; base {values[1]}" in caplog.text
    assert "share" not in capsys.readouterr().out

    caplog.clear()
    register_metric("share", lambda predictions: share_right(predictions))  # the same name, another source
    compare_predictions({"a": answers(0.1), "b": answers(0.6)})
    assert main(["compare", *map(str, runs)]) == 0
    assert "metric 'share' was another function when it was recorded" in caplog.text


def test_where_it_is_undefined_everywhere_a_comparison_has_no_picture_of_it(tmp_path):
    files = [make_evaluation(tmp_path / f"{skill:.0%}", answers(skill), {"preset": "exp4"}) for skill in (0.1, 0.6)]
    for value in (0.5, None):  # what the first leaves is gone
        register_metric("none", lambda predictions, value=value: value)
        compare_files([*map(str, files)], CompareConfig(n_resamples=20), tmp_path / "out")
        assert (tmp_path / "out/difference_none.png").exists() is (value is not None)
        assert ("difference_none.png" in (tmp_path / "out/SHA256SUMS").read_text("utf-8")) is (value is not None)
        assert (tmp_path / "out/difference_macro_f1.png").is_file()
        own_metrics._METRICS.clear()


def test_its_direction_decides_which_checkpoint_is_chosen(tmp_path, plugin, capsys):
    run = make_run(tmp_path / "run", evaluations={0: answers(0.9, n=90), 2: answers(0.2, n=90)})
    with pytest.raises(SciSciRLError, match=r"needs one of macro_f1, .*plugin=FILE\.py"):
        SelectionConfig(metric="cost")
    assert main(["select", str(run), "--metric", "cost", f"--plugin={plugin}"]) == 0
    assert "chosen: step 0, the earliest whose cost is behind the best" in capsys.readouterr().out
    register_metric("gain", METRICS["cost"].call, bounds=(0, 3))  # of the same numbers the more, the better
    assert select_checkpoint(run, SelectionConfig(metric="gain")).chosen.step == 2
    chosen, other = select_checkpoint(run, SelectionConfig(metric="cost")).candidates
    assert other.behind == pytest.approx(other.score - chosen.score)
    assert other.behind_low > 0
    assert main(["select", str(run), "--metric", "costs", f"--plugin={plugin}"]) == 1
    assert "--metric is 'costs', needs one of macro_f1" in capsys.readouterr().err


def test_its_interval_is_that_of_resamples_of_papers_with_all_their_answers():
    one, other = answers(0.5, n=40), answers(0.7, n=40, seed=3)
    table = pl.concat([one, other]).sort("openalex_id", maintain_order=True)  # two answers to each paper
    register_metric("share", share_right)

    def mend(predictions):
        share = share_right(predictions)
        for row in predictions:
            row["label"] = row["gold"]
        return share

    register_metric("mends", mend)
    intervals = bootstrap_intervals(table, n_resamples=200)
    papers = table["openalex_id"].unique(maintain_order=True).to_list()
    right = np.array([table.filter(openalex_id=paper).select(pl.col("gold").eq_missing(pl.col("label")).sum()).item()
                      for paper in papers])  # fmt: skip
    stream = np.random.Philox(key=0)
    drawn = sorted(right[draw_below(stream, 40, 40)].sum() / 80 for _ in range(200))
    assert (intervals["share/low"], intervals["share/high"]) == (drawn[4], drawn[194])
    assert (intervals["mends/low"], intervals["mends/high"]) == (drawn[4], drawn[194])  # its rows are its own


def test_it_is_undefined_where_it_says_so_fails_or_leaves_its_range(caplog):
    table = answers(0.5)
    register_metric("none", lambda predictions: None)
    register_metric("fails", lambda predictions: predictions[0]["no_such"])
    register_metric("far", lambda predictions: 1.5)
    register_metric("nan", lambda predictions: math.nan)
    register_metric("word", lambda predictions: "much")
    register_metric("flag", lambda predictions: True)
    register_metric("numpy", lambda predictions: np.float32(0.5))
    measured = measure(table)
    assert measured["numpy"] == 0.5
    assert {"none", "fails", "far", "nan", "word", "flag"}.isdisjoint(measured)
    said = [record.message for record in caplog.records if record.message.startswith("metric ")]
    assert [message.split()[1] for message in said] == ["'fails'", "'far'", "'nan'", "'word'", "'flag'"]
    assert "failed in line" in said[0]
    assert "KeyError: 'no_such'" in said[0]
    assert said[1] == "metric 'far' returned 1.5, needs a number from 0 to 1, or None. It is undefined here."
    compared = compare_predictions({"a": table, "b": answers(0.7)})
    assert "none" not in compared.pairs[0].differences
    assert compared.pairs[0].differences["numpy"].value == 0


def test_resamples_where_it_fails_are_left_out_of_its_interval_and_a_warning_says_so(caplog):
    table = answers(0.5, n=6, broken=0.0)

    def recall(predictions):
        asked = [row for row in predictions if row["gold"] == "neutral"]
        return sum(row["label"] == "neutral" for row in asked) / len(asked)

    register_metric("recall_of_neutral", recall)
    assert measure(table)["recall_of_neutral"] == measure_predictions(table)["recall/neutral"]
    assert "ZeroDivisionError" in caplog.text
    assert "of 1,000 resamples. They are left out of its interval." in caplog.text


def test_it_may_use_every_other_metric():
    register_metric("two", lambda rows: min(measure_predictions(rows).get(f"recall/{label}", 1.0)
                                            for label in ("disruptive", "neutral")))  # fmt: skip
    measured = measure_predictions(answers(0.5))
    assert measured["two"] == min(measured["recall/disruptive"], measured["recall/neutral"])


@pytest.mark.parametrize("preset", ["exp4", "joint", "novelty", "exp9"])
def test_no_metric_of_ours_and_no_column_beside_them_can_be_replaced(preset):
    table = answers(0.5, preset)
    measured = measure(pl.concat([table, table]))  # several answers to a paper have ties
    plain = {name for name in measured if "/" not in name}
    for name in (*plain, "way", "n_seeds", "macro_f1_low", "cost_high", "reward_tie_group_rate"):
        with pytest.raises(SciSciRLError, match=r"another figure has\. Choose another name"):
            register_metric(name, share_right)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "a/b"}, "the name of a metric is 'a/b', needs up to 64 letters"),
        ({"name": ""}, "the name of a metric is '', needs up to 64 letters"),
        ({"name": 7}, "the name of a metric is 7, needs"),
        ({"function": 0.5}, "function is 0.5, needs a function"),
        ({"function": len}, "whose source cannot be read"),
        ({"bounds": (1, 0)}, r"bounds of metric 'mine' are \(1, 0\), need two finite numbers, the least first"),
        ({"bounds": (0, math.inf)}, "need two finite numbers"),
        ({"bounds": 1}, "need two finite numbers"),
        ({"bounds": ("a", "b")}, "need two finite numbers"),
    ],
)
def test_a_metric_that_cannot_be_is_refused(wrong, said):
    with pytest.raises(SciSciRLError, match=said):
        register_metric(**{"name": "mine", "function": share_right, **wrong})
    assert not METRICS


def test_a_plugin_is_taken_by_every_command_with_a_preset_or_a_metric_of_ones_own():
    options = {name: {one.name for one in list_options(command)} for name, command in PROGRAM.commands.items()}
    of_presets = {"train", "sft", "evaluate", "presets", "sweep", "sweep repro", "ladder", "export-task"}
    of_metrics = {"calibrate", "select", "compare", "report"}
    assert {name for name, of_command in options.items() if "plugin" in of_command} == of_presets | of_metrics
    assert {name for name, of_command in options.items() if "preset" in of_command} <= of_presets


@pytest.mark.parametrize("command", ["compare", "select", "report", "calibrate"])
def test_a_plugin_that_is_not_there_is_an_error_of_each_of_them(command, tmp_path, capsys):
    on = ["--on", str(tmp_path)] if command == "calibrate" else []
    assert main([command, str(tmp_path), *on, "--plugin", str(tmp_path / "no.py")]) == 1
    assert "no.py cannot be read: No such file or directory. Check the path." in capsys.readouterr().err
