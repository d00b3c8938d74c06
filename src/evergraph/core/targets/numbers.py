"""Target ``numbers``: a number to predict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    target_kinds,
)


def r2(predicted: Tensor, right: Tensor) -> float:
    """Return the mean over targets of R² = 1 - Σ (y - ŷ)² / Σ (y - ȳ)².

    1 is perfect, 0 is as good as the mean, below 0 is worse. For a target that is the same for all
    nodes it is 1 if predicted exactly and 0 otherwise, as in scikit-learn; a target without known
    values is left out.

    >>> r2(torch.tensor([[1.], [2.], [3.]]), torch.tensor([[1.], [2.], [6.]]))  # 1 - 9 / 14
    0.3571428571428571
    """
    known = ~right.isnan()
    right = right.double()
    error = (predicted.double() - right).square().nansum(0)
    spread = (right - right.nanmean(0)).square().nansum(0)
    share = torch.where(spread > 0, error / spread.clamp_min(1e-300), (error > 0).double())
    has_values = known.any(0)
    return float((1 - share)[has_values].mean()) if bool(has_values.any()) else 0.0


def mean_absolute_error(predicted: Tensor, right: Tensor) -> float:
    """Return the mean of |y - ŷ| over all known values, in their own units.

    >>> mean_absolute_error(torch.tensor([[1.], [2.]]), torch.tensor([[1.5], [float("nan")]]))
    0.5
    """
    return float((predicted.double() - right.double()).abs().nanmean())


@dataclass(frozen=True)
class NumberPrediction:
    """The number of a node."""

    id: Label
    target: float


@target_kinds.register
class Numbers(Target):
    """A number for each node."""

    name = "numbers"
    column = "target"
    plural = "numbers"
    described = "numbers"
    prediction: ClassVar[type] = NumberPrediction
    has_probabilities = False
    measure, main = "R2", "r2"
    rows: ClassVar[Mapping[str, Metric]] = {"r2": r2}
    beside: ClassVar[Mapping[str, Metric]] = {"mae": mean_absolute_error}
    score = "r2"
    running = "mean absolute error"
    rises = True

    def check(self, value: object) -> None:
        if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
            raise DataError(f"a target must be a finite number, not {value!r}")

    def are_sound(self, values: Sequence[Any]) -> bool:
        return set(map(type, values)) <= {int, float} and all(map(math.isfinite, values))

    def of_matrix(self, values: Tensor, names: Sequence[str]) -> list[NodeTarget | None]:
        if len(names) > 1:
            raise DataError(f"nodes have {len(names)} numbers ({', '.join(names)}): expected one")
        return [self.read(value) for value in values.flatten().tolist()]

    def names(self, value: float) -> tuple[Label, ...]:
        return ()

    def key(self, value: float) -> Key:
        return float(value)

    def cell(self, key: float) -> float:
        return key

    def matrix(self, keys: Sequence[Any], columns: Mapping[Label, int]) -> Tensor:
        """Return one column; a number beyond float32 counts as its largest one."""
        most = torch.finfo(torch.float32).max
        return torch.tensor(keys, dtype=torch.float64).clamp(-most, most).float()[:, None]

    def shares(self, scores: Rows) -> Rows:
        return scores

    def decide(self, scores: Any) -> Any:
        return scores

    def leading(self, scores: Tensor, count: int) -> Tensor:
        return torch.zeros(1, dtype=torch.int64)

    def tally(self, decided: Tensor, right: Tensor) -> Tallies:
        """Add up absolute errors.

        >>> Numbers().tally(torch.tensor([[1.5]]), torch.tensor([[2.]])).right
        tensor([0.5000])
        """
        ones = torch.ones(len(right), dtype=torch.int64)
        no_pairs = torch.zeros(len(right), 0, dtype=torch.int64)
        return Tallies(ones, (decided - right).abs().flatten(), torch.zeros_like(ones), no_pairs)

    def compared(self, predicted: Sequence[Any], right: Sequence[Any]) -> tuple[Tensor, Tensor]:
        def column(values: Sequence[Any]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64)[:, None]

        return column(predicted), column(right)

    def answers(
        self, ids: Sequence[Any], scores: Matrix, names: Sequence[Label], *, every: bool
    ) -> tuple[Any, ...]:
        numbers = self.decide(scores)[:, 0].tolist()
        return tuple(self.prediction(*pair) for pair in zip(ids, numbers, strict=True))

    def array(self, predictions: Sequence[float]) -> np.ndarray[Any, Any]:
        return np.array(predictions, dtype=np.float32)

    def shown(self, value: float) -> str:
        return f"{value:.4g}"
