"""The command line: flags, the configuration file, and what a user sees when something is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import sciscidata as ssd
from sciscidata import __version__
from sciscidata.cli.build_options import merge, read_toml, resolve
from sciscidata.disruption.index import CDConfig
from sciscidata.errors import ConfigError, InputNotFoundError
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.config import COMPAT, NoveltyConfig
from sciscidata.release.read import hash_manifest
from sciscidata.sources.example.source import WORKS_FILE
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.records import RecordsConfig
from tests import program
from tests.conftest import REPOSITORY


def facts(out: str) -> str:
    """What a build and describe both print: all above the last block, as one line."""
    return " ".join(out.strip().rpartition("\n\n")[0].split())


SMALL = ["--source", "synthetic", "--n-works", "3000", "--n-train", "60", "--n-test", "9"]


def test_build_verify_and_describe_a_slice(run, tmp_path):
    status, out, _ = run("build", *SMALL, "--verbose")
    assert status == 0
    assert re.search(r"Why [\d,]+ of 3,000 works may not be drawn", out)
    assert re.search(r"train / test +20 / 3 +20 / 3 +20 / 3 +60 / 9", out)
    assert len(re.findall(r"sha256 [0-9a-f]{64}", out)) == 12
    assert re.search(
        r"novelty: 2,\d+ of 3,000 works scored by [\d,]+ venue pairs; null model: analytic, of the 3,000", out
    )
    assert not re.search(" $", out, re.MULTILINE)
    folder = "slices/synthetic"
    for line in (f"sciscidata verify {folder}", f"sciscidata describe {folder} --html synthetic.html"):
        assert line in out
    assert f'python: sciscidata.read_release("{folder}").train' in out
    for name in ("disruption.png", "novelty.png", "novelty_by_year.png"):
        assert (tmp_path / folder / name).read_bytes().startswith(b"\x89PNG")
    status, verified, _ = run("verify", folder)
    first, *recomputed = verified.splitlines()
    assert (status, first) == (0, f"verified: release {folder} (test 9, train 60 works)")
    assert recomputed[0] == "  recomputed: cd_index from n_i, n_j, n_k"
    assert len(recomputed) == 5
    assert facts(run("describe", folder, "--verbose")[1]) == facts(out)
    short = run("describe", folder)[1]
    assert "sha256" not in short
    (digest,) = re.findall(r"fingerprint of its works: ([0-9a-f]{12})", short)
    hashes = [
        hashlib.sha256((tmp_path / folder / f"{split}.jsonl").read_bytes()).hexdigest() for split in ("train", "test")
    ]
    assert hashlib.sha256("".join(hashes).encode()).hexdigest().startswith(digest)
    assert digest in out
    assert short.count("Cited anew") == 1


def test_a_first_build_says_nothing_of_fonts(tmp_path):
    command = [sys.executable, "-m", "sciscidata", "build", *SMALL, "--out", str(tmp_path / "out")]
    environment = {**os.environ, "MPLCONFIGDIR": str(tmp_path / "fonts")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert any((tmp_path / "fonts").glob("fontlist*"))
    assert "font" not in done.stderr + done.stdout


def test_a_corpus_is_checked_in_lines_and_in_a_picture(run, tmp_path):
    run("ingest", "--source", "synthetic", "--n-works", "500", "--out", "corpus")
    status, out, _ = run("diagnose", "corpus", "--picture", "checks.png")
    assert status == 0
    checks = ssd.diagnose(*ssd.scan_corpus(tmp_path / "corpus")[:2])
    assert out.splitlines() == [f"{level:8} {text}" for level, text in checks.select("level", "text").rows()]
    assert (tmp_path / "checks.png").read_bytes().startswith(b"\x89PNG")
    status, said, told = run("diagnose", "corpus", "--picture", "checks.jpg")
    assert not said  # no corpus of hours is read for nothing
    assert (status, "PNG, SVG or PDF, got 'checks.jpg'" in told) == (1, True)


def test_a_named_convention_of_novelty_is_a_starting_point(tmp_path):
    name = next(iter(COMPAT))
    settings = {"": {"source": "synthetic"}, "novelty": {"compat": name, "seed": 9, "years": [1990, 2000]}}
    assert resolve(settings).novelty == NoveltyConfig.compat(name, seed=9, years=(1990, 2000))
    assert resolve({"": {"source": "synthetic"}, "novelty": {"max_references": "all"}}).novelty.max_references is None
    assert resolve({"": {"source": "synthetic", "novelty": False}}).novelty is None


def test_a_saved_background_is_described_and_used(run, tmp_path):
    world = ["--source", "synthetic", "--n-works", "3000"]
    status, out, errors = run("background", *world, "--out", "pairs.parquet")
    assert status == 0, errors
    assert "null model: null analytic" in out
    assert "years: 45 (1980 to 2024)" in out
    assert re.search(r"rows \(venue pairs by year\): \d", out)
    sha256 = hashlib.sha256((tmp_path / "pairs.parquet").read_bytes()).hexdigest()
    assert re.search(rf"background: pairs.parquet in \d+\.\d s\n  [\d,]+ bytes  sha256 {sha256}\n$", out)
    status, out, errors = run("build", *SMALL, "--background", "pairs.parquet", "--verbose")
    assert status == 0, errors
    assert f"null model: analytic, of background {sha256}" in " ".join(out.split())
    status, _, errors = run("build", *SMALL, "--background", "pairs.parquet", "--null", "permutation", "--out", "b")
    assert status == 1
    assert "another null model" in errors


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_release_without_a_novelty_score_says_so_and_why(run, tmp_path, caplog, is_saved):
    (tmp_path / "c.toml").write_text("[novelty]\nyears = [2030, 2031]\n")
    world = ["--source", "synthetic", "--n-works", "3000"]
    if is_saved:
        other = ["--source", "synthetic", "--n-works", "40", "--synthetic-seed", "9"]
        assert run("background", *other, "--out", "pairs.parquet")[0] == 0
        given = ["--background", "pairs.parquet"]
    else:
        given = ["--config", "c.toml"]
    status, out, errors = run("build", *world, "--n-train", "60", "--n-test", "9", *given, "--out", "a")
    assert status == 0, errors
    for text in (facts(out), caplog.text):
        assert "o work of the 3,000 read has a novelty score: a work needs two references" in text
        assert ("the background knows the years" in text) == is_saved
        assert ("only the years 2030 to 2031 were asked for" in text) == (not is_saved)
    assert facts(run("describe", "a")[1]) == facts(out)


def test_ranks_beside_uzzis_labels_are_remarked_on(run, caplog):
    for flags, is_told in (["--score", "rank", "--novelty-rule", "uzzi"], True), (["--score", "rank"], False):
        caplog.clear()
        status, out, errors = run("build", *SMALL, *flags, "--overwrite")
        assert status == 0, errors
        for text in (facts(out), caplog.text):
            assert ("cores are ranks, but the novelty labels are not of them" in text) == is_told
            assert "o work of the" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "--offline"], "offline"),
        (
            ["build", "--source", "synthetic", "--input", "no-such-file"],
            "--input has no effect: the source is synthetic. Leave it out, or set --source records.",
        ),
        (
            ["build", "--input", "f", "--n-works", "5", "--synthetic-seed", "3"],
            "--n-works, --synthetic-seed have no effect: the source is records.",
        ),
        (["build", *SMALL, "--out", "o\0a"], "--out is 'o\\x00a', needs text without a NUL character"),
        (["build", "--config", "a-file/c.toml"], "a-file/c.toml cannot be read: Not a directory"),
        (["build", "--source", "records"], "needs at least one file"),
        (["build", *SMALL, "--n-train", "-1"], "--n-train is -1, needs a whole number from 0"),
        (["null-cd", "corpus", "--n-draws", "1", "--out", "n.parquet"], "--n-draws is 1, needs a whole number from 2"),
        (["build", *SMALL, "--n-train", "90000"], "Lower --n-train and --n-test (for example --n-train "),
        (
            ["build", *SMALL, "--balance", "joint", "--no-novelty"],
            "--balance joint needs novelty labels, but novelty is switched off",
        ),
        (["build", *SMALL, "--no-novelty", "--null", "analytic"], "--null has no effect: novelty is switched off"),
        (["build", *SMALL, "--n-shuffles", "100"], "--n-shuffles has no effect: the closed form draws no shuffles"),
        (["build", *SMALL, "--novelty-rule", "uzzi", "--novelty-margin", "0.1"], "novelty rule uzzi does not read it"),
        (
            ["build", *SMALL, "--config", "tail.toml"],
            "[thresholds] uzzi_tail_max has no effect: the novelty rule margin does not read it. Leave it out, or set "
            "--novelty-rule uzzi, which does.",
        ),
        (
            ["build", "--no-venues", "--score", "rank"],
            "--score has no effect: the venues of references are not fetched",
        ),
        (["build", *SMALL, "--language", "--no-keep-unknown-language"], "works of any language are kept"),
        (["build", *SMALL, "--window-years", "all", "--complete-window"], "a window without end is never complete"),
        (
            ["build", "--sciscinet", "s", "--null", "permutation"],
            "--null has no effect: the scores of SciSciNet are taken as published. Leave it out, or compute them from "
            "the references with --recompute.",
        ),
        (["export", "--sciscinet", "s", "--window-years", "3", "--out", "x"], "--window-years has no effect: the"),
        (["ingest", "--sciscinet", "s", "--sciscinet-texts", "t", "--no-texts", "--out", "x"], "texts lie in t"),
        (["build", *SMALL, "--background", "no-such-file"], "no background at no-such-file"),
        (["background", "--out", "table"], "the OpenAlex API gives a sample"),
        (["background", "--config", "off.toml", "--out", "table"], "novelty = false has no effect: this command makes"),
        (["background", "--source", "synthetic", "--out", "a-file"], "a-file already exists"),
        (["background", "--source", "synthetic", "--n-works", "9", "--out", "/proc/nowhere/table"], "/proc/nowhere"),
        (["verify", "nowhere"], "does not exist. Give the path of a release, a corpus"),
        (["describe", "."], "not a release"),
    ],
)
def test_a_users_mistake_gets_one_clear_error_and_no_traceback(run, tmp_path, arguments, message):
    (tmp_path / "a-file").touch()
    (tmp_path / "off.toml").write_text("source = 'synthetic'\nnovelty = false\n")
    (tmp_path / "tail.toml").write_text("[thresholds]\nuzzi_tail_max = -1.0\n")
    (tmp_path / "saved.toml").write_text("source = 'synthetic'\nbackground = 'other'\n")
    status, out, errors = run(*arguments)
    assert status == 1
    assert message in errors
    assert errors.splitlines()[0].startswith("error: ") or "eligible" in errors
    assert out == ""
    assert not (tmp_path / "slices").exists()


def test_a_file_that_holds_no_work_is_an_error(run, tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "corrupt.jsonl").write_text(
        '{"id": "https://openalex.org/W1"}\n{"id": "https://openalex.org/W2", "ti\n'
    )
    assert "no OpenAlex work in empty.jsonl, " in run("build", "--input", "empty.jsonl")[2]
    status, _, errors = run("build", "--input", "corrupt.jsonl", "--strict")
    assert status == 1
    assert "corrupt.jsonl" in errors
    assert "line 2" in errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["build", "--api-keyy", "SECRET"], "unknown flag --api-keyy. Did you mean --api-key?"),
        (
            ["build", "--api-keyy=SECRET", "--n-trian", "SECRET"],
            "unknown flags --api-keyy, --n-trian. Did you mean --api-key --n-train?",
        ),
        (["build", "--api-k", "SECRET"], "unknown flag --api-k. Did you mean --api-key?"),
        (
            ["cd", "corpus", "--window-years", "until2017", "--out", "x.parquet"],
            "needs a whole number from 0 to 9999, or all. It is a further window: --window until2017. See",
        ),
        (["build", "SECRET", "example"], "'example' belongs to no flag. Did you mean --source example? See"),
        (["build", "-api-key", "SECRET"], "there is a value after the last flag that takes one"),
        (["build", "--api-key", "half", "SECRET"], "there is a value after the last flag that takes one"),
        (
            ["--api-key", "SECRET", "build"],
            "build, background, ingest, graph, cd, null-cd, sweep, novelty, tasks, export, score, verify, describe",
        ),
        (["--api-key=SECRET", "build"], "the first word needs to be one of build, "),
    ],
)
def test_wrong_usage_repeats_no_value_that_may_be_a_key(run, capsys, arguments, told):
    with pytest.raises(SystemExit) as exit_:
        run(*arguments)
    assert exit_.value.code == 2
    errors = capsys.readouterr().err
    assert told in errors
    assert "SECRET" not in errors


def test_the_program_alone_lists_its_commands(run):
    status, out, errors = run()
    assert (status, out) == (2, "")
    assert "build              Read works" in errors


def test_a_source_that_needs_no_api_is_not_stopped_by_the_settings_of_one(run, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENALEX_BASE_URL", "foo")
    assert run("build", *SMALL, "--dry-run")[0] == 0
    status, _, errors = run("build")
    assert status == 1
    assert "--base-url needs to be like" in errors


@pytest.mark.parametrize(("name", "value"), [("ALL_PROXY", "socks5://127.0.0.1:1"), ("SSL_CERT_FILE", "/nonexistent")])
def test_an_environment_without_a_way_out_is_one_clear_error(run, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    status, _, errors = run("build", "--base-url", "https://example.org")
    assert status == 1
    assert errors.startswith("error: Cannot open a connection with ")
    assert name in errors


def test_flags_go_over_the_configuration_file(tmp_path):
    path = tmp_path / "slice.toml"
    path.write_text(
        'source = "synthetic"\nout = "here"\n[split]\nn_train = 300\nseed = 7\n'
        '[cd]\ncompat = "sciscinet_v1_d"\n[thresholds]\npreset = "wide"\ndisruptive_min = 0.2\n'
        "[eligibility]\nlanguages = []\nmin_citations = 5\n"
    )
    config = resolve(merge(read_toml(path), {"split": {"n_train": 30}, "cd": {"window_years": 3}}))
    assert (config.split.n_train, config.split.seed, str(config.out)) == (30, 7, "here")
    assert config.cd == CDConfig.compat("sciscinet_v1_d", window_years=3)
    assert config.thresholds == LabelThresholds(consolidating_max=-0.1, disruptive_min=0.2, inclusive=False)
    assert config.eligibility.languages == ()
    assert resolve({"": {"source": "synthetic"}, "cd": {"window_years": "all"}}).cd.window_years is None
    assert resolve({"": {"source": "synthetic"}, "cd": {"windows": [1, "all"]}}).cd.windows == (1, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[splits]\nn_train = 3\n", r"no section \[splits\]. Did you mean split\?"),
        ("[split]\nn_trian = 3\n", r"section \[split\] .* has no setting 'n_trian'. Did you mean n_train\?"),
        ("[split]\nxyz = 3\n", r"section \[split\] .* has no setting 'xyz'. It has n_train, n_test, seed, balance"),
        ("n-train = 3\n", r"the top level .* has no setting 'n-train'. Write it below \[split\]: n_train\."),
        ("sorce = 'records'\n", r"the top level .* has no setting 'sorce'. Did you mean source\?"),
        ("[split\n", "not a TOML file"),
        ("[split]\nbalance = 'noveltyy'\n", r"needs one of .*\. Did you mean novelty\?"),
        ("[cd]\nwindow_years = 2147483647\n", "window_years"),
        (
            "novelty = true\n[novelty]\nseed = 1\n",
            "A name may be a value or a section, not both. Mend the line it names",
        ),
        ("[eligibility]\nlanguages = 5\n", "EligibilityConfig.languages is 5, needs a list of texts"),
        ("[synthetic]\nn_works = 5\n", "SyntheticConfig.n_works has no effect: the source is openalex"),
        ("source = 'synthetic'\nsplit = 3\n", "no setting 'split'"),
    ],
)
def test_mistakes_in_the_configuration_file_are_named(tmp_path, text, message):
    path = tmp_path / "slice.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        resolve(read_toml(path))


def test_a_configuration_file_that_cannot_be_opened_has_its_own_error(tmp_path):
    with pytest.raises(InputNotFoundError, match="No such file"):
        read_toml(tmp_path / "none.toml")


def test_the_api_is_the_source_when_nothing_else_is_named():
    assert isinstance(resolve({}).source, OpenAlexConfig)
    assert isinstance(resolve({"records": {"inputs": ["f"]}}).source, RecordsConfig)


def test_what_records_and_paths_hold_is_printed_as_it_is(run, tmp_path):
    lines = ['{"id": "[/b]"}', '{"id": ":smile:"}']
    (tmp_path / "odd [red].jsonl").write_text("\n".join(lines) + "\n")
    flags = ["--n-train", "3", "--n-test", "0", "--min-citations", "0", "--no-complete-window", "--balance", "none"]
    status, out, errors = run("build", "--input", "odd [red].jsonl", str(WORKS_FILE), *flags, "--out", "mk[red]2")
    assert status == 0, errors
    assert re.search(r"Done in \d+ s: mk\[red\]2 ", out)
    assert "skipped: odd [red].jsonl line 1: " in out
    assert "[/b]" in out
    assert ":smile:" in out
    assert facts(run("describe", "mk[red]2")[1]) == facts(out)


def test_a_release_whose_writer_stated_no_counts_is_described(run, tmp_path):
    run("build", *SMALL)
    path = tmp_path / "slices" / "synthetic" / "manifest.json"
    stated = json.loads(path.read_text())
    bare = {name: stated[name] for name in ("thresholds", "split", "files", "sides", "class_counts", "novelty")}
    bare |= {"format_version": 1}
    path.write_text(json.dumps(bare | {"manifest_sha256": hash_manifest(bare)}))
    status, out, _ = run("describe", "slices/synthetic")
    assert status == 0
    assert re.search(r"train / test +20 / 3 +20 / 3 +20 / 3 +60 / 9", out)
    assert run("verify", "slices/synthetic")[0] == 0


@pytest.mark.parametrize(
    "flags", [["describe"], ["build", "--input"], ["build", "--sciscinet"], ["build", "--snapshot"]]
)
def test_a_path_that_no_disk_takes_is_one_clear_error(run, flags):
    status, _, errors = run(*flags, "x" * 300)
    assert status == 1
    assert errors.splitlines()[-1].startswith(f"error: {'x' * 300}")
    assert errors.endswith(": File name too long. Check the path, its permissions and its disk.\n")


@pytest.mark.parametrize(
    "command",
    [
        ["describe", "locked"],
        ["build", "--input", "locked", "--out", "slice"],
        ["build", "--input", "locked/*.jsonl", "--out", "slice"],
        ["build", "--sciscinet", "locked", "--out", "slice"],
        ["build", "--snapshot", "locked", "--out", "slice"],
        ["build", "--corpus", "locked", "--out", "slice"],
        ["ingest", "--source", "synthetic", "--n-works", "9", "--out", "locked"],
        ["cd", "corpus", "--out", "cd.parquet"],
    ],
)
def test_what_may_not_be_read_is_named(run, tmp_path, command):
    run("ingest", "--source", "synthetic", "--n-works", "300", "--out", "corpus")
    (tmp_path / "locked").mkdir(mode=0o000)
    (file,) = (tmp_path / "corpus" / "citations").iterdir()
    file.chmod(0o000)
    if os.access(file, os.R_OK):
        pytest.skip("root may read anything")
    status, _, errors = run(*command)
    assert status == 1
    assert re.search("error: .*(locked|part-000000).*: Permission denied", errors)
    assert file.exists()


def test_a_file_name_that_is_no_text_can_be_printed(tmp_path):
    flags = ["build", *SMALL, "--cache-dir", "cache", "--out", b"slice\xff"]
    done = program.run(*flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert b" s: slice\\udcff " in done.stdout


def test_the_version_is_printed():
    command = [sys.executable, "-m", "sciscidata", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"sciscidata {__version__}\n"


def test_settings_that_have_an_effect_or_ask_for_what_is_given_are_not_refused():
    whole = resolve({"cd": {"window_years": "all"}, "eligibility": {"complete_window": False}})
    assert (whole.cd.window_years, whole.eligibility.complete_window) == (None, False)
    assert resolve({"eligibility": {"keep_unknown_language": True}}).eligibility.keep_unknown_language
    # The manifest states the cut of a release by margin too.
    cut = resolve({"thresholds": {"uzzi_median_share": 0.25}}).thresholds
    assert (cut.novelty_rule, cut.uzzi_median_share) == ("margin", 0.25)


_MODULE = "run_module('sciscidata', run_name='__main__', alter_sys=True)"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no signals there")
@pytest.mark.parametrize(
    ("run", "words", "seconds"),
    [
        *((_MODULE, ["build"], seconds) for seconds in (0.2, 0.9)),
        (f"run_path({str(REPOSITORY / 'scripts' / 'build_slice.py')!r}, run_name='__main__')", [], 0.5),
    ],
    ids=["0.2", "0.9", "script"],
)
def test_one_interrupt_ends_a_build_at_any_time_with_one_line_and_130(tmp_path, run, words, seconds):
    # What Python loads before it runs a line of ours takes the longer, the more the machine has to do.
    begin = f"import runpy, sciscidata.cli.main; print('begins', flush=True); runpy.{run}"
    flags = [*words, "--source", "synthetic", "--n-works", "400000", "--cache-dir", "cache"]
    process = subprocess.Popen(
        [sys.executable, "-c", begin, *flags], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begins\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=600)[1]
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted: nothing was released"
    assert "Traceback" not in errors
    assert not list(tmp_path.rglob(".*.tmp-*"))
    assert not list(tmp_path.glob("slices/*"))


def test_the_command_is_ready_for_an_interrupt_before_it_loads_what_takes_long():
    program = "import sys, sciscidata.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"polars", "numpy", "rich", "msgspec"} & set(loaded.split())


def test_a_second_interrupt_does_not_strike_while_the_first_one_is_handled():
    program = """
import signal, sys
from sciscidata.cli import main as cli
def run(_):
    try:
        signal.raise_signal(signal.SIGINT) if sys.argv[1] == "ours" else None
        raise KeyboardInterrupt  # as Polars does, for the same key press
    except BaseException:
        if sys.argv[1] == "theirs":
            signal.raise_signal(signal.SIGINT)
        sys.stderr.write("cleaned up. ")
        raise
cli.PROGRAM.run = run
cli.main()
"""
    for first in ("ours", "theirs"):
        done = subprocess.run([sys.executable, "-c", program, first], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (130, "cleaned up. interrupted: nothing was released\n")


def test_the_script_and_the_command_are_the_same():
    script = str(REPOSITORY / "scripts" / "build_slice.py")
    done = subprocess.run([sys.executable, script, "--help-all"], capture_output=True, text=True, check=True)
    for text in ("usage: sciscidata build", "--n-train", "--email"):
        assert text in done.stdout
