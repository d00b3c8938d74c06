"""Embeddings of a growing graph, updated where a change affects them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, check_choice, check_integer
from evergraph.graphs import Graph
from evergraph.online.arrays import Array, GrowingArray, KeptArrays, VectorPart, blocks
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_smoother import LiveSmoother
from evergraph.online.graph.neighbour_lists import distinct
from evergraph.topology import MixHop, Stepwise, TopologyEncoder
from evergraph.topology.cached import Scaling
from evergraph.topology.rowwise import unit_parts

ROWS = 1 << 15  # computed at a time
PUT_SIDE_BY_SIDE = (Stepwise.assemble, MixHop.assemble)


class HopStates(KeptArrays):
    """H_1, ..., H_L of an f_topo that is a recursion over hops, kept for all nodes.

    H_{l+1} of a node changes if H_l of the node or of an in-neighbour changed; H_1 also if the
    degree of an in-neighbour changed, as degrees are part of Â. So a change costs its frontier, of
    which every row is summed anew from all its in-neighbours: rounding does not accumulate, and no
    trace stays of nodes and edges that go.

    H_0 is the graph's features, or ``inputs`` instead. If a hop smooths something other than its
    state, that is kept as well.

    Args:
        topology: the f_topo.
        smoother: Â of the graph.
        num_features: width of H_0.
        inputs: H_0 of every position, kept up to date by its owner; by default the graph's
            features.
    """

    def __init__(
        self,
        topology: Stepwise,
        smoother: LiveSmoother,
        num_features: int,
        *,
        inputs: GrowingArray | None = None,
    ) -> None:
        self.topology = topology
        self.smoother = smoother
        self._graph = GrowingGraph(num_features=num_features)  # until one is attached
        self._inputs = inputs
        self._messages: list[GrowingArray | None] = []  # starting at hop 0; None: the state itself
        # Widths are those of a graph without nodes.
        states = [torch.empty(0, num_features)]
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

    def update(self, graph: GrowingGraph, change: GraphChange, renewed: Tensor) -> Tensor:
        """Follow a change; return the nodes whose embeddings changed.  int64 [n], ascending

        renewed: older nodes whose H_0 changed.  int64 [renewed]
        """
        self._graph = graph
        for array in self.kept.values():
            array.follow(graph.num_nodes, change.removed)
        moved: Tensor = torch.cat([change.new, renewed]).unique()
        hops = [moved]
        for hop, message in enumerate(self._messages):
            if message is not None:
                for part in moved.split(ROWS):
                    message.tensor[part] = self.topology.message(self._state(hop)[part], hop=hop)
            moved = graph.gatherers(torch.cat([moved, change.touched]))
            self._sum(moved, hop)
            hops.append(moved)
        used = [hops[hop] for hop in self.topology.assembled]
        return torch.from_numpy(distinct(torch.cat(used).numpy()))

    def _sum(self, nodes: Tensor, hop: int) -> None:
        """Recompute hop + 1 of some nodes from all their in-neighbours."""
        state = self._states[hop].tensor
        for rows in blocks(len(nodes), ROWS):
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
        smoothed = self.smoother.product(self._graph, nodes, self._source(hop))
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
        if hop:
            return self._states[hop - 1].array
        return self._graph.features.numpy() if self._inputs is None else self._inputs.array

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

    def attach(self, graph: GrowingGraph) -> None:
        """Attach a restored graph."""
        self._graph = graph


def check_whole_rows(topology: TopologyEncoder) -> None:
    """Raise unless an f_topo sums rows of float32."""
    if topology.dtype != "float32":
        raise ConfigurationError(
            "dtype must be 'float32' for embeddings of a growing graph, which are corrected by "
            f"small differences, not {topology.dtype!r}"
        )


class Surroundings(KeptArrays):
    """Any f_topo, encoded again for the nodes that a change affects.

    Only embeddings are kept between changes. Affected nodes are encoded together with all nodes
    within L + 1 hops (the degrees of the outermost matter), so a change costs its neighbourhood of
    2L + 1 hops; an f_topo that is a recursion over hops costs L (see ``HopStates``). Equal changes
    give equal bits, but the last bits of a row may depend on the rows it is computed with.

    Args:
        topology: the f_topo.
        num_features: width of the features.
    """

    def __init__(self, topology: TopologyEncoder, num_features: int) -> None:
        self.topology = topology
        # The width is found by encoding a graph of one node.
        single = Graph.from_edges(
            torch.empty(2, 0, dtype=torch.int64),
            features=torch.zeros(1, num_features),
            labels=torch.zeros(1).long(),
        )
        self.dims = topology.encode(single).shape[1]
        self._embeddings = GrowingArray(self.dims)
        self.kept = {"unscaled": self._embeddings}

    def update(self, graph: GrowingGraph, change: GraphChange, renewed: Tensor) -> Tensor:
        """Follow a change; return the affected nodes.  int64 [n], ascending"""
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
        return changed

    def rows(self, nodes: Array) -> Array:
        """Return the embeddings of some nodes, unscaled.  int64 [k] -> float32 [k, dims]"""
        return self._embeddings.array.take(nodes, axis=0)

    def attach(self, graph: GrowingGraph) -> None:
        """Do nothing: nothing of a graph is kept."""


class LiveEmbeddings(VectorPart):
    """f_topo of every node of a growing graph, updated only where a change affects it.

    A change affects new nodes, nodes with new features, nodes whose in-neighbours or weights
    changed, and all nodes within L hops of these. For an f_topo that is a recursion over hops,
    every hop of every node is kept (see ``HopStates``). Any other f_topo is computed from the
    neighbourhood (see ``Surroundings``). Embeddings are kept unscaled, and scaled when they are
    read.

    Args:
        topology: the f_topo.
        num_features: width of the features.
        scaling: ``unit`` divides every embedding by its length, ``none`` does not.

    >>> from evergraph.topology import SGC
    >>> graph, live = GrowingGraph(num_features=1), LiveEmbeddings(SGC(hops=1), num_features=1,
    ...                                                            scaling="none")
    >>> live.update(graph, graph.add(torch.tensor([[1.]]), torch.empty(2, 0).long()))
    tensor([0])
    >>> live.update(graph, graph.add(torch.tensor([[3.]]), torch.tensor([[0], [1]])))
    tensor([0, 1])
    >>> live.of(torch.tensor([0]))  # the mean of both
    tensor([[2.0000]])
    """

    def __init__(
        self, topology: TopologyEncoder, *, num_features: int, scaling: Scaling = "unit"
    ) -> None:
        check_integer("num_features", num_features, least=1)
        check_choice("scaling", scaling, ("unit", "none"))
        self.topology = topology
        self.num_features = num_features
        self.scaling = scaling
        check_whole_rows(topology)
        self.smoother = LiveSmoother(self_loops=topology.self_loops)
        self._source: HopStates | Surroundings = Surroundings(topology, num_features)
        if isinstance(topology, Stepwise):
            self._source = HopStates(topology, self.smoother, num_features)
        self.dims = self._source.dims
        self.kept = self.smoother.kept | self._source.kept

    def update(self, graph: GrowingGraph, change: GraphChange) -> Tensor:
        """Follow a change of the graph, right after it was made; return the nodes whose embeddings
        changed, including new nodes but not removed ones.  int64 [n], ascending
        """
        self.smoother.refresh(graph, torch.cat([change.new, change.touched, change.removed]))
        return self._source.update(graph, change, change.renewed)

    def rows(self, nodes: Array) -> Array:
        rows = self._source.rows(nodes)
        return unit_parts(rows, self.topology.units) if self.scaling == "unit" else rows

    def attach(self, graph: GrowingGraph) -> None:
        """Attach the graph, once both were restored and before it changes."""
        self._source.attach(graph)
