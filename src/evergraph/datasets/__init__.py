"""Graphs by name or by path."""

from evergraph.datasets.adapters import NamedGraph, as_graph, named_graph
from evergraph.datasets.base import Dataset, Facts, datasets, default_cache
from evergraph.datasets.joined import Joined, join, join_domains
from evergraph.datasets.loading import load
from evergraph.datasets.ogb import Arxiv, Papers, Products
from evergraph.datasets.published import (
    CoauthorCS,
    CoauthorPhysics,
    Computers,
    CoraFull,
    Photo,
    Reddit,
)
from evergraph.datasets.synthetic import Synthetic
from evergraph.datasets.wordnet import WordNet, WordNetDepth, WordNetPartsOfSpeech, WordNetRelations

__all__ = [
    "Arxiv",
    "CoauthorCS",
    "CoauthorPhysics",
    "Computers",
    "CoraFull",
    "Dataset",
    "Facts",
    "Joined",
    "NamedGraph",
    "Papers",
    "Photo",
    "Products",
    "Reddit",
    "Synthetic",
    "WordNet",
    "WordNetDepth",
    "WordNetPartsOfSpeech",
    "WordNetRelations",
    "as_graph",
    "datasets",
    "default_cache",
    "join",
    "join_domains",
    "load",
    "named_graph",
]
