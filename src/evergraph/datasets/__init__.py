"""Graphs by name or by path."""

from evergraph.datasets import (  # noqa: F401  (they register)
    gnpz,
    ogb,
    reddit,
    synthetic,
    twins,
    wordnet,
)
from evergraph.datasets.base import Dataset, datasets, default_cache
from evergraph.datasets.catalogue import Facts
from evergraph.datasets.joined import join
from evergraph.datasets.loading import load
from evergraph.datasets.synthetic import Synthetic
from evergraph.datasets.wordnet import WordNet

__all__ = ["Dataset", "Facts", "Synthetic", "WordNet", "datasets", "default_cache", "join", "load"]
