"""How ``--memory`` is divided: sums of views, embeddings of training nodes, probes."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from evergraph.closed_form.view_features import ViewFeatures
from evergraph.closed_form.views import parse_views
from evergraph.core.errors import ConfigurationError
from evergraph.core.sizes import shown

# Below this width, another view is worth less than the width that the others lose: of random
# features, and of landmarks.
LEAST_WIDTH, LEAST_LANDMARKS = 256, 512
NARROWEST, WIDEST, STEP = 64, 8192, 64
# Training nodes kept in all, where embeddings are narrow and where they are wide: random features
# estimate wide kernels worse. And what nodes may take of ``memory``.
EMBEDDINGS, WIDE_EMBEDDINGS, EMBEDDING_SHARE = 1024, 2048, 0.2
LEAST_EMBEDDINGS = 8  # of a class: fewer say less than as many probes
WIDE = 8192  # values of a node


def fit_into(memory: int, backbone: ViewFeatures) -> ViewFeatures:
    """Return a similar backbone whose statistics take at most ``memory`` bytes.

    A view of width m takes 2 m² bytes. The first views, as many as can be ``LEAST_WIDTH`` wide, are
    kept: at least one, including one without class codes. They are made as wide as possible. Random
    features are for graphs that may show no labels: views with class codes come last there.

    >>> fitted = fit_into(50_000_000, ViewFeatures())
    >>> len(fitted.views), fitted.width
    (5, 1728)
    >>> fit_into(1_000_000, ViewFeatures()).views
    ('0|1|2|4|r', '0|s', '32', 'c')
    """
    views, room = parse_views(backbone.views), int(memory * backbone.statistics_share)
    ranked, least = views, LEAST_LANDMARKS
    if not backbone.on_landmarks:
        ranked, least = tuple(sorted(views, key=lambda view: view.codes)), LEAST_WIDTH
    widths = [int((room / (2 * n)) ** 0.5) // STEP * STEP for n in range(1, len(views) + 1)]
    count = max((n for n, width in enumerate(widths, 1) if width >= least), default=1)
    width = widths[count - 1]
    if width < NARROWEST:
        least = int(2 * NARROWEST**2 / backbone.statistics_share)
        raise ConfigurationError(
            f"memory must leave room for a view of width {NARROWEST}, {least:,} bytes, not "
            f"{shown(memory)}"
        )
    chosen = tuple(view for view in views if view in ranked[:count])
    plain = [view for view in views if not view.codes]
    if plain and all(view.codes for view in chosen):
        chosen = (*chosen[:-1], plain[0])
    return type(backbone)(
        **backbone.get_params(deep=False)
        | {"views": [str(view) for view in chosen], "width": min(width, WIDEST)}
    )


@dataclass(frozen=True)
class KeptNodes:
    """How many nodes of every class may be kept.

    It depends on the number of classes, not on their order: nodes of known classes are dropped when
    others arrive.
    """

    embeddings: int
    probes: int

    @classmethod
    def within(
        cls, memory: int | None, backbone: ViewFeatures, *, classes: int, dims: int, landmarks: int
    ) -> KeptNodes:
        """Return what fits beside the statistics, at least one of every class; without a limit,
        what is worth its time.

        dims: values per node over all views, two bytes each; landmarks: nodes kept besides

        >>> KeptNodes.within(5_000_000, ViewFeatures(views=["2"], width=1216), classes=10, dims=767,
        ...                  landmarks=0)
        KeptNodes(embeddings=64, probes=61)
        """
        most = (WIDE_EMBEDDINGS if dims >= WIDE else EMBEDDINGS) // classes
        most = 0 if backbone.on_landmarks else max(most, 1)
        if memory is None:
            return cls(most, sys.maxsize)
        node, width = 2 * dims + 16, backbone.width
        embeddings = min(most, int(EMBEDDING_SHARE * memory) // node // classes)
        embeddings = embeddings if embeddings >= LEAST_EMBEDDINGS else 0
        sums = len(backbone.parsed) * (2 * width * (width + 1) + classes * (8 * width + 16))
        nodes = (memory - sums) // node - landmarks
        return cls(embeddings, max(nodes // classes - embeddings, 1))
