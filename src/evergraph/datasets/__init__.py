"""Graphs by name or by path."""

from evergraph.datasets import ogb, published, wordnet  # noqa: F401  (they register)
from evergraph.datasets.base import Dataset, datasets, default_cache
from evergraph.datasets.catalogue import Facts
from evergraph.datasets.generated import twins  # noqa: F401
from evergraph.datasets.generated.synthetic import Synthetic
from evergraph.datasets.joined import join
from evergraph.datasets.loading import load
from evergraph.datasets.wordnet import WordNet

__all__ = ["Dataset", "Facts", "Synthetic", "WordNet", "datasets", "default_cache", "join", "load"]
