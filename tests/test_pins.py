"""What is installed is pinned to the version and the file: all lists of packages and pyproject agree."""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY

SERVER = REPOSITORY / "sciscirl" / "lab" / "local_server" / "requirements.txt"
LISTS = (REPOSITORY / "constraints.txt", SERVER, SERVER.with_name("cuda.txt"), SERVER.with_name("torch_cpu.txt"))
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
INSTALL = runpy.run_path(str(REPOSITORY / "scripts" / "install.py"))
LOCK = runpy.run_path(str(REPOSITORY / "scripts" / "lock.py"))


def pins(path: Path) -> dict[str, str]:
    return LOCK["read_pins"](path.read_text("utf-8"))


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.name)
def test_every_pin_is_exact_and_has_the_hashes_of_its_files(path):
    text = re.sub(r"^(?:#.*|-c [\w/.]+)\n", "", path.read_text("utf-8"), flags=re.M)
    pin = r"[A-Za-z0-9][A-Za-z0-9_.-]*==[0-9a-z.+]+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.sub(pin, "", text) == ""
    names = [canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", text, re.M)]
    assert len(names) == len({*names})
    assert len(names) == len(pins(path))
    for block in re.split(r"^(?=\S)", text, flags=re.M):
        hashes = re.findall(r"sha256:(\w+)", block)
        assert len(hashes) == len({*hashes}), block.split("\n", 1)[0]


def test_a_package_stands_in_one_list_of_what_is_installed():
    here, server, cuda, cpu = (pins(path) for path in LISTS)
    assert cpu == {"torch": f"{here['torch']}+cpu"}
    assert not here.keys() & cuda.keys()
    assert not server.keys() & cuda.keys()
    # The client and its server: one version of each, but for peft, of which SkyRL needs an older one.
    assert {name for name in here.keys() & server.keys() if here[name] != server[name]} == {"peft"}
    assert {"tinker", "torch", "pip", "setuptools"} <= here.keys() & server.keys()


def test_the_same_file_has_the_same_hash_in_both_lists():
    def hashes(path: Path) -> dict[str, set[str]]:
        blocks = re.split(r"^(?=\S)", path.read_text("utf-8"), flags=re.M)
        named = {block.split(" ")[0].lower().replace("_", "-"): block for block in blocks if "==" in block}
        return {name: {*re.findall(r"sha256:(\w+)", block)} for name, block in named.items()}

    here, server = hashes(LISTS[0]), hashes(SERVER)
    assert all(here[name] == server[name] for name in here.keys() & server.keys())


def test_every_dependency_is_pinned_to_a_version_that_it_allows():
    versions = pins(LISTS[0])
    extras = [*PROJECT["optional-dependencies"]]
    for line in INSTALL["requirements_of"](PROJECT, extras):
        requirement = Requirement(line)
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), line
    assert f"=={versions['torch']}" in str(PROJECT["optional-dependencies"]["rl"])


def test_whatever_the_installed_packages_ask_for_here_is_pinned():
    versions, environment = pins(LISTS[0]) | pins(LISTS[2]), default_environment()
    found, wanted = set(), [Requirement(line) for line in INSTALL["requirements_of"](PROJECT, ["local", "test"])]
    while wanted:
        asked = wanted.pop()
        for extra in ("", *asked.extras):
            name = canonicalize_name(asked.name)
            if (name, extra) in found or (asked.marker and not asked.marker.evaluate({**environment, "extra": ""})):
                continue
            found.add((name, extra))
            assert name in versions, asked
            try:
                needs = importlib.metadata.requires(asked.name) or []
            except importlib.metadata.PackageNotFoundError:  # an extra that is not installed here
                continue
            some = [Requirement(line) for line in needs]
            wanted += [it for it in some if not it.marker or it.marker.evaluate({**environment, "extra": extra})]
    assert len(found) > 30


def test_an_extra_may_name_others_and_an_unknown_one_is_refused():
    project = {"name": "p", "dependencies": ["a"], "optional-dependencies": {"x": ["p[y, z]"], "y": ["b"], "z": []}}
    assert INSTALL["requirements_of"](project, ["x", "y"]) == ["a", "b"]
    with pytest.raises(SystemExit, match=r"no extra 'w'. Choose some of: x, y, z"):
        INSTALL["requirements_of"](project, ["w"])


def test_what_installs_the_rest_is_taken_out_of_the_list_with_its_hashes():
    told = INSTALL["pins_of"](LISTS[0].read_text("utf-8"), INSTALL["TOOLS"])
    assert re.findall(r"^([\w-]+)==", told, re.M) == ["pip", "setuptools", "uv"]
    assert told.count("--hash=sha256:") >= 6
    assert INSTALL["pins_of"]("A_b.c==1 \\\n    --hash=sha256:0\nd==2\n", ["a-b-c"]).startswith("A_b.c==1 ")


def test_the_lock_keeps_comments_and_order_and_replaces_hashes(tmp_path):
    file = tmp_path / "list.txt"
    file.write_text("# why\nB_b==1 \\\n    --hash=sha256:old\n-c other.txt\na==2\n", "utf-8")
    LOCK["write_hashes"](file, {"b-b==1": " \\\n    --hash=sha256:new", "a==2": " \\\n    --hash=sha256:two"})
    assert file.read_text("utf-8") == (
        "# why\nB_b==1 \\\n    --hash=sha256:new\n-c other.txt\na==2 \\\n    --hash=sha256:two\n"
    )


def test_an_environment_without_pip_gets_it_and_one_with_pip_stays_as_it_is(tmp_path):
    venv.create(tmp_path / "venv")  # as uv makes it, or Debian without python3-venv
    python = INSTALL["make_environment"](tmp_path / "venv", INSTALL["Steps"](1))
    assert subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    before = sorted((path, path.stat().st_mtime_ns) for path in python.parent.iterdir())
    assert INSTALL["make_environment"](tmp_path / "venv", INSTALL["Steps"](1)) == python
    assert sorted((path, path.stat().st_mtime_ns) for path in python.parent.iterdir()) == before
