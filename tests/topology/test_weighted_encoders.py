"""Every f_topo on a graph whose edges have weights."""

from dataclasses import replace

import pytest
import torch
from hypothesis import strategies as st

from evergraph.closed_form import ClassCodes
from evergraph.closed_form.codes import class_codes
from evergraph.core.resources import Resources
from evergraph.graphs import Graph
from evergraph.topology import SGC, column_blocks, topologies
from evergraph.topology.column_blocks import encode_within
from graph_in_folder import written
from graphs_to_draw import edge_index, path_pairs
from several import Several

every_topology = pytest.mark.parametrize("name", topologies.names())
seeds = st.integers(0, 10_000)


def weighted_graph(seed: int, *, undirected: bool = True, nodes: int = 12) -> Graph:
    generator = torch.Generator().manual_seed(seed)
    return Graph.from_edges(
        torch.randint(nodes - 1, (2, 25), generator=generator),
        features=torch.randn(nodes, 3, generator=generator),
        labels=torch.randint(-1, 3, (nodes,), generator=generator),
        undirected=undirected,
        weights=torch.rand(25, generator=generator) * 3 + 0.1,
    )


# 0 -3- 1 -8- 2: rows of A + I sum up to 4, 12 and 9
PATH = Graph.from_edges(
    edge_index(path_pairs(3)),
    features=torch.tensor([[1.0], [2.0], [4.0]]),
    labels=torch.tensor([0, 1, -1]),
    undirected=True,
    weights=torch.tensor([3.0, 8.0]),
)


def hop(x: list[float]) -> list[float]:
    near, far = 3 / 48**0.5, 8 / 108**0.5
    return [x[0] / 4 + x[1] * near, x[0] * near + x[1] / 12 + x[2] * far, x[1] * far + x[2] / 9]


def test_two_hops_on_a_path_by_hand():
    expected = torch.tensor([hop(hop([1.0, 2.0, 4.0]))]).T
    torch.testing.assert_close(SGC(hops=2).encode(PATH), expected)


@every_topology
def test_weights_count_unless_all_are_one(name):
    encoder = topologies.make(name)
    for graph in (PATH, weighted_graph(1, undirected=False)):
        plain, ones = (
            encoder.encode(replace(graph, weights=weights))
            for weights in (None, torch.ones(graph.num_edges))
        )
        assert ones.equal(plain)
        heavy = encoder.encode(graph)
        assert torch.allclose(heavy, plain) == (name in ("identity", "h2gcn"))


def test_blocks_of_a_graph_in_files_give_what_the_whole_gives(tmp_path, monkeypatch):
    monkeypatch.setattr(column_blocks, "block_count", lambda *_, **__: 2)  # [0, 1), [1, 3)
    graph = weighted_graph(1)
    for name in (name for name in topologies.names() if topologies.make(name).separable):
        topology, expected = topologies.make(name), topologies.make(name).encode(graph)
        mapped = written(graph, tmp_path / name)
        found = encode_within(topology, mapped, resources=Resources(engine=Several()), shared=True)
        torch.testing.assert_close(found, expected)


def test_class_codes_on_a_path_by_hand():
    near, far = ClassCodes(width=4).encode(PATH).split(4, dim=1)
    first, second = class_codes([0, 1], width=4)
    torch.testing.assert_close(near[2], second * (8 / 88**0.5))  # rows of A sum up to 3, 11 and 8
    torch.testing.assert_close(far[2], first * (8 / 88**0.5) * (3 / 33**0.5))
    assert far[0].equal(torch.zeros(4))  # two hops away is nobody else with a label
