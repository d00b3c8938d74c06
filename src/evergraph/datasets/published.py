"""Datasets that somebody else publishes: fetched once, checked, and kept in our own format."""

from __future__ import annotations

import logging
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from evergraph.datasets.base import Dataset
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
from evergraph.datasets.npz_file import read_npz, write_npz
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
        log.info("fetching dataset %s into %s", self.name, root)
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root.parent, prefix=f".{self.name}-") as folder:
                aside = Path(folder)
                graph = self._read_raw(aside, root)
                verify(aside, self.raw_files, self._pinned())
                self._move_in(aside, root)
        except OSError as error:
            raise not_fetched(self.name, self._source(), root, self.raw_files, error) from error
        return self._keep(root, graph)

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
