"""Graphs by name or by path."""

from evergraph.datasets.base import Dataset, datasets, default_cache
from evergraph.datasets.catalogue import Facts
from evergraph.datasets.generated.synthetic import Synthetic
from evergraph.datasets.generated.twins import ProductsTwin, RedditTwin
from evergraph.datasets.joined import Joined, join
from evergraph.datasets.loading import load
from evergraph.datasets.ogb import Arxiv, Products
from evergraph.datasets.published import (
    CoauthorCS,
    CoauthorPhysics,
    Computers,
    CoraFull,
    Photo,
    Reddit,
)
from evergraph.datasets.wordnet import WordNet

__all__ = [
    "Arxiv",
    "CoauthorCS",
    "CoauthorPhysics",
    "Computers",
    "CoraFull",
    "Dataset",
    "Facts",
    "Joined",
    "Photo",
    "Products",
    "ProductsTwin",
    "Reddit",
    "RedditTwin",
    "Synthetic",
    "WordNet",
    "datasets",
    "default_cache",
    "join",
    "load",
]
