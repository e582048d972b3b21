"""Compare two releases, corpora, files of scores or frames, work by work, and say whether they give the same result."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

import polars as pl

from sciscidata._support.quantiles import counted_quantiles
from sciscidata.changes.causes import CAUSES, Settings, find_changes
from sciscidata.changes.edits import MOST_CITATIONS, MOST_WORKS, Cited, name_edits
from sciscidata.changes.sides import KINDS, Scoring, Side, find_kind, open_side, refuse_two_kinds
from sciscidata.corpus.scores import is_done, write_scores
from sciscidata.diagnostics.diagnose import find_successors
from sciscidata.disruption.config import COMPAT, CDConfig
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.frames import AnyFrame
from sciscidata.judged import counts_in_both
from sciscidata.label_thresholds import LABELS_BY_INDEX, LabelThresholds
from sciscidata.options.checks import check_value, checked_config
from sciscidata.records.ids import ORIGINAL_ID, require_one_row_each
from sciscidata.release.read import Release
from sciscidata.remote.object_store import refuse_url
from sciscidata.schemas import CHANGES, COMPARED
from sciscidata.stages import Conventions, Windows, find_measure
from sciscidata.storage import refuse_input, refuse_unwritable
from sciscidata.terminal.messages import counted, shorten
from sciscidata.terminal.progress import progress_bar
from sciscidata.terminal.shares import percent

_ROWS_AT_ONCE: Final = 1 << 20  # of both sides together
_SHARES: Final = (0.5, 0.9, 0.99, 1.0)
_TALLIED: Final = ("status", "split_a", "split_b", "judged_a", "judged_b", "label_a", "label_b", "moved", "cause")
#: Options of CDConfig that change no CD index.
_BESIDE: Final = ("family", "di_l", "windows")
_NO_LABEL: Final = "no label"
_ORDER: Final[Mapping[str | None, int]] = {name: place for place, name in enumerate((*LABELS_BY_INDEX, None))}
_COUNTS: Final = counts_in_both()
_NO_DATA: Final = "whether the data are the same; A or B does not state its corpus. Score a corpus on disk."


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Comparison:
    """What changed between A and B; printed, it says so.

    Attributes:
        a: the name of A.
        b: the name of B.
        kind: what both are: release, corpus, scores or frame.
        settings: settings that differ: ``setting``, ``a`` and ``b`` (String).
        changes: CHANGES, one row per work of A or B, by work_id; lazy.
        steps: by how much the index of judged works in both moved, where it did: ``share`` and ``quantile`` of its
            absolute change.
        tally: works (``n``) by status, splits, whether they are judged, labels, cause, and ``is_other_index``.
        remarks: what could not be told, and why.
    """

    a: str
    b: str
    kind: str
    settings: pl.DataFrame
    changes: pl.LazyFrame
    steps: pl.DataFrame
    tally: pl.DataFrame
    remarks: tuple[str, ...] = ()

    @property
    def works(self) -> dict[str, int]:
        """How many works are kept, gained, lost and merged."""
        return {word: self._count(pl.col("status") == word) for word in ("kept", "gained", "lost", "merged")}

    @property
    def labels(self) -> pl.DataFrame:
        """Works of both sides, judged in both, by the two labels: ``label_a``, ``label_b``, ``n``."""
        found = self.tally.filter(_COUNTS).group_by("label_a", "label_b").agg(pl.col("n").sum())
        order = [pl.col(name).replace_strict(_ORDER, default=9) for name in ("label_a", "label_b")]
        return found.sort(*order, "label_a", "label_b")

    @property
    def causes(self) -> pl.DataFrame:
        """What moved labels of works judged in both: ``cause``, ``n``, the most frequent first."""
        found = self.tally.filter(_COUNTS, "moved").group_by("cause").agg(pl.col("n").sum())
        return found.sort("n", "cause", descending=[True, False])

    @property
    def splits(self) -> pl.DataFrame:
        """Works of both releases by the two splits: ``split_a``, ``split_b``, ``n``."""
        found = self.tally.filter(status="kept").drop_nulls(["split_a", "split_b"])
        return found.group_by("split_a", "split_b").agg(pl.col("n").sum()).sort("split_a", "split_b")

    @property
    def is_same(self) -> bool:
        """Whether A and B have the same works, indices and labels."""
        others = (pl.col("status") != "kept") | pl.col("moved") | pl.col("is_other_index")
        return not self._count(others | (pl.col("split_a") != pl.col("split_b")))

    @property
    def verdict(self) -> str:
        """One line: whether a result may be reported as the same."""
        if self.is_same:
            return "Same works, same labels: report as the same."
        works, n_both, flow = self.works, self._count(_COUNTS), self._flow
        moved, other = self._count(_COUNTS & pl.col("moved")), self._count(_COUNTS & pl.col("is_other_index"))
        both = f"{counted(n_both, 'paper' if self.kind == 'release' else 'work')} {'judged ' if flow else ''}in both"
        ways = {"came": works["gained"], "went": works["lost"], "merged into another": works["merged"]}
        came = ", ".join(f"{n:,} {word}" for word, n in ways.items() if n)
        parts = []
        if flow and flow["became"]:
            other_label = f", {flow['became with another label']:,} of them with another label"
            parts.append(f"{flow['became']:,} became judged{other_label}")
        if flow and flow["ceased"]:
            parts.append(f"{flow['ceased']:,} {'is' if flow['ceased'] == 1 else 'are'} no longer judged")
        if moved:
            has = "has" if moved == 1 else "have"
            text = f"Not the same: {moved:,} of {both} ({percent(moved / n_both, 1)}) {has} another label"
        elif other:
            text = f"Same labels, other indices: {other:,} of {both} {'has' if other == 1 else 'have'} another index"
        else:
            text = f"Same labels, other works: {both} have the same label and index"
            if not came:
                text = (
                    f"Same works: {both} have the same label and index, but works that are not judged or splits differ"
                )
        return "; ".join([text, *parts, *([came] if came else [])]) + "."

    @property
    def _flow(self) -> dict[str, int]:
        """Count works by whether they are judged, in A, in B and in both; empty if that is not known."""
        kept, (a, b) = pl.col("status") == "kept", (pl.col("judged_a"), pl.col("judged_b"))
        if not self._count(kept & a.is_not_null() & b.is_not_null()):
            return {}
        which = {
            "in A": a,
            "in B": b,
            "in both": kept & a & b,
            "became": kept & ~a & b,
            "became with another label": kept & ~a & b & pl.col("moved"),
            "ceased": kept & a & ~b,
            "only B has": ~kept & b,
            "only A has": ~kept & a,
        }
        return {name: self._count(of) for name, of in which.items()}

    def _count(self, which: pl.Expr) -> int:
        return int(self.tally.filter(which)["n"].sum())

    def __repr__(self) -> str:
        """Say in lines what changed."""
        return "\n".join(self.describe())

    def describe(self) -> list[str]:
        """Return the lines: what is compared, settings that differ, the verdict, works, labels, causes, splits."""
        is_frame = self.kind == "frame"
        lines = ["compared: two frames, A and B" if is_frame else f"compared: {self.a} (A) and {self.b} (B)"]
        lines += [f"  {name}: {one} in A, {other} in B" for name, one, other in self.settings.rows()]
        if self.settings.is_empty() and not is_frame:
            known = "settings: the same, as far as both state them; data: not known"
            if _NO_DATA not in self.remarks:
                known = "settings and data: the same, as far as both state them"
            lines.append(f"  {known}")
        lines += [self.verdict, *self._describe_works(), *self._describe_labels(), *self._describe_index()]
        if self.kind == "release":
            splits = self.splits
            n, moved = (
                int(some["n"].sum()) for some in (splits, splits.filter(pl.col("split_a") != pl.col("split_b")))
            )
            lines.append(f"splits: {moved:,} of {counted(n, 'paper')} of both moved to another split")
            if moved:
                lines.append(
                    "  a paper keeps its split only where seed and sizes are the same, and classes are drawn apart"
                )
        return lines + [f"not told: {remark}" for remark in self.remarks]

    def _describe_works(self) -> Iterator[str]:
        works = self.works
        merged = f", {works['merged']:,} merged into another" if works["merged"] else ""
        yield f"works: {works['kept']:,} in both, {works['gained']:,} only in B, {works['lost']:,} only in A{merged}"
        if flow := self._flow:
            yield f"judged: {flow['in A']:,} in A, {flow['in B']:,} in B; {flow['in both']:,} in both, counted below"
            if now := flow["became"]:
                other = flow["became with another label"]
                yield f"  became judged: {now:,}, of which {other:,} have another label than before"
            if flow["ceased"]:
                yield f"  no longer judged: {flow['ceased']:,}"
            yield from (
                f"  judged works that {name}: {flow[name]:,}" for name in ("only B has", "only A has") if flow[name]
            )
            if unlabelled := flow["in both"] - self._count(_COUNTS):
                yield f"  judged in both, without a label: {unlabelled:,}"

    def _describe_labels(self) -> Iterator[str]:
        labels, causes = self.labels, self.causes
        if labels.is_empty():
            return
        n, moved = labels["n"].sum(), causes["n"].sum()
        yield f"labels: {moved:,} of {n:,}{' judged in both' if self._flow else ''} moved (A down, B across)"
        names = [name for name in _ORDER if name in {*labels["label_a"], *labels["label_b"]}]
        names += sorted({*labels["label_a"], *labels["label_b"]} - {*names})
        cells = {(one, other): n for one, other, n in labels.iter_rows()}
        table = [["", *(name or _NO_LABEL for name in names)]]
        table += [[one or _NO_LABEL, *(f"{cells.get((one, other), 0):,}" for other in names)] for one in names]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for first, *rest in table:
            yield "  ".join(["", first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])])
        if moved:
            yield "why they moved:"
            yield from (f"  {n:,}: {CAUSES[cause]} ({cause})" for cause, n in causes.iter_rows())

    def _describe_index(self) -> Iterator[str]:
        with_index = _COUNTS & pl.col("is_other_index").is_not_null()
        n, moved = self._count(with_index), self._count(with_index & pl.col("is_other_index"))
        if not n:
            return
        names = ("median", "p90", "p99", "most")
        steps = zip(self.steps["quantile"], names, strict=True)
        by = ", ".join(f"{step:.3g} ({name})" for step, name in steps) if moved else ""
        yield f"index: {moved:,} of {n:,}{' judged in both' if self._flow else ''} moved{by and f', by {by}'}"


def compare(
    a: str | Path | Release | AnyFrame,
    b: str | Path | Release | AnyFrame,
    *,
    conventions: Conventions = (),
    windows: Windows = (),
    thresholds: LabelThresholds | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    cache_dir: str | Path | None = None,
) -> Comparison:
    """Compare two releases, corpora, files of scores or frames: works, labels, and the counts that moved them.

    Args:
        a: a release, a corpus, a file of CD indices, a Parquet file of ``score --ids``, or a frame of
            ``compute_cd_index``. A frame may also have publication_year and doi of its works, and labels.
        b: another one of the same kind. Or the same corpus, with two ``conventions`` or ``windows``.
        conventions: by which corpora are scored, one name for both, or one each: ``"default"``, or of
            ``CDConfig.compat``. Empty: the default.
        windows: years of the citation window of corpora, one for both, or one each. Empty: those of the convention.
        thresholds: labels of scores and corpora; ``LabelThresholds()`` when None. Releases state theirs.
        out: Parquet file to write, one row per work. None: no file.
        overwrite: replace another file of scores in ``out``; never what is compared.
        cache_dir: keep graphs and scores of corpora here. None: in the folder ``cache`` of each corpus.

    Returns:
        A Comparison, which prints what changed. ``.verdict`` says in one line whether a result may be reported as the
        same. ``.changes`` (CHANGES, lazy) has one row per work, by work_id: status, both labels, indices and counts,
        and the cause of a label that moved. ``.labels``, ``.causes``, ``.splits`` and ``.settings`` are small frames.
        Labels are counted of works that are judged in both. A work of A was merged if B lacks it, and one work of B has
        its DOI, as ``find_successors`` infers.

    Raises:
        ConfigError: the two are of two kinds, or of one that has no scores; they are one path, so nothing can have
            changed; or conventions are given for what is scored already.
        SchemaMismatchError: a frame lacks ``work_id`` or the columns of CD_SCORES.
        EmptyInputError: the two have no work in common.
        StorageError: ``out`` is A or B, or lies in one of them.
        InputNotFoundError, VerificationError, ReleaseExistsError: as what is read or written raises.

    Example:
        >>> scores = pl.DataFrame({"work_id": [1, 2], "n_i": [1, 0], "n_j": [0, 1], "n_k": [1, 1],
        ...     "cd_index": [0.5, -0.5]})
        >>> later = scores.with_columns(n_i=pl.Series([1, 2]), cd_index=pl.Series([0.5, 0.25]))
        >>> found = compare(scores, later)
        >>> found.verdict
        'Not the same: 1 of 2 works judged in both (50.0 %) has another label.'
        >>> found.causes.rows()
        [('new_citers', 1)]
    """
    rule = checked_config(thresholds, LabelThresholds, name="thresholds")
    kinds = (find_kind(a), find_kind(b))
    refuse_two_kinds((a, b), kinds)
    configs = _read_configs(conventions, windows, kinds[0])
    _refuse_same(a, b, configs)
    if out is not None:
        refuse_url(out, "out")
        refuse_input(Path(out), "out", _list_paths(a, b))
        refuse_unwritable(Path(out))
    names = [str(side) if isinstance(side, str | Path) else letter for letter, side in (("A", a), ("B", b))]
    names = [str(s.folder) if isinstance(s, Release) else name for s, name in zip((a, b), names, strict=True)]
    one, other = (
        open_side(side, kinds[0], name, Scoring(config, rule, cache_dir))
        for side, name, config in zip((a, b), names, configs, strict=True)
    )
    sides = _in_memory(one), _in_memory(other)
    cited = _open_citations(*sides, configs)
    return _compare(*sides, cited, None if out is None else Path(out), overwrite=overwrite)


def _open_citations(a: Side, b: Side, configs: tuple[CDConfig, CDConfig]) -> Cited | None:
    """Open the citations of both sides, by which edits can be told apart; None where something else moves labels."""
    if a.graph is None or b.graph is None or a.thresholds is None or a.thresholds.cells or configs[0] != configs[1]:
        return None
    graphs = a.graph(), b.graph()
    if max(graph.n_citations for graph in graphs) > MOST_CITATIONS:
        return None
    return Cited(graphs, replace(configs[0], family=False), a.thresholds)


def _name_several(rows: pl.DataFrame, cited: Cited) -> pl.DataFrame:
    """Name what moved labels, of works for which the counts say that several edits may have."""
    works = rows.filter(cause="several")["work_id"].head(MOST_WORKS)
    with progress_bar("look why labels moved", works.len(), unit="works") as advance:
        named = name_edits(works, cited, advance)
    both = rows.join(named.rename({"cause": "told"}), on="work_id", how="left", maintain_order="left")
    return both.with_columns(pl.coalesce("told", "cause").alias("cause")).drop("told")


def _read_configs(conventions: Conventions, windows: Windows, kind: str) -> tuple[CDConfig, CDConfig]:
    """Return the convention of each side."""
    check_value("conventions", conventions, Conventions)
    check_value("windows", windows, Windows)
    for name, values in (("conventions", conventions), ("windows", windows)):
        if len(values) > 2:
            raise ConfigError(f"{name} has {len(values)} values, needs one for A and B, or one for each.")
        if values and kind != "corpus":
            raise ConfigError(f"{name}={values!r} has no effect: {KINDS[kind]} has its scores already. Leave it out.")
    configs: list[CDConfig] = []
    for side in (0, 1):
        name = conventions[min(side, len(conventions) - 1)] if conventions else "default"
        if name not in ("default", *COMPAT):
            raise ConfigError(f"there is no convention {name!r}, needs one of {', '.join(('default', *COMPAT))}.")
        options: dict[str, Any] = {**COMPAT.get(name, {}), "family": True}
        options |= {"window_years": windows[min(side, len(windows) - 1)]} if windows else {}
        configs.append(CDConfig(**options))
    return configs[0], configs[1]


def _list_paths(*sides: object) -> list[Path]:
    """Return where sides lie; frames lie nowhere."""
    return [
        Path(side.folder if isinstance(side, Release) else side)
        for side in sides
        if isinstance(side, str | Path | Release)
    ]


def _refuse_same(a: object, b: object, configs: tuple[CDConfig, CDConfig]) -> None:
    """Raise ConfigError if a path is given twice, and nothing can differ."""
    paths = _list_paths(a, b)
    is_same = a is b or (len(paths) == 2 and paths[0].resolve() == paths[1].resolve())
    if is_same and configs[0] == configs[1]:
        raise ConfigError(
            f"{paths[0] if paths else 'A'} is given twice, so nothing can have changed. Name another, or for a corpus "
            "two conventions or windows: conventions=('default', 'crossdi'), windows=(5, 10)."
        )


def _in_memory(side: Side) -> Side:
    """Read the rows of all but a file, which is read in parts, and check that they name each work once."""
    if side.kind in ("scores", "corpus"):
        return side
    rows = side.rows.collect(engine="streaming")
    require_one_row_each(rows["work_id"], f"compare: {side.name}")
    return side._replace(rows=rows.lazy())


def _compare(a: Side, b: Side, cited: Cited | None, out: Path | None, *, overwrite: bool) -> Comparison:
    settings = Settings(_cause_of_measure(a, b), _thresholds(a, b), a.known & b.known)
    own_ids = tuple({ORIGINAL_ID} & {*a.rows.collect_schema(), *b.rows.collect_schema()})
    nothing = pl.DataFrame(schema={"work_id": pl.Int64(), "successor_id": pl.Int64()})
    successors = nothing if a.dois is None or b.dois is None else find_successors(b.dois, a.dois)
    tallies: list[pl.DataFrame] = []
    changed: list[pl.DataFrame] = []

    def find(low: int | None, high: int | None) -> pl.DataFrame:
        left, right = (_whole(side, own_ids, low, high) for side in (a, b))
        rows = find_changes(left, right, successors, settings, own_ids)
        return rows if cited is None else _name_several(rows, cited)

    def batches() -> Generator[pl.DataFrame]:
        for low, high in pairwise(_cuts(a, b)):
            rows = find(low, high)
            marked = rows.with_columns(is_other_index=pl.col("cd_index_a") != pl.col("cd_index_b"))
            tallies.append(marked.group_by(*_TALLIED, "is_other_index").agg(n=pl.len()))
            step = (pl.col("cd_index_a") - pl.col("cd_index_b")).abs()
            changed.append(marked.filter(_COUNTS, "is_other_index").select(step=step))
            yield rows
        if not any("kept" in part["status"] for part in tallies):
            for side in (a, b):
                if side.rows.head(1).collect().is_empty():
                    raise EmptyInputError(f"compare: {side.name} has no work. Check the filters before.")
            raise EmptyInputError(
                f"{a.name} and {b.name} have no work in common, so there is nothing to compare. Are they of one source?"
            )

    differing = _list_settings(a, b)
    if out is None:
        changes = pl.concat(batches()).lazy()
    else:
        facts = _state(a, b, differing)
        is_done(out, facts, overwrite=overwrite)
        with closing(batches()) as rows:
            changes = pl.scan_parquet(write_scores(rows, out, facts, replace=out.exists()), glob=False)
    tally = pl.concat(tallies).group_by(*_TALLIED, "is_other_index").agg(n=pl.col("n").sum().cast(pl.Int64))
    return Comparison(
        a=a.name,
        b=b.name,
        kind=a.kind,
        settings=differing,
        changes=changes,
        steps=_find_steps(pl.concat(changed)),
        tally=tally.sort(pl.all()),
        remarks=tuple(_list_remarks(a, b)),
    )


def _cause_of_measure(a: Side, b: Side) -> str:
    """Return how the computation of the index differs, as a cause; "" if it does not, or nothing states it."""
    if a.measure is None or b.measure is None:
        return ""
    one, other = a.measure, b.measure
    differing = {name for name in {*one, *other} if one.get(name) != other.get(name)} - {*_BESIDE}
    if not differing:
        return ""
    if not a.data or a.data != b.data:
        return "several"
    return "window" if differing == {"window_years"} else "convention"


def _thresholds(a: Side, b: Side) -> tuple[LabelThresholds, LabelThresholds] | None:
    return None if a.thresholds is None or b.thresholds is None else (a.thresholds, b.thresholds)


def _whole(side: Side, own_ids: tuple[str, ...], low: int | None, high: int | None) -> pl.DataFrame:
    """Read the works with ids from ``low`` up to ``high``, with every column of COMPARED."""
    there = {*side.rows.collect_schema()}
    absent = {name: dtype for name, dtype in COMPARED.items() if name not in there}
    absent |= {name: pl.String() for name in (*own_ids, "primary_field") if name not in there}
    rows = side.rows.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in absent.items())
    work_id = pl.col("work_id")
    rows = rows if low is None else rows.filter(work_id >= low)
    rows = rows if high is None else rows.filter(work_id < high)
    return rows.select("work_id", *own_ids, "primary_field", *COMPARED).collect(engine="streaming")


def _cuts(a: Side, b: Side) -> list[int | None]:
    """Return ids between which both sides have few enough works for memory; None is no bound."""
    ids = pl.concat([side.rows.select("work_id") for side in (a, b)])
    n: int = ids.select(pl.len()).collect(engine="streaming").item()
    n_parts = -(-n // _ROWS_AT_ONCE)
    if n_parts < 2:
        return [None, None]
    shares = [part / n_parts for part in range(1, n_parts)]
    numbers = ids.select(pl.lit(0).alias("all"), pl.col("work_id").cast(pl.Float64))
    return [None, *sorted({int(cut) for cut in counted_quantiles(numbers, "all", shares)["lower"]}), None]


def _find_steps(changed: pl.DataFrame) -> pl.DataFrame:
    """Return quantiles of the absolute change of the index, of works where it changed."""
    step = pl.col("step")
    found = changed.select(step.quantile(share, "linear").alias(str(share)) for share in _SHARES).row(0)
    return pl.DataFrame({"share": _SHARES, "quantile": found}, schema={"share": pl.Float64, "quantile": pl.Float64})


def _list_settings(a: Side, b: Side) -> pl.DataFrame:
    """List the settings that differ."""
    is_known = bool(a.data and b.data)
    names = [name for name in dict.fromkeys([*a.stated, *b.stated]) if is_known or not name.startswith("source ")]
    rows = [
        (name, *(_write(name, side.stated.get(name)) for side in (a, b)))
        for name in names
        if a.stated.get(name) != b.stated.get(name)
    ]
    if is_known and a.data != b.data and not any(name.startswith("source ") for name, *_ in rows):
        rows.append(("source sha256", *(_write("sha256", side.data) for side in (a, b))))
    return pl.DataFrame(rows, schema=dict.fromkeys(("setting", "a", "b"), pl.String()), orient="row")


def _write(name: str, value: Any) -> str:  # noqa: ANN401 (JSON)
    if value is None:
        return "none"
    if isinstance(value, list | dict):
        return shorten(", ".join(_name_entry(one) for one in cast("Any", value)) or "none", 60)
    if type(value) is int and "year" not in name and name != "seed":
        return f"{value:,}"
    text = str(value)
    return shorten(text, 12 if name.endswith("sha256") else 60)


def _name_entry(one: Any) -> str:  # noqa: ANN401 (JSON)
    """Name an entry of a list, for example a file that was read."""
    if isinstance(one, dict) and "name" in one:
        return f"{one['name']} (sha256 {str(one.get('sha256'))[:8]})"
    return str(one)


def _state(a: Side, b: Side, differing: pl.DataFrame) -> dict[str, Any]:
    """State in a file of changes what was compared, and which settings differ."""
    return {
        "stage": "changes",
        "format_version": find_measure("changes").version,
        "config": {name: f"{one} | {other}" for name, one, other in differing.rows()},
        "source": f"{a.name} and {b.name}",
    }


def _list_remarks(a: Side, b: Side) -> Iterator[str]:
    """Say what could not be told."""
    if a.kind == "scores" and not (a.data and b.data):
        yield _NO_DATA
    needed = {"publication_year": "changed years", "n_references": "new and lost references"}
    lacks = [what for name, what in needed.items() if name not in a.known & b.known]
    lacks += ["merged works"] if a.dois is None or b.dois is None else []
    remedy = {"scores": "Compare the corpora.", "frame": "Join them from the works."}.get(a.kind, "")
    if lacks:
        text = f"{', '.join(lacks)}; A or B lacks what says so."
        is_years = "publication_year" not in a.known & b.known
        yield f"{text}{' A cause above may be one of these.' if is_years else ''} {remedy}".strip()
    if not {"n_i", "n_j"} <= a.known & b.known:
        yield "why labels moved, and which works are judged; A or B has no counts of citers"


assert {*_TALLIED} <= {*CHANGES}
