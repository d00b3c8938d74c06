"""Tables, pictures and one page of finished runs."""

from evergraph.reports.memory_table import MEMORY_COLUMNS, memory_comparison
from evergraph.reports.report import write_report
from evergraph.reports.runs import Finished, collect
from evergraph.reports.table import COLUMNS, comparison

__all__ = [
    "COLUMNS",
    "MEMORY_COLUMNS",
    "Finished",
    "collect",
    "comparison",
    "memory_comparison",
    "write_report",
]
