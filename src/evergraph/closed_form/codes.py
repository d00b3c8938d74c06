"""The labels of neighbours as a vector of fixed width."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from evergraph.closed_form.views import CODE_HOPS
from evergraph.core.errors import check_integer
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, Smoother, smoother, walk
from evergraph.graphs.csr import row_entries, row_pointers
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.rowwise import unit_rows

# If less than this share of a node's own code is left after subtracting it, rounding may show, and
# two hops are summed without it instead.
CLEAR = 1 / 16
NODES_AT_A_TIME = 1 << 10  # whose two hops are summed without their own codes
# Returns some rows of N as CSR: pointers, columns, values.
Array = npt.NDArray[Any]
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
        """One part per hop."""
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
        shown, places = graph.labels.cpu().unique(return_inverse=True)
        table = class_codes(shown.tolist(), width=self.width)
        table[shown < 0] = 0.0
        return graph.with_features(table[places].to(graph.device))

    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        near, whole = walk(adjacency, graph.features, hops=CODE_HOPS)
        far, unclear = without_own(whole, own_share(graph), graph.features)
        coded = graph.features.any(1).cpu().numpy()
        for nodes in unclear.nonzero().flatten().split(NODES_AT_A_TIME):
            rows = partial(rows_of, adjacency)
            far[nodes] = codes_of_others(nodes.cpu(), rows, graph.features, coded).to(far.device)
        return torch.cat([near, far], dim=1)


def class_codes(classes: Iterable[int | str], *, width: int, seed: int = 0) -> Tensor:
    """Return a random vector of length 1 for each class name.  -> float32 [classes, width]"""
    drawn = [
        torch.randn(width, generator=seeded(seed, "class code", repr(name))) for name in classes
    ]
    return unit_rows(torch.stack(drawn)) if drawn else torch.empty(0, width)


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

    If v has more than half of the weight that u gathers codes with, u's sum is computed without v.
    Otherwise v is subtracted from u's sum, and weighs no more than what is left: no digits are
    lost. Every u has at most one such v, so each is summed at most twice.

    nodes: ascending, int64 [n]; codes: C of all nodes, float32 [positions, width]; coded: whose row
    of C is not 0, bool [positions] -> float32 [n, width]
    """
    starts, near, weights = (part.numpy() for part in rows(nodes))
    middle, places = np.unique(near, return_inverse=True)
    shape = (len(nodes), len(middle))
    there = scipy.sparse.csr_matrix((weights.astype(np.float64), places, starts), shape=shape)
    starts, near, weights = (part.numpy() for part in rows(torch.from_numpy(middle).long()))
    some = np.flatnonzero(coded[near])
    owners = np.repeat(np.arange(len(middle)), np.diff(starts))[some]
    near, weights = near[some], weights[some].astype(np.float64)
    heavy = 2 * weights > np.bincount(owners, weights, minlength=len(middle))[owners]
    seen, places = np.unique(near, return_inverse=True)
    shown = codes[torch.from_numpy(seen).long().to(codes.device)].cpu().double().numpy()
    sums, light_sums = (
        scipy.sparse.csr_matrix((each, (owners, places)), shape=(len(middle), len(seen))) @ shown
        for each in (weights, weights * ~heavy)
    )
    which = np.searchsorted(nodes.numpy(), near).clip(max=len(nodes) - 1)
    mine = nodes.numpy()[which] == near  # entries that lead back
    back, alone = (
        scipy.sparse.csr_matrix((each[mine], (which[mine], owners[mine])), shape=shape)
        for each in (weights, heavy.astype(np.float64))
    )
    alone = there.multiply(alone)  # steps to a u that is summed without the node
    there = there - alone
    own = torch.from_numpy(there.multiply(back).sum(1)) * codes[nodes.to(codes.device)].cpu()
    return (torch.from_numpy(there @ sums + alone @ light_sums) - own).float()


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
    found: Tensor = neighbours.product(shares[:, None])[:, 0] * shares
    return found


def _there_and_back(weights: Tensor, graph: Graph) -> Tensor:
    """Return the diagonal of the square of a CSR matrix.  [nodes, nodes] -> [nodes]"""
    parts = (weights.values(), weights.col_indices(), weights.crow_indices())
    matrix = scipy.sparse.csr_matrix(tuple(p.numpy() for p in parts), shape=weights.shape)
    both = matrix.multiply(matrix.T).sum(1)
    return torch.from_numpy(both).flatten().float().to(graph.device)
