"""The base class of datasets, their registry, and the catalogue of facts about them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from evergraph.core.component import Resolver
from evergraph.core.errors import DataError
from evergraph.core.packages import tomllib
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import read_facts

OVERLAY = "EVERGRAPH_CATALOGUE"


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


@dataclass(frozen=True)
class Facts:
    """Facts about one dataset, known before loading; catalogue.toml describes the fields."""

    title: str
    nodes: int
    edges: int
    features: int
    classes: int
    tasks: int
    directed: bool
    source: str
    kept_edges: int | None = None
    homophily: float | None = None
    terms: str | None = None
    paper: str | None = None
    labelled: int | None = field(default=None, repr=False)  # repr identifies synthetic twins
    urls: Sequence[str] = field(default_factory=list, repr=False)
    download: int = field(default=0, repr=False)
    room: int = field(default=0, repr=False)
    sha256: Mapping[str, str] = field(default_factory=dict)


def catalogue() -> dict[str, Facts]:
    """Return the facts of every named dataset.

    A TOML file named by ``$EVERGRAPH_CATALOGUE`` overrides them table by table, for example with
    your own mirrors or checksums.

    >>> catalogue()["arxiv"].nodes
    169343
    """
    return _catalogue(os.environ.get(OVERLAY))


@cache
def _catalogue(overlay: str | None) -> dict[str, Facts]:
    text = resources.files("evergraph.datasets").joinpath("catalogue.toml").read_text("utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    try:
        changes = tomllib.loads(Path(overlay).read_text("utf-8")) if overlay else {}
    except (OSError, ValueError) as error:
        raise DataError(f"${OVERLAY}: {overlay}: cannot be read ({error})") from None
    for name, facts in changes.items():
        tables[name] = {**tables.get(name, {}), **facts}
    try:
        return {name: Facts(**facts) for name, facts in tables.items()}
    except TypeError as error:
        raise DataError(f"${OVERLAY}: {overlay}: is not a valid catalogue ({error})") from None


def check_facts(name: str, graph: Graph) -> None:
    """Raise if the graph, as published, differs from the catalogue.

    Names that are not in the catalogue are not checked.
    """
    facts = catalogue().get(name)
    if facts is None:
        return
    # A graph folder has no duplicates any more, and records how many edges were published.
    about = {} if graph.folder is None else read_facts(graph.folder)["about"]
    listed = int(about.get("listed_edges", graph.num_edges))
    edges = facts.edges if facts.kept_edges is None else facts.kept_edges
    compared = {
        "nodes": (facts.nodes, graph.num_nodes),
        "edges": (edges, listed),
        "features": (facts.features, graph.num_features),
        "classes": (facts.classes, graph.num_classes),
    }
    differ = ((fact, *pair) for fact, pair in compared.items() if pair[0] != pair[1])
    wrong = [f"{fact} should be {expected:,} but are {found:,}" for fact, expected, found in differ]
    if wrong:
        raise DataError(f"dataset {name!r} is not the published one: {', '.join(wrong)}")
