"""Features along typed edges, and node types, of a growing graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.codes import WIDTH, class_codes, kind_signs
from evergraph.core.seeding import seeded
from evergraph.graphs.propagation import ordered_product
from evergraph.online.arrays import (
    Array,
    GrowingArray,
    Packing,
    VectorPart,
    blocks,
    check_values,
    joined,
    part_named,
)
from evergraph.online.graph.growing_graph import no_nodes
from evergraph.online.graph.live_embeddings import NODES_PER_BLOCK
from evergraph.online.graph.neighbour_lists import NeighbourLists, distinct
from evergraph.online.identifiers import IdTable
from evergraph.topology.rowwise import block_product, unit_rows
from evergraph.training.learner import part_of

UNTYPED = -1
PARTS = 3  # types, one hop, two hops
PLAIN = "edge"  # the relation of edges without one
DIRECTIONS = ("along", "against")


class LiveRelations(VectorPart):
    """[T, B₁X, B₂B₁X] of every node, each part of unit length: see ``RelationHops``.

    Changes are recorded as they come (``extend``, ``connect``, ``disconnect``, ``renew``,
    ``forget``); ``update`` recomputes the vectors they affect. New relations and types may come at
    any time and do not change existing vectors.

    >>> live = LiveRelations(num_features=2, width=2)
    >>> live.extend(torch.eye(2), ["paper", "author"])
    >>> live.connect(torch.tensor([[1], [0]]), ["writes"])
    >>> live.update()
    tensor([0, 1])
    >>> live.of(torch.tensor([0])).shape
    torch.Size([1, 6])
    """

    def __init__(self, *, num_features: int, width: int = WIDTH) -> None:
        self.num_features = num_features
        self.width = width
        self.dims = PARTS * width
        self.names = IdTable()
        self.types = IdTable()
        self._lists: list[tuple[NeighbourLists, NeighbourLists]] = []  # along, against
        self._signs: dict[tuple[int, str], Tensor] = {}
        self._typed = GrowingArray(dtype=np.int64)
        self._sent = GrowingArray(width)  # X
        self._near = GrowingArray(width)  # B₁X, not scaled
        self._vectors = GrowingArray(self.dims)
        self.kept = {"typed": self._typed, "sent": self._sent}
        self.kept |= {"near": self._near, "vectors": self._vectors}
        self._matrix: Tensor | None = None  # features of another width are projected
        if num_features != width:
            generator = seeded(0, "features along relations", num_features, width)
            matrix = torch.randn(num_features, width, generator=generator)
            self._matrix = matrix.mul_(width**-0.5)
        self.clear()

    def clear(self) -> None:
        """Clear the record of changes, once they have been followed."""
        self.touched = no_nodes()  # nodes whose rows changed
        self._other = no_nodes()  # nodes whose row of X changed

    @property
    def entry_bytes(self) -> int:
        """How many bytes the entries of all lists take."""
        return sum(part.entry_bytes for part in chain.from_iterable(self._lists))

    def extend(self, features: Tensor, types: Sequence[str | None]) -> None:
        """Add nodes.  features: [new, d]; types: one per node, None if unknown; or empty"""
        start, count = len(self._typed), len(features)
        every: list[GrowingArray | NeighbourLists] = [*self.kept.values()]
        for array in (*every, *chain.from_iterable(self._lists)):
            array.extend(count)
        new = [name for name in dict.fromkeys(types) if name is not None and name not in self.types]
        self.types.add(new)
        for node, name in enumerate(types or [None] * count, start):
            self._typed.array[node] = UNTYPED if name is None else self.types.position(name)
        self.renew(torch.arange(start, start + count), features)

    def renew(self, nodes: Tensor, features: Tensor) -> None:
        """Replace the features of nodes."""
        rows = features if self._matrix is None else block_product(features, self._matrix)
        self._sent.write(nodes, unit_rows(rows.contiguous()) + self._codes(nodes))
        self._other = torch.cat([self._other, nodes])

    def _codes(self, nodes: Tensor) -> Tensor:
        """Return T.  -> [nodes, width]"""
        table = class_codes([f"type {name}" for name in self.types], width=self.width)
        codes = torch.cat([table, torch.zeros(1, self.width)])  # the last is of no type
        return codes[self._typed.tensor[nodes]]

    def connect(
        self, ends: Tensor, relations: Sequence[str], weights: Tensor | None = None
    ) -> None:
        """Add edges, or change their weights; the last of a repeated edge counts, and 0 removes it.

        ends: int64 [2, edges]; relations: one per edge; weights: float32 [edges]
        """
        for name in dict.fromkeys(relations):
            if name not in self.names:  # a new relation gets lists
                self.names.add([name])
                pair = NeighbourLists(), NeighbourLists()
                for part in pair:
                    part.extend(len(self._typed))
                self._lists.append(pair)
        numbers = self.names.positions(relations).numpy()
        apart = (ends[0] != ends[1]).numpy()
        for number in np.unique(numbers[apart]).tolist():
            chosen = apart & (numbers == number)
            sources, targets = (side.numpy()[chosen] for side in ends)
            given = None if weights is None else weights.numpy()[chosen]
            along, against = self._lists[number]
            self._touch(
                along.insert(targets, sources, given), against.insert(sources, targets, given)
            )

    def disconnect(self, ends: Tensor, *, both_ways: bool) -> None:
        """Remove all relations from sources to targets, and back if ``both_ways``."""
        ends = torch.cat([ends, ends.flip(0)], dim=1) if both_ways else ends
        sources, targets = (side.numpy() for side in ends)
        for along, against in self._lists:
            self._touch(along.delete(targets, sources), against.delete(sources, targets))

    def weights_of(self, ends: Tensor, relations: Sequence[str]) -> Tensor:
        """Return the weights of edges, 0 for missing ones and where a position is negative.

        ends: int64 [2, edges]; relations: one per edge -> float32 [edges]
        """
        weights = torch.zeros(ends.shape[1])
        known = [name in self.names for name in relations]
        exist = torch.tensor(known, dtype=torch.bool) & (ends >= 0).all(0)
        for edge in exist.nonzero().flatten().tolist():
            along = self._lists[self.names.position(relations[edge])][0]
            source, target = ends[:, edge].numpy()
            weights[edge] = float(along.weigh(np.array([target]), np.array([source]))[0])
        return weights

    def forget(self, nodes: Tensor) -> None:
        """Remove nodes with all their edges, and erase their rows."""
        nodes = nodes.unique()
        for along, against in self._lists:
            self._touch(along.detach(nodes.numpy(), against), against.detach(nodes.numpy(), along))
            along.clear(nodes.numpy())
            against.clear(nodes.numpy())
        for array in (self._sent, self._near, self._vectors):
            array.write(nodes, 0)
        self._typed.write(nodes, UNTYPED)
        self.touched = self.touched[~torch.isin(self.touched, nodes)]
        self._other = self._other[~torch.isin(self._other, nodes)]

    def _touch(self, *changed: Array) -> None:
        self.touched = torch.cat([self.touched, *map(torch.from_numpy, changed)]).unique()

    def gatherers(self, nodes: Tensor) -> Tensor:
        """Return the neighbours of nodes along all relations, ascending, each once."""
        columns = [lists.rows(nodes.numpy())[1] for lists in chain.from_iterable(self._lists)]
        neighbours = np.concatenate([np.empty(0, np.int32), *columns]).astype(np.int64)
        return torch.from_numpy(distinct(neighbours))

    def update(self) -> Tensor:
        """Recompute vectors that changes since ``clear`` affect; return their nodes, ascending."""
        first = torch.cat([self.touched, self.gatherers(self._other)]).unique()
        for rows in blocks(len(first), NODES_PER_BLOCK):
            self._near.tensor[first[rows]] = self.product(first[rows], self._sent.tensor, hop=1)
        second = torch.cat([self.touched, self.gatherers(first)]).unique()
        nodes: Tensor = torch.cat([self._other, first, second]).unique()
        for rows in blocks(len(nodes), NODES_PER_BLOCK):
            block = nodes[rows]
            parts = (
                self._codes(block),
                unit_rows(self._near.tensor[block]),
                unit_rows(self.product(block, self._near.tensor, hop=2)),
            )
            self._vectors.tensor[block] = torch.cat(parts, dim=1)
        return nodes

    def product(self, nodes: Tensor, values: Tensor, *, hop: int) -> Tensor:
        """Return some rows of B V.  values: float32 [positions, any] -> [nodes, any]

        Kinds are added in the order of their names and entries in that of their positions, so that
        bits depend neither on the other rows nor on the order in which relations came.
        """
        out = torch.zeros(len(nodes), values.shape[1])
        for kind, lists in self._kinds():
            listed = np.flatnonzero(lists.lengths(nodes.numpy()))
            if len(listed):
                rows = nodes.numpy()[listed]
                signs = self._sign(kind, hop, values.shape[1])
                out[torch.from_numpy(listed)] += signs * _means(lists, rows, values)
        return out

    def _kinds(self) -> Iterator[tuple[str, NeighbourLists]]:
        for name in sorted(self.names, key=str):
            along, against = self._lists[self.names.position(name)]
            yield f"{name}>", along
            yield f"{name}<", against

    def _sign(self, kind: str, hop: int, width: int) -> Tensor:
        key = hop, f"{width} {kind}"
        if key not in self._signs:
            self._signs[key] = kind_signs([kind], hop=hop, width=width)[0]
        return self._signs[key]

    @property
    def sent(self) -> Tensor:
        """X.  float32 [positions, width], a view until there are more"""
        return self._sent.tensor

    def flows(self, node: int, *, hops: int, width: int) -> tuple[Tensor, Tensor]:
        """Return positions u and the factors f_u of their values in B₁V or B₂B₁V.

        (B V)_v = Σ_u f_u ⊙ V_u, where f_u sums over the paths from u to v the signs of their kinds
        times their shares in the means. One row is pushed through the graph, starting at the node.

        -> int64 [nodes], float64 [nodes, width]
        """
        nodes, factors = np.array([node]), torch.ones(1, width, dtype=torch.float64)
        for hop in range(hops, 0, -1):
            sources = self.gatherers(torch.from_numpy(nodes)).numpy()
            sums = factors.new_zeros(len(sources), width)
            for kind, lists in self._kinds():
                indptr, columns = lists.rows(nodes)
                if not len(columns):
                    continue
                owners, shares = _shares(indptr, lists.weights(nodes))
                indices = torch.from_numpy(np.stack([np.searchsorted(sources, columns), owners]))
                paths = torch.sparse_coo_tensor(
                    indices,
                    torch.from_numpy(shares),
                    (len(sources), len(nodes)),
                    check_invariants=False,  # given explicitly to silence a warning of torch
                )
                sums += paths @ (factors * kind_signs([kind], hop=hop, width=width))
            nodes, factors = sources, sums
        return torch.from_numpy(nodes), factors

    def rows(self, nodes: Array) -> Array:
        return self._vectors.array.take(nodes, axis=0)

    def arrays(self) -> Iterator[GrowingArray]:
        yield from super().arrays()
        for part in chain.from_iterable(self._lists):
            yield from part.arrays()

    def state(self) -> dict[str, Tensor]:
        tables = joined({"names": self.names.state(), "types": self.types.state()})
        lists = joined({name: part.state() for name, part in self._named_lists()})
        return tables | lists | super().state()

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        rows = {name: nodes.rows(array.tensor) for name, array in self.kept.items()}
        lists = {name: part.packed(nodes, classes) for name, part in self._named_lists()}
        return self.state() | rows | joined(lists)

    def restore(self, state: dict[str, Tensor]) -> None:
        super().restore(state)
        for name, table in (("names", self.names), ("types", self.types)):
            with part_named(name):
                table.restore(part_of(state, f"{name}."))
        check_values("typed", state["typed"], UNTYPED, below=self.types.next)
        self._lists = [(NeighbourLists(), NeighbourLists()) for _ in self.names]
        for name, part in self._named_lists():
            with part_named(name):
                part.restore(part_of(state, f"{name}."))
                part.check_lengths(len(self._typed))

    def _named_lists(self) -> Iterator[tuple[str, NeighbourLists]]:
        """Yield the lists of every relation and direction, named by both."""
        for number, pair in enumerate(self._lists):
            for direction, lists in zip(DIRECTIONS, pair, strict=True):
                yield f"{number}.{direction}", lists


def _shares(indptr: Array, weights: Array) -> tuple[Array, Array]:
    """Return the row of each entry, and its share of the row's weight.  int64, float64 [entries]"""
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    weights = weights.astype(np.float64)
    return owners, weights / np.bincount(owners, weights=weights)[owners]


def _means(lists: NeighbourLists, rows: Array, values: Tensor) -> Tensor:
    """Return the mean of values over the columns of rows that are not empty.  -> [rows, any]"""
    indptr, columns = lists.rows(rows)
    shares = _shares(indptr, lists.weights(rows))[1].astype(np.float32)
    starts, near, weighed = map(torch.from_numpy, (indptr, columns, shares))
    return ordered_product(starts, near, weighed, values)
