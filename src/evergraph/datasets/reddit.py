"""The Reddit graph of GraphSAGE, read by PyG."""

from __future__ import annotations

from evergraph.datasets.base import datasets
from evergraph.datasets.gnpz import PygDataset


@datasets.register
class Reddit(PygDataset):
    """Reddit posts that share a commenter, 41 communities (Hamilton 2017)."""

    name = "reddit"
    pyg_class = "Reddit"
    raw_files = ("raw/reddit_data.npz", "raw/reddit_graph.npz")
