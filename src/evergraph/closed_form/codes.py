"""The labels of neighbours as a vector of fixed width."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import scipy
import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Smoother, smoother, walk
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.rowwise import unit_rows

FURTHEST = 2  # hops from which a node's own label can be removed exactly
# The largest share of a node's own code that rounding can leave.
ROUNDING = 1e-5


class ClassCodes(TopologyEncoder):
    """Encodes the classes of neighbours and their neighbours: E = [N C, N² C - diag(N²) C].

    Row v of C is the code of v's class, a random vector of length 1, if the graph shows v's label,
    and 0 otherwise. N = D^-1/2 A D^-1/2, where A holds the edge weights, has no self-loops, so
    one hop does not include a node's own label, and it is removed from two hops: an embedding does
    not depend on it. The code of a class depends on the seed and the class alone: new classes
    leave existing codes unchanged, and the width does not depend on their number.

    dims = hops x width. Node features are not read.

    Args:
        hops: 1 or 2.
        width: width of a code. Codes of two classes have an inner product of about 1/√width.
        seed: seed of the codes.

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

    def __init__(self, *, hops: int = 2, width: int = 64, seed: int = 0) -> None:
        super().__init__(hops=hops, self_loops=False)
        check_integer("width", width, least=1)
        check_integer("seed", seed, least=0)
        if not 1 <= hops <= FURTHEST:
            raise ConfigurationError(
                f"hops must be 1 or {FURTHEST} for class-codes, so that a node's own label can be "
                f"removed exactly, not {hops}"
            )
        self.width = width
        self.seed = seed

    @property
    def parts(self) -> int:
        """One part per hop."""
        return self.hops

    @property
    def arrays(self) -> int:
        """Codes, hops, and the concatenated hops."""
        return 2 * self.hops + 2

    def inputs(self, graph: Graph) -> Graph:
        """Return the graph with the codes of its shown labels as features."""
        shown, places = graph.labels.cpu().unique(return_inverse=True)
        table = class_codes(shown.tolist(), width=self.width, seed=self.seed)
        table[shown < 0] = 0.0
        return graph.with_features(table[places].to(graph.device))

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        near, *far = walk(adjacency, graph.features, hops=self.hops)
        return torch.cat([near, *(without_own(step, graph) for step in far)], dim=1)

    def scaled(self, rows: Tensor, *, together: bool = False) -> Tensor:
        """Return embeddings scaled to unit length, hop by hop."""
        hops = rows.tensor_split(self.hops, dim=1)
        return torch.cat([unit_rows(hop.contiguous(), together=together) for hop in hops], dim=1)


def class_codes(classes: Iterable[int | str], *, width: int, seed: int = 0) -> Tensor:
    """Return a random vector of length 1 for each class name.  -> float32 [classes, width]"""
    drawn = [
        torch.randn(width, generator=seeded(seed, "class code", repr(name))) for name in classes
    ]
    return unit_rows(torch.stack(drawn)) if drawn else torch.empty(0, width)


def without_own(far: Tensor, graph: Graph) -> Tensor:
    """Return N² C - diag(N²) C, exactly 0 for a node with no other label two hops away.

    Rounding leaves a little of the node's own code there, which would become as long as any other
    once it is scaled to unit length. far: N² C, with C the features of ``graph``.  -> [nodes, dims]
    """
    codes = graph.features
    rest = far - own_share(graph).to(codes.device)[:, None] * codes
    return rest.where(meets_others(graph).to(codes.device)[:, None], 0.0)


def meets_others(graph: Graph) -> Tensor:
    """Return whether a walk of two steps leads to another node with a code.  -> bool [nodes]

    Walks are counted in whole numbers, which are exact below 2^24. A node without neighbours has
    weight 0 in N and is never reached.

    >>> path = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3)[:, :1],
    ...                         labels=torch.zeros(3, dtype=torch.long), undirected=True)
    >>> meets_others(path)  # only the first has a code: the last reaches it
    tensor([False, False,  True])
    """
    coded = (graph.features != 0).any(1).to(graph.device)
    coded = (coded & (graph.degrees > 0)).float()
    neighbours = smoother(replace(graph, weights=None), self_loops=False, scheme="none")
    walks = neighbours.product(neighbours.product(coded[:, None]))[:, 0]
    home = graph.degrees.float()  # walks from a node back to itself
    if not graph.undirected:
        plain = replace(graph, weights=None).to("cpu")
        home = _there_and_back(smoother(plain, self_loops=False, scheme="none").matrix, graph)
    found: Tensor = walks > home * coded
    return found


def others_alone(far: Tensor, shares: Tensor, codes: Tensor) -> Tensor:
    """Return two hops of the codes without each node's own: N² C - diag(N²) C.

    If only a node's own code returns to it, rounding would leave a last digit, which scaling to
    unit length would turn into a whole label again: there the result is 0.

    far: N² C, [n, width]; shares: the diagonal of N², [n]; codes: C, [n, width]

    >>> others_alone(torch.tensor([[0.5000001, 0.], [0.5, 0.2]]), torch.tensor([0.5, 0.5]),
    ...              torch.tensor([[1., 0.], [1., 0.]]))
    tensor([[0.0000, 0.0000],
            [0.0000, 0.2000]])
    """
    own = shares[:, None] * codes
    others = far - own
    there = others.abs().amax(1, keepdim=True) > ROUNDING * own.abs().amax(1, keepdim=True)
    return others * there


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
    found: Tensor = neighbours.product(shares[:, None])[:, 0] * shares
    return found


def _there_and_back(weights: Tensor, graph: Graph) -> Tensor:
    """Return the diagonal of the square of a CSR matrix.  [nodes, nodes] -> [nodes]"""
    parts = (weights.values(), weights.col_indices(), weights.crow_indices())
    matrix = scipy.sparse.csr_matrix(tuple(p.numpy() for p in parts), shape=weights.shape)
    both = matrix.multiply(matrix.T).sum(1)
    return torch.from_numpy(both).flatten().float().to(graph.device)
