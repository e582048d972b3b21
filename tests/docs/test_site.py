"""The documentation site builds without a warning, and its pages need nothing from the network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import sciscidata as ssd
from tests.conftest import REPOSITORY
from tests.test_house_rules import public_names

MEASUREMENTS = [*REPOSITORY.glob("benchmarks/*.md"), *REPOSITORY.glob("benchmarks/notes/*.md")]


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
    generated |= {f"{package}/{name}" for package in ("sciscidata", "sciscirl") for name in public_names(package)}
    generated -= {"sciscidata/indicators", "sciscidata/plots"}  # folders: each of their names has a page
    generated |= {
        f"sciscidata/{folder}.{name}" for folder in ("indicators", "plots") for name in getattr(ssd, folder).__all__
    }
    notebooks = {f"notebooks/{path.stem}" for path in REPOSITORY.glob("notebooks/*.ipynb")}
    folder = REPOSITORY / "benchmarks"
    pages |= {
        f"measurements/{path.relative_to(folder).with_suffix('')}".replace("README", "index") for path in MEASUREMENTS
    }
    expected = pages | {f"reference/{name}" for name in generated} | notebooks | {"gallery", "changelog", "404"}
    assert {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")} == expected


def test_every_module_is_on_the_architecture_page(site):
    page = (site / "reference" / "architecture.html").read_text("utf-8")
    for path in [path for package in ("sciscidata", "sciscirl") for path in (REPOSITORY / package).rglob("*.py")]:
        unit = "/".join(path.relative_to(REPOSITORY).parts[:2])  # a module, or a folder with all modules in it
        assert f"<code>{unit}" in page, path
        assert f"{path.name}</code>" in page or path.name == "__init__.py", path


def test_search_finds_an_option_of_several_commands_once(site):
    entries = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    for page, option in (("sciscidata_command", "--disruptive-min"), ("sciscirl_command", "--trust-remote-code")):
        text = (site / "reference" / f"{page}.html").read_text("utf-8")
        assert text.count(f"<td><code>{option}</code></td>") > 1
        of_page = [entry["text"] for entry in entries if entry["location"].startswith(f"reference/{page}.html")]
        assert "".join(of_page).count(f"<code>{option}</code>") == 1, option


def read_tags(page: Path) -> list[tuple[str, dict[str, str]]]:
    """List the tags of a page with their attributes."""
    tags = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append((tag, {k: v or "" for k, v in attributes}))
    parser.feed(page.read_text("utf-8"))
    return tags


def find_broken(links: list[str], page: Path, anchors: dict[Path, set[str]]) -> list[str]:
    """List the links of a page to files that are not there, or to anchors that their page lacks."""
    broken = []
    for link in links:
        target, anchor = urldefrag(link)
        file = (page.parent / unquote(target)).resolve() if target else page
        if not re.match(r"[a-z]+:", target) and (
            not file.exists() or (anchor and file in anchors and unquote(anchor) not in anchors[file])
        ):
            broken.append(link)
    return broken


def test_links_lead_to_files_and_anchors_that_exist(site):
    tags = {path: read_tags(path) for path in site.rglob("*.html")}
    anchors = {path: {attributes.get("id", "") for _, attributes in found} for path, found in tags.items()}
    for path, found in tags.items():
        links = [attributes["href"] for tag, attributes in found if tag == "a" and "href" in attributes]
        assert path.name == "404.html" or not find_broken(links, path, anchors), path.name
    assert find_broken(["quickstart.html#nowhere", "nowhere.html"], site / "index.html", anchors) == [
        "quickstart.html#nowhere", "nowhere.html",
    ]  # fmt: skip
    for document in [*REPOSITORY.glob("*.md"), *MEASUREMENTS, REPOSITORY / "data/README.md"]:
        links = re.findall(r"\]\((?:\.\./)*docs/([\w/]+)\.md(#[\w-]+)\)", document.read_text("utf-8"))
        assert not find_broken([f"{page}.html{anchor}" for page, anchor in links], site / "index.html", anchors), (
            document.name
        )


#: What a browser fetches by itself when it opens a page: attributes by tag. "link" fetches unless it only names a page.
LOADS = {"script": "src", "img": "src srcset", "iframe": "src", "source": "src srcset", "video": "src poster",
         "audio": "src", "embed": "src", "object": "data", "link": "href", "image": "href"}  # fmt: skip
NAMES_A_PAGE = {"canonical", "prev", "next", "alternate", "author", "license", "edit"}


def find_foreign_loads(tags: list[tuple[str, dict[str, str]]]) -> list[str]:
    """List the addresses on other hosts that a browser asks for when it opens a page."""
    found = []
    for tag, attributes in tags:
        loaded = [attributes.get(name, "") for name in LOADS.get(tag, "").split()]
        if tag == "link" and set(attributes.get("rel", "").split()) <= NAMES_A_PAGE:
            loaded = []
        loaded += re.findall(r"url\(['\"]?([^'\")]+)", attributes.get("style", ""))
        found += [address for address in loaded if re.search(r"(?:^|[\s,])(?:https?:)?//", address)]
    return found


def test_a_page_needs_nothing_from_the_network(site):
    for path in site.rglob("*.html"):
        assert not find_foreign_loads(read_tags(path)), path.name
        text = path.read_text("utf-8")
        assert not re.search(r"<style[^>]*>[^<]*(?:@import|url\(['\"]?(?:https?:)?//)", text), path.name
        assert 'class="mermaid"' not in text, f"{path.name}: the theme would load mermaid from another host"
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import\s+)['\"]?(?:https?:)?//", path.read_text("utf-8")), path.name
    for tag in (
        ("link", {"href": "https://fonts.example/x.css", "rel": "stylesheet"}),
        ("script", {"src": "//cdn.example/x.js"}),
        ("img", {"src": "x.png", "srcset": "x.png 1x, https://cdn.example/x.png 2x"}),
        ("div", {"style": "background: url(https://cdn.example/x.png)"}),
    ):
        assert find_foreign_loads([tag]), tag


def test_formulas_are_mathml(site):
    for path in site.rglob("*.html"):
        assert 'class="arithmatex"' not in path.read_text("utf-8"), path.name
    assert "<math" in (site / "measures" / "disruption.html").read_text("utf-8")
