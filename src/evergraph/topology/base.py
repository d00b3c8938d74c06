"""The interface of f_topo, whole and hop by hop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from evergraph.core.component import Part, Resolver, choice, integer
from evergraph.datasets.adapters import as_graph
from evergraph.graphs import Graph, Smoother, smoother
from evergraph.graphs.csr import densify
from evergraph.graphs.kernels.scaled_rows import ROW_TYPES, RowType
from evergraph.topology.rowwise import unit_parts, unit_rows

if TYPE_CHECKING:
    from typing_extensions import Self


class Stepwise(ABC):
    """An f_topo that is a recursion over hops.

        H_0 = X,  H_{l+1} = advance(Â message(H_l), H_l, X),  E = assemble([H_0, ..., H_L])

    Only Â mixes nodes. The three functions work on every row by itself, and the bits of a row must
    not depend on the other rows: with all H_l stored, any rows can then be recomputed with the same
    result as computing all of them (see ``rowwise`` for the pitfalls).

    An f_topo without such a recursion, such as one of exact rings, is not ``Stepwise``: its
    embeddings are computed from their whole surroundings.
    """

    hops: int
    linear: ClassVar[bool] = False  # whether E = Σ_l c_l Â^l X with constants c_l

    def message(self, state: Tensor, *, hop: int) -> Tensor:
        """Return the input of smoothing for hop + 1; the state itself by default.

        state: H_hop.  [rows, width]; -> [rows, any width]
        """
        return state

    def advance(self, smoothed: Tensor, state: Tensor, features: Tensor, *, hop: int) -> Tensor:
        """Return the next state H_{hop+1}; the smoothed values by default.

        smoothed: Â message(H_hop); state: H_hop; features: X; the same rows of each
        """
        return smoothed

    def assemble(self, states: Sequence[Tensor]) -> Tensor:
        """Return the embeddings; the last state by default.  states: H_0 = X, ..., H_L"""
        return states[-1]

    @property
    def assembled(self) -> Sequence[int]:
        """The states that ``assemble`` reads; the others may be empty."""
        overridden = type(self).assemble is not Stepwise.assemble
        return range(self.hops + 1) if overridden else (self.hops,)


def coefficients(topology: Stepwise) -> list[float] | None:
    """Return c_0, ..., c_L with E = Σ_l c_l Â^l X, or None if there are none.

    The recursion runs on polynomials in Â, with one column per power: X is 1, and smoothing moves
    every coefficient to the next power.

    >>> from evergraph.topology import PPR
    >>> coefficients(PPR(hops=2, alpha=0.5))  # ((Â + I) / 2)²
    [0.25, 0.5, 0.25]
    """
    if not topology.linear:
        return None
    constant = torch.zeros(1, topology.hops + 1, dtype=torch.float64)
    constant[0, 0] = 1.0
    states = [constant]
    for hop in range(topology.hops):
        smoothed = topology.message(states[-1], hop=hop).roll(1, dims=1)
        states.append(topology.advance(smoothed, states[-1], constant, hop=hop))
    coefficients_: list[float] = topology.assemble(states)[0].tolist()
    return coefficients_


@dataclass(kw_only=True, eq=False, repr=False)
class TopologyEncoder(Part, ABC):
    """f_topo of the paper: encodes each node's L-hop ego-subnetwork as one vector.

    It has no trained parameters, so an embedding stays valid as long as its graph does.

    Args:
        hops: L, the radius of an embedding.
        self_loops: whether Â includes a node among its own neighbours.
        dtype: type of neighbours' values while they are summed: ``float32``, or half the bytes with
            ``float16`` (3 digits, up to 65,504) or ``bfloat16`` (2 digits). Each hop rounds its
            input once; sums and embeddings are float32. Sparse features are not rounded while they
            stay sparse.
    """

    name: ClassVar[str]
    reads_labels: ClassVar[bool] = False  # whether embeddings depend on the labels a graph shows
    sees_weights: ClassVar[bool] = True  # whether embeddings depend on edge weights
    first_column = 0  # number of the first column given to it, if columns are smoothed differently

    hops: int = integer(2, least=0)
    self_loops: bool = True
    dtype: RowType = choice("float32", ROW_TYPES)

    def encode(self, graph: Any) -> Tensor:
        """Return the topology-aware embeddings of all nodes.  -> float32 [nodes, dims]

        graph: a ``Graph``, or anything that ``as_graph`` accepts.
        """
        return self.smooth(self.inputs(as_graph(graph)))

    def inputs(self, graph: Graph) -> Graph:
        """Return the graph whose features are smoothed; the graph itself by default."""
        return graph

    def smooth(self, inputs: Graph) -> Tensor:
        """Return the embeddings of prepared ``inputs``, or of some of their columns."""
        adjacency = smoother(inputs, self_loops=self.self_loops, held=self.dtype)
        return densify(self._embed(inputs, adjacency))

    def scaled(self, rows: Tensor, *, together: bool = False) -> Tensor:
        """Return embeddings whose ``units`` have unit length.  [n, dims] -> [n, dims]

        together: see ``unit_rows``.
        """
        if not together:
            return torch.from_numpy(unit_parts(rows.numpy(), self.units))
        parts = rows.reshape(len(rows) * self.units, rows.shape[1] // self.units)
        return unit_rows(parts, together=True).reshape(rows.shape)

    def from_column(self, first: int) -> Self:
        """Return the encoder for columns of ``inputs`` from the given one on."""
        part = copy(self)
        part.first_column = first
        return part

    @property
    def separable(self) -> bool:
        """Whether a column of the embeddings depends on one feature column alone."""
        return True

    @property
    def parts(self) -> int:
        """Number of embedding columns per feature column."""
        return 1

    @property
    def kept(self) -> Sequence[int]:
        """The hops that are side by side in an embedding; one if they are mixed."""
        return (self.hops,)

    @property
    def units(self) -> int:
        """Number of equally wide parts that are scaled to unit length by themselves."""
        return 1

    @property
    def arrays(self) -> int:
        """Number of arrays as large as the features that encoding holds at once."""
        return 3

    @abstractmethod
    def _embed(self, graph: Graph, adjacency: Smoother) -> Tensor:
        """Return the embeddings, given Â  [nodes, nodes]."""


topologies = Resolver[TopologyEncoder]("topology")
