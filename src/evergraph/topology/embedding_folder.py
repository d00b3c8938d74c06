"""Embeddings of a graph of any size, kept as a graph folder whose features they are."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.file_lock import one_at_a_time
from evergraph.core.mapped import MappedTensor, disk_is_enough, map_array
from evergraph.core.resources import Resources
from evergraph.core.written_aside import written_aside
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
EMBEDDING = "embedding"  # what ``about`` says of embeddings: how they were made
PROGRESS = "embedding.json"
JOINING = ("indptr", "indices", "weights")  # and all that begins with "relation_"


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
    """Write the embeddings of a graph as a graph folder, whose features they are.

    The numbers are those that ``topology.encode`` gives for dense features. Columns are encoded in
    blocks as wide as memory allows, shared among the workers of an engine, and each is written
    before the next is taken: a command that was killed goes on after the last block. What an
    earlier call has written, of the same graph and f_topo, is not computed again; return whether
    anything was.

    Args:
        graph: the graph; in files, it need not fit into memory.
        out: the folder.
        topology: an f_topo whose columns do not mix.
        nodes: ``labelled`` keeps nodes that have labels, and no edges.
        name: of the graph, by which one that is in no folder is known again.
        resources: how much memory may be taken, and who does the work.
        on_progress: called with a stage, how many columns are done, and of how many.
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
    made = _made(graph, topology, nodes, name)
    if embedding_in(out) == made:
        return False
    _check_free(out, overwrite=overwrite)
    with one_at_a_time(out):
        (out / FACTS).unlink(missing_ok=True)  # from now on it is no graph
        kept = has_labels(graph).nonzero().flatten() if nodes == "labelled" else None
        columns = _columns_done(out, made, width=topology.parts * graph.num_features)
        if not columns:
            _note(out, made, 0)  # first: what is begun may be begun again
            _lay_out(graph, out, topology, kept)
        _fill(graph, out, topology, made, kept, columns, resources or Resources(), on_progress)
        _finish(graph, out, made, bare=kept is not None)
    return True


def check_separable(topology: TopologyEncoder) -> None:
    """Raise unless the columns of an f_topo's embeddings can be computed one by one."""
    if not topology.separable or topology.reads_labels:
        raise ConfigurationError(
            f"topology must be one whose columns do not mix, and {topology.name!r} is not: choose "
            "one such as sgc, s2gc, appnp, ppr or mixhop"
        )


def embedding_in(folder: Path) -> dict[str, Any] | None:
    """Return of what and how the features of a graph in a folder were embedded, None if not.

    A path that holds no graph folder holds no embeddings.
    """
    found = read_facts(folder)["about"].get(EMBEDDING) if is_graph_folder(folder) else None
    return found if found is None else dict(found)


def has_labels(graph: Graph) -> Tensor:
    """Return which nodes have a class, or a target that is known.  bool [nodes]"""
    return graph.labels >= 0 if graph.targets is None else graph.targets.known.any(1)


def _made(graph: Graph, topology: TopologyEncoder, nodes: Nodes, name: str) -> dict[str, Any]:
    """Return of what and how embeddings are made, as JSON gives it back."""
    folder = graph.folder
    known_by = f"{name} {graph!r}" if folder is None else read_facts(folder)["sha256"]
    told = {"name": topology.name, **topology.get_params()}
    made: dict[str, Any] = {"of": known_by, "topology": told, "nodes": nodes}
    found: dict[str, Any] = json.loads(json.dumps(made))
    return found


def _check_free(out: Path, *, overwrite: bool) -> None:
    """Raise unless a folder is empty, holds embeddings half done, or may be replaced."""
    if not out.exists() or not any(out.iterdir()) or (out / PROGRESS).is_file():
        return
    if not is_graph_folder(out):
        raise DataError(f"{out}: is no graph folder, so it is not replaced")
    if not overwrite:
        raise DataError(
            f"{out}: is there already and holds another graph: choose another folder, or replace "
            "it with --overwrite"
        )
    shutil.rmtree(out)


def _columns_done(out: Path, made: Mapping[str, Any], *, width: int) -> int:
    """Return how many columns of the features are through, 0 if these were not begun here."""
    try:
        found = json.loads((out / PROGRESS).read_text("utf-8"))
        begun = found["made"] == made and map_array(out / "features.npy").shape[1] == width
        return int(found["columns"]) if begun else 0
    except (OSError, ValueError, KeyError, TypeError, IndexError, DataError):
        return 0


def _lay_out(graph: Graph, out: Path, topology: TopologyEncoder, kept: Tensor | None) -> None:
    """Write all of a graph but its features, and make room for embeddings.

    Of labelled nodes alone no edges are kept: what they say is in the embeddings.
    """
    writer, arrays = GraphFolderWriter(out), arrays_of(graph)
    del arrays["features"]
    if kept is not None:
        of_nodes = {n: a for n, a in arrays.items() if not n.startswith(("relation_", *JOINING))}
        arrays = {name: array[kept] for name, array in of_nodes.items()} | {
            "indptr": torch.zeros(len(kept) + 1, dtype=torch.int32),
            "indices": torch.zeros(0, dtype=torch.int32),
        }
    for name, array in arrays.items():
        writer.copy(name, array)
    shape = (len(arrays["labels"]), topology.parts * graph.num_features)
    writer.create("features", shape, torch.float32)


def _fill(
    graph: Graph,
    out: Path,
    topology: TopologyEncoder,
    made: Mapping[str, Any],
    kept: Tensor | None,
    first: int,
    resources: Resources,
    on_progress: OnProgress | None,
) -> None:
    """Compute and write the columns that are left."""
    file: MappedTensor = map_array(out / "features.npy", writable=True)
    wide = graph.num_features
    tell = on_progress or (lambda *_: None)
    tell("embed", first, wide)
    for columns, part in encoded_blocks(topology, graph, file, resources, first=first):
        put_columns(file, part if kept is None else part[kept], columns, wide)
        assert file.file is not None
        os.fsync(file.file.fileno())  # before it is noted that they are written
        _note(out, made, columns[1])
        tell("embed", columns[1], wide)
    tell("checksum", 0, 1)


def _note(out: Path, made: Mapping[str, Any], columns: int) -> None:
    """Keep how many columns of the features are through."""
    with disk_is_enough(out), written_aside(out / PROGRESS) as file:
        file.write(json.dumps({"made": made, "columns": columns}).encode())


def _finish(graph: Graph, out: Path, made: Mapping[str, Any], *, bare: bool) -> None:
    """Declare what is written a graph; without edges there are no relations to name."""
    named = {n: value for n, value in names_in(graph).items() if not (bare and n == "relations")}
    GraphFolderWriter(out).finish(
        undirected=bare or graph.undirected, about={EMBEDDING: made}, named=named
    )
    (out / PROGRESS).unlink(missing_ok=True)
