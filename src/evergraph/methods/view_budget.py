"""How many views fit into so many bytes, and how wide."""

from __future__ import annotations

from evergraph.core.errors import ConfigurationError
from evergraph.core.sizes import shown
from evergraph.nn import ViewFeatures
from evergraph.topology.views import View, parse_views

# Below, another view is worth less than what the others lose in width.
LEAST_WIDTH = 512
NARROWEST, WIDEST, STEP = 64, 8192, 64
STATISTICS_SHARE = 0.7  # of the bytes; the rest is for class sums and probes


def fit_into(keep: int, backbone: ViewFeatures) -> ViewFeatures:
    """Return a backbone like another whose statistics take at most so many bytes.

    A view of width m takes 2 m² bytes. As many of the views, in their order, as can be
    ``LEAST_WIDTH`` wide, at least one, and one that needs no class codes; then as wide as they may.

    >>> fitted = fit_into(50_000_000, ViewFeatures())
    >>> len(fitted.views), fitted.width
    (7, 1536)
    """
    views = parse_views(backbone.views)
    count = max((n for n in range(1, len(views) + 1) if _width(keep, n) >= LEAST_WIDTH), default=1)
    width = _width(keep, count)
    if width < NARROWEST:
        least = int(2 * NARROWEST**2 / STATISTICS_SHARE)
        raise ConfigurationError(
            f"keep must leave room for a view of width {NARROWEST}, {least:,} bytes, not "
            f"{shown(keep)}"
        )
    return ViewFeatures(
        views=[str(view) for view in _first(views, count)],
        width=min(width, WIDEST),
        code_width=backbone.code_width,
        dropout=backbone.dropout,
        storage=backbone.storage,
        rows=backbone.rows,
    )


def probes_within(keep: int, *, views: int, width: int, classes: int, dims: int) -> int:
    """Return how many probes of each class fit beside statistics, at least one.

    It depends on how many classes there are and not on which came first: probes of a class that is
    known are let go when others come. dims: of what all views see of a node, two bytes each.

    >>> probes_within(5_000_000, views=1, width=1408, classes=10, dims=767)
    59
    """
    statistics = views * (2 * width * (width + 1) + classes * (8 * width + 16))
    return max((keep - statistics) // (classes * (2 * dims + 16)), 1)


def _width(keep: int, views: int) -> int:
    """Return how wide so many views may be."""
    width = (STATISTICS_SHARE * keep / (2 * views)) ** 0.5
    return int(width) // STEP * STEP


def _first(views: tuple[View, ...], count: int) -> tuple[View, ...]:
    chosen = views[:count]
    plain = [view for view in views if not view.codes]
    if plain and all(view.codes for view in chosen):
        return (*chosen[:-1], plain[0])
    return chosen
