"""The graph record that everything else reads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import DataError

if TYPE_CHECKING:
    from torch_geometric.data import Data

UNLABELLED = -1
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes with features and labels, and the neighbours each node gathers from.

    The adjacency is CSR with int32 indices: row ``v`` lists the nodes whose features flow into
    ``v``, so an edge of PyG's ``edge_index`` (source, target) is stored in row ``target``.

    Attributes:
        indptr: int32 [nodes + 1], where each row begins.
        indices: int32 [edges], the neighbours, ascending within a row, none twice.
        features: float32 [nodes, dims], dense or ``torch.sparse_csr``.
        labels: int64 [nodes], ``UNLABELLED`` (-1) where the class is not known.
        time: optional int64 [nodes], when each node appeared.

    >>> graph = Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), features=torch.eye(3),
    ...                          labels=torch.tensor([0, 0, 1]), undirected=True)
    >>> graph
    Graph(nodes=3, edges=4, features=3, classes=2)
    >>> graph.neighbours(1)
    tensor([0, 2], dtype=torch.int32)
    """

    indptr: Tensor
    indices: Tensor
    features: Tensor
    labels: Tensor
    time: Tensor | None = None

    def __post_init__(self) -> None:
        nodes = self.num_nodes
        assert self.indptr.dtype == self.indices.dtype == torch.int32
        if self.features.shape[0] != nodes:
            raise DataError(
                f"features have {self.features.shape[0]} rows, but the graph has {nodes} nodes"
            )
        if self.labels.shape != (nodes,):
            raise DataError(
                f"labels have shape {tuple(self.labels.shape)}, but the graph has {nodes} nodes"
            )
        if self.time is not None and self.time.shape != (nodes,):
            raise DataError(
                f"time has shape {tuple(self.time.shape)}, but the graph has {nodes} nodes"
            )

    def __repr__(self) -> str:
        return (
            f"Graph(nodes={self.num_nodes}, edges={self.num_edges}, "
            f"features={self.num_features}, classes={self.num_classes})"
        )

    @property
    def num_nodes(self) -> int:
        """How many nodes."""
        return self.indptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """How many directed entries the adjacency holds."""
        return self.indices.numel()

    @property
    def num_features(self) -> int:
        """How wide the features are."""
        return self.features.shape[1]

    @property
    def num_classes(self) -> int:
        """One more than the largest label."""
        return int(self.labels.max()) + 1 if self.num_nodes else 0

    @property
    def degrees(self) -> Tensor:
        """How many neighbours each node gathers from.  int64 [nodes]"""
        return self.indptr.diff().long()

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.indices.device

    def neighbours(self, node: int) -> Tensor:
        """Return the nodes whose features flow into ``node``.  int32 [degree]"""
        return self.indices[self.indptr[node] : self.indptr[node + 1]]

    def edge_rows(self) -> Tensor:
        """Return the row (target) of every adjacency entry.  int64 [edges]"""
        return repeat(torch.arange(self.num_nodes, device=self.device), self.degrees)

    def subgraph(self, nodes: Tensor, *, keep: Tensor | None = None) -> Graph:
        """Return the graph induced by ``nodes``, each given once, renumbered in that order.

        keep: optional bool [edges]; entries where it is False are dropped as well.
        """
        nodes = nodes.to(self.device)
        position = torch.full((self.num_nodes,), -1, dtype=torch.int32, device=self.device)
        position[nodes] = torch.arange(len(nodes), dtype=torch.int32, device=self.device)
        rows, entries = row_entries(self.indptr, nodes)  # only the rows wanted are looked at
        columns = position.index_select(0, self.indices.index_select(0, entries))
        inside = columns >= 0
        if keep is not None:
            inside &= keep[entries]
        rows, columns = rows[inside], columns[inside]
        if bool((nodes.diff() > 0).all()):  # columns keep their order: no sort needed
            indptr, indices = row_pointers(rows, len(nodes)), columns
        else:
            indptr, indices = build_csr(rows, columns.long(), len(nodes))
        return Graph(
            indptr,
            indices,
            take_rows(self.features, nodes),
            self.labels[nodes],
            None if self.time is None else self.time[nodes],
        )

    def with_labels(self, labels: Tensor) -> Graph:
        """Return the same graph with other labels."""
        return replace(self, labels=labels)

    def with_features(self, features: Tensor) -> Graph:
        """Return the same graph with other features."""
        return replace(self, features=features)

    def without_labels(self) -> Graph:
        """Return the same graph with every label hidden."""
        return self.with_labels(torch.full_like(self.labels, UNLABELLED))

    def to(self, device: torch.device | str) -> Graph:
        """Return the graph on another device (itself if it is there already)."""
        if self.device.type == torch.device(device).type:
            return self
        moved = (t if t is None else t.to(device) for t in self._tensors())
        return Graph(*moved)  # type: ignore[arg-type]

    def _tensors(self) -> tuple[Tensor | None, ...]:
        return self.indptr, self.indices, self.features, self.labels, self.time

    def to_undirected(self) -> Graph:
        """Return the graph in which every edge runs both ways."""
        rows, columns = self.edge_rows(), self.indices.long()
        indptr, indices = build_csr(
            torch.cat([rows, columns]), torch.cat([columns, rows]), self.num_nodes
        )
        return replace(self, indptr=indptr, indices=indices)

    @classmethod
    def from_edges(
        cls,
        edge_index: Tensor,
        *,
        features: Tensor,
        labels: Tensor,
        time: Tensor | None = None,
        undirected: bool = False,
    ) -> Graph:
        """Build a graph from (source, target) pairs; doubles and self-loops are dropped.

        edge_index: integer [2, edges]; features: [nodes, dims]; labels: integer [nodes].
        Self-loops are the normalisation's business: it adds exactly one where it is asked to.
        """
        nodes = labels.numel()
        check_labels(labels)
        check_edges(edge_index, nodes)
        if features.layout not in (torch.strided, torch.sparse_csr):
            features = as_csr(features)
        features = features.float() if features.dtype != torch.float32 else features
        check_features(features, nodes)
        sources, targets = edge_index[0].long(), edge_index[1].long()
        distinct = sources != targets
        sources, targets = sources[distinct], targets[distinct]
        if undirected:
            sources, targets = torch.cat([sources, targets]), torch.cat([targets, sources])
        indptr, indices = build_csr(targets, sources, nodes)
        return cls(indptr, indices, features, labels.long(), None if time is None else time.long())

    @classmethod
    def from_data(cls, data: Data, *, undirected: bool = False) -> Graph:
        """Build a graph from ``torch_geometric.data.Data`` (``x``, ``edge_index``, ``y``)."""
        edge_index, x, y = data.edge_index, data.x, data.y
        for name, value in (("edge_index", edge_index), ("x", x), ("y", y)):
            if value is None:
                raise DataError(f"the Data object has no '{name}': x, edge_index and y are needed")
        time: Any = data.get("time", data.get("node_year"))
        return cls.from_edges(
            edge_index,
            features=x,
            labels=y.reshape(-1),
            time=None if time is None else time.reshape(-1),
            undirected=undirected,
        )

    def to_data(self) -> Data:
        """Return the graph as ``torch_geometric.data.Data``."""
        from torch_geometric.data import Data

        data = Data(
            x=self.features,
            edge_index=torch.stack([self.indices.long(), self.edge_rows()]),
            y=self.labels,
        )
        if self.time is not None:
            data.time = self.time
        return data


def build_csr(rows: Tensor, columns: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Sort pairs into CSR, each pair once.  [edges], [edges] -> int32 [nodes + 1], int32 [edges]"""
    keys = torch.unique(rows * nodes + columns)
    if keys.numel() > _INT32_MAX:
        raise DataError(f"the graph has {keys.numel()} edges: at most {_INT32_MAX} are supported")
    return row_pointers(keys // max(nodes, 1), nodes), (keys % max(nodes, 1)).int()


def row_pointers(rows: Tensor, nodes: int) -> Tensor:
    """Return where each row begins, given the row of every entry.  [edges] -> int32 [nodes + 1]"""
    indptr = torch.zeros(nodes + 1, dtype=torch.int32, device=rows.device)
    indptr[1:] = torch.bincount(rows, minlength=nodes).cumsum(0)
    return indptr


@contextmanager
def quietly_sparse() -> Iterator[None]:
    """Keep torch from telling our users that its CSR tensors are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        yield


def as_csr(matrix: Tensor) -> Tensor:
    """Return a matrix as float32 ``torch.sparse_csr`` with int32 indices."""
    with quietly_sparse():
        csr = matrix if matrix.layout == torch.sparse_csr else matrix.to_sparse_csr()
    return csr_tensor(
        csr.crow_indices().int(), csr.col_indices().int(), csr.values().float(), tuple(csr.shape)
    )


def csr_tensor(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Assemble a ``torch.sparse_csr`` matrix from parts already known to be sound."""
    with quietly_sparse():
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape, check_invariants=False)


def take_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return the given rows of a dense or CSR matrix.  [n, d], [m] -> [m, d]"""
    if matrix.layout == torch.strided:
        return matrix[rows]
    owners, entries = row_entries(matrix.crow_indices(), rows)
    return csr_tensor(
        row_pointers(owners, len(rows)),
        matrix.col_indices()[entries],
        matrix.values()[entries],
        (len(rows), matrix.shape[1]),
    )


def row_entries(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for every entry of some rows of a CSR matrix, which of the rows and where it lies.

    indptr: [n + 1]; rows: [m]; -> int64 [entries], int64 [entries]
    """
    starts = indptr[rows].long()
    lengths = indptr[rows + 1].long() - starts
    owners = repeat(torch.arange(len(rows), device=rows.device), lengths)
    before = lengths.cumsum(0) - lengths
    entries = torch.arange(len(owners), device=rows.device) + (starts - before)[owners]
    return owners, entries


def repeat(values: Tensor, counts: Tensor) -> Tensor:
    """Return each value ``counts`` times over.  [n], [n] -> [sum of counts]

    >>> repeat(torch.tensor([5, 7]), torch.tensor([2, 1]))
    tensor([5, 5, 7])
    """
    if values.device.type == "cpu":  # several times as fast as torch's own on a CPU
        return torch.from_numpy(np.repeat(values.numpy(), counts.numpy()))
    return torch.repeat_interleave(values, counts)


def check_edges(edge_index: Tensor, nodes: int) -> None:
    """Raise unless every edge joins two existing nodes."""
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise DataError(f"edge_index has shape {tuple(edge_index.shape)}: expected [2, edges]")
    if edge_index.is_floating_point():
        raise DataError(f"edge_index holds {edge_index.dtype}: expected integers")
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= nodes):
        wrong = ((edge_index < 0) | (edge_index >= nodes)).any(0).nonzero()[0, 0]
        source, target = edge_index[:, wrong].tolist()
        raise DataError(
            f"edge {int(wrong)} joins {source} and {target}, but nodes are numbered "
            f"0 to {nodes - 1}"
        )


def check_labels(labels: Tensor) -> None:
    """Raise unless labels are classes 0, 1, ..., or -1 where a node has none."""
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(f"labels hold {labels.dtype}: expected integers")
    if labels.numel() and int(labels.min()) < UNLABELLED:
        node = int(labels.argmin())
        raise DataError(
            f"node {node} has label {int(labels[node])}: expected a class from 0 on, or "
            f"{UNLABELLED} for none"
        )


def check_features(features: Tensor, nodes: int) -> None:
    """Raise unless features are finite numbers, one row a node."""
    if features.dim() != 2 or features.shape[0] != nodes:
        raise DataError(
            f"features have shape {tuple(features.shape)}: expected [{nodes}, dims], a row a node"
        )
    values = features if features.layout == torch.strided else features.values()
    # A sum is finite only if every term is; the exact search runs only when it is not.
    if values.is_floating_point() and not bool(values.sum(dtype=torch.float64).isfinite()):
        bad = (~values.isfinite()).nonzero()
        if len(bad):
            where = (
                f"row {int(bad[0, 0])}" if values.dim() == 2 else f"stored value {int(bad[0, 0])}"
            )
            raise DataError(
                f"features hold NaN or infinity, first in {where}: expected finite numbers"
            )
