"""Cached folders of graphs that take long to make, and progress logging."""

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
    """Return the graph of a folder, made first if it is missing or damaged.

    It is made in a folder of this process and renamed when complete. A killed process leaves
    nothing that could be taken for a graph, and the next one removes its remains.
    """
    import psutil

    if is_graph_folder(folder):
        try:
            return open_graph_folder(folder)
        except DataError as error:
            log.warning("%s is rebuilt: %s", folder, error)
            shutil.rmtree(folder)
    for left in folder.parent.glob(f".{folder.name}-*"):  # the remains of killed processes
        if not psutil.pid_exists(int(left.name.rpartition("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    writer = GraphFolderWriter(folder.with_name(f".{folder.name}-{os.getpid()}"))
    try:
        write(writer)
        if not is_graph_folder(folder):  # else another process was faster
            shutil.rmtree(folder, ignore_errors=True)
            writer.folder.replace(folder)
    finally:
        writer.discard()
    return open_graph_folder(folder)


_EVERY = 10.0  # seconds


class Pace:
    """Logs the progress and remaining time of a task, every ten seconds and at its end.

    what: the task, such as ``papers: reading features``.

    >>> Pace("sorting edges").tell(3, 4)  # logs nothing in the first ten seconds
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._began = self._said = time.monotonic()

    def tell(self, done: int, total: int) -> None:
        """Record how much of the work is done."""
        now = time.monotonic()
        if done >= total:
            log.info("%s: 100 %%, after %.0f s", self.what, now - self._began)
        elif done and now - self._said >= _EVERY:
            self._said = now
            left = (now - self._began) * (total - done) / done
            log.info("%s: %.0f %%, about %.0f s left", self.what, 100 * done / total, left)
