"""What a stranger writes into a manifest, with its hash made right again, ends in a named error, and is no markup."""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from sciscidata import BuildConfig, OwnLabel, SplitConfig, SyntheticConfig, build
from sciscidata.cli.summary import print_path
from sciscidata.errors import VerificationError
from sciscidata.hubs.publish import publish
from sciscidata.release.documents import render_documents
from sciscidata.release.read import hash_manifest, read_manifest

#: What an entry may not be, in turn; a missing one is the last.
MISSING = object()
WRONG = (None, -1, 7, 0.5, 10**30, 10**400, "x", "", "\x1b[2J", [], [1], ["x"], {}, {"x": 1}, {"x": {}}, True, MISSING)
N_TRIED = 60


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("entries")
    label = OwnLabel(
        name="impact_label",
        classes=("top", "rest"),
        sql="CASE WHEN cited_by_count > 3 THEN 'top' ELSE 'rest' END",
        meanings={"top": "many citers"},
        question="Is it cited?",
    )
    split, source = SplitConfig(n_train=30, n_test=6), SyntheticConfig(n_works=2_000)
    return build(BuildConfig(source=source, out=home / "slice", split=split, label=label, cache_dir=home)).folder


def reseal(folder: Path, manifest: dict[str, Any]) -> None:
    manifest["manifest_sha256"] = hash_manifest(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def places_of(entry: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Name every entry; of lists, and of what has many of a kind, only the first."""
    yield place
    names = sorted(entry) if isinstance(entry, dict) else range(len(entry)) if isinstance(entry, list) else ()
    many = isinstance(entry, list) or place[-1:] in (("venue_concentration",), ("removed",), ("class_counts",))
    few = 1 if many or place == ("files",) else None
    for name in [*names][:few]:
        yield from places_of(entry[name], (*place, name))


def changed(manifest: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    whole = inner = copy.deepcopy(manifest)
    for name in place[:-1]:
        inner = inner[name]
    if value is MISSING:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return whole


def test_no_wrong_entry_of_a_manifest_makes_a_command_end_in_a_traceback(original: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "slice"))
    manifest, draw, n_refused = read_manifest(original), random.Random(32), 0
    places = [place for place in places_of(manifest) if place and place != ("manifest_sha256",)]
    for place in draw.sample(places, N_TRIED):
        reseal(folder, changed(manifest, place, draw.choice(WRONG)))
        with suppress(VerificationError):
            print_path(folder)
        try:
            publish(folder, to=str(tmp_path / "copy"), dry_run=True)  # verifies it, and makes its documents
        except VerificationError:
            n_refused += 1
    assert n_refused > N_TRIED / 3


MARKUP = (
    "# Heading\n\n## Another\n\n<script>alert(1)</script> <img src=x onerror=y> [click](javascript:alert(1)) "
    "![picture](http://127.0.0.1/x.png) <javascript:x> `code` ```\n~~~ **bold** _soft_ &lt;b&gt; a | b\n---\n- item\n"
    "1. item\n> quote\n\n[ref]: javascript:x\n[ref] https://example.org www.example.org a@example.org"
)


@pytest.mark.parametrize("text", [MARKUP, *MARKUP.split(" ")], ids=repr)
@pytest.mark.parametrize("kind", ["synthetic", "labelled", "mine"])
def test_no_text_of_a_manifest_becomes_markup_of_the_card(original: Path, text: str, kind: str) -> None:
    def write_card(words: str) -> str:
        manifest = copy.deepcopy(read_manifest(original))
        manifest["eligibility"]["languages"] = [words]
        manifest["label"] |= {"question": words, "meanings": {"top": words, "rest": words}}
        manifest["atypicality"]["config"]["null"] = words
        manifest["diagnostics"][0] |= {"level": "warning", "text": words}
        manifest["cd"] |= {"uncited": words, words: words}
        manifest["source"] |= {"kind": kind, "labels": words, "name": words, "scores": f"as published {words}"}
        header, _, card = render_documents(manifest)["README.md"].decode().partition("\n---\n")
        assert yaml.safe_load(header)["language"] == [words]
        return card

    def kinds_of(card: str) -> list[str]:
        tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(card)
        inner = [one for token in tokens for one in (token, *(token.children or ())) if one.type != "text_special"]
        return [f"{one.type} {one.attrs.get('href', '')}" for one in inner]

    assert kinds_of(write_card(text)) == kinds_of(write_card("words"))
    assert not re.search(r"https?://|(?<!\w)www\.\w|\w@\w", write_card(text).replace("https://doi.org", ""))
