"""Condensed memories: synthetic vectors that represent a class better than any of its nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from evergraph.core.component import choice, integer, number
from evergraph.memory.samplers.base import Budgets, Candidates, Sampler, samplers
from evergraph.topology.rowwise import unit_rows

# Candidates whose features are held at a time.
ROWS_PER_BLOCK = 4096
# Entries of a block of residuals, whatever the number of classes.
CELLS_PER_BLOCK = ROWS_PER_BLOCK * 64

Map = Callable[[Tensor], Tensor]
STARTS = ("herding", "uniform")


@dataclass(kw_only=True, eq=False, repr=False)
class CondensingSampler(Sampler):
    """Starts from chosen embeddings and moves them until they represent all candidates.

    The stored vectors are synthetic: no node has these embeddings. A vector still counts as the
    node it started from, so a memory's ``nodes_`` and its coverage refer to those nodes. A memory
    of nodes, not embeddings, keeps the starting nodes. Optimised by steepest descent, since Adam
    did far worse (decision 15). If all candidates have unit length, the vectors are scaled to unit
    length after every step.

    Args:
        start: the sampler that chooses the starting nodes.
        steps: number of descent steps.
        lr: distance that the fastest vector moves in the first step, as a share of the
            candidates' deviation from their mean; falls to 0.
    """

    start: str = choice("herding", STARTS)
    steps: int = integer(50, least=0)
    lr: float = number(0.1, least=0.0)

    @abstractmethod
    def distance(self, candidates: Candidates, labels: Tensor, *, generator: Generator) -> Map:
        """Return the function to minimise: the distance of vectors from the candidates.

        labels: the classes of the vectors.  int64 [vectors];  -> [vectors, dims] -> []
        """

    def rank(self, candidates: Candidates, budgets: Budgets, *, generator: Generator) -> Tensor:
        return samplers.make(self.start).rank(candidates, budgets, generator=generator)

    def vectors(self, candidates: Candidates, chosen: Tensor, *, generator: Generator) -> Tensor:
        """Return the chosen embeddings after the descent.  int64 [chosen] -> [chosen, dims]"""
        vectors = super().vectors(candidates, chosen, generator=generator).detach().clone()
        if not len(chosen):
            return vectors
        labels = candidates.labels.to(vectors.device)[chosen.to(vectors.device)]
        distance = self.distance(candidates, labels, generator=generator)
        lr = self.lr * float(spread(candidates.embeddings)[1])
        of_unit_length = has_unit_length(candidates.embeddings)
        for step in range(self.steps):  # their lengths fall to 0
            with torch.enable_grad():
                vectors = vectors.detach().requires_grad_()
                (slope,) = torch.autograd.grad(distance(vectors), vectors)
            longest = slope.norm(dim=1).max().clamp_min(1e-12)
            vectors = vectors.detach() - lr * (1 - step / self.steps) * slope / longest
            if of_unit_length:
                vectors = unit_rows(vectors, together=True)
        return vectors


def has_unit_length(embeddings: Tensor) -> bool:
    """Return whether every embedding has length 1, or 0 for a node without features."""
    lengths = embeddings.norm(dim=1)
    return bool((((lengths - 1).abs() < 1e-4) | (lengths == 0)).all())


def averaging(labels: Tensor, classes: Tensor) -> Tensor:
    """Return the matrix that averages rows class by class.  int64 [n], [classes] -> [classes, n]

    A product with it, unlike a scatter, adds in the same order on every device.
    """
    members = (labels == classes[:, None]).float()
    return members / members.sum(1, keepdim=True).clamp_min(1.0)


def spread(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the root mean squared distance from it.  [n, dims] -> [dims], []"""
    mean = embeddings.mean(0)
    return mean, (embeddings - mean).square().sum(1).mean().sqrt().clamp_min(1e-12)


@samplers.register
@dataclass(kw_only=True, eq=False, repr=False)
class DistributionMatchingSampler(CondensingSampler):
    """Synthetic embeddings that match their class's mean, also through random layers (CaT, PUMA).

    Minimises Σ_c ‖mean_{v∈c} φ(e_v) - mean_{s∈c} φ(s)‖², a maximum mean discrepancy, where
    φ(e) = [z, relu(W z + b)], z = (e - mean) / deviation of all candidates, consists of the
    embedding itself and an untrained layer with normal W and b (Liu et al. 2023, CaT; 2024, PUMA;
    Zhao and Bilen 2023). The candidates' means are computed once.

    Args:
        features: width of the random layer.
    """

    name = "distribution-matching"

    features: int = integer(256, least=0)

    def distance(self, candidates: Candidates, labels: Tensor, *, generator: Generator) -> Map:
        expand = self._expansion(candidates.embeddings, generator=generator)
        classes = labels.unique()
        real = averaging(candidates.labels.to(labels.device), classes)
        parts = zip(
            real.split(ROWS_PER_BLOCK, dim=1),
            candidates.embeddings.split(ROWS_PER_BLOCK),
            strict=True,
        )
        means = sum(weights @ expand(rows) for weights, rows in parts)
        vector_averaging = averaging(labels, classes)
        return lambda vectors: (vector_averaging @ expand(vectors) - means).square().sum()

    def _expansion(self, embeddings: Tensor, *, generator: Generator) -> Map:
        """Return φ.  [n, dims] -> [n, dims + features]"""
        mean, deviation = spread(embeddings)
        weights = torch.randn(embeddings.shape[1], self.features, generator=generator)
        biases = torch.randn(self.features, generator=generator)
        weights, biases = weights.to(embeddings), biases.to(embeddings)
        share = max(self.features, 1) ** -0.5  # both parts have equal weight

        def expand(rows: Tensor) -> Tensor:
            rows = (rows - mean) / deviation
            layer = torch.addmm(biases, rows, weights).relu()
            return torch.cat([rows, share * layer], dim=1)

        return expand


@samplers.register
@dataclass(kw_only=True, eq=False, repr=False)
class GradientMatchingSampler(CondensingSampler):
    """Synthetic embeddings whose loss has the same gradient as that of their class (DeLoMe).

    For random linear heads over the task's classes, the gradient of the cross-entropy of class c
    is G_kc = mean_{v∈c} (softmax(W_k e_v + b_k) - 1_c) e_vᵀ. Minimises the mean over heads and
    classes of ‖G_kc - G'_kc‖² / ‖G_kc‖², G' of the vectors (Niu et al. 2024; Zhao et al. 2021).
    The candidates' gradients are computed once. A task of one class has no gradient, and its
    vectors stay at their start.

    Args:
        heads: number of random heads.
        sharpness: the standard deviation of a head's scores; at 0 only class means count.
    """

    name = "gradient-matching"

    heads: int = integer(8, least=1)
    sharpness: float = number(1.0, least=0.0)
    lr: float = number(0.03, least=0.0)

    def distance(self, candidates: Candidates, labels: Tensor, *, generator: Generator) -> Map:
        candidate_labels = candidates.labels.to(labels.device)
        all_classes, classes = candidate_labels.unique(), labels.unique()
        heads = self._heads(candidates.embeddings, len(all_classes), generator=generator)
        targets = torch.searchsorted(all_classes, candidate_labels)
        vector_targets = torch.searchsorted(all_classes, labels)
        per_class = averaging(candidate_labels, classes)
        class_gradients = _gradients(candidates.embeddings, targets, per_class, heads)
        lengths = class_gradients.square().sum((2, 3)).clamp_min(1e-12)  # [classes, heads]
        weights = averaging(labels, classes)

        def distance(vectors: Tensor) -> Tensor:
            differences = _gradients(vectors, vector_targets, weights, heads) - class_gradients
            return (differences.square().sum((2, 3)) / lengths).mean()

        return distance

    def _heads(self, embeddings: Tensor, classes: int, *, generator: Generator) -> Tensor:
        """Return random heads with a bias that makes the average score 0.

        -> [heads, dims + 1, classes], the bias last
        """
        mean, deviation = spread(embeddings)
        shape = (self.heads, embeddings.shape[1], classes)
        weights = torch.randn(shape, generator=generator).to(embeddings)
        weights = weights * (self.sharpness / deviation)
        return torch.cat([weights, -(mean @ weights)[:, None]], dim=1)


def _gradients(rows: Tensor, targets: Tensor, weights: Tensor, heads: Tensor) -> Tensor:
    """Return the gradient of each class's mean loss in each head.

    rows: [n, dims]; targets: int64 [n]; weights: [chosen classes, n];
    heads: [heads, dims + 1, classes];  -> [chosen classes, heads, classes, dims]
    """
    classes = heads.shape[2]
    block = max(1, CELLS_PER_BLOCK // (len(heads) * classes))
    total = rows.new_zeros(len(weights), len(heads), classes, rows.shape[1])
    for part, part_targets, share in zip(
        rows.split(block), targets.split(block), weights.split(block, dim=1), strict=True
    ):
        scores = (part @ heads[:, :-1] + heads[:, -1:]).transpose(0, 1)  # [block, heads, classes]
        residuals = scores.softmax(2) - one_hot(part_targets, classes)[:, None]
        total = total + torch.einsum("yn,nhc,nd->yhcd", share, residuals, part)
    return total
