"""Active learning: which unlabelled nodes are worth labelling next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED
from evergraph.online.arrays import Array
from evergraph.online.delta import Label, NodeId
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.view.published import Reading

CANDIDATES_PER_BLOCK = 512  # whose neighbourhoods are scored together
NODES_PER_BLOCK = 4096  # that are scored at once
COVERED = 0.5  # share of a node's doubt that is settled once a neighbour is chosen
SPREAD = 2_654_435_761  # hashes positions (Knuth's constant), so that ties spread over the graph


@dataclass(frozen=True)
class Suggestion:
    """A node that is worth labelling next, and why.

    Attributes:
        id: of the node.
        gain: how much uncertainty its label is expected to reach: 𝑔 in ``chosen``.
        reach: how many other nodes aggregate its features directly.
        uncertainty: of its own prediction, from 0 to 1: one minus the margin between the two
            likeliest classes, or that of the most doubtful of several labels. None before the first
            label, and for numbers.
        classes: the two likeliest, or one if only one is known; none before the first label.
        probabilities: of these classes.
    """

    id: NodeId
    gain: float
    reach: int
    uncertainty: float | None = None
    classes: tuple[Label, ...] = ()
    probabilities: tuple[float, ...] = ()


def shares_of(graph: GrowingGraph) -> scipy.sparse.csr_matrix:
    """Return in row v the share of v in what each node aggregates, itself included.

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
    """Return the nodes whose labels reach most doubt, with their gains, chosen greedily.

    Node u has doubt d_u: the uncertainty of its prediction, 0 if it is labelled. The label of v
    reaches a share S[v, u] of it. The next node is the one with the largest gain

        g_v = Σ_u S[v, u] d_u,    and then    d_u <- d_u (1 - max(S[v, u], 1/2)) where S[v, u] > 0.

    This is uncertainty times reach, spread out: a neighbour of a chosen node keeps at most half of
    its doubt. In a dense graph all shares are small, and without the half all choices would lie
    close together. Gains only fall, and are at most Σ_u S[v, u] over unlabelled u, so a lazy greedy
    search computes doubts only around nodes that may still be chosen.

    shares: S; candidates: positions; doubts: returns d of positions, float [n], at most 1; known:
    which positions are labelled.  bool [positions]

    One leaf of a star of three is labelled. The centre reaches half of the others and comes first;
    then one of the two other leaves, a tie that their positions break.

    >>> star = scipy.sparse.csr_matrix(np.array([[.25, .5, .5, .5], [.25, .5, 0, 0],
    ...                                          [.25, 0, .5, 0], [.25, 0, 0, .5]]))
    >>> chosen(star, np.arange(3), lambda nodes: np.ones(len(nodes)), 2,
    ...        known=np.array([False, False, False, True]))
    [(0, 1.25), (2, 0.375)]
    """
    doubts_left = np.where(known, 0.0, np.nan)  # doubts; NaN: not computed yet
    bounds = (shares @ (~known).astype(np.float64))[candidates]
    ties = candidates.astype(np.uint64) * np.uint64(SPREAD) % np.uint64(2**32)
    order = np.lexsort((ties, -bounds))
    waiting = [(-float(bounds[i]), int(ties[i]), int(candidates[i])) for i in order]
    ranks = {node: rank for rank, (_, _, node) in enumerate(waiting)}
    ranked, doubts_known = [node for _, _, node in waiting], 0
    suggestions: list[tuple[int, float]] = []
    while waiting and len(suggestions) < count:
        _, tie, node = heapq.heappop(waiting)  # a sorted list is a heap
        if ranks[node] >= doubts_known:  # doubts of all that the next candidates reach
            reached_nodes = np.unique(
                shares[np.array(ranked[doubts_known : ranks[node] + CANDIDATES_PER_BLOCK])].indices
            )
            uncomputed = reached_nodes[np.isnan(doubts_left[reached_nodes])]
            doubts_left[uncomputed] = doubts(uncomputed)
            doubts_known = ranks[node] + CANDIDATES_PER_BLOCK
        entries = slice(*shares.indptr[node : node + 2])
        reached_nodes, reached_shares = shares.indices[entries], shares.data[entries]
        gain = float(reached_shares @ doubts_left[reached_nodes])
        if waiting and (-gain, tie) > waiting[0][:2]:
            heapq.heappush(waiting, (-gain, tie, node))
        else:
            doubts_left[reached_nodes] *= 1 - np.maximum(reached_shares, COVERED)
            suggestions.append((node, gain))
    return suggestions


def suggest(reading: Reading, n: int, *, among: Array | None = None) -> tuple[Suggestion, ...]:
    """Return at most n unlabelled nodes, of all or ``among`` some positions, as ``chosen`` does."""
    published, graph = reading.published, reading.known.graph
    predicts = published.has_learned and published.target.has_probabilities
    known = reading.known.labels.every.numpy() != UNLABELLED
    open_ = graph.alive.numpy() & ~known
    if among is not None:
        wanted = np.zeros_like(open_)
        wanted[among] = True
        open_ &= wanted
    shares = shares_of(graph)

    def doubts(nodes: Array) -> Array:
        by_part = [np.zeros(0)]
        for part in torch.from_numpy(nodes.astype(np.int64)).split(NODES_PER_BLOCK):
            doubt = torch.ones(len(part))
            if predicts:
                doubt = published.target.uncertainty(_shares(reading, part))
            by_part.append(doubt.double().numpy())
        return np.concatenate(by_part)

    suggestions = chosen(shares, np.flatnonzero(open_), doubts, n, known=known)
    positions = [node for node, _ in suggestions]
    reaches = (np.diff(shares.indptr)[positions] - 1).tolist()
    unpredicted = zip(
        reading.names(positions), (gain for _, gain in suggestions), reaches, strict=True
    )
    if not predicts or not suggestions:
        return tuple(Suggestion(*each) for each in unpredicted)
    nodes = torch.tensor(positions, dtype=torch.int64)
    probabilities = _shares(reading, nodes)
    two_best = probabilities.topk(min(2, int(published.met.sum())))
    uncertainties = published.target.uncertainty(probabilities).tolist()
    rows = zip(
        unpredicted, uncertainties, two_best.indices.tolist(), two_best.values.tolist(), strict=True
    )
    return tuple(
        Suggestion(
            name, gain, reach, doubt, tuple(published.classes[i] for i in numbers), tuple(likely)
        )
        for (name, gain, reach), doubt, numbers, likely in rows
    )


def _shares(reading: Reading, nodes: Tensor) -> Tensor:
    """Return the probabilities of classes or labels of some nodes.  [n] -> [n, targets]"""
    return torch.from_numpy(reading.published.shares(reading.known.of(nodes).numpy()))
