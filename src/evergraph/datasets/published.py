"""Published graphs by name, fetched from their publishers."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from evergraph.core.errors import ResourceError
from evergraph.core.packages import require
from evergraph.core.safe_files import disk_is_enough
from evergraph.datasets.arrays import fitting_layout, read_npz, write_npz
from evergraph.datasets.base import Dataset, catalogue, check_facts, datasets
from evergraph.datasets.fetching import FAILURES, Fetch, RawFiles, not_readable, record
from evergraph.graphs import Graph

KEPT = "graph.npz"


class PublishedDataset(Dataset):
    """A dataset read from a publisher's raw files.

    ``cache/<name>`` holds the raw files where the publisher's reader expects them, their
    ``SHA256SUMS``, and ``graph.npz``: the parsed graph, which later loads read.
    ``cache/downloads`` holds unfinished downloads. Raw files move into the cache only when all are
    valid, so that a failed attempt or a killed process never leaves half a file there.
    """

    raw_files: ClassVar[tuple[str, ...]]  # paths below the dataset's folder

    @abstractmethod
    def read(self, folder: Path) -> Graph:
        """Return the graph of the raw files under ``folder``."""

    def check_reader(self) -> None:
        """Raise, before files are fetched, if the package that reads them is missing."""

    def load(self, cache: Path, how: Fetch | None = None) -> Graph:
        """Return the graph as published.

        how: how to fetch files; if given, files that have changed are set aside and fetched
        again.
        """
        raw = self.raw(cache)
        if raw.check(how):
            if (raw.root / KEPT).exists():
                return read_npz(raw.root / KEPT)
            return self._keep(raw.root, self._read_raw(raw.root, raw.root))
        self.check_reader()
        with raw.locked():
            if raw.are_cached:  # another process was faster
                return self.load(cache)
            (raw.root / KEPT).unlink(missing_ok=True)  # of raw files that are gone
            graph = raw.fetch(how or Fetch(), lambda aside: self._read_raw(aside, raw.root))
            return self._keep(raw.root, graph)

    def raw(self, cache: Path) -> RawFiles:
        """Return the description of the raw files."""
        return RawFiles(self.name, self.raw_files, cache / self.name, catalogue().get(self.name))

    def _read_raw(self, folder: Path, root: Path) -> Graph:
        """Read the raw files under ``folder``, which belong under ``root``."""
        try:
            with disk_is_enough(folder):
                graph = self.read(folder)
        except MemoryError as error:
            message = (
                f"reading the raw files of dataset {self.name!r} needs more memory than there is"
            )
            raise ResourceError(message) from error
        except FAILURES as error:
            raise not_readable(self.name, root, error) from error
        check_facts(self.name, graph)
        return graph

    def _keep(self, root: Path, graph: Graph) -> Graph:
        with disk_is_enough(root):
            write_npz(graph, root / KEPT)
            record(root, self.raw_files)
        return graph


class PygDataset(PublishedDataset):
    """A dataset parsed by a class of ``torch_geometric.datasets``.

    PyG saves the parsed graph in its own file, which it may read with a full unpickler.
    ``force_reload`` makes it parse the raw files instead and read only what it has just written.
    That file is then removed, since later loads read ``graph.npz``.
    """

    pyg_class: ClassVar[str]
    pyg_name: ClassVar[str | None] = None  # which of the graphs that the class reads

    def check_reader(self) -> None:
        require("torch_geometric", extra="pyg", why=f"reading dataset {self.name!r}")

    def read(self, folder: Path) -> Graph:
        self.check_reader()
        import torch_geometric.datasets

        dataset_class = getattr(torch_geometric.datasets, self.pyg_class)
        arguments = () if self.pyg_name is None else (self.pyg_name,)
        dataset = dataset_class(str(folder), *arguments, force_reload=True)
        graph = Graph.from_data(dataset[0])
        graph = graph.with_features(fitting_layout(graph.features))
        shutil.rmtree(dataset.processed_dir, ignore_errors=True)
        return graph


@datasets.register
class CoraFull(PygDataset):
    """Citations between computer-science papers, 70 topics, binary words (Bojchevski 2018)."""

    name = "corafull"
    pyg_class, pyg_name = "CitationFull", "Cora"
    raw_files = ("cora/raw/cora.npz",)


@datasets.register
class Computers(PygDataset):
    """Amazon computer goods bought together, 10 categories (Shchur 2018)."""

    name = "computers"
    pyg_class, pyg_name = "Amazon", "Computers"
    raw_files = ("Computers/raw/amazon_electronics_computers.npz",)


@datasets.register
class Photo(PygDataset):
    """Amazon photo goods bought together, 8 categories (Shchur 2018)."""

    name = "photo"
    pyg_class, pyg_name = "Amazon", "Photo"
    raw_files = ("Photo/raw/amazon_electronics_photo.npz",)


@datasets.register
class CoauthorCS(PygDataset):
    """Computer scientists who wrote together, 15 fields (Shchur 2018)."""

    name = "coauthor-cs"
    pyg_class, pyg_name = "Coauthor", "CS"
    raw_files = ("CS/raw/ms_academic_cs.npz",)


@datasets.register
class CoauthorPhysics(PygDataset):
    """Physicists who wrote together, 5 fields (Shchur 2018)."""

    name = "coauthor-physics"
    pyg_class, pyg_name = "Coauthor", "Physics"
    raw_files = ("Physics/raw/ms_academic_phy.npz",)


@datasets.register
class Reddit(PygDataset):
    """Reddit posts that share a commenter, 41 communities (Hamilton 2017)."""

    name = "reddit"
    pyg_class = "Reddit"
    raw_files = ("raw/reddit_data.npz", "raw/reddit_graph.npz")
