"""Head for several labels per node, or for a number: ridge regression in closed form."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor

from evergraph.closed_form.targets import STEEPNESS, TargetStatistics, target_ridge
from evergraph.core.checks import check_choice
from evergraph.core.label_space import Kind
from evergraph.nn.random_features import Activation
from evergraph.online.delta import Label, meant_by
from evergraph.online.heads.analytic import AnalyticHead, RidgeScorer
from evergraph.online.heads.base import BLOCK_VALUES as VALUES
from evergraph.online.heads.base import heads, row_blocks
from evergraph.training.learner import part_of

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
        return RidgeScorer(self._features.expansion(), self.weights_, scale, shift)

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
