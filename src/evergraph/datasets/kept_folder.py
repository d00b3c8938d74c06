"""Graphs that are made once and then kept as folders."""

from __future__ import annotations

import logging
import os
import shutil
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
