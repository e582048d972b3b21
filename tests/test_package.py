"""What others install: the wheel has both packages whole and nothing else, and one version is named everywhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sciscidata import __version__
from tests.conftest import REPOSITORY
from tests.test_pins import LISTS, PROJECT, pins

PACKAGES = ("sciscidata", "sciscirl")
#: What a name on conda-forge is called on PyPI.
CONDA = {"python-isal": "isal", "msgspec-python": "msgspec", "matplotlib-base": "matplotlib"}


def files_of(folder: Path) -> set[str]:
    """Every file of both packages but what Python leaves beside them."""
    found = (path for package in PACKAGES for path in (folder / package).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in found if "__pycache__" not in path.parts}


def test_the_wheel_has_every_file_of_both_packages_and_nothing_else(tmp_path):
    """Built without a network, from a copy: setuptools writes beside its sources."""
    source, out = tmp_path / "source", tmp_path / "out"
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(REPOSITORY / name, source)
    (source / "tests").mkdir()
    (source / "tests" / "test_x.py").touch()
    out.mkdir()
    program = f"from setuptools import build_meta as b; b.build_sdist({str(out)!r}); print(b.build_wheel({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(out / done.stdout.splitlines()[-1]) as wheel:
        names = {*wheel.namelist()}
        (about,) = (name for name in names if name.endswith("METADATA"))
        facts = wheel.read(about).decode()
    besides = {name for name in names if ".dist-info/" not in name}
    assert besides == files_of(REPOSITORY)
    assert {"sciscidata/py.typed", "sciscirl/py.typed"} < besides
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert f"\nVersion: {__version__}\n" in facts
    shutil.unpack_archive(out / f"sciscidata-{__version__}.tar.gz", tmp_path)
    unpacked = tmp_path / f"sciscidata-{__version__}"
    assert files_of(unpacked) == besides
    assert (unpacked / "CITATION.cff").exists()
    assert not (unpacked / "tests").exists()


def test_one_version_is_named_everywhere():
    assert PROJECT["dynamic"] == ["version"]
    assert yaml.safe_load((REPOSITORY / "CITATION.cff").read_text("utf-8"))["version"] == __version__
    assert f"version = {{{__version__}}}" in (REPOSITORY / "README.md").read_text("utf-8")


def test_the_conda_recipe_asks_for_what_the_package_asks_for():
    recipe = yaml.safe_load((REPOSITORY / "packaging" / "conda" / "recipe.yaml").read_text("utf-8"))
    assert recipe["context"]["version"] == __version__
    wanted = {canonicalize_name(one.name): one.specifier for one in map(Requirement, PROJECT["dependencies"])}
    asked = [line.partition(" ") for line in recipe["requirements"]["run"] if not line.startswith("python ")]
    assert {canonicalize_name(CONDA.get(name, name)): bound for name, _, bound in asked} == {
        name: str(bound) for name, bound in wanted.items()
    }
    entries = dict(re.split(r" = ", line) for line in recipe["build"]["python"]["entry_points"])
    assert entries == PROJECT["scripts"]


def test_the_lock_of_uv_has_the_pinned_versions():
    lock = tomllib.loads((REPOSITORY / "uv.lock").read_text("utf-8"))["package"]
    locked = {package["name"]: package.get("version") for package in lock}
    (ours,) = (package for package in lock if package["name"] == PROJECT["name"])
    pinned = pins(LISTS[0]) | pins(LISTS[2])
    assert {name: version for name, version in locked.items() if name != PROJECT["name"]} == {
        name: pinned[name] for name in locked if name != PROJECT["name"]
    }
    assert len(locked) > 200
    extras = PROJECT["optional-dependencies"]
    assert {*ours["metadata"]["provides-extras"]} == {*extras}
    lines = [*PROJECT["dependencies"], *(line for extra in extras.values() for line in extra)]
    known = {(one["name"], one.get("specifier", "")) for one in ours["metadata"]["requires-dist"]}
    for requirement in map(Requirement, lines):
        bounds = {str(specifier) for specifier in requirement.specifier}
        same = [bound for name, bound in known if name == canonicalize_name(requirement.name)]
        assert bounds in [{*filter(None, bound.split(","))} for bound in same], requirement


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob(".github/workflows/*.yml")), ids=lambda path: path.name)
def test_workflows_name_the_version_of_every_action_and_the_files_that_exist(path):
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all(re.search(r"@v\d", step["uses"]) for step in steps if "uses" in step)
    commands = " ".join(step.get("run", "") for step in steps)
    for script in re.findall(r"bash (\S+)|python (scripts/\S+)|--ignore (\S+)", commands):
        assert (REPOSITORY / "".join(script)).exists(), script
    if path.name == "ci.yml":
        tested = {
            f"Programming Language :: Python :: {python}" for python in jobs["data"]["strategy"]["matrix"]["python"]
        }
        assert tested >= {name for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)}, json.dumps(
            [*tested]
        )


def test_numpy_is_loaded_before_threads_need_it():
    """Polars 2.1 fails where two threads make it load NumPy at the same moment."""
    code = "import sys, sciscidata.schemas, polars._dependencies as at; sys.exit(at.numpy is not sys.modules['numpy'])"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_is_found_beside_a_folder_of_its_name(tmp_path):
    """As for those who work in the folder that holds their clone."""
    for package in ("sciscidata", "sciscirl"):
        (tmp_path / package).mkdir()
        code = f"import {package}; {package}.__version__"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
