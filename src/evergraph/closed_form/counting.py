"""Statistics of many nodes, counted by several workers and merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from torch import Tensor

from evergraph.closed_form.statistics import ClassStatistics
from evergraph.closed_form.targets import TargetStatistics
from evergraph.closed_form.view_map import ViewMap
from evergraph.closed_form.views import ViewRows
from evergraph.core.resources import Resources
from evergraph.nn.random_features import AsIs, Expansion

Statistics = ClassStatistics | TargetStatistics
FeatureMap = Expansion | AsIs  # φ from embeddings to features, without trained parameters
Counted = TypeVar("Counted", bound=Statistics)
# Nodes counted per block. The size does not depend on the number of workers, so the sums do not
# either. At a width of 4,096 a block is seconds of work for 34 MB of statistics.
BLOCK_ROWS = 1 << 15


def with_counted(
    statistics: Counted,
    embeddings: Tensor,
    labels: Tensor,
    weights: Tensor,
    *,
    expand: FeatureMap,
    resources: Resources,
) -> Counted:
    """Return statistics with more nodes added; those given may be changed.

    G = Σ_b G_b over blocks b of nodes, and likewise the sums: a worker expands a block's embeddings
    and returns its statistics, which are merged in the order of the blocks. So the result is the
    same to the last bit for any number of workers, including none, if each has as many threads.
    A single block, embeddings on a GPU, statistics in float64, and targets instead of classes are
    counted in this process.

    embeddings: [n, dims]; labels: int64 [n], or targets [n, targets]; weights: positive [n].
    """
    plain = isinstance(statistics, ClassStatistics) and not statistics.precise
    if not plain or embeddings.device.type != "cpu" or len(labels) <= BLOCK_ROWS:
        width = statistics.width  # a block at a time, since all may not fit in memory
        features = (expand(rows)[:, :width] for rows in expand.blocks(embeddings))
        statistics.add(features, labels, weights)
        return statistics
    assert isinstance(statistics, ClassStatistics)
    counted = _in_blocks([statistics], embeddings, labels, weights, expand, resources)
    return cast("Counted", counted[0])


def _in_blocks(
    statistics: Sequence[ClassStatistics],
    rows: Tensor | ViewRows,
    labels: Tensor,
    weights: Tensor,
    expand: FeatureMap | ViewMap,
    resources: Resources,
    sign: int = 1,
) -> list[ClassStatistics]:
    """Return statistics with those of all blocks, merged in the order of the blocks."""
    widths = [each.width for each in statistics]
    given: dict[str, Any] = {"rows": rows, "labels": labels, "weights": weights}
    given |= {"expand": expand, "sign": sign, "widths": widths}
    blocks = [(start, start + BLOCK_ROWS) for start in range(0, len(labels), BLOCK_ROWS)]
    totals = [ClassStatistics(width) for width in widths]
    for states in resources.engine.map(count_block, blocks, shared=given):
        for place, state in enumerate(states):
            counted = ClassStatistics(widths[place])
            counted.restore(state)
            totals[place] = totals[place].merged(counted)
    return [each.merged(total) for each, total in zip(statistics, totals, strict=True)]


def count_block(
    part: tuple[int, int], *, labels: Tensor, weights: Tensor, widths: Sequence[int], **given: Any
) -> list[dict[str, Tensor]]:
    """Return the state of the statistics of some nodes, one for each width; a pure function."""
    some, counted = slice(*part), [ClassStatistics(width) for width in widths]
    _count(counted, given.pop("rows")[some], labels[some], weights[some], **given)
    return [each.state() for each in counted]


def _count(
    statistics: Sequence[ClassStatistics],
    rows: Any,
    labels: Tensor,
    weights: Tensor,
    expand: Any,
    sign: int,
) -> None:
    start = 0
    for block in expand.blocks(rows):
        part, found = slice(start, start + len(block)), expand(block)
        # The features of one map are counted as they come, those of views a few rows at a time.
        features = [[found[:, : statistics[0].width]]] if isinstance(found, Tensor) else found
        for each, some in zip(statistics, features, strict=True):
            each.count(some, labels[part], weights[part], sign)
        start = part.stop


def count_views(
    statistics: Sequence[ClassStatistics],
    rows: ViewRows,
    labels: Tensor,
    weights: Tensor,
    *,
    expand: ViewMap,
    resources: Resources,
    sign: int = 1,
) -> list[ClassStatistics]:
    """Return statistics of every view with more nodes added or removed; see ``with_counted``.

    Every node is projected once for all views. sign: -1 removes.
    """
    plain = rows.hops.device.type == "cpu" and not any(each.precise for each in statistics)
    if not plain or len(labels) <= BLOCK_ROWS:
        _count(statistics, rows, labels, weights, expand, sign)
        return list(statistics)
    return _in_blocks(statistics, rows, labels, weights, expand, resources, sign)
