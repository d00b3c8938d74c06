"""The graph record, normalisation, propagation, reach and homophily."""

from evergraph.graphs.edge_measures import forman_curvature, homophily
from evergraph.graphs.graph import Graph
from evergraph.graphs.hyperloglog import estimate_reach_sizes
from evergraph.graphs.propagation import Smoother, normalised, propagate, smoother, walk
from evergraph.graphs.reachability import covered_nodes, reach, reach_sizes
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.targets import Targets
from evergraph.graphs.validation import UNLABELLED

__all__ = [
    "UNLABELLED",
    "Graph",
    "NodeTypes",
    "Relations",
    "Smoother",
    "Targets",
    "covered_nodes",
    "estimate_reach_sizes",
    "forman_curvature",
    "homophily",
    "normalised",
    "propagate",
    "reach",
    "reach_sizes",
    "smoother",
    "walk",
]
