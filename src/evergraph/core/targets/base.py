"""What the target of a node is: an object for each kind, asked wherever kinds differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.component import Resolver
from evergraph.core.errors import DataError

Metric = Callable[[Tensor, Tensor], float]
Matrix = npt.NDArray[np.float32]
Rows = TypeVar("Rows", Tensor, Matrix)
Label = str | int
NodeTarget = Label | Sequence[Label] | float
"""The target of a node: one class, several labels, or a number."""
Key = Label | tuple[Label, ...] | float
"""A target in the one form that all equal targets have."""
LARGEST = 2**63 - 1  # integer that a journal and an array can hold


@dataclass(frozen=True, eq=False)
class Tallies:
    """Comparison of predictions with the true targets, node by node.

    The running measure is Σ right / Σ asked: the accuracy; micro F1, 2 tp of 2 tp + fp + fn,
    however sums are split; or the mean absolute error, Σ |y - ŷ| of their count.
    """

    asked: Tensor  # each node's terms of the first sum.  [n]
    right: Tensor  # of the second.  [n]
    faultless: Tensor  # whether all of a node was predicted correctly; never a number.  int64 [n]
    pairs: Tensor  # right and predicted classes; of other kinds none.  int64 [n, 2 or 0]

    @classmethod
    def joined(cls, parts: Sequence[Tallies]) -> Tallies:
        """Return several comparisons as one."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*map(torch.cat, columns))


class Target(ABC):
    """A kind of target: how it is checked, read, learned, decided, measured and worded.

    Scores are [nodes, columns]: a column for each class or label, or one for a number. A kind
    without classes is learned as the columns of a matrix of values.

    Attributes:
        name: of the kind, as the parameter ``targets`` has it.
        column: what the column of a table of nodes is called, and the prediction in every answer.
        plural: what its values are called together.
        described: what nodes have, in a sentence.
        prediction: the record of an answer; its first two fields are ``id`` and ``column``.
        is_class: whether a node has one of several classes, numbered in order of arrival.
        is_named: whether columns have the names of classes or labels.
        has_probabilities: whether scores stand for probabilities.
        measure, main: name of the main measure of a run, and its key in ``rows``.
        rows: measures on every task, by key; larger is better.
        beside: measures on all nodes together, by key.
        score, balanced_score: keys of the measures that ``score`` returns; empty if there is none.
        running: name of the measure of predictions made before their labels came, see ``tally``.
        rises: whether the running measure is an error, which rises when predictions get worse.
    """

    name: ClassVar[str]
    column: ClassVar[str]
    plural: ClassVar[str]
    described: ClassVar[str]
    prediction: ClassVar[type]
    is_class: ClassVar[bool] = False
    is_named: ClassVar[bool] = False
    has_probabilities: ClassVar[bool] = True
    measure: ClassVar[str]
    main: ClassVar[str]
    rows: ClassVar[Mapping[str, Metric]]
    beside: ClassVar[Mapping[str, Metric]] = {}
    score: ClassVar[str]
    balanced_score: ClassVar[str] = ""
    running: ClassVar[str]
    rises: ClassVar[bool] = False

    # Values, as users give them.

    @abstractmethod
    def check(self, value: object) -> None:
        """Raise ``DataError`` unless a value is a target of this kind."""

    def check_all(self, values: Sequence[Any]) -> None:
        """Raise for the first value that is not a target of this kind."""
        if not self.are_sound(values):
            for value in values:
                self.check(value)

    def are_sound(self, values: Sequence[Any]) -> bool:
        """Whether all values are surely of this kind, where that is quicker to say."""
        return False

    def read(self, value: Any) -> NodeTarget | None:
        """Return a plain value as a target, None if it is missing; raise if it is neither."""
        if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
            return None
        self.check(value)
        target: NodeTarget = value
        return target

    def of_array(self, values: Tensor | np.ndarray[Any, Any]) -> list[Any]:
        """Return a value for each row of an array, to be read one by one."""
        if values.ndim > 1 and values.shape[1:] != (1,):
            raise DataError(f"labels have shape {tuple(values.shape)}: expected one value a node")
        return list(values.reshape(-1).tolist())

    @abstractmethod
    def of_matrix(self, values: Tensor, names: Sequence[str]) -> list[NodeTarget | None]:
        """Return the targets in a matrix of a graph's targets.  [nodes, targets], NaN if unknown"""

    def check_matrix(self, values: Tensor) -> tuple[Tensor, str]:
        """Return which values such a matrix may hold, and the rule.  [n, m] -> bool [n, m]"""
        return values.isfinite(), "a finite number"

    def counts(self, values: Tensor) -> Tensor:
        """Return how many nodes have each target of such a matrix.  -> int64 [targets]"""
        return (~values.isnan()).sum(0)

    @abstractmethod
    def names(self, value: Any) -> Iterable[Label]:
        """Return the names of classes or labels in a target."""

    @abstractmethod
    def key(self, value: Any) -> Key:
        """Return the form of a target that all equal ones have.

        For a kind without classes: a tuple of names if columns have names, else a number.
        """

    @abstractmethod
    def cell(self, key: Any) -> Label | float:
        """Return a target as a table for people shows it in one cell."""

    def matrix(self, keys: Sequence[Any], columns: Mapping[Label, int]) -> Tensor:
        """Return targets as the values to learn.  columns: by name; -> float32 [n, columns]"""
        raise NotImplementedError

    # Scores of a model.

    @abstractmethod
    def shares(self, scores: Rows) -> Rows:
        """Return the probabilities of classes or labels; numbers unchanged.  -> same shape"""

    @abstractmethod
    def decide(self, scores: Any) -> Any:
        """Return what is predicted, for a tensor or an array of scores.

        The column of the class, int64 [n]; whether a node has each label, bool [n, labels]; or
        numbers, [n, 1].
        """

    @abstractmethod
    def leading(self, scores: Tensor, count: int) -> Tensor:
        """Return the columns to explain, the prediction first.  [columns] -> int64 [k <= count]"""

    def uncertainty(self, shares: Tensor) -> Tensor:
        """Return how uncertain predictions are, from 0 to 1; 1 if that cannot be said.  -> [n]"""
        return torch.ones(len(shares))

    @abstractmethod
    def tally(self, decided: Tensor, right: Tensor) -> Tallies:
        """Return how what was decided compares with the true classes, or matrix of targets."""

    @abstractmethod
    def compared(self, predicted: Sequence[Any], right: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """Return predicted and true targets in the form that measures take."""

    # Words and records.

    @abstractmethod
    def answers(
        self, ids: Sequence[Any], scores: Matrix, names: Sequence[Label], *, every: bool
    ) -> tuple[Any, ...]:
        """Return a ``prediction`` for each node.

        scores: of the columns that have these names; every: with the probabilities of all.
        """

    def array(self, predictions: Sequence[Any]) -> Any:
        """Return predictions as an array, or a list if they fit into none."""
        return np.array(predictions)

    def shown(self, value: float) -> str:
        """Return the running measure as text."""
        return f"{value:.1%}".replace("%", " %")


def softmax(rows: Rows) -> Rows:
    """Return exp(x) / Σ exp(x) of every row; -inf gives 0.

    >>> softmax(np.array([[2, 2, -np.inf]], np.float32))
    array([[0.5, 0.5, 0. ]], dtype=float32)
    """
    if isinstance(rows, Tensor):
        return rows.softmax(1)
    shares = np.exp(rows - np.maximum.reduce(rows, axis=1, keepdims=True, initial=-np.inf))
    shares /= np.add.reduce(shares, axis=1, keepdims=True)
    return cast("Rows", shares)


def sigmoid(rows: Rows) -> Rows:
    """Return 1 / (1 + exp(-x)) of every value."""
    if isinstance(rows, Tensor):
        return rows.sigmoid()
    with np.errstate(over="ignore"):  # 1 / inf is 0
        return cast("Rows", np.float32(1) / (np.float32(1) + np.exp(-rows)))


target_kinds = Resolver[Target]("target")


def target_of(kind: str) -> Target:
    """Return the object of a kind of targets.

    >>> target_of("labels").described
    'several labels'
    """
    return target_kinds.resolve(kind)()


def are_names(values: Sequence[Any]) -> bool:
    """Whether all values pass ``check_id``, without a Python step for each."""
    if not set(map(type, values)) <= {int, str}:
        return False
    numbers = [value for value in values if type(value) is int]
    if numbers and not -LARGEST - 1 <= min(numbers) <= max(numbers) <= LARGEST:
        return False
    try:
        "".join([value for value in values if type(value) is str]).encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def check_id(name: str, value: object) -> None:
    """Raise unless ``value`` may name a node or a class: text or a whole number of 64 bits.

    "1" and 1 are different names. 1.0 and True are rejected, as Python treats them as equal to 1.
    """
    if type(value) is int:
        if not -LARGEST - 1 <= value <= LARGEST:
            raise DataError(f"{name} must fit into 64 bits, not {value!r}")
    elif type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DataError(f"{name} must be text that UTF-8 can write, not {value!r}") from None
    else:
        raise DataError(f"{name} must be text or an integer, not {value!r}")
