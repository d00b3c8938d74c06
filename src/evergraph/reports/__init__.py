"""Floor 8: tables and pictures of finished runs."""

from evergraph.reports.collect import Finished, collect
from evergraph.reports.memory_table import MEMORY_COLUMNS, memory_comparison
from evergraph.reports.plots import plot_accuracy_matrices, plot_learning_curves
from evergraph.reports.table import COLUMNS, comparison

__all__ = [
    "COLUMNS",
    "MEMORY_COLUMNS",
    "Finished",
    "collect",
    "comparison",
    "memory_comparison",
    "plot_accuracy_matrices",
    "plot_learning_curves",
]
