"""Embeddings of a growing graph, updated where a change affects them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
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
from evergraph.online.graph.growing_array import GrowingArray, StoredPart
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_smoother import FrozenSmoother, LiveSmoother
from evergraph.online.graph.neighbour_lists import Entries
from evergraph.online.graph.surroundings import Surroundings
from evergraph.topology import MixHop, Stepwise, TopologyEncoder
from evergraph.topology.cached import Scaling

ROWS = 1 << 15  # computed at a time
# From this share of the work on, all rows are recomputed. Adding an entry costs 1, and so does
# pushing a difference; a row costs ROW in addition, corrected or recomputed, as it is read, kept,
# compared and written (measured at 32 and 128 columns). If rows are not corrected, WHOLE is a share
# of the positions instead: then most rows are affected.
WHOLE, ROW = 0.3, 4


PUT_SIDE_BY_SIDE = (Stepwise.assemble, MixHop.assemble)


class HopStates:
    """H_1, ..., H_L of an f_topo that is a recursion over hops, kept for all nodes.

    H_{l+1} of a node changes if H_l of the node or of an in-neighbour changed; H_1 also if the
    degree of an in-neighbour changed, as degrees are part of Â. So a change costs its frontier. A
    row of the frontier is corrected by the differences that reach it, or recomputed from all its
    in-neighbours, whichever is cheaper; ``corrections`` explains why rounding does not accumulate.
    If nodes are removed, all affected rows are recomputed, so that no trace of them stays. If a
    change affects most of the graph, all rows are recomputed without looking for a frontier.

    H_0 is the graph's features, or ``inputs`` instead. If a hop smooths something other than its
    state, that is kept as well.

    Args:
        topology: the f_topo.
        smoother: Â of the graph.
        num_features: width of H_0.
        inputs: H_0 of every position, kept up to date by its owner; by default the graph's
            features.
        drift: bound on the rounding error, relative to a row's largest value, above which the row
            is recomputed.
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
        self._states: list[GrowingArray] = []  # starting at hop 1
        self._messages: list[GrowingArray | None] = []  # starting at hop 0; None: the state itself
        self.dims = self._lay_out(torch.empty(0, num_features))
        self._drifts = [GrowingArray() for _ in self._states]
        self._complete = True  # whether the last hop is there; snapshots of 0.1.0 lack it

    def _lay_out(self, features: Tensor) -> int:
        """Create the array of each hop, and return the width of embeddings."""
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
        """Whether a state is just the smoothed message, so that differences can correct it."""
        return type(self.topology).advance is Stepwise.advance

    def update(
        self,
        graph: GrowingGraph,
        change: GraphChange,
        renewed: Tensor | None = None,
        former: Tensor | None = None,
    ) -> Tensor:
        """Follow a change; return the nodes whose embeddings changed.  int64 [n], ascending

        renewed: nodes whose H_0 changed, with or without new ones, ascending, int64 [renewed];
        former: their old H_0.  float32 [renewed, width]
        """
        assert self._complete, "a graph is attached after restoring, before it changes"
        self._graph = graph
        for array in self._arrays().values():
            array.extend(graph.num_nodes - len(array))
            array.array[change.removed.numpy()] = 0
        moved: Changed = self._inputs_moved(graph, change, renewed, former)
        if not len(moved.nodes) + len(change.touched):
            return change.new
        entries = None if len(change.removed) or not self._corrects else change.known_entries
        hops = [moved.nodes]  # not what rows were: that may be as large as the state
        for hop in range(self.topology.hops):
            moved = self._step(graph, change, self._send(graph, moved, hop), entries, hop)
            hops.append(moved.nodes)
        used = [hops[hop] for hop in self.topology.assembled]
        if len(used) == 1:
            return used[0]
        return torch.from_numpy(graph.distinct(torch.cat(used).numpy()))

    def _inputs_moved(
        self,
        graph: GrowingGraph,
        change: GraphChange,
        renewed: Tensor | None,
        former: Tensor | None,
    ) -> Moved:
        """Return the nodes whose H_0 changed, with the old values: zeros for new nodes."""
        inputs = self._state(graph, 0)
        width = inputs.shape[1]
        if renewed is None:
            return Moved(change.new, torch.zeros(len(change.new), width))
        first = int(change.new[0]) if len(change.new) else graph.num_nodes
        old = renewed[renewed < first]
        assert former is not None, "renewed nodes come with their old H_0"
        before = torch.cat([former[renewed < first], torch.zeros(len(change.new), width)])
        return Moved(torch.cat([old, change.new]), before)

    def _send(self, graph: GrowingGraph, moved: Changed, hop: int) -> Changed:
        """Recompute the messages of nodes to the next hop, and return old and new ones."""
        messages = self._messages[hop]
        if messages is None:
            return moved
        before = messages.tensor[moved.nodes]
        for part in moved.nodes.split(ROWS):
            state = self._state(graph, hop)[part]
            messages.tensor[part] = self.topology.message(state, hop=hop)
        return Moved(moved.nodes, before)

    def _step(
        self,
        graph: GrowingGraph,
        change: GraphChange,
        sent: Changed,
        entries: Entries | None,
        hop: int,
    ) -> Changed:
        """Update hop + 1 wherever it may have changed, and return old and new rows."""
        seeds = torch.from_numpy(graph.distinct(torch.cat([sent.nodes, change.touched]).numpy()))
        pairs = graph.num_gatherers(seeds)  # of a difference and a row, which is not known yet
        rows = min(pairs, graph.num_nodes)
        if entries is None:
            most = pairs > WHOLE * graph.num_nodes
        else:
            most = pairs + ROW * rows > WHOLE * (graph.num_edges + ROW * graph.num_nodes)
        if most:
            return self._sum_all(graph, change.new, hop)
        if entries is None:
            nodes = graph.gatherers(seeds)
            self._sum_anew(graph, nodes, hop)
            return Moved(nodes, self._states[hop].room(0))  # nobody corrects what comes after
        return self._correct(graph, change, sent, entries, hop)

    def _correct(
        self, graph: GrowingGraph, change: GraphChange, sent: Changed, entries: Entries, hop: int
    ) -> Moved:
        """Correct hop + 1 by differences, and recompute rows for which that does not pay."""
        values, drift = self._source(graph, hop), self._drifts[hop].array
        states = self._states[hop]
        found = differences(graph, self.smoother, sent, values, change.touched, entries, states)
        keep = hop + 1 < self.topology.hops
        given = (graph, self.smoother, found, change.new, states, drift)
        moved, due, tops = correct(*given, keep=keep)
        due |= self._drifts[hop].tensor[moved.nodes] > self._most * tops
        self._sum_anew(graph, moved.nodes[due], hop)
        return moved

    def _sum_anew(self, graph: GrowingGraph, nodes: Tensor, hop: int) -> None:
        """Recompute hop + 1 of some nodes from all their in-neighbours."""
        states = self._states[hop]
        for rows in states.blocks(len(nodes), ROWS):
            states.tensor[nodes[rows]] = self._next(graph, nodes[rows], hop)
        self._drifts[hop].array[nodes.numpy()] = 0

    def settle(self, graph: GrowingGraph, nodes: Tensor, tops: Tensor) -> None:
        """Recompute the last hop of nodes whose rounding error is large relative to some size.

        nodes: int64 [n]; tops: these sizes, float32 [n]
        """
        self.sum_last(graph, nodes[self._drifts[-1].tensor[nodes] > self._most * tops])

    def sum_last(self, graph: GrowingGraph, nodes: Tensor) -> None:
        """Recompute the last hop of some nodes."""
        self._sum_anew(graph, nodes, len(self._states) - 1)

    @property
    def last(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """H_L, and the bound on the rounding error of each row.  [n, width], [n]"""
        return self._states[-1].array, self._drifts[-1].array

    def _sum_all(self, graph: GrowingGraph, new: Tensor, hop: int) -> Changed:
        """Recompute hop + 1 of all nodes, and return those that changed, including new nodes."""
        states, alive = self._states[hop], graph.alive.nonzero().flatten()
        other, full = torch.zeros(len(states), dtype=torch.bool), len(alive) == len(states)
        earlier = states.replace()  # no copy is needed, since every row is written again
        state = states.tensor
        if not full:
            state[~graph.alive] = 0
        for rows in states.blocks(len(alive), ROWS):
            part = alive[rows]
            if full and self._corrects:
                now, were = self._next(graph, part, hop, state[rows]), earlier[rows]
            else:
                now, were = self._next(graph, part, hop), earlier[part]
                state[part] = now
            other[part] = torch.from_numpy(differ(now.numpy(), were.numpy()))
        other[new] = True
        self._drifts[hop].array[:] = 0
        nodes = other.nonzero().flatten()
        return LaterMoved(nodes, lambda: earlier[nodes])

    def _next(
        self, graph: GrowingGraph, nodes: Tensor, hop: int, out: Tensor | None = None
    ) -> Tensor:
        """Return hop + 1 of some nodes; out: where it is written if it is only smoothed.

        -> [nodes, width]
        """
        smoothed = self.smoother.product(graph, nodes, self._source(graph, hop), out)
        if self._corrects:  # ``advance`` would return it unchanged
            return smoothed
        state, inputs = self._state(graph, hop), self._state(graph, 0)
        return self.topology.advance(smoothed, state[nodes], inputs[nodes], hop=hop)

    def _source(self, graph: GrowingGraph, hop: int) -> Tensor:
        """Return the values that are smoothed to hop + 1."""
        messages = self._messages[hop]
        return self._state(graph, hop) if messages is None else messages.tensor

    def _state(self, graph: GrowingGraph | None, hop: int) -> Tensor:
        """Return H_hop of all positions."""
        if hop:
            return self._states[hop - 1].tensor
        if self._inputs is not None:
            return self._inputs.tensor
        assert graph is not None, "only the features of a graph that is attached are read"
        return graph.features

    def of(self, nodes: Tensor) -> Tensor:
        """Return the embeddings of some nodes, unscaled.  int64 [k] -> float32 [k, dims]"""
        states = [torch.empty(0)] * (self.topology.hops + 1)
        for hop in self.topology.assembled:
            if hop or self._inputs is not None or self._graph is not None:
                states[hop] = self._state(self._graph, hop)[nodes]
            else:  # before the first node
                states[hop] = torch.zeros(len(nodes), self._width)
        return self.topology.assemble(states)

    @property
    def stored(self) -> list[npt.NDArray[Any]] | None:
        """The arrays that ``of`` puts side by side; None if it computes something else."""
        if self._graph is None or type(self.topology).assemble not in PUT_SIDE_BY_SIDE:
            return None
        return [self._state(self._graph, hop).numpy() for hop in self.topology.assembled]

    def attach(self, graph: GrowingGraph) -> None:
        """Attach a graph; in snapshots of version 0.1.0 the last hop is missing and is computed."""
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
        """Yield the arrays that are as long as the graph, except inputs, which it does not own."""
        yield from self._arrays().values()

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return {name: array.state() for name, array in self._arrays().items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        positions = len(state["scalings"])
        for name, array in self._arrays().items():
            if name in state:
                array.restore(state[name])
            elif name.startswith("drift"):  # an old snapshot, in which rows had no drift
                array.restore(torch.zeros(positions))
        self._complete = not self._states or f"state_{len(self._states)}" in state


def check_whole_rows(topology: TopologyEncoder) -> None:
    """Raise unless an f_topo sums rows of float32."""
    if topology.dtype != "float32":
        raise ConfigurationError(
            "dtype must be 'float32' for embeddings of a growing graph, which are corrected by "
            f"small differences, not {topology.dtype!r}"
        )


class LiveEmbeddings:
    """f_topo of every node of a growing graph, updated only where a change affects it.

    A change affects new nodes, nodes with new features, nodes whose in-neighbours or weights
    changed, and all nodes within L hops of these. For an f_topo that is a recursion over hops,
    every hop of every node is kept, and rows are corrected by the differences of the previous hop,
    or recomputed before rounding errors could show (see ``HopStates``). Any other f_topo is
    computed from the neighbourhood (see ``Surroundings``). Embeddings are kept unscaled, and scaled
    when they are read.

    Args:
        topology: the f_topo.
        num_features: width of the features.
        scaling: ``unit`` divides every embedding by its length, ``none`` does not.
        scheme: normalisation of Â, see ``LiveSmoother``; whole graphs are encoded symmetrically.
        drift: bound on the rounding error, see ``HopStates``.

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
        """Width of an embedding."""
        return self._source.dims

    def update(self, graph: GrowingGraph, change: GraphChange) -> Tensor:
        """Follow a change of the graph, right after it was made; return the nodes whose embeddings
        changed, including new nodes but not removed ones.  int64 [n], ascending
        """
        self._smoother.refresh(graph, torch.cat([change.new, change.touched, change.removed]))
        renewed = change.renewed if len(change.renewed) else None
        return self._source.update(graph, change, renewed, change.former)

    def _scaled(self, rows: Tensor) -> Tensor:
        return self.topology.scaled(rows) if self.scaling == "unit" else rows

    def of(self, nodes: Tensor) -> Tensor:
        """Return the embeddings of some nodes.  int64 [k] -> float32 [k, dims]"""
        return self._scaled(self._source.of(nodes))

    def stored(self) -> list[StoredPart] | None:
        """Return the parts of all embeddings without copying, None if they are computed."""
        rows = self._source.stored if isinstance(self._source, HopStates) else None
        apart = len(rows or ()) == 1 or (isinstance(self.topology, MixHop) and self.topology.unit)
        if rows is None or not (apart or self.scaling == "none"):
            return None
        return [StoredPart(part, unit=self.scaling == "unit") for part in rows]

    def attach(self, graph: GrowingGraph) -> None:
        """Attach the graph, once both were restored and before it changes."""
        self._source.attach(graph)

    def smoother(self) -> FrozenSmoother:
        """Return the current normalised adjacency, readable while it changes."""
        return self._smoother.frozen()

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield from self._smoother.arrays()
        yield from self._source.arrays()

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        return self._smoother.state() | self._source.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned; call ``attach`` next."""
        self._smoother.restore(state)
        self._source.restore(state)
