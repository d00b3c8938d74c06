"""Targets of nodes: an object for each kind.

A new kind is a file with a registered class, and an import here.
"""

from evergraph.core.targets.base import (
    LARGEST,
    Key,
    Label,
    Matrix,
    NodeTarget,
    Tallies,
    Target,
    check_id,
    target_kinds,
    target_of,
)
from evergraph.core.targets.labels import Labels, LabelsPrediction
from evergraph.core.targets.numbers import NumberPrediction, Numbers
from evergraph.core.targets.one_class import OneClass, Prediction, likeliest

__all__ = [
    "LARGEST",
    "Key",
    "Label",
    "Labels",
    "LabelsPrediction",
    "Matrix",
    "NodeTarget",
    "NumberPrediction",
    "Numbers",
    "OneClass",
    "Prediction",
    "Tallies",
    "Target",
    "check_id",
    "likeliest",
    "target_kinds",
    "target_of",
]
