"""Tables, figures and one page about finished runs.

Names are imported on first use: printing a single run needs no page and no figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.reports.report import write_report
    from evergraph.reports.runs import Finished, collect
    from evergraph.reports.tables.accuracy import comparison, memory_comparison

__all__ = ["Finished", "collect", "comparison", "memory_comparison", "write_report"]
_HOMES = {
    "Finished": "runs",
    "collect": "runs",
    "comparison": "tables.accuracy",
    "memory_comparison": "tables.accuracy",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
