"""The accuracy matrix, and pure functions of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

AccuracyMatrix = npt.NDArray[np.float64]
"""M[i, j]: accuracy on task j after learning task i; NaN where j > i.  [tasks, tasks]"""


def matrix_of(rows: Sequence[Sequence[float]]) -> AccuracyMatrix:
    """Build the matrix from its rows, row i holding i + 1 values."""
    matrix = np.full((len(rows), len(rows)), np.nan)
    for i, row in enumerate(rows):
        matrix[i, : i + 1] = row
    return matrix


def average_accuracy_curve(matrix: AccuracyMatrix) -> npt.NDArray[np.float64]:
    """Return AA after each task: the mean of row i.  [tasks]

    >>> average_accuracy_curve(matrix_of([[0.9], [0.5, 0.7]]))
    array([0.9, 0.6])
    """
    means: npt.NDArray[np.float64] = np.nanmean(matrix, axis=1)
    return means


def average_forgetting_curve(matrix: AccuracyMatrix) -> npt.NDArray[np.float64]:
    """Return AF after each task but the first: mean over j < i of M[i, j] - M[j, j].  [tasks - 1]

    >>> average_forgetting_curve(matrix_of([[0.75], [0.5, 0.5]]))
    array([-0.25])
    """
    change = matrix - np.diag(matrix)
    return np.array([change[i, :i].mean() for i in range(1, len(matrix))])


def average_accuracy(matrix: AccuracyMatrix) -> float:
    """Return AA after the last task."""
    return float(average_accuracy_curve(matrix)[-1])


def area_under_curve(matrix: AccuracyMatrix) -> float:
    """Return the mean of AA over all tasks: how good the learner was along the way.

    >>> area_under_curve(matrix_of([[0.9], [0.5, 0.7]]))
    0.75
    """
    return float(average_accuracy_curve(matrix).mean())


def average_forgetting(matrix: AccuracyMatrix) -> float:
    """Return AF after the last task; negative means forgotten, 0 where there is one task only."""
    curve = average_forgetting_curve(matrix)
    return float(curve[-1]) if len(curve) else 0.0
