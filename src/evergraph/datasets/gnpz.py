"""The five graphs published as ``.npz`` beside graph2gauss and gnn-benchmark, read by PyG."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

from evergraph.core.extras import require
from evergraph.datasets.base import datasets
from evergraph.datasets.feature_layout import fitting_layout
from evergraph.datasets.published import Published
from evergraph.graphs import Graph


class PygDataset(Published):
    """A dataset that a class of ``torch_geometric.datasets`` downloads and parses.

    PyG keeps what it parsed in a file of its own, which it may read back with a full unpickler.
    ``force_reload`` makes it parse the raw files instead and read only what it has just written;
    that file is then removed, since ours is the one later loads read.
    """

    pyg_class: ClassVar[str]
    pyg_arguments: ClassVar[dict[str, Any]] = {}

    def read(self, folder: Path) -> Graph:
        """Return the graph PyG makes of the raw files, fetching them if they are missing."""
        require("torch_geometric", extra="pyg", why=f"reading dataset {self.name!r}")
        import torch_geometric.datasets

        make = getattr(torch_geometric.datasets, self.pyg_class)
        dataset = make(str(folder), **self.pyg_arguments, force_reload=True)
        graph = Graph.from_data(dataset[0])
        graph = graph.with_features(fitting_layout(graph.features))
        shutil.rmtree(dataset.processed_dir, ignore_errors=True)
        return graph


@datasets.register
class CoraFull(PygDataset):
    """Citations between computer-science papers, 70 topics, binary words (Bojchevski 2018)."""

    name = "corafull"
    pyg_class = "CitationFull"
    pyg_arguments: ClassVar[dict[str, Any]] = {"name": "Cora"}
    raw_files = ("cora/raw/cora.npz",)


@datasets.register
class Computers(PygDataset):
    """Amazon computer goods bought together, 10 categories (Shchur 2018)."""

    name = "computers"
    pyg_class = "Amazon"
    pyg_arguments: ClassVar[dict[str, Any]] = {"name": "Computers"}
    raw_files = ("Computers/raw/amazon_electronics_computers.npz",)


@datasets.register
class Photo(PygDataset):
    """Amazon photo goods bought together, 8 categories (Shchur 2018)."""

    name = "photo"
    pyg_class = "Amazon"
    pyg_arguments: ClassVar[dict[str, Any]] = {"name": "Photo"}
    raw_files = ("Photo/raw/amazon_electronics_photo.npz",)


@datasets.register
class CoauthorCS(PygDataset):
    """Computer scientists who wrote together, 15 fields (Shchur 2018)."""

    name = "coauthor-cs"
    pyg_class = "Coauthor"
    pyg_arguments: ClassVar[dict[str, Any]] = {"name": "CS"}
    raw_files = ("CS/raw/ms_academic_cs.npz",)


@datasets.register
class CoauthorPhysics(PygDataset):
    """Physicists who wrote together, 5 fields (Shchur 2018)."""

    name = "coauthor-physics"
    pyg_class = "Coauthor"
    pyg_arguments: ClassVar[dict[str, Any]] = {"name": "Physics"}
    raw_files = ("Physics/raw/ms_academic_phy.npz",)
