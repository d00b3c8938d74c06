"""What an f_topo is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.core.component import Part
from evergraph.core.resolver import Resolver
from evergraph.datasets.doors import as_graph
from evergraph.graphs import Graph, Smoother, smoother
from evergraph.graphs.csr import densify
from evergraph.graphs.kernels.scaled_rows import ROW_TYPES, RowType
from evergraph.topology.rowwise import unit_rows


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
