"""Floor 5: the accuracy matrix and what is read off it."""

from evergraph.evaluation.accuracy import balanced_accuracy, plain_accuracy
from evergraph.evaluation.accuracy_matrix import (
    AccuracyMatrix,
    average_accuracy,
    average_accuracy_curve,
    average_forgetting,
    average_forgetting_curve,
)
from evergraph.evaluation.evaluator import AVERAGES, Predictor, accuracy_rows

__all__ = [
    "AVERAGES",
    "AccuracyMatrix",
    "Predictor",
    "accuracy_rows",
    "average_accuracy",
    "average_accuracy_curve",
    "average_forgetting",
    "average_forgetting_curve",
    "balanced_accuracy",
    "plain_accuracy",
]
