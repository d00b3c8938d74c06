"""Downloads of publishers' files over an unreliable network, or from a folder."""

from evergraph.datasets.fetching.fetch import Fetch, download

__all__ = ["Fetch", "download"]
