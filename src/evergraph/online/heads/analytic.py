"""A head in closed form on random features: learning adds to sums, and forgetting subtracts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Generator, Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.ridge import balanced_ridge
from evergraph.core.checks import check_number
from evergraph.methods.analytic import SHARPNESS
from evergraph.nn import RandomFeatures
from evergraph.nn.random_features import BLOCK_VALUES as FEATURE_VALUES
from evergraph.nn.random_features import Activation, Expansion
from evergraph.online.heads.base import Ids, OnlineHead, Scorer, heads, of_classes
from evergraph.online.state_arrays import Packing
from evergraph.topology import TopologyEncoder
from evergraph.topology.rowwise import BLOCK, Matrix, Panels
from evergraph.training.learner import part_of


@heads.register
class AnalyticHead(OnlineHead):
    """Ridge regression on random features of the embedding, from sums over all labelled nodes.

    V = (A + λI)⁻¹ M, see method ``analytic``. Here every node has the same weight, so a node that
    comes, moves or goes changes only its own terms of the sums. Whatever the order of arrival, V
    equals that of a learner given all labelled nodes at once with their current embeddings. A delta
    costs m² for each labelled node that came or moved, and m³/3 once.

    Args:
        width: m, the number of random features; memory is 4 m² bytes.
        regularisation: λ as a share of A's mean diagonal.
        activation: of the features, ``relu`` or ``fourier``.

    >>> from evergraph.topology import Identity
    >>> head = AnalyticHead(width=64)
    >>> head.begin(2, topology=Identity(), generator=torch.Generator())
    >>> ids, vectors = torch.tensor([0, 1]), torch.eye(2)
    >>> head.learn(ids, vectors, torch.tensor([1, 0]))
    >>> head.settle()
    >>> head.scores(ids, vectors).argmax(1)
    tensor([1, 0])
    """

    name = "analytic"
    exact_forgetting = True
    lazy = True
    drops_classes = True

    def __init__(
        self, *, width: int = 1024, regularisation: float = 0.01, activation: Activation = "relu"
    ) -> None:
        check_number("regularisation", regularisation, least=0.0)
        self.width, self.regularisation = width, regularisation
        self.activation: Activation = activation
        self._features = RandomFeatures(width=width, activation=activation)
        self.statistics_ = ClassStatistics(width, precise=True)
        self.weights_ = torch.zeros(width, 0)  # V
        self._settled = True

    def begin(
        self, dims: int, *, topology: TopologyEncoder, generator: Generator, related: bool = False
    ) -> None:
        """Draw φ."""
        self._features.begin(dims, generator=generator)
        self._expand_exactly()

    def _expand_exactly(self) -> None:
        # φ for the sums is in float64, so that subtracting a node removes what was added.
        self._drawn = drawn = self._features.expansion()
        self._exact = replace(drawn, matrix=drawn.matrix.double(), phases=drawn.phases.double())

    @property
    def num_classes(self) -> int:
        """How many classes there is room for."""
        return self.statistics_.num_classes

    def grow(self, classes: int) -> None:
        """Make room for classes."""
        self._settled &= classes <= self.num_classes
        self.statistics_.grow(classes)

    def learn(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Add nodes to the sums."""
        if len(ids):
            self.statistics_.add(self._expanded(vectors), labels, torch.ones(len(ids)))
            self._settled = False

    def move(self, ids: Tensor, before: Tensor, after: Tensor, labels: Tensor) -> None:
        """Subtract nodes from the sums with their old vectors, and add them with the new ones."""
        if len(ids):
            parts = labels.split([len(part) for part in self._exact.blocks(after)])
            for was, now, part in zip(
                self._expanded(before), self._expanded(after), parts, strict=True
            ):
                self.statistics_.exchange(was, now, part)
            self._settled = False

    def forget(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Subtract nodes from the sums."""
        if len(ids):
            self.statistics_.remove(self._expanded(vectors), labels, torch.ones(len(ids)))
            self.statistics_.clear_rounding()
            self._settled = False

    def sizes(self) -> Tensor | None:
        """Return Σ ‖φ‖²."""
        return self.statistics_.gram_.diagonal().sum()[None]

    def restart(self) -> None:
        """Empty the sums."""
        self.statistics_.clear()
        self._settled = False

    def settle(self) -> None:
        """Solve for V."""
        if not self._settled:
            self.weights_ = balanced_ridge(self.statistics_, self.regularisation).float()
            self._settled = True

    def scorer(self) -> RidgeScorer:
        """Return φ and V; V is only ever replaced, not written to."""
        return RidgeScorer(self._drawn, self.weights_, SHARPNESS)

    def _expanded(self, vectors: Tensor) -> Iterator[Tensor]:
        return (self._exact(part.double()) for part in self._exact.blocks(vectors))

    def bytes_for(self, *, nodes: int, counted: int, classes: int, new: int) -> int:
        """Return the bytes of sums and V, a copy of each, and features of a block of nodes."""
        kept = 8 + 4
        held = 4 * 8  # growing sums, means, V in float64, and a block
        block = min(counted * self.width, FEATURE_VALUES)
        return self.width * (kept * new + held * classes + 3 * 8 * self.width) + 5 * 8 * block

    @property
    def nbytes(self) -> int:
        """How many bytes it keeps; of the symmetric G only half, as in ``state``."""
        statistics = self.statistics_
        return statistics.gram_.nbytes // 2 + statistics.sums_.nbytes + self.weights_.nbytes

    def state(self) -> dict[str, Tensor]:
        """Return the seed of φ, the sums, V, and whether V is up to date."""
        kept = {f"statistics.{name}": value for name, value in self.statistics_.state().items()}
        settled = torch.tensor(self._settled)
        return kept | {"seed": self._features.seed, "weights": self.weights_, "settled": settled}

    def packed(
        self, state: dict[str, Tensor], nodes: Packing, classes: Packing
    ) -> dict[str, Tensor]:
        """Return a state without classes that no node has."""
        return of_classes(state, classes.living)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.statistics_.restore(part_of(state, "statistics."))
        self._features.seed = state["seed"]
        self._expand_exactly()
        self.weights_ = state["weights"]
        self._settled = bool(state.get("settled", True))


@dataclass(frozen=True, eq=False)
class RidgeScorer(Scorer):
    """s(e) = scale · Vᵀφ(e): scores for a softmax."""

    expansion: Expansion
    weights: Tensor
    scale: float

    def __call__(self, ids: Ids, vectors: Matrix) -> Matrix:
        """Return the scores.  [n, dims] -> [n, classes]"""
        scores = np.empty((len(vectors), self._panels.columns), np.float32)
        for start in range(0, len(vectors), BLOCK):
            rows = slice(start, start + BLOCK)
            scores[rows] = self._panels(self.expansion.rowwise(vectors[rows]))
        scores *= np.float32(self.scale)
        return scores

    @cached_property
    def _panels(self) -> Panels:
        return Panels.of(self.weights)

    def slopes(self, vector: Tensor) -> Tensor | None:
        """Return Vᵀ diag(e R > 0) Rᵀ: s(e) is this times e with ReLU.  -> [classes, dims]"""
        if self.expansion.activation != "relu" or self.expansion.centre is not None:
            return None
        passed = (vector @ self.expansion.matrix > 0).float()  # [width]
        scale = self.scale * (2 / self.expansion.width) ** 0.5
        return ((self.weights * passed[:, None]).t() @ self.expansion.matrix.t()).mul_(scale)
