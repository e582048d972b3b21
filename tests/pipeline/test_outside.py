"""Hostile JSON and hostile links: no command writes or removes a file outside its output, its cache and TMPDIR.

A folder from somebody else names files of the user, or leads to them by a link. Whatever a command says about it, the
files stay what they were, with their times, and it says one line or gives the right result.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from sciscidata.release.read import hash_manifest
from tests.commands import LIMIT_S, Commands
from tests.pipeline import test_damage as damage
from tests.pipeline.test_damage import Reader

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")]

PART, STEM = "part-2026-06-01-0000.parquet", "part-2026-06-01-0000"


# What is to stay as it is


def make_victim(home: Path) -> Path:
    """Write files of a user, some with names that this package gives to its own."""
    names = (
        *("thesis.tex", PART, f"{STEM}.json", "part-000000.parquet", "lock", ".lock", "refs.bin"),
        *("00000-2014.parquet", "new/chapter.tex", "old/chapter.tex", "old/lock", "works/part-000000.parquet"),
        *(f"works/{PART}", "texts/part-000000.parquet", "edges/pairs", "SHA256SUMS"),
    )
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"years of work in {name}\n")
    (home / "empty").mkdir()
    with sqlite3.connect(home / "notes.sqlite") as database:
        database.execute("CREATE TABLE notes (text TEXT)")
    database.close()
    for path in [home, *home.rglob("*")]:
        os.utime(path, ns=(10**18, 10**18))
    return home


def state_of(home: Path) -> dict[str, Any]:
    """Say of everything in a folder what it is, what it holds, and when it was written."""
    found: dict[str, Any] = {}
    for path in [home, *sorted(home.rglob("*"))]:
        facts = path.lstat()
        what = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[path.relative_to(home).as_posix()] = (facts.st_mode, facts.st_mtime_ns, what)
    return found


# What is attacked


@dataclass
class Site:
    """A folder to attack, the victim beside it, and what the commands give while nothing is wrong."""

    commands: Commands
    base: Path  # corpora with what is made of them; never touched
    room: Path  # where each attack gets a copy
    intact: dict[str, Any] | None = None  # the state of the victim, while nothing has changed it

    @property
    def home(self) -> Path:
        return self.room / "home"

    @property
    def victim(self) -> Path:
        return self.room / "victim"

    def fresh(self, kind: str) -> None:
        for path in (self.home,) if self.intact else (self.home, self.victim):
            if path.is_symlink():
                path.unlink()
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.base / kind, self.home, symlinks=True)
        if not self.intact:
            self.intact = state_of(make_victim(self.victim))

    def lend(self, name: str) -> Path:
        """Copy a result of the corpus beside it."""
        source, target = self.base / "made" / name, self.home / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
        return target

    def graph(self) -> Path:
        return next((self.home / "corpus/cache").glob("graph-*"))

    def attempt(self, kind: str, attack: Callable[[Site], object], reader: Reader) -> str:
        """Attack, run one command, and say what is wrong with how it ended; nothing: an empty text."""
        self.fresh(kind)
        intact, self.intact = self.intact, None
        attack(self)
        before = state_of(self.victim)
        outcome, found = damage.Workplace(self.commands, None, self.home, self.home, self.home).read(reader)  # type: ignore[arg-type]
        after = state_of(self.victim)
        self.intact = after if intact == before == after else None
        wrong: list[str] = []
        if after != before:
            changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            verbs = [
                "removed" if name not in after else "made" if name not in before else "changed" for name in changed
            ]
            wrong += [f"{verb} victim/{name}" for verb, name in zip(verbs, changed, strict=True)]
        if outcome.verdict not in ("done", "named error"):
            wrong.append(f"{outcome.verdict}: {' // '.join(outcome.err.strip().splitlines()[-3:])}")
        shown = [how for how, _ in reader.shows if how != "printed"]
        if shown and found is not None and found != self.expected(kind, reader):
            wrong.append("another result than that of the corpus, with exit 0")
        return "; ".join(wrong)

    def expected(self, kind: str, reader: Reader) -> Any:
        key = (kind, reader)
        if key not in _expected:
            self.fresh(kind)
            _, _expected[key] = damage.Workplace(self.commands, None, self.home, self.home, self.home).read(reader)  # type: ignore[arg-type]
        return _expected[key]


_expected: dict[Any, Any] = {}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    return damage.make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def site(inputs, tmp_path_factory) -> Iterator[Site]:
    room = Path(os.path.realpath(tmp_path_factory.mktemp("outside")))
    yield from make_site(inputs, room)


def make_site(inputs: Path, room: Path) -> Iterator[Site]:
    for name in ("base", "tmp", "settings"):
        (room / name).mkdir()
    with Commands(TMPDIR=str(room / "tmp"), MPLCONFIGDIR=str(room / "settings")) as commands:
        site, home = Site(commands, room / "base", room), room / "home"
        for kind, ingest in (("snapshot", damage._ingest(inputs)), ("world", damage._world())):
            home.mkdir()
            for arguments in (ingest, damage._GRAPH, damage._CD, damage._NOVELTY):
                damage._must(commands.run(*damage._placed(arguments, home)))
            if kind == "world":
                for arguments in (damage._BACKGROUND, damage._EXPORT, damage._BUILD):
                    damage._must(commands.run(*damage._placed(arguments, home)))
            (room / "base" / "made").mkdir(exist_ok=True)
            for path in sorted(home.iterdir()):
                if path.name != "corpus":
                    target = room / "base" / "made" / path.name
                    target.unlink() if target.is_file() else None
                    path.rename(target)
            home.rename(room / "base" / kind)
        commands.limit_s = LIMIT_S
        yield site


def readers(inputs: Path, kind: str) -> dict[str, Reader]:
    """List every command, as it runs on a corpus of one kind."""
    own, other = damage._ingest(inputs), damage._world()
    if kind == "world":
        own, other = other, own
    looks = {f"{verb} {name}": Reader((verb, "{W}/" + name), ()) for verb in ("describe", "verify") for name in PLACES}
    return looks | {
        "ingest": Reader(own, ()),
        "ingest over": Reader((*other, "--overwrite"), ()),
        "graph": damage._graph,
        "cd": damage._cd._replace(makes=()),
        "novelty": damage._novelty._replace(makes=()),
        "export": damage._export._replace(makes=()),
        "background": damage._background._replace(makes=()),
        "build": damage._build._replace(makes=()),
        "build over": Reader((*damage._BUILD, "--overwrite"), ()),
        "cd over": Reader((*damage._CD, "--overwrite"), ()),
        "against": Reader((*damage._NOVELTY, "--background", "{W}/pairs.parquet"), ()),
        "snapshot": Reader(("ingest", "--snapshot", "{W}/snapshot", "--n-workers", 1, "--out", "{W}/corpus"), ()),
        "records": Reader(
            ("export", "--input", "{W}/records.jsonl.gz", "--cache-dir", "{W}/cache", "--out", "{W}/labelled"), ()
        ),
        "offline": Reader(
            ("build", "--source", "openalex", "--offline", "--cache-dir", "{W}/cache", "--out", "{W}/slice"), ()
        ),
    }


PLACES = ("corpus", "corpus/cache/graph-*", "cd.parquet", "pairs.parquet", "slice", "labelled")


def check(site: Site, inputs: Path, kind: str, attack: Callable[[Site], object], *names: str) -> None:
    """Run commands on what an attack has made, each on a new copy; none may do harm."""
    known = readers(inputs, kind)
    told = {name: site.attempt(kind, attack, known[name]) for name in names}
    wrong = [f"{name}: {what}" for name, what in told.items() if what]
    assert not wrong, "\n".join(wrong)


# Names that leave the folder


def hostile_names(victim: Path) -> dict[str, str]:
    return {
        "above": "../../victim/thesis.tex",
        "above, with a name of ours": "works/../../../victim/part-000000.parquet",
        "absolute": str(victim / "thesis.tex"),
        "through a link": "linked/thesis.tex",
        "through a link, with a name of ours": "linked/part-000000.parquet",
        "a folder": "../../victim",
        "empty": "",
        "dots": "..",
        "null byte": "works/part\0.parquet",
        "long": "works/" + "a" * 5_000,
        "control characters": "works/\x1b[2Jpart\n.parquet",
        "half a surrogate": "works/\ud800.parquet",
    }


NAMES = [*hostile_names(Path())]


def _edit(path: Path, change: Callable[[Any], object]) -> None:
    facts = json.loads(path.read_bytes())
    change(facts)
    path.write_text(json.dumps(facts))


def _link_inside(site: Site) -> None:
    (site.home / "corpus" / "linked").symlink_to(site.victim)


def _facts_of(path: Path) -> dict[str, Any]:
    whole = path.is_file()
    return {"bytes": path.stat().st_size if whole else 9, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()
            if whole else "0" * 64}  # fmt: skip


def _own_part(kind: str) -> str:
    return "works/part-000000.parquet" if kind == "world" else f"works/{PART}"


_WITH_FILES = ("above", "above, with a name of ours", "absolute", "through a link")
#: The report of a corpus is tried with all names, other documents with these: the rule for names is one.
_FEW_NAMES = ("above", "absolute", "through a link, with a name of ours", "dots", "null byte")


@pytest.mark.parametrize(
    ("kind", "name", "truth"),
    [
        *(("world", name, "with another hash") for name in NAMES),
        *(("world", name, truth) for name in _WITH_FILES for truth in ("with its own hash", "beside our files")),
        *(("snapshot", name, "with its own hash") for name in _WITH_FILES),
    ],
)
def test_the_report_of_a_corpus_names_a_file_elsewhere(site, inputs, kind, truth, name):
    def attack(site: Site) -> None:
        _link_inside(site)
        given = hostile_names(site.victim)[name]

        def change(report: dict[str, Any]) -> None:
            files = report["parts"][0]["files"]
            facts = files[_own_part(kind)]
            if truth != "with another hash" and "\0" not in given:
                try:
                    facts = _facts_of(site.home / "corpus" / given)
                except (OSError, ValueError):
                    facts = {"bytes": 9, "sha256": "0" * 64}
            if truth != "beside our files":
                del files[_own_part(kind)]
            files[given] = facts

        _edit(site.home / "corpus/corpus.json", change)

    commands = ["ingest", "cd", "describe corpus"]
    if name == "above":
        commands += ["ingest over", "graph", "novelty", "export", "background", "verify corpus"]
    check(site, inputs, kind, attack, *commands)


@pytest.mark.parametrize("name", _FEW_NAMES)
def test_the_removed_rows_are_said_to_be_of_a_part_elsewhere(site, inputs, name):
    def attack(site: Site) -> None:
        _link_inside(site)
        path = site.home / "corpus/removed.parquet"
        given = hostile_names(site.victim)[name].encode("utf-8", "replace").decode()
        rows = pl.read_parquet(path)
        rows.with_columns(part=pl.lit(given.removesuffix(".parquet"))).write_parquet(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        _edit(site.home / "corpus/corpus.json", lambda report: report.update(removed_sha256=digest))

    # Rows that are removed from no part of ours are another corpus, which says so itself: only harm counts.
    known = readers(inputs, "snapshot")
    for command in ("cd", "export"):
        assert not site.attempt("snapshot", attack, known[command]._replace(shows=())), command
    check(site, inputs, "snapshot", attack, "ingest", "ingest over")


@pytest.mark.parametrize("name", _FEW_NAMES)
def test_a_receipt_names_a_table_elsewhere(site, inputs, name):
    def attack(site: Site) -> None:
        _link_inside(site)

        def change(receipt: dict[str, Any]) -> None:
            given = hostile_names(site.victim)[name]
            receipt["tables"][given.removesuffix(".parquet")] = receipt["tables"].pop("works")
            receipt["part"] = given

        _edit(site.home / f"corpus/receipts/{STEM}.json", change)
        (site.home / "corpus/corpus.json").unlink()

    check(site, inputs, "snapshot", attack, "ingest", "ingest over")


@pytest.mark.parametrize("name", _FEW_NAMES)
def test_the_manifest_of_a_snapshot_names_a_part_elsewhere(site, inputs, name):
    def attack(site: Site) -> None:
        source = site.home / "snapshot"
        shutil.copytree(inputs / "snapshot-0", source)
        manifest = next(source.rglob("manifest.json"))
        given = hostile_names(site.victim)[name]

        def change(facts: dict[str, Any]) -> None:
            facts["files"][0]["url"] = given
            facts["files"][1]["url"] = f"../updated_date=2026-06-02/../../{given}"

        _edit(manifest, change)

    check(site, inputs, "snapshot", attack, "snapshot")


@pytest.mark.parametrize("name", _FEW_NAMES)
def test_the_manifest_of_a_release_names_a_file_elsewhere(site, inputs, name):
    def attack(site: Site) -> None:
        folder = site.lend("slice")
        (folder / "linked").symlink_to(site.victim)
        manifest = folder / "manifest.json"
        facts = json.loads(manifest.read_bytes())
        given = hostile_names(site.victim)[name].replace("../../", "../")
        facts["files"][given] = facts["files"].pop("test.parquet")
        if name != "half a surrogate":
            facts["manifest_sha256"] = hash_manifest(facts)
        manifest.write_text(json.dumps(facts))

    check(site, inputs, "world", attack, "describe slice", "verify slice", "build", "build over")


@pytest.mark.parametrize("name", _FEW_NAMES)
def test_the_sums_of_a_cache_name_a_file_elsewhere(site, inputs, name):
    def attack(site: Site) -> None:
        sums = site.graph() / "SHA256SUMS"
        (site.graph() / "linked").symlink_to(site.victim)
        given = hostile_names(site.victim)[name].encode("utf-8", "replace").decode()
        sums.write_text(sums.read_text().replace("refs.bin", given))

    check(site, inputs, "world", attack, "cd", "describe corpus/cache/graph-*", "verify corpus/cache/graph-*")


# JSON of another shape


#: One for each way in which reading can fail.
SHAPES: dict[str, bytes] = {
    "nothing": b"", "a list of numbers": b"[5, 6]", "object": b"{}", "deep": b"[" * 60_000,
    "not UTF-8": b'{"a": "\xff"}',
    "huge number": b'{"format_version": 1e999, "parts": 1' + b"0" * 5_000 + b"}",
}  # fmt: skip
_PART_SHAPES: dict[str, Any] = {
    "parts: of numbers": [5], "parts: files a list": [{"files": ["works/part-000000.parquet"]}],
    "parts: wrong facts": [{"files": {"works/part-000000.parquet": {"bytes": "9", "sha256": 5}}}],
    "parts: unknown table": [{"files": {"music/part-000000.parquet": {"bytes": 9, "sha256": "0" * 64}}}],
}  # fmt: skip


def _sum_up(folder: Path) -> None:
    """Write the sums of a cached folder as they are now: whoever changes a file can do that."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (folder / "SHA256SUMS").write_text("".join(sums))


@pytest.mark.parametrize("shape", [*SHAPES, *_PART_SHAPES])
def test_a_report_of_another_shape(site, inputs, shape):
    def attack(site: Site) -> None:
        path = site.home / "corpus/corpus.json"
        if shape in SHAPES:
            path.write_bytes(SHAPES[shape])
        else:
            _edit(path, lambda report: report.update(parts=_PART_SHAPES[shape]))

    check(site, inputs, "world", attack, "ingest", "ingest over", "cd", "export", "describe corpus", "verify corpus")


_JSON: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "made_of.json": ("world", "corpus/made_of.json", ("ingest", "ingest over", "describe corpus")),
    "receipt": ("snapshot", f"corpus/receipts/{STEM}.json", ("ingest", "ingest over", "describe corpus")),
    "graph.json": ("world", "corpus/cache/graph-*/graph.json", ("cd", "describe corpus/cache/graph-*",
                                                                "verify corpus/cache/graph-*")),
    "sums": ("world", "corpus/cache/graph-*/SHA256SUMS", ("cd", "describe corpus/cache/graph-*")),
    "manifest of a release": ("world", "slice/manifest.json", ("describe slice", "verify slice", "build")),
    "report of an export": ("world", "labelled/labelled.json", ("describe labelled", "verify labelled", "export")),
    "manifest of a snapshot": ("snapshot", "snapshot/data/jsonl/works/manifest.json", ("snapshot",)),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("which", _JSON)
def test_any_other_json_of_another_shape(site, inputs, which, shape):
    kind, name, commands = _JSON[which]

    def attack(site: Site) -> None:
        if name.startswith(("slice", "labelled")):
            site.lend(name.partition("/")[0])
        if name.startswith("snapshot/"):
            shutil.copytree(inputs / "snapshot-0", site.home / "snapshot")
        path = next(site.home.glob(name), site.home / name)
        path.write_bytes(SHAPES[shape])
        if which == "graph.json":
            _sum_up(path.parent)

    check(site, inputs, kind, attack, *commands)


@pytest.mark.parametrize("n_known", [-1, 10**6, 10**30, "5", None])
def test_a_graph_that_claims_other_numbers(site, inputs, n_known):
    def attack(site: Site) -> None:
        _edit(site.graph() / "graph.json", lambda facts: facts.update(n_known=n_known))
        _sum_up(site.graph())

    check(site, inputs, "world", attack, "describe corpus/cache/graph-*", "verify corpus/cache/graph-*")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("which", ["cd.parquet", "pairs.parquet"])
def test_facts_in_a_parquet_file_of_another_shape(site, inputs, which, shape):
    def attack(site: Site) -> None:
        path = site.lend(which)
        table = pq.read_table(path)
        metadata = dict.fromkeys(table.schema.metadata or pq.read_metadata(path).metadata, SHAPES[shape])
        own = {key for key in pq.read_metadata(path).metadata if key.startswith(b"sciscidata")}
        pq.write_table(table.replace_schema_metadata(metadata | dict.fromkeys(own, SHAPES[shape])), path)

    commands = ["cd"] if which == "cd.parquet" else ["against"]
    check(site, inputs, "world", attack, *commands, f"describe {which}", f"verify {which}")


# Links


def _link(name: str, target: str, *, first: str = "") -> Callable[[Site], None]:
    """Put a link in place of a file or folder of ours, to something of the victim's."""

    def attack(site: Site) -> None:
        if first:
            site.lend(first)
        path = next(site.home.glob(name), site.home / name) if "*" in name else site.home / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(site.victim / target)

    return attack


def _without_report(attack: Callable[[Site], None]) -> Callable[[Site], None]:
    def also(site: Site) -> None:
        (site.home / "corpus/corpus.json").unlink()
        attack(site)

    return also


_TMP = ".{}.tmp-0123456789abcdef"
_ALL = ("ingest", "ingest over", "cd", "export", "describe corpus", "verify corpus")
LINKS: dict[str, tuple[str, Callable[[Site], None], tuple[str, ...]]] = {
    **{f"{kind}: {name} is a link to {target}": (kind, _link(f"corpus/{name}", target), _ALL)
       for kind, name, target in (
           ("world", "works", "works"), ("world", "texts", "."), ("world", "citations", "empty"),
           ("world", "corpus.json", "thesis.tex"), ("world", "made_of.json", "thesis.tex"),
           ("world", ".lock", "thesis.tex"), ("snapshot", "works", "."), ("snapshot", "receipts", "."),
           ("snapshot", "removed.parquet", "thesis.tex"))},
    **{f"{kind}: {name} is a link to {target}, unfinished": (
        kind, _without_report(_link(f"corpus/{name}", target)), _ALL[:2])
       for kind, name, target in (
           ("world", "works", "."), ("world", ".lock", "thesis.tex"), ("world", ".corpus.json.tmp", "thesis.tex"),
           ("snapshot", "works", "."), ("snapshot", ".removed.parquet.tmp", "thesis.tex"),
           ("snapshot", ".made_of.json.tmp", "thesis.tex"), ("snapshot", ".unfinished", "."),
           ("snapshot", ".unfinished", "empty"))},
    "a part is a link": ("world", _link("corpus/works/part-000000.parquet", "thesis.tex"), _ALL),
    "a part is a link, unfinished": (
        "world", _without_report(_link("corpus/works/part-000000.parquet", "thesis.tex")), _ALL[:2]),
    "a part on its way is a link": (
        "world", _without_report(lambda site: (_link("corpus/works/part-000000.parquet", "none")(site),
                                               (site.home / "corpus/works/part-000000.parquet").unlink(),
                                               _link("corpus/works/.part-000000.parquet.tmp", "thesis.tex")(site))[0]),
        _ALL[:2]),
    **{f"the graph is a link to {target}": ("world", _link("corpus/cache/graph-*", target), ("cd", "graph", "export"))
       for target in (".", "works", "empty", "thesis.tex", "none")},
    "the note is a link": ("world", _link("corpus/cache/corpus-*.json", "thesis.tex"), ("cd", "graph")),
    "the report of the graph is a link": (
        "world", _link("corpus/cache/graph-*/graph.json", "thesis.tex"),
        ("cd", "graph", "describe corpus/cache/graph-*", "verify corpus/cache/graph-*")),
    "an array is a link": (
        "world", _link("corpus/cache/graph-*/refs.bin", "refs.bin"),
        ("cd", "describe corpus/cache/graph-*", "verify corpus/cache/graph-*")),
    **{f"the years of scores are a link to {target}": ("world", _link("corpus/cache/cd-*", target), ("cd",))
       for target in (".", "empty", "none")},
    "the answers are a link": ("world", _link("cache/openalex/responses.sqlite", "notes.sqlite"), ("offline",)),
    "the folder of the answers is a link": ("world", _link("cache/openalex", "empty"), ("offline",)),
    **{f"a file of the release is a link: {name}": (
        "world", _link(f"slice/{name}", "thesis.tex", first="slice"),
        ("describe slice", "verify slice", "build", "build over"))
       for name in ("manifest.json", "train.parquet", "train.jsonl", "notes.txt")},
    "a file of the export is a link": (
        "world", _link("labelled/labelled.json", "thesis.tex", first="labelled"), ("describe labelled", "export")),
    **{f"left over from {out}: a link to {target}": ("world", _link(_TMP.format(out), target), commands)
       for out, commands in (("cd.parquet", ("cd", "cd over")), ("slice", ("build", "build over")),
                             ("labelled", ("export",)), ("pairs.parquet", ("background",)))
       for target in (".", "old", "empty")},
}  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
def test_a_link_leads_to_files_of_the_user(site, inputs, name):
    kind, attack, commands = LINKS[name]
    check(site, inputs, kind, attack, *commands)


def _leftover(out: str, entry: str, target: str, *, first: str = "") -> Callable[[Site], None]:
    """Plant what a killed run would leave: a hidden folder, in which something is put aside."""

    def attack(site: Site) -> None:
        if first:
            site.lend(first)
        workspace = site.home / _TMP.format(out)
        workspace.mkdir()
        if entry != "lock":
            (workspace / "lock").touch()
        (workspace / entry).symlink_to(site.victim / target)

    return attack


@pytest.mark.parametrize(
    ("entry", "target"),
    [*(("old", target) for target in ("thesis.tex", ".", "old")), ("new", "."), ("lock", "thesis.tex")],
)
@pytest.mark.parametrize("out", ["cd.parquet", "slice", "labelled", "pairs.parquet"])
def test_a_planted_leftover_leads_to_files_of_the_user(site, inputs, out, entry, target):
    commands = {"cd.parquet": ("cd", "cd over"), "slice": ("build",), "labelled": ("export",),
                "pairs.parquet": ("background",)}[out]  # fmt: skip
    check(site, inputs, "world", _leftover(out, entry, target), *commands)


def test_another_release_that_a_planted_leftover_names_is_not_replaced(site, inputs):
    def attack(site: Site) -> None:
        shutil.copytree(site.base / "made/slice", site.victim / "slice")
        _leftover("slice", "old", "slice")(site)

    check(site, inputs, "world", attack, "build", "build over")


@pytest.mark.parametrize("which", ["graph", "cd", "novelty"])
@pytest.mark.parametrize("entry", ["", "new", "lock", "new/.refs.bin.tmp", "new/.edges.tmp", "new/edges",
                                   "new/graph.json", "new/.00000-2014.parquet.tmp", "new/00000-2014.parquet",
                                   "new/refs.bin"])  # fmt: skip
def test_a_planted_unfinished_folder_leads_to_files_of_the_user(site, inputs, which, entry):
    def attack(site: Site) -> None:
        cache = site.home / "corpus/cache"
        made = next(cache.glob(f"{which}-*"))
        shutil.rmtree(made)
        for note in cache.glob("corpus-*.json"):
            if which == "graph":
                note.unlink()
        workspace = cache / f".{made.name}.unfinished"
        target = {"": ".", "new": "new", "lock": "thesis.tex", "new/edges": "edges"}.get(
            entry, Path(entry).name.removeprefix(".").removesuffix(".tmp"))  # fmt: skip
        if not (site.victim / target).exists():
            target = "thesis.tex"
        path = workspace / entry if entry else workspace
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(site.victim / target)

    check(site, inputs, "world", attack, "novelty" if which == "novelty" else "cd")


def test_the_output_itself_may_be_a_link_and_nothing_beside_what_it_names_is_touched(site, inputs):
    def attack(site: Site) -> None:
        shutil.move(site.home / "corpus", site.home / "elsewhere")
        (site.home / "corpus").symlink_to(site.home / "elsewhere")

    check(site, inputs, "world", attack, "ingest", "ingest over")


# What is no file


def _special(how: str, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if how == "a pipe":
        os.mkfifo(path)
    elif how == "a link to a pipe":
        os.mkfifo(path.with_name(".pipe"))
        path.symlink_to(path.with_name(".pipe"))
    elif how == "a socket":
        here = Path.cwd()
        os.chdir(path.parent)  # the whole path is too long for one
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name)
        finally:
            os.chdir(here)
    elif how == "a folder":
        path.mkdir()
    else:
        path.symlink_to(_endless(path.parent) or "/dev/zero")


def _endless(folder: Path) -> Path | None:
    """Make a device like /dev/zero, where that is allowed: who may do so might also lose the real one."""
    device = folder / ".zero"
    with suppress(OSError):
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        return device
    return None


SPECIAL: dict[str, tuple[str, ...]] = {
    "corpus": ("describe corpus", "verify corpus", "cd", "ingest"),
    "corpus/corpus.json": ("describe corpus", "verify corpus", "cd", "ingest"),
    "corpus/works/part-000000.parquet": ("describe corpus", "verify corpus", "cd", "ingest", "export"),
    "corpus/.lock": ("ingest",),
    "corpus/cache/corpus-*.json": ("cd", "graph"),
    "corpus/cache/graph-*": ("cd", "describe corpus/cache/graph-*", "verify corpus/cache/graph-*"),
    "corpus/cache/graph-*/refs.bin": ("cd", "describe corpus/cache/graph-*", "verify corpus/cache/graph-*"),
    "corpus/cache/graph-*/SHA256SUMS": ("cd", "verify corpus/cache/graph-*"),
    "corpus/cache/cd-*/00000-*.parquet": ("cd",),
    "cd.parquet": ("describe cd.parquet", "verify cd.parquet", "cd", "cd over"),
    "pairs.parquet": ("describe pairs.parquet", "verify pairs.parquet", "against", "background"),
    "slice": ("describe slice", "verify slice", "build"),
    "slice/manifest.json": ("describe slice", "verify slice", "build"),
    "slice/test.jsonl": ("describe slice", "verify slice"),
    "labelled": ("describe labelled", "verify labelled", "export"),
    "labelled/labelled.json": ("describe labelled", "verify labelled"),
}


_SELDOM = ("a link to /dev/zero", "a link to a pipe", "a folder", "a socket")


@pytest.mark.parametrize(
    ("name", "how"),
    [*((name, "a pipe") for name in SPECIAL), *((name, how) for name in list(SPECIAL)[::4] for how in _SELDOM)],
)
def test_what_is_no_file_is_neither_waited_for_nor_read_without_end(site, inputs, name, how):
    def attack(site: Site) -> None:
        first = name.partition("/")[0]
        if (site.base / "made" / first).exists():
            site.lend(first)
        _special(how, next(site.home.glob(name), site.home / name.replace("*", "0")))

    commands = SPECIAL[name]
    if how == "a link to /dev/zero" and os.geteuid() == 0 and _endless(site.room / "tmp") is None:
        commands = tuple(one for one in commands if one.startswith(("describe", "verify")))  # which write nothing
    (site.room / "tmp" / ".zero").unlink(missing_ok=True)
    if how in ("a folder", "a socket"):  # which no reading waits for
        commands = commands[:2]
    known = readers(inputs, "world")
    told = {command: site.attempt("world", attack, known[command]) for command in commands}
    assert not any(told.values()), "\n".join(f"{command}: {what}" for command, what in told.items() if what)


@pytest.mark.parametrize("path", ["/dev/zero", "", ".", "none"])
@pytest.mark.parametrize("verb", ["verify", "describe"])
def test_any_path_can_be_asked_about(site, verb, path):
    outcome = site.commands.run(verb, path)
    assert outcome.verdict == "named error", outcome
