"""Heads in closed form on random features: learning adds to sums, and forgetting subtracts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Generator, Tensor

from evergraph.closed_form import ClassStatistics
from evergraph.closed_form.ridge import balanced_ridge
from evergraph.closed_form.targets import STEEPNESS, TargetStatistics, target_ridge
from evergraph.core.checks import check_choice, check_number
from evergraph.core.label_space import Kind
from evergraph.methods.analytic import SHARPNESS
from evergraph.nn import RandomFeatures
from evergraph.nn.random_features import BLOCK_VALUES as FEATURE_VALUES
from evergraph.nn.random_features import Activation, Expansion
from evergraph.online.delta import Label, meant_by
from evergraph.online.heads.base import BLOCK_VALUES as VALUES
from evergraph.online.heads.base import Ids, OnlineHead, Scorer, heads, of_classes, row_blocks
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
        return kept | self._own_state()

    def _own_state(self) -> dict[str, Tensor]:
        settled = torch.tensor(self._settled)
        return {"seed": self._features.seed, "weights": self.weights_, "settled": settled}

    def packed(
        self, state: dict[str, Tensor], nodes: Packing, classes: Packing
    ) -> dict[str, Tensor]:
        """Return a state without classes that no node has."""
        return of_classes(state, classes.living) if self.drops_classes else state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.statistics_.restore(part_of(state, "statistics."))
        self._restore_own(state)

    def _restore_own(self, state: dict[str, Tensor]) -> None:
        self._features.seed = state["seed"]
        self._expand_exactly()
        self.weights_ = state["weights"]
        self._settled = bool(state.get("settled", True))


@dataclass(frozen=True, eq=False)
class RidgeScorer(Scorer):
    """s(e) = scale · Vᵀφ(e) + shift: scores for a softmax, log-odds of labels, or numbers."""

    expansion: Expansion
    weights: Tensor
    scale: float
    shift: Tensor | None = None

    def __call__(self, ids: Ids, vectors: Matrix) -> Matrix:
        """Return the scores.  [n, dims] -> [n, classes]"""
        scores = np.empty((len(vectors), self._panels.columns), np.float32)
        for start in range(0, len(vectors), BLOCK):
            rows = slice(start, start + BLOCK)
            scores[rows] = self._panels(self.expansion.rowwise(vectors[rows]))
        scores *= np.float32(self.scale)
        if self.shift is not None:
            scores += self.shift.numpy()
        return scores

    @cached_property
    def _panels(self) -> Panels:
        return Panels.of(self.weights)

    def slopes(self, vector: Tensor) -> Tensor | None:
        """Return Vᵀ diag(e R > 0) Rᵀ: s(e) is this times e with ReLU.  -> [classes, dims]"""
        relu = self.expansion.activation == "relu" and self.expansion.centre is None
        if not relu or self.shift is not None:
            return None
        passed = (vector @ self.expansion.matrix > 0).float()  # [width]
        scale = self.scale * (2 / self.expansion.width) ** 0.5
        return ((self.weights * passed[:, None]).t() @ self.expansion.matrix.t()).mul_(scale)


Count = Callable[[Iterator[Tensor], Tensor, Tensor], None]


@heads.register
class TargetHead(AnalyticHead):
    """Ridge regression of every label, or of a number, on random features of the embedding.

    V = (G + λI)⁻¹ M with G = Σ φφᵀ and M = Σ φyᵀ over all labelled nodes, see ``target_ridge``;
    numbers are centred, which gives them an intercept. A node that comes, moves or goes changes
    only its own terms of the sums, as in ``AnalyticHead``. The labels of a node are complete: a
    label that is first seen later does not apply to earlier nodes.

    Args:
        kind: ``labels`` or ``numbers``.
        width, regularisation, activation: see ``AnalyticHead``; the probability of a label is
            σ(10 s - 5) of its score s.
    """

    name = "targets"
    drops_classes = False  # columns are labels, in the order in which classes named them

    def __init__(
        self,
        *,
        kind: Kind = "labels",
        width: int = 1024,
        regularisation: float = 0.01,
        activation: Activation = "relu",
    ) -> None:
        super().__init__(width=width, regularisation=regularisation, activation=activation)
        check_choice("kind", kind, ("labels", "numbers"))
        self.kind: Kind = kind
        del self.statistics_  # the sums of classes: it has others
        # For labels the first column is one that no node has, so that nodes without labels count.
        self.sums_ = TargetStatistics(width, targets=1, precise=True)
        self.offsets_ = torch.zeros(int(kind == "numbers"))
        self.names_: dict[Label, int] = {}  # label -> column
        self._met: list[list[int]] = []  # class number -> columns of its labels
        self._numbers: list[float] = []  # class number -> number

    @property
    def num_classes(self) -> int:
        """How many distinct targets there are."""
        return len(self._met) + len(self._numbers)

    def grow(self, classes: int) -> None:
        """Make room for all known labels."""
        columns = 1 if self.kind == "numbers" else 1 + len(self.names_)
        self._settled &= columns == self.sums_.targets
        self.sums_ = self.sums_.widened(columns)

    def meet(self, answers: Sequence[Label]) -> None:
        """Register the next targets, in the order of their numbers."""
        for answer in answers:
            target = meant_by(self.kind, answer)
            if isinstance(target, float):
                self._numbers.append(target)
            elif isinstance(target, tuple):
                columns = [self.names_.setdefault(label, len(self.names_)) for label in target]
                self._met.append(columns)

    def values(self, answers: Tensor) -> Tensor:
        """Return the targets that class numbers encode.  int64 [n] -> float32 [n, targets]"""
        if self.kind == "numbers":
            found = [self._numbers[answer] for answer in answers.tolist()]
            return torch.tensor(found, dtype=torch.float32)[:, None]
        values = torch.zeros(len(answers), len(self.names_))
        for row, answer in enumerate(answers.tolist()):
            values[row, self._met[answer]] = 1.0
        return values

    @property
    def names(self) -> Collection[Label]:
        """Names of labels."""
        return self.names_.keys()

    def labels_of(self, answers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels that class numbers encode, and the row each belongs to."""
        met = [self._met[answer] for answer in answers.tolist()]
        counts = torch.tensor([len(columns) for columns in met], dtype=torch.int64)
        owners = torch.arange(len(met)).repeat_interleave(counts)
        return owners, torch.tensor([column for columns in met for column in columns]).long()

    def learn(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Add nodes to the sums."""
        self._count(vectors, labels, self.sums_.add)

    def _count(self, vectors: Tensor, labels: Tensor, count: Count) -> None:
        """Add to or subtract from the sums in blocks of nodes, as each has a value per label."""
        for rows in row_blocks(len(labels), self.sums_.targets):
            values = self.values(labels[rows])
            if self.kind == "labels":  # the column that no node has, see ``__init__``
                values = torch.nn.functional.pad(values, (1, 0))
            count(self._expanded(vectors[rows]), values, torch.ones(len(values)))
        self._settled &= not len(labels)

    def move(self, ids: Tensor, before: Tensor, after: Tensor, labels: Tensor) -> None:
        """Subtract nodes from the sums with their old vectors, and add them with the new ones."""
        self.forget(ids, before, labels)
        self.learn(ids, after, labels)

    def forget(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Subtract nodes from the sums."""
        self._count(vectors, labels, self.sums_.remove)

    def sizes(self) -> Tensor | None:
        """Return Σ ‖φ‖², and Σ y² for numbers."""
        sizes = [each.gram_.diagonal().sum() for each in self.sums_.patterns_.values()]
        if self.kind == "numbers":
            sizes += [cross[-1, 0] for cross in self.sums_.cross_.values()]
        return torch.stack(sizes) if sizes else torch.zeros(0, dtype=torch.float64)

    def restart(self) -> None:
        """Empty the sums."""
        targets = self.sums_.targets
        self.sums_ = TargetStatistics(self.width, targets=targets, precise=True)
        self._settled = False

    def settle(self) -> None:
        """Solve for V, and for the intercept of numbers."""
        if not self._settled:
            centred = self.kind == "numbers"
            head = target_ridge(self.sums_, self.regularisation, centred=centred)
            first = 0 if centred else 1
            self.weights_ = head.weights[:, first:].float().contiguous()
            self.offsets_ = head.offsets[first:].float()
            self._settled = True

    def scorer(self) -> RidgeScorer:
        """Return φ, V and the scaling of scores; tensors are only ever replaced, not written to."""
        of_labels = self.kind == "labels"
        scale = STEEPNESS if of_labels else 1.0
        shift = self.offsets_ - STEEPNESS / 2 if of_labels else self.offsets_
        return RidgeScorer(self._drawn, self.weights_, scale, shift)

    def bytes_for(self, *, nodes: int, counted: int, classes: int, new: int) -> int:
        """Return the estimate of ``AnalyticHead``, plus the values of a block of nodes."""
        values = min(counted * classes, VALUES)
        own = super().bytes_for(nodes=nodes, counted=counted, classes=classes, new=new)
        return own + 6 * 8 * values + 4 * 8 * self.width * classes

    @property
    def nbytes(self) -> int:
        """How many bytes it keeps."""
        return self.sums_.usage.bytes + self.weights_.nbytes

    def state(self) -> dict[str, Tensor]:
        """Return the seed of φ, the sums, V, and whether V is up to date."""
        kept = {f"sums.{name}": value for name, value in self.sums_.state().items()}
        return kept | self._own_state() | {"offsets": self.offsets_}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned; targets are registered afterwards (``meet``)."""
        self.sums_.restore(part_of(state, "sums."))
        self.offsets_ = state["offsets"]
        self._restore_own(state)
