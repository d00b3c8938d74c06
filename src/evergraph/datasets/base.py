"""The base class of datasets and their registry."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from evergraph.core.resolver import Resolver
from evergraph.graphs import Graph


class Dataset(ABC):
    """A graph that can be loaded by name.

    ``load`` returns the graph as published, with directed edges if it has them; the caller makes it
    undirected. Constructors take keyword parameters only (most datasets have none).
    """

    name: ClassVar[str]
    stays_in_files: ClassVar[bool] = False  # read from a folder on demand, not into memory

    @abstractmethod
    def load(self, cache: Path) -> Graph:
        """Return the graph; downloaded or computed files are kept under ``cache``."""

    def load_both_ways(self, cache: Path) -> Graph:
        """Return the graph as published, or undirected if it is stored that way.

        Override it if the graph is too large to be made undirected in memory.
        """
        return self.load(cache)

    def load_outline(self, cache: Path) -> Graph:
        """Return the graph with features of the right width but arbitrary values.

        For counting nodes, edges and classes; override it if computing features takes long.
        """
        return self.load(cache)


datasets = Resolver[Dataset]("dataset")


def default_cache() -> Path:
    """Return the cache folder: ``$EVERGRAPH_CACHE``, or a folder in the user's cache."""
    if chosen := os.environ.get("EVERGRAPH_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "evergraph"
