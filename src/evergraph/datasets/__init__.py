"""Floor 2: graphs by name or by path."""

from evergraph.datasets.base import Dataset, datasets, default_cache

__all__ = ["Dataset", "datasets", "default_cache"]
