"""Graphs of the Open Graph Benchmark, fetched by ogb's downloader and read by its CSV reader.

ogb's own dataset class is left alone: it keeps a pickle and asks questions on standard input.
"""

from __future__ import annotations

import csv
import logging
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from evergraph.core.extras import require
from evergraph.datasets.base import datasets
from evergraph.datasets.download import present
from evergraph.datasets.published import Published
from evergraph.graphs import Graph

log = logging.getLogger(__name__)


class OgbDataset(Published):
    """A node-classification graph of OGB; ``raw`` lies where OGB's archive unpacks it."""

    ogb_name: ClassVar[str]

    def read(self, folder: Path) -> Graph:
        """Return the graph of OGB's raw files, fetching them if they are missing."""
        master = ogb_master(self.ogb_name)
        with redirect_stdout(sys.stderr):  # ogb prints its progress
            if not present(folder, self.raw_files):
                fetch_archive(master["url"], folder)
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


def ogb_master(name: str) -> dict[str, str]:
    """Return what ogb's own table of datasets says of ``name``."""
    require("ogb", extra="ogb", why=f"reading dataset {name!r}")
    import ogb

    table = Path(ogb.__file__).parent / "nodeproppred" / "master.csv"
    with table.open(newline="") as file:
        header, *rows = csv.reader(file)
    column = header.index(name)
    return {row[0]: row[column] for row in rows}


def fetch_archive(url: str, folder: Path) -> None:
    """Download OGB's archive and unpack it under ``folder``.

    ogb asks on standard input before it fetches more than 1 GB, which would hang a run that nobody
    watches. Whoever names the dataset has decided: the question is skipped, and logged instead.
    """
    from ogb.utils.url import download_url, extract_zip

    log.info("downloading %s; the archive may be larger than 1 GB", url)
    archive = download_url(url, str(folder))
    extract_zip(archive, str(folder))
    Path(archive).unlink()


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
