"""Rules of the house that a reader would otherwise have to check by hand."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

PACKAGE = sorted((REPOSITORY / "sciscidata").rglob("*.py"))


def imported_names(path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: path.name)
def test_sciscidata_imports_nothing_of_the_learning_half(path):
    roots = {name.split(".")[0] for name in imported_names(path)}
    assert not roots & {"sciscirl", "tinker", "tinker_cookbook", "torch", "transformers"}


def test_importing_sciscidata_is_light():
    program = "import sys, sciscidata; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"numba", "matplotlib", "torch", "tinker", "rich", "pandas"}


def test_thresholds_stand_in_one_module_only():
    defaults = {"0.001": {"plots.py"}, "0.15": set()}  # and where else the number means something else: a tick
    for path in PACKAGE:
        code = re.sub(r'""".*?"""', "", path.read_text("utf-8"), flags=re.DOTALL)
        code = re.sub(r"#.*", "", code)
        for number, elsewhere in defaults.items():
            found = re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", code)
            # The command's help names the defaults.
            assert bool(found) == (path.name in {"labels.py", "cli_flags.py", *elsewhere}), (path, number)


def test_every_module_is_named_in_the_readme():
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    for path in [*PACKAGE, *(REPOSITORY / "sciscirl").rglob("*.py")]:
        assert path.name in readme or path.name == "__init__.py", path


def test_no_path_of_a_machine_is_in_the_repository():
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        text = (REPOSITORY / name).read_text("utf-8", errors="replace")
        assert not re.search(r"/(work|root|home)/", text.replace(r"/(work|root|home)/", "")), name


def test_the_readme_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sciscidata.config.platformdirs.user_cache_dir", lambda _: str(tmp_path / "cache"))
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text("utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert "disruption_label" in capsys.readouterr().out


def test_ci_runs_the_test_command_of_the_readme():
    script = (REPOSITORY / ".ci" / "run").read_text("utf-8")
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    command = re.search(r"<!-- tests -->\n```bash\n(.*?)```\n<!-- end -->", readme, flags=re.DOTALL)
    assert command is not None
    assert command[1].count("\n") == 1
    assert "pytest" in command[1]
    assert "README.md" in script


def test_links_in_documents_lead_somewhere():
    for document in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("*/README.md"), *REPOSITORY.glob("docs/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text("utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
