"""The documentation site builds without a warning, and its pages need nothing from the network."""

from __future__ import annotations

import html
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import sciscidata as ssd
from sciscidata.options.commands import list_options, summarise
from tests.conftest import REPOSITORY
from tests.test_house_rules import public_names

PROGRAMS = ("sciscidata", "sciscirl")
HANDWRITTEN = {
    path.relative_to(REPOSITORY / "docs").with_suffix("").as_posix() for path in REPOSITORY.glob("docs/**/*.md")
}
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
    generated = {"sciscidata_command", "sciscirl_command", "sciscidata", "sciscirl", "architecture"}
    generated |= {f"{package}/{name}" for package in ("sciscidata", "sciscirl") for name in public_names(package)}
    generated -= {"sciscidata/indicators", "sciscidata/plots"}  # folders: each of their names has a page
    generated |= {
        f"sciscidata/{folder}.{name}" for folder in ("indicators", "plots") for name in getattr(ssd, folder).__all__
    }
    generated |= {f"commands/{program}_{re.sub('[ -]', '_', name)}" for program, name in list_commands()}
    generated |= {"commands/sciscidata_sources"}
    notebooks = {f"notebooks/{path.stem}" for path in REPOSITORY.glob("notebooks/*.ipynb")}
    folder = REPOSITORY / "benchmarks"
    pages = HANDWRITTEN | {
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


def list_commands() -> list[tuple[str, str]]:
    """List the commands of both programs."""
    programs = {program: importlib.import_module(f"{program}.cli.commands").PROGRAM for program in PROGRAMS}
    return [(program, name) for program, found in programs.items() for name in found.commands]


def read_text(page: Path) -> str:
    """Return the text of a page without its menu, tags and signs of permanent links."""
    body = re.search(r"<article.*?</article>", page.read_text("utf-8"), re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", "", body[0] if body else "")).replace("¶", "")


def test_a_page_has_the_title_of_its_first_heading_and_its_own_description(site):
    titles, descriptions = {}, {}
    for path in [path for path in site.rglob("*.html") if path.name != "404.html"]:
        text = path.read_text("utf-8")
        title, heading = re.search(r"<title>(.*?)</title>", text), re.search(r"<h1.*?>(.*?)<a", text, re.DOTALL)
        described = re.search(r'<meta name="description" content="([^"]+)">', text)
        assert title, path
        assert heading, path
        assert described, path
        place = path.relative_to(site).as_posix()
        titles[place], descriptions[place] = html.unescape(title[1]), html.unescape(described[1])
        words = " ".join(html.unescape(re.sub(r"<[^>]+>", "", heading[1])).split())
        assert words in titles[place] or place == "index.html", (words, titles[place])
    assert "disruption" in titles["index.html"]
    assert titles["measures/label_confidence.html"].endswith(" - sciscidata")
    assert titles["reference/commands/sciscidata_build.html"] == "sciscidata build"
    assert descriptions["reference/commands/sciscidata_build.html"].startswith("Read works")
    for texts in (titles, descriptions):
        twice = [place for place, text in texts.items() if Counter(texts.values())[text] > 1]
        assert not [place for place in twice if place.removesuffix(".html") in HANDWRITTEN], texts


def test_a_page_ends_with_a_way_on_and_never_speaks_of_the_built_site():
    for page in sorted(HANDWRITTEN):
        text = (REPOSITORY / "docs" / f"{page}.md").read_text("utf-8")
        last = text.rstrip().rpartition("\n\n")[2]
        assert re.match(r"\*\*Next:\*\* .*\]\(", last, re.DOTALL), page
        assert not re.search(r"built\s+site", text), page
    assert not re.search(r"built\s+site", (REPOSITORY / "README.md").read_text("utf-8"))


def test_a_command_has_a_page_with_all_its_options_or_links_to_those_of_its_source(site):
    folder = site / "reference" / "commands"
    sources = (folder / "sciscidata_sources.html").read_text("utf-8")
    for program, name in list_commands():
        command = importlib.import_module(f"{program}.cli.commands").PROGRAM.commands[name]
        page = (folder / f"{program}_{re.sub('[ -]', '_', name)}.html").read_text("utf-8")
        for option in list_options(command):
            row = f"<td><code>{option.flag}</code>"
            is_of_source = row in sources and f"[{option.section}]</code>" in page
            assert (row in page) or is_of_source, (name, option.flag)
        assert not re.search(r"<td[^>]*>(True or False|this command only)<", page), name
        overview = read_text(site / "reference" / f"{program}_command.html")
        assert re.sub(r"`", "", summarise(command)) in overview, name
        heads = re.findall(r'<h[23] id="([^"]+)"', page)
        assert len(heads) == len({*heads}), name
        assert not re.findall(r"<h[23][^>]*>[a-z]", page), name


def read_entries(site: Path) -> list[dict[str, str]]:
    """Read what the search knows."""
    return json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]


def test_search_finds_an_option_of_several_commands_once(site):
    entries = read_entries(site)
    for program, option in (("sciscidata", "--disruptive-min"), ("sciscirl", "--trust-remote-code")):
        pages = (site / "reference" / "commands").glob(f"{program}_*.html")
        assert sum(f"<td><code>{option}</code>" in page.read_text("utf-8") for page in pages) > 1
        start = f"reference/commands/{program}_"
        texts = [entry["text"] for entry in entries if entry["location"].startswith(start)]
        assert "".join(texts).count(f"<code>{option}</code>") == 1, option
        tag = "flag_" + option[2:].replace("-", "_")
        tagged = {entry["location"].partition("#")[0] for entry in entries if tag in entry.get("tags", [])}
        assert len([page for page in tagged if page.startswith(start)]) == 1, tagged


def test_search_reads_formulas_as_they_are_typed_and_options_without_their_values(site):
    texts = {entry["location"]: entry["text"] for entry in read_entries(site)}
    disruption = "".join(text for place, text in texts.items() if place.startswith("measures/disruption.html"))
    assert "cd_index = (n_i - n_j) / (n_i + n_j + n_k)" in disruption
    assert "−" not in disruption  # the minus of MathML
    options = texts["reference/commands/sciscidata_build.html#cd-index"]
    assert "what it does" not in options
    assert re.search(r"<code>--\S+</code> \w", options)
    assert "yes or no" not in options


def test_search_knows_the_settings_of_a_configuration_and_prefers_the_pages_of_measures(site):
    entries = {entry["location"]: entry for entry in read_entries(site)}
    config, build = entries["reference/sciscidata/CDConfig.html"], entries["reference/commands/sciscidata_build.html"]
    assert "window_years" in config["tags"]
    assert entries["measures/disruption.html"]["boost"] > 1 > build["boost"] > config["boost"]


@pytest.mark.skipif(shutil.which("node") is None, reason="asks the theme's own search, which is JavaScript")
def test_the_search_of_the_theme_finds_the_page_of_a_setting_a_measure_and_an_option_first(site):
    wanted = {
        "window_years": "reference/sciscidata/CDConfig.html",
        "CDConfig": "reference/sciscidata/CDConfig.html",
        "n_train": "reference/sciscidata/SplitConfig.html",
        "disruption index": "measures/disruption.html",
        "label confidence": "measures/label_confidence.html",
        "compute_cd_index": "reference/sciscidata/compute_cd_index.html",
        "--disruptive-min": "reference/commands/sciscidata_build.html#thresholds-of-labels",
    }
    script = REPOSITORY / "tests" / "docs" / "ask_search.js"
    done = subprocess.run(
        ["node", str(script), str(site), *wanted], capture_output=True, text=True, check=True, timeout=120
    )
    assert dict(zip(wanted, json.loads(done.stdout), strict=True)) == wanted


def test_evidence_on_a_page_leads_to_its_measurements(site):
    for path in site.rglob("*.html"):
        text = re.sub(r"<pre\b.*?</pre>", "", path.read_text("utf-8"), flags=re.DOTALL)
        named = re.findall(r'(<a href="[^"]*measurements/[^"]*">)?<code>(?:python )?benchmarks/', text)
        assert path.parent.name in ("measurements", "notes") or all(named), path.name
    page = (site / "measurements" / "index.html").read_text("utf-8")
    assert "<table>" in page


def test_a_page_of_the_reference_leads_to_the_pages_that_use_its_name(site):
    for name, page in {
        "compute_cd_index": "measures/disruption",
        "compute_atypicality": "measures/atypicality",
        "compute_label_confidence": "measures/label_confidence",
        "indicators.compute_later_label": "measures/label_ageing",
        "indicators.compute_null_cd_index": "measures/null_models",
        "compute_commonness": "measures/commonness",
        "compute_wang_novelty": "measures/wang",
    }.items():
        text = (site / "reference" / "sciscidata" / f"{name}.html").read_text("utf-8")
        see = re.search(r"<strong>See also:</strong>.*", text)
        assert see, name
        assert f'href="../../{page}.html' in see[0], (name, see[0])


def test_commands_can_be_copied_and_outputs_not(site):
    page = (site / "quickstart.html").read_text("utf-8")
    kinds = re.findall(r'<div class="(language-\w+) highlight( no-copy)?">', page)
    assert {kind for kind, _ in kinds} >= {"language-text", "language-bash", "language-python"}
    assert all(bool(without) == (kind == "language-text") for kind, without in kinds)


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
