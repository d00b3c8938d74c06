"""Heads beside ``auto``: ``targets``, for labels and numbers, and ``analytic``, of one view."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from evergraph.closed_form.target_heads import STEEPNESS, ValueEngine
from evergraph.closed_form.views import View
from evergraph.core.errors import check_choice
from evergraph.core.targets import Key, Label, target_kinds, target_of
from evergraph.online.heads.fused import Basis, FusedHead, heads
from evergraph.online.heads.scorer import Scorer
from evergraph.topology import SGC, TopologyEncoder


@heads.register
class TargetHead(FusedHead):
    """Ridge regression of every label, or of a number, on several views of a node.

    A ``ValueEngine`` with the views of ``FusedHead``, but for class codes. The labels of a node are
    complete: a label that is first seen later does not apply to earlier nodes.

    Args:
        kind: of targets, ``labels`` or ``numbers``; any that is not of classes.
        views, width, regularisation, basis: see ``FusedHead``; the probability of a label is
            σ(10 s - 5) of its score s.
    """

    name = "targets"
    drops_classes = False  # columns are labels, in the order in which classes named them
    least_left_out = 1
    engine: ValueEngine

    def __init__(
        self,
        *,
        kind: str = "labels",
        views: Sequence[str] | None = None,
        width: int | None = None,
        regularisation: float | None = None,
        basis: Basis = "landmarks",
    ) -> None:
        super().__init__(views=views, width=width, regularisation=regularisation, basis=basis)
        kinds = [name for name in target_kinds.names() if not target_of(name).is_class]
        check_choice("kind", kind, kinds)
        self.kind = kind
        self.balanced = False
        # For labels the first column is one that no node has, so that nodes without labels count.
        self.engine = ValueEngine(targets=1, regularisation=regularisation)
        self.names_: dict[Label, int] = {}  # label -> column
        self._answers_by_number: list[Key] = []

    @property
    def code_width(self) -> int:
        """0: codes of classes say nothing about numbers, and little about sets of labels."""
        return 0

    @property
    def num_classes(self) -> int:
        """How many values a node has."""
        return self.engine.targets

    def grow(self, classes: int) -> None:
        """Make room for all known labels."""
        self.engine.grow(1 + len(self.names_))

    def register(self, answers: Sequence[Key]) -> None:
        self._answers_by_number += answers
        for answer in answers:
            for label in self.target.names(answer):
                self.names_.setdefault(label, len(self.names_))

    def values(self, answers: Tensor) -> Tensor:
        named = [self._answers_by_number[answer] for answer in answers.tolist()]
        return self.target.matrix(named, self.names_)

    def _counted(self, answers: Tensor) -> Tensor:
        """Return the values that are counted: with the column that no node has, for labels."""
        if not len(answers):
            return torch.zeros(0, self.engine.targets)
        values = self.values(answers)
        return torch.nn.functional.pad(values, (1, 0)) if self.target.is_named else values

    @property
    def names(self) -> Collection[Label]:
        return self.names_.keys()

    def sizes(self) -> Tensor:
        sizes = []
        for sums in self.engine.sums_:
            sizes += [part.gram_.diagonal().sum() for part in sums.patterns_.values()]
            if not self.target.is_named:
                sizes += [cross[-1, 0] for cross in sums.cross_.values()]
        return torch.stack(sizes) if sizes else torch.zeros(0, dtype=torch.float64)

    def scorer(self, has_nodes: Tensor | None = None) -> Scorer:
        """Return φ, a_v V_v and b: numbers, or log-odds of labels.  has_nodes: ignored"""
        plain = super().scorer()
        if not self.target.is_named:
            return plain
        weights = tuple((head[:, 1:] * STEEPNESS).contiguous() for head in plain.weights)
        return Scorer(plain.map, weights, plain.offsets[1:] * STEEPNESS - STEEPNESS / 2)


@heads.register
class AnalyticHead(FusedHead):
    """Ridge regression on random features of the embedding, from sums over all labelled nodes.

    The live form of method ``analytic``: head ``auto`` with one view, the whole embedding, on
    random directions. A delta costs m² for each labelled node added or moved, and m³/3 once.

    Args:
        width: m, the number of random features; memory is 4 m² bytes.
        regularisation: λ as a share of A's mean diagonal; chosen by the engine by default.

    >>> import torch
    >>> from evergraph.topology import Identity
    >>> head = AnalyticHead(width=64)
    >>> head.begin(2, topology=Identity(), generator=torch.Generator())
    >>> head.learn(torch.eye(2), torch.tensor([1, 0]))
    >>> head.solve()
    >>> head.scores(torch.eye(2)).argmax(1)
    tensor([1, 0])
    """

    name = "analytic"
    takes_relations = False

    def __init__(self, *, width: int = 1024, regularisation: float | None = None) -> None:
        super().__init__(width=width, regularisation=regularisation, basis="random")

    def default_topology(self) -> TopologyEncoder:
        return SGC()

    def begin(self, dims: int, *, topology: TopologyEncoder, **others: Any) -> None:
        self.views, self.parsed = (), (View(tuple(topology.kept)),)
        super().begin(dims, topology=topology, **others)
