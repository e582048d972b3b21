"""Check anything that this package has written; of a release, recompute all that its files allow.

Every ordinary read compares the SHA-256 of its file, too: ``Release`` in ``release.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.corpus.folder import INDEX, read_report, recorded_sums, scan_corpus
from sciscidata.corpus.scores import verify_scores
from sciscidata.errors import InputNotFoundError, VerificationError
from sciscidata.graph.graph import read_graph
from sciscidata.label_thresholds import (
    FIELD_YEAR,
    VOCABULARIES,
    LabelThresholds,
    compute_disruption_labels,
    compute_novelty_labels,
)
from sciscidata.novelty.background import METADATA_KEY, read_background
from sciscidata.own_label import OwnLabel, stated_label
from sciscidata.records.duplicates import normalise_title
from sciscidata.records.ids import number_ids
from sciscidata.release.context import released_schema
from sciscidata.release.export import REPORT, verify_labelled
from sciscidata.release.manifest import (
    DOCUMENTS,
    MANIFEST,
    describe_examples,
    describe_file,
    describe_given_split,
    lacks_scores,
    list_files,
    of_a_stranger,
)
from sciscidata.release.read import (
    REMEDY,
    SCORES_FILE,
    Release,
    list_data_files,
    list_splits,
    read_manifest,
    read_settings,
)
from sciscidata.release.recompute import Recomputed, check_rows, check_scores, list_recomputed
from sciscidata.release.write_json_lines import render_jsonl
from sciscidata.sampling.balance import class_quotas
from sciscidata.sampling.config import BOTH, SplitConfig
from sciscidata.sampling.split import balanced_columns, divide_pool, group_of_keys, list_cells, split_keys
from sciscidata.schemas import SCORES, SCORES_KEY
from sciscidata.storage import is_whole_folder
from sciscidata.storage.lock import read_steadily
from sciscidata.storage.parquet import is_parquet
from sciscidata.storage.sums import SUMS, find_changed, find_damaged
from sciscidata.terminal.messages import counted


def verify_release(folder: str | Path) -> Release:
    """Recompute everything that a manifest states, and everything that makes a folder a release.

    A VerificationError lists every difference; documents may have been changed, and what hubs add may be there. Without
    balance, the draw follows from all eligible works, which a release does not hold. With ``scores.parquet``, the CD
    index follows from its counts, and sigmoids and Uzzi's labels from its z; ranks have the order of z.
    """
    return read_steadily(Path(folder), partial(_verify_release, Path(folder)))


def _verify_release(folder: Path) -> Release:
    release = Release(folder, read_manifest(folder))
    with of_a_stranger(folder):
        differences = list(_differences(release))
    if differences:
        listed = "".join(f"\n- {difference}" for difference in differences)
        raise VerificationError(f"{folder} differs from its {MANIFEST} in {len(differences)} points:{listed}\n{REMEDY}")
    return release


def _differences(release: Release) -> Iterator[str]:
    folder, manifest = release.folder, release.manifest
    label = stated_label(manifest)
    columns = released_schema(manifest)
    strange = [name for name in list_files(folder) if not (folder / name).is_file()]
    if strange:  # a pipe would be waited for, and a device never ends
        yield from (f"{name} is no file" for name in strange)
        return
    yield from _compare_files(folder, manifest)
    examples: dict[str, pl.DataFrame] = {}
    splits = list_splits(manifest)
    for split in splits:
        try:
            examples[split] = _read_parquet(folder / f"{split}.parquet")
        except (OSError, ValueError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            yield f"{split}.parquet cannot be read: {error}"
            continue
        yield from _compare_columns(f"{split}.parquet", examples[split], columns, "EXAMPLE")
    if list(examples) != list(splits) or any(frame.schema != columns for frame in examples.values()):
        return
    described = describe_examples(examples, label)
    for key, found in described.items():
        yield from _compare(found, manifest.get(key), key)
    is_by_rank = bool(manifest["thresholds"].get("cells"))
    has_gaps = is_by_rank or _has_trusted_labels(manifest) or lacks_scores(manifest)
    yield from _check_counts(manifest.get("counts", {}), described["class_counts"], has_gaps=has_gaps)
    thresholds, settings = read_settings(manifest)
    if list(settings.sizes) != list(splits):
        yield f"sides: the manifest counts {', '.join(splits)}, its split asks for {', '.join(settings.sizes)}"
        return
    scores = yield from _read_scores(release, examples)
    done = list_recomputed(manifest).done
    is_given = describe_given_split(manifest) is not None  # no hash decides on the split of others
    for split, frame in examples.items():
        yield from _compare_jsonl(folder / f"{split}.jsonl", frame)
        z = None
        if scores is not None:
            beside = scores.filter(split=split).drop("openalex_id", "split")
            z = beside.select("z_p10", "z_median") if manifest.get("atypicality") else None
            yield from (f"{split}: {wrong}" for wrong in check_scores(frame.hstack(beside), manifest, done))
        if not _has_trusted_labels(manifest):
            yield from _check_labels(split, frame, thresholds, manifest.get("atypicality"), z)
        if not is_given:
            yield from _check_places(split, frame, settings)
        if label is not None:
            yield from _check_own_label(split, frame, label)
    if not is_given:
        yield from _check_groups(examples, settings, label)
    for first, second in combinations(splits, 2):
        yield from _check_apart(examples[first], examples[second], by_title=not is_given)


def _read_scores(release: Release, examples: Mapping[str, pl.DataFrame]) -> Generator[str, None, pl.DataFrame | None]:
    """Return the file of scores; None if there is none, or it does not fit the splits."""
    if SCORES_FILE not in list_data_files(release.manifest):
        return None
    try:
        scores = _read_parquet(release.folder / SCORES_FILE)
    except (OSError, ValueError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        yield f"{SCORES_FILE} cannot be read: {error}"
        return None
    wrong = list(_compare_columns(SCORES_FILE, scores, SCORES, "SCORES") or check_rows(scores, examples))
    yield from wrong
    return None if wrong else scores


def _compare_columns(file: str, frame: pl.DataFrame, schema: pl.Schema, named: str) -> list[str]:
    there = frame.schema
    if there == schema:
        return []
    wrong = [f"{name} {dtype}" for name, dtype in there.items() if schema.get(name) != dtype]
    wrong += [f"no {name}" for name in schema if name not in there]
    return [f"{file} has other columns than {named}: {', '.join(wrong) or 'another order'}"]


def _read_parquet(path: Path) -> pl.DataFrame:
    # Damaged bytes may decode to names, texts and metadata that are not UTF-8, on which Polars panics. So pyarrow looks
    # at the first two, and the third is not needed.
    table = pq.ParquetFile(path).read().replace_schema_metadata(None)
    table.validate(full=True)
    fields = [field.remove_metadata() for field in table.schema]
    return pl.DataFrame(pl.from_arrow(table.cast(pa.schema(fields))))


def _compare_files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    stated: dict[str, Any] = manifest["files"]
    there = set(list_files(folder)) - {MANIFEST}
    expected = {*list_data_files(manifest), *stated}
    yield from (f"{name} is missing" for name in sorted(expected - there))
    yield from (f"{name} is not part of the release" for name in sorted(there - expected - {*DOCUMENTS}))
    for name in sorted((there & expected) - {*DOCUMENTS}):
        yield from _compare(describe_file(folder / name), stated.get(name), name)


def list_changed(release: Release) -> Iterator[str]:
    """Name the documents of a release that are not as the manifest has them: changed or added since."""
    for name in DOCUMENTS:
        path = release.folder / name
        if path.is_file() and describe_file(path) != release.manifest["files"].get(name):
            yield name


def _compare(found: Any, stated: Any, where: str) -> Iterator[str]:  # noqa: ANN401 (JSON)
    """Compare what was recomputed with what the manifest states, leaf by leaf."""
    if isinstance(found, dict) and isinstance(stated, dict):
        left, right = cast("dict[str, Any]", found), cast("dict[str, Any]", stated)
        for key in {**left, **right}:
            yield from _compare(left.get(key), right.get(key), f"{where}: {key}")
    elif found != stated:
        yield f"{where}: the manifest says {stated!r}, found {found!r}"


def _compare_jsonl(path: Path, frame: pl.DataFrame) -> Iterator[str]:
    try:
        expected = render_jsonl(frame)
        with path.open("rb") as file:
            got = file.read(len(expected) + 1)  # whatever else is there differs anyway
    except (ValueError, OSError) as error:
        yield f"{path.name} cannot be compared with {path.stem}.parquet: {error}"
        return
    if got != expected:
        lines = zip_longest(got.split(b"\n"), expected.split(b"\n"))
        first = next(number for number, (left, right) in enumerate(lines, start=1) if left != right)
        yield f"{path.name} line {first} is not the canonical form of row {first} of {path.stem}.parquet"


def _check_counts(
    counts: Mapping[str, Mapping[str, Any]], drawn: Mapping[str, Mapping[str, Mapping[str, int]]], *, has_gaps: bool
) -> Iterator[str]:
    """Check that the numbers of works add up; with ``has_gaps`` eligible works may lack a disruption label."""
    if "filters" in counts:
        works, *parts = counts["filters"]["works"], *(n for name, n in counts["filters"].items() if name != "works")
        if sum(parts) != works:
            yield f"counts: filters: removals and eligible add up to {sum(parts):,}, not to {works:,} works"
    if "eligible" in counts:
        total = sum(counts["eligible"]["disruption_label"].values())
        eligible = counts["filters"]["eligible"] if "filters" in counts else total
        if total > eligible or (total < eligible and not has_gaps):
            yield f"counts: eligible: the classes add up to {total:,}, not to {eligible:,}"
        for column, labels in counts["eligible"].items():
            for label, eligible in labels.items():
                n_drawn = sum(split[column][label] for split in drawn.values())
                scored = counts.get("scored", counts["eligible"])[column][label]
                if not n_drawn <= eligible <= scored:
                    yield f"counts: {label}: {n_drawn:,} drawn of {eligible:,} eligible of {scored:,} scored works"


def _has_trusted_labels(manifest: Mapping[str, Any]) -> bool:
    """Whether the labels were taken from files as they were (``LabelledConfig.labels``), whatever their scores."""
    return manifest.get("source", {}).get("labels") == "trust"


def _check_labels(
    split: str,
    frame: pl.DataFrame,
    thresholds: LabelThresholds,
    atypicality: Mapping[str, Any] | None,
    z: pl.DataFrame | None = None,
) -> Iterator[str]:
    """Recompute the labels, but those of Uzzi's rule where z is not known."""
    relabelled = compute_disruption_labels(frame, thresholds)
    if z is not None and thresholds.novelty_rule == "uzzi":
        cut = (atypicality or {}).get("conventionality_cut")  # null: no work has a z to compare with it
        beside = relabelled.collect().hstack(z)
        relabelled = compute_novelty_labels(beside, thresholds, cut=0.0 if cut is None else cut)
    elif thresholds.novelty_rule == "uzzi":
        is_scored = pl.col("novelty_score").is_not_null() & pl.col("conventionality_score").is_not_null()
        relabelled = relabelled.with_columns(pl.when(is_scored).then("novelty_label").alias("novelty_label"))
    else:
        relabelled = compute_novelty_labels(relabelled, thresholds)
    expected = relabelled.collect()
    for column in VOCABULARIES:
        wrong = frame.filter(~frame[column].eq_missing(expected[column]))["openalex_id"]
        if len(wrong):
            yield f"{split}: {column} of {counted(len(wrong), 'row')} contradicts the score, first {wrong[0]}"


def _check_places(split: str, frame: pl.DataFrame, settings: SplitConfig) -> Iterator[str]:
    ids = number_ids(frame["openalex_id"])
    if ids.null_count():
        yield f"{split}: {counted(ids.null_count(), 'work has', 'works have')} no id"
        return
    if repeated := len(ids) - ids.n_unique():
        first = ids.filter(ids.is_duplicated())[0]
        yield f"{split}: {counted(repeated, 'work has', 'works have')} the id of another, first {first}"
    keys = split_keys(ids, settings.seed)
    places = pl.DataFrame([keys, ids.alias("work_id")])
    if not places.equals(places.sort("split_key", "work_id")):
        yield f"{split}: rows are not in the order of their split keys"
    group = split if split in settings.groups else BOTH
    strays = frame.filter(group_of_keys(keys, settings, frame["primary_field"]).ne_missing(group))["openalex_id"]
    if len(strays):
        what = "the other split" if settings.is_stratified else "dev or to the other two"
        by = "field or id" if settings.test_fields else "id"
        yield f"{split}: {counted(len(strays), 'row belongs', 'rows belong')} to {what} by {by}, first {strays[0]}"
    if not settings.is_stratified and frame.height != settings.sizes[split]:
        yield f"{split}: {counted(frame.height, 'row')}, the split asks for {settings.sizes[split]:,}"


def _check_own_label(split: str, frame: pl.DataFrame, label: OwnLabel) -> Iterator[str]:
    strays = frame["openalex_id"].filter(~frame[label.name].is_in(label.classes).fill_null(value=False))
    if len(strays):
        classes = ", ".join(label.classes)
        yield f"{split}: {label.name} of {counted(len(strays), 'row')} is none of {classes}, first {strays[0]}"


def _check_groups(examples: Mapping[str, pl.DataFrame], settings: SplitConfig, label: OwnLabel | None) -> Iterator[str]:
    """Check the class quotas of each split, or of train and test together."""
    columns = balanced_columns(settings, label)
    for group, size in settings.groups.items() if columns else ():
        frame = examples[group] if group in examples else pl.concat([examples["train"], examples["test"]])
        drawn = {tuple(cell): count for *cell, count in frame.group_by(*columns).len().rows()}
        quotas = class_quotas(size, list_cells(settings, label))
        others = dict.fromkeys(drawn.keys() - quotas.keys() if settings.labels else (), 0)
        for cell, quota in (quotas | others).items():
            if drawn.get(cell, 0) != quota:
                name = " + ".join(map(str, cell))
                yield f"{group}: {counted(drawn.get(cell, 0), 'row')} of class {name}, the split asks for {quota:,}"
        yield from (
            _check_cells(group, frame, columns[0], [word for (word,) in list_cells(settings, label)])
            if settings.cell_columns
            else ()
        )
    ids = number_ids(pl.concat([examples["train"], examples["test"]])["openalex_id"])
    if not settings.is_stratified and not ids.null_count():
        keyed = pl.DataFrame([ids.alias("work_id"), split_keys(ids, settings.seed)])
        divided, n_train = divide_pool(keyed, settings), examples["train"].height
        n_wrong = int(pl.concat([divided.head(n_train) != "train", divided.slice(n_train) != "test"]).sum())
        if n_wrong:
            works = counted(n_wrong, "work belongs", "works belong")
            yield f"{BOTH}: {works} to the other split by the order of their keys"


def _check_cells(split: str, frame: pl.DataFrame, column: str, words: Sequence[str]) -> Iterator[str]:
    """Check that each cell of field and five years has equally many works of each class, but for one with the rest."""
    n_each = [(pl.col(column) == word).sum().alias(word) for word in words]
    drawn = frame.group_by(FIELD_YEAR).agg(n_each).iter_rows()
    uneven = sorted(cell for cell, *counts in drawn if len(set(counts)) > 1)
    if len(uneven) > bool(frame.height % len(words)):
        n_cells = counted(len(uneven), "cell")
        yield f"{split}: the classes of {n_cells} of field and five years are not equal, first {uneven[0]!r}"


def _check_apart(train: pl.DataFrame, test: pl.DataFrame, *, by_title: bool) -> Iterator[str]:
    keys = {"id": pl.col("openalex_id")} | ({"normalised title": normalise_title(pl.col("title"))} if by_title else {})
    for what, key in keys.items():
        left, right = (frame.select(key).to_series().drop_nulls().unique() for frame in (train, test))
        shared = left.filter(left.is_in(right.implode())).sort()
        if len(shared):
            yield f"{counted(len(shared), 'work lies', 'works lie')} in both splits by {what}, first {shared[0]!r}"


Kind: TypeAlias = Literal["release", "corpus", "graph", "export", "run", "cache", "scores", "background"]
#: The file by which each kind of folder is known. A graph is a folder of the cache too.
_MARKS: Final[dict[str, Kind]] = {
    "graph.json": "graph",
    REPORT: "export",
    INDEX: "corpus",
    MANIFEST: "release",
    "run.json": "run",
    "sweep.json": "run",
    SUMS: "cache",
}
#: The same for the metadata of Parquet files.
_KEYS: Final[dict[bytes, Kind]] = {SCORES_KEY: "scores", METADATA_KEY: "background"}
_ARTICLES: Final = {"export": "an"}
_KINDS = "a release, a corpus, a graph, an export, a file of scores or a background"


class Verified(NamedTuple):
    """What was checked, and what it holds: works of a release by split; rows or files of anything else.

    For a release, ``recomputed`` says which columns followed again from which numbers, and which did not and why;
    ``changed`` names documents that a hub or an author has changed.
    """

    kind: Kind
    path: Path
    counts: dict[str, int]
    recomputed: Recomputed | None = None
    changed: tuple[str, ...] = ()


def kind_of(path: str | Path) -> Kind:
    """Tell what lies at a path, from the names in a folder, or the first bytes and metadata of a file."""
    return read_steadily(Path(path), partial(_kind_of, Path(path)))


def _kind_of(path: Path) -> Kind:
    if path.is_dir():
        for mark, kind in _MARKS.items():
            if (path / mark).is_file():
                return kind
        return "corpus" if (path / "works").is_dir() else "release"  # or any other folder
    if not path.is_file():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        raise InputNotFoundError(f"{path} {what}. Give the path of {_KINDS}.")
    again = "If this package wrote it, remove it and repeat the command that wrote it."
    is_table = is_parquet(path)
    if is_table:
        try:
            metadata: dict[bytes, bytes] = pq.read_metadata(path).metadata or {}
        except (OSError, pa.ArrowException) as error:
            raise VerificationError(
                f"{path} is damaged: it begins as a Parquet file, but its end cannot be read. {again}"
            ) from error
        for key, kind in _KEYS.items():
            if key in metadata:
                return kind
    for folder in (path.parent, path.parent.parent):
        whole = next((kind for mark, kind in _MARKS.items() if (folder / mark).is_file()), None)
        if whole is not None:
            raise InputNotFoundError(
                f"{path} is a file of {_ARTICLES.get(whole, 'a')} {whole}. Give the path of the folder: {folder}."
            )
    if not is_table:
        raise InputNotFoundError(f"{path} is no Parquet file. Give the path of {_KINDS}.")
    raise InputNotFoundError(
        f"{path} is a Parquet file, but says neither that it holds scores nor that it is a background. {again}"
    )


def verify(path: str | Path) -> Verified:
    """Compare anything that this package has written with what it says of itself. Reads every byte.

    A release: recompute its labels, order, split, quotas, counts and hashes. With its ``scores.parquet``, recompute the
    scores, as far as the manifest says how. A corpus: the SHA-256 of its report and of every file. A graph, and any
    other folder of the cache: the SHA-256 of every file. A file of scores, or a background: its own SHA-256. An export:
    size and SHA-256.

    Args:
        path: the folder or file.

    Returns:
        ``kind``, ``path`` and ``counts``: works of a release by split, or rows, pairs or files of anything else. For a
        release also ``recomputed``: ``.done`` names columns, and the numbers that they were recomputed from; ``.left``
        the others, and why. And ``changed``: documents that were changed since.

    Raises:
        InputNotFoundError: nothing is there, or nothing that this package has written.
        VerificationError, StorageError, BackgroundError: it differs; the message names what differs.

    Example:
        >>> from sciscidata.novelty.background import VenuePairs, write_null_model
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
        >>> from tempfile import TemporaryDirectory
        >>> works, citations, _ = scan_synthetic(SyntheticConfig(n_works=500))
        >>> with TemporaryDirectory() as home:
        ...     verified = verify(write_null_model(VenuePairs.of(works, citations), f"{home}/pairs.parquet"))
        >>> verified.kind, verified.counts["pairs"] > 0
        ('background', True)
    """
    return read_steadily(Path(path), partial(_verify, Path(path)))


def _verify(path: Path) -> Verified:
    kind = _kind_of(path)
    if kind != "release":
        return Verified(kind, path, _CHECKS[kind](path))
    release = verify_release(path)
    counts = {split: facts["rows"] for split, facts in release.manifest["sides"].items()}
    changed = tuple(list_changed(release))
    if changed and read_manifest(path) != release.manifest:
        raise VerificationError(f"{path} was replaced by another release while it was read. Verify it again.")
    return Verified(kind, path, counts, list_recomputed(release.manifest), changed)


def _verify_corpus(path: Path) -> dict[str, int]:
    provenance = scan_corpus(path).provenance
    sums = recorded_sums(read_report(path)[0])
    damaged = find_damaged(path, sums)
    if damaged:
        listed = "".join(f"\n- {name}" for name in damaged)
        raise VerificationError(
            f"{path}: {len(damaged):,} of {len(sums):,} files are damaged or missing:{listed}\n"
            "Run the same ingest again: it replaces these files."
        )
    counts = {name: provenance[name] for name in ("works", "citations") if isinstance(provenance.get(name), int)}
    return {**counts, "files": len(sums)}


def _verify_graph(path: Path) -> dict[str, int]:
    graph = read_graph(path)
    return {"works": graph.n_known, "citations": graph.n_citations}


def _verify_cache(path: Path) -> dict[str, int]:
    if not is_whole_folder(path):
        raise VerificationError(
            f"{path} is damaged: its files differ from {SUMS}. Remove it. The next run that needs it makes it anew."
        )
    return {"files": sum(1 for _ in path.iterdir()) - 1}


def _verify_run(path: Path) -> dict[str, int]:
    """Compare the files of a run, an evaluation or a sweep with every list in it."""
    lists = sorted(path.rglob(SUMS))
    if not lists:
        raise VerificationError(f"{path} has no {SUMS}, so there is nothing to compare its files with.")
    changed = [str((one.parent / name).relative_to(path)) for one in lists for name in find_changed(one.parent)]
    if changed:
        raise VerificationError(
            f"{path}: {len(changed):,} files are damaged or missing, for example {changed[0]}. Put them back."
        )
    return {"lists": len(lists)}


def _verify_background(path: Path) -> dict[str, int]:
    counts = read_background(path).counts
    return {"years": counts.height, "pairs": int(counts["n_pairs"].sum())}


_CHECKS: Final[Mapping[Kind, Callable[[Path], dict[str, int]]]] = {
    "corpus": _verify_corpus,
    "graph": _verify_graph,
    "run": _verify_run,
    "cache": _verify_cache,
    "scores": lambda path: {"works": verify_scores(path)["rows"]},
    "background": _verify_background,
    "export": lambda path: {"works": verify_labelled(path)["rows"]},
}
