"""The accuracy matrix, pure functions of it, and the measures of stored results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

AccuracyMatrix = npt.NDArray[np.float64]
"""M[i, j]: accuracy on task j at test i; NaN if task j had not begun.  [tests, tasks]

With a test after every task, test i follows task i, and tasks j > i have not begun.
"""
NAMES = {
    "balanced": "accuracy, class-balanced",
    "plain": "accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "average_precision": "average precision",
    "r2": "R2",
    "mae": "mean absolute error",
}


def matrix_of(rows: Sequence[Sequence[float]]) -> AccuracyMatrix:
    """Build the matrix from its rows, each holding a value for every task that has begun.

    >>> matrix_of([[0.5], [0.75], [0.5, 1.0]])  # task 0 arrived in two steps
    array([[0.5 ,  nan],
           [0.75,  nan],
           [0.5 , 1.  ]])
    """
    matrix = np.full((len(rows), len(rows[-1])), np.nan)
    for i, row in enumerate(rows):
        matrix[i, : len(row)] = row
    return matrix


def average_accuracy_curve(matrix: AccuracyMatrix) -> npt.NDArray[np.float64]:
    """Return AA after each test: the mean of row i.  [tests]

    >>> average_accuracy_curve(matrix_of([[0.9], [0.5, 0.7]]))
    array([0.9, 0.6])
    """
    means: npt.NDArray[np.float64] = np.nanmean(matrix, axis=1)
    return means


def average_forgetting_curve(matrix: AccuracyMatrix) -> npt.NDArray[np.float64]:
    """Return AF from the first test after one at which a task was learned.

    AF_i = mean over tasks j learned before test i of M[i, j] - M[l_j, j], where l_j is the last
    test before the next task after j began. With a test after every task, l_j is task j's own test,
    AF_i = mean over j < i of M[i, j] - M[j, j], and there are tasks - 1 values.

    >>> average_forgetting_curve(matrix_of([[0.75], [0.5, 0.5]]))
    array([-0.25])
    >>> average_forgetting_curve(matrix_of([[0.5], [0.75], [0.5, 0.5], [0.25, 1.0]]))
    array([-0.25, -0.5 ])
    """
    begun = (~np.isnan(matrix)).sum(axis=1)  # tasks begun at each test, ascending
    learned = np.array(  # l_j of each task, ascending
        [np.flatnonzero(begun == begun[begun > j][0])[-1] for j in range(begun[-1])]
    )
    change = matrix - matrix[learned, np.arange(len(learned))]
    before = [int((learned < i).sum()) for i in range(len(matrix))]
    return np.array([change[i, :tasks].mean() for i, tasks in enumerate(before) if tasks])


def average_accuracy(matrix: AccuracyMatrix) -> float:
    """Return AA after the last test."""
    return float(average_accuracy_curve(matrix)[-1])


def anytime_accuracy(matrix: AccuracyMatrix) -> float:
    """Return the mean of AA over all tests: the accuracy along the way.

    Average anytime accuracy, 1/n Σ_i AA_i over n tests (Caccia et al. 2022). Online, where a task
    is tested while it arrives, it measures speed of learning as well as forgetting.

    >>> anytime_accuracy(matrix_of([[0.9], [0.5, 0.7]]))
    0.75
    """
    return float(average_accuracy_curve(matrix).mean())


def average_forgetting(matrix: AccuracyMatrix) -> float:
    """Return AF after the last test; negative means forgetting, 0 if there is only one task."""
    curve = average_forgetting_curve(matrix)
    return float(curve[-1]) if len(curve) else 0.0


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean and the sample standard deviation, None for a single value."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "std": deviation}


def main_key(result: Mapping[str, Any]) -> str:
    """Return the key of the main measure of a stored result.

    >>> main_key({"metric": {"name": "micro F1", "key": "micro_f1"}})
    'micro_f1'
    """
    return str(result["metric"]["key"])
