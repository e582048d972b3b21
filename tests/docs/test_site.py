"""The documentation site builds without a warning, and its pages need nothing from the network."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a broken link, a missing page and an unknown argument in a docstring are errors."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site):
    pages = {
        path.relative_to(REPOSITORY / "docs").with_suffix("").as_posix() for path in REPOSITORY.glob("docs/**/*.md")
    }
    generated = {"sciscidata_command", "sciscirl_command", "sciscidata", "sciscirl", "architecture"}
    expected = pages | {f"reference/{name}" for name in generated} | {"404"}
    assert {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")} == expected


def test_every_module_is_on_the_architecture_page(site):
    page = (site / "reference" / "architecture.html").read_text("utf-8")
    for path in [path for package in ("sciscidata", "sciscirl") for path in (REPOSITORY / package).rglob("*.py")]:
        unit = "/".join(path.relative_to(REPOSITORY).parts[:2])  # a module, or a folder with all modules in it
        assert f"<code>{unit}" in page, path
        assert f"{path.name}</code>" in page or path.name == "__init__.py", path


def test_every_public_name_is_in_the_reference(site):
    from tests.test_house_rules import public_names

    for package in ("sciscidata", "sciscirl"):
        if (REPOSITORY / package / "__init__.pyi").exists():
            page = (site / "reference" / f"{package}.html").read_text("utf-8")
            for name in public_names(package):
                assert f"{package}.{name}" in page, name


def test_commands_on_pages_have_options_that_exist(site):
    """Those that run nowhere here too; scripts/X.py is the same as a command of sciscirl or sciscidata."""
    checked = 0
    for program in ("sciscidata", "sciscirl"):
        page = unescape((site / "reference" / f"{program}_command.html").read_text("utf-8"))
        sections = dict(
            re.findall(rf"<code>{program} ([\w -]+)</code>.*?</h2>(.*?)(?=<h2|</article>)", page, re.DOTALL)
        )
        for document in [REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]:
            for block in re.findall(r"```bash\n(.*?)```", document.read_text("utf-8"), re.DOTALL):
                for line in re.findall(rf"^{program} .*", block.replace("\\\n", " "), re.MULTILINE):
                    words = shlex.split(line, comments=True)
                    name = max((name for name in sections if line.startswith(f"{program} {name}")), key=len)
                    settings = [word.partition("=")[0] for word in words[2:] if "=" in word or word.startswith("--")]
                    flags = {f"--{word.removeprefix('--').replace('_', '-')}" for word in settings}
                    if name == "compare":
                        flags = {flag for flag in flags if flag in ("--out", "--reference")}  # others name models
                    for flag in flags:
                        assert f"{flag}</code>" in sections[name], f"{document.name}: {line}: {flag}"
                        checked += 1
    assert checked > 50


def test_links_lead_to_files_and_anchors_that_exist(site):
    anchors = {}
    for path in site.rglob("*.html"):
        anchors[path] = set(re.findall(r'\sid="([^"]+)"', path.read_text("utf-8")))
    for path in anchors:
        if path.name == "404.html":
            continue
        for link in re.findall(r'<a\s[^>]*href="([^"]+)"', path.read_text("utf-8")):
            target, anchor = urldefrag(unescape(link))
            if re.match(r"[a-z]+:", target):
                continue
            file = (path.parent / unquote(target)).resolve() if target else path
            assert file.exists(), f"{path.name} links to {link}"
            assert not anchor or file.suffix != ".html" or unquote(anchor) in anchors[file], f"{path.name}: {link}"


def test_a_page_needs_nothing_from_the_network(site):
    loads = re.compile(
        r"""<(?:script|img|iframe|source)\s[^>]*src=["'](\w+:)?//|<link\s[^>]*rel=["']?(?:stylesheet|preconnect|preload|icon)["']?[^>]*href=["'](\w+:)?//"""
    )
    for path in site.rglob("*.html"):
        found = loads.search(path.read_text("utf-8"))
        assert found is None, f"{path.name}: {found}"
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", path.read_text("utf-8")), path.name


def test_formulas_are_mathml(site):
    for path in site.rglob("*.html"):
        assert 'class="arithmatex"' not in path.read_text("utf-8"), path.name
    assert "<math" in (site / "measures" / "disruption.html").read_text("utf-8")
