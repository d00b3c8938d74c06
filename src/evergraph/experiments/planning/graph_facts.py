"""What a plan has to know of a graph, found without reading more of it than it must."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError, UnknownNameError
from evergraph.core.mapped import map_array, page_out
from evergraph.datasets import datasets
from evergraph.datasets.base import default_cache
from evergraph.datasets.catalogue import Facts, catalogue
from evergraph.datasets.generated.twin_sketch import numpy_generator, twin_class_sizes, twin_edges
from evergraph.datasets.generated.twins import Twin
from evergraph.datasets.loading import load, looks_like_path
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import is_graph_folder, open_graph_folder

HOMOPHILY = 0.7  # share of entries within a class, where nobody tells
SPLIT = "split.json"  # of a graph that is split by rows
LOOKED_AT = 2_000  # nodes whose neighbours' classes are compared with theirs
_BLOCK = 1 << 24  # labels counted at a time


@dataclass(frozen=True)
class GraphFacts:
    """The sizes of a graph, every edge running both ways.

    Attributes:
        name: as it was asked for.
        nodes, entries, features: of the whole; an edge is two entries.
        class_sizes: nodes of every class, in the order of their numbers; others have no class.
        homophily: the share of entries that join nodes of one class.
        mapped: whether it stays in its files, from which rows are read as they are needed.
    """

    name: str
    nodes: int
    entries: int
    features: int
    class_sizes: tuple[int, ...]
    homophily: float = HOMOPHILY
    mapped: bool = True

    @property
    def labelled(self) -> int:
        """How many nodes have a class."""
        return sum(self.class_sizes)

    @property
    def adjacency_bytes(self) -> int:
        """Of neighbours, 4 bytes each, and row pointers, of 8 bytes from 2^31 entries on."""
        return adjacency_bytes(self.nodes, self.entries)

    @property
    def feature_bytes(self) -> int:
        """Of float32 features."""
        return 4 * self.nodes * self.features


def adjacency_bytes(nodes: int, entries: int) -> int:
    """Return what an adjacency takes.

    >>> adjacency_bytes(3, 4), adjacency_bytes(1, 1 << 32) - (1 << 34)
    (32, 16)
    """
    from evergraph.graphs.csr import pointer_type

    return 4 * entries + pointer_type(entries).itemsize * (nodes + 1)


def facts_by_hand(
    nodes: float, entries: float, features: int, classes: int, *, labelled: float | None = None
) -> GraphFacts:
    """Return the facts of a graph that nobody has yet, all of its classes of one size.

    >>> facts_by_hand(10, 40, 8, 3).class_sizes
    (4, 3, 3)
    """
    known = int(nodes if labelled is None else labelled)
    return GraphFacts(
        "by hand", int(nodes), int(entries), features, equal_sizes(known, classes), mapped=True
    )


def equal_sizes(total: int, count: int) -> tuple[int, ...]:
    """Share a total out into sizes that differ by one at most.

    >>> equal_sizes(7, 3)
    (3, 2, 2)
    """
    return tuple(total // count + (place < total % count) for place in range(count))


def facts_of(dataset: str, *, scale: float = 1.0) -> GraphFacts:
    """Return the facts of a dataset: a graph folder, a split one, another path, or a name.

    Of a folder, labels are counted and the neighbours of ``LOOKED_AT`` nodes looked at; everything
    else is in the headers of its files. Files that a run reads whole (.npz, .pt, tables) are read.
    Of a name, nothing is downloaded or generated.
    """
    path = Path(dataset)
    if (path / SPLIT).is_file():
        return _of_split(path)
    if is_graph_folder(path):
        return of_graph(open_graph_folder(path), str(path))
    if dataset not in datasets.names() and looks_like_path(dataset):
        return of_graph(load(path), dataset)
    if dataset not in datasets.names():
        raise UnknownNameError("dataset, and no folder, called", dataset, datasets.names())
    made = datasets.make(dataset, **({} if scale == 1.0 else {"scale": scale}))
    if isinstance(made, Twin):
        folder = made.folder(default_cache())
        known = of_graph(open_graph_folder(folder), dataset) if is_graph_folder(folder) else None
        return _of_twin(made) if known is None else known
    if dataset not in catalogue():
        raise ConfigurationError(
            f"nothing is known of dataset {dataset!r} before it is made: give its sizes by "
            "--nodes, --edges, --features and --classes"
        )
    return _of_catalogue(dataset, catalogue()[dataset])


def of_graph(graph: Graph, name: str) -> GraphFacts:
    """Return the facts of a graph, whose arrays may lie in files."""
    entries = graph.num_edges * (1 if graph.undirected else 2)
    homophily = _sampled_homophily(graph)
    sizes = _class_sizes(graph.labels)
    return GraphFacts(
        name, graph.num_nodes, entries, graph.num_features, sizes, homophily, graph.mapped
    )


def _class_sizes(labels: Tensor) -> tuple[int, ...]:
    """Count labels, a block at a time."""
    plain, sizes = labels.as_subclass(Tensor), torch.zeros(0, dtype=torch.int64)
    for block in plain.split(_BLOCK):
        counts = torch.bincount(block[block >= 0], minlength=len(sizes))
        counts[: len(sizes)] += sizes
        sizes = counts
        page_out(block)
    return tuple(sizes.tolist())


def _sampled_homophily(graph: Graph) -> float:
    """Return the share of entries within a class, of some nodes evenly spread over all."""
    step = max(graph.num_nodes // LOOKED_AT, 1)
    same = seen = 0
    for node in range(0, graph.num_nodes, step):
        label = int(graph.labels[node])
        if label >= 0:
            near = graph.labels.as_subclass(Tensor)[graph.neighbours(node).long()]
            near = near[near >= 0]
            same, seen = same + int((near == label).sum()), seen + len(near)
    return same / seen if seen else HOMOPHILY


def _of_twin(twin: Twin) -> GraphFacts:
    """Return what a twin will be like, to the sizes of its classes."""
    sizes = twin_class_sizes(twin.facts, twin.scale)
    entries = 2 * twin_edges(twin.facts, twin.scale, sizes)
    drawn = numpy_generator(twin.seed, "nodes").permutation(sizes)  # as its sketch does
    drawn = np.rint(drawn * twin.facts.share_labelled).astype(np.int64)
    homophily = twin.facts.wanted_homophily
    return GraphFacts(
        twin.name, int(sizes.sum()), entries, twin.width, tuple(drawn.tolist()), homophily
    )


def _of_catalogue(name: str, facts: Facts) -> GraphFacts:
    """Return published facts; classes are taken to be of one size."""
    listed = facts.edges if facts.kept_edges is None else facts.kept_edges
    labelled = facts.nodes if facts.labelled is None else facts.labelled
    return GraphFacts(
        name,
        facts.nodes,
        listed * (2 if facts.directed else 1),
        facts.features,
        equal_sizes(labelled, facts.classes),
        HOMOPHILY if facts.homophily is None else facts.homophily,
        mapped=datasets.resolve(name).stays_in_files,
    )


def _of_split(folder: Path) -> GraphFacts:
    """Return the facts of a split graph, classes counted in the parts that are here."""
    try:
        facts: dict[str, Any] = json.loads((folder / SPLIT).read_text("utf-8"))
        nodes, entries, features = (int(facts[key]) for key in ("nodes", "entries", "features"))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder / SPLIT}: cannot be read ({error})") from None
    entries *= 1 if facts.get("undirected") else 2
    sizes = np.zeros(0, np.int64)
    here = sorted(folder.glob("part-*/labels.npy"))
    for path in here:
        found = np.array(_class_sizes(map_array(path)), np.int64)
        wide = max(len(found), len(sizes))
        sizes = np.pad(sizes, (0, wide - len(sizes))) + np.pad(found, (0, wide - len(found)))
    if not sizes.sum():
        raise ConfigurationError(
            f"no part of {folder} that holds labels is on this machine: give the graph's sizes by "
            "--nodes, --edges, --features and --classes"
        )
    return GraphFacts(str(folder), nodes, entries, features, tuple(sizes.tolist()))
