"""Six nodes with two features, three classes and any edges; and what a graph's arrays say."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from evergraph.graphs import UNLABELLED, Graph
from graphs_to_draw import Pairs, edge_index

NODES = 6

pairs = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=18)


def graph_of(pairs: Pairs, *, undirected: bool = False, time: Tensor | None = None) -> Graph:
    return Graph.from_edges(
        edge_index(pairs),
        features=torch.arange(2.0 * NODES).reshape(NODES, 2),
        labels=torch.tensor([0, 1, 2, 0, 1, UNLABELLED]),
        time=time,
        undirected=undirected,
    )


def matrix_of(graph: Graph) -> Tensor:
    """Read the record's own arrays, entry by entry; an entry stored twice would count two."""
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes)
    for node in range(graph.num_nodes):
        for other in graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist():
            matrix[node, other] += 1
    return matrix
