"""Which unlabelled nodes are worth asking a person about."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from torch import Tensor

from evergraph.core.label_space import Kind
from evergraph.graphs import UNLABELLED
from evergraph.online.delta import Label, NodeId
from evergraph.online.graph.frozen_graph import FrozenGraph
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.view.page import Pinned

Array = npt.NDArray[Any]
BLOCK = 512  # candidates whose surroundings are scored together
ROWS = 4096  # nodes that are scored at once
COVERED = 0.5  # of a node's doubt that counts no more once one of those around it is chosen
SPREAD = 2_654_435_761  # spreads positions, so that equals are taken from everywhere


@dataclass(frozen=True)
class Suggestion:
    """A node worth asking a person about, and why.

    Attributes:
        id: of the node.
        gain: how much uncertainty its label is expected to reach: 𝑔 in ``chosen``.
        reach: how many other nodes gather from it directly.
        uncertainty: of its own prediction, from 0 to 1: one minus the difference between the two
            likeliest classes, or of the most doubtful of several labels. None where nothing tells:
            before the first label, and of numbers.
        classes: the two likeliest, or one if only one is known; none before the first label.
        probabilities: of these.
    """

    id: NodeId
    gain: float
    reach: int
    uncertainty: float | None = None
    classes: tuple[Label, ...] = ()
    probabilities: tuple[float, ...] = ()


def uncertainty(shares: Tensor, kind: Kind) -> Tensor:
    """Return how little predictions say.  probabilities [n, classes] -> float32 [n], 0 to 1

    One minus the margin between the two likeliest classes; of several labels, each with a
    probability of its own, that of the most doubtful one; 1 where nothing can be compared.

    >>> uncertainty(torch.tensor([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2]]), "class")
    tensor([0.5000, 1.0000])
    >>> uncertainty(torch.tensor([[0.9, 0.25]]), "labels")
    tensor([0.5000])
    """
    if kind == "labels" and shares.shape[1]:
        doubts: Tensor = (1 - (2 * shares - 1).abs()).amax(1)
        return doubts
    if kind != "class" or shares.shape[1] < 2:
        return torch.ones(len(shares))
    best = shares.topk(2, dim=1).values
    return 1 - (best[:, 0] - best[:, 1])


def shares_of(graph: GrowingGraph | FrozenGraph) -> scipy.sparse.csr_matrix:
    """Return in row v how large a share v has of what each node gathers, itself included.

    S[v, u] = w_vu / (1 + Σ_x w_xu) for the edges v -> u, and S[v, v] = 1 / (1 + Σ_x w_xv).

    >>> star = GrowingGraph(num_features=1)
    >>> _ = star.add(torch.zeros(3, 1), torch.tensor([[0, 0], [1, 2]]))
    >>> shares_of(star).toarray().round(2).tolist()
    [[0.33, 0.5, 0.5], [0.33, 0.5, 0.0], [0.33, 0.0, 0.5]]
    """
    every = torch.arange(graph.num_nodes)
    indptr, indices = graph.rows(every)
    gathered = scipy.sparse.csr_matrix(
        (graph.weights(every).astype(np.float64), indices, indptr), shape=(len(every), len(every))
    )
    gathered = gathered + scipy.sparse.identity(len(every), format="csr")
    totals = np.asarray(gathered.sum(1)).ravel()
    return scipy.sparse.csr_matrix(gathered.T.tocsr().multiply(1 / totals[None]))


def chosen(
    shares: scipy.sparse.csr_matrix,
    candidates: Array,
    doubts: Callable[[Array], Array],
    count: int,
    *,
    known: Array,
) -> list[tuple[int, float]]:
    """Return the nodes whose labels reach most doubt, with their gains, one after the other.

    A node u has doubt d_u: how uncertain its prediction is, 0 where its class is known. The label
    of v reaches a share S[v, u] of it. The next node is that of the largest gain

        g_v = Σ_u S[v, u] d_u,    and then    d_u <- d_u (1 - max(S[v, u], 1/2)) where S[v, u] > 0:

    uncertainty times reach, spread out, since who gathers from a chosen node counts for half at
    most: in a dense graph no share is large, and all would come from one place otherwise. A gain
    never rises, and none is above Σ_u S[v, u] over the u that are not known; so doubts are asked
    for only where a node may still be chosen.

    shares: S; candidates: positions; doubts: returns d of positions, float [n], at most 1; known:
    which positions have a class.  bool [positions]

    One leaf of a star of three is known. The centre reaches half of the others and comes first;
    then either of them, which of two equals depends on their positions alone.

    >>> star = scipy.sparse.csr_matrix(np.array([[.25, .5, .5, .5], [.25, .5, 0, 0],
    ...                                          [.25, 0, .5, 0], [.25, 0, 0, .5]]))
    >>> chosen(star, np.arange(3), lambda nodes: np.ones(len(nodes)), 2,
    ...        known=np.array([False, False, False, True]))
    [(0, 1.25), (2, 0.375)]
    """
    covering = _Covering(shares, doubts, known)
    bounds = (shares @ (~known).astype(np.float64))[candidates]
    ties = candidates.astype(np.uint64) * np.uint64(SPREAD) % np.uint64(2**32)
    order = np.lexsort((ties, -bounds))
    waiting = [(-float(bounds[i]), int(ties[i]), int(candidates[i])) for i in order]
    ranks = {node: place for place, (_, _, node) in enumerate(waiting)}
    ranked, ready = [node for _, _, node in waiting], 0
    found: list[tuple[int, float]] = []
    while waiting and len(found) < count:
        _, tie, node = heapq.heappop(waiting)  # a sorted list is a heap
        if ranks[node] >= ready:
            covering.look(np.array(ranked[ready : ranks[node] + BLOCK]))
            ready = ranks[node] + BLOCK
        gain = covering.gain(node)
        if waiting and (-gain, tie) > waiting[0][:2]:
            heapq.heappush(waiting, (-gain, tie, node))
        else:
            covering.take(node)
            found.append((node, gain))
    return found


class _Covering:
    """Doubts of nodes, looked up when they are needed, and how much of them is reached."""

    def __init__(
        self, shares: scipy.sparse.csr_matrix, doubts: Callable[[Array], Array], known: Array
    ) -> None:
        self._shares = shares
        self._ask = doubts
        self._left = np.where(known, 0.0, np.nan)

    def _row(self, node: int) -> tuple[Array, Array]:
        start, stop = self._shares.indptr[node : node + 2]
        return self._shares.indices[start:stop], self._shares.data[start:stop]

    def look(self, nodes: Array) -> None:
        """Ask for the doubts of all that some nodes reach, each once."""
        near = np.unique(self._shares[nodes].indices)
        fresh = near[np.isnan(self._left[near])]
        self._left[fresh] = self._ask(fresh)

    def gain(self, node: int) -> float:
        """Return what is left to be reached."""
        near, shares = self._row(node)
        return float(shares @ self._left[near])

    def take(self, node: int) -> None:
        """Reach it."""
        near, shares = self._row(node)
        self._left[near] *= 1 - np.maximum(shares, COVERED)


def suggest(pinned: Pinned, n: int, *, among: Array | None = None) -> tuple[Suggestion, ...]:
    """Return unlabelled nodes worth asking about; see ``chosen`` for which.

    among: positions that may be asked about, all unless given.  int64 [any]
    """
    published = pinned.published
    known = published.labels.every() != UNLABELLED
    open_ = published.graph.alive.every() & ~known
    if among is not None:
        wanted = np.zeros_like(open_)
        wanted[among] = True
        open_ &= wanted
    shares = shares_of(published.graph)
    found = chosen(shares, np.flatnonzero(open_), _doubts(pinned), n, known=known)
    return _told(pinned, shares, found)


def _predicted(pinned: Pinned, nodes: Tensor) -> Tensor | None:
    """Return probabilities of classes, or labels; None where nothing tells.  [n, classes]"""
    page = pinned.page
    if page.scorer is None or page.kind == "numbers" or not bool(page.met.any()):
        return None
    vectors = pinned.vectors(nodes)
    if page.kind == "labels":
        return page.values(nodes, vectors)
    return page.scores(nodes, vectors).softmax(1)


def _doubts(pinned: Pinned) -> Callable[[Array], Array]:
    def doubts(nodes: Array) -> Array:
        parts = [np.zeros(0)]
        for part in torch.from_numpy(nodes.astype(np.int64)).split(ROWS):
            shares = _predicted(pinned, part)
            doubt = (
                torch.ones(len(part)) if shares is None else uncertainty(shares, pinned.page.kind)
            )
            parts.append(doubt.double().numpy())
        return np.concatenate(parts)

    return doubts


def _told(
    pinned: Pinned, shares: scipy.sparse.csr_matrix, found: list[tuple[int, float]]
) -> tuple[Suggestion, ...]:
    """Return chosen nodes with the user's names, and why each was chosen."""
    page, positions = pinned.page, [node for node, _ in found]
    nodes = torch.tensor(positions, dtype=torch.int64)
    given = _predicted(pinned, nodes) if len(nodes) else None
    names = pinned.names(positions)
    suggestions = []
    for place, (node, gain) in enumerate(found):
        reach = int(shares.indptr[node + 1] - shares.indptr[node]) - 1
        plain = Suggestion(names[place], gain, reach)
        if given is not None:
            best = given[place].topk(min(2, int(page.met.sum())))
            plain = replace(
                plain,
                uncertainty=float(uncertainty(given[place : place + 1], page.kind)),
                classes=tuple(page.classes[number] for number in best.indices.tolist()),
                probabilities=tuple(best.values.tolist()),
            )
        suggestions.append(plain)
    return tuple(suggestions)
