"""Samplers that choose nodes: one by one for herding, k-centre and greedy coverage; ER-GNN's by rank."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from evergraph.core.component import number
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
        target = mean.clone()  # r: the ideal next row
        chosen = torch.empty(count, dtype=torch.int64, device=embeddings.device)
        for step in range(count):
            best = (lengths - 2 * (embeddings @ target)).argmin()
            chosen[step] = best
            lengths[best] = torch.inf  # no row is taken twice
            target += mean - embeddings[best]
        return chosen


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
        # The distance of each row from the nearest one taken.
        distances = embeddings.new_full((len(embeddings),), torch.inf)
        farthest = (embeddings - embeddings.mean(0)).norm(dim=1).argmin()
        chosen = torch.empty(count, dtype=torch.int64, device=embeddings.device)
        for step in range(count):
            chosen[step] = farthest
            distances = torch.minimum(distances, (embeddings - embeddings[farthest]).norm(dim=1))
            distances[farthest] = -1.0  # no row is taken twice, even if rows are equal
            farthest = distances.argmax()
        return chosen


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
        bytes_needed = _CANDIDATE_BYTES * len(candidates) + _NODE_BYTES * graph.num_nodes
        Resources().check(bytes_needed, f"greedy coverage of {len(candidates)} candidates")
        # Always exact: a first gain that is too small would put a candidate too low in the heap.
        sizes = reach_sizes(graph, candidates.nodes, hops=hops, method="exact").tolist()
        heap = [(-size, row) for row, size in enumerate(sizes)]
        heapq.heapify(heap)
        budgets_left = dict(budgets)
        covered = torch.zeros(graph.num_nodes, dtype=torch.bool)
        step = 0
        while heap and any(budgets_left.values()):
            _, row = heapq.heappop(heap)
            if not budgets_left.get(labels[row], 0):
                continue
            ego = covered_nodes(graph, candidates.nodes[row : row + 1], hops=hops)
            gain = int((ego & ~covered).sum())
            if heap and gain < -heap[0][0]:
                heapq.heappush(heap, (-gain, row))
                continue
            covered |= ego
            ranks[row] = step
            budgets_left[labels[row]] -= 1
            step += 1
        return ranks


@samplers.register
class MeanFeatureSampler(Sampler):
    """Keeps the embeddings nearest to their class mean (mean of features: iCaRL, ER-GNN)."""

    name = "mean-feature"
    aliases = ("mf",)

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        labels = candidates.labels.to(candidates.embeddings.device)
        classes, owner = labels.unique(return_inverse=True)
        sums = candidates.embeddings.new_zeros(len(classes), candidates.embeddings.shape[1])
        sums.index_add_(0, owner, candidates.embeddings)
        means = sums / torch.bincount(owner).unsqueeze(1)
        distances: Tensor = (candidates.embeddings - means[owner]).norm(dim=1)
        return distances.double().cpu()


# Candidates whose distances to all others are held at a time.
ROWS_PER_BLOCK = 1024


@samplers.register
@dataclass(kw_only=True, eq=False, repr=False)
class EmbeddingCoverageSampler(Sampler):
    """Coverage maximisation in embedding space (CM of ER-GNN, Zhou and Cao 2021).

    N(v) = {u : ‖h_u - h_v‖ < d, y_u ≠ y_v}; the nodes with the smallest N are kept, since they
    represent a region of their class only. Ties are broken at random.

    Args:
        radius: d as a share of the mean distance between candidates, so that one value fits
            any scale of the hidden layer; published runs use 0.5.
    """

    name = "embedding-coverage"
    aliases = ("cm",)

    radius: float = number(0.5, least=0.0)

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        """Return the number of near candidates of other classes, plus a fraction to break ties."""
        embeddings = candidates.embeddings
        labels = candidates.labels.to(embeddings.device)
        # The root of the mean squared distance between pairs: √2 times the total deviation.
        distance = (2 * embeddings.var(dim=0, unbiased=False).sum()).sqrt()
        radius = self.radius * float(distance if len(embeddings) else 0.0)
        counts = []
        for start in range(0, len(embeddings), ROWS_PER_BLOCK):
            block = slice(start, start + ROWS_PER_BLOCK)
            near = torch.cdist(embeddings[block], embeddings) < radius
            other_class = labels[block, None] != labels
            counts.append((near & other_class).sum(1))
        ties = torch.rand(len(candidates), dtype=torch.float64, generator=generator)
        return torch.cat(counts).double().cpu() + ties if counts else ties


@samplers.register
@dataclass(kw_only=True, eq=False, repr=False)
class InfluenceSampler(Sampler):
    """Keeps the nodes of largest influence g_vᵀ H^-1 g_v (IM of ER-GNN, Zhou and Cao 2021).

    An influence function measures how far the parameters move if a node's weight changes: H^-1 g_v.
    At the last layer a node's gradient is the outer product δ_v h_vᵀ of its residual and its hidden
    state; with H factored as E[δδᵀ] ⊗ E[hhᵀ], the influence is
    (δᵀ (E[δδᵀ] + εI)^-1 δ) · (hᵀ (E[hhᵀ] + εI)^-1 h): two solves for all nodes together. Without
    a model's residuals only the second factor is used: the leverage of an embedding.

    Args:
        damping: ε as a share of the mean of each factor's diagonal.
    """

    name = "influence"
    aliases = ("im",)

    damping: float = number(0.01, least=1e-8)

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        influence = self._lengths(candidates.embeddings.double())
        if candidates.residuals is not None:
            influence = influence * self._lengths(candidates.residuals.double())
        return -influence.cpu()

    def _lengths(self, rows: Tensor) -> Tensor:
        """Return rᵀ (E[rrᵀ] + εI)^-1 r for each row.  [n, d] -> [n]"""
        moment = rows.t() @ rows / max(len(rows), 1)
        scale = moment.diagonal().mean().clamp_min(1e-12)
        eye = torch.eye(len(moment), dtype=rows.dtype, device=rows.device)
        solved = torch.linalg.solve(moment + self.damping * scale * eye, rows.t())  # [d, n]
        lengths: Tensor = (rows * solved.t()).sum(1)
        return lengths
