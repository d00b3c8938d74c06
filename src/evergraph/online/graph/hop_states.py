"""What every hop gives every node of a growing graph."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_smoother import LiveSmoother
from evergraph.topology import Stepwise

ROWS = 1 << 15  # computed at a time


class HopStates:
    """H_1, ..., H_{L-1} of an f_topo told hop by hop, kept for all nodes.

    H_{l+1} of a node changes where H_l changed of the node or of one it gathers from; H_1 also
    where one it gathers from has another degree, which is in Â. So a change costs the degrees of
    the nodes that feel it. H_0 is the graph's own features, or ``inputs`` in their place; H_L is
    not kept, as the embeddings are made of it and it changes wherever they do. Where a hop smooths
    something else than its state, that is kept as well.

    Args:
        topology: the f_topo.
        smoother: Â of the graph.
        num_features: how wide H_0 is.
        inputs: H_0 of every position, kept up to date by whoever owns it; the graph's features
            unless given.
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
        self._inputs = inputs
        self._states: list[GrowingArray] = []  # from hop 1 on
        self._messages: list[GrowingArray | None] = []  # from hop 0 on; None: the state itself
        self.dims = self._lay_out(torch.empty(0, num_features))

    def _lay_out(self, features: Tensor) -> int:
        """Make an array as wide as each hop is, and return how wide embeddings are."""
        states = [features]  # no rows, but columns
        for hop in range(self.topology.hops):
            message = self.topology.message(states[-1], hop=hop)
            own = message is not states[-1]
            self._messages.append(GrowingArray(message.shape[1]) if own else None)
            states.append(self.topology.advance(message, states[-1], features, hop=hop))
        self._states = [GrowingArray(state.shape[1]) for state in states[1:-1]]
        return self.topology.assemble(states).shape[1]

    @property
    def nbytes(self) -> int:
        """How many bytes the hops take."""
        return sum(array.nbytes for array in self._arrays().values())

    def update(
        self, graph: GrowingGraph, change: GraphChange, renewed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Follow a change; return who feels it and their embeddings, unscaled.  [k], [k, dims]

        renewed: nodes that were there before and whose H_0 is another now.  int64 [renewed]
        """
        for array in self._arrays().values():
            array.extend(graph.num_nodes - len(array))
            array.array[change.removed.numpy()] = 0
        changed = change.new if renewed is None else torch.cat([change.new, renewed])
        if not len(changed) + len(change.touched):
            return change.new, torch.empty(0, self.dims)
        for hop in range(self.topology.hops):
            self._send(graph, changed, hop)
            seeds = torch.cat([changed, change.touched]) if hop == 0 else changed
            changed = graph.gatherers(seeds)
            if hop < self.topology.hops - 1:
                self._step(graph, changed, hop)
        return changed, torch.cat([self._embed(graph, part) for part in changed.split(ROWS)])

    def _send(self, graph: GrowingGraph, nodes: Tensor, hop: int) -> None:
        """Compute anew what nodes give to the next hop."""
        messages = self._messages[hop]
        if messages is not None:
            for part in nodes.split(ROWS):
                state = self._state(graph, hop)[part]
                messages.tensor[part] = self.topology.message(state, hop=hop)

    def _step(self, graph: GrowingGraph, nodes: Tensor, hop: int) -> None:
        """Compute hop + 1 of some nodes and keep it."""
        for part in nodes.split(ROWS):
            self._states[hop].tensor[part] = self._next(graph, part, hop)

    def _next(self, graph: GrowingGraph, nodes: Tensor, hop: int) -> Tensor:
        """Return hop + 1 of some nodes.  [nodes, width]"""
        state, messages = self._state(graph, hop), self._messages[hop]
        source = state if messages is None else messages.tensor
        smoothed = self.smoother.product(graph, nodes, source)
        if type(self.topology).advance is Stepwise.advance:  # asks for nothing else
            return smoothed
        inputs = self._state(graph, 0)
        return self.topology.advance(smoothed, state[nodes], inputs[nodes], hop=hop)

    def _embed(self, graph: GrowingGraph, nodes: Tensor) -> Tensor:
        """Return the embeddings of some nodes.  [nodes, dims]"""
        hops = self.topology.hops
        last = self._next(graph, nodes, hops - 1) if hops else self._state(graph, 0)[nodes]
        if type(self.topology).assemble is Stepwise.assemble:  # asks for the last alone
            return last
        return self.topology.assemble(
            [*(self._state(graph, hop)[nodes] for hop in range(hops)), last]
        )

    def _state(self, graph: GrowingGraph, hop: int) -> Tensor:
        """Return H_hop of all positions."""
        if hop:
            return self._states[hop - 1].tensor
        return graph.features if self._inputs is None else self._inputs.tensor

    def _arrays(self) -> dict[str, GrowingArray]:
        named = {f"state_{hop}": array for hop, array in enumerate(self._states, 1)}
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
        for name, array in self._arrays().items():
            array.restore(state[name])
