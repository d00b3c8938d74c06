"""Files of publishers, fetched over a network that fails, or from a folder."""

from evergraph.datasets.fetching.fetch import Fetch, download

__all__ = ["Fetch", "download"]
