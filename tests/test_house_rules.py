"""Rules of the house that a reader would otherwise have to check by hand."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

HOUSE = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["house"]
PACKAGES = {"sciscidata": 13, "sciscirl": 6}  # and how many modules and folders each may have at its top level


def files() -> dict[str, Path]:
    """Both packages: the file of each module by its dotted name."""
    paths = (path for package in PACKAGES for path in sorted((REPOSITORY / package).rglob("*.py")))
    return {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path for path in paths
    }


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax tree of each module."""
    return {name: ast.parse(path.read_text("utf-8")) for name, path in files().items()}


def imported_names(tree: ast.Module) -> set[str]:
    """Every module that a module names: by an import, those inside functions too, or as a string that loads it.

    ``from a import b`` may name a.b. A string may be a module, ``"a.b"``, or an object in one, ``"a.b:c"``.
    """
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inner & modules().keys() or {node.module}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= {node.value.partition(":")[0]} & modules().keys() - {*PACKAGES}
    return names


def lazy_names(name: str) -> set[str]:
    """Every module whose names the stub of a package loads when they are first used."""
    stub = files()[name].with_suffix(".pyi")
    if not stub.exists():
        return set()
    nodes = ast.walk(ast.parse(stub.read_text("utf-8")))
    return {f"{name}.{node.module}" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 1}


@cache
def arrows() -> dict[str, set[str]]:
    """Which module imports which, within the two packages."""
    return {
        name: ((imported_names(tree) | lazy_names(name)) & modules().keys()) - {name}
        for name, tree in modules().items()
    }


def unit_of(module: str) -> str:
    """Return the folder or file at the top of a package that a module belongs to, or the part of the lab."""
    return ".".join(module.split(".")[: 3 if module.startswith("sciscirl.lab.") else 2])


@cache
def layer_of() -> dict[str, int]:
    return {unit: level for level, layer in enumerate(HOUSE["layers"]) for unit in layer}


def test_every_module_belongs_to_a_layer_and_every_layer_has_modules():
    assert {unit_of(name) for name in modules()} == layer_of().keys()


def test_imports_run_down_the_layers_only():
    layer = layer_of()
    upward = [
        f"{name} -> {other}"
        for name, others in arrows().items()
        for other in others
        if unit_of(name) != unit_of(other) and layer[unit_of(name)] <= layer[unit_of(other)]
    ]
    assert not upward


def test_a_source_knows_neither_the_draw_nor_the_release_and_a_picture_no_source():
    above = ("sampling", "release", "scoring", "config", "pipeline", "stages")
    for name, others in arrows().items():
        units = {unit_of(other) for other in others}
        if unit_of(name) == "sciscidata.sources":
            assert not units & {f"sciscidata.{unit}" for unit in above}, name
        if unit_of(name) in ("sciscidata.plots", "sciscidata.release"):
            assert "sciscidata.sources" not in units, name


def test_no_imports_form_a_cycle():
    try:
        TopologicalSorter(arrows()).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_newcomer_sees_few_names_at_the_top_of_a_package(package):
    files = {path.stem for path in (REPOSITORY / package).glob("*.py")} - {"__init__", "__main__"}
    assert len(files) <= PACKAGES[package], sorted(files)


def test_sciscidata_imports_nothing_of_the_learning_half():
    learning = {"sciscirl", "tinker", "tinker_cookbook", "torch", "transformers"}
    for name, tree in modules().items():
        if name.startswith("sciscidata"):
            assert not {imported.split(".")[0] for imported in imported_names(tree)} & learning, name


def test_importing_sciscidata_is_light():
    program = "import sys, sciscidata; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"numba", "matplotlib", "torch", "tinker", "rich", "pandas"}


def test_the_core_of_sciscirl_does_not_name_the_lab_in_any_way():
    """Not by an import, a lazy name or a string; what puts core and lab together lies above both."""
    above = ("sciscirl", "sciscirl.cli", "sciscirl.__main__", "sciscirl.lab")
    for name in modules():
        if name.startswith("sciscirl") and unit_of(name) not in above and not name.startswith("sciscirl.lab."):
            assert not [one for one in arrows()[name] if unit_of(one) in above or one.startswith("sciscirl.lab.")], name
            code = ast.unparse(_without_docstrings(modules()[name]))
            assert not re.search(r"sciscirl\.(lab|cli)\b", code), name


def _without_docstrings(tree: ast.Module) -> ast.Module:
    tree = ast.parse(ast.unparse(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            node.body[0] = ast.Pass()
    return tree


def test_a_loop_of_ones_own_loads_the_adapter_and_little_else():
    """Who trains in the cookbook's loop reads released papers, shows prompts, pays answers and builds groups."""
    program = """
import sys, sciscirl
sciscirl.LabelDatasetBuilder
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] in ("sciscirl", "sciscidata"):
        print(name, sum(1 for _ in open(module.__file__, encoding="utf-8")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    lines = {name: int(n) for name, n in (line.split() for line in done.stdout.splitlines())}
    for package in PACKAGES:
        assert sum(n for name, n in lines.items() if name.partition(".")[0] == package) <= 3_000, lines
    units = {unit_of(name) for name in lines if name.startswith("sciscirl.")}
    assert units == {"sciscirl.errors", "sciscirl.task", "sciscirl.envs"}


def test_sciscirl_names_nothing_private_of_sciscidata():
    private = re.compile(r"sciscidata\.(?:.*\.)?_(?!_version__)")
    for name, tree in modules().items():
        if name.startswith("sciscirl"):
            imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
            places = {
                f"{getattr(node, 'module', '')}.{alias.name}".lstrip(".") for node in imports for alias in node.names
            }
            assert not [place for place in places if private.match(place)], name


def test_training_on_a_server_loads_nothing_of_own_hardware_reports_or_studies():
    program = """
import sys
from sciscirl import EvaluationConfig, TrainOptions, evaluate_model, measure_predictions, train_preset
import sciscirl.cli.main, sciscirl.lab.sft.tinker_backend
print(*(name for name in sys.modules if name.startswith("sciscirl.lab.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    parts = {"models.local_model", "models.local_completer", "grpo", "analysis", "report", "studies", "harnesses"}
    loaded = {name.removeprefix("sciscirl.lab.") for name in done.stdout.split()}
    assert not {name for name in loaded if any(f"{name}.".startswith(f"{part}.") for part in parts)}


def test_a_command_without_a_model_does_not_wait_for_the_sdk():
    program = "import sys; from sciscirl.cli.main import main; main(['presets']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "baseline" in done.stdout
    assert not {"tinker", "torch"} & set(done.stdout.split())


def test_thresholds_stand_in_one_module_only():
    for name, tree in modules().items():
        if name.startswith("sciscidata"):
            numbers = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & {0.001, 0.15}
            expected = {0.001, 0.15} if name == "sciscidata.label_thresholds" else set()
            assert numbers == expected, name


def public_names(package: str) -> list[str]:
    """The names in the stub of a package, in its order."""
    stub = ast.parse((REPOSITORY / package / "__init__.pyi").read_text("utf-8"))
    return [
        alias.asname or alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]


@pytest.mark.parametrize("package", [name for name in PACKAGES if (REPOSITORY / name / "__init__.pyi").exists()])
def test_a_package_shows_its_public_names_and_nothing_else(package):
    package_, names = importlib.import_module(package), public_names(package)
    assert len(names) == len(set(names)) <= 57
    shown = [name for name in dir(package_) if not name.startswith("__")]
    assert sorted(shown) == sorted(names)
    assert sorted(set(package_.__all__) - {"__version__"}) == sorted(names)
    assert all(getattr(package_, name) is not None for name in names)
    starred: dict[str, object] = {}
    exec(f"from {package} import *", starred)
    assert starred.keys() - {"__builtins__", "__version__"} == set(names)


@pytest.mark.parametrize("package", [name for name in PACKAGES if (REPOSITORY / name / "__init__.pyi").exists()])
@pytest.mark.parametrize("jedi", [True, False], ids=["jedi", "plain"])
def test_tab_completion_in_ipython_offers_the_public_names(package, jedi, tmp_path, monkeypatch):
    """In a process of its own: earlier tests have imported modules, which Python notes as attributes of the package."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    program = f"""
import warnings
from IPython.core.completer import IPCompleter, provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import {package}")
shell.Completer.use_jedi = {jedi}
line = "{package}."
with provisionalcompleter():
    found = {{line[:c.start] + c.text for c in shell.Completer.completions(line, len(line))}}
print(*sorted(name.removeprefix("{package}").strip(".") for name in found))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    offered = [name for name in done.stdout.split() if not name.startswith("_")]
    assert sorted(offered) == sorted(public_names(package)), done.stderr


def returns_lazy_frames(function) -> bool:
    """Whether a function's annotation says LazyFrame, or names a class whose fields or properties do."""
    annotation = str(function.__annotations__.get("return", ""))
    found = vars(sys.modules[function.__module__]).get(annotation)
    parts = [str(vars(found).get("__annotations__", ""))] if isinstance(found, type) else []
    parts += (
        [
            str(inspect.get_annotations(part.fget).get("return"))
            for part in vars(found).values()
            if isinstance(part, property)
        ]
        if parts
        else []
    )
    return any("LazyFrame" in part for part in [annotation, *parts])


def test_compute_and_scan_are_lazy_and_nothing_else_is():
    import sciscidata

    found = {name: getattr(sciscidata, name) for name in public_names("sciscidata")}
    lazy = {name for name, value in found.items() if inspect.isfunction(value) and returns_lazy_frames(value)}
    assert lazy >= {name for name in found if name.startswith(("compute_", "scan_"))}
    # These run, and hand back what they have written or read, as scan_corpus does.
    running = ("ingest", "from_tables", "compare")
    assert lazy == {name for name in found if name.startswith(("compute_", "scan_")) or name in running}


def test_no_path_of_a_machine_is_in_the_repository():
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(lambda name: (REPOSITORY / name).is_file(), listed.stdout.splitlines()):
        text = (REPOSITORY / name).read_text("utf-8", errors="replace")
        assert not re.search(r"/(work|root|home)/", text.replace(r"/(work|root|home)/", "")), name


def test_the_readme_is_short():
    assert len((REPOSITORY / "README.md").read_text("utf-8").splitlines()) <= 130


def test_ci_runs_the_test_command_of_the_readme():
    script = (REPOSITORY / ".ci" / "run").read_text("utf-8")
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    command = re.search(r"<!-- tests -->\n```bash\n(.*?)```\n<!-- end -->", readme, flags=re.DOTALL)
    assert command is not None
    assert command[1].count("\n") == 1
    assert "pytest" in command[1]
    assert "README.md" in script


def test_links_in_documents_lead_somewhere():
    """Of the pages below docs, tests/docs checks the links: some of those pages are generated."""
    for document in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("[!d]*/README.md"), REPOSITORY / "data" / "README.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text("utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_files_that_contributing_names_exist():
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"`((?:sciscidata|sciscirl|docs|tests|scripts)/[\w./]+)`", text)
    assert len(named) > 10
    for name in named:
        assert (REPOSITORY / name).exists(), name


#: Files of users and of others that docstrings, comments and pages name.
_OTHERS_FILES = {"FILE.py", "mine.py", "polars.py", "DI_windowed_parallel.py"}


def said_in(path: Path) -> str:
    """Return the docstrings and comments of a module, or a whole page."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return text
    comments = re.findall(r"(?:^|  )#.*", text, re.MULTILINE)
    with_text = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, with_text))
    return "\n".join([*comments, *(ast.get_docstring(node, clean=False) or "" for node in nodes)])


def names_at_the_top(tree: ast.Module) -> set[str]:
    """Return the functions, classes and constants that a module has, its own and imported ones."""
    targets = (target for node in tree.body for target in getattr(node, "targets", [getattr(node, "target", None)]))
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    names |= {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    return names | {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_modules_that_docstrings_comments_and_pages_name_are_there():
    """By their file, ``task/papers.py``, or with a name in them, ``papers.SEEN``."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [name for name in listed.stdout.splitlines() if (REPOSITORY / name).exists()]
    ends = [f"/{name.removesuffix('.template')}" for name in files]
    inside = {name: names_at_the_top(tree) for name, tree in modules().items()}
    gone = []
    for name in [name for name in files if name.endswith((".py", ".pyi", ".md", ".ipynb"))]:
        text = said_in(REPOSITORY / name)
        for file in {*re.findall(r"(?<![\w./-])\w[\w/-]*\.py\b", text)} - _OTHERS_FILES:
            gone += [f"{name}: {file}"] if not any(end.endswith(f"/{file}") for end in ends) else []
        for module, inner in re.findall(r"``([a-z_]+)\.(\w+)(?:\(\))?``", text):
            places = [place.rpartition(".")[2] for place, names in inside.items() if inner in names]
            ours = places and module not in sys.stdlib_module_names
            gone += [f"{name}: {module}.{inner}"] if ours and module not in places else []
    assert not gone


def render_layers() -> str:
    """Write the layers as the table of CONTRIBUTING.md: the lowest first, both packages side by side."""
    columns = ([layer for layer in HOUSE["layers"] if layer[0].partition(".")[0] == package] for package in PACKAGES)
    cells = (
        [", ".join(f"`{unit.partition('.')[2] or '__init__'}`" for unit in layer) for layer in one] for one in columns
    )
    return "".join(f"| {left} | {right} |\n" for left, right in zip_longest(*cells, fillvalue=""))


def test_contributing_shows_the_layers():
    """UPDATE_GOLDEN=1 writes them anew."""
    path, heading = REPOSITORY / "CONTRIBUTING.md", "| sciscidata | sciscirl |\n|---|---|\n"
    before, _, after = path.read_text("utf-8").partition(heading)
    shown, _, rest = after.partition("\n`sciscidata` never")
    if os.environ.get("UPDATE_GOLDEN"):
        shown = render_layers()
        path.write_text(f"{before}{heading}{shown}\n`sciscidata` never{rest}", "utf-8")
    assert shown == render_layers()


def test_every_place_that_contributing_names_is_there():
    table = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8").partition("## Where to change what")[2]
    rows = re.findall(r"^\| (?!To change|---)(.+?) \| (.+) \|$", table.partition("\n**")[0], re.MULTILINE)
    assert len(rows) > 15
    for what, place in rows:
        quoted = re.findall(r"`([^`]+)`", place)
        text = "".join((REPOSITORY / word).read_text("utf-8") for word in quoted if "/" in word)
        for name in (name for word in quoted if "/" not in word for name in word.split(".")):
            assert re.search(rf"\b{name}\b", text), f"{what}: {name} is not in {place}"
