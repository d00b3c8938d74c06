"""Embeddings that follow a growing graph: hop by hop, or from their surroundings."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.errors import ConfigurationError
from evergraph.graphs.normalisation import Normalisation
from evergraph.online.graph.corrections import (
    DRIFT,
    Changed,
    LaterMoved,
    Moved,
    correct,
    differ,
    differences,
)
from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_smoother import FrozenSmoother, LiveSmoother
from evergraph.online.graph.neighbour_lists import Entries
from evergraph.online.graph.surroundings import Surroundings
from evergraph.topology import Stepwise, TopologyEncoder
from evergraph.topology.cached import Scaling

ROWS = 1 << 15  # computed at a time
# From such a share of the work on, all rows are summed anew. An entry that is added up is 1, and so
# is a difference that is pushed; a row, corrected or summed, is as much as so many: it is read,
# kept, compared and written (measured at 32 and 128 columns). Where rows are not corrected, a share
# of the positions: then most rows are reached.
WHOLE, ROW = 0.3, 4
AT_ONCE = 1 << 25  # values of a hop that are computed at once where all are


class HopStates:
    """H_1, ..., H_L of an f_topo told hop by hop, kept for all nodes.

    H_{l+1} of a node changes where H_l changed of the node or of one it gathers from; H_1 also
    where one it gathers from has another degree, which is in Â. So a change costs its frontier. A
    row of it is corrected by the differences that reach it, or summed anew from all it gathers
    from, whichever is the less: see ``corrections``, also for why nothing drifts. Where nodes go,
    all that feel it are summed anew, so that nothing of them stays. Where a change reaches most of
    the graph, all rows are summed anew, and nobody looks for a frontier.

    H_0 is the graph's own features, or ``inputs`` in their place. Where a hop smooths something
    else than its state, that is kept as well.

    Args:
        topology: the f_topo.
        smoother: Â of the graph.
        num_features: how wide H_0 is.
        inputs: H_0 of every position, kept up to date by whoever owns it; the graph's features
            unless given.
        drift: how much of a row's largest value rounding may come to before it is summed anew.
    """

    def __init__(
        self,
        topology: Stepwise,
        smoother: LiveSmoother,
        num_features: int,
        *,
        inputs: GrowingArray | None = None,
        drift: float = DRIFT,
    ) -> None:
        self.topology = topology
        self.smoother = smoother
        self._graph: GrowingGraph | None = None
        self._inputs = inputs
        self._width = num_features
        self._most = drift
        self._states: list[GrowingArray] = []  # from hop 1 on
        self._messages: list[GrowingArray | None] = []  # from hop 0 on; None: the state itself
        self.dims = self._lay_out(torch.empty(0, num_features))
        self._drifts = [GrowingArray() for _ in self._states]
        self._complete = True  # whether the last hop is there; old snapshots have it not

    def _lay_out(self, features: Tensor) -> int:
        """Make an array as wide as each hop is, and return how wide embeddings are."""
        states = [features]  # no rows, but columns
        for hop in range(self.topology.hops):
            message = self.topology.message(states[-1], hop=hop)
            own = message is not states[-1]
            self._messages.append(GrowingArray(message.shape[1]) if own else None)
            states.append(self.topology.advance(message, states[-1], features, hop=hop))
        self._states = [GrowingArray(state.shape[1]) for state in states[1:]]
        return self.topology.assemble(states).shape[1]

    @property
    def _corrects(self) -> bool:
        """Whether a state is what was smoothed, and so can be corrected by differences."""
        return type(self.topology).advance is Stepwise.advance

    def update(
        self,
        graph: GrowingGraph,
        change: GraphChange,
        renewed: Tensor | None = None,
        former: Tensor | None = None,
    ) -> Tensor:
        """Follow a change; return whose embeddings are others now.  int64 [n], ascending

        renewed: nodes whose H_0 is another now, new ones among them or not, ascending, int64
        [renewed]; former: what it was.  float32 [renewed, width]
        """
        assert self._complete, "a graph is attached after restoring, before it changes"
        self._graph = graph
        for array in self._arrays().values():
            array.extend(graph.num_nodes - len(array))
            array.array[change.removed.numpy()] = 0
        moved = self._inputs_moved(graph, change, renewed, former)
        if not len(moved.nodes) + len(change.touched):
            return change.new
        entries = None if len(change.removed) or not self._corrects else change.known_entries
        hops: list[Changed] = [moved]
        for hop in range(self.topology.hops):
            sent = self._send(graph, hops[-1], hop)
            hops.append(self._step(graph, change, sent, entries, hop))
        used = [hops[hop].nodes for hop in self.topology.assembled]
        return used[0] if len(used) == 1 else torch.cat(used).unique()

    def _inputs_moved(
        self,
        graph: GrowingGraph,
        change: GraphChange,
        renewed: Tensor | None,
        former: Tensor | None,
    ) -> Moved:
        """Return whose H_0 is another now, and what it was: zeros of new nodes."""
        inputs = self._state(graph, 0)
        width = inputs.shape[1]
        if renewed is None:
            none = torch.zeros(len(change.new), width)
            return Moved(change.new, none, inputs[change.new])
        first = int(change.new[0]) if len(change.new) else graph.num_nodes
        old = renewed[renewed < first]
        assert former is not None, "what H_0 was is told with who has another"
        before = torch.cat([former[renewed < first], torch.zeros(len(change.new), width)])
        nodes = torch.cat([old, change.new])
        return Moved(nodes, before, inputs[nodes])

    def _send(self, graph: GrowingGraph, moved: Changed, hop: int) -> Changed:
        """Compute anew what nodes give to the next hop, and return what they gave."""
        messages = self._messages[hop]
        if messages is None:
            return moved
        before = messages.tensor[moved.nodes]
        for part in moved.nodes.split(ROWS):
            state = self._state(graph, hop)[part]
            messages.tensor[part] = self.topology.message(state, hop=hop)
        return Moved(moved.nodes, before, messages.tensor[moved.nodes])

    def _step(
        self,
        graph: GrowingGraph,
        change: GraphChange,
        sent: Changed,
        entries: Entries | None,
        hop: int,
    ) -> Changed:
        """Compute hop + 1 wherever it may be another, and return where it was what."""
        seeds = torch.from_numpy(graph.distinct(torch.cat([sent.nodes, change.touched]).numpy()))
        if self._reaches_most(graph, graph.num_gatherers(seeds), entries is None):
            return self._sum_all(graph, change.new, hop)
        if entries is None:
            nodes = graph.gatherers(seeds)
            before = self._states[hop].tensor[nodes]
            return Moved(nodes, before, self._sum_anew(graph, nodes, hop))
        return self._correct(graph, change, sent, entries, hop)

    @staticmethod
    def _reaches_most(graph: GrowingGraph, pairs: int, anew: bool) -> bool:
        """Whether to compute a hop of all nodes is the less; anew: rows would be summed anew.

        pairs: how often somebody feels a difference; nobody has looked yet who that is.
        """
        if anew:
            return pairs > WHOLE * graph.num_nodes
        rows = min(pairs, graph.num_nodes)
        return pairs + ROW * rows > WHOLE * (graph.num_edges + ROW * graph.num_nodes)

    def _correct(
        self, graph: GrowingGraph, change: GraphChange, sent: Changed, entries: Entries, hop: int
    ) -> Moved:
        """Correct hop + 1 by differences, and sum anew what is not worth it."""
        values, drift = self._source(graph, hop), self._drifts[hop].array
        found = differences(graph, self.smoother, sent, values, change.touched, entries)
        state = self._states[hop].tensor
        moved, due, tops = correct(graph, self.smoother, found, change.new, state, drift)
        due |= self._drifts[hop].tensor[moved.nodes] > self._most * tops
        moved.after[due] = self._sum_anew(graph, moved.nodes[due], hop)
        return moved

    def _sum_anew(self, graph: GrowingGraph, nodes: Tensor, hop: int) -> Tensor:
        """Compute hop + 1 of some nodes from all they gather from, and return it."""
        rows = torch.cat([self._next(graph, part, hop) for part in nodes.split(ROWS)])
        self._states[hop].tensor[nodes] = rows
        self._drifts[hop].array[nodes.numpy()] = 0
        return rows

    def settle(self, graph: GrowingGraph, nodes: Tensor, tops: Tensor) -> None:
        """Sum the last hop of nodes anew where rounding shows beside values of some size.

        nodes: int64 [n]; tops: the size of what is to be exact of each, float32 [n]
        """
        due = self._drifts[-1].tensor[nodes] > self._most * tops
        self._sum_anew(graph, nodes[due], len(self._states) - 1)

    def _sum_all(self, graph: GrowingGraph, new: Tensor, hop: int) -> Changed:
        """Compute hop + 1 of all nodes, and return whose is another, new nodes among them."""
        state, alive = self._states[hop].tensor, graph.alive.nonzero().flatten()
        earlier, other = state.clone(), torch.zeros(len(state), dtype=torch.bool)
        step = len(alive) if len(alive) * state.shape[1] <= AT_ONCE else ROWS
        for part in alive.split(max(step, 1)):
            state[part] = self._next(graph, part, hop)
        for start in range(0, len(state), ROWS):
            rows = slice(start, start + ROWS)
            other[rows] = torch.from_numpy(differ(state[rows].numpy(), earlier[rows].numpy()))
        other[new] = True
        self._drifts[hop].array[:] = 0
        nodes = other.nonzero().flatten()
        return LaterMoved(nodes, lambda: earlier[nodes], lambda: state[nodes])

    def _next(self, graph: GrowingGraph, nodes: Tensor, hop: int) -> Tensor:
        """Return hop + 1 of some nodes.  [nodes, width]"""
        smoothed = self.smoother.product(graph, nodes, self._source(graph, hop))
        if self._corrects:  # asks for nothing else
            return smoothed
        state, inputs = self._state(graph, hop), self._state(graph, 0)
        return self.topology.advance(smoothed, state[nodes], inputs[nodes], hop=hop)

    def _source(self, graph: GrowingGraph, hop: int) -> Tensor:
        """Return what is smoothed to make hop + 1."""
        messages = self._messages[hop]
        return self._state(graph, hop) if messages is None else messages.tensor

    def _state(self, graph: GrowingGraph, hop: int) -> Tensor:
        """Return H_hop of all positions."""
        if hop:
            return self._states[hop - 1].tensor
        return graph.features if self._inputs is None else self._inputs.tensor

    def of(self, nodes: Tensor) -> Tensor:
        """Return the embeddings of some nodes, unscaled.  int64 [k] -> float32 [k, dims]"""
        states = [torch.empty(0)] * (self.topology.hops + 1)
        for hop in self.topology.assembled:
            states[hop] = self._rows(hop, nodes)
        return self.topology.assemble(states)

    def _rows(self, hop: int, nodes: Tensor) -> Tensor:
        if hop:
            return self._states[hop - 1].tensor[nodes]
        if self._inputs is not None:
            return self._inputs.tensor[nodes]
        if self._graph is None:
            return torch.zeros(len(nodes), self._width)  # nobody has come yet
        return self._graph.features[nodes]

    def attach(self, graph: GrowingGraph) -> None:
        """Look at a graph, whose hops were restored or are to come.

        In snapshots of version 0.1.0 the last hop is not there: it is computed.
        """
        self._graph = graph
        if not self._complete:
            self._complete = True
            last = self._states[-1]
            last.extend(len(self._drifts[-1]) - len(last))
            alive = graph.alive[: len(last)].nonzero().flatten()
            self._sum_anew(graph, alive, self.topology.hops - 1)

    def _arrays(self) -> dict[str, GrowingArray]:
        named = {f"state_{hop}": array for hop, array in enumerate(self._states, 1)}
        named |= {f"drift_{hop}": array for hop, array in enumerate(self._drifts, 1)}
        sent = {f"message_{hop}": array for hop, array in enumerate(self._messages)}
        return named | {name: array for name, array in sent.items() if array is not None}

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph, inputs left out: they are another's."""
        yield from self._arrays().values()

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {name: array.state() for name, array in self._arrays().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        positions = len(state["scalings"])
        for name, array in self._arrays().items():
            if name in state:
                array.restore(state[name])
            elif name.startswith("drift"):  # an old snapshot: all rows were summed anew
                array.restore(torch.zeros(positions))
        self._complete = not self._states or f"state_{len(self._states)}" in state


def check_whole_rows(topology: TopologyEncoder) -> None:
    """Raise unless an f_topo sums rows of float32."""
    if topology.rows != "float32":
        raise ConfigurationError(
            "rows must be 'float32' for embeddings of a growing graph, which are corrected to the "
            f"last digit, not {topology.rows!r}"
        )


class LiveEmbeddings:
    """f_topo of every node of a growing graph, computed only where a change can be felt.

    A change is felt by new nodes, by those with other features, by those that gather from more or
    fewer than before or with other weights, and by all that look at any of these within L hops.
    For an f_topo that is a recursion over hops every hop of every node is kept, and rows are
    corrected by what has changed of the hop before, or summed anew from it, before rounding could
    leave a trace (see ``HopStates``). Others are computed from what lies around. Embeddings are
    kept unscaled, and scaled when they are asked for.

    Args:
        topology: the f_topo.
        num_features: how wide a node's features are.
        scaling: ``unit`` divides every embedding by its length, ``none`` leaves it.
        scheme: how Â is normalised, see ``LiveSmoother``; whole graphs are encoded symmetrically.
        drift: how much of a row's largest value rounding may come to, see ``HopStates``.

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
        self,
        topology: TopologyEncoder,
        *,
        num_features: int,
        scaling: Scaling = "unit",
        scheme: Normalisation = "symmetric",
        drift: float = DRIFT,
    ) -> None:
        check_integer("num_features", num_features, least=1)
        check_choice("scaling", scaling, ("unit", "none"))
        self.topology = topology
        self.num_features = num_features
        self.scaling = scaling
        if scheme != "symmetric" and not isinstance(topology, Stepwise):
            raise ConfigurationError(
                f"scheme must be 'symmetric' with topology {topology.name!r}, not {scheme!r}"
            )
        check_whole_rows(topology)
        self._smoother = LiveSmoother(self_loops=topology.self_loops, scheme=scheme)
        self._source: HopStates | Surroundings = Surroundings(topology, num_features)
        if isinstance(topology, Stepwise):
            self._source = HopStates(topology, self._smoother, num_features, drift=drift)

    @property
    def dims(self) -> int:
        """How long an embedding is."""
        return self._source.dims

    def update(self, graph: GrowingGraph, change: GraphChange) -> Tensor:
        """Follow a change of the graph, right after it was made; return whose embeddings are
        others now, new nodes among them, removed ones not.  int64 [n], ascending
        """
        self._smoother.refresh(graph, torch.cat([change.new, change.touched, change.removed]))
        renewed = change.renewed if len(change.renewed) else None
        return self._source.update(graph, change, renewed, change.former)

    def _scaled(self, rows: Tensor) -> Tensor:
        return self.topology.scaled(rows) if self.scaling == "unit" else rows

    def of(self, nodes: Tensor) -> Tensor:
        """Return the embeddings of some nodes.  int64 [k] -> float32 [k, dims]"""
        return self._scaled(self._source.of(nodes))

    def attach(self, graph: GrowingGraph) -> None:
        """Look at the graph again, once both were restored and before it changes."""
        self._source.attach(graph)

    def smoother(self) -> FrozenSmoother:
        """Return the normalised adjacency as it is now, for those who read while it changes."""
        return self._smoother.frozen()

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield from self._smoother.arrays()
        yield from self._source.arrays()

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return self._smoother.state() | self._source.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned; ``attach`` comes next."""
        self._smoother.restore(state)
        self._source.restore(state)
