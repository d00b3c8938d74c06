"""The accuracy matrix and the measures computed from it."""

from evergraph.core.targets.measures import (
    average_precision,
    balanced_accuracy,
    macro_f1,
    mean_absolute_error,
    micro_f1,
    plain_accuracy,
    r2,
)
from evergraph.evaluation.accuracy_matrix import (
    AccuracyMatrix,
    anytime_accuracy,
    average_accuracy,
    average_accuracy_curve,
    average_forgetting,
    average_forgetting_curve,
)
from evergraph.evaluation.evaluator import (
    MEASURES,
    Evaluation,
    Predictor,
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
