"""Counters against sets: hashes, estimates and hops, however the work is cut."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError, ResourceError
from evergraph.core.resources import Resources, Work
from evergraph.core.seeding import splitmix64
from evergraph.graphs import Graph, csr, estimate_reach_sizes, hyperloglog, reach
from evergraph.graphs.hyperloglog import SEED, TOP, distinct_count, hashed
from graph_in_folder import written
from graphs_to_draw import graph_of, star_pairs

NODES = 12
pairs = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40)
EVERYONE = torch.arange(NODES)


def from_sets(graph: Graph, nodes: Tensor, hops: int, registers: int) -> Tensor:
    """The estimate from the definition: fill a counter with everyone who is really there."""
    column, rank = hashed(graph.num_nodes, registers)
    sums = torch.zeros(2, len(nodes), dtype=torch.int64)
    for row, ego in enumerate(reach(graph, nodes, hops=hops)):
        counter = [0] * registers
        for node in ego.tolist():
            counter[int(column[node])] = max(counter[int(column[node])], int(rank[node]))
        sums[0, row] = sum(2 ** (TOP - value) for value in counter if value)
        sums[1, row] = counter.count(0)
    near = graph.degrees[nodes] + 1
    return distinct_count(sums, registers).clamp_min(near).clamp_max(graph.num_nodes)


class Scattered:
    """An engine of three workers that does the last item first."""

    workers = 3

    def map(
        self, work: Work, items: Sequence[Any], *, shared: Mapping[str, Any] | None = None
    ) -> Iterator[Any]:
        found = {item: work(item, **(shared or {})) for item in reversed(items)}
        return iter([found[item] for item in items])


def test_hashes_are_those_of_splitmix64():
    # the first three outputs of the published generator from the state 0
    numbers = splitmix64(np.arange(3, dtype=np.uint64), SEED)
    assert [hex(n) for n in numbers.tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]
    column, rank = hashed(3, 16)
    assert column.tolist() == [0xF, 0x4, 0xF]  # the last digit of each
    assert rank.tolist() == [1, 2, 6]  # 1 + leading zeros: 0xe, 0x6 and 0x06


def test_estimate_by_hand():
    # 8 registers, 5 empty, and 1, 1 and 3 in the others: Σ 2^-M = 1/2 + 1/2 + 1/8
    sums = torch.tensor([[(1 << 39) + (1 << 39) + (1 << 37)], [5]])
    x = 5 / 8
    sigma = x + x**2 + 2 * x**4 + 4 * x**8 + 8 * x**16 + 16 * x**32
    expected = 64 / (2 * math.log(2)) / (8 * sigma + 1.125)
    assert distinct_count(sums, 8).item() == pytest.approx(expected, rel=1e-5)
    assert distinct_count(torch.tensor([[8 << 38], [0]]), 8).item() == pytest.approx(
        64 / (2 * math.log(2)) / 2  # all registers hold 2: no σ, Σ 2^-M = 2
    )


@pytest.mark.parametrize("size", [1, 40, 5000])
def test_estimates_are_without_bias_and_as_sharp_as_they_should_be(size):
    registers, trials = 128, 200
    errors = []
    for trial in range(trials):
        column, rank = hashed(size, registers, seed=SEED + 7919 * (trial + 1))
        counter = torch.zeros(registers, dtype=torch.int64)
        counter.scatter_reduce_(0, column.long(), rank.long(), "amax")
        filled = counter[counter > 0]
        sums = torch.stack([(1 << (TOP - filled)).sum(), (counter == 0).sum()])[:, None]
        errors.append(distinct_count(sums, registers).item() / size - 1)
    error = np.array(errors)
    spread = 1.04 / math.sqrt(registers)
    assert abs(error.mean()) < 4 * spread / math.sqrt(trials)
    assert error.std() < 1.2 * spread


def test_hops_of_none_and_one_are_exact():
    star = graph_of(star_pairs(5), NODES)
    nodes = torch.tensor([3, 0, 0, 7])
    assert estimate_reach_sizes(star, nodes, hops=0).tolist() == [1, 1, 1, 1]
    assert estimate_reach_sizes(star, nodes, hops=1).tolist() == [2, 6, 6, 1]
    assert estimate_reach_sizes(star, nodes, hops=1).dtype == torch.float64
    assert estimate_reach_sizes(star, nodes[:0], hops=2).tolist() == []


def test_an_estimate_stays_between_what_is_known():
    # 8 registers say little: unbounded, the middle of a star of 200 would be off by a lot
    star = graph_of(star_pairs(199), 200)
    sizes = estimate_reach_sizes(star, torch.arange(200), hops=2, registers=8)
    assert float(sizes[0]) == 200  # has 199 neighbours, and there are no more nodes
    assert float(sizes.min()) >= 2
    assert float(sizes.max()) <= 200


@pytest.mark.parametrize(("both", "hops"), [(True, 2), (False, 3), (True, 4)])
def test_counters_hold_exactly_who_is_within_reach(both, hops):
    @given(edges=pairs, registers=st.sampled_from([8, 16, 64]))
    def check(edges, registers):
        graph = graph_of(edges, NODES, undirected=both)
        nodes = torch.tensor([11, 0, 5, 5, 3])
        found = estimate_reach_sizes(graph, nodes, hops=hops, registers=registers)
        assert found.equal(from_sets(graph, nodes, hops, registers))

    check()


@pytest.mark.parametrize(("limit", "wide"), [(7, 32), (300, 8)])
def test_how_the_work_is_cut_changes_no_bit(limit, wide, monkeypatch):
    draw = torch.Generator().manual_seed(3)
    graph = graph_of(torch.randint(40, (90, 2), generator=draw).tolist(), 40)
    nodes = torch.randperm(40, generator=draw)[:25]
    whole = estimate_reach_sizes(graph, nodes, hops=3, registers=64)
    monkeypatch.setitem(csr.BLOCK_ENTRIES, "cpu", limit)
    monkeypatch.setattr(hyperloglog, "MOST_WIDE", wide)
    scattered = Resources(engine=Scattered())
    assert estimate_reach_sizes(graph, nodes, hops=3, registers=64).equal(whole)
    cut = estimate_reach_sizes(graph, nodes, hops=3, registers=64, resources=scattered)
    assert cut.equal(whole)
    one = torch.cat([estimate_reach_sizes(graph, n, hops=3, registers=64) for n in nodes.split(10)])
    assert one.equal(whole)


def test_blocks_leave_no_worker_idle_and_fit(monkeypatch):
    graph = graph_of([], NODES)
    assert hyperloglog._blocks(graph, 512, Resources()) == [(0, 256), (256, 256)]
    three = hyperloglog._blocks(graph, 512, Resources(engine=Scattered()))
    assert three == [(0, 128), (128, 128), (256, 128), (384, 128)]
    # 12 nodes x 32 registers x 2 are 768 bytes: a quarter of what is left has room for no more
    monkeypatch.setattr(Resources, "left", 4 * 768)
    assert hyperloglog._blocks(graph, 64, Resources()) == [(0, 32), (32, 32)]


def test_too_little_memory_is_said(monkeypatch):
    monkeypatch.setattr(Resources, "left", 100)
    with pytest.raises(ResourceError, match="estimating reach takes"):
        estimate_reach_sizes(
            graph_of([(0, 1)], NODES), EVERYONE, hops=2, resources=Resources(memory_limit=1)
        )


@pytest.mark.parametrize("registers", [0, 4, 100, 1 << 16, 64.0])
def test_registers_are_a_power_of_two(registers):
    with pytest.raises(ConfigurationError, match="registers must be a power of two from 8"):
        estimate_reach_sizes(graph_of([], NODES), EVERYONE, hops=2, registers=registers)


def test_a_graph_in_files_has_the_same_estimates(tmp_path):
    draw = torch.Generator().manual_seed(0)
    graph = graph_of(torch.randint(5000, (20_000, 2), generator=draw).tolist(), 5000)
    mapped, nodes = written(graph, tmp_path / "graph"), torch.arange(5000)
    assert mapped.mapped
    found = estimate_reach_sizes(mapped, nodes, hops=2, registers=64)
    assert found.equal(estimate_reach_sizes(graph, nodes, hops=2, registers=64))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same_bits():
    draw = torch.Generator().manual_seed(3)
    graph = graph_of(torch.randint(300, (900, 2), generator=draw).tolist(), 300)
    nodes = torch.randperm(300, generator=draw)[:120]
    for hops in (0, 1, 2, 3):
        here = estimate_reach_sizes(graph, nodes, hops=hops)
        assert estimate_reach_sizes(graph.to("cuda"), nodes.cuda(), hops=hops).equal(here)
