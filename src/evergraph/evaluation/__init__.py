"""The accuracy matrix and the measures computed from it."""

from evergraph.evaluation.accuracy import balanced_accuracy, plain_accuracy
from evergraph.evaluation.accuracy_matrix import (
    AccuracyMatrix,
    area_under_curve,
    average_accuracy,
    average_accuracy_curve,
    average_forgetting,
    average_forgetting_curve,
)
from evergraph.evaluation.calibration import expected_calibration_error
from evergraph.evaluation.evaluator import AVERAGES, MEASURES, Evaluation, evaluate
from evergraph.evaluation.open_world import rejection_auroc
from evergraph.evaluation.scoring import Predictor

__all__ = [
    "AVERAGES",
    "MEASURES",
    "AccuracyMatrix",
    "Evaluation",
    "Predictor",
    "area_under_curve",
    "average_accuracy",
    "average_accuracy_curve",
    "average_forgetting",
    "average_forgetting_curve",
    "balanced_accuracy",
    "evaluate",
    "expected_calibration_error",
    "plain_accuracy",
    "rejection_auroc",
]
