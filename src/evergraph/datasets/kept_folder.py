"""Graphs that take long to make: how far that is, and the folders that they are kept in."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from evergraph.core.errors import DataError
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import GraphFolderWriter, is_graph_folder, open_graph_folder

log = logging.getLogger(__name__)


def kept_graph(folder: Path, write: Callable[[GraphFolderWriter], None]) -> Graph:
    """Return the graph of a folder, which is made if it is not there or is damaged.

    It is made in a folder of this process's own, which gets its name when it is whole: whoever is
    killed leaves nothing that is taken for a graph, and the next one clears it away.
    """
    if is_graph_folder(folder):
        try:
            return open_graph_folder(folder)
        except DataError as error:
            log.warning("%s is made again: %s", folder, error)
            shutil.rmtree(folder)
    _clear_away(folder)
    writer = GraphFolderWriter(folder.with_name(f".{folder.name}-{os.getpid()}"))
    try:
        write(writer)
        if not is_graph_folder(folder):  # else another process was faster
            shutil.rmtree(folder, ignore_errors=True)
            writer.folder.replace(folder)
    finally:
        writer.discard()
    return open_graph_folder(folder)


def _clear_away(folder: Path) -> None:
    """Remove what processes that were killed have left."""
    import psutil

    for left in folder.parent.glob(f".{folder.name}-*"):
        if not psutil.pid_exists(int(left.name.rpartition("-")[2])):
            shutil.rmtree(left, ignore_errors=True)


logger = logging.getLogger(__name__)

_EVERY = 10.0  # seconds


class Pace:
    """Says how far something is and how long it will take, every ten seconds and at its end.

    Args:
        what: is being done, such as ``papers: reading features``.

    >>> Pace("sorting edges").tell(3, 4)  # nothing yet: ten seconds are not over
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._began = self._said = time.monotonic()

    def tell(self, done: int, total: int) -> None:
        """Take note of how much of the work is done."""
        now = time.monotonic()
        if done >= total:
            logger.info("%s: 100 %%, after %.0f s", self.what, now - self._began)
        elif done and now - self._said >= _EVERY:
            self._said = now
            left = (now - self._began) * (total - done) / done
            logger.info("%s: %.0f %%, about %.0f s left", self.what, 100 * done / total, left)
