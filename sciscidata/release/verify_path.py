"""Check whatever this package has written: a release, a corpus, a graph, scores, a background, an export, a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.corpus.folder import INDEX, find_damaged, read_report, recorded_sums, scan_corpus
from sciscidata.corpus.scores import SCORES_KEY, verify_scores
from sciscidata.errors import InputNotFoundError, VerificationError
from sciscidata.graph.graph import open_graph
from sciscidata.novelty.background import METADATA_KEY, read_background
from sciscidata.release.export import REPORT, verify_labelled
from sciscidata.release.manifest import MANIFEST
from sciscidata.release.verify import verify_release
from sciscidata.storage import is_whole_folder
from sciscidata.storage.parquet import is_parquet

Kind: TypeAlias = Literal["release", "corpus", "graph", "export", "cache", "scores", "background"]
#: The file by which each kind of folder is known. A graph is a folder of the cache too.
_MARKS: Final[dict[str, Kind]] = {
    "graph.json": "graph",
    REPORT: "export",
    INDEX: "corpus",
    MANIFEST: "release",
    "SHA256SUMS": "cache",
}
#: The same for the metadata of Parquet files.
_KEYS: Final[dict[bytes, Kind]] = {SCORES_KEY: "scores", METADATA_KEY: "background"}
_KINDS = "a release, a corpus, a graph, an export, a file of scores or a background"


class Verified(NamedTuple):
    """What was checked, and what it holds: works of a release by side, rows or files of anything else."""

    kind: Kind
    path: Path
    counts: dict[str, int]


def kind_of(path: str | Path) -> Kind:
    """Say what lies at a path, by the names of its files; of a file, by its first bytes and its metadata.

    Raises:
        InputNotFoundError: nothing is there, or nothing that this package has written.
        VerificationError: it is a Parquet file, too damaged to tell its kind.

    Example:
        >>> kind_of("no/such/path")
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: no/such/path does not exist. Name a release, a corpus, a graph, an export,
        a file of scores or a background.
    """
    path = Path(path)
    if path.is_dir():
        for mark, kind in _MARKS.items():
            if (path / mark).is_file():
                return kind
        return "corpus" if (path / "works").is_dir() else "release"  # an unfinished one; and what is none of these
    if not path.is_file():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        msg = f"{path} {what}. Name {_KINDS}."
        raise InputNotFoundError(msg)
    if not is_parquet(path):
        msg = f"{path} is no Parquet file. Name {_KINDS}."
        raise InputNotFoundError(msg)
    again = "If this package has made it, remove it and run the command that made it again."
    try:
        metadata: dict[bytes, bytes] = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        msg = f"{path} is damaged: it begins as a Parquet file, but its end cannot be read. {again}"
        raise VerificationError(msg) from error
    for key, kind in _KEYS.items():
        if key in metadata:
            return kind
    msg = f"{path} is a Parquet file, but says neither that it holds scores nor that it is a background. {again}"
    raise InputNotFoundError(msg)


def verify_path(path: str | Path) -> Verified:
    """Compare what this package has written with what it says of itself. Executes; reads every byte.

    Of a release this is ``verify_release``. Of a corpus: the SHA-256 of the report and of every file. Of a graph, and
    any other folder of a cache: the SHA-256 of every file. Of a file of scores or a background: its own SHA-256. Of an
    export: size, SHA-256, rows and classes.

    Args:
        path: the folder or file.

    Raises:
        InputNotFoundError: nothing is there, or nothing that this package has written.
        SciSciDataError: it differs; the message names what does: VerificationError, StorageError or BackgroundError.

    Example:
        >>> from sciscidata.novelty.background import write_background
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
        >>> from tempfile import TemporaryDirectory
        >>> works, citations, _ = scan_synthetic(SyntheticConfig(n_works=500))
        >>> with TemporaryDirectory() as home:
        ...     verified = verify_path(write_background(citations, works, f"{home}/pairs.parquet"))
        >>> verified.kind, verified.counts["pairs"] > 0
        ('background', True)
    """
    path = Path(path)
    kind = kind_of(path)
    return Verified(kind, path, _CHECKS[kind](path))


def _verify_release(path: Path) -> dict[str, int]:
    return {side: facts["rows"] for side, facts in verify_release(path).manifest["sides"].items()}


def _verify_corpus(path: Path) -> dict[str, int]:
    provenance = scan_corpus(path).provenance
    sums = recorded_sums(read_report(path)[0])
    damaged = find_damaged(path, sums)
    if damaged:
        listed = "".join(f"\n- {name}" for name in damaged)
        msg = (
            f"{path}: {len(damaged):,} of {len(sums):,} files are damaged or missing:{listed}\n"
            "Run the same ingest again: it mends what is damaged."
        )
        raise VerificationError(msg)
    counts = {name: provenance[name] for name in ("works", "citations") if isinstance(provenance.get(name), int)}
    return {**counts, "files": len(sums)}


def _verify_graph(path: Path) -> dict[str, int]:
    graph = open_graph(path)
    return {"works": graph.n_known, "citations": graph.n_citations}


def _verify_cache(path: Path) -> dict[str, int]:
    if not is_whole_folder(path):
        msg = f"{path} is damaged: its files differ from SHA256SUMS. Remove the folder: it is made again when needed."
        raise VerificationError(msg)
    return {"files": sum(1 for _ in path.iterdir()) - 1}


def _verify_scores(path: Path) -> dict[str, int]:
    return {"works": verify_scores(path)["rows"]}


def _verify_background(path: Path) -> dict[str, int]:
    counts = read_background(path).counts
    return {"years": counts.height, "pairs": int(counts["n_pairs"].sum())}


def _verify_export(path: Path) -> dict[str, int]:
    return {"works": verify_labelled(path)["rows"]}


_CHECKS = {
    "release": _verify_release,
    "corpus": _verify_corpus,
    "graph": _verify_graph,
    "cache": _verify_cache,
    "scores": _verify_scores,
    "background": _verify_background,
    "export": _verify_export,
}
