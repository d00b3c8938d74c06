"""What a dataset is, and where the registered ones are found."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from evergraph.core.resolver import Resolver
from evergraph.graphs import Graph


class Dataset(ABC):
    """A graph that can be loaded by name.

    ``load`` returns the graph as published, directed where it is; the caller symmetrises.
    Constructors take keyword hyper-parameters only (most datasets have none).
    """

    name: ClassVar[str]
    stays_in_files: ClassVar[bool] = False  # read from a folder as it is needed, not into memory

    @abstractmethod
    def load(self, cache: Path) -> Graph:
        """Return the graph, keeping anything fetched or computed under ``cache``."""

    def load_both_ways(self, cache: Path) -> Graph:
        """Return the graph as published, or with every edge both ways where it is kept like that.

        Worth overriding where it is too large to be symmetrised in memory.
        """
        return self.load(cache)

    def load_outline(self, cache: Path) -> Graph:
        """Return the graph with features as wide as they are, whose values may be anything.

        For whoever only counts nodes, edges and classes; worth overriding where features take long.
        """
        return self.load(cache)


datasets = Resolver[Dataset]("dataset")


def default_cache() -> Path:
    """Return where datasets are kept: ``$EVERGRAPH_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("EVERGRAPH_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "evergraph"
