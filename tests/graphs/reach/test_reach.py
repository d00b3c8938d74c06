"""Ego-subnetworks by hand, and against boolean matrix powers."""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ResourceError, UnknownNameError
from evergraph.core.resources import Resources
from evergraph.graphs import covered_nodes, csr, estimate_reach_sizes, reach, reach_sizes
from evergraph.graphs import reachability as searched_reach
from evergraph.graphs.reachability import (
    ball_blocks,
    choose,
    predicted_seconds,
    reaching_nodes,
    search,
    search_costs,
    searched_sizes,
    walk_counts,
)
from graphs_to_draw import Pairs, few_each, graph_of, matrix_of, path_pairs, ring_pairs, star_pairs

pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14)
node_lists = st.lists(st.integers(0, 5), max_size=8)


def walks(pairs: Pairs, hops: int, *, undirected: bool) -> Tensor:
    """(A + I)^hops, dense: how many walks lead from a row's node to a column's."""
    matrix = matrix_of(pairs, undirected=undirected) + torch.eye(6)
    return torch.linalg.matrix_power(matrix, hops)


def lists(found: list[Tensor]) -> list[list[int]]:
    return [nodes.tolist() for nodes in found]


def widest(blocks: Iterable[tuple[slice, Iterable[Any]]]) -> list[tuple[slice, Any]]:
    """Every block of nodes, with what they reach within all hops."""
    return [(block, [*balls][-1]) for block, balls in blocks]


PATH = graph_of(path_pairs(5))  # 0 - 1 - 2 - 3 - 4, and 5 apart
STAR = graph_of(star_pairs(5))  # 1 .. 5 around 0
ENDS = torch.tensor([4, 0, 5])


def test_covered_nodes_by_hand():
    ends = torch.tensor([0, 4])
    assert covered_nodes(PATH, ends, hops=0).tolist() == [1, 0, 0, 0, 1, 0]
    assert covered_nodes(PATH, ends, hops=1).tolist() == [1, 1, 0, 1, 1, 0]
    assert covered_nodes(PATH, ends, hops=2).tolist() == [1, 1, 1, 1, 1, 0]
    assert covered_nodes(PATH, ends, hops=0).dtype == torch.bool


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("hops", range(4))
@few_each
@given(pairs=pairs, nodes=node_lists)
def test_reach_is_matrix_powers(undirected, hops, pairs, nodes):
    graph = graph_of(pairs, undirected=undirected)
    wanted = torch.tensor(nodes, dtype=torch.int64)
    all_within = walks(pairs, hops, undirected=undirected) > 0
    within = all_within[wanted]
    assert lists(reach(graph, wanted, hops=hops)) == [
        row.nonzero().flatten().tolist() for row in within
    ]
    assert reach_sizes(graph, wanted, hops=hops).equal(within.sum(1))
    assert covered_nodes(graph, wanted, hops=hops).equal(within.any(0))
    assert reaching_nodes(graph, wanted, hops=hops).equal(all_within[:, wanted].any(1))
    assert wanted.tolist() == nodes


@pytest.mark.parametrize("undirected", [True, False])
@few_each
@given(pairs=pairs, hops=st.integers(0, 3), limit=st.integers(1, 60))
def test_blocks_are_cut_by_cost(undirected, pairs, hops, limit):
    graph, nodes = graph_of(pairs, undirected=undirected), torch.tensor([5, 0, 3, 3, 1, 2, 4])
    counts = walks(pairs, hops, undirected=undirected)[nodes]
    blocks = widest(ball_blocks(graph, nodes, hops=hops, block_walks=limit))
    together = scipy.sparse.vstack([members for _, members in blocks]).toarray()
    assert together.dtype == np.bool_
    assert (together == (counts > 0).numpy()).all()
    starts = [block.start for block, _ in blocks]
    stops = [block.stop for block, _ in blocks]
    assert starts == [0, *stops[:-1]]
    assert stops[-1] == len(nodes)
    costs = counts.sum(1)
    for block, members in blocks:
        size = block.stop - block.start
        assert members.shape == (size, 6)
        assert size == 1 or costs[block].sum() <= limit
        # and no block is smaller than it had to be
        assert block.stop == len(nodes) or costs[block.start : block.stop + 1].sum() > limit


def test_tiny_blocks_arise_and_a_node_too_dear_for_any_gets_one_of_its_own():
    # 1-hop walks: 6 from the middle, 2 from a leaf; a limit of 4 takes two leaves at a time
    nodes = torch.tensor([1, 2, 3, 0, 4, 5])
    blocks = widest(ball_blocks(STAR, nodes, hops=1, block_walks=4))
    cut = [(block.start, block.stop) for block, _ in blocks]
    assert cut == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert blocks[2][1].toarray().all()


@pytest.mark.parametrize("undirected", [True, False])
@few_each
@given(pairs=pairs, nodes=node_lists, hops=st.integers(0, 3), limit=st.integers(1, 60))
def test_spreading_block_by_block_changes_nothing(undirected, pairs, nodes, hops, limit):
    graph, wanted = graph_of(pairs, undirected=undirected), torch.tensor(nodes, dtype=torch.int64)
    within = walks(pairs, hops, undirected=undirected) > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(csr.BLOCK_ENTRIES, "cpu", limit)
        assert covered_nodes(graph, wanted, hops=hops).equal(within[wanted].any(0))
        assert reaching_nodes(graph, wanted, hops=hops).equal(within[:, wanted].any(1))
        counts = walks(pairs, hops, undirected=undirected).sum(1).double()
        assert walk_counts(graph, hops=hops).equal(counts)
        assert walk_counts(graph, wanted, hops=hops).equal(counts[wanted])


@pytest.mark.parametrize("undirected", [True, False])
@few_each
@given(pairs=pairs, nodes=node_lists, hops=st.integers(0, 4))
def test_searches_are_products(undirected, pairs, nodes, hops):
    graph = graph_of(pairs, undirected=undirected)
    sizes = np.empty(len(nodes), dtype=np.int64)
    indptr, indices = graph.indptr.numpy(), graph.indices.numpy()
    search(indptr, indices, np.array(nodes, dtype=np.int64), hops, sizes, 0, len(nodes))
    within = walks(pairs, hops, undirected=undirected)[nodes] > 0
    assert sizes.tolist() == within.sum(1).tolist()


def test_a_search_still_counts_after_its_marks_were_wiped():
    ring = graph_of(ring_pairs(600), 600)
    sizes = np.empty(600, dtype=np.int64)
    search(ring.indptr.numpy(), ring.indices.numpy(), np.arange(600), 2, sizes, 0, 600)
    assert set(sizes.tolist()) == {5}


def test_searches_are_spread_over_workers():
    class Two(type(Resources().engine)):
        workers = 2

    nodes = torch.tensor([4, 0, 5, 2, 2, 1])
    costs = search_costs(PATH, nodes, hops=2)
    for resources in (None, Resources(engine=Two())):
        found = searched_sizes(PATH, nodes, hops=2, costs=costs, resources=resources)
        assert found.tolist() == [3, 3, 1, 5, 5, 4]
    assert searched_sizes(PATH, nodes[:0], hops=2, costs=costs[:0]).tolist() == []


def test_costs_by_hand():
    # two hops from the middle of a star of five leaves: 6 + 5 · 2 walks, from a leaf 2 + 6
    nodes = torch.tensor([0, 1])
    assert walk_counts(STAR, hops=2)[nodes].tolist() == [16, 8]
    # a search never reads more than 10 entries and 6 nodes
    assert search_costs(STAR, nodes, hops=2).tolist() == [16, 8]
    assert search_costs(STAR, nodes, hops=4).tolist() == [16, 16]
    cost = predicted_seconds(STAR, np.array([16.0, 8.0]), hops=2, registers=64)
    walk, register = searched_reach.WALK_SECONDS, searched_reach.REGISTER_SECONDS
    assert cost == pytest.approx((24 * walk, 16 * 64 * 2 * register))


def test_the_estimate_is_taken_only_where_exact_sizes_cost_too_much_and_more():
    for seconds, chosen in (((59, 1), "exact"), ((61, 1), "estimated"), ((61, 62), "exact")):
        assert choose("auto", *seconds, device=ENDS.device)[0] == chosen


def test_the_choice_is_made_from_the_cost_and_said(monkeypatch, caplog):
    draw = torch.Generator().manual_seed(0)
    graph = graph_of(torch.randint(200, (600, 2), generator=draw).tolist(), 200)
    nodes = torch.arange(200)
    exact = reach_sizes(graph, nodes, hops=2, method="exact")
    rounded = estimate_reach_sizes(graph, nodes, hops=2).round().long()
    assert not exact.equal(rounded)
    with caplog.at_level(logging.DEBUG, logger="evergraph.graphs.reachability"):
        assert reach_sizes(graph, nodes, hops=2).equal(exact)
        monkeypatch.setattr(searched_reach, "WALK_SECONDS", 1.0)
        assert reach_sizes(graph, nodes, hops=2).equal(rounded)
        assert reach_sizes(graph, nodes, hops=2, method="exact").equal(exact)
    # a kernel that is compiled for the first time says so, to another logger
    own = [each for each in caplog.records if each.name == "evergraph.graphs.reachability"]
    first, second, third = (each.getMessage() for each in own)
    assert "200 nodes within 2 hops: exact sizes, since exact ones are affordable" in first
    assert "estimated sizes, since exact ones would take more than 60 s" in second
    assert "exact sizes, since as configured" in third
    assert reach_sizes(graph, nodes, hops=1).equal(graph.degrees + 1)  # always exact
    assert reach_sizes(graph, nodes, hops=2, method="estimated").dtype == torch.int64


def test_wrong_methods_and_too_little_memory_are_said(monkeypatch):
    with pytest.raises(UnknownNameError, match="unknown reach method 'exakt'"):
        reach_sizes(PATH, ENDS, hops=2, method="exakt")
    monkeypatch.setattr(Resources, "left", 10)
    with pytest.raises(ResourceError, match="exact reach by sparse products takes"):
        reach_sizes(PATH, ENDS, hops=2)
