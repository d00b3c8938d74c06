"""Samplers that take nodes one by one: herding, k-centre and greedy coverage."""

from __future__ import annotations

import heapq

import torch
from torch import Generator, Tensor

from evergraph.core.resources import Resources
from evergraph.graphs import covered_nodes, reach_sizes
from evergraph.memory.samplers.base import Budgets, Candidates, Sampler, StepwiseSampler, samplers


@samplers.register
class HerdingSampler(StepwiseSampler):
    """Repeatedly takes the node that brings the mean of those taken closest to the class mean.

    Step k takes argmin_v ‖μ - (e_v + Σ_{w taken} e_w) / k‖ (Welling 2009; iCaRL, Rebuffi et al.
    2017). Since ‖kμ - Σ e_w - e_v‖² = ‖r‖² - 2 rᵀe_v + ‖e_v‖² with r = kμ - Σ e_w, a step is one
    product of the embeddings with r: O(budget · n · dims) for a class of n. Deterministic.

    >>> line = torch.tensor([[0.0], [1.0], [2.0], [7.0]])  # their mean is 2.5
    >>> HerdingSampler().order(line, 2)  # 2 is nearest to 2.5; then 3 would be ideal, 1 is closest
    tensor([2, 1])
    """

    name = "herding"

    def order(self, embeddings: Tensor, count: int) -> Tensor:
        lengths = embeddings.square().sum(1)  # [n]
        mean = embeddings.mean(0)
        wanted = mean.clone()  # r: the ideal next row
        taken = torch.empty(count, dtype=torch.int64, device=embeddings.device)
        for step in range(count):
            best = (lengths - 2 * (embeddings @ wanted)).argmin()
            taken[step] = best
            lengths[best] = torch.inf  # no row is taken twice
            wanted += mean - embeddings[best]
        return taken


@samplers.register
class KCentreSampler(StepwiseSampler):
    """Repeatedly takes the node farthest from all taken before (Sener and Savarese 2018).

    Farthest-first traversal from the candidate nearest the class mean: the radius
    max_v min_{w taken} ‖e_v - e_w‖ is at most twice the smallest possible (Gonzalez 1985). It
    needs only each candidate's distance to the nearest one taken: O(budget · n · dims) for a class
    of n. Deterministic.

    >>> line = torch.tensor([[0.0], [1.0], [2.0], [7.0]])  # their mean is 2.5
    >>> KCentreSampler().order(line, 3)
    tensor([2, 3, 0])
    """

    name = "k-centre"

    def order(self, embeddings: Tensor, count: int) -> Tensor:
        apart = embeddings.new_full((len(embeddings),), torch.inf)  # distance to the nearest taken
        farthest = (embeddings - embeddings.mean(0)).norm(dim=1).argmin()
        taken = torch.empty(count, dtype=torch.int64, device=embeddings.device)
        for step in range(count):
            taken[step] = farthest
            apart = torch.minimum(apart, (embeddings - embeddings[farthest]).norm(dim=1))
            apart[farthest] = -1.0  # no row is taken twice, even if rows are equal
            farthest = apart.argmax()
        return taken


# A heap entry is a tuple of two numbers, and lists hold three more; a node has an int64 row pointer
# and up to eight bytes of masks.
_CANDIDATE_BYTES = 260
_NODE_BYTES = 16


@samplers.register
class GreedyCoverageSampler(Sampler):
    """Repeatedly takes the node that covers the most uncovered nodes.

    This is the paper's "naive approach", called too slow there because every step would measure
    every candidate. A candidate's gain never grows, so an earlier gain is an upper bound, and only
    the top of a heap has to be measured again (Minoux 1978). The same nodes are chosen. Classes of
    a task share the covered nodes; each has its own budget. Deterministic.
    """

    name = "greedy-coverage"

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        ranks = torch.full((len(candidates),), torch.inf, dtype=torch.float64)
        labels = candidates.labels.tolist()
        graph, hops = candidates.graph, candidates.hops
        held = _CANDIDATE_BYTES * len(candidates) + _NODE_BYTES * graph.num_nodes
        Resources().check(held, f"greedy coverage of {len(candidates)} candidates")
        # Always exact: a first gain that is too small would put a candidate too low in the heap.
        sizes = reach_sizes(graph, candidates.nodes, hops=hops, method="exact").tolist()
        heap = [(-size, row) for row, size in enumerate(sizes)]
        heapq.heapify(heap)
        left = dict(budgets)
        covered = torch.zeros(graph.num_nodes, dtype=torch.bool)
        step = 0
        while heap and any(left.values()):
            _, row = heapq.heappop(heap)
            if not left.get(labels[row], 0):
                continue
            ego = covered_nodes(graph, candidates.nodes[row : row + 1], hops=hops)
            gain = int((ego & ~covered).sum())
            if heap and gain < -heap[0][0]:
                heapq.heappush(heap, (-gain, row))
                continue
            covered |= ego
            ranks[row] = step
            left[labels[row]] -= 1
            step += 1
        return ranks
