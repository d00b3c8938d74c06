"""OGB's binary raw files, of graphs too large for its CSV reader, into a graph folder.

``data.npz`` has edge_index [2, edges], node_feat [nodes, width], node_year [nodes, 1] where there
are years, num_nodes_list and num_edges_list, each of one number; ``node-label.npz`` has node_label
[nodes, 1], NaN where a node has no class.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.errors import DataError
from evergraph.core.mapped import put
from evergraph.datasets.files.npz_stream import StreamedArray, array_names
from evergraph.datasets.importing.pace import Pace
from evergraph.datasets.importing.sorter import EdgeSorter
from evergraph.graphs import UNLABELLED
from evergraph.graphs.graph_folder import GraphFolderWriter

DATA, LABELS = "data.npz", "node-label.npz"
SORT_MEMORY = 10**9
_VALUES = 1 << 22  # at a time
OF_NODES = ("features", "labels", "time")  # the same whichever way edges run


def write_binary_raw(
    raw: Path, writer: GraphFolderWriter, *, undirected: bool, like: Path | None = None
) -> None:
    """Write the graph of OGB's raw files, in about 1.5 GB of memory at any size.

    undirected: whether every edge is to run both ways. like: a folder that has the same nodes
    already, whose arrays are shared with it.
    """
    nodes, edges = (_only_number(raw, f"num_{kind}_list") for kind in ("nodes", "edges"))
    if like is None:
        _write_labels(raw, writer, nodes)
        _write_years(raw, writer, nodes)
        _write_features(raw, writer, nodes)
    else:
        _share(like, writer.folder)
    _write_edges(raw, writer, nodes, edges, undirected=undirected)
    writer.finish(undirected=undirected, about={"listed_edges": edges})


def _only_number(raw: Path, name: str) -> int:
    found = next(StreamedArray(raw / DATA, name).values(2))
    if len(found) != 1:
        raise DataError(f"{raw / DATA}: holds {len(found)} graphs or more: expected one")
    return int(found[0])


def _write_labels(raw: Path, writer: GraphFolderWriter, nodes: int) -> None:
    given = _of_nodes(StreamedArray(raw / LABELS, "node_label"), nodes)
    labels, done = writer.create("labels", (nodes,), torch.int64), 0
    for values in given.values(_VALUES):
        put(labels, done, torch.from_numpy(_classes(values, done, raw / LABELS)))
        done += len(values)


def _classes(values: NDArray[Any], before: int, path: Path) -> NDArray[np.int64]:
    """Return classes, ``UNLABELLED`` where there is NaN."""
    known = values == values
    classes = np.where(known, values, UNLABELLED).astype(np.int64)
    wrong = known & ((classes != values) | (classes < 0))
    if wrong.any():
        place = int(wrong.argmax())
        raise DataError(
            f"{path}: node {before + place} has the label {values[place]}: expected a whole number "
            "of at least 0, or NaN"
        )
    return classes


def _write_years(raw: Path, writer: GraphFolderWriter, nodes: int) -> None:
    if "node_year" not in array_names(raw / DATA):
        return
    given = _of_nodes(StreamedArray(raw / DATA, "node_year"), nodes)
    years, done = writer.create("time", (nodes,), torch.int64), 0
    for values in given.values(_VALUES):
        put(years, done, torch.from_numpy(values.astype(np.int64)))
        done += len(values)


def _write_features(raw: Path, writer: GraphFolderWriter, nodes: int) -> None:
    given = _of_nodes(StreamedArray(raw / DATA, "node_feat"), nodes)
    width = given.size // max(nodes, 1)
    features = writer.create("features", (nodes, width), torch.float32)
    pace, done = Pace("reading features"), 0
    for rows in given.rows(max(1, _VALUES // max(width, 1))):
        if not np.isfinite(rows).all():
            node = done + int(np.isfinite(rows).all(axis=1).argmin())
            raise DataError(f"{given.archive}: a feature of node {node} is no finite number")
        put(features, done, torch.from_numpy(rows.astype(np.float32, copy=False)))
        done += len(rows)
        pace.tell(done, nodes)


def _of_nodes(array: StreamedArray, nodes: int) -> StreamedArray:
    if not array.shape or array.shape[0] != nodes:
        raise DataError(
            f"{array.archive}: array {array.name!r} is of shape {list(array.shape)}: expected a "
            f"row for each of {nodes:,} nodes"
        )
    return array


def _write_edges(
    raw: Path, writer: GraphFolderWriter, nodes: int, edges: int, *, undirected: bool
) -> None:
    given = StreamedArray(raw / DATA, "edge_index")
    if given.shape != (2, edges):
        raise DataError(
            f"{given.archive}: array 'edge_index' is of shape {list(given.shape)}: expected "
            f"{[2, edges]}"
        )
    aside = writer.folder / "runs"
    sorter = EdgeSorter(aside, nodes=nodes, undirected=undirected, memory=SORT_MEMORY)
    reading, done = Pace("reading edges"), 0
    for sources, targets in given.pairs(_VALUES):
        sorter.add(sources, targets)
        done += len(sources)
        reading.tell(done, edges)
    sorting = Pace("sorting edges")
    sorter.finish(writer, on_range=lambda each: sorting.tell(each.seen, sorter.pairs))
    shutil.rmtree(aside)


def _share(like: Path, folder: Path) -> None:
    """Let a folder have the arrays of nodes that another one has, once on disk if that can be."""
    for path in (like / f"{name}.npy" for name in OF_NODES):
        if path.exists():
            try:
                os.link(path, folder / path.name)
            except OSError:  # a file system without links
                shutil.copyfile(path, folder / path.name)
