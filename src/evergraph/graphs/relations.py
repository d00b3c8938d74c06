"""Edges with relations and directions, and node types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.graphs.csr import row_entries, row_pointers
from evergraph.graphs.validation import check_edges, check_whole

WAYS = 2  # kinds per relation: along its edges, and against them
MOST_RELATIONS = 2**14  # kinds are int16


@dataclass(frozen=True, eq=False)
class Relations:
    """All edges of a graph with their relations, in both directions.

    An edge (source, target) of relation r is stored in the row of its target with kind 2r, and in
    the row of its source with kind 2r + 1, so that a node's in- and out-neighbours are separate.
    Two nodes may be joined by several relations; the graph's own adjacency has such an edge once.

    Attributes:
        names: names of the relations.
        indptr: start of each row.  [nodes + 1]
        indices: the neighbours, by kind, then ascending.  int32 [entries]
        kinds: kinds of the entries.  int16 [entries]
        weights: weights of the entries, None if all are 1.  float32 [entries] | None

    >>> cites = Relations.of(torch.tensor([[0], [1]]), torch.tensor([0]), ("cites",), nodes=2)
    >>> cites.indices, cites.kinds
    (tensor([1, 0], dtype=torch.int32), tensor([1, 0], dtype=torch.int16))
    """

    names: tuple[str, ...]
    indptr: Tensor
    indices: Tensor
    kinds: Tensor
    weights: Tensor | None = None

    @classmethod
    def of(
        cls,
        edge_index: Tensor,
        relations: Tensor,
        names: Sequence[str],
        *,
        nodes: int,
        weights: Tensor | None = None,
    ) -> Relations:
        """Return the record of some edges; of duplicates, the last weight counts.

        edge_index: sources and targets, integer [2, edges]; relations: indices into names, integer
        [edges]; weights: not negative, float [edges]; an edge of weight 0 is dropped
        """
        check_edges(edge_index, nodes)
        check_whole("relations", relations, verb="hold")
        if relations.shape != edge_index.shape[1:]:
            raise DataError(f"relations have shape {tuple(relations.shape)}: expected one per edge")
        if len(names) > MOST_RELATIONS:
            message = f"there are {len(names)} relations: at most {MOST_RELATIONS} are supported"
            raise DataError(message)
        if len(set(names)) < len(names):
            raise DataError(f"relations must have different names, not {list(names)}")
        if len(relations) and not 0 <= int(relations.min()) <= int(relations.max()) < len(names):
            raise DataError(
                f"relations must be numbers of {len(names)} names, from 0 on, not "
                f"{int(relations.min())} to {int(relations.max())}"
            )
        edge_index = edge_index.long()
        columns, rows = edge_index.flatten(), edge_index.flip(0).flatten()
        kinds = torch.cat([WAYS * relations.long(), WAYS * relations.long() + 1])
        distinct = rows != columns
        if weights is not None:
            weights = torch.cat([weights.float()] * 2)[distinct]
        return cls._sorted(
            tuple(names), rows[distinct], columns[distinct], kinds[distinct], weights, nodes=nodes
        )

    @classmethod
    def _sorted(
        cls,
        names: tuple[str, ...],
        rows: Tensor,
        columns: Tensor,
        kinds: Tensor,
        weights: Tensor | None,
        *,
        nodes: int,
    ) -> Relations:
        # By row and kind, then by column; of equal entries the last counts.
        order = columns.argsort(stable=True)
        major = rows * (WAYS * max(len(names), 1)) + kinds
        order = order[major[order].argsort(stable=True)]
        major, minor = major[order], columns[order]
        last = torch.ones(len(order), dtype=torch.bool, device=order.device)
        last[:-1] = (major[1:] != major[:-1]) | (minor[1:] != minor[:-1])
        entries = order[last]
        if weights is not None:
            weights = weights[entries]
            entries, weights = entries[weights > 0], weights[weights > 0]
        rows = rows[entries]
        columns = columns[entries].int()
        kinds = kinds[entries].to(torch.int16)
        return cls(names, row_pointers(rows, nodes), columns, kinds, weights)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def nbytes(self) -> int:
        """Bytes of the entries."""
        arrays = (self.indptr, self.indices, self.kinds, self.weights)
        return sum(array.nbytes for array in arrays if array is not None)

    def kind_names(self) -> list[str]:
        """Return the names of the kinds, by number.

        >>> Relations.of(torch.empty(2, 0).long(), torch.empty(0).long(), ("cites",),
        ...              nodes=1).kind_names()
        ['cites>', 'cites<']
        """
        return [f"{name}{way}" for name in self.names for way in "><"]

    def rows(self) -> Tensor:
        """Return the row of every entry.  int64 [entries]"""
        return row_entries(self.indptr, torch.arange(self.num_nodes, device=self.device))[0]

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the graph."""
        return len(self.indptr) - 1

    @property
    def device(self) -> torch.device:
        """Device of the entries."""
        return self.indices.device

    def edges(self) -> tuple[Tensor, Tensor]:
        """Return every edge once: ends, and the number of its relation.  [2, edges], [edges]"""
        along = (self.kinds % WAYS) == 0
        ends = torch.stack([self.indices[along].long(), self.rows()[along]])
        return ends, (self.kinds[along] // WAYS).long()

    def edge_weights(self) -> Tensor | None:
        """Return the weights of ``edges``, None if all are 1.  float32 [edges] | None"""
        return None if self.weights is None else self.weights[(self.kinds % WAYS) == 0]

    def subgraph(self, nodes: Tensor) -> Relations:
        """Return the entries among some nodes, numbered in the given order: see ``Graph``."""
        position = torch.full((self.num_nodes,), -1, dtype=torch.int64, device=self.device)
        position[nodes] = torch.arange(len(nodes), device=self.device)
        rows, entries = row_entries(self.indptr, nodes)
        columns = position[self.indices[entries].long()]
        rows, columns, entries = (part[columns >= 0] for part in (rows, columns, entries))
        return self._taken(entries, rows, columns, nodes=len(nodes))

    def within(self, indptr: Tensor, indices: Tensor) -> Relations:
        """Return the entries whose edges are in an adjacency of the same nodes."""
        rows, columns = self.rows(), self.indices.long()
        against = (self.kinds % WAYS).bool()
        targets = torch.where(against, columns, rows)
        sources = torch.where(against, rows, columns)
        owners = row_entries(indptr, torch.arange(self.num_nodes, device=self.device))[0]
        listed = owners * self.num_nodes + indices.long()  # ascending
        own_edges = targets * self.num_nodes + sources
        positions = torch.searchsorted(listed, own_edges).clamp_max(max(len(listed) - 1, 0))
        present = listed[positions] == own_edges if len(listed) else torch.zeros_like(against)
        if bool(present.all()):
            return self
        entries = present.nonzero().flatten()
        return self._taken(entries, rows[present], columns[present], nodes=self.num_nodes)

    def _taken(self, entries: Tensor, rows: Tensor, columns: Tensor, *, nodes: int) -> Relations:
        weights = None if self.weights is None else self.weights[entries]
        kinds = self.kinds[entries].long()
        return self._sorted(self.names, rows, columns, kinds, weights, nodes=nodes)

    def each(self, change: Callable[[Tensor], Tensor]) -> Relations:
        """Return the record with a function applied to each array, such as a move to a device."""
        weights = None if self.weights is None else change(self.weights)
        indptr, indices, kinds = map(change, (self.indptr, self.indices, self.kinds))
        return Relations(self.names, indptr, indices, kinds, weights)

    def segments(self) -> Iterator[Tensor]:
        """Yield start, row and kind of every run of alike entries, in row and kind.  3 x [runs]"""
        rows, kinds = self.rows(), self.kinds.long()
        key = rows * (WAYS * max(len(self.names), 1)) + kinds
        first = torch.ones_like(key, dtype=torch.bool)
        first[1:] = key[1:] != key[:-1]
        yield from (first.nonzero().flatten(), rows[first], kinds[first])


@dataclass(frozen=True, eq=False)
class NodeTypes:
    """The type of each node.

    Attributes:
        names: names of the types.
        numbers: index of each node's type.  int16 [nodes]

    >>> NodeTypes(("paper", "author"), torch.tensor([0, 1, 1]).short()).of(torch.tensor([2]))
    ['author']
    """

    names: tuple[str, ...]
    numbers: Tensor

    def of(self, nodes: Tensor) -> list[str]:
        """Return the names of the types of some nodes."""
        return [self.names[number] for number in self.numbers[nodes].tolist()]

    def each(self, change: Callable[[Tensor], Tensor]) -> NodeTypes:
        """Return the record with a function applied to its array."""
        return NodeTypes(self.names, change(self.numbers))


def side_by_side(relations: Sequence[Relations | None], nodes: Sequence[int]) -> Relations | None:
    """Return the relations of several graphs as one, with nodes numbered in sequence.

    Relations of the same name are merged. nodes: size of each graph. None if no graph has any.

    >>> cites = Relations.of(torch.tensor([[0], [1]]), torch.tensor([0]), ("cites",), nodes=2)
    >>> side_by_side([cites, None, cites], [2, 1, 2]).edges()[0]
    tensor([[0, 3],
            [1, 4]])
    """
    present = [part for part in relations if part is not None]
    if not present:
        return None
    names = list(dict.fromkeys(name for part in present for name in part.names))
    ends = []
    numbers = []
    weights = []
    offset = 0
    for part, count in zip(relations, nodes, strict=True):
        if part is not None:
            pairs, part_numbers = part.edges()
            ends.append(pairs + offset)
            numbers.append(_renumbered(part_numbers, part.names, names))
            part_weights = part.edge_weights()
            if part_weights is None:
                part_weights = torch.ones(len(part_numbers), device=part_numbers.device)
            weights.append(part_weights)
        offset += count
    weighed = any(part.weights is not None for part in present)
    return Relations.of(
        torch.cat(ends, dim=1),
        torch.cat(numbers),
        names,
        nodes=offset,
        weights=torch.cat(weights) if weighed else None,
    )


def types_side_by_side(types: Sequence[NodeTypes | None]) -> NodeTypes | None:
    """Return the types of the nodes of several graphs; None unless every graph has them.

    >>> paper = NodeTypes(("paper",), torch.zeros(1).short())
    >>> types_side_by_side([paper, NodeTypes(("author",), torch.zeros(1).short())]).numbers
    tensor([0, 1], dtype=torch.int16)
    """
    present = [part for part in types if part is not None]
    if len(present) < len(types):
        return None
    names = list(dict.fromkeys(name for part in present for name in part.names))
    numbers = [_renumbered(part.numbers.long(), part.names, names).short() for part in present]
    return NodeTypes(tuple(names), torch.cat(numbers))


def _renumbered(numbers: Tensor, names: Sequence[str], new_names: Sequence[str]) -> Tensor:
    """Return indices into names as indices into ``others``.  int64 [n] -> int64 [n]"""
    positions = torch.tensor([new_names.index(name) for name in names], device=numbers.device)
    return positions[numbers]
