"""What an f_topo is, whole and hop by hop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.core.component import Part
from evergraph.core.resolver import Resolver
from evergraph.datasets.doors import as_graph
from evergraph.graphs import Graph, Smoother, smoother
from evergraph.graphs.csr import densify
from evergraph.graphs.kernels.scaled_rows import ROW_TYPES, RowType
from evergraph.topology.rowwise import unit_rows


class Stepwise(ABC):
    """An f_topo that is a recursion over hops.

        H_0 = X,  H_{l+1} = advance(Â message(H_l), H_l, X),  E = assemble([H_0, ..., H_L])

    Only Â joins nodes. Each of the three works on every row by itself, and a row's bits must not
    depend on which other rows are there: whoever keeps all H_l can compute any rows anew and gets
    what computing all of them would give (see ``rowwise`` for what to beware of).

    An f_topo without such a recursion, as one of exact rings, is not ``Stepwise``: its embeddings
    are computed from their whole surroundings.
    """

    hops: int
    linear: ClassVar[bool] = False  # whether E = Σ_l c_l Â^l X with plain numbers c_l

    def message(self, state: Tensor, *, hop: int) -> Tensor:
        """Return what is smoothed to make hop + 1; the state itself unless overridden.

        state: H_hop.  [rows, width]; -> [rows, any width]
        """
        return state

    def advance(self, smoothed: Tensor, state: Tensor, features: Tensor, *, hop: int) -> Tensor:
        """Return the next state H_{hop+1}; what was smoothed unless overridden.

        smoothed: Â message(H_hop); state: H_hop; features: X; the same rows of each
        """
        return smoothed

    def assemble(self, states: Sequence[Tensor]) -> Tensor:
        """Return the embeddings; the last state unless overridden.  states: H_0 = X, ..., H_L"""
        return states[-1]

    @property
    def assembled(self) -> Sequence[int]:
        """Which states ``assemble`` looks at; it is given others too, or empty ones for them."""
        own = type(self).assemble is not Stepwise.assemble
        return range(self.hops + 1) if own else (self.hops,)


def coefficients(topology: Stepwise) -> list[float] | None:
    """Return c_0, ..., c_L with E = Σ_l c_l Â^l X, or None where there are none.

    The recursion runs on polynomials in Â, a column for each power: X is 1, and smoothing moves
    every coefficient to the next power.

    >>> from evergraph.topology import PPR
    >>> coefficients(PPR(hops=2, alpha=0.5))  # ((Â + I) / 2)²
    [0.25, 0.5, 0.25]
    """
    if not topology.linear:
        return None
    one = torch.zeros(1, topology.hops + 1, dtype=torch.float64)
    one[0, 0] = 1.0
    states = [one]
    for hop in range(topology.hops):
        smoothed = topology.message(states[-1], hop=hop).roll(1, dims=1)
        states.append(topology.advance(smoothed, states[-1], one, hop=hop))
    found: list[float] = topology.assemble(states)[0].tolist()
    return found


class TopologyEncoder(Part, ABC):
    """f_topo of the paper: compresses each node's L-hop ego-subnetwork into one vector.

    It has no trainable parameters, so an embedding stays valid for as long as its graph does.

    Args:
        hops: L, how far an embedding looks.
        self_loops: whether a node counts among its own neighbours in Â.
        rows: what neighbours' values are held in while they are summed: ``float32``, or half as
            many bytes, ``float16`` (3 digits, up to 65,504) or ``bfloat16`` (2 digits). Each hop
            rounds what it gathers once; sums and embeddings are float32. Sparse features are
            not rounded while they stay sparse.
    """

    name: ClassVar[str]
    reads_labels: ClassVar[bool] = False  # whether embeddings depend on the labels a graph shows
    sees_weights: ClassVar[bool] = True  # whether they depend on the weights of edges

    def __init__(
        self, *, hops: int = 2, self_loops: bool = True, rows: RowType = "float32"
    ) -> None:
        check_integer("hops", hops, least=0)
        check_choice("rows", rows, ROW_TYPES)
        self.hops = hops
        self.self_loops = self_loops
        self.rows: RowType = rows

    def encode(self, graph: Any, *, adjacency: Smoother | None = None) -> Tensor:
        """Return the topology-aware embeddings of all nodes.  -> float32 [nodes, dims]

        graph: a ``Graph``, or whatever ``as_graph`` takes for one; adjacency: the graph's Â, where
        its products are to be computed in some other way.
        """
        return self.smooth(self.inputs(as_graph(graph)), adjacency=adjacency)

    def inputs(self, graph: Graph) -> Graph:
        """Return the graph whose features are smoothed; the graph itself unless overridden."""
        return graph

    def smooth(self, inputs: Graph, *, adjacency: Smoother | None = None) -> Tensor:
        """Return the embeddings that ``inputs`` of a graph, or some of their columns, give."""
        if adjacency is None:
            adjacency = smoother(inputs, self_loops=self.self_loops, held=self.rows)
        return densify(self._embed(inputs, adjacency))

    def scaled(self, rows: Tensor, *, together: bool = False) -> Tensor:
        """Return embeddings divided by their lengths.  [n, dims] -> [n, dims]

        together: see ``unit_rows``.
        """
        return unit_rows(rows, together=together)

    def from_column(self, first: int) -> TopologyEncoder:
        """Return what encodes some columns of ``inputs``, the first of which is given.

        Itself unless columns differ in how they are smoothed.
        """
        return self

    @property
    def separable(self) -> bool:
        """Whether a column of the embeddings depends on one column of the features alone."""
        return True

    @property
    def parts(self) -> int:
        """How many columns of the embeddings each column of the features gives."""
        return 1

    @property
    def arrays(self) -> int:
        """How many arrays as large as the features are held at once while a graph is encoded."""
        return 3

    @abstractmethod
    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        """Return the embeddings, given Â  [nodes, nodes]."""


class TeleportingEncoder(TopologyEncoder):
    """An f_topo that mixes a share ``alpha`` of a node's own features back in.

    Args:
        alpha: the share, between 0 (neighbours only) and 1 (own features only).
    """

    def __init__(
        self,
        *,
        hops: int = 2,
        alpha: float = 0.1,
        self_loops: bool = True,
        rows: RowType = "float32",
    ) -> None:
        super().__init__(hops=hops, self_loops=self_loops, rows=rows)
        check_number("alpha", alpha, least=0.0, most=1.0)
        self.alpha = alpha


topologies = Resolver[TopologyEncoder]("topology")
