"""Floor 1: the graph record, normalisation, propagation, reach and homophily."""

from evergraph.graphs.graph import UNLABELLED, Graph
from evergraph.graphs.homophily import homophily
from evergraph.graphs.normalisation import normalised
from evergraph.graphs.propagation import propagate, walk
from evergraph.graphs.reach import covered_nodes, reach, reach_sizes

__all__ = [
    "UNLABELLED",
    "Graph",
    "covered_nodes",
    "homophily",
    "normalised",
    "propagate",
    "reach",
    "reach_sizes",
    "walk",
]
