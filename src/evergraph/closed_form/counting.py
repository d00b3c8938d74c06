"""Statistics of many nodes, counted by several workers and merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    given = {
        "embeddings": embeddings, "labels": labels, "weights": weights, "expand": expand,
        "width": statistics.width,
    }  # fmt: skip
    return cast("Counted", _in_blocks([statistics], count_block, given, resources)[0])


def _in_blocks(
    statistics: Sequence[ClassStatistics],
    count: Callable[..., list[dict[str, Tensor]]],
    given: dict[str, Any],
    resources: Resources,
) -> list[ClassStatistics]:
    """Return statistics with those of all blocks, merged in the order of the blocks."""
    rows = range(0, len(given["labels"]), BLOCK_ROWS)
    blocks = [(start, start + BLOCK_ROWS) for start in rows]
    totals = [ClassStatistics(each.width) for each in statistics]
    for states in resources.engine.map(count, blocks, shared=given):
        for place, state in enumerate(states):
            counted = ClassStatistics(totals[place].width)
            counted.restore(state)
            totals[place] = totals[place].merged(counted)
    return [each.merged(total) for each, total in zip(statistics, totals, strict=True)]


def count_block(
    rows: tuple[int, int],
    *,
    embeddings: Tensor,
    labels: Tensor,
    weights: Tensor,
    expand: FeatureMap,
    width: int,
) -> list[dict[str, Tensor]]:
    """Return the state of the statistics of some nodes, alone in a list; a pure function."""
    part = slice(*rows)
    counted = ClassStatistics(width)
    features = (expand(some)[:, :width] for some in expand.blocks(embeddings[part]))
    counted.add(features, labels[part], weights[part])
    return [counted.state()]


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
        _count_views(statistics, rows, labels, weights, expand, sign)
        return list(statistics)
    given = {
        "rows": rows, "labels": labels, "weights": weights, "expand": expand, "sign": sign,
    }  # fmt: skip
    return _in_blocks(statistics, count_views_block, given, resources)


def count_views_block(
    part: tuple[int, int],
    *,
    rows: ViewRows,
    labels: Tensor,
    weights: Tensor,
    expand: ViewMap,
    sign: int,
) -> list[dict[str, Tensor]]:
    """Return the state of each view's statistics for some nodes; a pure function."""
    some = slice(*part)
    counted = [ClassStatistics(expand.width) for _ in expand.views]
    _count_views(counted, rows[some], labels[some], weights[some], expand, sign)
    return [each.state() for each in counted]


def _count_views(
    statistics: Sequence[ClassStatistics],
    rows: ViewRows,
    labels: Tensor,
    weights: Tensor,
    expand: ViewMap,
    sign: int,
) -> None:
    start = 0
    for block in expand.blocks(rows):
        part = slice(start, start + len(block))
        for each, features in zip(statistics, expand(block), strict=True):
            each.count(features, labels[part], weights[part], sign)
        start = part.stop
