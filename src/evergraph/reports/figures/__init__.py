"""The figures of a report: one kind a file."""

from evergraph.reports.figures.accuracy_matrix import accuracy_matrix
from evergraph.reports.figures.critical_difference import critical_difference
from evergraph.reports.figures.frontier import BYTES, SECONDS, frontier
from evergraph.reports.figures.learning_curves import learning_curves
from evergraph.reports.figures.local_global import local_global
from evergraph.reports.figures.memory_accuracy import memory_accuracy
from evergraph.reports.figures.picture import Picture
from evergraph.reports.figures.time_phases import time_phases

__all__ = [
    "BYTES",
    "SECONDS",
    "Picture",
    "accuracy_matrix",
    "critical_difference",
    "frontier",
    "learning_curves",
    "local_global",
    "memory_accuracy",
    "time_phases",
]
