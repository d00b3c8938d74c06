"""Neighbour features separated by relation, in a vector of fixed width."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from evergraph.closed_form.codes import ClassCodes, class_codes
from evergraph.core.errors import ConfigurationError, check_integer
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Smoother
from evergraph.graphs.csr import densify
from evergraph.graphs.kernels.scaled_rows import choose_kernel
from evergraph.graphs.relations import Relations
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.rowwise import unit_rows

WIDTH = 256
FURTHEST = 2
SEGMENTS_AT_A_TIME = 1 << 16


class RelationHops(TopologyEncoder):
    """Encodes node types and neighbours by relation: E = [T, B₁X, B₂B₁X].

        (B_l H)_v = Σ_k s_{l,k} ⊙ mean of H_u over the u in v's row with kind k

    A kind is a relation along its edges, or against them. s_{l,k} is a fixed vector of random signs
    for each kind and hop: the contributions of two kinds are nearly orthogonal, so their sum keeps
    them separate (binding by signs, Kanerva 2009), and two hops separate pairs of kinds. The width
    does not depend on the number of relations, and a new relation leaves the others unchanged. An
    edge of weight w counts w times in the mean.

    X are the features, scaled to unit length and projected to ``width`` columns if they have
    another number, plus T, a random unit vector for the type of each node: nodes without features
    are represented by their type alone. T is 0 if types are not known.

    dims = 3 x width.

    Args:
        width: width of a hop.

    >>> from evergraph.graphs.relations import Relations
    >>> path = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
    ...                         labels=torch.tensor([0, 0]), undirected=True)
    >>> cites = Relations.of(torch.tensor([[0], [1]]), torch.tensor([0]), ("cites",), nodes=2)
    >>> _, near, _ = RelationHops(width=2).encode(path.with_relations(cites)).chunk(3, dim=1)
    >>> near.abs()  # the first is not cited, but receives from the node it cites
    tensor([[0., 1.],
            [1., 0.]])
    """

    name = "relation-hops"

    def __init__(self, *, width: int = WIDTH) -> None:
        super().__init__(hops=FURTHEST, self_loops=False)
        check_integer("width", width, least=1)
        self.width = width
        self._first = 0

    @property
    def parts(self) -> int:
        """Types and two hops."""
        return 1 + FURTHEST

    @property
    def units(self) -> int:
        return self.parts

    @property
    def arrays(self) -> int:
        """Types, hops, the current sum, and all of them concatenated."""
        return 2 * self.parts + 1

    def inputs(self, graph: Graph) -> Graph:
        features = widened(graph.features, self.width)
        if graph.types is not None:
            features += type_codes(graph, self.width)
        return graph.with_features(features)

    def from_column(self, first: int) -> RelationHops:
        """Return the encoder of features that begin at another column of ``inputs``."""
        part = copy(self)
        part._first = first
        return part

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        relations = related(graph)
        columns = slice(self._first, self._first + graph.num_features)
        states = [graph.features]
        for hop in range(1, FURTHEST + 1):
            signs = kind_signs(relations.kind_names(), hop=hop, width=self.width)[:, columns]
            states.append(bound_means(relations, states[-1], signs.to(graph.features.device)))
        states[0] = torch.zeros_like(graph.features)
        if graph.types is not None:
            states[0] += type_codes(graph, self.width)[:, columns].to(states[0].device)
        return torch.cat(states, dim=1)


class RelationCodes(ClassCodes):
    """Encodes the classes of neighbours by relation, E = B₁C; see ``RelationHops``.

    Row v of C is the code of v's class if the graph shows v's label, see ``ClassCodes``. A node
    does not occur in its own row, so its own label is not included.

    dims = width.
    """

    name = "relation-codes"
    furthest = 1

    def __init__(self, *, width: int = 64) -> None:
        super().__init__(width=width)
        self._first = 0

    def from_column(self, first: int) -> RelationCodes:
        """Return the encoder of codes that begin at another column."""
        part = copy(self)
        part._first = first
        return part

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        relations = related(graph)
        signs = kind_signs(relations.kind_names(), hop=1, width=self.width)
        columns = slice(self._first, self._first + graph.num_features)
        return bound_means(relations, graph.features, signs[:, columns].to(graph.features.device))


def related(graph: Graph) -> Relations:
    """Return a graph's relations, or empty ones if it only has node types; raise if neither."""
    if graph.relations is None and graph.types is not None:
        nothing = torch.empty(2, 0, dtype=torch.int64, device=graph.device)
        return Relations.of(nothing, nothing[0], (), nodes=graph.num_nodes)
    if graph.relations is None:
        raise ConfigurationError(
            "views with 'r' need a graph with relations or node types, and this one has neither: "
            "give edges a relation, or keep directions as one (Graph.with_directions)"
        )
    return graph.relations


def kind_signs(kinds: Sequence[str], *, hop: int, width: int) -> Tensor:
    """Return the sign of each kind for each column at a hop.  -> float32 [kinds, width]

    Signs depend on the kind's name, the hop and the column alone.
    """
    drawn = [
        torch.randint(2, (width,), generator=seeded(0, "relation", hop, kind)) for kind in kinds
    ]
    return 2.0 * torch.stack(drawn) - 1.0 if drawn else torch.empty(0, width)


def widened(features: Tensor, width: int) -> Tensor:
    """Return features of unit length, projected to ``width`` columns if they have another number.

    The projection is a fixed random matrix with values from N(0, 1/width), which nearly preserves
    lengths and angles.  [n, d] -> [n, width], new memory
    """
    if features.shape[1] == width:
        return unit_rows(densify(features).clone(), together=True)
    generator = seeded(0, "features along relations", features.shape[1], width)
    matrix = torch.randn(features.shape[1], width, generator=generator).mul_(width**-0.5)
    return unit_rows(densify(features @ matrix.to(features.device)), together=True)


def type_codes(graph: Graph, width: int) -> Tensor:
    """Return the random unit vector of each node's type.  -> float32 [nodes, width]"""
    assert graph.types is not None
    table = class_codes([f"type {name}" for name in graph.types.names], width=width)
    return table.to(graph.types.numbers.device)[graph.types.numbers.long()]


def bound_means(relations: Relations, features: Tensor, signs: Tensor) -> Tensor:
    """Return Σ_k s_k ⊙ mean of the features of the neighbours with kind k.

    The cost is linear in entries, whatever the number of kinds.

    features: float32 [nodes, width]; signs: float32 [kinds, width] -> [nodes, width]
    """
    starts, rows, kinds = relations.segments()
    ends = torch.cat([starts[1:], starts.new_tensor([len(relations)])])
    out = torch.zeros_like(features)
    for begin in range(0, len(starts), SEGMENTS_AT_A_TIME):
        part = slice(begin, begin + SEGMENTS_AT_A_TIME)
        means = _means(relations, starts[part], ends[part], features)
        places = rows[part].to(features.device)
        out.index_add_(0, places, means.mul_(signs[kinds[part].to(signs.device)]))
    return out


def _means(relations: Relations, starts: Tensor, ends: Tensor, features: Tensor) -> Tensor:
    """Return the mean of features over runs of entries, weighted if entries have weights."""
    totals = (ends - starts).float()
    if relations.weights is not None:
        weights = relations.weights.double()
        running = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
        totals = (running[ends] - running[starts]).float()
    sums = Smoother(
        torch.cat([starts, ends[-1:]]).to(relations.indptr.dtype),
        relations.indices,
        totals.reciprocal(),
        torch.ones(relations.num_nodes, device=relations.device),
        self_loops=False,
        kernel=choose_kernel(entries=len(relations), device=relations.device),
        weights=relations.weights,
    )
    return sums.product(features)
