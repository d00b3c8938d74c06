"""Statistics of many nodes, counted by several workers and merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from torch import Tensor

from evergraph.closed_form.statistics import ClassStatistics
from evergraph.closed_form.targets import TargetStatistics
from evergraph.closed_form.view_map import ViewMap
from evergraph.closed_form.views import ViewRows
from evergraph.core.resources import Resources
from evergraph.nn.random_features import AsIs, Expansion

Statistics = ClassStatistics | TargetStatistics
FeatureMap = Expansion | AsIs  # φ from embeddings to features, without trained parameters
Counted = TypeVar("Counted", ClassStatistics, TargetStatistics, Statistics)
# Nodes counted per block. The size does not depend on the number of workers, so the sums do not
# either. At a width of 4,096 a block is seconds of work for 34 MB of statistics.
BLOCK_ROWS = 1 << 15


def count_views(
    statistics: Sequence[Counted],
    rows: ViewRows | Tensor,
    labels: Tensor,
    weights: Tensor,
    *,
    expand: ViewMap | FeatureMap,
    resources: Resources | None = None,
    sign: int = 1,
) -> list[Counted]:
    """Return statistics of every view with more nodes added; those given may be changed.

    Every node is projected once for all views. G = Σ_b G_b over blocks b of nodes, and likewise the
    sums: a worker computes a block's features and returns their statistics, which are merged in the
    order of the blocks. So the result is the same to the last bit for any number of workers,
    including none, if each has as many threads. A single block, rows on a GPU, and targets instead
    of classes are counted in this process, as is everything without ``resources``.

    rows: of the views, or embeddings or whole vectors, [n, dims]; labels: int64 [n], or targets
    [n, targets]; weights: positive [n]; expand: φ of the views, or of a single one; sign: -1
    removes.
    """
    held = rows if isinstance(rows, Tensor) else rows.hops
    many = held.device.type == "cpu" and len(labels) > BLOCK_ROWS
    if resources is None or not many or isinstance(statistics[0], TargetStatistics):
        _count(statistics, rows, labels, weights, expand, sign)
        return list(statistics)
    sizes = [(each.width, each.precise) for each in statistics]
    given: dict[str, Any] = {"rows": rows, "labels": labels, "weights": weights}
    given |= {"expand": expand, "sign": sign, "sizes": sizes}
    blocks = [(start, start + BLOCK_ROWS) for start in range(0, len(labels), BLOCK_ROWS)]
    totals = _empty(sizes)
    for states in resources.engine.map(count_block, blocks, shared=given):
        for place, (counted, state) in enumerate(zip(_empty(sizes), states, strict=True)):
            counted.restore(state)
            totals[place] = totals[place].merged(counted)
    return [each.merged(total) for each, total in zip(statistics, totals, strict=True)]  # type: ignore[arg-type]


def count_block(
    part: tuple[int, int],
    *,
    rows: ViewRows | Tensor,
    labels: Tensor,
    weights: Tensor,
    expand: ViewMap | FeatureMap,
    sign: int,
    sizes: Sequence[tuple[int, bool]],
) -> list[dict[str, Tensor]]:
    """Return the state of the statistics of some nodes, one for each size; a pure function.

    sizes: width, and whether sums are in float64
    """
    some, counted = slice(*part), _empty(sizes)
    _count(counted, rows[some], labels[some], weights[some], expand, sign)
    return [each.state() for each in counted]


def _empty(sizes: Sequence[tuple[int, bool]]) -> list[ClassStatistics]:
    return [ClassStatistics(width, precise=precise) for width, precise in sizes]


def _count(
    statistics: Sequence[Statistics],
    rows: Any,
    labels: Tensor,
    weights: Tensor,
    expand: Any,
    sign: int,
) -> None:
    start = 0
    for block in expand.blocks(rows):
        part, features = slice(start, start + len(block)), expand(block)
        # The features of one map are counted as they come, those of views a few rows at a time.
        if isinstance(features, Tensor):
            features = [[features[:, : statistics[0].width]]]
        for each, some in zip(statistics, features, strict=True):
            each.add(some, labels[part], weights[part], sign)
        start = part.stop
