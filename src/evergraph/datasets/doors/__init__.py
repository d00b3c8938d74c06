"""Graphs as other libraries hold them."""

from evergraph.datasets.doors.doors import as_graph, named_graph
from evergraph.datasets.doors.named import NamedGraph

__all__ = ["NamedGraph", "as_graph", "named_graph"]
