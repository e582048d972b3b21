"""A file of scores: sorted by work, and saying of itself of which corpus it is and by which conventions."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.checks import require_parquet_name
from sciscidata.errors import InputNotFoundError, ReleaseExistsError
from sciscidata.sources.corpus_folder import scan_corpus
from sciscidata.storage import atomic_file, clear_leftovers

logger = logging.getLogger(__name__)

_KEY: Final = b"sciscidata_stage"
_COUNTED: Final = ("rows", "columns")  # what read_result adds
_ROWS_PER_GROUP: Final = 1 << 18
#: Raised by one whenever the same corpus and config give other scores.
_FORMAT_VERSIONS: Final = {"cd": 1, "novelty": 1}


def read_result(path: str | Path) -> dict[str, Any]:
    """Read what a file of write_cd_scores or write_novelty_scores says of itself.

    Returns:
        ``stage``: ``"cd"`` or ``"novelty"``; ``config``; ``source`` and ``corpus_sha256``: of what; ``rows``;
        ``columns``.

    Raises:
        InputNotFoundError: there is no such file, or it is something else.

    Example:
        >>> read_result("none.parquet")
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: none.parquet is no file of scores that this package has written. Check the
        path.
    """
    try:
        metadata = pq.read_metadata(path)
        facts: dict[str, Any] = json.loads((metadata.metadata or {})[_KEY])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        msg = f"{path} is no file of scores that this package has written. Check the path."
        raise InputNotFoundError(msg) from error
    return facts | {"rows": metadata.num_rows, "columns": metadata.schema.names}


def state_facts(stage: str, folder: str | Path, config: dict[str, Any]) -> dict[str, Any]:
    """State what scores are of: the stage, its options, and the corpus.

    Raises:
        InputNotFoundError, StorageError: as scan_corpus.
    """
    provenance = scan_corpus(folder).provenance
    return {
        "stage": stage,
        "format_version": _FORMAT_VERSIONS[stage],
        "config": config,
        "source": provenance.get("kind"),
        "corpus_sha256": provenance["report_sha256"],
    }


def is_done(out: Path, facts: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Whether the scores are there already.

    Raises:
        ConfigError: at once, if ``out`` is named like another kind of file than Parquet.
        ReleaseExistsError: at once, if ``out`` holds something else, or another result and not ``overwrite``.
    """
    require_parquet_name(out, "scores are")
    if not out.exists():
        return False
    try:
        found = read_result(out)
    except InputNotFoundError as error:
        msg = f"{out} is there and no file of scores, so it is not replaced. Choose another file, or remove it."
        raise ReleaseExistsError(msg) from error
    if {name: found[name] for name in found if name not in _COUNTED} == json.loads(json.dumps(facts)):
        clear_leftovers(out)
        logger.info("%s holds these scores already", out)
        return True
    if not overwrite:
        msg = f"{out} already exists. Choose another file, or replace it: overwrite=True (--overwrite)."
        raise ReleaseExistsError(msg)
    return False


def write_scores(batches: Iterable[pl.DataFrame], out: Path, facts: Mapping[str, Any]) -> Path:
    """Write rows, which come in the order of their ids, whole or not at all.

    Raises:
        StorageError: the disk is full, or ``out`` cannot be written.
    """
    with atomic_file(out) as file, ExitStack() as stack:
        writer: Any = None
        for rows in batches:
            table: Any = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
            if writer is None:
                schema = table.schema.with_metadata({_KEY: json.dumps(facts, sort_keys=True)})
                writer = stack.enter_context(pq.ParquetWriter(file, schema, compression="zstd"))
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
    return out
