"""What lies around a node, with the user's names."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.online.answers import meant_by
from evergraph.online.delta import Label, NodeId
from evergraph.online.pinned import Pinned
from evergraph.online.published import Published


@dataclass(frozen=True)
class Neighbourhood:
    """A node's surroundings; see ``Ego``.

    Attributes:
        nodes: ids, the node itself first, then the nearest.
        distances: how many hops away each is.
        labels: their classes, None where not known.
        edges: pairs of places in ``nodes``, source and target.
        whole: whether none was left out.
        weights: of these edges, None where all weigh 1.
    """

    nodes: tuple[NodeId, ...]
    distances: tuple[int, ...]
    labels: tuple[Label | None, ...]
    edges: tuple[tuple[int, int], ...]
    whole: bool
    weights: tuple[float, ...] | None = None


def neighbourhood(pinned: Pinned, *, hops: int | None, limit: int) -> Neighbourhood:
    """Return at most ``limit`` nodes within ``hops`` of the one node that is pinned."""
    published = pinned.published
    reach = published.embeddings.topology.hops if hops is None else hops
    near = published.graph.ego(int(pinned.positions[0]), hops=reach, limit=limit)
    positions = near.nodes.tolist()
    places = {position: place for place, position in enumerate(positions)}
    numbers = published.labels.of(near.nodes.numpy()).tolist()
    return Neighbourhood(
        nodes=tuple(pinned.names(positions)),
        distances=tuple(near.distances.tolist()),
        labels=tuple(None if n < 0 else _shown(published, n) for n in numbers),
        edges=tuple((places[a], places[b]) for a, b in near.edges.t().tolist()),
        whole=near.whole,
        weights=None if near.weights is None else tuple(near.weights.tolist()),
    )


def _shown(published: Published, number: int) -> Label:
    """Return a class as it is called; several labels as one text."""
    name = published.classes.at(number)
    if published.kind != "labels":
        return name
    told = meant_by("labels", name)
    return "; ".join(map(str, told)) if isinstance(told, tuple) else name
