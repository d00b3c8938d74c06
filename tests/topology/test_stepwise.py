"""Every f_topo told hop by hop, against the whole; and rows that do not see each other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from evergraph.graphs import Graph, Smoother, normalised, smoother
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings
from evergraph.topology import SGC, EmbeddingCache, MixHop, Stepwise, topologies
from evergraph.topology.base import coefficients
from evergraph.topology.rowwise import (
    ROWS_PER_PANEL,
    ROWS_PER_PRODUCT,
    RowProduct,
    block_product,
    tanh,
    unit_rows,
)
from graphs_to_draw import few_each, random_graph

STEPWISE = [name for name in topologies.names() if issubclass(topologies.resolve(name), Stepwise)]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in STEPWISE),
    ("reservoir", {"own_weights": False, "layers": "all", "self_loops": True}),
    ("mixhop", {"kept_hops": (0, 2), "unit": True}),
    ("sgc", {"self_loops": False}),
    ("s2gc", {"alpha": 0.4}),
]
every_case = pytest.mark.parametrize(("name", "parameters"), CASES)


def by_steps(topology: Any, graph: Graph, adjacency: Smoother) -> Tensor:
    states = [graph.features]
    for hop in range(topology.hops):
        smoothed = adjacency.product(topology.message(states[-1], hop=hop))
        states.append(topology.advance(smoothed, states[-1], graph.features, hop=hop))
    return topology.assemble(states)


@every_case
@few_each
@given(seed=st.integers(0, 10_000), hops=st.sampled_from([2, 0, 1, 3]), undirected=st.booleans())
def test_steps_lead_to_the_embeddings(name, parameters, seed, hops, undirected):
    if "kept_hops" in parameters:
        hops = 2
    topology = topologies.make(name, hops=hops, **parameters)
    graph = random_graph(seed, undirected=undirected)
    before = graph.features.clone()
    found = by_steps(topology, graph, smoother(graph, self_loops=topology.self_loops))
    torch.testing.assert_close(found, topology.encode(graph), atol=1e-5, rtol=1e-5)
    assert graph.features.equal(before)


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("identity", {}, [1.0]),
        ("sgc", {"hops": 2}, [0.0, 0.0, 1.0]),
        ("s2gc", {"hops": 2, "alpha": 0.2}, [0.2, 0.4, 0.4]),
        ("ppr", {"hops": 2, "alpha": 0.2}, [0.04, 0.32, 0.64]),  # (0.8 Â + 0.2)²
        ("appnp", {"hops": 2, "alpha": 0.2}, [0.2, 0.16, 0.64]),  # 0.8 Â (0.8 Â + 0.2) + 0.2
        ("s2gc", {"hops": 0}, [1.0]),
    ],
)
def test_coefficients_by_hand(name, parameters, expected):
    assert coefficients(topologies.make(name, **parameters)) == pytest.approx(expected)
    for other in (topologies.make("reservoir"), MixHop(unit=True), MixHop()):
        assert coefficients(other) is None  # no weighted sum of features
    assert set(topologies.names()) - set(STEPWISE) == {"h2gcn"}  # all but exact rings


@pytest.mark.parametrize("name", [n for n in STEPWISE if topologies.resolve(n).linear])
def test_coefficients_give_the_embeddings(name):
    topology, graph = topologies.make(name, hops=3), random_graph(1, undirected=True)
    power, total = graph.features, torch.zeros_like(graph.features)
    for share in coefficients(topology):
        total += share * power
        power = normalised(graph) @ power
    torch.testing.assert_close(total, topology.encode(graph), atol=1e-5, rtol=1e-5)


def test_units_are_torchs():
    rows = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    rows[3] = 0
    torch.testing.assert_close(unit_rows(rows), normalize(rows, dim=1))
    assert unit_rows(rows, together=True).equal(normalize(rows, dim=1))
    assert unit_rows(rows[:, :0]).shape == unit_rows(rows[:, :0], together=True).shape == (50, 0)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("exponent", [-125, -60, 66, 124])
def test_any_finite_row_comes_to_length_one(exponent, together):
    rows = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)).clamp(-4, 4)
    rows[3] = 0
    mixed = rows.clone()
    mixed[::2] *= 2.0**exponent  # ordinary rows beside extreme ones
    unit = unit_rows(mixed, together=together)
    assert unit[1::2].equal(unit_rows(rows, together=together)[1::2])
    torch.testing.assert_close(unit, normalize(rows, dim=1))


@pytest.mark.parametrize("factor", [2.0**66, 2.0**-60])  # 7e19 and 9e-19
@pytest.mark.parametrize("topology", [SGC(), MixHop(kept_hops=(0, 2), unit=True)])
def test_unit_embeddings_ignore_the_scale(topology, factor):
    graph = random_graph(1, undirected=True)
    other = replace(graph, features=graph.features * factor)
    wanted = EmbeddingCache(topology).encode(graph)
    torch.testing.assert_close(EmbeddingCache(topology).encode(other), wanted)
    assert float(wanted.norm(dim=1).min()) > 0.9
    grown = GrowingGraph(num_features=3)
    live = LiveEmbeddings(topology, grown)
    rows = torch.repeat_interleave(torch.arange(12), graph.indptr.diff())
    live.update(grown.add(other.features, torch.stack([rows, graph.indices.long()])))
    torch.testing.assert_close(live.of(torch.arange(12)), wanted)


def test_blocks_multiply_every_row():
    rows = torch.randn(2 * ROWS_PER_PRODUCT + 5, 7, generator=torch.Generator().manual_seed(0))
    matrix = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(block_product(rows, matrix), rows @ matrix)
    assert block_product(rows[:0], matrix).shape == (0, 4)


@given(
    chosen=st.lists(st.integers(0, 299), min_size=1, max_size=150),
    width=st.sampled_from([1, 3, 16, 33, 130]),
)
def test_bits_of_a_row_do_not_depend_on_other_rows(chosen, width):
    generator = torch.Generator().manual_seed(width)
    rows = torch.randn(300, width, generator=generator)
    matrix = torch.randn(width, 37, generator=generator)
    some = rows[chosen]
    assert unit_rows(some).equal(unit_rows(rows)[chosen])
    assert tanh(some).equal(tanh(rows)[chosen])
    assert block_product(some, matrix).equal(block_product(rows, matrix)[chosen])


@every_case
@few_each
@given(chosen=st.lists(st.integers(0, 199), min_size=1, max_size=100))
def test_bits_of_a_step_do_not_depend_on_other_rows(name, parameters, chosen):
    topology = topologies.make(name, hops=2, **parameters)
    generator = torch.Generator().manual_seed(0)
    x, h, s = (torch.randn(200, 19, generator=generator) for _ in range(3))
    if not topology.hops:
        assert topology.assemble([x[chosen]]).equal(topology.assemble([x])[chosen])
        return
    message = topology.message(h, hop=1)
    assert topology.message(h[chosen], hop=1).equal(message[chosen])
    smoothed = s[:, :1].expand(-1, message.shape[1]) * torch.linspace(-1, 1, message.shape[1])
    after = topology.advance(smoothed, h, x, hop=1)
    some = topology.advance(smoothed[chosen], h[chosen], x[chosen], hop=1)
    assert some.equal(after[chosen])
    found = topology.assemble([x[chosen], h[chosen], some])
    assert found.equal(topology.assemble([x, h, after])[chosen])


@given(
    height=st.sampled_from([0, 1, 9, 700]),
    columns=st.sampled_from([0, 1, 10, 64, 65, 130]),
    rows=st.lists(st.integers(0, 69), max_size=70),
)
@example(height=2 * ROWS_PER_PANEL + 1, columns=2, rows=[3, 3, 69])
def test_a_product_row_by_row_of_some_rows_is_that_of_each(height, columns, rows):
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(height, columns, generator=generator)
    x = torch.randn(70, height, generator=generator)
    product = RowProduct.of(matrix)
    every = product(x.numpy())
    torch.testing.assert_close(torch.from_numpy(every), x @ matrix, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(product(x[rows].numpy()), every[rows])
    for row in rows[:3]:
        np.testing.assert_array_equal(product(x[row : row + 1].numpy()), every[row : row + 1])
