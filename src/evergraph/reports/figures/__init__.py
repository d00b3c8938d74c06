"""The figures of a report: one kind a file."""

from evergraph.reports.figures.bars import local_global, time_phases
from evergraph.reports.figures.critical_difference import critical_difference
from evergraph.reports.figures.frontier import BYTES, SECONDS, frontier, memory_accuracy
from evergraph.reports.figures.learning import accuracy_matrix, learning_curves
from evergraph.reports.figures.picture import Picture

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
