"""Rows that go to a device range by range give the product of all of them."""

from __future__ import annotations

import pytest
import torch

from evergraph.graphs import Graph
from evergraph.graphs.kernels import products
from evergraph.graphs.propagation import smoother


@pytest.mark.parametrize("self_loops", [True, False])
def test_ranges_give_the_whole(self_loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(50, (2, 300), generator=generator)
    graph = Graph.from_edges(
        edges, features=torch.rand(50, 7), labels=torch.zeros(50, dtype=torch.long)
    )
    whole = smoother(graph, self_loops=self_loops, kernel="torch")
    monkeypatch.setattr(products, "STREAMED_ENTRIES", 40)
    add, out = torch.rand(50, 7), torch.empty(50, 7)
    products.streamed_product(whole, graph.features, out, add=add, scale=0.5, add_scale=2.0)
    torch.testing.assert_close(out, 0.5 * (whole.matrix @ graph.features) + 2 * add)
    part = whole.rows(slice(10, 30))
    some = torch.empty(20, 7)
    products.streamed_product(part, graph.features, some, add=None, scale=1.0, add_scale=1.0)
    torch.testing.assert_close(some, (whole.matrix @ graph.features)[10:30])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_features_on_a_gpu_and_the_adjacency_in_host_memory() -> None:
    edges = torch.randint(50, (2, 300), generator=torch.Generator().manual_seed(0))
    graph = Graph.from_edges(
        edges, features=torch.rand(50, 7), labels=torch.zeros(50, dtype=torch.long)
    )
    operator = smoother(graph)
    found = operator.product(graph.features.cuda())
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), operator.product(graph.features))
