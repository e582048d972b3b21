"""Reading the tables of SciSciNet: whether they hold one row per work, and which file it was that could not be read."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import numpy as np

from sciscidata.errors import InputNotFoundError, SciSciDataError, WorkIdError
from sciscidata.sources.sciscinet_ids import find_repeats, read_sorted_ids
from sciscidata.sources.sciscinet_tables import STORE_REMEDY, UNREADABLE, Table, short_reason

logger = logging.getLogger(__name__)

_STORE_ERROR = "object-store error"  # as Polars has it
_ONE_ROW_EACH = ("papers", "texts")


@contextmanager
def reading(tables: Mapping[str, Table]) -> Generator[None]:
    """Run a block that reads the tables: refuse repeated works before it, and name the damaged file if it fails.

    Papers and texts name a work once. Which of two rows is right nobody can say, so a table that repeats one is
    refused: its ids are read for that, 9 bytes a work while they are compared. A block that fails for another
    reason than a SciSciDataError has the files on this machine read through once, the smallest first.

    Args:
        tables: ``SciSciNet.tables``.

    Raises:
        WorkIdError: at once; papers or texts name a work twice.
        InputNotFoundError: a file cannot be decoded, or a store fails. Other errors of the block pass unchanged.

    Example:
        >>> import polars as pl
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.sciscinet import SciSciNetConfig, scan_sciscinet
        >>> with TemporaryDirectory() as home:
        ...     pl.DataFrame({"paperid": ["W1", "W1"], "year": 1999}).write_parquet(f"{home}/papers.parquet")
        ...     try:
        ...         with reading(scan_sciscinet(SciSciNetConfig(folder=home)).tables):
        ...             pass
        ...     except WorkIdError as error:
        ...         print(str(error).split(", for")[0])
        SciSciNet table papers names 1 works more than once
    """
    try:
        for name in _ONE_ROW_EACH:
            if name in tables:
                _refuse_repeats(tables[name])
        yield
    except UNREADABLE as error:
        # An error of the system has its own words, and its number; what cannot be decoded has none.
        if isinstance(error, SciSciDataError) or getattr(error, "errno", None) is not None:
            raise
        logger.info("reading failed; looking for the damaged file")
        for table in sorted(tables.values(), key=lambda table: sum(path.stat().st_size for path in table.files)):
            if (damage := table.find_damage()) is not None:
                path, reason = damage
                what, remedy = "is damaged", "Download it again."
                if "(os error 13)" in reason:
                    what, remedy = "may not be read", "Mend its permissions."
                msg = f"SciSciNet table {table.name}: {path} {what}: {reason}. {remedy}"
                raise InputNotFoundError(msg) from error
        if _STORE_ERROR in str(error):
            msg = f"SciSciNet: {short_reason(error)}. {STORE_REMEDY}"
            raise InputNotFoundError(msg) from error
        raise


def _refuse_repeats(table: Table) -> None:
    repeated = find_repeats(read_sorted_ids(table))
    if repeated.size:
        msg = (
            f"SciSciNet table {table.name} names {np.unique(repeated).size:,} works more than once, for example "
            f"W{repeated[0]} ({table.location}). Download it again, or write it anew with one row of each work."
        )
        raise WorkIdError(msg)
