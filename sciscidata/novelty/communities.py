"""Bridges between communities (Foster et al. 2015): how many pairs of references join two of them, and which there are.

Source: Foster, Rzhetsky & Evans 2015, American Sociological Review 80(5):875-908, doi:10.1177/0003122415601618. They
study pairs of chemicals in a network of chemicals. The package novelpy 1.4 turns this into a number: a work's novelty
is the share of its pairs that bridge two communities.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from sciscidata.errors import ConfigError, SchemaMismatchError, how_to_install
from sciscidata.frames import AnyFrame
from sciscidata.options.checks import check_value
from sciscidata.records.ids import require_one_row_each, with_original_ids
from sciscidata.schemas import CITATIONS, WORKS, require_columns

if TYPE_CHECKING:
    from sciscidata._kernels.arrays import Int64Array

_STAGE = "compute_foster_novelty"
Of = Literal["works", "venues"]
Method = Literal["louvain", "leiden", "infomap"]


def compute_foster_novelty(works: AnyFrame, citations: AnyFrame, *, community: str = "community") -> pl.LazyFrame:
    """Score every work by the share of its pairs of references that bridge two communities (Foster et al. 2015).

    Every two references of a work whose cited works have a community form a pair. It is a bridge if they differ.

    Limits: the score depends on how coarse the communities are. If they come from all years, they know the future. To
    predict anything, find them in the citations of earlier years. References without a community are missing.

    Args:
        works: ``work_id`` and a column of communities: those of ``find_communities``, or a field or topic.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        community: the column with the community of each work: whole numbers, text or an Enum; null is unknown.

    Returns:
        One row per work, unordered. n_pairs: Int64, pairs of references with a community. foster_novelty: Float64, the
        share of them that bridge two communities, 0 .. 1; high is novel; null without a pair.

    Raises:
        SchemaMismatchError: when called, if a column is missing or has another dtype.
        WorkIdError: at collect, if a work_id is null or repeated.

    Source: Foster, Rzhetsky & Evans 2015, doi:10.1177/0003122415601618, as novelpy 1.4 computes it.

    Example:
        Work 4 cites two works of community 7 and one of community 8.

        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4], "community": [7, 7, 8, None]})
        >>> citations = pl.LazyFrame({"citing_id": [4, 4, 4], "cited_id": [1, 2, 3]})
        >>> compute_foster_novelty(works, citations).filter(pl.col("work_id") == 4).collect().row(0)
        (4, 3, 0.6666666666666666)
    """
    works = require_columns(works, WORKS, frame_name="WORKS", stage=_STAGE, columns=["work_id"])
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=_STAGE)
    schema = works.collect_schema()
    if community not in schema:
        raise SchemaMismatchError(
            f"{_STAGE}: WORKS lacks column {community!r} (communities); it has {', '.join(schema)}. Add it: "
            ".join(find_communities(works, citations).lazy(), on='work_id', how='left')."
        )
    dtype = schema[community]
    if not (dtype.is_integer() or isinstance(dtype, pl.String | pl.Categorical | pl.Enum)):
        raise SchemaMismatchError(
            f"{_STAGE}: WORKS column {community!r} is {dtype}, needs whole numbers, text or an Enum. Cast it."
        )

    def score() -> pl.DataFrame:
        rows = works.select("work_id", community=community).collect(engine="streaming")
        require_one_row_each(rows["work_id"], _STAGE)
        known = rows.lazy().drop_nulls("community").rename({"work_id": "cited_id"})
        references = _distinct(citations).join(known, on="cited_id")
        n = pl.col("n").cast(pl.Int64)
        per_community = references.group_by("citing_id", "community").agg(n=pl.len())
        per_work = per_community.group_by("citing_id").agg(
            n_pairs=n.sum() * (n.sum() - 1) // 2, n_inside=(n * (n - 1) // 2).sum()
        )
        bridges = pl.col("n_pairs") - pl.col("n_inside")
        found = rows.lazy().select("work_id").join(per_work, left_on="work_id", right_on="citing_id", how="left")
        return found.select(
            "work_id",
            pl.col("n_pairs").fill_null(0),
            foster_novelty=pl.when(pl.col("n_pairs") > 0).then(bridges / pl.col("n_pairs")),
        ).collect(engine="streaming")

    result = pl.Schema({"work_id": pl.Int64(), "n_pairs": pl.Int64(), "foster_novelty": pl.Float64()})
    return with_original_ids(pl.defer(score, schema=result), works)


def find_communities(
    works: AnyFrame,
    citations: AnyFrame,
    *,
    of: Of = "venues",
    method: Method = "louvain",
    seed: int = 0,
) -> pl.DataFrame:
    """Find communities in a citation graph, and name that of each work. Needs igraph (extra ``communities``).

    Args:
        works: WORKS; only work_id and, for venues, source_id are read.
        citations: CITATIONS, in any order; ignored are repeats, works that cite themselves, and works not in ``works``.
        of: what is linked. ``"venues"``: venues that works cite together, by how many pairs of references join them
            (Foster's network, with venues for chemicals). ``"works"``: works that cite each other, each link once.
        method: ``"louvain"`` and ``"leiden"`` find communities of high modularity. ``"infomap"`` finds those that
            describe random walks in few bits, as in the paper.
        seed: of the random numbers that the methods draw.

    Returns:
        work_id, community (Int32), one row per work, sorted by work_id. 0 is the community with most works, then the
        one with the lowest work_id. Null for a work (or a venue) without a link.

    Raises:
        ConfigError: if igraph is not installed, or an option has another value.
        SchemaMismatchError: a column is missing or has another dtype.
        WorkIdError: a work_id is null or repeated.

    Memory: the graph, about 100 bytes per link. For venues, as many rows as all works have different pairs of venues.
    """
    check_value("of", of, Of)
    check_value("method", method, Method)
    check_value("seed", seed, int)
    try:
        igraph: Any = import_module("igraph")  # optional, so type checkers may not find it
    except ImportError:
        raise ConfigError(
            f"find_communities needs the package igraph, which is not installed. Run {how_to_install('communities')}. "
            "Or give compute_foster_novelty communities of your own."
        ) from None
    columns = ["work_id", "source_id"] if of == "venues" else ["work_id"]
    works = require_columns(works, WORKS, frame_name="WORKS", stage="find_communities", columns=columns)
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage="find_communities")
    rows = works.select("work_id", node=columns[-1]).collect(engine="streaming").sort("work_id")
    require_one_row_each(rows["work_id"], "find_communities")
    links = _venue_links(rows, citations) if of == "venues" else _work_links(rows, citations)
    nodes = pl.concat([links["a"], links["b"]]).unique().sort()
    ends = np.column_stack([nodes.search_sorted(links[end]).to_numpy() for end in ("a", "b")])
    graph = igraph.Graph(n=len(nodes), edges=ends, directed=False)
    igraph.set_random_number_generator(random.Random(seed))
    try:
        members = _partition(graph, method, links["weight"].to_list())
    finally:
        igraph.set_random_number_generator(random)
    found = pl.DataFrame({"node": nodes, "found": members})
    joined = rows.join(found, on="node", how="left", maintain_order="left")
    sizes = joined.drop_nulls("found").group_by("found").agg(n=pl.len(), first=pl.col("work_id").min())
    named = sizes.sort(-pl.col("n").cast(pl.Int64), "first").select(
        "found", community=pl.int_range(pl.len(), dtype=pl.Int32)
    )
    return joined.join(named, on="found", how="left", maintain_order="left").select("work_id", "community")


def _distinct(citations: pl.LazyFrame) -> pl.LazyFrame:
    return citations.select("citing_id", "cited_id").filter(pl.col("citing_id") != pl.col("cited_id")).unique()


def _work_links(rows: pl.DataFrame, citations: pl.LazyFrame) -> pl.DataFrame:
    """List the pairs of works of which one cites the other, sorted: what igraph finds depends on the order."""
    ids = rows.lazy().select("work_id")
    inside = _distinct(citations).join(ids, left_on="citing_id", right_on="work_id", how="semi")
    inside = inside.join(ids, left_on="cited_id", right_on="work_id", how="semi")
    ends = pl.min_horizontal("citing_id", "cited_id"), pl.max_horizontal("citing_id", "cited_id")
    pairs = inside.select(a=ends[0], b=ends[1]).unique().sort("a", "b")
    return pairs.with_columns(weight=pl.lit(1, pl.Int64)).collect(engine="streaming")


def _venue_links(rows: pl.DataFrame, citations: pl.LazyFrame) -> pl.DataFrame:
    """List the pairs of different venues that works cite together, with the number of pairs of references, sorted."""
    venues = rows.lazy().drop_nulls("node")
    cited = _distinct(citations).join(venues, left_on="cited_id", right_on="work_id")
    cited = cited.join(rows.lazy().select("work_id"), left_on="citing_id", right_on="work_id", how="semi")
    per_work = cited.group_by("citing_id", "node").agg(n=pl.len().cast(pl.Int64))
    pairs = per_work.join(per_work, on="citing_id", suffix="_b").filter(pl.col("node") < pl.col("node_b"))
    weight = (pl.col("n") * pl.col("n_b")).sum()
    links = pairs.group_by(a="node", b="node_b").agg(weight=weight).sort("a", "b")
    return links.collect(engine="streaming")


def _partition(graph: Any, method: Method, weights: list[int]) -> Int64Array:  # noqa: ANN401
    """Return the number of the community of each node."""
    if not weights:
        return np.empty(0, np.int64)
    if method == "louvain":
        communities = graph.community_multilevel(weights=weights)
    elif method == "leiden":
        communities = graph.community_leiden(objective_function="modularity", weights=weights, n_iterations=-1)
    else:
        communities = graph.community_infomap(edge_weights=weights)
    return np.array(communities.membership, np.int64)
