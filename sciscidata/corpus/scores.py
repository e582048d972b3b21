"""Read and write a score file: rows sorted by work, and metadata that state its corpus and its configuration."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.corpus.folder import scan_corpus
from sciscidata.errors import InputNotFoundError, ReleaseExistsError, VerificationError
from sciscidata.options.checks import require_parquet_name
from sciscidata.schemas import SCORES_KEY
from sciscidata.storage import BLANK_SEAL, atomic_file, clear_leftovers, is_sealed, seal
from sciscidata.storage.parquet import CHECKED, ROWS_PER_GROUP, to_arrow

logger = logging.getLogger(__name__)

_COUNTED: Final = ("rows", "columns", "label_prior", *BLANK_SEAL)  # facts that follow from the rows
_REMEDY: Final = "Make it again, with overwrite=True."


def read_score_facts(path: str | Path) -> dict[str, Any]:
    """Read the facts that a score file states: stage, config, source, ``corpus_sha256``, and its rows and columns."""
    try:
        if not Path(path).is_file():  # reading a pipe would wait
            raise FileNotFoundError(path)
        metadata = pq.read_metadata(path)
        stated = (metadata.metadata or {})[SCORES_KEY]
    except (OSError, pa.ArrowException, KeyError) as error:
        raise InputNotFoundError(
            f"{path} is no file of scores that this package has written. Check the path."
        ) from error
    try:
        facts: Any = json.loads(stated)
        if not isinstance(facts["stage"], str) or not isinstance(facts["config"], dict):
            raise ValueError
        counts = {"rows": metadata.num_rows, "columns": metadata.schema.names}
        return {**dict.fromkeys(("source", "corpus_sha256")), **facts, **counts}
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise VerificationError(f"{path} is a damaged file of scores: its facts cannot be read. {_REMEDY}") from error


def verify_scores(path: str | Path) -> dict[str, Any]:
    """Compare all of a score file with the SHA-256 that it holds, and return its facts."""
    facts = read_score_facts(path)
    if not is_sealed(Path(path)):
        raise VerificationError(f"{path} is damaged: it differs from the SHA-256 that it holds. {_REMEDY}")
    return facts


def state_facts(stage: str, version: int, folder: str | Path, config: dict[str, Any]) -> dict[str, Any]:
    """State the stage of scores and its version, its options, and the corpus; errors are as in ``scan_corpus``."""
    provenance = scan_corpus(folder).provenance
    return {
        "stage": stage,
        "format_version": version,
        "config": config,
        "source": provenance.get("kind"),
        "corpus_sha256": provenance["report_sha256"],
    }


def hash_facts(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what scores depend on, in hexadecimal."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def is_done(out: Path, facts: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Whether the scores are there already, and whole; damaged ones or, with ``overwrite``, others are made again."""
    require_parquet_name(out, "scores are")
    if not out.exists():
        return False
    stated = find_result(out)
    is_same = {name: stated[name] for name in stated if name not in _COUNTED} == json.loads(json.dumps(facts))
    is_whole = is_sealed(out)
    if is_same and is_whole:
        clear_leftovers(out)
        logger.info("%s holds these scores already", out)
        return True
    if not is_same and not overwrite:
        what = "already exists" if is_whole else "is there, and damaged: it differs from the SHA-256 that it holds"
        raise ReleaseExistsError(f"{out} {what}. Choose another file, or replace it: overwrite=True.")
    if not is_whole:
        logger.warning("%s is damaged; it is made again", out)
    return False


def find_result(out: Path) -> dict[str, Any]:
    """Read the facts of a score file, none if it is damaged; refuse to replace anything else."""
    try:
        return read_score_facts(out)
    except InputNotFoundError as error:
        raise ReleaseExistsError(
            f"{out} is no file of scores, or too damaged to be recognised as one, so it is not replaced. Choose "
            "another file, or remove it."
        ) from error
    except VerificationError:
        return {}


def write_scores(
    batches: Iterable[pl.DataFrame],
    out: Path,
    facts: Mapping[str, Any],
    *,
    replace: bool,
    learned: Callable[[], Mapping[str, Any]] = dict,
) -> Path:
    """Write a score file, whole or not at all, in the order of ids. ``replace`` replaces score files only.

    ``learned`` is called after the last row, for facts that follow from the rows.
    """
    with atomic_file(out, overwrite=replace, recheck=partial(find_result, out)) as file, ExitStack() as stack:
        writer: Any = None
        for rows in batches:
            table: Any = to_arrow(rows)
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(file, table.schema, **CHECKED))
            writer.write_table(table, row_group_size=ROWS_PER_GROUP["scores"])
        # Add it after the rows: pyarrow would write metadata of the schema twice.
        stated = json.dumps({**facts, **learned(), **BLANK_SEAL}, sort_keys=True)
        writer.add_key_value_metadata({SCORES_KEY: stated})
        stack.close()
        seal(file)
    return out
