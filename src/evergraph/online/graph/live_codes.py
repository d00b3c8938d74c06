"""Class codes around every node of a growing graph, updated with its labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.codes import NODES_AT_A_TIME, class_codes, codes_of_others, without_own
from evergraph.graphs import UNLABELLED
from evergraph.online.delta import Label
from evergraph.online.graph.growing_array import Array, GrowingArray, VectorPart, blocks
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_embeddings import REPLACED, ROWS, HopStates
from evergraph.online.graph.live_relations import LiveRelations
from evergraph.online.graph.live_smoother import ROUNDING, LiveSmoother
from evergraph.online.graph.neighbour_lists import distinct
from evergraph.topology import MixHop
from evergraph.topology.rowwise import unit_parts, unit_rows

NEAR, FAR = 1, 2  # hops of N
# Tighter than elsewhere: little may be left after a node's own code is subtracted.
DRIFT = 8 * ROUNDING


class LiveCodes(VectorPart):
    """[N C, N² C - diag(N²) C] of every node, each hop of unit length: see ``ClassCodes``.

    Row v of C is the code of v's class if v's label is visible, else 0. A label that is shown,
    hidden or changed affects the nodes within two hops, like new edges: see ``HopStates``. The code
    of a class depends only on the seed and the name of the class, not on the order of arrival.

    Where a node's own code would swamp the rest of N² C, a sum without it is kept instead: see
    ``codes_of_others``.

    With relations, which the caller has updated before, a third part holds the classes of
    neighbours by relation, B₁C: see ``RelationCodes``. Each part is as wide as a code.

    >>> graph, codes = GrowingGraph(num_features=1), LiveCodes(width=4)
    >>> codes.name(["x"])
    >>> pair = graph.add(torch.zeros(2, 1), torch.tensor([[0], [1]]))
    >>> codes.update(graph, pair, torch.tensor([0]), torch.tensor([0]))
    tensor([0, 1])
    >>> torch.allclose(codes.of(torch.tensor([1]))[0, :4], class_codes(["x"], width=4)[0])
    True
    >>> bool(codes.of(torch.tensor([0])).any())  # a node does not see its own label
    False
    """

    def __init__(
        self, *, width: int, seed: int = 0, relations: LiveRelations | None = None
    ) -> None:
        self.width = width
        self.seed = seed
        self.relations = relations
        self.dims = (FAR + (relations is not None)) * width
        self.smoother = LiveSmoother(self_loops=False)
        self._table = GrowingArray(width)  # the code of every class
        self._shown = GrowingArray(width)  # C
        self._coded = GrowingArray(dtype=np.bool_)  # whose row of it is not 0
        # What is subtracted from N² C: its diagonal, 0 for rows that were summed without it.
        self._own = GrowingArray()
        self._along = GrowingArray(width)  # B₁C, of unit length; empty without relations
        self._topology = MixHop(hops=FAR, self_loops=False, kept_hops=(NEAR, FAR), unit=True)
        self._hops = HopStates(
            self._topology, self.smoother, width, inputs=self._shown, drift=DRIFT
        )
        # What does not follow from labels and names of classes.
        self.kept = {"subtracted": self._own} | self.smoother.kept | self._hops.kept
        if relations is not None:
            self.kept["along"] = self._along

    def name(self, labels: Sequence[Label]) -> None:
        """Draw the codes of classes that have the next numbers."""
        if labels:
            start = len(self._table)
            self._table.extend(len(labels))
            self._table.tensor[start:] = class_codes(labels, width=self.width, seed=self.seed)

    def update(
        self, graph: GrowingGraph, change: GraphChange, nodes: Tensor, classes: Tensor
    ) -> Tensor:
        """Follow a change of the graph, right after it was made, and of labels.

        nodes: whose visible labels changed, int64 [n]; classes: their new numbers, ``UNLABELLED``
        if hidden, int64 [n] -> nodes whose codes changed, int64 [m], ascending
        """
        for array in (self._shown, self._coded, self._own):
            array.extend(graph.num_nodes - len(array))
        self._shown.write(change.removed, 0)
        self._own.array[change.removed.numpy()] = 0
        self._coded.array[change.removed.numpy()] = False
        nodes, order = nodes.sort()
        former = self._shown.tensor[nodes]
        self.show(nodes, classes[order])
        self.smoother.refresh(graph, torch.cat([change.new, change.touched, change.removed]))
        alive = graph.alive[nodes]
        nodes = nodes[alive]
        affected = [self._hops.update(graph, change, nodes, former[alive]), nodes]
        near = graph.gatherers(torch.cat([change.new, change.touched]))  # diag(N²) changed
        affected.append(near)
        if self.relations is not None:
            affected.append(self._gather_along(self.relations, change, nodes))
        felt = torch.from_numpy(distinct(torch.cat(affected).numpy()))
        self._remove_own(graph, felt, near)
        return felt

    def _gather_along(
        self, relations: LiveRelations, change: GraphChange, relabelled: Tensor
    ) -> Tensor:
        """Recompute B₁C where neighbours along relations, or their labels, changed."""
        self._along.extend(len(self._shown) - len(self._along))
        self._along.write(change.removed, 0)
        near = relations.gatherers(relabelled)
        felt: Tensor = torch.cat([change.new, relations.touched, near]).unique()
        for rows in blocks(len(felt), ROWS):
            sums = relations.product(felt[rows], self._shown.tensor, hop=1)
            self._along.tensor[felt[rows]] = unit_rows(sums)
        return felt

    def _remove_own(self, graph: GrowingGraph, felt: Tensor, near: Tensor) -> None:
        """Update what is subtracted, and sum rows without it in which rounding would show.

        felt: nodes whose codes changed; near: those whose share in their own code changed
        """
        own, (_, drift) = self._own.array, self._hops.last
        bare = felt.numpy()[own[felt.numpy()] == 0]  # among them those that were replaced
        if len(bare):
            self._hops.recompute(torch.from_numpy(bare[drift[bare] == REPLACED]))
            near = torch.from_numpy(distinct(np.concatenate([near.numpy(), bare])))
        own[near.numpy()] = self._own_share(graph, near)
        unclear, drifted = self._unclear(felt[self._coded.tensor[felt]])
        self._hops.recompute(drifted)
        own[unclear.numpy()] = 0
        for part in blocks(len(unclear), NODES_AT_A_TIME):
            rows = partial(self.smoother.rows, graph)
            given = (unclear[part], rows, self._shown.tensor, self._coded.array)
            self._hops.replace(unclear[part], codes_of_others(*given))

    def _unclear(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return labelled nodes of whose sums too little is left without their own code.

        And others in which rounding errors since the last recomputation show beside what is left.
        """
        unclear, due = [nodes[:0]], [nodes[:0]]
        for rows in blocks(len(nodes), ROWS):
            some = nodes[rows][self._own.tensor[nodes[rows]] != 0]
            sums, drifts = (torch.from_numpy(kept)[some] for kept in self._hops.last)
            others, little = without_own(sums, self._own.tensor[some], self._shown.tensor[some])
            unclear.append(some[little])
            due.append(some[~little & (drifts > DRIFT * others.abs().amax(1))])
        return torch.cat(unclear), torch.cat(due)

    def show(self, nodes: Tensor, classes: Tensor) -> None:
        """Set rows of C: the codes of classes, 0 for ``UNLABELLED``.  int64 [n], int64 [n]"""
        codes = torch.zeros(len(classes), self.width)
        if len(self._table):
            hidden = (classes == UNLABELLED)[:, None]
            codes = self._table.tensor[classes.clamp_min(0)].masked_fill_(hidden, 0.0)
        self._shown.write(nodes, codes)
        self._coded.array[nodes.numpy()] = (classes != UNLABELLED).numpy()

    def _own_share(self, graph: GrowingGraph, nodes: Tensor) -> Tensor:
        """Return the diagonal of N², s_v² Σ_u w_vu w_uv s_u²: see ``own_share``.  -> float32 [nodes]"""
        rows, columns, weights = graph.into.mutual(graph.out_of, nodes.numpy())
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

    def attach(self, graph: GrowingGraph) -> None:
        """Attach the graph, once both were restored and before it changes."""
        self._hops.attach(graph)

    @property
    def shown(self) -> Tensor:
        """C.  float32 [positions, width], a view until there are more"""
        return self._shown.tensor

    def arrays(self) -> Iterator[GrowingArray]:
        yield from (*super().arrays(), self._shown, self._coded)

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned; ``name``, ``show`` and ``attach`` restore the rest."""
        super().restore(state)
        for array in (self._shown, self._coded):
            array.extend(len(state["scalings"]) - len(array))
