"""Write the scores of a list of ids into a file, whole or not at all, and say before what it would take."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import polars as pl

from sciscidata.by_id.score_ids import ID_SCORES, count_reasons, find_graph, make_rules, score_ids
from sciscidata.config import BuildConfig
from sciscidata.corpus.folder import CorpusConfig
from sciscidata.corpus.scores import find_result, state_facts, write_scores
from sciscidata.errors import ConfigError, ReleaseExistsError
from sciscidata.remote.object_store import refuse_url
from sciscidata.sources.id_files import read_ids
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.registry import find_source
from sciscidata.storage import atomic_file, hash_file, refuse_unwritable
from sciscidata.storage.parquet import is_parquet

#: How a file of ours begins: its first columns.
_FIRST: Final = tuple(ID_SCORES)[:3]
_PRIORS: Final = {
    "corpus": "that of all works of the source",
    "shipped": "the shipped one, of other works",
    "given": "the one given",
}


def write_id_scores(config: BuildConfig, prior: str) -> list[str]:
    """Score the ids of ``config.ids`` into ``config.out``: CSV for people, or Parquet. Return lines that say so."""
    out = config.out
    _check_out(out, overwrite=config.overwrite)
    assert config.ids is not None  # the command requires it
    facts = _state(config, prior)
    rows = score_ids(
        config.ids,
        config.source,
        cd=config.cd,
        thresholds=config.thresholds,
        prior=prior,
        background=config.background,
        novelty=config.novelty,
        id_column=config.id_column,
        cache_dir=config.cache_dir,
        api=config.api,
    )
    if out.suffix == ".csv":
        with atomic_file(out, overwrite=config.overwrite, recheck=lambda: _check_ours(out)) as new:
            rows.write_csv(new)
    else:
        write_scores([rows], out, facts, replace=config.overwrite)
    lines = [f"ids: {rows.height:,}", *(f"  {name}: {n:,}" for name, n in count_reasons(rows).items())]
    for name, label in (("disruption", "disruption_label"), ("novelty", "novelty_label")):
        counts = rows.filter(pl.col("reason").is_null())[label].drop_nulls().value_counts().sort(label)
        if counts.height:
            lines.append(f"  {name}, of judged works: {', '.join(f'{word} {n:,}' for word, n in counts.rows())}")
    priors = rows["prior"].drop_nulls().unique()
    lines += [f"  label confidence and interval: prior {name}, {_PRIORS[name]}" for name in priors]
    return [*lines, "", f"scores: {out}", f"  {out.stat().st_size:,} bytes  sha256 {hash_file(out)}"]


def _state(config: BuildConfig, prior: str) -> dict[str, Any]:
    """State how ids are scored, and from which corpus; of another source, no hash is known before all is read."""
    assert config.ids is not None
    stated = config.cd.stated() | {"prior": Path(prior).name}
    if isinstance(config.source, CorpusConfig) and find_graph(config.source) is None:
        facts = state_facts("id_scores", 2, config.source.folder, stated)
    else:
        facts = {"stage": "id_scores", "format_version": 2, "config": stated}
    return facts | {"ids": config.ids.name}


def describe_plan(config: BuildConfig) -> list[str]:
    """Say what would be read, or asked of the API and for how much. The API gets a call for each hundred ids."""
    assert config.ids is not None
    listed = read_ids(config.ids, config.id_column)
    make_rules(config.cd, config.thresholds, "shipped", config.background, config.novelty)
    kinds = dict(listed.rows["kind"].fill_null("blank").value_counts(sort=True).iter_rows())
    lines = [f"ids: {listed.rows.height:,} ({', '.join(f'{kind} {n:,}' for kind, n in kinds.items())})"]
    if isinstance(config.source, OpenAlexConfig):
        from sciscidata.by_id.by_api import describe_cost

        lines += describe_cost(listed, config.cache_dir, config.api)
    else:
        folder = find_graph(config.source)
        name = f"the graph {folder}" if folder else find_source(config.source).measure(config.source).name
        lines.append(f"would read: {name}; no cost")
    state = "which exists" if config.out.exists() else "which is new"
    return [*lines, f"would write: {config.out}, {state}; nothing was written"]


def _check_out(out: Path, *, overwrite: bool) -> None:
    """Refuse a name without a format, and a file that may not be replaced, before anything is read."""
    refuse_url(out, "BuildConfig.out")
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(
            f"BuildConfig.out is {str(out)!r}, needs the name of a CSV or Parquet file, for example scores.csv."
        )
    if out.is_dir():
        raise ReleaseExistsError(f"{out} is a folder. Name a file to write, for example {out / 'scores.csv'}.")
    if out.exists() and not overwrite:
        raise ReleaseExistsError(f"{out} already exists. Choose another file, or replace it: overwrite=True.")
    _check_ours(out)
    refuse_unwritable(out)


def _check_ours(out: Path) -> None:
    """Refuse to replace a file that holds no scores of ids."""
    if not out.is_file():
        return
    with out.open("rb") as file:
        head = file.read(200)
    columns = find_result(out).get("columns", ()) if is_parquet(out) else head.decode("utf-8", "replace").split(",")
    if tuple(columns)[:3] != _FIRST:
        raise ReleaseExistsError(f"{out} holds no scores of ids, so it is not replaced. Choose another file.")
