"""Graphs of the Open Graph Benchmark, read by ogb's CSV reader.

ogb's own dataset class is left alone: it keeps a pickle and asks questions on standard input. Its
reader of binary files holds all of them in memory: that one is ours, too.
"""

from __future__ import annotations

import csv
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from evergraph.core.extras import require
from evergraph.datasets.base import datasets
from evergraph.datasets.download import FAILURES, not_readable, record
from evergraph.datasets.fetching import Fetch
from evergraph.datasets.kept_folder import kept_graph
from evergraph.datasets.ogb_binary import write_binary_raw
from evergraph.datasets.published import Published
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import GraphFolderWriter, is_graph_folder


class OgbDataset(Published):
    """A node-classification graph of OGB; ``raw`` lies where OGB's archive unpacks it."""

    ogb_name: ClassVar[str]

    def check_reader(self) -> None:
        """Raise if ogb is not installed."""
        ogb_master(self.ogb_name)

    def read(self, folder: Path) -> Graph:
        """Return the graph of OGB's raw files."""
        master = ogb_master(self.ogb_name)
        with redirect_stdout(sys.stderr):  # ogb prints its progress
            return read_raw(folder / master["download_name"] / "raw", master)


@datasets.register
class Arxiv(OgbDataset):
    """Citations between computer-science papers on arXiv, citing to cited, with years (Hu 2020)."""

    name = "arxiv"
    ogb_name = "ogbn-arxiv"
    raw_files = (
        "arxiv/raw/edge.csv.gz",
        "arxiv/raw/num-node-list.csv.gz",
        "arxiv/raw/num-edge-list.csv.gz",
        "arxiv/raw/node-feat.csv.gz",
        "arxiv/raw/node-label.csv.gz",
        "arxiv/raw/node_year.csv.gz",
    )


@datasets.register
class Products(OgbDataset):
    """Amazon products bought together, 47 categories (Hu 2020)."""

    name = "products"
    ogb_name = "ogbn-products"
    raw_files = (
        "products/raw/edge.csv.gz",
        "products/raw/num-node-list.csv.gz",
        "products/raw/num-edge-list.csv.gz",
        "products/raw/node-feat.csv.gz",
        "products/raw/node-label.csv.gz",
    )


@datasets.register
class Papers(OgbDataset):
    """Citations between 111M papers of all fields, 1.5M of which have one of 172 (Hu 2020).

    The raw files are read once, in about 1.5 GB of memory, into a graph folder that stays on disk:
    ``both-ways``, or ``as-listed``, citing to cited, where a run is told ``--directed``. Both have
    their features in common. Once a folder is there the raw files are not needed any more.
    """

    name = "papers"
    stays_in_files = True
    ogb_name = "ogbn-papers100M"
    raw_files = ("papers100M-bin/raw/data.npz", "papers100M-bin/raw/node-label.npz")
    folders: ClassVar[tuple[str, str]] = ("as-listed", "both-ways")

    def load(self, cache: Path, how: Fetch | None = None) -> Graph:
        """Return the graph as published."""
        return self._kept(cache / self.name, undirected=False, how=how)

    def load_both_ways(self, cache: Path) -> Graph:
        """Return the graph with every edge both ways."""
        return self._kept(cache / self.name, undirected=True)

    def load_outline(self, cache: Path) -> Graph:
        """Return the graph as a run sees it: published as it is, it would be sorted once more."""
        return self.load_both_ways(cache)

    def _kept(self, root: Path, *, undirected: bool, how: Fetch | None = None) -> Graph:
        folder, other = root / self.folders[undirected], root / self.folders[not undirected]

        def write(writer: GraphFolderWriter) -> None:
            self._provide(root.parent, how)
            like = other if is_graph_folder(other) else None
            try:
                write_binary_raw(self._raw(root), writer, undirected=undirected, like=like)
            except FAILURES as error:
                raise not_readable(self.name, root, error) from error
            record(root, self.raw_files)

        return kept_graph(folder, write)

    def _raw(self, root: Path) -> Path:
        return (root / self.raw_files[0]).parent

    def _provide(self, cache: Path, how: Fetch | None) -> None:
        """Make sure that the raw files are there, and are those that were there before."""
        raw = self.raw(cache)
        if raw.check(how):
            return
        with raw.alone():
            if not raw.there:
                raw.fetch(Fetch() if how is None else how, lambda aside: None)


def ogb_master(name: str) -> dict[str, str]:
    """Return what ogb's own table of datasets says of ``name``."""
    require("ogb", extra="ogb", why=f"reading dataset {name!r}")
    import ogb

    table = Path(ogb.__file__).parent / "nodeproppred" / "master.csv"
    with table.open(newline="") as file:
        header, *rows = csv.reader(file)
    column = header.index(name)
    return {row[0]: row[column] for row in rows}


def read_raw(raw: Path, master: dict[str, str]) -> Graph:
    """Return the graph that a folder of OGB's ``.csv.gz`` files holds."""
    from ogb.io.read_graph_raw import read_csv_graph_raw

    extra = [name for name in master["additional node files"].split(",") if name != "None"]
    inverse = master["add_inverse_edge"] == "True"
    read = read_csv_graph_raw(str(raw), add_inverse_edge=inverse, additional_node_files=extra)[0]
    labels = np.loadtxt(
        raw / "node-label.csv.gz", dtype=np.int64, delimiter=",", ndmin=1
    )  # [nodes]
    year = read.get("node_year")  # [nodes, 1]
    return Graph.from_edges(
        torch.from_numpy(read["edge_index"]),
        features=torch.from_numpy(read["node_feat"]),
        labels=torch.from_numpy(labels),
        time=None if year is None else torch.from_numpy(year.reshape(-1)),
    )
