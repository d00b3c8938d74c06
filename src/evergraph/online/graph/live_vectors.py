"""A growing graph with the vectors of its nodes, and parts of these: shape, words, class codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.codes import NODES_AT_A_TIME, class_codes, codes_of_others, without_own
from evergraph.closed_form.own_features import SHAPE_WIDTH, shape_rows
from evergraph.closed_form.views import CODE_HOPS
from evergraph.graphs import UNLABELLED
from evergraph.online.arrays import Array, GrowingArray, LiveRows, Piece, VectorChange, VectorPart
from evergraph.online.delta import Label
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph, no_nodes
from evergraph.online.graph.live_embeddings import (
    NODES_PER_BLOCK,
    HopStates,
    LiveEmbeddings,
    LiveSmoother,
)
from evergraph.online.graph.live_relations import PLAIN, LiveRelations
from evergraph.online.graph.neighbour_lists import distinct
from evergraph.topology import MixHop
from evergraph.topology.rowwise import unit_parts, unit_rows

ROWS_PER_BLOCK = 512  # of features, which may be wide
NEAR, FAR = 1, 2  # hops of N


class LiveShape(LiveRows):
    """The shape of every node, see ``shape_of``, updated where edges or features change.

    measured: whether the plain length of a node's features stands beside it.

    >>> graph = GrowingGraph(num_features=1)
    >>> shape = LiveShape(graph)
    >>> shape.update(graph.add(torch.ones(2, 1), torch.tensor([[0], [1]])))
    tensor([0, 1])
    >>> bool((shape.of(torch.tensor([0])) == shape.of(torch.tensor([1]))).all())
    True
    """

    def __init__(self, graph: GrowingGraph, *, measured: bool = False) -> None:
        super().__init__(SHAPE_WIDTH + measured)
        self.graph = graph

    def update(self, change: GraphChange) -> Tensor:
        """Follow a change of the graph, right after it was made; return the nodes it concerns."""
        graph = self.graph
        self._rows.follow(graph.num_nodes, change.removed)
        nodes: Tensor = torch.cat([change.new, change.touched, change.renewed]).unique()
        for block in nodes.split(ROWS_PER_BLOCK):
            degrees = torch.from_numpy(np.diff(graph.rows(block)[0]))
            lengths = torch.linalg.vector_norm(graph.features[block], dim=1, dtype=torch.float64)
            rows = torch.cat([shape_rows(degrees, lengths), lengths.float()[:, None]], dim=1)
            self._rows.write(block, rows[:, : self.dims])
        return nodes


class LiveWords(LiveRows):
    """The words of every node as they were given, see ``packed_words``.

    >>> words = LiveWords(2)
    >>> words.add(torch.tensor([[1.0, 7.0]]))
    >>> words.renew(torch.tensor([0]), torch.tensor([[1.0, 8.0]]))
    tensor([0])
    >>> words.of(torch.tensor([0]))
    tensor([[1., 8.]])
    """

    def add(self, rows: Tensor) -> None:
        """Add nodes.  float32 [new, width]"""
        self._rows.append(rows)

    def renew(self, nodes: Tensor, rows: Tensor) -> Tensor:
        """Replace the words of nodes; return those whose words differ.  [n], [n, width]"""
        former = self._rows.write(nodes, rows)
        return nodes[(former != rows).any(1)]


class LiveCodes(VectorPart):
    """[N C, N² C - diag(N²) C] of every node, each hop of unit length: see ``ClassCodes``.

    Row v of C is the code of v's class if v's label is visible, else 0. A label that is shown,
    hidden or changed affects the nodes within two hops, like new edges: see ``HopStates``. The code
    of a class depends only on the seed and the name of the class, not on the order of arrival.

    Where a node's own code would swamp the rest of N² C, a sum without it is kept instead: see
    ``codes_of_others``.

    With relations, which the caller has updated before, a third part holds the classes of
    neighbours by relation, B₁C: see ``RelationCodes``. Each part is as wide as a code.

    >>> graph = GrowingGraph(num_features=1)
    >>> codes = LiveCodes(graph, width=4)
    >>> codes.name(["x"])
    >>> pair = graph.add(torch.zeros(2, 1), torch.tensor([[0], [1]]))
    >>> codes.update(pair, torch.tensor([0]), torch.tensor([0]))
    tensor([0, 1])
    >>> torch.allclose(codes.of(torch.tensor([1]))[0, :4], class_codes(["x"], width=4)[0])
    True
    >>> bool(codes.of(torch.tensor([0])).any())  # a node does not see its own label
    False
    """

    def __init__(
        self,
        graph: GrowingGraph,
        *,
        width: int,
        seed: int = 0,
        relations: LiveRelations | None = None,
    ) -> None:
        self.graph = graph
        self.width = width
        self.seed = seed
        self.relations = relations
        self.dims = (FAR + (relations is not None)) * width
        self.smoother = LiveSmoother(graph, self_loops=False)
        self._table = GrowingArray(width)  # the code of every class
        self._shown = GrowingArray(width)  # C
        self._coded = GrowingArray(dtype=np.bool_)  # whose row of it is not 0
        # What is subtracted from N² C: its diagonal, 0 for bare rows, which are summed without it.
        self._own = GrowingArray()
        self._bare = GrowingArray(dtype=np.bool_)
        self._along = GrowingArray(width)  # B₁C, of unit length; empty without relations
        self._topology = MixHop(hops=FAR, self_loops=False, kept_hops=(NEAR, FAR), unit=True)
        self._hops = HopStates(self._topology, self.smoother, self._shown)
        # What does not follow from labels and names of classes.
        self.kept = {"subtracted": self._own, "bare": self._bare}
        self.kept |= self.smoother.kept | self._hops.kept
        if relations is not None:
            self.kept["along"] = self._along

    def name(self, labels: Sequence[Label]) -> None:
        """Draw the codes of classes that have the next numbers."""
        if labels:
            self._table.append(class_codes(labels, width=self.width, seed=self.seed))

    def update(self, change: GraphChange, nodes: Tensor, classes: Tensor) -> Tensor:
        """Follow a change of the graph, right after it was made, and of labels.

        nodes: whose visible labels changed, int64 [n]; classes: their new numbers, ``UNLABELLED``
        if hidden, int64 [n] -> nodes whose codes changed, int64 [m], ascending
        """
        for array in (self._shown, self._coded, self._own, self._bare):
            array.follow(self.graph.num_nodes, change.removed)
        self.show(nodes, classes)
        self.smoother.update(change)
        nodes = nodes[self.graph.alive[nodes]]
        # Those whose entry of diag(N²) changed.
        with_other_share = self.graph.gatherers(torch.cat([change.new, change.touched]))
        affected = [*self._hops.update(change, nodes), nodes, with_other_share]
        if self.relations is not None:
            affected.append(self._gather_along(self.relations, change, nodes))
        changed = torch.from_numpy(distinct(torch.cat(affected).numpy()))
        self._remove_own(changed, with_other_share)
        return changed

    def _gather_along(self, relations: LiveRelations, change: GraphChange, nodes: Tensor) -> Tensor:
        """Recompute B₁C where neighbours along relations, or their labels, changed."""
        self._along.follow(len(self._shown), change.removed)
        neighbours = relations.gatherers(nodes)
        changed: Tensor = torch.cat([change.new, relations.touched, neighbours]).unique()
        for block in changed.split(NODES_PER_BLOCK):
            sums = relations.product(block, self._shown.tensor, hop=1)
            self._along.tensor[block] = unit_rows(sums)
        return changed

    def _remove_own(self, changed: Tensor, with_other_share: Tensor) -> None:
        """Update what is subtracted, and sum rows without it in which rounding would show.

        changed: nodes whose codes changed; with_other_share: whose share in their own code did
        """
        bare = changed[self._bare.tensor[changed]]
        self._hops.recompute(bare)
        self._bare.write(bare, False)
        nodes = torch.from_numpy(distinct(torch.cat([with_other_share, bare]).numpy()))
        self._own.write(nodes, self._own_share(nodes))
        unclear = self._unclear(changed[self._coded.tensor[changed]])
        self._bare.write(unclear, True)
        self._own.write(unclear, 0)
        for block in unclear.split(NODES_AT_A_TIME):
            self._hops.last[block] = codes_of_others(
                block, self.smoother.rows, self._shown.tensor, self._coded.array
            )

    def _unclear(self, nodes: Tensor) -> Tensor:
        """Return labelled nodes of whose sums too little is left without their own code."""
        unclear = [nodes[:0]]
        for block in nodes.split(NODES_PER_BLOCK):
            block = block[self._own.tensor[block] != 0]
            sums, own, codes = self._hops.last[block], self._own.tensor[block], self.shown[block]
            _, too_little = without_own(sums, own, codes)
            unclear.append(block[too_little])
        return torch.cat(unclear)

    def show(self, nodes: Tensor, classes: Tensor) -> None:
        """Set rows of C: the codes of classes, 0 for ``UNLABELLED``.  int64 [n], int64 [n]"""
        codes = torch.zeros(len(classes), self.width)
        if len(self._table):
            hidden = (classes == UNLABELLED)[:, None]
            codes = self._table.tensor[classes.clamp_min(0)].masked_fill_(hidden, 0.0)
        self._shown.write(nodes, codes)
        self._coded.array[nodes.numpy()] = (classes != UNLABELLED).numpy()

    def _own_share(self, nodes: Tensor) -> Tensor:
        """Return the diagonal of N², s_v² Σ_u w_vu w_uv s_u²: see ``own_share``.  -> float32 [nodes]"""
        rows, columns, weights = self.graph.into.mutual(self.graph.out_of, nodes.numpy())
        shares = weights * self.smoother.scalings[columns].astype(np.float64) ** 2
        sums = np.bincount(np.searchsorted(nodes.numpy(), rows), shares, minlength=len(nodes))
        own = self.smoother.scalings[nodes.numpy()].astype(np.float64) ** 2 * sums
        return torch.from_numpy(own.astype(np.float32))

    def rows(self, nodes: Array) -> Array:
        assert self._hops.stored is not None, "hops are kept side by side"
        near, far = (hop.take(nodes, axis=0) for hop in self._hops.stored)
        far -= self._own.array.take(nodes)[:, None] * self._shown.array.take(nodes, axis=0)
        scaled = unit_parts(np.concatenate([near, far], axis=1), FAR)
        if self.relations is None:
            return scaled
        return np.concatenate([scaled, self._along.array.take(nodes, axis=0)], axis=1)

    @property
    def shown(self) -> Tensor:
        """C.  float32 [positions, width], a view until there are more"""
        return self._shown.tensor

    def arrays(self) -> Iterator[GrowingArray]:
        yield from (*super().arrays(), self._shown, self._coded)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned; ``name`` and ``show`` restore the rest."""
        super().restore(state)
        for array in (self._shown, self._coded):
            array.follow(len(state["scalings"]))


class LiveVectors:
    """A growing graph, and a vector of every node that follows it.

    Nodes are positions here. A vector is the embedding of a node, then relations, shape, words and
    class codes, as far as there are any. Within a delta a node may move more than once: the nodes
    concerned are collected, and taken once.
    """

    def __init__(
        self,
        graph: GrowingGraph,
        embeddings: LiveEmbeddings,
        *,
        relations: LiveRelations | None = None,
        shape: LiveShape | None = None,
        words: LiveWords | None = None,
        codes: LiveCodes | None = None,
    ) -> None:
        self.graph, self.embeddings, self.relations = graph, embeddings, relations
        self.shape, self.words, self.codes = shape, words, codes
        parts = (embeddings, relations, shape, words, codes)
        self._vectors = [part for part in parts if part is not None]
        self.dims = sum(part.dims for part in self._vectors)
        self._begin_change()

    def _begin_change(self) -> None:
        self._touched: list[Tensor] = []  # nodes whose vectors are compared as a whole
        for piece in self.pieces:
            piece.changed.clear()
        self._recomputed = 0
        self._cut = False

    @property
    def num_features(self) -> int:
        """Width of the features that nodes are given with, words among them."""
        return self.graph.num_features + (0 if self.words is None else self.words.dims)

    def _parted(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return features for hops, and words.  -> [n, d], [n, words]"""
        if not len(features):  # of any width
            features = features.new_zeros(0, self.num_features)
        return features[:, : self.graph.num_features], features[:, self.graph.num_features :]

    def features_of(self, nodes: Tensor) -> Tensor:
        """Return features as nodes were given with them.  int64 [n] -> float32 [n, num_features]"""
        rows = self.graph.features[nodes]
        return rows if self.words is None else torch.cat([rows, self.words.of(nodes)], dim=1)

    def of(self, nodes: Tensor) -> Tensor:
        """Return the vectors of some nodes.  int64 [n] -> float32 [n, dims]"""
        return torch.from_numpy(self.rows(nodes.numpy()))

    def rows(self, nodes: Array) -> Array:
        """Return the same as an array."""
        parts = [part.rows(nodes) for part in self._vectors]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    @property
    def pieces(self) -> list[Piece]:
        """What a vector consists of, side by side."""
        return [piece for part in self._vectors for piece in part.pieces]

    def change(
        self,
        features: Tensor,
        edges: Tensor,
        *,
        weights: Tensor | None = None,
        cut: Tensor | None = None,
        renewed: tuple[Tensor, Tensor] | None = None,
        relations: Sequence[str] = (),
        types: Sequence[str | None] = (),
    ) -> None:
        """Add nodes and edges, then remove edges, then replace features of nodes.

        features: of new nodes, words included, [new, num_features]; edges: positions, int64
        [2, edges]; weights: of the edges, float32 [edges]; cut: edges to remove, int64 [2, removed];
        renewed: nodes and their new features, int64 [n], [n, num_features]; relations, types: one
        per edge, or new node, or empty
        """
        rows, words = self._parted(features)
        change = self.graph.add(rows, edges, weights)
        if self.words is not None:
            self.words.add(words)
        if cut is not None:
            change = change.then(self.graph.disconnect(cut))
        # An edge of weight 0 is removed.
        self._cut |= cut is not None or (weights is not None and bool((weights == 0).any()))
        if renewed is not None:
            nodes, (values, words) = renewed[0], self._parted(renewed[1])
            renewed = nodes, values
            change = change.then(self.graph.renew(nodes, values))
            if self.words is not None:
                self._note(self.words, self.words.renew(nodes, words))
        if self.relations is not None:
            self.relations.extend(rows, types)
            named = relations or [PLAIN] * edges.shape[1]
            self.relations.connect(edges, named, weights)
            if cut is not None:
                self.relations.disconnect(cut, both_ways=self.graph.undirected)
            if renewed is not None:
                self.relations.renew(*renewed)
        self._follow(change, no_nodes(), no_nodes())

    def _follow(self, change: GraphChange, relabelled: Tensor, classes: Tensor) -> None:
        """Update vectors to a change of the graph and of labels, see ``recode``."""
        self._touched += [change.new, change.removed]
        self._recomputed += len(self.embeddings.update(change))
        if self.relations is not None:
            self._note(self.relations, self.relations.update())
        if self.shape is not None:
            self._note(self.shape, self.shape.update(change))
        if self.words is not None:
            self.words.kept["rows"].write(change.removed, 0)
        self._recode(change, relabelled, classes)
        if self.relations is not None:
            self.relations.clear()

    def _recode(self, change: GraphChange, relabelled: Tensor, classes: Tensor) -> None:
        """Update class codes.  relabelled: nodes, int64 [n]; classes: theirs by now, int64 [n]"""
        if self.codes is not None:
            self._note(self.codes, self.codes.update(change, relabelled, classes))

    def _note(self, part: VectorPart, nodes: Tensor) -> None:
        """Note the nodes in which a part that is one piece has changed."""
        (piece,) = part.pieces
        piece.changed.append(nodes)

    def vector_changes(self) -> list[VectorChange]:
        """Return what has changed of all vectors."""
        changes, start = [], 0
        for piece in self.pieces:
            nodes = distinct(torch.cat([*self._touched, *piece.changed, no_nodes()]).numpy())
            columns = slice(start, start + piece.width)
            vectors = torch.from_numpy(piece.rows(nodes))
            changes.append(VectorChange(torch.from_numpy(nodes), vectors, columns))
            start = columns.stop
        return changes

    def _all_touched(self) -> Tensor:
        """Return the nodes that changes concerned.  int64 [n], ascending"""
        changed = [nodes for piece in self.pieces for nodes in piece.changed]
        nodes = torch.cat([no_nodes(), *self._touched, *changed])
        return torch.from_numpy(distinct(nodes.numpy()))

    def reached_by(self, nodes: Tensor) -> Tensor:
        """Return all nodes whose vectors these may influence, including themselves."""
        hops = max(self.embeddings.topology.hops, CODE_HOPS)
        for _ in range(hops + 1):  # degrees of the outermost matter
            nodes = self.graph.gatherers(nodes)
        return nodes

    def _restore_codes(self, classes: Sequence[Label], labels: Tensor) -> None:
        """Show codes again, once everything else was restored.  labels: of all nodes"""
        if self.codes is not None:
            self.codes.name(classes)
            for rows in torch.arange(len(labels)).split(NODES_PER_BLOCK):
                self.codes.show(rows, labels[rows])
