"""The published graphs by name, and how they are fetched."""

from __future__ import annotations

import logging
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from evergraph.core.extras import require
from evergraph.datasets.base import Dataset, datasets
from evergraph.datasets.catalogue import catalogue, check_facts
from evergraph.datasets.download import (
    FAILURES,
    SUMS,
    not_fetched,
    not_readable,
    present,
    record,
    verify,
)
from evergraph.datasets.files.assembly import fitting_layout
from evergraph.datasets.files.npz import read_npz, write_npz
from evergraph.graphs import Graph

log = logging.getLogger(__name__)

KEPT = "graph.npz"


class Published(Dataset):
    """A dataset read from a publisher's raw files.

    ``cache/<name>`` holds the raw files where the publisher's reader expects them, their
    ``SHA256SUMS``, and ``graph.npz``: the parsed graph, which is what later loads read.
    A download happens in a folder aside and its files are moved in only when all are sound, so
    that a broken attempt, or a killed process, never leaves half a file in the cache.
    """

    raw_files: ClassVar[tuple[str, ...]]  # paths below the dataset's folder

    @abstractmethod
    def read(self, folder: Path) -> Graph:
        """Return the graph of the raw files under ``folder``, fetching them if they are missing."""

    def load(self, cache: Path) -> Graph:
        """Return the graph as published."""
        root = cache / self.name
        if not present(root, self.raw_files):
            return self._first_load(root)
        verify(root, self.raw_files, self._pinned())
        if (root / KEPT).exists():
            return read_npz(root / KEPT)
        return self._keep(root, self._read_raw(root, root))

    def _first_load(self, root: Path) -> Graph:
        with self._fetching(root) as aside:
            graph = self._read_raw(aside, root)
        return self._keep(root, graph)

    @contextmanager
    def _fetching(self, root: Path) -> Iterator[Path]:
        """Yield a folder for raw files, which are moved to where they belong if they are sound."""
        log.info("fetching dataset %s into %s", self.name, root)
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root.parent, prefix=f".{self.name}-") as folder:
                aside = Path(folder)
                yield aside
                verify(aside, self.raw_files, self._pinned())
                self._move_in(aside, root)
        except OSError as error:
            raise not_fetched(self.name, self._source(), root, self.raw_files, error) from error

    def _read_raw(self, folder: Path, root: Path) -> Graph:
        """Read the raw files under ``folder``; they belong, or will belong, under ``root``."""
        try:
            graph = self.read(folder)
        except FAILURES as error:
            if present(folder, self.raw_files):
                raise not_readable(self.name, root, error) from error
            raise not_fetched(self.name, self._source(), root, self.raw_files, error) from error
        check_facts(self.name, graph)
        return graph

    def _move_in(self, aside: Path, root: Path) -> None:
        (root / KEPT).unlink(missing_ok=True)  # it belongs to raw files that are gone
        (root / SUMS).unlink(missing_ok=True)
        for file in self.raw_files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (aside / file).replace(root / file)

    def _keep(self, root: Path, graph: Graph) -> Graph:
        write_npz(graph, root / KEPT)
        record(root, self.raw_files)
        return graph

    def _pinned(self) -> Mapping[str, str]:
        facts = catalogue().get(self.name)
        return {} if facts is None else facts.sha256

    def _source(self) -> str:
        facts = catalogue().get(self.name)
        return "its publisher" if facts is None else facts.source


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


@datasets.register
class Reddit(PygDataset):
    """Reddit posts that share a commenter, 41 communities (Hamilton 2017)."""

    name = "reddit"
    pyg_class = "Reddit"
    raw_files = ("raw/reddit_data.npz", "raw/reddit_graph.npz")
