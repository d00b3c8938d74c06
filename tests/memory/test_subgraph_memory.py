"""Nodes stored with some of the graph around them, and what is kept of it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.graphs import Graph, reach
from evergraph.memory import (
    Candidates,
    EgoNetworks,
    Sampler,
    SubgraphMemory,
    ego_networks,
    isolated,
)
from graphs_to_draw import graph_of, path_pairs, star_pairs


def candidates_of(labels: list[int], *, sparse: bool = False) -> Candidates:
    nodes = len(labels)
    ring = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
    features = torch.arange(4.0 * nodes).reshape(nodes, 4)
    graph = Graph.from_edges(
        ring,
        features=features.to_sparse_csr() if sparse else features,
        labels=torch.tensor(labels),
        undirected=True,
    )
    return Candidates(graph, torch.arange(nodes), torch.tensor(labels), features, hops=1)


def stored(memory: SubgraphMemory, labels: list[int], *, sparse: bool = False) -> None:
    sizes = {label: labels.count(label) for label in set(labels)}
    memory.store(
        candidates_of(labels, sparse=sparse), sizes, keep=isolated, generator=torch.Generator()
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_tasks_are_kept_side_by_side(sparse):
    memory = SubgraphMemory(budget=2)
    stored(memory, [0] * 5 + [1] * 5, sparse=sparse)
    stored(memory, [2] * 5 + [3], sparse=sparse)
    assert memory.labels_.tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert memory.graph_.num_nodes == len(memory) == 7
    assert sorted(memory.centres_.tolist()) == list(range(7))


@pytest.mark.parametrize("sparse", [False, True])
def test_state_and_back(sparse):
    memory, other = SubgraphMemory(budget=2), SubgraphMemory(budget=2)
    stored(memory, [0] * 5 + [1] * 5, sparse=sparse)
    other.restore(memory.state())
    stored(memory, [2] * 5, sparse=sparse)
    stored(other, [2] * 5, sparse=sparse)
    for name, value in memory.state().items():
        assert value.equal(other.state()[name]), name


def test_what_is_kept_keeps_its_weights():
    plain = candidates_of([0] * 4)
    heavy = replace(plain.graph, weights=torch.arange(1.0, 9.0))
    memory, other = SubgraphMemory(budget=4), SubgraphMemory(budget=4)
    candidates = replace(plain, graph=heavy)
    memory.store(candidates, {0: 4}, keep=isolated, generator=torch.Generator())
    other.restore(memory.state())
    assert other.graph_.weights.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


class ByEmbedding(Sampler):
    """The smallest embeddings first."""

    name = "by-embedding"
    mergeable = True

    def rank(
        self, candidates: Candidates, budgets: Mapping[int, int], *, generator: torch.Generator
    ) -> Tensor:
        return candidates.embeddings.flatten().double()


def one_hop(graph: Graph, centres: Tensor) -> EgoNetworks:
    return ego_networks(graph, centres, hops=1, rank=torch.zeros_like)


def path(names: list[int], *, of: int = 16) -> Graph:
    """A path of nodes, told apart by a one-hot feature."""
    places = torch.arange(len(names))
    return Graph.from_edges(
        torch.stack([places[:-1], places[1:]]),
        features=torch.eye(of)[names],
        labels=torch.zeros_like(places),
        undirected=True,
    )


def store(
    memory: SubgraphMemory, graph: Graph, ranks: dict[int, float], keep: object = one_hop
) -> None:
    """Offer some of a path's nodes, all of class 0, with ranks."""
    nodes = torch.tensor(list(ranks))
    embeddings = torch.tensor(list(ranks.values()))[:, None]
    candidates = Candidates(graph, nodes, torch.zeros_like(nodes), embeddings, hops=1)
    memory.store(candidates, {0: 99}, keep=keep, generator=torch.Generator())


def names(memory: SubgraphMemory, nodes: Tensor | None = None) -> list[int]:
    found = memory.graph_.features.argmax(1)
    return (found if nodes is None else found[nodes]).tolist()


def test_a_class_that_comes_back_keeps_its_budget_and_who_goes_takes_the_neighbours_along():
    memory = SubgraphMemory(budget=2, sampler=ByEmbedding())
    store(memory, path([0, 1, 2, 3, 4]), {0: 3.0, 2: 9.0, 4: 1.0})
    assert (names(memory), names(memory, memory.centres_)) == ([0, 1, 3, 4], [0, 4])
    store(memory, path([5, 6]), {0: 2.0})  # node 5 is better than 0 and worse than 4
    assert (names(memory), names(memory, memory.centres_)) == ([3, 4, 5, 6], [4, 5])
    assert memory.graph_.num_edges == 4  # 3 - 4 and 5 - 6, both ways
    assert memory.ranks_.tolist() == [1.0, 2.0]
    store(memory, path([7, 8]), {0: 5.0})  # too bad: all stays
    assert names(memory, memory.centres_) == [4, 5]
    store(memory, path([9, 10, 11]), {0: 0.5, 2: 0.25})  # better than all
    assert (names(memory), names(memory, memory.centres_)) == ([9, 10, 11], [9, 11])


def test_a_neighbour_that_is_shared_stays_with_who_stays():
    memory = SubgraphMemory(budget=2, sampler=ByEmbedding())
    store(memory, path([0, 1, 2, 3]), {0: 3.0, 2: 1.0})  # both have node 1 beside them
    assert names(memory) == [0, 1, 2, 3]
    store(memory, path([5]), {0: 2.0})
    assert names(memory) == [1, 2, 3, 5]


@given(
    ranks=st.lists(st.integers(0, 10_000), min_size=12, max_size=12, unique=True),
    budget=st.integers(1, 12),
    cuts=st.tuples(st.integers(1, 11), st.integers(1, 11)),
)
def test_however_a_class_is_cut_the_best_are_kept_with_all_around_them(ranks, budget, cuts):
    memory = SubgraphMemory(budget=budget, sampler=ByEmbedding())
    parts = [p for p in torch.arange(12).tensor_split(sorted(cuts)) if len(p)]
    around = []
    for part in parts:
        graph = path(part.tolist())
        store(memory, graph, {i: float(ranks[node]) for i, node in enumerate(part.tolist())})
        around += [part[ego] for ego in reach(graph, torch.arange(len(part)), hops=1)]
    best = torch.tensor(ranks).argsort()[:budget].sort().values
    assert names(memory, memory.centres_) == best.tolist()
    assert names(memory) == torch.cat([around[node] for node in best.tolist()]).unique().tolist()


def test_an_empty_memory_has_a_state_too():
    memory = SubgraphMemory(budget=0)
    stored(memory, [0] * 5)
    assert memory.graph_ is None
    assert memory.usage.floats == memory.usage.bytes == 0
    other = SubgraphMemory()
    other.restore(memory.state())
    assert other.graph_ is None


def numbers(graph: Graph) -> list[int]:
    """Which nodes of the original graph these are: node v has the feature v."""
    return graph.features[:, 0].int().tolist()


def by_position(entries: Tensor) -> Tensor:
    return entries.double()


FIVE = graph_of(path_pairs(5), 5)


def test_ego_networks_by_hand():
    for centres, hops, kept_nodes, places, edges in (
        ([0], 2, [0, 1, 2], [0], 4),  # two edges, both ways
        ([4, 1], 0, [1, 4], [1, 0], 0),  # the centres alone
        ([1, 3], 1, [0, 1, 2, 3, 4], [1, 3], 8),  # shared nodes are kept once
    ):
        kept = ego_networks(FIVE, torch.tensor(centres), hops=hops, rank=by_position)
        assert numbers(kept.graph) == kept_nodes
        assert kept.centres.tolist() == places
        assert kept.graph.num_edges == edges
    star = graph_of(star_pairs(5))
    kept = ego_networks(star, torch.tensor([0]), hops=1, neighbours=2, rank=lambda e: -e.double())
    assert numbers(kept.graph) == [0, 4, 5]  # of the lowest ranks: the last of the hub's row


def test_a_directed_edge_stays_one_way():
    arrow = graph_of([(1, 0)], 2, undirected=False)  # node 0 gathers from node 1
    kept = ego_networks(arrow, torch.tensor([0]), hops=1, rank=by_position)
    assert kept.graph.num_edges == 1
    assert kept.graph.neighbours(0).tolist() == [1]


@given(seed=st.integers(0, 1000), hops=st.integers(0, 3), undirected=st.booleans())
def test_complete_ego_networks_hold_the_reach(seed, hops, undirected):
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(12, (20, 2), generator=draw).tolist()
    graph = graph_of(pairs, 12, undirected=undirected)
    centres = torch.randperm(12, generator=draw)[:3]
    kept = ego_networks(graph, centres, hops=hops, rank=by_position)
    met = torch.cat(reach(graph, centres, hops=hops)).unique()
    assert numbers(kept.graph) == met.tolist()
    assert [numbers(kept.graph)[centre] for centre in kept.centres] == centres.tolist()


@given(seed=st.integers(0, 1000), hops=st.integers(1, 3), neighbours=st.integers(1, 4))
def test_sparsified_ones_stay_within_the_budget(seed, hops, neighbours):
    draw = torch.Generator().manual_seed(seed)
    graph = graph_of(torch.randint(30, (120, 2), generator=draw).tolist(), 30)
    centres = torch.randperm(30, generator=draw)[:2]
    kept = ego_networks(
        graph,
        centres,
        hops=hops,
        neighbours=neighbours,
        rank=lambda e: torch.rand(len(e), generator=draw),
    )
    original = numbers(kept.graph)
    for row in range(kept.graph.num_nodes):
        columns = [original[c] for c in kept.graph.neighbours(row).tolist()]
        assert set(columns) <= set(graph.neighbours(original[row]).tolist())
    most = sum(2 * neighbours**hop for hop in range(hops + 1))
    assert kept.graph.num_nodes <= most
    degree = kept.graph.degrees[kept.centres]
    assert bool((degree >= torch.minimum(graph.degrees[centres], torch.tensor(neighbours))).all())
