"""Embeddings that follow a growing graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer
from evergraph.online.change import Change
from evergraph.online.contributions import contributions
from evergraph.online.growing_array import GrowingArray
from evergraph.online.growing_graph import GrowingGraph
from evergraph.online.hop_states import HopStates
from evergraph.online.live_smoother import LiveSmoother
from evergraph.online.surroundings import Surroundings
from evergraph.topology import Stepwise, TopologyEncoder
from evergraph.topology.cached import Scaling
from evergraph.topology.rowwise import unit_rows
from evergraph.topology.stepwise import coefficients


@dataclass(frozen=True, eq=False)
class Moved:
    """Embeddings that were computed anew.

    Attributes:
        nodes: positions, ascending, new nodes among them; removed ones are not.  int64 [k]
        before: what the embeddings were, zeros for new nodes.  float32 [k, dims]
        after: what they are.  float32 [k, dims]
    """

    nodes: Tensor
    before: Tensor
    after: Tensor


class LiveEmbeddings:
    """f_topo of every node of a growing graph, computed only where a change can be felt.

    A change is felt by new nodes, by those that gather from more or fewer than before, and by all
    that look at either within L hops. For an f_topo that is a recursion over hops every hop of
    every node is kept, and rows are computed anew from the hop before (see ``HopStates``), never
    corrected by differences: nothing drifts. Others are computed from what lies around.

    Args:
        topology: the f_topo.
        num_features: how wide a node's features are.
        scaling: ``unit`` divides every embedding by its length, ``none`` leaves it.

    >>> from evergraph.topology import SGC
    >>> graph, live = GrowingGraph(num_features=1), LiveEmbeddings(SGC(hops=1), num_features=1,
    ...                                                            scaling="none")
    >>> moved = live.update(graph, graph.add(torch.tensor([[1.]]), torch.empty(2, 0).long()))
    >>> moved = live.update(graph, graph.add(torch.tensor([[3.]]), torch.tensor([[0], [1]])))
    >>> moved.nodes.tolist(), moved.before.flatten().tolist()
    ([0, 1], [1.0, 0.0])
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
        self._smoother = LiveSmoother(self_loops=topology.self_loops)
        self._source: HopStates | Surroundings = Surroundings(topology, num_features)
        if isinstance(topology, Stepwise):
            self._source = HopStates(topology, self._smoother, num_features)
        self._embeddings = GrowingArray(self.dims)

    @property
    def dims(self) -> int:
        """How long an embedding is."""
        return self._source.dims

    @property
    def nbytes(self) -> int:
        """How many bytes embeddings and the hops between take."""
        return self._embeddings.nbytes + self._source.nbytes

    def update(self, graph: GrowingGraph, change: Change) -> Moved:
        """Follow a change of the graph, right after it was made."""
        self._embeddings.extend(graph.num_nodes - len(self._embeddings))
        self._embeddings.array[change.removed.numpy()] = 0
        self._smoother.refresh(graph, torch.cat([change.new, change.touched, change.removed]))
        nodes, embeddings = self._source.update(graph, change)
        after = unit_rows(embeddings) if self.scaling == "unit" else embeddings
        before = self.of(nodes)
        self._embeddings.array[nodes.numpy()] = after.numpy()
        return Moved(nodes, before, after)

    def of(self, nodes: Tensor) -> Tensor:
        """Return the embeddings of some nodes.  int64 [k] -> float32 [k, dims]"""
        return self._embeddings.tensor[nodes]

    def weights(self, graph: GrowingGraph, node: int) -> tuple[Tensor, Tensor] | None:
        """Return positions u and weights w_u with e_v = Σ_u w_u x_u, before scaling.

        None where the f_topo is no such sum. -> int64 [nodes within L hops], float64 [nodes]
        """
        topology = self.topology
        powers = coefficients(topology) if isinstance(topology, Stepwise) else None
        return None if powers is None else contributions(graph, self._smoother, node, powers)

    def state(self) -> dict[str, Tensor]:
        """Return copies of everything kept, by name."""
        kept = {"embeddings": self._embeddings.state()}
        return kept | self._smoother.state() | self._source.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self._embeddings.restore(state["embeddings"])
        self._smoother.restore(state)
        self._source.restore(state)
