"""Facts about the named datasets, and whether a graph agrees with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from evergraph.core.errors import DataError
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import read_facts

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Facts:
    """What is known of one dataset before it is loaded; the fields are told in catalogue.toml."""

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
    labelled: int | None = field(default=None, repr=False)  # twins are known by the others
    sha256: Mapping[str, str] = field(default_factory=dict)


@cache
def catalogue() -> dict[str, Facts]:
    """Return the facts of every named dataset.

    >>> catalogue()["arxiv"].nodes
    169343
    """
    text = resources.files("evergraph.datasets").joinpath("catalogue.toml").read_text("utf-8")
    return {name: Facts(**facts) for name, facts in tomllib.loads(text).items()}


def check_facts(name: str, graph: Graph) -> None:
    """Raise if the graph, as published, is not the one the catalogue describes.

    A name the catalogue does not have is nobody's business: nothing is checked.
    """
    facts = catalogue().get(name)
    wrong = [] if facts is None else list(_disagreements(facts, graph))
    if wrong:
        raise DataError(f"dataset {name!r} is not the published one: {', '.join(wrong)}")


def _disagreements(facts: Facts, graph: Graph) -> Iterator[str]:
    edges = facts.edges if facts.kept_edges is None else facts.kept_edges
    for fact, expected, found in (
        ("nodes", facts.nodes, graph.num_nodes),
        ("edges", edges, _listed_edges(graph)),
        ("features", facts.features, graph.num_features),
        ("classes", facts.classes, graph.num_classes),
    ):
        if expected != found:
            yield f"{fact} should be {expected:,} but are {found:,}"


def _listed_edges(graph: Graph) -> int:
    """Return how many edges are listed: a folder may say it, in which doubles are gone."""
    about = {} if graph.folder is None else read_facts(graph.folder)["about"]
    return int(about.get("listed_edges", graph.num_edges))
