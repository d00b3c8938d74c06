"""Target ``class``: one of several classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.targets.base import (
    Key,
    Label,
    Matrix,
    Metric,
    NodeTarget,
    Rows,
    Tallies,
    Target,
    are_names,
    check_id,
    softmax,
    target_kinds,
)

UNLABELLED = -1


def plain_accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Return the share of correctly classified nodes.  int64 [n], int64 [n] -> 0..1"""
    return float((predicted == labels).double().mean())


def balanced_accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Return the mean over classes of each class's accuracy (the paper's accuracy).

    >>> balanced_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
    0.5
    >>> plain_accuracy(torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 0, 1]))
    0.75
    """
    counts = torch.bincount(labels)
    right = torch.bincount(labels, weights=(predicted == labels).double())
    return float((right / counts)[counts > 0].mean())


@dataclass(frozen=True)
class Prediction:
    """The class of a node."""

    id: Label
    label: Label  # the likeliest class
    probability: float  # of that class
    probabilities: list[float] | None = None  # of all, in the order of ``classes``, if requested


@target_kinds.register
class OneClass(Target):
    """One class for each node.

    >>> import numpy as np
    >>> scores = np.array([[0.0, np.log(3.0)]], np.float32)
    >>> OneClass().answers(["a"], scores, ["x", "y"], every=False)
    (Prediction(id='a', label='y', probability=0.75, probabilities=None),)
    """

    name = "class"
    column = "label"
    plural = "classes"
    described = "one class"
    prediction = Prediction
    is_class = True
    is_named = True
    measure, main = "accuracy", "balanced"
    rows: ClassVar[Mapping[str, Metric]] = {"balanced": balanced_accuracy, "plain": plain_accuracy}
    score, balanced_score = "plain", "balanced"
    running = "accuracy"

    def check(self, value: object) -> None:
        check_id("label", value)

    def are_sound(self, values: Sequence[Any]) -> bool:
        return are_names(values)

    def read(self, value: Any) -> NodeTarget | None:
        """Return a class; booleans by name, and whole floats, as of a table with gaps, as integers.

        >>> OneClass().read(True), OneClass().read(2.0), OneClass().read(float("nan"))
        ('true', 2, None)
        """
        if isinstance(value, bool):
            return "true" if value else "false"
        return super().read(int(value) if isinstance(value, float) and value % 1 == 0 else value)

    def of_array(self, values: Tensor | np.ndarray[Any, Any]) -> list[Any]:
        """Return classes; in a tensor -1 means unknown."""
        if not isinstance(values, Tensor):
            return list(values.tolist())
        if values.is_floating_point():
            raise DataError(f"labels hold {values.dtype}: expected integers or booleans")
        listed = values.reshape(-1).tolist()
        is_unknown = values.dtype != torch.bool
        return [None if is_unknown and v == UNLABELLED else v for v in listed]

    def of_matrix(self, values: Tensor, names: Sequence[str]) -> list[NodeTarget | None]:
        raise DataError(f"nodes have {', '.join(names)}: expected one class")

    def names(self, value: Label) -> tuple[Label]:
        return (value,)

    def key(self, value: Label) -> Key:
        return value

    def cell(self, key: Label) -> Label:
        return key

    def shares(self, scores: Rows) -> Rows:
        return softmax(scores)

    def decide(self, scores: Any) -> Any:
        """Return the class with the highest score; of equal ones, the one that arrived first."""
        return scores.argmax(1)

    def leading(self, scores: Tensor, count: int) -> Tensor:
        count = min(count, int(scores.isfinite().sum()))
        return likeliest(scores[None], top=count)[0][0]

    def uncertainty(self, shares: Tensor) -> Tensor:
        """Return one minus the margin between the two likeliest classes.

        >>> OneClass().uncertainty(torch.tensor([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2]]))
        tensor([0.5000, 1.0000])
        """
        if shares.shape[1] < 2:
            return super().uncertainty(shares)
        best = shares.topk(2, dim=1).values
        return 1 - (best[:, 0] - best[:, 1])

    def tally(self, decided: Tensor, right: Tensor) -> Tallies:
        same = (decided == right).long()
        return Tallies(torch.ones_like(same), same, same, torch.stack([right, decided], dim=1))

    def compared(self, predicted: Sequence[Any], right: Sequence[Any]) -> tuple[Tensor, Tensor]:
        numbers = {label: number for number, label in enumerate({*right, *predicted})}

        def numbered(labels: Sequence[Any]) -> Tensor:
            return torch.tensor([numbers[label] for label in labels])

        return numbered(predicted), numbered(right)

    def answers(
        self, ids: Sequence[Any], scores: Matrix, names: Sequence[Label], *, every: bool
    ) -> tuple[Prediction, ...]:
        shares = self.shares(scores)
        best = self.decide(scores).tolist()
        top = np.maximum.reduce(shares, axis=1, initial=0).tolist()
        rows = shares.tolist() if every else [None] * len(best)
        return tuple(
            Prediction(node, names[number], share, row)
            for node, number, share, row in zip(ids, best, top, rows, strict=True)
        )

    def array(self, predictions: Sequence[Label]) -> np.ndarray[Any, Any]:
        """Return an array of integers, of text, or of both as objects."""
        types = {type(label) for label in predictions}
        plain = np.int64 if types == {int} else np.str_ if types == {str} else object
        return np.array(predictions, dtype=plain)


def likeliest(scores: Tensor, *, top: int = 1) -> tuple[Tensor, Tensor]:
    """Return the classes with the highest scores, and their probabilities: softmax over all.

    In case of ties the class that arrived first wins.  [n, classes] -> int64 [n, top], [n, top]

    >>> import math, torch
    >>> likeliest(torch.tensor([[0.0, math.log(3), -math.inf]]))
    (tensor([[1]]), tensor([[0.7500]]))
    >>> likeliest(torch.zeros(1, 4), top=2)
    (tensor([[0, 1]]), tensor([[0.2500, 0.2500]]))
    """
    if top == 1:  # without a sort
        classes = scores.argmax(dim=1, keepdim=True)
    else:
        classes = scores.argsort(dim=1, descending=True, stable=True)[:, :top]
    return classes, scores.softmax(dim=1).gather(1, classes)


def alike(new: Iterable[object], known: Iterable[object] = ()) -> Iterator[str]:
    """Yield a sentence for each new class whose name differs from another only in case or blanks.

    >>> list(alike(["vip", "art"], ["VIP", 7]))
    ["class 'vip' differs from 'VIP' only in case or blanks: they are two classes"]
    """
    names = [name for name in known if isinstance(name, str)]
    by_folded_name = {name.strip().casefold(): name for name in names}
    for name in new:
        if isinstance(name, str):
            first_spelling = by_folded_name.setdefault(name.strip().casefold(), name)
            if first_spelling != name:
                rule = "only in case or blanks: they are two classes"
                yield f"class {name!r} differs from {first_spelling!r} {rule}"
