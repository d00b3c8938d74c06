"""Files of publishers, fetched over a network that fails, or from a folder."""

from evergraph.datasets.fetching.fetch import Fetch
from evergraph.datasets.fetching.transfer import Patience, download

__all__ = ["Fetch", "Patience", "download"]
