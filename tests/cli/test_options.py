"""Every option of Python has a flag and a setting, with the help and the default of its field."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys

import pytest

from sciscidata.cli.build_options import SECTIONS, SOURCES, list_settings, resolve
from sciscidata.cli.commands import PROGRAM
from sciscidata.cli.main import main
from sciscidata.config import BuildConfig
from sciscidata.errors import ConfigError
from sciscidata.options.checks import field_hints
from sciscidata.options.commands import list_options, make_parser, read_sections
from sciscidata.options.parser import translate
from sciscidata.sampling.config import SplitConfig
from sciscidata.stages import ingest, write_atypicality, write_cd_index, write_null_cd_index

COMMANDS = PROGRAM.commands
#: Words for options, by name or by flag, that 3, or the last choice, does not fit.
WORDS = {
    "storage_options": ["a=b"], "store_options": ["a=b"], "years": ["1990", "2000"],
    "inputs": ["f", "g"], "works": ["f"],
    "citations": ["g"], "email": ["a@b"],
    "base_url": ["http://127.0.0.1:9"], "first_year": ["1990"], "last_year": ["2010"], "to_year": ["2000"],
    "consolidating_max": ["-1"], "growth_per_year": ["0.2"], "text_signal": ["0.2"], "uzzi_median_share": ["0.2"],
    "min_label_confidence": ["0.2"], "no_references_share": ["0.2"],
    "disruptive_share": ["0.2"], "developing_share": ["0.2"], "balance": ["pool"],
    "name": ["an_label"], "classes": ["a", "b"], "sql": ["NULL"], "meanings": ["a=first"],
    "hidden": ["publication_year"], "filter": ["type:article"],
    "--only-label": ["disruptive", "neutral"],
}  # fmt: skip


def test_every_field_of_every_configuration_has_one_flag_and_one_setting_and_back():
    options = list_settings()
    fields = {(section, name) for section, kind in SECTIONS.items() for name in field_hints(kind)}
    fields |= {("", field.name) for field in dataclasses.fields(BuildConfig)} - {("", name) for name in SECTIONS}
    fields |= {("", "novelty"), ("cd", "compat"), ("novelty", "compat"), ("thresholds", "preset")}
    fields -= {
        ("label", "expression"),
        ("thresholds", "cells"),
        ("eligibility", "where"),
        ("eligibility", "listed"),
    }  # in Python alone
    assert {(option.section, option.name) for option in options} == fields
    assert len({option.flag for option in options}) == len(options) == len(fields)
    assert all(option.text for option in options)
    kept = {"--seed", "--novelty-seed", "--synthetic-seed", "--input", "--language", "--work-type", "--compat"}
    kept |= {"--novelty-compat", "--preset", "--sciscinet", "--snapshot", "--corpus", "--uzzi-tail-max", "--min-pairs"}
    assert kept <= {option.flag for option in options}


@pytest.mark.parametrize("option", list_settings(), ids=lambda option: option.flag)
def test_every_flag_reaches_its_field_and_so_does_its_setting(option):
    kind = option.hint.kinds[0] if option.hint.kinds else str
    default = option.default
    if kind is bool:
        words, value = [option.flag if not default else f"--no-{option.flag[2:]}"], not default
    else:
        given = (
            WORDS.get(option.flag)
            or WORDS.get(option.name)
            or [str(option.hint.choices[-1] if option.hint.choices else 3)]
        )
        words = [option.flag, *given]
        value = None
    got = make_parser(COMMANDS["build"], "build").read(words)[option.key]
    assert value is None or got == value
    settings = {option.section: {option.name: got}} if option.section else {"": {option.name: got}}
    source = option.section if option.section in list_settings()[0].hint.choices else None
    if option.name != "source":
        settings.setdefault("", {})["source"] = source or ("openalex" if option.section == "api" else "synthetic")
    read = settings[""]["source"]
    for needed in (field.name for field in dataclasses.fields(SOURCES[read]) if field.default is dataclasses.MISSING):
        settings.setdefault(read, {}).setdefault(needed, ["f"] if field_hints(SOURCES[read])[needed].is_list else "f")
    if read == "tables" and option.name != "references":  # citations come from one place
        settings["tables"].setdefault("citations", ["g"])
    if option.name == "di_l":
        settings["cd"]["family"] = True
    if option.section == "label":  # one needs classes, and one place that they come from
        settings["label"].setdefault("classes", ["a", "b"])
        if option.name != "sql":
            settings["label"].setdefault("column", "c")
        if option.name == "id":
            settings["label"]["file"] = "f"
    needs_another = {"n_shuffles", "earlier_citers", "focal_in_n_k", "window_from", "unique_venues", "undefined_pairs",
                     "uzzi_tail_max"}  # fmt: skip
    if option.name in needs_another or (option.section, option.name) == ("novelty", "seed"):
        with pytest.raises(ConfigError, match=rf"{option.owner}\.{option.name}"):
            resolve(settings)
        return
    config = resolve(settings)
    if option.name in ("compat", "preset", "source") or (option.section, option.name) == ("", "novelty"):
        return
    part = config if not option.section else config.source if source else getattr(config, option.section)
    held = getattr(part, option.name)
    assert held == (tuple(got) if isinstance(got, list) else type(held)(got))


def test_every_argument_of_a_stage_has_a_flag():
    stages = {"ingest": ingest, "cd": write_cd_index, "null-cd": write_null_cd_index, "novelty": write_atypicality}
    for name, function in stages.items():
        flags = {option.flag for option in list_options(COMMANDS[name])}
        arguments = set(inspect.signature(function).parameters) - {"source", "folder", "config"}
        assert {f"--{argument.replace('_', '-')}" for argument in arguments} <= flags
    assert {option.flag for option in list_options(COMMANDS["ingest"]) if option.owner == "ingest"} == {
        "--texts",
        "--keep-authors",
    }


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if "Shown" in read_sections(command)])
def test_short_help_shows_what_matters_and_full_help_shows_every_option(name, capsys):
    options = [one for one in list_options(COMMANDS[name]) if one.has_flag and one.name != "config"]
    said = read_sections(COMMANDS[name])
    main_flags = said["Shown"].split()
    assert set(main_flags) <= {option.flag for option in options}
    assert len(main_flags) <= 20
    for word, shown in (("--help", main_flags), ("--help-all", [option.flag for option in options])):
        if word == "--help-all" and len(main_flags) == len(options):
            continue
        with pytest.raises(SystemExit) as end:
            main([name, word])
        assert end.value.code == 0
        out = capsys.readouterr().out
        found = set(re.findall(r"^  (--\S+)", out, re.M)) - {"--config", "--help-all"}
        assert {flag.replace("[no-]", "") for flag in found} == set(shown)
        assert said["Example"] in out
        assert "``" not in out


def test_an_example_of_each_command_is_understood_by_it():
    for name, command in COMMANDS.items():
        program, first, *words = re.sub(r'eval "\$\(|\)"$', "", read_sections(command)["Example"]).split()
        assert (program, first) == ("sciscidata", name)
        assert PROGRAM.read(name, words)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("SplitConfig.n_train is -1.", "--n-train is -1."),
        ("replace it: overwrite=True.", "replace it: --overwrite."),
        ("Set SciSciNetConfig.recompute=True.", "Set --recompute."),
        ("Set OpenAlexConfig.venues=False.", "Set --no-venues."),
        (
            "LabelThresholds.novelty_rule='uzzi', or NoveltyConfig.score=\"rank\"",
            "--novelty-rule uzzi, or --score rank",
        ),
        ("corrupt='skip'", "--corrupt skip"),
        ("EligibilityConfig.languages=('en', 'fr')", "--language en fr"),
        ("Set CDConfig.window_years=None.", "Set --window-years all."),
        ("CDConfig.window_years is -1, needs a number, or None.", "--window-years is -1, needs a number, or all."),
        ("ApiConfig.email is 'x', needs text, or None.", "--email is 'x', needs text."),
        ("name the folder: texts=...", "name the folder: texts=..."),  # two options have this name
        ("SciSciNetConfig.texts=...", "--sciscinet-texts"),
        ("NoveltyConfig.seed and SplitConfig.seed", "--novelty-seed and --seed"),
        ("move the cut-offs of LabelThresholds", "move the cut-offs of [thresholds]"),
        ("ingest: n_train=150, n_test=15", "ingest: --n-train 150 --n-test 15"),
        ("files (RecordsConfig), or SyntheticConfig.", "files (--input), or --source synthetic."),
        ("ingest(source) of WangConfig.past_years", "ingest(source) of WangConfig.past_years"),
        ("file /a/SplitConfig.py", "file /a/SplitConfig.py"),
    ],
)
def test_a_message_for_python_names_flags_where_flags_were_typed(message, told):
    ingested = list_options(COMMANDS["ingest"])
    options = [*list_options(COMMANDS["build"]), *(option for option in ingested if option.owner == "ingest")]
    assert translate(message, options) == told


def test_an_error_names_what_was_written_flag_setting_or_field(tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"^SplitConfig.n_test is -1, needs"):
        SplitConfig(n_test=-1)
    small = ["build", "--source", "synthetic"]
    assert main([*small, "--n-test", "-1"]) == 1
    assert capsys.readouterr().err.startswith("error: --n-test is -1, needs")
    (tmp_path / "c.toml").write_text("[split]\nn_test = -1\n[eligibility]\nmin_year = 2000\nmax_year = 1990\n")
    assert main([*small, "--config", str(tmp_path / "c.toml")]) == 1
    told = "error: [eligibility] min_year (2000) lies after [eligibility] max_year (1990). Swap them.\n"
    assert capsys.readouterr().err == told
    assert main([*small, "--config", str(tmp_path / "c.toml"), "--max-year", "2001"]) == 1
    assert capsys.readouterr().err.startswith("error: [split] n_test is -1, needs")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("build --n-trian 5", "unknown flag --n-trian. Did you mean --n-train? See sciscidata build --help."),
        ("biuld", "there is no command 'biuld'. Did you mean build? See sciscidata --help."),
        ("build --balance nvelty", "Did you mean novelty? See"),
        ("build --compat cdindx", "Did you mean cdindex? See"),
        ("build --preset wid", "Did you mean wide? See"),
        ("build --source syntetic", "Did you mean synthetic? See"),
        ("build --n-train many", "--n-train is 'many', needs a whole number from 0 to 2,147,483,647. See"),
        ("build --n-train", "--n-train needs a value. See"),
        ("build --years 1990", "--years needs 2 values. See"),
        ("build --offline=SECRET", "--offline takes no value. See"),
        ("build --storage-options SECRET", "--storage-options needs KEY=VALUE. See"),
        (
            "cd corpus --depot-file SECRET",
            "unknown flag --depot-file. Flags with a word of it: --scheduler-file. See sciscidata cd --help.",
        ),
        ("cd corpus --outt SECRET", "unknown flag --outt. Did you mean --out? See sciscidata cd --help."),
        ("completion fish", "SHELL is 'fish', needs one of bash, zsh, tcsh"),
    ],
)
def test_wrong_usage_is_one_line_with_what_was_meant(words, told, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    error = capsys.readouterr().err
    assert (end.value.code, error.count("\n"), error[:7]) == (2, 1, "error: ")
    assert told in error
    assert "SECRET" not in error


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("tasks folder --run 0", "--run is 0, needs a whole number from 1."),
        ("sweep corpus --out a.parquet --n-draws 0", "--n-draws is 0, needs a whole number from 2 to 1,000,000."),
        (
            "cd corpus --out a.parquet --window-years -1",
            "--window-years is -1, needs a whole number from 0 to 9999, or all.",
        ),
    ],
)
def test_a_wrong_value_is_never_to_become_none_which_nobody_can_type(words, told, capsys):
    assert main(words.split()) == 1
    assert capsys.readouterr().err == f"error: {told}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_shell_completes_commands_and_flags(shell, capsys):
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "background" in script
    assert "uzzi-tail-max" in script


def test_nothing_is_loaded_for_the_first_help():
    program = (
        "import sys\nfrom sciscidata.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"polars", "numpy", "msgspec", "rich"} & set(done.stdout.split("\n")[-2].split())
