"""pyarrow, imported when it is first used: it is an extra, and takes half a second to import."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["MARK", "csv", "pa", "parquet", "pc"]

MARK = b"evergraph"  # metadata of tables whose columns the sender has encoded already


class LazyModule(ModuleType):
    """Stands for a module until one of its names is asked for.

    >>> LazyModule("math").sqrt(4)
    2.0
    """

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)  # so that it is asked for once
        return found


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv, parquet
else:
    pa, pc = LazyModule("pyarrow"), LazyModule("pyarrow.compute")
    csv, parquet = LazyModule("pyarrow.csv"), LazyModule("pyarrow.parquet")
