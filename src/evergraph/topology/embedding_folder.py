"""Embeddings of a graph of any size, stored as the features of a graph folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError, check_choice
from evergraph.core.mapped import MappedTensor, map_array
from evergraph.core.resources import Resources
from evergraph.core.safe_files import disk_is_enough, one_at_a_time, written_aside
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import (
    FACTS,
    GraphFolderWriter,
    arrays_of,
    is_graph_folder,
    names_in,
    read_facts,
)
from evergraph.topology.base import TopologyEncoder
from evergraph.topology.column_blocks import encoded_blocks, put_columns

Nodes = Literal["all", "labelled"]
NODES: tuple[Nodes, ...] = get_args(Nodes)
OnProgress = Callable[[str, int, int], None]
EMBEDDING = "embedding"  # key in ``about`` that describes how embeddings were made
PROGRESS = "embedding.json"
JOINING = ("indptr", "indices", "weights")  # and all names that begin with "relation_"


def embed(
    graph: Graph,
    out: Path,
    *,
    topology: TopologyEncoder,
    nodes: Nodes = "all",
    name: str = "",
    resources: Resources | None = None,
    on_progress: OnProgress | None = None,
    overwrite: bool = False,
) -> bool:
    """Write a graph folder whose features are the embeddings of a graph.

    The numbers are those of ``topology.encode`` for dense features. Columns are encoded in blocks
    as wide as memory allows, shared among the workers of an engine, and each block is written
    before the next: an interrupted command continues after the last block. Complete embeddings of
    the same graph and f_topo are not computed again. Return whether anything was computed.

    Args:
        graph: the graph; if it is in files, it need not fit into memory.
        out: the folder.
        topology: an f_topo that does not mix columns.
        nodes: ``labelled`` keeps only labelled nodes, and no edges.
        name: name that identifies a graph that is in no folder.
        resources: memory that may be used, and workers.
        on_progress: called with a stage, the number of columns done, and their total.
        overwrite: whether another graph in ``out`` may be replaced.

    >>> import tempfile
    >>> from evergraph.graphs.graph_folder import open_graph_folder
    >>> from evergraph.topology import SGC
    >>> pair = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.tensor([[1.], [3.]]),
    ...                         labels=torch.tensor([0, -1]), undirected=True)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = embed(pair, Path(place, "out"), topology=SGC(hops=1), nodes="labelled")
    ...     found = open_graph_folder(Path(place, "out"))
    ...     found.features.round(decimals=4).tolist(), found.labels.tolist(), found.num_edges
    ([[2.0]], [0], 0)
    """
    check_choice("nodes", nodes, NODES)
    check_separable(topology)
    # The source and parameters of embeddings as JSON values.
    source_id = f"{name} {graph!r}" if graph.folder is None else read_facts(graph.folder)["sha256"]
    parameters = {"name": topology.name, **topology.get_params()}
    description: dict[str, Any] = {"of": source_id, "topology": parameters, "nodes": nodes}
    description = json.loads(json.dumps(description))
    if embedding_in(out) == description:
        return False
    _check_free(out, overwrite=overwrite)
    with one_at_a_time(out):
        (out / FACTS).unlink(missing_ok=True)  # from now on it is not a valid graph folder
        rows_kept = None
        if nodes == "labelled":  # with a class, or a known target
            labelled = graph.labels >= 0 if graph.targets is None else graph.targets.known.any(1)
            rows_kept = labelled.nonzero().flatten()
        columns = _columns_done(out, description, width=topology.parts * graph.num_features)
        if not columns:
            _write_progress(
                out, description, 0
            )  # first, so that an interrupted start can be repeated
            _write_other_arrays(graph, out, topology, rows_kept)
        file: MappedTensor = map_array(out / "features.npy", writable=True)
        assert file.file is not None
        report = on_progress or (lambda *_: None)
        wide = graph.num_features
        report("embed", columns, wide)
        blocks = encoded_blocks(topology, graph, file, resources or Resources(), first=columns)
        for block, part in blocks:
            put_columns(file, part if rows_kept is None else part[rows_kept], block, wide)
            os.fsync(file.file.fileno())  # before the progress is recorded
            _write_progress(out, description, block[1])
            report("embed", block[1], wide)
        report("checksum", 0, 1)
        without_edges = rows_kept is not None
        named = names_in(graph)
        if without_edges:  # without edges there are no relations to name
            named.pop("relations", None)
        GraphFolderWriter(out).finish(
            undirected=without_edges or graph.undirected,
            about={EMBEDDING: description},
            named=named,
        )
        (out / PROGRESS).unlink(missing_ok=True)
    return True


def check_separable(topology: TopologyEncoder) -> None:
    """Raise unless the columns of an f_topo's embeddings can be computed one by one."""
    if not topology.separable or topology.reads_labels:
        raise ConfigurationError(
            f"topology must be one whose columns do not mix, and {topology.name!r} is not: choose "
            "one such as sgc, s2gc, appnp, ppr or mixhop"
        )


def embedding_in(folder: Path) -> dict[str, Any] | None:
    """Return how the features of a graph folder were embedded, or None if they were not.

    None also for a path without a graph folder.
    """
    description = read_facts(folder)["about"].get(EMBEDDING) if is_graph_folder(folder) else None
    return description if description is None else dict(description)


def _check_free(out: Path, *, overwrite: bool) -> None:
    """Raise unless a folder is empty, holds unfinished embeddings, or may be replaced."""
    if not out.exists() or not any(out.iterdir()) or (out / PROGRESS).is_file():
        return
    if not is_graph_folder(out):
        raise DataError(f"{out}: is not a graph folder, so it is not replaced")
    if not overwrite:
        raise DataError(
            f"{out}: already exists and holds another graph: choose another folder, or replace "
            "it with --overwrite"
        )
    shutil.rmtree(out)


def _columns_done(out: Path, description: Mapping[str, Any], *, width: int) -> int:
    """Return the number of finished feature columns, 0 for other embeddings."""
    try:
        progress = json.loads((out / PROGRESS).read_text("utf-8"))
        if progress["made"] != description:
            return 0
        same_width = map_array(out / "features.npy").shape[1] == width
        return int(progress["columns"]) if same_width else 0
    except (OSError, ValueError, KeyError, TypeError, IndexError, DataError):
        return 0


def _write_other_arrays(
    graph: Graph, out: Path, topology: TopologyEncoder, rows_kept: Tensor | None
) -> None:
    """Write all of a graph but its features, and allocate the embeddings.

    With labelled nodes only, no edges are kept, since the embeddings include their effect.
    """
    writer = GraphFolderWriter(out)
    arrays = arrays_of(graph)
    del arrays["features"]
    if rows_kept is not None:
        node_arrays = {n: a for n, a in arrays.items() if not n.startswith(("relation_", *JOINING))}
        arrays = {name: array[rows_kept] for name, array in node_arrays.items()} | {
            "indptr": torch.zeros(len(rows_kept) + 1, dtype=torch.int32),
            "indices": torch.zeros(0, dtype=torch.int32),
        }
    for name, array in arrays.items():
        writer.copy(name, array)
    shape = (len(arrays["labels"]), topology.parts * graph.num_features)
    writer.create("features", shape, torch.float32)


def _write_progress(out: Path, description: Mapping[str, Any], columns: int) -> None:
    with disk_is_enough(out), written_aside(out / PROGRESS) as file:
        file.write(json.dumps({"made": description, "columns": columns}).encode())
