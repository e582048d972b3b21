"""The command line: flags, the configuration file, and what a user sees when something is wrong."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from sciscidata.cdindex import CDConfig
from sciscidata.cli import main
from sciscidata.errors import ConfigError, InputNotFoundError, UnavailableError
from sciscidata.labels import LabelThresholds
from sciscidata.settings import merge, read_toml, resolve
from tests.conftest import REPOSITORY

SMALL = ["--source", "synthetic", "--n-works", "3000", "--n-train", "60", "--n-test", "9"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in an empty folder; return its exit status, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sciscidata.pipeline.platformdirs.user_cache_dir", lambda _: str(tmp_path / "cache"))

    def call(*arguments: str):
        status = main(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return call


def test_build_verify_and_describe_a_slice(run, tmp_path):
    status, out, _ = run("build", *SMALL)
    assert status == 0
    assert re.search(r"read\s+3,000", out)
    assert re.search(r"train +20 +20 +20 +60", out)
    assert re.search(r"test +3 +3 +3 +9", out)
    assert len(re.findall(r"sha256 [0-9a-f]{64}", out)) == 4
    assert "novelty fields: null" in out
    folder = "slices/synthetic"
    assert (tmp_path / folder / "disruption.png").read_bytes().startswith(b"\x89PNG")
    assert run("verify", folder)[:2] == (0, f"verified: {folder} (test 9, train 60 works)\n")
    assert run("describe", folder)[1] == out


def test_an_altered_release_fails_verification_with_the_file_named(run, tmp_path):
    run("build", *SMALL)
    path = tmp_path / "slices" / "synthetic" / "train.jsonl"
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    status, _, errors = run("verify", "slices/synthetic")
    assert status == 1
    assert "train.jsonl" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build"], "--source openalex is not part of this version"),
        (["build", "--email", "you@example.org"], "--source openalex is not part of this version"),
        (["build", "--source", "records"], "needs at least one file"),
        (["build", "--input", "no-such-file.jsonl"], "no-such-file.jsonl"),
        (["build", *SMALL, "--n-train", "-1"], "n_train is -1"),
        (["build", *SMALL, "--n-train", "90000"], "Lower n_train"),
        (["build", *SMALL, "--disruptive-min", "nan"], "disruptive_min is nan"),
        (["build", *SMALL, "--window-years", "-3"], "window_years"),
        (["build", *SMALL, "--balance", "joint"], "novelty"),
        (["build", *SMALL, "--out", "/proc/nowhere/slice"], "/proc/nowhere"),
        (["build", "--config", "missing.toml"], "no such file"),
        (["verify", "nowhere"], "not a release"),
        (["describe", "."], "not a release"),
    ],
)
def test_a_users_mistake_gets_one_clear_error_and_no_traceback(run, tmp_path, arguments, message):
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
    assert "no OpenAlex work in 1 file(s)" in run("build", "--input", "empty.jsonl")[2]
    status, _, errors = run("build", "--input", "corrupt.jsonl", "--strict")
    assert status == 1
    assert "corrupt.jsonl" in errors
    assert "line 2" in errors


def test_wrong_usage_exits_with_2(run):
    for arguments in (["build", "--balance", "everything"], ["build", "--n-train", "many"], ["grow"], []):
        with pytest.raises(SystemExit) as exit_:
            run(*arguments)
        assert exit_.value.code == 2


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[splits]\nn_train = 3\n", r"no section \[splits\]; it has \[records\]"),
        ("[split]\nn_trian = 3\n", r"\[split\] has no setting 'n_trian'; it has n_train"),
        ("sorce = 'records'\n", "the top level has no setting 'sorce'"),
        ("source = 'wos'\n", "source is 'wos', needs one of openalex, records, synthetic"),
        ("[split\n", "not a TOML file"),
        ("source = 'synthetic'\n[split]\nn_train = '3'\n", "n_train is '3'"),
        ("source = 'synthetic'\n[cd]\nwindow_years = 'five'\n", "window_years"),
        ("source = 'synthetic'\n[cd]\ncompat = 'mine'\n", "no convention 'mine'"),
        ("source = 'synthetic'\nsplit = 3\n", "no setting 'split'"),
    ],
)
def test_mistakes_in_the_configuration_file_are_named(tmp_path, text, message):
    path = tmp_path / "slice.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        resolve(read_toml(path))


def test_a_missing_configuration_file_and_the_missing_api_source_have_their_own_errors(tmp_path):
    with pytest.raises(InputNotFoundError, match="no such file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(UnavailableError, match="--source records"):
        resolve({})


@pytest.mark.parametrize("arguments", [[], ["build"], ["verify"], ["describe"]])
def test_every_help_page_prints(arguments):
    command = [sys.executable, "-m", "sciscidata", *arguments, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage: sciscidata" in done.stdout
    assert done.stderr == ""


def test_the_script_and_the_command_are_the_same():
    script = str(REPOSITORY / "scripts" / "build_slice.py")
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=True)
    assert "usage: sciscidata build" in done.stdout
    assert "--email" in done.stdout
