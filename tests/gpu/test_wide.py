"""A graph of more than 2^31 entries on a GPU: nothing counts its entries in 32 bits."""

from dataclasses import replace

import pytest
import torch

from evergraph.graphs import Graph, covered_nodes, estimate_reach_sizes, reach_sizes, smoother
from evergraph.graphs.graph_folder import open_graph_folder
from evergraph.streams import GraphStream
from wide_folder import HEAVY, LIGHT, light_graph, wide_arrays, wide_folder

LAST = slice(HEAVY, HEAVY + len(LIGHT))
ROOM = 24 << 30  # bytes: 9 GB of entries, and what is computed of them


@pytest.fixture(scope="module")
def wide() -> Graph:
    """The graph of the sparse folder with all its zeros on the device."""
    if torch.cuda.mem_get_info()[0] < ROOM:
        pytest.skip("the device has less than 24 GiB free")
    indptr, tail = wide_arrays()
    indices = torch.zeros(int(indptr[-1]), dtype=torch.int32, device="cuda")
    indices[-len(tail) :] = tail.cuda()
    light = light_graph().to("cuda")
    return replace(light, indptr=indptr.cuda(), indices=indices)


def test_products_of_all_rows_by_triton(wide):
    pytest.importorskip("triton")
    ones = torch.ones(wide.num_nodes, 1, device="cuda")
    found = smoother(wide, scheme="none", kernel="triton").product(ones)
    assert found.flatten().equal(wide.degrees + 1.0)  # sums of ones, which float32 has all of


@pytest.mark.parametrize("kernel", ["torch", "triton"])
@pytest.mark.parametrize("self_loops", [False, True])
def test_products_of_the_last_rows(kernel, self_loops, wide):
    if kernel == "triton":
        pytest.importorskip("triton")
    light = light_graph()
    expected = smoother(light, self_loops=self_loops).rows(LAST).product(light.features)
    rows = smoother(wide, self_loops=self_loops, kernel=kernel).rows(LAST)
    found = rows.product(light.features.cuda())
    torch.testing.assert_close(found.cpu(), expected)


def test_rows_that_are_streamed_to_the_device(tmp_path):
    light, folder = light_graph(), wide_folder(tmp_path / "graph")
    expected = smoother(light).rows(LAST).product(light.features)
    rows = smoother(open_graph_folder(folder)).rows(LAST)
    torch.testing.assert_close(rows.product(light.features.cuda()).cpu(), expected)


def test_reach(wide):
    light = light_graph()
    assert reach_sizes(wide, LIGHT, hops=2).equal(reach_sizes(light, LIGHT, hops=2))
    covered = covered_nodes(light, LIGHT[:2], hops=2)
    assert covered_nodes(wide, LIGHT[:2], hops=2).equal(covered)
    expected = estimate_reach_sizes(light, LIGHT, hops=2, registers=8)
    assert estimate_reach_sizes(wide, LIGHT, hops=2, registers=8).equal(expected)


@pytest.mark.parametrize("edges", ["within", "all"])
def test_tasks(edges, wide):
    streams = [GraphStream(graph, edges=edges) for graph in (wide, light_graph())]
    for ours, theirs in zip(*streams, strict=True):
        assert ours.graph.indptr.dtype == torch.int32
        assert ours.graph.indptr.cpu().equal(theirs.graph.indptr)
        assert ours.graph.indices.cpu().equal(theirs.graph.indices)
