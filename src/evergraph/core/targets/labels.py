"""Target ``labels``: any number of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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
    sigmoid,
    target_kinds,
)

THRESHOLD = 0.5  # a node gets the labels with a higher probability


def micro_f1(predicted: Tensor, right: Tensor) -> float:
    """Return F1 = 2 tp / (2 tp + fp + fn) over all labels of all nodes together.

    predicted: probabilities; a label is predicted above 0.5.  [nodes, labels]. It is 1 if there is
    no label to find and none is predicted. With one label per node, and one predicted, it is the
    accuracy.

    Of two true labels one is found, and one label is predicted wrongly: 2 / (2 + 1 + 1).

    >>> micro_f1(torch.tensor([[0.9, 0.2], [0.7, 0.1]]), torch.tensor([[1., 1.], [0., 0.]]))
    0.5
    """
    hits, wrong = (counts.sum() for counts in _counted(predicted, right))
    total = 2 * hits + wrong
    return float(2 * hits / total) if total else 1.0


def macro_f1(predicted: Tensor, right: Tensor) -> float:
    """Return the mean of each label's own F1, see ``micro_f1``: rare labels have equal weight.

    A label that no node has and that is never predicted is left out; 1 if all are.

    >>> macro_f1(torch.tensor([[0.9, 0.2], [0.7, 0.1]]), torch.tensor([[1., 1.], [0., 0.]]))
    0.3333333333333333
    """
    hits, wrong = _counted(predicted, right)
    total = 2 * hits + wrong
    occurs = total > 0
    return float((2 * hits / total)[occurs].mean()) if bool(occurs.any()) else 1.0


def _counted(predicted: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return, per label, the true positives, and the false positives plus false negatives."""
    predicted_labels = predicted > THRESHOLD
    true_labels = right == 1
    is_known = ~right.isnan()
    hits = (predicted_labels & true_labels).sum(0).double()
    wrong = ((predicted_labels != true_labels) & is_known).sum(0).double()
    return hits, wrong


def average_precision(predicted: Tensor, right: Tensor) -> float:
    """Return the mean over labels of AP = Σ_k (R_k - R_k-1) P_k, as in scikit-learn.

    P_k and R_k are precision and recall of the nodes whose probability is at least the k-th
    highest; no threshold is needed. Labels that all nodes have, or none, are left out; NaN if all
    are.

    Ranks 1 and 3 of three are right: 1/2 · 1 + 1/2 · 2/3.

    >>> given, right = torch.tensor([[0.9], [0.5], [0.1]]), torch.tensor([[1.], [0.], [1.]])
    >>> round(average_precision(given, right), 4)
    0.8333
    """
    precisions = []
    for column, is_known in enumerate((~right.isnan()).t()):
        scores, has_label = predicted[is_known, column], right[is_known, column]
        if len(has_label.unique()) != 2:
            continue
        order = scores.argsort(descending=True, stable=True)
        scores = scores[order]
        hits = has_label[order].double().cumsum(0)
        # Nodes of equal score are counted together, at the rank of the last of them.
        is_last = torch.cat([scores[1:] != scores[:-1], torch.tensor([True])])
        hits = hits[is_last]
        ranks = (torch.arange(len(scores)) + 1)[is_last].double()
        recall_gains = hits.diff(prepend=hits.new_zeros(1)) / hits[-1]
        precisions.append(float((recall_gains * hits / ranks).sum()))
    return sum(precisions) / len(precisions) if precisions else float("nan")


@dataclass(frozen=True)
class LabelsPrediction:
    """The labels of a node."""

    id: Label
    labels: list[Label]  # those with a probability above one half
    # of these labels; if requested, of all labels in the order of ``classes``
    probabilities: list[float]


@target_kinds.register
class Labels(Target):
    """Several labels for each node, or none, each with a probability of its own."""

    name = "labels"
    column = "labels"
    plural = "labels"
    described = "several labels"
    prediction = LabelsPrediction
    is_named = True
    measure, main = "micro F1", "micro_f1"
    rows: ClassVar[Mapping[str, Metric]] = {"micro_f1": micro_f1, "macro_f1": macro_f1}
    beside: ClassVar[Mapping[str, Metric]] = {"average_precision": average_precision}
    score, balanced_score = "micro_f1", "macro_f1"
    running = "micro F1"

    def check(self, value: object) -> None:
        """Raise unless a value is a list of texts or integers.

        >>> Labels().check("art")
        Traceback (most recent call last):
        evergraph.core.errors.DataError: labels of a node must be a list, not 'art'
        """
        if not isinstance(value, list | tuple):
            raise DataError(f"labels of a node must be a list, not {value!r}")
        for label in value:
            check_id("label", label)

    def are_sound(self, values: Sequence[Any]) -> bool:
        return set(map(type, values)) <= {list, tuple} and are_names([*chain(*values)])

    def read(self, value: Any) -> NodeTarget | None:
        """Return a list of labels, whatever held them; None or NaN for unknown ones."""
        if isinstance(value, list | tuple | set | frozenset | np.ndarray):
            value = [v.item() if isinstance(v, np.generic) else v for v in value]
        return super().read(value)

    def of_array(self, values: Tensor | np.ndarray[Any, Any]) -> list[Any]:
        """Return labels: of a matrix of 0 and 1, a column for each label, t0, t1 and so on.

        >>> Labels().of_array(torch.tensor([[0, 1], [1, 1]]))
        [['t1'], ['t0', 't1']]
        """
        if values.ndim == 1:
            return list(values.tolist())
        matrix = torch.as_tensor(np.asarray(values, dtype=np.float32))
        sound, rule = self.check_matrix(matrix)
        if matrix.dim() != 2 or not bool((sound | matrix.isnan()).all()):
            shape = tuple(values.shape)
            raise DataError(f"labels have shape {shape}: expected a list a node, or {rule}")
        return [*self.of_matrix(matrix, [f"t{column}" for column in range(matrix.shape[1])])]

    def of_matrix(self, values: Tensor, names: Sequence[str]) -> list[NodeTarget | None]:
        """Return the labels of nodes, which must be known or unknown all together."""
        known = ~values.isnan()
        half = known.any(1) & ~known.all(1)
        if bool(half.any()):
            node = int(half.nonzero()[0, 0])
            raise DataError(f"the labels of node {node} must be known or unknown all together")
        rows = zip(values.tolist(), known[:, 0].tolist(), strict=True)
        return [
            [name for name, has in zip(names, row, strict=True) if has] if is_known else None
            for row, is_known in rows
        ]

    def check_matrix(self, values: Tensor) -> tuple[Tensor, str]:
        return (values == 0) | (values == 1), "0 or 1"

    def counts(self, values: Tensor) -> Tensor:
        return (values == 1).sum(0)

    def names(self, value: Sequence[Label]) -> Sequence[Label]:
        return value

    def key(self, value: Sequence[Label]) -> Key:
        """Return the labels once each, sorted, numbers beside texts.

        >>> Labels().key(["law", "art", "law"])
        ('art', 'law')
        """
        return tuple(sorted(set(value), key=lambda label: (str(label), str(type(label)))))

    def cell(self, key: Sequence[Label]) -> Label:
        return "; ".join(map(str, key))

    def matrix(self, keys: Sequence[Any], columns: Mapping[Label, int]) -> Tensor:
        """Return 1 for every label that a node has.

        >>> Labels().matrix([("b",), ("a", "b")], {"a": 0, "b": 1})
        tensor([[0., 1.],
                [1., 1.]])
        """
        values = torch.zeros(len(keys), len(columns))
        rows = torch.arange(len(keys)).repeat_interleave(torch.tensor([*map(len, keys)]).long())
        values[rows, torch.tensor([columns[label] for key in keys for label in key]).long()] = 1.0
        return values

    def shares(self, scores: Rows) -> Rows:
        return sigmoid(scores)

    def decide(self, scores: Any) -> Any:
        return self.shares(scores) > THRESHOLD

    def leading(self, scores: Tensor, count: int) -> Tensor:
        return scores.argsort(descending=True, stable=True)[:count]

    def uncertainty(self, shares: Tensor) -> Tensor:
        """Return one minus the margin of the most doubtful label.

        >>> Labels().uncertainty(torch.tensor([[0.9, 0.25]]))
        tensor([0.5000])
        """
        if not shares.shape[1]:
            return super().uncertainty(shares)
        return torch.amax(1 - (2 * shares - 1).abs(), 1)

    def tally(self, decided: Tensor, right: Tensor) -> Tallies:
        """Count labels; the true ones may have more columns, too new to be predicted.

        One label is predicted correctly and one wrongly: 2 tp = 2 of 2 tp + fp + fn = 3.

        >>> found = Labels().tally(torch.tensor([[True, True]]), torch.tensor([[1., 0.]]))
        >>> found.asked, found.right, found.faultless
        (tensor([3]), tensor([2]), tensor([0]))
        """
        predicted = torch.zeros(right.shape, dtype=torch.bool)
        predicted[:, : decided.shape[1]] = decided
        hits = (predicted & (right == 1)).sum(1)
        wrong = (predicted != (right == 1)).sum(1)
        no_pairs = torch.zeros(len(right), 0, dtype=torch.int64)
        return Tallies(2 * hits + wrong, 2 * hits, (wrong == 0).long(), no_pairs)

    def compared(self, predicted: Sequence[Any], right: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """Return a column for every label that is in either."""
        all_labels = dict.fromkeys(chain.from_iterable((*predicted, *right)))
        columns = {label: column for column, label in enumerate(all_labels)}
        return self.matrix(predicted, columns), self.matrix(right, columns)

    def answers(
        self, ids: Sequence[Any], scores: Matrix, names: Sequence[Label], *, every: bool
    ) -> tuple[LabelsPrediction, ...]:
        rows = zip(ids, self.decide(scores).tolist(), self.shares(scores).tolist(), strict=True)
        predictions = []
        for node, has_labels, shares in rows:
            columns = [column for column, has_label in enumerate(has_labels) if has_label]
            probabilities = shares if every else [shares[column] for column in columns]
            own_labels = [names[column] for column in columns]
            predictions.append(LabelsPrediction(node, own_labels, probabilities))
        return tuple(predictions)

    def array(self, predictions: Sequence[Sequence[Label]]) -> list[list[Label]]:
        return [list(labels) for labels in predictions]
