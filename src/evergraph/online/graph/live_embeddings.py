"""Embeddings that follow a growing graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph
from evergraph.graphs.csr import repeat
from evergraph.graphs.normalisation import Normalisation
from evergraph.online.graph.corrections import DRIFT, Moved
from evergraph.online.graph.frozen_graph import FrozenGraph
from evergraph.online.graph.graph_change import EmbeddingUpdate
from evergraph.online.graph.growing_array import GrowingArray
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.hop_states import HopStates
from evergraph.online.graph.live_smoother import FrozenSmoother, LiveSmoother
from evergraph.topology import MixHop, Stepwise, TopologyEncoder
from evergraph.topology.base import coefficients
from evergraph.topology.cached import Scaling


def contributions(
    graph: FrozenGraph, smoother: FrozenSmoother, node: int, coefficients: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the positions that e_v = Σ_u w_u x_u sums over, and the weights.

    w = Σ_l c_l δ_v Â^l: one row goes through the graph, starting at the node alone, so the cost is
    that of its ego-subnetwork.

    coefficients: c_0, ..., c_L; -> int64 [nodes within L hops], ascending, float64 [nodes]
    """
    nodes, row = torch.tensor([node]), torch.ones(1, dtype=torch.float64)
    met, parts = [nodes], [row * coefficients[0]]
    for share in coefficients[1:]:
        indptr, columns, weights = smoother.rows(graph, nodes)
        nodes, row = _summed(columns, weights.double() * repeat(row, indptr.diff()))
        met.append(nodes)
        parts.append(row * share)
    return _summed(torch.cat(met), torch.cat(parts))


def _summed(nodes: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return each node once, ascending, with the sum of its values."""
    distinct, places = np.unique(nodes.numpy(), return_inverse=True)
    sums = np.bincount(places.reshape(-1), weights=values.numpy(), minlength=len(distinct))
    return torch.from_numpy(distinct.astype(np.int64)), torch.from_numpy(sums)


class Surroundings:
    """Any f_topo at the nodes that feel a change, encoded with all they look at.

    Nothing but embeddings is kept between changes. Who feels a change is encoded together with the
    nodes within L + 1 hops (degrees of the outermost count), so a change costs its surroundings of
    2L + 1 hops; an f_topo that is a recursion over hops costs L (see ``HopStates``). The same
    changes give the same bits, but a row's last bits may depend on the rows it is computed with.

    Args:
        topology: the f_topo.
        num_features: how wide a node's features are.
    """

    def __init__(self, topology: TopologyEncoder, num_features: int) -> None:
        self.topology = topology
        one = torch.zeros(1, num_features)
        lonely = Graph.from_edges(
            torch.empty(2, 0, dtype=torch.int64), features=one, labels=torch.zeros(1).long()
        )
        self.dims = topology.encode(lonely).shape[1]
        self._embeddings = GrowingArray(self.dims)  # unscaled

    @property
    def nbytes(self) -> int:
        """How many bytes the embeddings take."""
        return self._embeddings.nbytes

    def update(
        self,
        graph: GrowingGraph,
        change: GraphChange,
        renewed: Tensor | None = None,
        former: Tensor | None = None,
    ) -> Moved:
        """Follow a change; return who feels it, what embeddings were and are, unscaled."""
        self._embeddings.extend(graph.num_nodes - len(self._embeddings))
        self._embeddings.array[change.removed.numpy()] = 0
        changed, embeddings = self._encoded(graph, change, renewed)
        before = self.of(changed)
        self._embeddings.tensor[changed] = embeddings
        return Moved(changed, before, embeddings)

    def _encoded(
        self, graph: GrowingGraph, change: GraphChange, renewed: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return who feels a change, and their embeddings.  [k], [k, dims]"""
        changed = change.new
        if renewed is not None:
            changed = torch.cat([changed, renewed]).unique()
        for hop in range(self.topology.hops):
            seeds = torch.cat([changed, change.touched]) if hop == 0 else changed
            changed = graph.gatherers(seeds)
        if not len(changed):
            return changed, torch.empty(0, self.dims)
        around = changed
        for _ in range(self.topology.hops + 1):
            near = torch.from_numpy(graph.rows(around)[1]).long()
            around = torch.cat([around, near]).unique()
        embeddings = self.topology.encode(graph.induced(around))
        return changed, embeddings[torch.searchsorted(around, changed)]

    def of(self, nodes: Tensor) -> Tensor:
        """Return the embeddings of some nodes, unscaled.  int64 [k] -> float32 [k, dims]"""
        return self._embeddings.tensor[nodes]

    def attach(self, graph: GrowingGraph) -> None:
        """Look at a graph that was restored; of old snapshots all is encoded once more."""
        if not len(self._embeddings) and graph.num_nodes:
            self.update(graph, GraphChange(new=graph.alive.nonzero().flatten()))

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield the arrays that are as long as the graph."""
        yield self._embeddings

    def state(self) -> dict[str, Tensor]:
        """Return copies of everything kept, by name."""
        return {"unscaled": self._embeddings.state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        if "unscaled" in state:
            self._embeddings.restore(state["unscaled"])


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
    >>> moved = live.update(graph, graph.add(torch.tensor([[1.]]), torch.empty(2, 0).long()))
    >>> moved = live.update(graph, graph.add(torch.tensor([[3.]]), torch.tensor([[0], [1]])))
    >>> moved.nodes.tolist(), moved.before.flatten().tolist()
    ([0, 1], [1.0, 0.0])
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

    @property
    def nbytes(self) -> int:
        """How many bytes embeddings and the hops between take."""
        return self._source.nbytes

    def update(self, graph: GrowingGraph, change: GraphChange) -> EmbeddingUpdate:
        """Follow a change of the graph, right after it was made."""
        self._smoother.refresh(graph, torch.cat([change.new, change.touched, change.removed]))
        renewed = change.renewed if len(change.renewed) else None
        moved = self._source.update(graph, change, renewed, change.former)
        return EmbeddingUpdate(
            moved.nodes, lambda: self._scaled(moved.before), lambda: self._scaled(moved.after)
        )

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

    def weights(self, graph: GrowingGraph, node: int) -> tuple[Tensor, Tensor] | None:
        """Return positions u and weights w_u with e_v = Σ_u w_u x_u, before scaling.

        None where the f_topo is no such sum. -> int64 [nodes within L hops], float64 [nodes]
        """
        return self._weights(graph.frozen(), self.smoother(), node)

    def _weights(
        self, graph: FrozenGraph, smoother: FrozenSmoother, node: int
    ) -> tuple[Tensor, Tensor] | None:
        topology = self.topology
        powers = coefficients(topology) if isinstance(topology, Stepwise) else None
        return None if powers is None else contributions(graph, smoother, node, powers)

    def flows(
        self, graph: FrozenGraph, smoother: FrozenSmoother, node: int
    ) -> list[tuple[Tensor, Tensor]] | None:
        """Return ``weights`` of each part of an embedding that is of a length of its own.

        smoother: what ``smoother`` returned when the graph was as it is given.

        Hops that are kept apart are such parts; None where the f_topo is no such sum.
        """
        topology = self.topology
        if not isinstance(topology, MixHop):
            found = self._weights(graph, smoother, node)
            return None if found is None else [found]
        if self.scaling == "unit" and not topology.unit:
            return None  # all by one length
        powers = [[0.0] * hop + [1.0] for hop in topology.kept]
        return [contributions(graph, smoother, node, power) for power in powers]

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
