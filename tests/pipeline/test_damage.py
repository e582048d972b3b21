"""Damage to every file that the package writes and reads again: the right result or a named error, never a wrong one.

Each test damages one file, runs what reads it, restores the file and runs the same again. ``SCISCI_DAMAGES=2000`` draws
more of them. A test's id (scenario and number) decides everything about it.
"""

from __future__ import annotations

import atexit
import gzip
import hashlib
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.make_snapshot import export_record, synthetic_records, write_deleted, write_manifest, write_part
from tests.commands import LIMIT_S, Commands, Outcome
from tests.servers.openalex_server import OpenAlexServer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")]

N_DAMAGES = int(os.environ.get("SCISCI_DAMAGES", "80"))
_FROM_YEAR = 2014  # a file per year and measure: few of them, so that many damages take little time


# What the process can be asked besides commands


def rows_of(path: str) -> str:
    """Hash the rows of a Parquet file, or of several in a folder."""
    import polars as pl

    paths = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    return _hash_of(pl.concat([pl.read_parquet(file, glob=False) for file in paths]))


def facts_of(path: str) -> dict[str, Any]:
    """Read what a file of scores says of itself, but for what follows from the report of its corpus as a whole."""
    from sciscidata.corpus.scores import read_score_facts

    return {name: fact for name, fact in read_score_facts(path).items() if name not in ("corpus_sha256", "background")}


def sides_of(folder: str) -> list[str]:
    """Hash both splits of a release, as a notebook reads them."""
    from sciscidata import read_release

    release = read_release(folder)
    return [_hash_of(release.train), _hash_of(release.test)]


def corpus_rows(folder: str) -> list[str]:
    """Hash the tables of a corpus, as a notebook reads them."""
    from sciscidata import scan_corpus

    works, citations, _ = scan_corpus(folder)
    return [_hash_of(works.collect()), _hash_of(citations.collect())]


def background_rows(path: str) -> list[Any]:
    """Hash a background, as a notebook reads it."""
    from sciscidata.novelty.background import read_background

    table = read_background(path)
    return [_hash_of(table.scan().collect()), _hash_of(table.counts), table.null_model]


def pulled(home: str, base_url: str) -> list[Any]:
    """Pull a few works into a store of answers; of a server without a port, from what the store holds already."""
    from sciscidata.disruption.index import CDConfig
    from sciscidata.eligibility import EligibilityConfig
    from sciscidata.label_thresholds import LabelThresholds
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.openalex_api.client import OpenAlexClient
    from sciscidata.openalex_api.config import ApiConfig
    from sciscidata.openalex_api.store import ResponseStore
    from sciscidata.sampling.config import SplitConfig
    from sciscidata.sampling.demand import Demand
    from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
    from sciscidata.sources.openalex.source import pull_openalex

    cd, eligibility = CDConfig(), EligibilityConfig(last_year=2024)
    demand = Demand(LabelThresholds(), eligibility, SplitConfig(n_train=12, n_test=3), cd.window_years)
    api = ApiConfig(base_url=base_url, requests_per_second=1e6, offline=base_url == "http://127.0.0.1")
    with ResponseStore(Path(home)) as store, OpenAlexClient(api, store) as client:
        candidates = Candidates.count(client, OpenAlexConfig(candidates_per_round=60), cd, eligibility)
        works, citations, scores, *_ = pull_openalex(candidates, cd, demand.quotas, NoveltyConfig())
        return [*map(_hash_of, (works, citations, scores)), client.summary().sha256]


def _hash_of(frame: Any) -> str:
    digest = hashlib.sha256(repr(frame.schema).encode())
    digest.update(frame.write_ndjson().encode())
    return f"{frame.height}:{digest.hexdigest()[:32]}"


# What there is to damage


class Reader(NamedTuple):
    """What reads a file, and what shows that it read the right thing.

    ``arguments`` of a command, or of a function above. ``makes`` is removed before; ``shows`` are pairs of
    how and where: the text that was printed, the value that was given, rows, facts, bytes, or all files of a folder.
    ``reads`` says which files it is tried on; ``alone``: a file that is whole in itself, so that another whole one in
    its place is no damage. What is ``slow`` is tried on two damages to every kind of file.
    """

    arguments: tuple[Any, ...]
    shows: tuple[tuple[str, str], ...]
    makes: tuple[str, ...] = ()
    reads: str = ""
    alone: bool = False
    slow: bool = False


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A folder with files to damage, and what reads them. ``make`` fills it, with other content for another seed."""

    make: Callable[[Commands, Path, int], None]
    readers: dict[str, Reader]
    damaged: str  # which files, as a regular expression
    share: int  # of all damages, relative to the other scenarios
    has_other: bool = True  # whether files of another world are put in place of its own


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def make_inputs(home: Path) -> Path:
    """Write snapshots of three parts, and the same records as a file, for two seeds."""
    for seed in (0, 1):
        records = [one for one in _records(700, seed) if (one["publication_year"] or 9999) >= _FROM_YEAR]
        counts: dict[str, int] = {}
        for part in range(3):
            # A part begins with works of the one before: of two copies, the one in the later part counts.
            rows = [export_record(one) for one in records[max(0, part * 90 - 9) : (part + 1) * 90]]
            name = f"updated_date=2026-06-{part + 1:02}/part_0000"
            write_part(home / f"snapshot-{seed}", "jsonl", name, rows)
            counts[name] = len(rows)
        write_deleted(home / f"snapshot-{seed}", "jsonl", [int(one["id"].rpartition("W")[2]) for one in records[5:8]])
        write_manifest(home / f"snapshot-{seed}", "jsonl", counts)
        with gzip.open(home / f"records-{seed}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(one) + "\n" for one in records[:270])
    return home


def _must(outcome: Outcome) -> Outcome:
    assert outcome.verdict == "done", outcome
    return outcome


def _ingest(inputs: Path, seed: int = 0) -> tuple[Any, ...]:
    return ("ingest", "--snapshot", inputs / f"snapshot-{seed}", "--n-workers", 1, "--out", "{W}/corpus")


def _world(seed: int = 0) -> tuple[Any, ...]:
    n_works = ("--n-works", 300 + 20 * seed, "--first-year", _FROM_YEAR)
    return ("ingest", "--source", "synthetic", *n_works, "--out", "{W}/corpus")


_made: dict[tuple[tuple[Any, ...], ...], Path] = {}


def _run(commands: Commands, home: Path, *steps: tuple[Any, ...]) -> None:
    """Run some commands in a new folder; begin with a copy of what the same first commands have made before."""
    known = max((n for n in range(len(steps) + 1) if steps[:n] in _made), default=0)
    shutil.copytree(_made[steps[:known]], home, symlinks=True) if known else home.mkdir()
    for n, arguments in enumerate(steps[known:], start=known + 1):
        _must(commands.run(*_placed(arguments, home)))
        _made[steps[:n]] = _shelf() / str(len(_made))
        shutil.copytree(home, _made[steps[:n]], symlinks=True)


@cache
def _shelf() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_GRAPH = ("graph", "{W}/corpus")
_CD = ("cd", "{W}/corpus", "--family", "--out", "{W}/cd.parquet")
_SHARE = ("cd", "{W}/corpus", "--shard", "2/3", "--out", "{W}/share.parquet")
_NOVELTY = ("novelty", "{W}/corpus", "--out", "{W}/novelty.parquet")
_EXPORT = ("export", "--corpus", "{W}/corpus", "--cache-dir", "{W}/corpus/cache", "--out", "{W}/labelled")
_BACKGROUND = ("background", "--corpus", "{W}/corpus", "--cache-dir", "{W}/corpus/cache", "--out", "{W}/pairs.parquet")
_BUILD = (
    *("build", "--corpus", "{W}/corpus", "--cache-dir", "{W}/corpus/cache", "--out", "{W}/slice"),
    *("--balance", "none", "--n-train", 24, "--n-test", 6),
)
_LINES = ("bytes", "labelled/labelled.jsonl")

_cd = Reader(_CD, (("rows", "cd.parquet"), ("facts", "cd.parquet")), ("cd.parquet",))
_share = Reader(_SHARE, (("rows", "share.parquet"), ("facts", "share.parquet")), ("share.parquet",))
_novelty = Reader(_NOVELTY, (("rows", "novelty.parquet"), ("facts", "novelty.parquet")), ("novelty.parquet",))
_export = Reader(_EXPORT, (_LINES,), ("labelled",))
_background = Reader(_BACKGROUND, (("background", "pairs.parquet"),), ("pairs.parquet",))
_build = Reader(_BUILD, (("bytes", "slice/train.jsonl"), ("bytes", "slice/test.jsonl")), ("slice",))
_graph = Reader(_GRAPH, (("printed", ""),))


def _looks(path: str, reads: str = "", *, alone: bool = False) -> dict[str, Reader]:
    """Describe and verify what lies at a path."""
    return {
        f"{verb} {path}": Reader((verb, "{W}/" + path), (("printed", ""),), reads=reads, alone=alone)
        for verb in ("describe", "verify")
    }


def scenarios(inputs: Path) -> dict[str, Scenario]:
    """List what is damaged. Every command that reads a kind of file is among the readers of one of them."""

    def corpus(*then: tuple[Any, ...], world: bool = False) -> Callable[[Commands, Path, int], None]:
        def make(commands: Commands, home: Path, seed: int) -> None:
            _run(commands, home, _world(seed) if world else _ingest(inputs, seed), *then)

        return make

    def halfway(moment: str, last: tuple[Any, ...], *before: tuple[Any, ...]) -> Callable[[Commands, Path, int], None]:
        """Run some commands; of the last one, keep what is on disk before Python does something."""

        def make(commands: Commands, home: Path, _: int) -> None:
            _run(commands, home, *before)
            half = home.with_name("half")
            _must(commands.run(*_placed(last, home), picture=(moment, home, half)))
            shutil.rmtree(home)
            half.rename(home)

        return make

    def pull(commands: Commands, home: Path, seed: int) -> None:
        with OpenAlexServer(_records(400, seed)) as server:
            _must(commands.call(pulled, home / "openalex", server.base_url))

    def records(commands: Commands, home: Path, seed: int) -> None:
        home.mkdir()
        shutil.copy2(inputs / f"records-{seed}.jsonl.gz", home / "records.jsonl.gz")
        _must(commands.run(*_placed(of_records, home)))
        shutil.rmtree(home / "labelled")

    of_records = ("export", "--input", "{W}/records.jsonl.gz", "--cache-dir", "{W}/cache", "--out", "{W}/labelled")
    sealed = r"os.rename .*/corpus\.json"
    whole_corpus = (("files", "corpus"),)
    with_pairs = ("--background", "{W}/pairs.parquet")
    # What else lies there is read by nothing but ingest, describe and verify.
    structure, all_tables = (rf"corpus/({tables}|corpus.json|removed).*" for tables in ("works|citations", "[wct].*"))
    read_corpus = {
        "cd": _cd._replace(reads=structure), "novelty": _novelty._replace(reads=structure),
        "graph": _graph._replace(reads=structure), "background": _background._replace(reads=structure),
        "export": _export._replace(reads=all_tables), "build": _build._replace(reads=all_tables, slow=True),
        "notebook": Reader((corpus_rows, "{W}/corpus"), (("value", ""),), reads=all_tables), **_looks("corpus"),
    }  # fmt: skip
    corpus_files = r"corpus/(?!cache/).*"
    return {
        "corpus": Scenario(
            make=corpus(),
            readers={**read_corpus, "ingest": Reader(_ingest(inputs), whole_corpus)},
            damaged=corpus_files, share=60,
        ),
        "world": Scenario(
            make=corpus(world=True),
            readers={**read_corpus, "ingest": Reader(_world(), whole_corpus)},
            damaged=corpus_files, share=30,
        ),
        "corpus with its graph": Scenario(
            make=corpus(_GRAPH),
            readers={name: read_corpus[name] for name in ("cd", "novelty", "export", "graph")},
            damaged=corpus_files, share=24,
        ),
        "graph": Scenario(
            make=corpus(_GRAPH),
            readers={"graph": _graph, "cd": _cd, "novelty": _novelty, "share": _share, "export": _export,
                     **_looks("corpus/cache/graph-*")},
            damaged=r"corpus/cache/.*", share=36,
        ),
        "years of scores": Scenario(
            make=corpus(_CD, _NOVELTY),
            readers={"cd": _cd._replace(reads=r".*/cd-.*"), "novelty": _novelty._replace(reads=r".*/novelty-.*")},
            damaged=r"corpus/cache/(cd|novelty)-.*", share=16,
        ),
        "scores": Scenario(
            make=corpus(_CD, _SHARE, _NOVELTY),
            readers={
                "cd": _cd._replace(makes=(), reads="cd.parquet"), **_looks("cd.parquet", "cd.parquet", alone=True),
                "share": _share._replace(makes=(), reads="share.parquet"),
                **_looks("share.parquet", "share.parquet", alone=True),
                "novelty": _novelty._replace(makes=(), reads="novelty.parquet"),
                **_looks("novelty.parquet", "novelty.parquet", alone=True),
            },
            damaged=r"[a-z]+\.parquet", share=36,
        ),
        "background": Scenario(
            make=corpus(_BACKGROUND),
            readers={
                "novelty": _novelty._replace(arguments=(*_NOVELTY, *with_pairs), alone=True),
                "export": _export._replace(arguments=(*_EXPORT, *with_pairs), alone=True),
                "notebook": Reader((background_rows, "{W}/pairs.parquet"), (("value", ""),), alone=True),
                **_looks("pairs.parquet", alone=True),
            },
            damaged=r"pairs\.parquet", share=24,
        ),
        "release": Scenario(
            make=corpus(_BUILD),
            readers={"notebook": Reader((sides_of, "{W}/slice"), (("value", ""),)), **_looks("slice")},
            damaged=r"slice/.*(?<!png)", share=30,
        ),
        "export": Scenario(
            make=corpus(_EXPORT), readers=_looks("labelled"), damaged=r"labelled/.*", share=12, has_other=False,
        ),
        "records": Scenario(
            make=records, readers={"export": Reader(of_records, (_LINES,), ("labelled",))},
            damaged=r"cache/.*", share=14,
        ),
        "input": Scenario(
            make=records,
            # Without --strict, what is corrupt is left out, counted and told.
            readers={"export": Reader((*of_records, "--strict"), (_LINES,), ("labelled",), alone=True)},
            damaged=r"records.jsonl.gz", share=5, has_other=False,
        ),
        "answers": Scenario(
            make=pull, readers={"pull": Reader((pulled, "{W}/openalex", "http://127.0.0.1"), (("value", ""),))},
            damaged=r"openalex/.*", share=14, has_other=False,
        ),
        "half an ingest of a world": Scenario(
            make=halfway(sealed, _world()), readers={"ingest": Reader(_world(), whole_corpus)},
            damaged=corpus_files, share=14, has_other=False,
        ),
        "half an ingest of a snapshot": Scenario(
            make=halfway(sealed, _ingest(inputs)), readers={"ingest": Reader(_ingest(inputs), whole_corpus)},
            damaged=corpus_files, share=14, has_other=False,
        ),
        "half a graph, spooled": Scenario(
            make=halfway(r"open .*/\.refs\..*", _GRAPH, _ingest(inputs)), readers={"cd": _cd, "graph": _graph},
            damaged=r"corpus/cache/.*", share=14, has_other=False,
        ),
        "half a graph, laid out": Scenario(
            make=halfway(r"os.rename .*/new", _GRAPH, _ingest(inputs)), readers={"cd": _cd, "novelty": _novelty},
            damaged=r"corpus/cache/.*", share=14, has_other=False,
        ),
        "half the scores of disruption": Scenario(
            make=halfway(r"os.rename .*/00006-[^/]*", _CD, _ingest(inputs), _GRAPH), readers={"cd": _cd},
            damaged=r"corpus/cache/.*unfinished.*", share=12, has_other=False,
        ),
        "half the scores of novelty": Scenario(
            make=halfway(r"os.rename .*/00006-[^/]*", _NOVELTY, _ingest(inputs), _GRAPH), readers={"novelty": _novelty},
            damaged=r"corpus/cache/.*unfinished.*", share=12, has_other=False,
        ),
    }  # fmt: skip


#: Names and shares, which the tests are named after before any input is there.
SHARES = {name: scenario.share for name, scenario in scenarios(Path("inputs")).items()}


def _records(n: int, seed: int) -> list[dict[str, Any]]:
    """Make records in an order of their own, so that a number stands for the same damage on every machine."""
    made = [one | {"is_xpac": False, "referenced_works": sorted(one["referenced_works"])}
            for one in synthetic_records(n, seed)]  # fmt: skip
    return sorted(made, key=lambda one: int(one["id"].rpartition("W")[2]))


def _placed(arguments: tuple[Any, ...], home: Path) -> list[str]:
    """Write the folder for ``{W}``, and what is there for a star."""
    placed = [str(one).replace("{W}", str(home)) for one in arguments]
    return [str(next(home.glob(one[len(str(home)) + 1 :]), one)) if "*" in one else one for one in placed]


# Damages


def _flip(content: bytearray, at: int, draw: random.Random) -> bytes:
    content[at] ^= 1 << draw.randrange(8)
    return bytes(content)


def _zero(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    length = draw.choice((1, 8, 64, 512, 4096))
    return content[:start] + bytes(len(content[start : start + length])) + content[start + length :]


def _change(content: bytes, pattern: bytes, others: bytes, draw: random.Random) -> bytes:
    """Put another character in place of one."""
    places = [place for found in re.finditer(pattern, content) for place in range(*found.span(1))]
    if not places:
        return content
    at = draw.choice(places)
    other = draw.choice([one for one in others if one != content[at]])
    return content[:at] + bytes([other]) + content[at + 1 :]


#: By name: from the content of a file to a damaged one.
DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip": lambda content, draw: _flip(bytearray(content), draw.randrange(len(content)), draw),
    "flip at the end": lambda content, draw: _flip(
        bytearray(content), len(content) - 1 - draw.randrange(max(1, min(len(content), len(content) // 100 + 12))), draw
    ),
    "zeros": _zero,
    "cut": lambda content, draw: content[: draw.randrange(1, len(content)) if len(content) > 1 else 0],
    "extend": lambda content, draw: content + draw.randbytes(draw.choice((1, 8, 100))),
    "repeat": lambda content, draw: content + content,
    "empty": lambda content, draw: b"",
}
#: The same, for text.
TEXT_DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "digit": lambda content, draw: _change(content, rb"(?<![0-9a-f])([0-9]+)(?![0-9a-f])", b"123456789", draw),
    "hexadecimal digit": lambda content, draw: _change(content, rb"([0-9a-f]{32,})", b"0123456789abcdef", draw),
    "key": lambda content, draw: _change(content, rb'"([a-z_]+)":', b"abcxyz_", draw),
}


def _alter(content: bytes, draw: random.Random) -> bytes:
    """Change one number of a Parquet file and write it again, with checksums of its own; as a rule of the same size.

    Only a hash of the whole file, or of its rows, tells it from the one that was there.
    """
    table, stated = pq.read_table(io.BytesIO(content)), pq.read_metadata(io.BytesIO(content)).metadata or {}
    numbers = [field.name for field in table.schema if pa.types.is_int64(field.type)]
    if not table.num_rows or not numbers:
        return content
    name, row = draw.choice(numbers), draw.randrange(table.num_rows)
    values = table[name].to_pylist()
    values[row] = (values[row] or 0) + draw.choice((1, 2, 3))
    new = table.set_column(table.schema.get_field_index(name), table.field(name), pa.array(values, pa.int64()))
    for checksums in (True, False):
        sink = io.BytesIO()
        options = {"compression": "zstd", "compression_level": 19, "write_statistics": False, "store_schema": False}
        with pq.ParquetWriter(sink, new.schema, write_page_checksum=checksums, **options) as writer:
            writer.write_table(new)
            writer.add_key_value_metadata({key: fact for key, fact in stated.items() if key != b"ARROW:schema"})
        found = sink.getvalue()
        if (missing := len(content) - len(found)) >= 0:
            footer = len(found) - 8 - int.from_bytes(found[-8:-4], "little")
            return found[:footer] + bytes(missing) + found[footer:]  # which nothing points to
    return found


DAMAGES_OF_TABLES = {"altered": _alter}
_TEXTS = (".json", "SUMS", ".jsonl")


def kind_of(name: str) -> str:
    """Say what kind of file a name is: without what tells files of one kind apart.

    >>> kind_of("corpus/works/part-2026-06-01-0000.parquet")
    'corpus/works/part-#.parquet'
    """
    return re.sub(r"[0-9a-f]{16,}|(?<![a-z])[0-9]+(-[0-9]+)*(?![0-9])", "#", name)


class Case(NamedTuple):
    """One damage: to which file, which, and what reads it."""

    file: str
    damage: str
    reader: str


@dataclass
class Workplace:
    """A scenario that is made, and what each of its readers gives while nothing is damaged."""

    commands: Commands
    scenario: Scenario
    home: Path
    pristine: Path
    other: Path
    expected: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def make(cls, commands: Commands, scenario: Scenario, folder: Path) -> Workplace:
        """Make it, once as it is and once with another seed; read it with everything."""
        place = cls(commands, scenario, folder / "home", folder / "pristine", folder / "other")
        if scenario.has_other:
            scenario.make(commands, place.home, 1)
            place.home.rename(place.other)
        scenario.make(commands, place.home, 0)
        place.home.rename(place.pristine)
        for name, reader in scenario.readers.items():
            place.restore()
            outcome, place.expected[name] = place.read(reader)
            if not name.startswith("verify"):  # which did not always know files of every kind
                assert outcome.verdict == "done", (name, outcome)
        commands.limit_s = LIMIT_S
        return place

    def restore(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self.pristine, self.home, symlinks=True)

    def files(self) -> list[str]:
        """Name the files to damage; locks hold nothing."""
        names = sorted(
            path.relative_to(self.pristine).as_posix() for path in self.pristine.rglob("*") if path.is_file()
        )
        locks = re.compile(r"(.*/)?\.?lock")
        return [name for name in names if re.fullmatch(self.scenario.damaged, name) and not locks.fullmatch(name)]

    def cases(self) -> list[Case]:
        """List every damage to every kind of file for every reader, in an order of its own."""
        names = self.files()
        draw = random.Random(repr(sorted(map(kind_of, names))))
        found: list[Case] = []
        for kind in sorted({kind_of(name) for name in names}):
            of_kind = [name for name in names if kind_of(name) == kind]
            # A background of other numbers is another background, and results name which one they are of.
            tables = DAMAGES_OF_TABLES if kind.endswith(".parquet") and kind != "pairs.parquet" else ()
            damages = [*DAMAGES, "delete", *tables, *(TEXT_DAMAGES if kind.endswith(_TEXTS) else ())]
            for reader, facts in self.scenario.readers.items():
                if facts.reads and not re.fullmatch(facts.reads, of_kind[0]):
                    continue
                swaps = ["swap"] if len(of_kind) > 1 else []
                others = ["other"] if self.scenario.has_other else []
                damages_here = [*damages, *([] if facts.alone else swaps + others)]
                if not kind.endswith(_TEXTS):  # what only a checksum finds
                    damages_here += ["flip", "flip", "zeros", *tables]
                for damage in draw.sample(damages_here, 2) if facts.slow else damages_here:
                    found.append(Case(draw.choice(of_kind), damage, reader))
        draw.shuffle(found)
        # Kinds take turns, so that a few damages reach all of them.
        turns: dict[str, int] = {}
        places = []
        for case in found:
            kind = kind_of(case.file)
            turns[kind] = turns.get(kind, 0) + 1
            places.append((turns[kind], case))
        return [case for _, case in sorted(places, key=lambda one: one[0])]

    def damage(self, case: Case, draw: random.Random) -> list[str]:
        """Damage a file, so that its time stays, and its size if that can be; name the files that are others now."""
        target = self.home / case.file
        content, state = target.read_bytes(), target.stat()
        if case.damage == "delete":
            target.unlink()
            return [case.file]
        changed = [case.file]
        if case.damage == "swap":
            alike = [name for name in self.files() if name != case.file and kind_of(name) == kind_of(case.file)]
            changed.append(draw.choice(alike))
            partner = self.home / changed[1]
            new, theirs = partner.read_bytes(), partner.stat()
            partner.write_bytes(content)
            os.utime(partner, ns=(theirs.st_atime_ns, theirs.st_mtime_ns))
        elif case.damage == "other":
            alike = [path for path in self.other.rglob("*") if path.is_file()]
            alike = [one for one in alike if kind_of(one.relative_to(self.other).as_posix()) == kind_of(case.file)]
            new = draw.choice(sorted(alike)).read_bytes() if alike else content
        elif not content:
            new = b"\0" * draw.choice((4, 8, 12))
        else:
            new = (DAMAGES | TEXT_DAMAGES | DAMAGES_OF_TABLES)[case.damage](content, draw)
        target.write_bytes(new)
        os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
        return changed if new != content else []

    def mend(self, names: list[str]) -> None:
        """Put files back, where their folder is still there; what was made of them meanwhile stays."""
        for name in names:
            if (self.home / name).parent.is_dir():
                shutil.copy2(self.pristine / name, self.home / name)

    def read(self, reader: Reader) -> tuple[Outcome, Any]:
        """Run a reader; give how it ended, and what it gave."""
        for name in reader.makes:
            path = self.home / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        first, *rest = reader.arguments
        arguments = _placed((*rest,) if callable(first) else reader.arguments, self.home)
        outcome = self.commands.call(first, *arguments) if callable(first) else self.commands.run(*arguments)
        if outcome.verdict != "done":
            return outcome, None
        return outcome, [self._show(how, self.home / where, outcome) for how, where in reader.shows]

    def _show(self, how: str, path: Path, outcome: Outcome) -> Any:
        if how == "printed":
            # How long it took, and how many bytes and which hash a file has, may differ where its content does not; and
            # a document that is not what it was is named: it holds no data.
            passing = ("took ", "  changed since, or added: ")
            lines = [line for line in outcome.out.splitlines() if not line.startswith(passing)]
            return re.sub(r"[0-9a-f]{32,}|[0-9,]+ bytes", "#", "\n".join(lines))
        if how == "value":
            return outcome.value
        if how == "bytes":
            return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
        if how == "files":
            names = sorted(one for one in path.rglob("*") if one.is_file() and not one.name.startswith("."))
            return {one.relative_to(path).as_posix(): hashlib.sha256(one.read_bytes()).hexdigest() for one in names}
        function = {"rows": rows_of, "facts": facts_of, "background": background_rows}[how]
        found = self.commands.call(function, path)
        return found.value if found.verdict == "done" else f"unreadable: {found.verdict}"

    def attempt(self, case: Case, seed: object) -> dict[str, str]:
        """Damage, read, restore, read again; give what happened each time."""
        draw = random.Random(f"{seed} {kind_of(case.file)} {case.damage} {case.reader}")
        self.restore()
        changed = self.damage(case, draw)
        told = {"damaged": ", ".join(changed)}
        reader, expected = self.scenario.readers[case.reader], self.expected[case.reader]
        outcome, found = self.read(reader)
        told["first"] = outcome.verdict if found is None else "right" if found == expected else "WRONG"
        told["said"] = _last_lines(outcome) if found is None else _difference(found, expected)
        self.mend(changed)
        outcome, found = self.read(reader)
        told["mended"] = outcome.verdict if found is None else "right" if found == expected else "WRONG"
        told["said then"] = _last_lines(outcome) if found is None else _difference(found, expected)
        return told


def _last_lines(outcome: Outcome) -> str:
    return "\n".join(outcome.err.strip().splitlines()[-6:])


def _difference(found: Any, expected: Any) -> str:
    return "" if found == expected else f"expected {str(expected)[:1500]}\nfound    {str(found)[:1500]}"


# The tests


def numbered() -> list[Any]:
    total = sum(SHARES.values())
    return [
        pytest.param(name, number, id=f"{name}-{number}")
        for name, share in SHARES.items()
        for number in range(max(4, round(N_DAMAGES * share / total)))
    ]


@pytest.fixture(scope="module")
def workplace(inputs, tmp_path_factory) -> Iterator[Callable[[str], Workplace]]:
    made: dict[str, Workplace] = {}
    known = scenarios(inputs)
    with Commands() as commands:

        def of(name: str) -> Workplace:
            if name not in made:
                made[name] = Workplace.make(commands, known[name], tmp_path_factory.mktemp(name.replace(" ", "-")))
            return made[name]

        yield of


@pytest.mark.parametrize(("scenario", "number"), list(numbered()))
def test_a_damaged_file_gives_the_right_result_or_a_named_error_and_restored_it_gives_the_right_one(
    workplace, scenario, number
):
    place = workplace(scenario)
    cases = place.cases()
    case = cases[number % len(cases)]
    told = place.attempt(case, number)
    assert told["first"] in ("right", "named error"), f"{case}: {told}"
    if place.expected[case.reader] is not None:
        assert told["mended"] == "right", f"after the file was restored, {case}: {told}"


@pytest.mark.parametrize("scenario", ["world", "corpus", "scores", "release"])
def test_a_table_with_one_other_number_is_never_taken_for_the_one_that_was_written(workplace, scenario):
    """It is valid in itself, of the same size and time; and a graph that was made of it is not used again."""
    place = workplace(scenario)
    wrong: list[str] = []
    for kind, damage, reader in sorted({(kind_of(case.file), case.damage, case.reader) for case in place.cases()}):
        if damage == "altered" and not place.scenario.readers[reader].slow:
            case = next(one for one in place.cases() if (kind_of(one.file), *one[1:]) == (kind, damage, reader))
            told = place.attempt(case, 0)
            cured = told["mended"] == "right" or place.expected[reader] is None
            if told["first"] not in ("right", "named error") or not cured:
                wrong.append(f"{case.file} for {reader}: {told['first']}, after the file was restored {told['mended']}")
    assert not wrong, "\n".join(wrong)
