"""Embeddings of a growing graph, updated where a change affects them."""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, check_choice
from evergraph.graphs import Graph
from evergraph.graphs.kernels.products import listed_product
from evergraph.graphs.kernels.scaled_rows import empty_rows
from evergraph.graphs.propagation import ordered_product
from evergraph.online.arrays import Array, GrowingArray, KeptArrays, Piece, VectorPart, blocks
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.neighbour_lists import distinct
from evergraph.topology import MixHop, Stepwise, TopologyEncoder
from evergraph.topology.cached import Scaling
from evergraph.topology.rowwise import unit_parts

NODES_PER_BLOCK = 1 << 15  # computed at a time
PUT_SIDE_BY_SIDE = (Stepwise.assemble, MixHop.assemble)


class LiveSmoother(KeptArrays):
    """Â = D^-1/2 (A + sI) D^-1/2 of a growing graph, multiplied some rows at a time.

    A holds the weights of edges, D the sums of the rows of A + sI.

    A row is summed in the order of its neighbours' positions, so that its bits depend neither on
    the storage of the graph nor on the rows it is computed with. For the same reason the choice of
    the kernel depends on the size of the whole graph only.  self_loops: whether s is 1, else 0

    >>> pair = GrowingGraph(num_features=1)
    >>> smoother = LiveSmoother(pair)
    >>> smoother.update(pair.add(torch.tensor([[1.], [3.]]), torch.tensor([[0], [1]])))
    >>> smoother.product(torch.tensor([1]), pair.features)
    tensor([[2.0000]])
    """

    def __init__(self, graph: GrowingGraph, *, self_loops: bool = True) -> None:
        self.graph, self.self_loops = graph, self_loops
        self._scalings = GrowingArray()  # the diagonal of D^-1/2
        self.kept = {"scalings": self._scalings}

    def update(self, change: GraphChange) -> None:
        """Update the scalings of nodes that are new or gone, or whose in-neighbours changed."""
        self._scalings.follow(self.graph.num_nodes)
        nodes = torch.cat([change.new, change.touched, change.removed])
        self._scalings.write(nodes, self._scalings_of(nodes.numpy()))

    def _scalings_of(self, nodes: Array) -> Tensor:
        """Return D^-1/2 of some nodes.  int64 [n] -> float32 [n]"""
        degrees = counts = self.graph.into.lengths(nodes)
        if self.graph.weighted:
            # One by one in the order of entries, so that bits do not depend on the other rows.
            owners = np.repeat(np.arange(len(nodes)), counts)
            degrees = np.bincount(owners, self.graph.into.weights(nodes), minlength=len(nodes))
        degrees = degrees + int(self.self_loops)
        # In float64 and by sqrt, which rounds correctly on every machine; a power need not.
        inverse = 1 / np.sqrt(np.where(degrees > 0, degrees, 1))
        return torch.from_numpy(np.where(degrees > 0, inverse, 0.0).astype(np.float32))

    @property
    def scalings(self) -> Array:
        """The diagonal of D^-1/2.  float32 [positions], a view until there are more"""
        return self._scalings.array

    def rows(self, nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows of Â as CSR.  -> int32 [nodes + 1], int32 [entries], float32 [entries]"""
        starts, columns = self.graph.rows(nodes)
        weights = self.graph.weights(nodes) if self.graph.weighted else None
        if self.self_loops:  # the last entry of its row
            columns = np.insert(columns, starts[1:], nodes.numpy())
            weights = None if weights is None else np.insert(weights, starts[1:], 1)
            starts = starts + np.arange(len(starts))
        values = np.repeat(self._scalings.array[nodes.numpy()], np.diff(starts))
        if weights is not None:
            values = values * weights
        values = values * self._scalings.array[columns]
        starts = starts.astype(np.int32)
        return torch.from_numpy(starts), torch.from_numpy(columns), torch.from_numpy(values)

    def product(self, nodes: Tensor, values: Tensor) -> Tensor:
        """Return some rows of Â V.  [positions, d] -> [nodes, d]"""
        if not len(nodes):
            return values[:0]
        if self.graph.compiled:
            from evergraph.graphs.kernels.numba_sum import ListedRows

            lists, positions = self.graph.into.storage(), nodes.numpy()
            starts = lists.starts[positions]
            rows = ListedRows(
                starts,
                starts + lists.counts[positions],
                lists.pool,
                self._scalings.array[positions],
                self._scalings.array,
                positions if self.self_loops else positions[:0],
                () if lists.weights is None else lists.weights,
            )
            out = empty_rows(len(nodes), like=values)
            listed_product(rows, values, out)
            return out
        return ordered_product(*self.rows(nodes), values)


class HopStates(KeptArrays):
    """H_1, ..., H_L of an f_topo that is a recursion over hops, kept for all nodes.

    H_{l+1} of a node changes if H_l of the node or of an in-neighbour changed; H_1 also if the
    degree of an in-neighbour changed, as degrees are part of Â. So a change costs its frontier, of
    which every row is summed anew from all its in-neighbours: rounding does not accumulate, and no
    trace stays of nodes and edges that go.

    If a hop smooths something other than its state, that is kept as well.

    Args:
        topology: the f_topo.
        smoother: Â of the graph, kept up to date by its owner.
        inputs: H_0 of every position, likewise.
    """

    def __init__(self, topology: Stepwise, smoother: LiveSmoother, inputs: GrowingArray) -> None:
        self.topology = topology
        self.smoother = smoother
        self._inputs = inputs
        self._messages: list[GrowingArray | None] = []  # starting at hop 0; None: the state itself
        # Widths are those of a graph without nodes.
        states = [inputs.tensor[:0]]
        for hop in range(topology.hops):
            message = topology.message(states[-1], hop=hop)
            own = message is not states[-1]
            self._messages.append(GrowingArray(message.shape[1]) if own else None)
            states.append(topology.advance(message, states[-1], states[0], hop=hop))
        self.dims = topology.assemble(states).shape[1]
        self._states = [GrowingArray(state.shape[1]) for state in states[1:]]  # starting at hop 1
        self.kept = {f"state_{hop}": array for hop, array in enumerate(self._states, 1)}
        sent = enumerate(self._messages)
        self.kept |= {f"message_{hop}": array for hop, array in sent if array is not None}

    def update(self, change: GraphChange, renewed: Tensor) -> list[Tensor]:
        """Follow a change; return the nodes that changed in each hop of embeddings.  int64 [n] each

        renewed: older nodes whose H_0 changed.  int64 [renewed]
        """
        graph = self.smoother.graph
        for array in self.kept.values():
            array.follow(graph.num_nodes, change.removed)
        moved: Tensor = torch.cat([change.new, renewed]).unique()
        hops = [moved]
        for hop, message in enumerate(self._messages):
            if message is not None:
                for part in moved.split(NODES_PER_BLOCK):
                    message.tensor[part] = self.topology.message(self._state(hop)[part], hop=hop)
            moved = graph.gatherers(torch.cat([moved, change.touched]))
            self._sum(moved, hop)
            hops.append(moved)
        return [hops[hop] for hop in self.topology.assembled]

    def _sum(self, nodes: Tensor, hop: int) -> None:
        """Recompute hop + 1 of some nodes from all their in-neighbours."""
        state = self._states[hop].tensor
        for rows in blocks(len(nodes), NODES_PER_BLOCK):
            state[nodes[rows]] = self._next(nodes[rows], hop)

    def recompute(self, nodes: Tensor) -> None:
        """Recompute the last hop of some nodes."""
        self._sum(nodes, len(self._states) - 1)

    @property
    def last(self) -> Tensor:
        """H_L of all positions, which may be overwritten until a change affects them.  [n, width]"""
        return self._states[-1].tensor

    def _next(self, nodes: Tensor, hop: int) -> Tensor:
        """Return hop + 1 of some nodes."""
        smoothed = self.smoother.product(nodes, self._source(hop))
        if type(self.topology).advance is Stepwise.advance:  # it would return it unchanged
            return smoothed
        state, inputs = self._state(hop)[nodes], self._state(0)[nodes]
        return self.topology.advance(smoothed, state, inputs, hop=hop)

    def _source(self, hop: int) -> Tensor:
        """Return the values that are smoothed to hop + 1."""
        messages = self._messages[hop]
        return self._state(hop) if messages is None else messages.tensor

    def _state(self, hop: int) -> Tensor:
        """Return H_hop of all positions."""
        return torch.from_numpy(self._rows(hop))

    def _rows(self, hop: int) -> Array:
        """Return the same as an array."""
        return self._states[hop - 1].array if hop else self._inputs.array

    def rows(self, nodes: Array) -> Array:
        """Return the embeddings of some nodes, unscaled.  int64 [k] -> float32 [k, dims]"""
        if (stored := self.stored) is not None:
            return np.concatenate([rows.take(nodes, axis=0) for rows in stored], axis=1)
        states = [torch.empty(0)] * (self.topology.hops + 1)
        for hop in self.topology.assembled:
            states[hop] = torch.from_numpy(self._rows(hop).take(nodes, axis=0))
        return self.topology.assemble(states).numpy()

    @property
    def stored(self) -> list[Array] | None:
        """The arrays that ``rows`` puts side by side; None if it computes something else."""
        if type(self.topology).assemble not in PUT_SIDE_BY_SIDE:
            return None
        return [self._rows(hop) for hop in self.topology.assembled]


def check_whole_rows(topology: TopologyEncoder) -> None:
    """Raise unless an f_topo sums rows of float32."""
    if topology.dtype != "float32":
        raise ConfigurationError(
            "dtype must be 'float32' for embeddings of a growing graph, whose rows are summed in "
            f"float32, not {topology.dtype!r}"
        )


class Surroundings(KeptArrays):
    """Any f_topo, encoded again for the nodes that a change affects.

    Only embeddings are kept between changes. Affected nodes are encoded together with all nodes
    within L + 1 hops (the degrees of the outermost matter), so a change costs its neighbourhood of
    2L + 1 hops; an f_topo that is a recursion over hops costs L (see ``HopStates``). Equal changes
    give equal bits, but the last bits of a row may depend on the rows it is computed with.

    """

    def __init__(self, topology: TopologyEncoder, graph: GrowingGraph) -> None:
        self.topology, self.graph = topology, graph
        # The width is found by encoding a graph of one node.
        single = Graph.from_edges(
            torch.empty(2, 0, dtype=torch.int64),
            features=torch.zeros(1, graph.num_features),
            labels=torch.zeros(1).long(),
        )
        self.dims = topology.encode(single).shape[1]
        self._embeddings = GrowingArray(self.dims)
        self.kept = {"unscaled": self._embeddings}

    def update(self, change: GraphChange, renewed: Tensor) -> list[Tensor]:
        """Follow a change; return the affected nodes.  int64 [n]"""
        graph = self.graph
        self._embeddings.follow(graph.num_nodes, change.removed)
        changed: Tensor = torch.cat([change.new, renewed]).unique()
        for hop in range(self.topology.hops):
            seeds = torch.cat([changed, change.touched]) if hop == 0 else changed
            changed = graph.gatherers(seeds)
        if len(changed):
            around = changed
            for _ in range(self.topology.hops + 1):
                near = torch.from_numpy(graph.rows(around)[1]).long()
                around = torch.cat([around, near]).unique()
            encoded = self.topology.encode(graph.induced(around))
            self._embeddings.tensor[changed] = encoded[torch.searchsorted(around, changed)]
        return [changed]

    def rows(self, nodes: Array) -> Array:
        """Return the embeddings of some nodes, unscaled.  int64 [k] -> float32 [k, dims]"""
        return self._embeddings.array.take(nodes, axis=0)

    @property
    def stored(self) -> None:
        """None: embeddings are not kept hop by hop."""


class LiveEmbeddings(VectorPart):
    """f_topo of every node of a growing graph, updated only where a change affects it.

    A change affects new nodes, nodes with new features, nodes whose in-neighbours or weights
    changed, and all nodes within L hops of these. For an f_topo that is a recursion over hops,
    every hop of every node is kept (see ``HopStates``). Any other f_topo is computed from the
    neighbourhood (see ``Surroundings``). Embeddings are kept unscaled, and scaled when they are
    read.

    Args:
        topology: the f_topo.
        graph: it is followed from its first node on, or from where both were restored.
        scaling: ``unit`` divides every embedding by its length, ``none`` does not.

    >>> from evergraph.topology import SGC
    >>> graph = GrowingGraph(num_features=1)
    >>> live = LiveEmbeddings(SGC(hops=1), graph, scaling="none")
    >>> live.update(graph.add(torch.tensor([[1.]]), torch.empty(2, 0).long()))
    tensor([0])
    >>> live.update(graph.add(torch.tensor([[3.]]), torch.tensor([[0], [1]])))
    tensor([0, 1])
    >>> live.of(torch.tensor([0]))  # the mean of both
    tensor([[2.0000]])
    """

    def __init__(
        self, topology: TopologyEncoder, graph: GrowingGraph, *, scaling: Scaling = "unit"
    ) -> None:
        check_choice("scaling", scaling, ("unit", "none"))
        check_whole_rows(topology)
        self.topology = topology
        self.scaling = scaling
        self.smoother = LiveSmoother(graph, self_loops=topology.self_loops)
        self._source: HopStates | Surroundings
        if isinstance(topology, Stepwise):
            self._source = HopStates(topology, self.smoother, graph.kept["features"])
        else:
            self._source = Surroundings(topology, graph)
        self.dims = self._source.dims
        self.kept = self.smoother.kept | self._source.kept

    def update(self, change: GraphChange) -> Tensor:
        """Follow a change of the graph, right after it was made; return the nodes whose embeddings
        changed, including new nodes but not removed ones.  int64 [n], ascending
        """
        self.smoother.update(change)
        changed = self._source.update(change, change.renewed)
        nodes = torch.from_numpy(distinct(torch.cat(changed).numpy()))
        by_piece = changed if len(self.pieces) == len(changed) else [nodes]
        for piece, changed_here in zip(self.pieces, by_piece, strict=True):
            piece.changed.append(changed_here)
        return nodes

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """Every hop, if hops are put side by side and scaled one by one."""
        stored = self._source.stored
        if stored is None or (self.scaling == "unit" and self.topology.units != len(stored)):
            return super().pieces
        return tuple(
            Piece(rows.shape[1], partial(self._hop_rows, place))
            for place, rows in enumerate(stored)
        )

    def _hop_rows(self, place: int, nodes: Array) -> Array:
        """Return one hop of the embeddings of some nodes.  int64 [k] -> float32 [k, width]"""
        stored = self._source.stored
        assert stored is not None, "hops are put side by side"
        rows = stored[place].take(nodes, axis=0)
        return unit_parts(rows) if self.scaling == "unit" else rows

    def rows(self, nodes: Array) -> Array:
        rows = self._source.rows(nodes)
        return unit_parts(rows, self.topology.units) if self.scaling == "unit" else rows
