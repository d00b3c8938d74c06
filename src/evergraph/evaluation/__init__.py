"""The accuracy matrix and the measures computed from it."""

from evergraph.core.targets.labels import average_precision, macro_f1, micro_f1
from evergraph.core.targets.numbers import mean_absolute_error, r2
from evergraph.core.targets.one_class import balanced_accuracy, plain_accuracy
from evergraph.evaluation.evaluator import (
    MEASURES,
    AccuracyMatrix,
    Evaluation,
    Predictor,
    anytime_accuracy,
    average_accuracy,
    average_accuracy_curve,
    average_forgetting,
    average_forgetting_curve,
    evaluate,
    expected_calibration_error,
    rejection_auroc,
)

__all__ = [
    "MEASURES",
    "AccuracyMatrix",
    "Evaluation",
    "Predictor",
    "anytime_accuracy",
    "average_accuracy",
    "average_accuracy_curve",
    "average_forgetting",
    "average_forgetting_curve",
    "average_precision",
    "balanced_accuracy",
    "evaluate",
    "expected_calibration_error",
    "macro_f1",
    "mean_absolute_error",
    "micro_f1",
    "plain_accuracy",
    "r2",
    "rejection_auroc",
]
