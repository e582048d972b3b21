"""Scores and labels of all works, found by their ids: 34 bytes a work, whatever the order of the works is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.errors import SchemaMismatchError, WorkIdError
from sciscidata.labels import VOCABULARIES
from sciscidata.manifest import NOVELTY_COLUMNS
from sciscidata.schemas import EXAMPLE, WORKS, require_columns

_NEEDED: Final = ("work_id", "cd_index", "disruption_label")
_SCORES: Final = tuple(name for name in ("cd_index", *NOVELTY_COLUMNS) if EXAMPLE[name] == pl.Float64())
_STAGE: Final = "write_labelled"
_NONE, _UNKNOWN = 255, 254  # codes of labels


class LabelLookup:
    """The labelled works, in the order of their ids.

    Args:
        labelled: ``work_id``, ``cd_index`` and ``disruption_label``, and the novelty columns of EXAMPLE if there are
            any; what is not there is null. One row per work; rows without an id do not count. Collected at once.

    Raises:
        SchemaMismatchError: a column is missing or mistyped, or a label is none of this package.
        WorkIdError: a work is named twice.

    Example:
        >>> row = {"work_id": [7], "cd_index": [-0.0], "disruption_label": ["neutral"]}
        >>> LabelLookup(pl.LazyFrame(row)).add_to(pl.DataFrame({"work_id": [9, 7]})).row(0, named=True)
        {'work_id': 7, 'cd_index': 0.0, 'novelty_score': None, 'conventionality_score': None,
        'disruption_label': 'neutral', 'novelty_label': None}
    """

    def __init__(self, labelled: pl.LazyFrame | pl.DataFrame) -> None:
        kept = check_labelled(labelled)
        there = kept.collect_schema()
        columns = [pl.col(name).fill_null(float("nan")) for name in _SCORES if name in there]
        columns += [_encode(name, words) for name, words in VOCABULARIES.items() if name in there]
        rows = kept.drop_nulls("work_id").select("work_id", *columns).collect(engine="streaming")
        ids = rows.drop_in_place("work_id").to_numpy()
        is_sorted = bool((ids[1:] > ids[:-1]).all())
        order = np.empty(0, np.int64) if is_sorted else np.argsort(ids)
        self._ids: npt.NDArray[np.int64] = ids if is_sorted else ids[order]
        self._columns: dict[str, npt.NDArray[Any]] = {}
        for name in rows.columns:  # one after the other, to hold no second copy of all of them
            values = rows.drop_in_place(name).to_numpy()
            self._columns[name] = values if is_sorted else values[order]
        twice = np.flatnonzero(self._ids[1:] == self._ids[:-1])
        if twice.size:
            msg = f"{_STAGE}: the labelled frame names W{self._ids[twice[0]]} twice. Keep one row for each work."
            raise WorkIdError(msg)
        for name, words in VOCABULARIES.items():
            if (self._columns.get(name, ids[:0]) == _UNKNOWN).any():
                msg = f"{_STAGE}: {name} of the labelled frame holds other labels than {', '.join(words)}, or null."
                raise SchemaMismatchError(msg)

    def add_to(self, works: pl.DataFrame) -> pl.DataFrame:
        """Keep the rows of ``works`` that are labelled, in order, and add their scores and labels.

        One form of every number, as in a release: NaN is null, and minus zero is zero.
        """
        works = works.drop_nulls("work_id")
        wanted = works["work_id"].to_numpy()
        places = np.searchsorted(self._ids, wanted)
        found = np.zeros(len(wanted), np.bool_)
        inside = places < len(self._ids)
        found[inside] = self._ids[places[inside]] == wanted[inside]
        places = places[found]
        scores = [_decode_scores(name, self._columns.get(name), places) for name in _SCORES]
        labels = [_decode(name, words, self._columns.get(name), places) for name, words in VOCABULARIES.items()]
        return (works if found.all() else works.filter(found)).with_columns(*scores, *labels)


def check_labelled(labelled: pl.LazyFrame | pl.DataFrame) -> pl.LazyFrame:
    """Refuse a frame that ``LabelLookup`` could not read, before any row is read.

    Raises:
        SchemaMismatchError: at once, if a column is missing or mistyped.

    Example:
        >>> row = {"work_id": [7], "cd_index": [0.5], "disruption_label": ["neutral"]}
        >>> check_labelled(pl.LazyFrame(row)).collect().height
        1
    """
    needed: Mapping[str, pl.DataType] = {"work_id": WORKS["work_id"], **EXAMPLE}
    names = {"frame_name": "the labelled frame", "stage": _STAGE}
    frame = require_columns(labelled, needed, **names, columns=_NEEDED)
    there = frame.collect_schema()
    return require_columns(frame, needed, **names, columns=[name for name in NOVELTY_COLUMNS if name in there])


def _encode(name: str, words: tuple[str, ...]) -> pl.Expr:
    codes: dict[str | None, int] = {word: code for code, word in enumerate(words)}
    return pl.col(name).replace_strict({None: _NONE, **codes}, default=_UNKNOWN, return_dtype=pl.UInt8)


def _decode(
    name: str, words: tuple[str, ...], codes: npt.NDArray[np.uint8] | None, places: npt.NDArray[np.int64]
) -> pl.Series:
    if codes is None:
        return pl.repeat(None, len(places), dtype=pl.String, eager=True).alias(name)
    found = codes[places]
    rows = np.where(found == _NONE, len(words), found).astype(np.uint32)
    return pl.Series(name, [*words, None], pl.String).gather(rows)


def _decode_scores(name: str, values: npt.NDArray[np.float64] | None, places: npt.NDArray[np.int64]) -> pl.Series:
    if values is None:
        return pl.repeat(None, len(places), dtype=pl.Float64, eager=True).alias(name)
    return pl.Series(name, values[places] + 0.0).fill_nan(None)
