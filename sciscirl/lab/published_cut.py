"""The split of the published runs again, from a file of the author's own records: shuffled with seed 0, then cut.

Which shuffle it was is not published. Those that are usual are tried, and the one that leaves the published numbers of
classes in test is taken.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import random
import tempfile
from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.config import BuildConfig
from sciscidata.diagnostics.of_release import describe, plot_pictures
from sciscidata.eligibility import EligibilityConfig
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.records.ids import number_ids, plain_ids
from sciscidata.release.release import Release, Target, check_target, write_release
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.draw import Drawn
from sciscidata.sampling.manifest_entries import count_works
from sciscidata.scoring import Scored, label_works, score
from sciscidata.sources.labelled import LabelledConfig
from sciscidata.sources.registry import open_source
from sciscidata.storage import refuse_unwritable
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import progress_bar
from sciscirl.errors import SciSciRLError

_log = logging.getLogger(__name__)

N_TRAIN: Final = 5_000
#: The classes of the published test papers, as the published recalls give them.
PUBLISHED_TEST: Final[Mapping[str, int]] = MappingProxyType({"disruptive": 145, "consolidating": 166, "neutral": 189})
_N_TEST: Final = sum(PUBLISHED_TEST.values())
#: The published held-out figures at step 250, by run, in the order of PUBLISHED_METRICS; macro-F1 is about.
PUBLISHED_METRICS: Final = (
    "label_match", "parse_ok", "format_strict_ok", "recall/disruptive", "recall/consolidating", "recall/neutral",
    "invalid", "macro_f1",
)  # fmt: skip
PUBLISHED: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "baseline": (0.326, 0.966, 0.918, 0.0897, 0.2108, 0.6085, 0.082, 0.288),
        "exp1": (0.316, 0.974, 0.960, 0.2414, 0.4096, 0.2910, 0.040, 0.317),
        "exp2": (0.362, 0.978, 0.976, 0.0621, 0.7048, 0.2910, 0.024, 0.309),
        "exp3": (0.356, 0.944, 0.906, 0.1034, 0.4458, 0.4709, 0.094, 0.337),
        "exp4": (0.396, 0.998, 0.998, 0.0069, 0.2831, 0.7937, 0.002, 0.292),
    }
)
_LABELS: Final = VOCABULARIES["disruption_label"]


def _shuffle_list(n: int) -> npt.NDArray[np.int64]:
    order = array("q", range(n))
    random.Random(0).shuffle(order)
    return np.frombuffer(order, dtype=np.int64)


#: Shuffles with seed 0 by what does them: each returns, for every place, which of ``n`` records comes there.
SHUFFLES: Final[Mapping[str, Callable[[int], npt.NDArray[np.int64]]]] = MappingProxyType(
    {
        "numpy.random.default_rng(0), as datasets shuffles": lambda n: np.random.default_rng(0).permutation(n),
        "random.Random(0)": _shuffle_list,
        "numpy.random.RandomState(0), as pandas shuffles": lambda n: np.random.RandomState(0).permutation(n),
    }
)


class Records(NamedTuple):
    """Where each record of a file begins, in bytes, the place of its label among the three, and the file's SHA-256."""

    starts: array[int]
    labels: array[int]
    sha256: str


class _Record(msgspec.Struct):
    openalex_id: Annotated[str, msgspec.Meta(min_length=1)]
    disruption_label: str
    publication_year: Any
    cd_index: Any


def write_published_cut(records: Path, out: Path, *, overwrite: bool = False) -> tuple[Release, str]:
    """Write the published split as a release, whose labels are those of the records; return also which shuffle it is.

    Rows are in the order of the shuffle. No filter is applied. The file is read twice; 600,000 records take 10 MB.

    Args:
        records: JSON lines with the fields of a release, in the author's order. Each needs openalex_id,
            publication_year, cd_index and disruption_label.
        out: the folder of the release.
        overwrite: replace an earlier release.

    Raises:
        SciSciRLError: the file cannot be read, a record lacks what it needs or is in the cut twice, there are too few
            records, or no shuffle leaves the published numbers of classes in test.
        ReleaseExistsError: before anything is read, if ``out`` may not be replaced.
    """
    check_target(out, overwrite=overwrite)
    refuse_unwritable(out)
    found = read_records(records)
    name, order = find_shuffle(found, records)
    with tempfile.TemporaryDirectory(prefix="sciscirl-") as home:
        rows, ids = Path(home) / f"{records.stem}.jsonl", set[str]()  # errors name it
        decoder = msgspec.json.Decoder(_Record)
        with records.open("rb") as file, rows.open("wb") as chosen:
            for place in order:
                file.seek(found.starts[place])
                line = file.readline().rstrip()
                if (work := decoder.decode(line).openalex_id) in ids:
                    raise SciSciRLError(
                        f"{records}: {work} is in the cut twice, and a release has each work once. These are "
                        "other records than the published ones. Draw a split of your own, from one row for each work: "
                        "sciscidata build --labelled FILE."
                    )
                ids.add(work)
                chosen.write(line + b"\n")
        config = BuildConfig(
            source=LabelledConfig(inputs=(str(rows),), labels="trust"),
            out=out,
            split=SplitConfig(n_train=N_TRAIN, n_test=_N_TEST, balance="none"),
            eligibility=EligibilityConfig(
                require_title=False, require_abstract=False, exclude_retracted=False, min_references=0,
                min_citations=0, languages=(), complete_window=False,
            ),
            scores_file=False,
            cache_dir=Path(home) / "cache",
            overwrite=overwrite,
        )  # fmt: skip
        cut = (
            f"{len(found.starts):,} records, shuffled with seed 0 by {name} (numpy {np.__version__}). The first "
            f"{N_TRAIN:,} are train, the next {_N_TEST} test"
        )
        inputs = [{"name": records.name, "bytes": records.stat().st_size, "sha256": found.sha256}]
        return _write(config, rows, {"inputs": inputs, "rows": len(found.starts), "given_split": cut}), name


def read_records(path: Path) -> Records:
    """Find out where the records of a file begin, and their labels, in one pass."""
    decoder = msgspec.json.Decoder(_Record)
    starts, labels, digest = array("q"), array("b"), hashlib.sha256()
    try:
        with path.open("rb") as file, progress_bar("read records", path.stat().st_size, unit="bytes") as advance:
            at = told = 0
            for number, line in enumerate(file, start=1):
                digest.update(line)
                if line.strip():
                    try:
                        labels.append(_LABELS.index(decoder.decode(line).disruption_label))
                    except (ValueError, msgspec.MsgspecError) as error:
                        raise SciSciRLError(
                            f"{path}, line {number:,}: {error}. Each line needs an openalex_id, publication_year and "
                            f"cd_index (these two may be null), and a disruption_label, one of {', '.join(_LABELS)}. "
                            "Give the JSON lines of the published runs, unpacked."
                        ) from error
                    starts.append(at)
                at += len(line)
                if not number % 10_000:
                    advance(at - told)
                    told = at
    except OSError as error:
        raise SciSciRLError(f"{path} cannot be read: {os.strerror(error.errno or 0)}. Check the path.") from error
    if len(starts) < N_TRAIN + _N_TEST:
        raise SciSciRLError(
            f"{path} has {counted(len(starts), 'record')}, and the published runs took {N_TRAIN:,} to train and "
            f"{_N_TEST} to test. Give the whole file."
        )
    return Records(starts, labels, digest.hexdigest())


def find_shuffle(found: Records, path: Path) -> tuple[str, list[int]]:
    """Return the shuffle that leaves the published classes in test, and the records of train, then test, in its order.

    Raises:
        SciSciRLError: none does, or several do.
    """
    labels, n_each = np.frombuffer(found.labels, dtype=np.int8), dict[str, tuple[int, ...]]()
    orders: dict[str, list[int]] = {}
    for name, shuffle in SHUFFLES.items():
        order = shuffle(len(labels))[: N_TRAIN + _N_TEST]
        orders[name] = order.tolist()
        n_each[name] = tuple(np.bincount(labels[order[N_TRAIN:]], minlength=len(_LABELS)).tolist())
    wanted = tuple(PUBLISHED_TEST[label] for label in _LABELS)
    matching = [name for name, numbers in n_each.items() if numbers == wanted]
    if len(matching) == 1:
        return matching[0], orders[matching[0]]
    numbers = "; ".join(f"{name}: {_say(each)}" for name, each in n_each.items())
    if matching:
        raise SciSciRLError(
            f"{path}: {len(matching)} shuffles leave {_say(wanted)} in test, so it is not known which was published "
            f"({numbers}). Make a release without the published split: sciscidata build --labelled {path}."
        )
    raise SciSciRLError(
        f"{path}: no shuffle with seed 0 leaves the published {_say(wanted)} in test ({numbers}). These are other "
        f"records, or another order of them. Draw a split of your own: sciscidata build --labelled {path}."
    )


def _say(numbers: Iterable[int]) -> str:
    return ", ".join(f"{n} {label}" for n, label in zip(numbers, _LABELS, strict=True))


def _write(config: BuildConfig, rows: Path, stated: Mapping[str, Any]) -> Release:
    with open_source(config.source, config.cache_dir, config.api, is_scored=True) as source:
        scored = score(source, config.demand, config.measures)
        labelled, _ = label_works(scored, config.thresholds, None)
        drawn = _take_all(labelled, rows, config)
        labelled.facts.provenance.update(stated)
        manifest = describe(labelled, drawn, config, None)
        extra = partial(plot_pictures, labelled, drawn, manifest)
        return write_release(drawn.drawn, drawn.works, manifest, Target(config.out, config.overwrite, False, extra))


def _take_all(labelled: Scored, rows: Path, config: BuildConfig) -> Drawn:
    """Put every work into its split: the first into train, in the order of the rows."""
    ids = pl.scan_ndjson(glob.escape(str(rows)), schema={"openalex_id": pl.String}).collect()["openalex_id"]
    place = pl.int_range(len(ids), eager=True).cast(pl.UInt64)
    places = pl.DataFrame([number_ids(plain_ids(ids)).alias("work_id"), place.alias("split_key")])
    split = pl.when(pl.col("split_key") < N_TRAIN).then(pl.lit("train")).otherwise(pl.lit("test"))
    known = labelled.rows.collect()
    drawn = places.with_columns(split=split).join(known, on="work_id", maintain_order="left")
    by = ["publication_year", *VOCABULARIES]
    counts = count_works(
        known.group_by(by).agg(pl.len(), cited=pl.lit(0)).with_columns(removed_by=pl.lit(None, pl.String)), None, ()
    )
    return Drawn(drawn, labelled.works, known.lazy(), known.lazy(), counts, config.demand)
