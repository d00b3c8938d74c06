"""Typed configurations, the runner, the results folder and the presets.

Names are imported on first use, so importing ``protocol`` alone loads only torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.experiments.config import RunConfig
    from evergraph.experiments.result import RunResult
    from evergraph.experiments.runner import run

__all__ = ["RunConfig", "RunResult", "run"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    homes = {"RunConfig": "config", "RunResult": "result", "run": "runner"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
