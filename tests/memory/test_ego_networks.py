"""What is kept of the graph around stored nodes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.graphs import Graph, reach
from evergraph.memory import ego_networks, isolated
from graphs_to_draw import graph_of, path_pairs, star_pairs


def names(graph: Graph) -> list[int]:
    """Which nodes of the original graph these are: node v has the feature v."""
    return graph.features[:, 0].int().tolist()


def by_position(entries: Tensor) -> Tensor:
    return entries.double()


PATH = graph_of(path_pairs(5), 5)


def test_ego_networks_by_hand() -> None:
    for centres, hops, kept_nodes, places, edges in (
        ([0], 2, [0, 1, 2], [0], 4),  # two edges, both ways
        ([4, 1], 0, [1, 4], [1, 0], 0),  # the centres alone
        ([1, 3], 1, [0, 1, 2, 3, 4], [1, 3], 8),  # shared nodes are kept once
    ):
        kept = ego_networks(PATH, torch.tensor(centres), hops=hops, rank=by_position)
        assert names(kept.graph) == kept_nodes
        assert kept.centres.tolist() == places
        assert kept.graph.num_edges == edges
    star = graph_of(star_pairs(5))
    kept = ego_networks(star, torch.tensor([0]), hops=1, neighbours=2, rank=lambda e: -e.double())
    assert names(kept.graph) == [0, 4, 5]  # of the lowest ranks: the last of the hub's row


def test_a_directed_edge_stays_one_way() -> None:
    arrow = graph_of([(1, 0)], 2, undirected=False)  # node 0 gathers from node 1
    kept = ego_networks(arrow, torch.tensor([0]), hops=1, rank=by_position)
    assert kept.graph.num_edges == 1
    assert kept.graph.neighbours(0).tolist() == [1]


def test_isolated_nodes_keep_edges_among_themselves() -> None:
    kept = isolated(PATH, torch.tensor([3, 2, 0]))
    assert names(kept.graph) == [0, 2, 3]
    assert kept.centres.tolist() == [2, 1, 0]
    assert kept.graph.num_edges == 2


@given(seed=st.integers(0, 1000), hops=st.integers(0, 3), undirected=st.booleans())
def test_complete_ego_networks_hold_what_is_within_reach(
    seed: int, hops: int, undirected: bool
) -> None:
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(12, (20, 2), generator=draw).tolist()
    graph = graph_of(pairs, 12, undirected=undirected)
    centres = torch.randperm(12, generator=draw)[:3]
    kept = ego_networks(graph, centres, hops=hops, rank=by_position)
    met = torch.cat(reach(graph, centres, hops=hops)).unique()
    assert names(kept.graph) == met.tolist()
    assert [names(kept.graph)[centre] for centre in kept.centres] == centres.tolist()


@given(seed=st.integers(0, 1000), hops=st.integers(1, 3), neighbours=st.integers(1, 4))
def test_sparsified_ones_choose_edges_of_the_graph_within_the_budget(
    seed: int, hops: int, neighbours: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    graph = graph_of(torch.randint(30, (120, 2), generator=draw).tolist(), 30)
    centres = torch.randperm(30, generator=draw)[:2]
    kept = ego_networks(
        graph, centres, hops=hops, neighbours=neighbours,
        rank=lambda e: torch.rand(len(e), generator=draw),
    )  # fmt: skip
    original = names(kept.graph)
    for row in range(kept.graph.num_nodes):
        columns = [original[c] for c in kept.graph.neighbours(row).tolist()]
        assert set(columns) <= set(graph.neighbours(original[row]).tolist())
    most = sum(2 * neighbours**hop for hop in range(hops + 1))
    assert kept.graph.num_nodes <= most
    degree = kept.graph.degrees[kept.centres]
    assert bool((degree >= torch.minimum(graph.degrees[centres], torch.tensor(neighbours))).all())
