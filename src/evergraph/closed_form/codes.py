"""The labels of neighbours, and neighbours by relation, as vectors of fixed width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.closed_form.views import CODE_HOPS
from evergraph.core.errors import ConfigurationError, check_integer
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Smoother, smoother, walk
from evergraph.graphs.csr import densify, row_entries, row_pointers
from evergraph.graphs.kernels.scaled_rows import choose_kernel
from evergraph.graphs.relations import Relations
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.rowwise import unit_rows

# If subtracting a node's own code leaves less than this share of it, rounding may show, and two hops
# are summed without the node instead.
CLEAR = 1 / 16
NODES_AT_A_TIME = 1 << 10  # whose two hops are summed without their own codes
Array = npt.NDArray[Any]
# Returns some rows of N as CSR: pointers, columns, values.
Rows = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


class ClassCodes(TopologyEncoder):
    """Encodes the classes of neighbours and their neighbours: E = [N C, N² C - diag(N²) C].

    Row v of C is the code of v's class, a random vector of length 1, if the graph shows v's label,
    and 0 otherwise. N = D^-1/2 A D^-1/2, where A holds the edge weights, has no self-loops, so
    one hop does not include a node's own label, and it is removed from two hops: an embedding does
    not depend on it. The code of a class depends on the class alone: new classes leave existing codes
    unchanged, and the width does not depend on their number.

    dims = 2 x width. Node features are not read.

    Args:
        width: width of a code. Codes of two classes have an inner product of about 1/√width.

    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.zeros(3, 1),
    ...                         labels=torch.tensor([0, 1, -1]), undirected=True)
    >>> codes = ClassCodes(width=4)
    >>> near, far = codes.encode(path).split(4, dim=1)
    >>> torch.allclose(near[2], class_codes([1], width=4)[0] / 2**0.5)  # its neighbour has class 1
    True
    >>> torch.allclose(far[2], class_codes([0], width=4)[0] / 2)  # and that one's neighbour class 0
    True
    """

    name = "class-codes"
    reads_labels = True
    furthest: ClassVar[int] = CODE_HOPS

    def __init__(self, *, width: int = 64) -> None:
        super().__init__(hops=self.furthest, self_loops=False)
        check_integer("width", width, least=1)
        self.width = width

    @property
    def parts(self) -> int:
        return self.hops

    @property
    def units(self) -> int:
        return self.parts

    @property
    def arrays(self) -> int:
        """Codes, hops, and the concatenated hops."""
        return 2 * self.hops + 2

    def inputs(self, graph: Graph) -> Graph:
        """Return the graph with the codes of its shown labels as features."""
        labels, inverse = graph.labels.cpu().unique(return_inverse=True)
        codes = class_codes(labels.tolist(), width=self.width)
        codes[labels < 0] = 0.0
        return graph.with_features(codes[inverse].to(graph.device))

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        near, far_with_own = walk(adjacency, graph.features, hops=CODE_HOPS)
        far, unclear = without_own(far_with_own, own_share(graph), graph.features)
        coded = graph.features.any(1).cpu().numpy()
        for nodes in unclear.nonzero().flatten().split(NODES_AT_A_TIME):
            rows = partial(rows_of, adjacency)
            far[nodes] = codes_of_others(nodes.cpu(), rows, graph.features, coded).to(far.device)
        return torch.cat([near, far], dim=1)


def class_codes(classes: Iterable[int | str], *, width: int, seed: int = 0) -> Tensor:
    """Return a random vector of length 1 for each class name.  -> float32 [classes, width]"""
    codes = [
        torch.randn(width, generator=seeded(seed, "class code", repr(name))) for name in classes
    ]
    return unit_rows(torch.stack(codes)) if codes else torch.empty(0, width)


def without_own(far: Tensor, shares: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Return N² C - diag(N²) C, and for which nodes too little is left for that to be accurate.

    far: N² C, [n, width]; shares: the diagonal of N², [n]; codes: C, [n, width]
    -> [n, width], bool [n]

    >>> without_own(torch.tensor([[0.5000001, 0.], [0.5, 0.2]]), torch.tensor([0.5, 0.5]),
    ...             torch.tensor([[1., 0.], [1., 0.]]))[1]
    tensor([ True, False])
    """
    own = shares.to(codes.device)[:, None] * codes
    others = far - own
    return others, others.abs().amax(1) < CLEAR * own.abs().amax(1)


def codes_of_others(nodes: Tensor, rows: Rows, codes: Tensor, coded: Array) -> Tensor:
    """Return N² C - diag(N²) C of some nodes, accurate whatever the weights of edges are.

        E_v = Σ_u N_vu Σ_{w ≠ v} N_uw C_w

    If v has more than half of the weight that u gathers codes with, v is heavy for u, and u's sum
    is computed without v. Otherwise v is subtracted from u's sum, and weighs no more than what is
    left: no digits are lost. At most one v is heavy for u, so each u is summed at most twice.

    nodes: ascending, int64 [n]; codes: C of all nodes, float32 [positions, width]; coded: whose row
    of C is not 0, bool [positions] -> float32 [n, width]
    """
    pointers, neighbours, weights = (array.numpy() for array in rows(nodes))
    middle, inverse = np.unique(neighbours, return_inverse=True)  # every u
    shape = (len(nodes), len(middle))
    first_hop = scipy.sparse.csr_matrix((weights.astype(np.float64), inverse, pointers), shape)
    pointers, neighbours, weights = (
        array.numpy() for array in rows(torch.from_numpy(middle).long())
    )
    with_code = np.flatnonzero(coded[neighbours])
    owners = np.repeat(np.arange(len(middle)), np.diff(pointers))[with_code]
    neighbours, weights = neighbours[with_code], weights[with_code].astype(np.float64)
    heavy = 2 * weights > np.bincount(owners, weights, minlength=len(middle))[owners]
    # Σ_w N_uw C_w of every u, over all w and over those that are not heavy
    ends, inverse = np.unique(neighbours, return_inverse=True)
    end_codes = codes[torch.from_numpy(ends).long().to(codes.device)].cpu().double().numpy()
    sums, light_sums = (
        scipy.sparse.csr_matrix((values, (owners, inverse)), (len(middle), len(ends))) @ end_codes
        for values in (weights, weights * ~heavy)
    )
    # N_uv of every v and u, and where v is heavy
    positions = np.searchsorted(nodes.numpy(), neighbours).clip(max=len(nodes) - 1)
    back = nodes.numpy()[positions] == neighbours
    weights_back, heavy_back = (
        scipy.sparse.csr_matrix((values[back], (positions[back], owners[back])), shape)
        for values in (weights, heavy.astype(np.float64))
    )
    to_heavy = first_hop.multiply(heavy_back)  # steps to a u that is summed without the node
    to_light = first_hop - to_heavy
    own_shares = torch.from_numpy(to_light.multiply(weights_back).sum(1))
    own = own_shares * codes[nodes.to(codes.device)].cpu()
    return (torch.from_numpy(to_light @ sums + to_heavy @ light_sums) - own).float()


def rows_of(adjacency: Smoother, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return some rows of N as CSR.  -> int32 [nodes + 1], int32 [entries], float32 [entries]"""
    nodes = nodes.to(adjacency.device)
    owners, entries = row_entries(adjacency.indptr, nodes)
    columns = adjacency.indices[entries]
    values = adjacency.left[nodes][owners] * adjacency.right[columns.long()]
    if adjacency.weights is not None:
        values = values * adjacency.weights[entries]
    return row_pointers(owners, len(nodes)).cpu(), columns.cpu(), values.cpu()


def own_share(graph: Graph) -> Tensor:
    """Return the diagonal of N²: each node's own share two hops away.  -> [nodes]

    (N²)_vv = Σ_u N_vu N_uv, over the neighbours u with edges in both directions.

    >>> star = Graph.from_edges(torch.tensor([[0, 0], [1, 2]]), features=torch.zeros(3, 1),
    ...                         labels=torch.zeros(3, dtype=torch.long), undirected=True)
    >>> own_share(star)  # 1/2 + 1/2 for the middle, 1/2 for each leaf
    tensor([1.0000, 0.5000, 0.5000])
    """
    if graph.weights is not None or not graph.undirected:  # N need not be symmetric
        return _there_and_back(smoother(graph.to("cpu"), self_loops=False).matrix, graph)
    degrees = graph.indptr.diff()
    shares = torch.where(degrees > 0, 1.0 / degrees.clamp_min(1), 0.0)  # [nodes]
    neighbours = smoother(graph, self_loops=False, scheme="none")
    own_shares: Tensor = neighbours.product(shares[:, None])[:, 0] * shares
    return own_shares


def _there_and_back(weights: Tensor, graph: Graph) -> Tensor:
    """Return the diagonal of the square of a CSR matrix.  [nodes, nodes] -> [nodes]"""
    arrays = (weights.values(), weights.col_indices(), weights.crow_indices())
    matrix = scipy.sparse.csr_matrix(tuple(a.numpy() for a in arrays), shape=weights.shape)
    diagonal = matrix.multiply(matrix.T).sum(1)
    return torch.from_numpy(diagonal).flatten().float().to(graph.device)


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

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        relations = related(graph)
        columns = slice(self.first_column, self.first_column + graph.num_features)
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

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        relations = related(graph)
        signs = kind_signs(relations.kind_names(), hop=1, width=self.width)
        columns = slice(self.first_column, self.first_column + graph.num_features)
        return bound_means(relations, graph.features, signs[:, columns].to(graph.features.device))


def related(graph: Graph) -> Relations:
    """Return a graph's relations, or empty ones if it only has node types; raise if neither."""
    if graph.relations is None and graph.types is not None:
        no_edges = torch.empty(2, 0, dtype=torch.int64, device=graph.device)
        return Relations.of(no_edges, no_edges[0], (), nodes=graph.num_nodes)
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
    bits = [
        torch.randint(2, (width,), generator=seeded(0, "relation", hop, kind)) for kind in kinds
    ]
    return 2.0 * torch.stack(bits) - 1.0 if bits else torch.empty(0, width)


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
    sums = torch.zeros_like(features)
    for begin in range(0, len(starts), SEGMENTS_AT_A_TIME):
        part = slice(begin, begin + SEGMENTS_AT_A_TIME)
        means = _means(relations, starts[part], ends[part], features)
        nodes = rows[part].to(features.device)
        sums.index_add_(0, nodes, means.mul_(signs[kinds[part].to(signs.device)]))
    return sums


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
