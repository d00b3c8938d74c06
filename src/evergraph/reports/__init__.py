"""Tables, pictures and one page of finished runs."""

from evergraph.reports.report import write_report
from evergraph.reports.runs import Finished, collect
from evergraph.reports.tables.accuracy import comparison
from evergraph.reports.tables.costs import memory_comparison

__all__ = [
    "Finished",
    "collect",
    "comparison",
    "memory_comparison",
    "write_report",
]
