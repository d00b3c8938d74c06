"""Condensed memories: synthetic vectors that represent a class better than any of its nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.memory.samplers.base import Candidates, Sampler, samplers
from evergraph.topology.rowwise import unit_rows

# Candidates whose features are held at a time.
BLOCK = 4096

STARTS = ("herding", "uniform")


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

    def __init__(self, *, start: str, steps: int, lr: float) -> None:
        check_choice("start", start, STARTS)
        check_integer("steps", steps, least=0)
        check_number("lr", lr, least=0.0)
        self.start = start
        self.steps = steps
        self.lr = lr

    @abstractmethod
    def distance(
        self, candidates: Candidates, labels: Tensor, *, generator: torch.Generator
    ) -> Callable[[Tensor], Tensor]:
        """Return the function to minimise: the distance of vectors from the candidates.

        labels: the classes of the vectors.  int64 [vectors];  -> [vectors, dims] -> []
        """

    def rank(
        self, candidates: Candidates, budgets: Mapping[int, int], *, generator: torch.Generator
    ) -> Tensor:
        """Return the ranks of the starting sampler."""
        return samplers.make(self.start).rank(candidates, budgets, generator=generator)

    def vectors(
        self, candidates: Candidates, chosen: Tensor, *, generator: torch.Generator
    ) -> Tensor:
        """Return the chosen embeddings after the descent.  int64 [chosen] -> [chosen, dims]"""
        vectors = super().vectors(candidates, chosen, generator=generator).detach().clone()
        if not len(chosen):
            return vectors
        labels = candidates.labels.to(vectors.device)[chosen.to(vectors.device)]
        distance = self.distance(candidates, labels, generator=generator)
        lr = self.lr * float(spread(candidates.embeddings)[1])
        unit = has_unit_length(candidates.embeddings)
        for step in range(self.steps):  # their lengths fall to 0
            with torch.enable_grad():
                vectors = vectors.detach().requires_grad_()
                (slope,) = torch.autograd.grad(distance(vectors), vectors)
            longest = slope.norm(dim=1).max().clamp_min(1e-12)
            vectors = vectors.detach() - lr * (1 - step / self.steps) * slope / longest
            if unit:
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
