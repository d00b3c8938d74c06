"""Floor 8: tables and pictures of finished runs."""

from evergraph.reports.collect import Finished, collect
from evergraph.reports.plots import plot_accuracy_matrices, plot_learning_curves
from evergraph.reports.table import COLUMNS, comparison

__all__ = [
    "COLUMNS",
    "Finished",
    "collect",
    "comparison",
    "plot_accuracy_matrices",
    "plot_learning_curves",
]
