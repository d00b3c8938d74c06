"""The graph record used throughout the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from evergraph.core.component import Shown
from evergraph.core.errors import DataError
from evergraph.core.mapped import in_memory, is_mapped
from evergraph.core.resources import Resources
from evergraph.graphs.csr import (
    RowSweep,
    adjacency_of,
    as_features,
    build_csr,
    induced_adjacency,
    repeat,
    take_rows,
)
from evergraph.graphs.pyg import read_pyg, write_data, write_hetero
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.targets import Masks, Targets, labels_beside
from evergraph.graphs.validation import (
    UNLABELLED,
    check_count,
    check_edges,
    check_labels,
    check_whole,
    checked_weights,
    combined,
    say_repeated,
)

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData


@dataclass(frozen=True, eq=False, repr=False)
class Graph(Shown):
    """A graph in CSR form: nodes with features and labels, and their neighbours.

    The adjacency is CSR with int32 indices: row ``v`` lists the nodes whose features flow into
    ``v``, so an edge of PyG's ``edge_index`` (source, target) is stored in row ``target``.

    Attributes:
        indptr: start of each row; 64 bits from 2^31 entries on.  [nodes + 1]
        indices: int32 [edges], the neighbours, ascending within a row, without duplicates.
        features: float32 [nodes, dims], dense or ``torch.sparse_csr``.
        labels: int64 [nodes], ``UNLABELLED`` (-1) if the class is not known.
        time: optional int64 [nodes], when each node appeared.
        undirected: whether every edge is known to go both ways.
        folder: the graph folder from which it was opened, if any.
        bare: the same graph without labels, if this one was made from it by ``showing`` some.
        weights: optional float32 [edges], of each adjacency entry, above 0; all 1 by default.
        relations: optional, all edges again, each with its relation.
        types: optional, the type of each node.
        targets: several labels or numbers per node, which then have no class.
        masks: optional, published training, validation and test nodes, see ``Masks``.
        class_names: names of the labels, by number, if they were strings; else empty.
        columns: the ``Scheme`` by which its table, and later ones, are read; None for arrays.

    >>> graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3),
    ...                          labels=torch.tensor([0, 0, 1]), undirected=True)
    >>> graph
    Graph(nodes=3, edges=4, features=3, classes=2)
    """

    indptr: Tensor
    indices: Tensor
    features: Tensor
    labels: Tensor
    time: Tensor | None = None
    undirected: bool = False
    folder: Path | None = None
    bare: Graph | None = field(default=None, repr=False)
    weights: Tensor | None = None
    relations: Relations | None = None
    types: NodeTypes | None = None
    targets: Targets | None = None
    masks: Masks | None = None
    columns: Any = field(default=None, repr=False)
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        nodes = self.num_nodes
        check_count(nodes)
        assert self.indptr.dtype in (torch.int32, torch.int64)
        assert self.indices.dtype == torch.int32
        for name, rows in (
            ("features", self.features.shape[0]),
            ("relations", None if self.relations is None else self.relations.num_nodes),
            ("types", None if self.types is None else len(self.types.numbers)),
            ("targets", None if self.targets is None else len(self.targets)),
            ("masks", None if self.masks is None else len(self.masks)),
        ):
            if rows is not None and rows != nodes:
                raise DataError(f"{name} have {rows} rows, but the graph has {nodes} nodes")
        for name, array in (("labels have", self.labels), ("time has", self.time)):
            if array is not None and array.shape != (nodes,):
                message = f"{name} shape {tuple(array.shape)}, but the graph has {nodes} nodes"
                raise DataError(message)
        if self.weights is not None and self.weights.shape != self.indices.shape:
            raise DataError(
                f"weights have shape {tuple(self.weights.shape)}, but the graph has "
                f"{self.num_edges} edges"
            )

    def _repr_facts(self) -> dict[str, int]:
        facts = {"nodes": self.num_nodes, "edges": self.num_edges, "features": self.num_features}
        if self.targets is not None:
            return facts | {self.targets.kind: len(self.targets.names)}
        return facts | {"classes": self.num_classes}

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Number of directed adjacency entries."""
        return self.indices.numel()

    @property
    def num_features(self) -> int:
        """Width of the features."""
        return self.features.shape[1]

    @property
    def num_classes(self) -> int:
        """One more than the largest label."""
        return int(self.labels.max()) + 1 if self.num_nodes else 0

    @property
    def degrees(self) -> Tensor:
        """Number of in-neighbours of each node.  int64 [nodes]"""
        return self.indptr.diff().long()

    @property
    def entry_bytes(self) -> int:
        """Bytes of the adjacency entries, weights included."""
        return self.indices.nbytes + (0 if self.weights is None else self.weights.nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes of adjacency and features."""
        features = self.features
        stored = features.nbytes if features.layout == torch.strided else 8 * features._nnz()
        related = 0 if self.relations is None else self.relations.nbytes
        return self.indptr.nbytes + self.entry_bytes + stored + related

    @property
    def mapped(self) -> bool:
        """Whether the adjacency is in files, so that its pages may leave memory after use."""
        return is_mapped(self.indices)

    @property
    def sweep(self) -> RowSweep:
        """The rows of the adjacency, processed in blocks."""
        return RowSweep(self.indptr, self.indices, self.mapped)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.indices.device

    def neighbours(self, node: int) -> Tensor:
        """Return the nodes whose features flow into ``node``.  int32 [degree]"""
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def edge_rows(self) -> Tensor:
        """Return the row (target) of every adjacency entry.  int64 [edges]"""
        return repeat(torch.arange(self.num_nodes, device=self.device), self.degrees)

    def edge_index(self) -> Tensor:
        """Return source and target of every adjacency entry, as PyG has them.  int64 [2, edges]"""
        return torch.stack([self.indices.long(), self.edge_rows()])

    def subgraph(
        self,
        nodes: Tensor,
        *,
        keep: Tensor | None = None,
        groups: Tensor | None = None,
        resources: Resources | None = None,
    ) -> Graph:
        """Return the graph induced by ``nodes``, without duplicates, renumbered in that order.

        keep: optional bool [edges]; entries with False are dropped as well. groups: optional
        [nodes]; entries between different groups are dropped. resources: a subgraph too large
        for memory is kept in files.
        """
        nodes = nodes.to(self.device)
        indptr, indices, weights = induced_adjacency(
            self.indptr,
            self.indices,
            nodes,
            weights=self.weights,
            keep=keep,
            groups=groups,
            resources=resources,
        )
        records: dict[str, Any] = {}
        for name in ("types", "targets", "masks"):
            if (record := getattr(self, name)) is not None:
                records[name] = record.each(lambda rows: rows[nodes.to(rows.device)])
        if (related := self.relations) is not None:
            related = related.subgraph(nodes.to(related.device))
            records["relations"] = related.within(indptr, indices)
        return Graph(
            indptr,
            indices,
            take_rows(self.features, nodes, resources=resources),
            self.labels[nodes],
            None if self.time is None else self.time[nodes],
            self.undirected and keep is None,
            weights=weights,
            columns=self.columns,
            class_names=self.class_names,
            **records,
        )

    def with_labels(self, labels: Tensor) -> Graph:
        """Return the same graph with other labels."""
        return replace(self, labels=labels, bare=None, class_names=())

    def with_features(self, features: Tensor) -> Graph:
        """Return the same graph with other features."""
        return replace(self, features=features, bare=None, columns=None)

    @property
    def structure(self) -> Graph:
        """The graph without the labels shown by ``showing``, else itself.

        What does not depend on labels is cached for it, for all graphs that differ in labels alone.
        """
        return self if self.bare is None else self.bare

    def without_labels(self) -> Graph:
        """Return the same graph with every label and every target hidden, and without masks."""
        if self.bare is not None:
            return self.bare
        nothing = torch.full_like(self.labels[:1], UNLABELLED)
        # One shared value if the graph is in files, and may have too many nodes for memory.
        hidden = nothing.expand(self.num_nodes) if self.mapped else nothing.repeat(self.num_nodes)
        return replace(self, labels=hidden, bare=None, targets=None, masks=None)

    def showing(self, labels: Tensor) -> Graph:
        """Return this graph with some labels shown, -1 if hidden.  int64 [nodes]"""
        return replace(self, labels=labels.to(self.labels.device), bare=self)

    def to(self, device: torch.device | str) -> Graph:
        """Return the graph on another device (itself if it is already there)."""
        if self.device.type == torch.device(device).type:
            return self
        return self._each(lambda array: array.to(device))

    def in_memory(self) -> Graph:
        """Return the graph with its arrays in memory."""
        return self._each(in_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Graph:
        """Return the graph with every array changed; it then belongs to no folder."""
        arrays = ("indptr", "indices", "features", "labels", "time", "weights")
        changed: dict[str, Any] = {name: getattr(self, name) for name in arrays}
        changed = {n: change(array) for n, array in changed.items() if array is not None}
        for name in ("relations", "types", "targets", "masks"):
            if (part := getattr(self, name)) is not None:
                changed[name] = part.each(change)
        return replace(self, **changed, folder=None, bare=None)

    def to_undirected(self) -> Graph:
        """Return the graph with every edge both ways, of one weight (itself if known to be so)."""
        if self.undirected:
            return self
        ends = self.edge_index()
        doubled_weights = None if self.weights is None else self.weights.repeat(2)
        # New directions first: an edge that exists both ways keeps the weight of each direction.
        columns, rows = ends.flatten(), ends.flip(0).flatten()
        csr = build_csr(columns, rows, doubled_weights, self.num_nodes)
        arrays: dict[str, Any] = dict(zip(("indptr", "indices", "weights"), csr, strict=True))
        return replace(self, **arrays, undirected=True, folder=None, bare=None)

    def with_relations(self, relations: Relations | None) -> Graph:
        """Return the same graph with other relations, or none."""
        return replace(self, relations=relations, bare=None)

    def with_types(self, types: NodeTypes | None) -> Graph:
        """Return the same graph with other types of nodes, or none."""
        return replace(self, types=types, bare=None)

    def with_directions(self) -> Graph:
        """Return the graph with the direction of its edges kept as a relation, ``edge``.

        Nothing is added if every edge goes both ways, or to relations, which have directions.

        >>> chain = Graph.from_edges(torch.tensor([[0], [1]]), features=torch.eye(2),
        ...                          labels=torch.tensor([0, 0]))
        >>> chain.with_directions().to_undirected().relations.kinds
        tensor([1, 0], dtype=torch.int16)
        """
        if self.undirected or self.relations is not None:
            return self
        return self.with_relations(self._as_relation())

    @classmethod
    def from_edges(  # noqa: PLR0913
        cls,
        edge_index: Tensor,
        *,
        features: Tensor,
        labels: Tensor | None = None,
        time: Tensor | None = None,
        undirected: bool = False,
        weights: Tensor | None = None,
        targets: Targets | None = None,
        masks: Masks | None = None,
        repeated: str | None = None,
        where: object = "edges",
    ) -> Graph:
        """Build a graph from (source, target) pairs; duplicates and self-loops are dropped.

        The last weight of a duplicate edge counts, and an edge of weight 0 is dropped; if
        undirected, (u, v) and (v, u) are the same edge.

        edge_index: integer [2, edges]; features: [nodes, dims]; labels: integer [nodes]; time:
        integer [nodes]; weights: non-negative numbers [edges], 1 by default; targets: instead of
        labels, see ``Targets``; masks: published splits; repeated: what becomes of duplicates, see
        ``evergraph.graphs.validation``, said with ``where`` they are from; silently ``last`` if None.

        >>> graph = Graph.from_edges(torch.tensor([[0, 1, 1], [1, 0, 2]]), features=torch.eye(3),
        ...                          labels=torch.tensor([0, 0, 1]), undirected=True,
        ...                          weights=torch.tensor([1.0, 0.5, 2.0]))
        >>> graph.indices.tolist(), graph.weights.tolist()  # of nodes 0, 1 and 2
        ([1, 0, 2, 1], [0.5, 0.5, 2.0, 2.0])
        """
        labels = labels_beside(targets, labels)
        nodes = labels.numel()
        check_labels(labels)
        check_edges(edge_index, nodes)
        if time is not None:
            check_whole("time", time)
            time = time.long()
        features = as_features(features, nodes)
        if weights is not None:
            weights = checked_weights("weight", weights, edge_index.shape[1])
        if repeated is not None:
            edges = combined(edge_index, weights, repeated=repeated)
            say_repeated(where, edges.repeats, edge_index.shape[1], repeated)
            edge_index = edge_index[:, edges.rows]
            weights = edges.checked_weights()
        indptr, indices, weights = adjacency_of(edge_index, weights, nodes, undirected=undirected)
        records: dict[str, Any] = {"weights": weights, "targets": targets, "masks": masks}
        return cls(indptr, indices, features, labels.long(), time, undirected, **records)

    @classmethod
    def from_data(
        cls,
        data: Data | HeteroData,
        *,
        target: str | None = None,
        undirected: bool = False,
        repeated: str | None = None,
    ) -> Graph:
        """Build a graph from ``torch_geometric.data.Data`` or ``HeteroData``.

        Of ``Data``, ``x``, ``edge_index`` and ``y`` are read; ``y`` of shape [nodes, targets], or
        of floating-point numbers, becomes ``targets``. So are, if present, ``time`` or OGB's
        ``node_year``, ``edge_weight`` or else an ``edge_attr`` of one column, and ``train_mask``,
        ``val_mask`` and ``test_mask``. Other attributes are not used, and a warning is logged.

        A ``HeteroData`` becomes a graph with relations and types (see ``read_hetero``); ``target``
        is the node type to classify, by default the one with a ``y``. repeated: as in
        ``from_edges``; edges of different relations are different edges.
        """
        arrays, records = read_pyg(data, target=target, repeated=repeated)
        return replace(cls.from_edges(**arrays, undirected=undirected), **records)

    def to_data(self) -> Data:
        """Return the graph as ``torch_geometric.data.Data``."""
        y = self.labels if self.targets is None else self.targets.values
        beside: dict[str, Any] = {"time": self.time, "weights": self.weights, "masks": self.masks}
        return write_data(self.features, self.edge_index(), y, **beside)

    def to_hetero(self) -> HeteroData:
        """Return the graph as ``HeteroData``; without relations there is one, ``edge``."""
        relations = self._as_relation() if self.relations is None else self.relations
        return write_hetero(self.features, self.labels, self.types, relations)

    def _as_relation(self) -> Relations:
        """Return all edges as one relation, ``edge``."""
        ends = self.edge_index()
        relation = torch.zeros_like(ends[0])
        return Relations.of(ends, relation, ("edge",), nodes=self.num_nodes, weights=self.weights)
