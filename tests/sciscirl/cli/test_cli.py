"""The ``sciscirl`` command: what it prints, what it refuses, and that its options are those of Python."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields

import pytest

from sciscidata.options.commands import list_options, make_parser, read_sections
from sciscidata.options.parser import translate
from sciscirl.cli.commands import PROGRAM
from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.hardware_options import PeftSftOptions
from sciscirl.options import TinkerSftOptions, TrainOptions
from sciscirl.presets import PRESETS
from tests.conftest import REPOSITORY

COMMANDS = PROGRAM.commands
SCRIPTS = {
    "train_rl": "train", "train_sft": "sft", "evaluate": "evaluate", "compare": "compare", "report": "report",
    "select_checkpoint": "select", "serve_local_tinker": "serve", "merge_adapter": "merge",
    "repro_sweep": "sweep repro", "sweep": "sweep",
}  # fmt: skip
HEAVY = "{'torch', 'tinker', 'tinker_cookbook', 'transformers', 'matplotlib', 'polars'}"


def read(name: str, words: list[str]) -> dict:
    return make_parser(COMMANDS[name], name).read(words, takes_pairs=True)


def test_the_help_promises_of_a_seed_what_it_does_on_a_server(capsys):
    main(["train", "--help-all"])
    said = " ".join(capsys.readouterr().out.partition("--seed ")[2].split("--")[0].split())
    assert "of the order of the papers. On your own hardware also of new weights" in said
    assert "a Tinker server draws by itself" in said


def test_help_names_every_command_in_a_line_and_loads_nothing_heavy():
    program = (
        f"import sys; from sciscirl.cli.main import main; main(['--help']); sys.exit(bool({HEAVY} & {{*sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line[2:19].strip() for line in done.stdout.splitlines() if line.startswith("  ")] == [*COMMANDS]
    assert max(map(len, done.stdout.splitlines())) <= 120


@pytest.mark.parametrize("name", COMMANDS)
def test_the_full_help_explains_every_option_and_the_short_one_the_main_ones(name):
    shown, options = read_sections(COMMANDS[name]).get("Shown", "").split(), list_options(COMMANDS[name])
    parser = make_parser(COMMANDS[name], f"sciscirl {name}")
    short, full = parser.format_help(), parser.format_full_help()
    assert all(option.text for option in options)
    assert all(option.flag.removeprefix("--") in full for option in options)
    assert {*shown} <= {option.flag for option in options}
    assert len(shown) <= 13
    listed = re.findall(r"^  (--\S+)", short.replace("[no-]", ""), re.MULTILINE)
    assert not shown or [flag for flag in listed if flag != "--help-all"] == shown
    assert name == "presets" or f"sciscirl {name} " in short  # an example


@pytest.mark.parametrize("kind", [TrainOptions, TinkerSftOptions, PeftSftOptions])
def test_every_option_of_python_has_a_flag_with_its_default(kind):
    options = {option.name: option for option in list_options(COMMANDS["train" if kind is TrainOptions else "sft"])}
    for field in fields(kind):
        assert options[field.name].default == field.default, field.name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_in_the_help_can_be_read(name):
    for line in (COMMANDS[name].__doc__ or "").splitlines():
        if line.strip().startswith("sciscirl "):
            assert read(name, line.split()[1 + len(name.split()) :])


def test_the_ways_to_write_an_option_mean_the_same():
    words = ["--preset", "exp4", "--max-steps=7", "interleave=no", "--dry-run", "seed=1"]
    words += [
        "ttl_seconds=None",
        "--behavior-if-log-dir-exists",
        "resume",
        "--n_test",
        "2",
        "loss_fn_config.clip_low_threshold=0.8",
    ]
    assert read("train", words) == {
        "preset": "exp4", "max_steps": 7, "interleave": False, "dry_run": True, "seed": 1, "n_test": 2,
        "ttl_seconds": None, "behavior_if_log_dir_exists": "resume", "loss_fn_config": ["clip_low_threshold:0.8"],
    }  # fmt: skip
    assert read("train", []) == {}
    for words in (["--seeds", "4", "8", "out=x"], ["seeds=4,8", "--out=x"], ["--seeds=4,8", "--out", "x"]):
        assert read("sweep", words) == {"seeds": [4, 8], "out": "x"}
    assert read("compare", ["a=runs/a", "b", "level=0.9"]) == {"predictions": ["a=runs/a", "b"], "level": 0.9}
    assert read("report", ["a", "b", "--title", "seed=3"]) == {"runs": ["a", "b"], "title": "seed=3"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trian", "there is no command 'trian'. Did you mean train?"),
        ("sweep sedes=1", "unknown flag --sedes. Did you mean --seeds?"),
        ("sweep repo", "there is no command 'sweep repo'. Did you mean sweep repro?"),
        ("train --max-step 4", "unknown flag --max-step. Did you mean --max-steps? See sciscirl train --help."),
        ("train --max-steps x", "--max-steps is 'x', needs a whole number from 1. See sciscirl train --help."),
        ("train reward_correct=x", "--reward-correct is 'x', needs a number. See sciscirl train --help."),
        ("train dry_run=maybe", "--dry-run takes no value."),
        ("train exp4 max_steps=5", "'exp4' is no option. Did you mean --preset exp4? See sciscirl train --help."),
        (
            "evaluate --release a runs/exp4",
            "'runs/exp4' is no option. Did you mean --run runs/exp4? See sciscirl evaluate --help.",
        ),
        ("train --preset", "--preset needs a value."),
        ("train --loss-fn-config.a --dry-run", "--loss-fn-config.a needs a value. See sciscirl train --help."),
        (
            "train loss_fn_config=a:1 loss_fn_config.b=2",
            "--loss-fn-config is typed both whole and by key. Type all of it by key: --loss-fn-config.KEY=VALUE. See",
        ),
        ("evaluate --split tset", "--split is 'tset', needs one of train, dev, held_out, test. Did you mean test?"),
        ("train --resume", "there is no option resume. To go on with a run, give --behavior-if-log-dir-exists resume;"),
        ("ladder resume=True", "there is no option resume. To go on with a run, give --behavior-if-log-dir-exists"),
        ("sft keep_days=1.5", "there is no option keep_days. Give --ttl-seconds: 86400 for each day. See"),
        ("sweep --keep-days 7", "there is no option keep_days. Give --ttl-seconds: 86400 for each day. See"),
        (
            "train --num-minibatches 4",
            "there is no option num_minibatches. Give --stream-minibatch-config num_minibatches:4. See",
        ),
        (
            "train kl_reference=tinker://a/b",
            "there is no option kl_reference. Give --kl-reference-config load_checkpoint_path:tinker://..., or nothing",
        ),
        ("merge a", "--out is required. See sciscirl merge --help."),
        ("select", "RUN is required. See sciscirl select --help."),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_was_meant(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train preset=exp44", f"no preset 'exp44'. Did you mean exp4? Presets are {', '.join(PRESETS)}."),
        ("evaluate --release a --run b --model c", "--run names the model. Leave it out, or leave out --model and "),
        ("evaluate --from-predictions a --preset b", "--from-predictions takes no other option. Leave out --preset."),
        ("sweep --log-path x", "--log-path cannot be set: the sweep decides. Set --seeds and --out;"),
        (
            "sweep vary=group_sizes:4",
            "--vary begins with 'group_sizes:4', which is no option. Write OPTION:VALUE,VALUE",
        ),
        ("sft --backend tinker --quantize nf4", "--backend tinker has no option --quantize."),
        ("sft --backend tinker --max-steps 0", "--max-steps is 0, needs a whole number from 1."),
        ("serve", "serve needs one of --tiny and --model."),
    ],
)
def test_a_refused_value_is_named_as_it_was_typed(words, said, capsys):
    assert main(words.split()) == 1
    assert capsys.readouterr().err.startswith(f"error: {said}")


def test_python_names_become_flags_and_paths_stay():
    options = list_options(COMMANDS["train"])
    for message, expected in (
        ("TrainOptions.max_steps is 0.", "--max-steps is 0."),
        ("Go on: dry_run=True collapse=warn.", "Go on: --dry-run --collapse warn."),
        ("Set compute_post_kl=False.", "Set --no-compute-post-kl."),
        ("runs/max_steps/x and 'max_steps' stay, as the model does", None),
    ):
        assert translate(message, options) == (expected or message)  # two backends share most options


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_shell_completes_commands_and_options(shell, capsys):
    PROGRAM.act(["completion", shell])
    script = capsys.readouterr().out
    assert all(word in script for word in ("sft-n-epochs", "against", "max-steps", "from-predictions"))


def test_every_script_is_a_command_and_helps_without_the_extras():
    program = (
        "import runpy, sys; sys.modules['chz'] = sys.modules['tinker'] = None; "
        "sys.argv = [sys.argv[1], '--help']; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    scripts = {path.stem for path in (REPOSITORY / "scripts").glob("*.py")}
    assert {*SCRIPTS, "build_slice", "install", "lock"} <= scripts
    for name, command in SCRIPTS.items():
        script = REPOSITORY / "scripts" / f"{name}.py"
        assert ", ".join(f'"{word}"' for word in command.split()) in script.read_text("utf-8")
    script = REPOSITORY / "scripts" / "train_rl.py"
    done = subprocess.run([sys.executable, "-c", program, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--preset" in done.stdout


def test_a_package_that_is_not_installed_is_named_with_the_remedy(monkeypatch, capsys):
    def load():
        import no_such_package  # noqa: F401

    monkeypatch.setattr("sciscirl.cli.commands.PROGRAM.commands", {"presets": load})
    assert main(["presets"]) == 1
    assert capsys.readouterr().err.startswith(
        'error: no_such_package is not installed. Run pip install ".[rl]" in your copy of the repository'
    )


def test_a_home_that_is_not_there_is_named_as_it_was_typed():
    with pytest.raises(SciSciRLError, match="not the folder of a run"):
        PROGRAM.act(["select", "~nobody-of-this-name/run"])
