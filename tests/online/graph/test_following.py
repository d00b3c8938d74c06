"""Embeddings that follow a graph: by hand, who feels a change, and what is read for it."""

from typing import Any

import pytest
import torch

from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_embeddings import LiveEmbeddings, LiveSmoother
from evergraph.online.view.explanation import contributions, powers_of
from evergraph.topology import SGC, EmbeddingCache, topologies
from growing_paths import followed, pairs_of, path

NO_ROWS = torch.empty(0, 1)
LINEAR = ("appnp", "identity", "ppr", "s2gc", "sgc")


def all_of(live: LiveEmbeddings, nodes: int) -> Any:
    return live.of(torch.arange(nodes)).flatten().tolist()


def test_a_node_that_comes_by_hand():
    """One node comes to the end of the path 0 - 1 - 2: Â x before and after."""
    graph = path(1, 2, 4)
    live, s6 = followed(graph), 6**-0.5
    before = [1 / 2 + 2 * s6, 1 * s6 + 2 / 3 + 4 * s6, 2 * s6 + 4 / 2]
    assert all_of(live, 3) == pytest.approx(before)
    nodes, weights = contributions(live.smoother, 1, [0, 1])
    assert (nodes.tolist(), weights.tolist()) == ([0, 1, 2], pytest.approx([s6, 1 / 3, s6]))
    moved = live.update(graph.add(torch.tensor([[8.0]]), pairs_of((2, 3))))
    assert moved.tolist() == [1, 2, 3]  # 1 because 2 counts for less: degree 3, not 2
    after = [before[0], 1 * s6 + 2 / 3 + 4 / 3, 2 / 3 + 4 / 3 + 8 * s6, 4 * s6 + 8 / 2]
    assert all_of(live, 4) == pytest.approx(after)


def test_weights_that_change_an_edge_that_goes_and_other_features_by_hand():
    """0 -2- 1 -0.5- 2: with loops of 1 the rows sum up to 3, 3.5 and 1.5."""
    graph = path(1, 2, 4, weights=[2.0, 0.5])
    live = followed(graph)
    expected = [
        1 / 3 + 2 * 2 / (3 * 3.5) ** 0.5,
        2 * 1 / (3 * 3.5) ** 0.5 + 2 / 3.5 + 0.5 * 4 / (3.5 * 1.5) ** 0.5,
        0.5 * 2 / (3.5 * 1.5) ** 0.5 + 4 / 1.5,
    ]
    assert all_of(live, 3) == pytest.approx(expected)
    change = graph.add(NO_ROWS, pairs_of((1, 0)), torch.tensor([1.0]))
    assert (change.touched.tolist(), len(change.new)) == ([0, 1], 0)
    assert live.update(change).tolist() == [0, 1, 2]
    assert float(live.of(torch.tensor([0]))) == pytest.approx(1 / 2 + 2 / (2 * 2.5) ** 0.5)
    change = graph.disconnect(pairs_of((2, 1)))
    assert change.touched.tolist() == [1, 2]
    live.update(change)
    assert all_of(live, 3) == pytest.approx([1.5, 1.5, 4.0])
    change = graph.renew(torch.tensor([2, 0]), torch.tensor([[4.0], [6.0]]))
    assert (len(change.touched), change.renewed.tolist()) == (0, [0])  # 2 has the same
    assert live.update(change).tolist() == [0, 1]
    assert all_of(live, 3) == pytest.approx([4.0, 4.0, 4.0])


def test_what_is_large_comes_and_goes_and_leaves_nothing(kernel):
    """A neighbour of a million: a row that were corrected would keep what it rounded away."""
    graph = GrowingGraph(num_features=1)
    leaves = torch.rand(40, 1, generator=torch.Generator().manual_seed(0))
    graph.add(torch.cat([leaves, torch.tensor([[1e6]])]), pairs_of(*((0, v) for v in range(1, 40))))
    live = followed(graph)
    for _ in range(3):
        live.update(graph.add(NO_ROWS, pairs_of((0, 40))))
        live.update(graph.disconnect(pairs_of((40, 0))))
    assert live.of(torch.tensor([0])).equal(followed(graph).of(torch.tensor([0])))


def test_hubs_that_reach_many_nodes_over_and_over_tell_each_once(kernel):
    """10 nodes give to 8 hubs: 80 pairs, more than a row for each of the 50 nodes."""
    graph = GrowingGraph(num_features=1, undirected=False)
    edges = torch.cartesian_prod(torch.arange(10), torch.arange(10, 18)).T
    graph.add(torch.arange(50.0)[:, None], edges)
    live = followed(graph, SGC(hops=3))
    moved = live.update(graph.renew(torch.arange(10), torch.full((10, 1), 70.0)))
    assert moved.tolist() == list(range(18))
    everyone = torch.arange(50)
    assert live.of(everyone).equal(followed(graph, SGC(hops=3)).of(everyone))


def test_what_is_read_does_not_grow_with_the_graph(monkeypatch):
    read = []
    product = LiveSmoother.product

    def counted(self, nodes, values):
        read.append(len(nodes))
        return product(self, nodes, values)

    monkeypatch.setattr(LiveSmoother, "product", counted)
    costs = []
    for nodes in (200, 2000):
        graph = path(*range(nodes))
        live = followed(graph, SGC(hops=2))
        read.clear()
        live.update(graph.add(torch.ones(1, 1), pairs_of((10, nodes))))
        costs.append(list(read))
    # 10 and the new one give otherwise, to themselves, 9 and 11; then 8 and 12 feel it too.
    assert costs == [[4, 6], [4, 6]]


def test_a_removed_node_leaves_nothing_and_the_last_one_may_go():
    graph = path(*range(1, 7))
    live = followed(graph, topologies.make("reservoir"), scaling="unit")
    assert live.update(graph.remove(torch.tensor([2]))).tolist() == [0, 1, 3, 4, 5]
    assert not live.of(torch.tensor([2])).any()
    kept = {n: t for n, t in live.state().items() if n.startswith(("state", "message"))}
    assert set(kept) == {"state_1", "state_2", "message_0", "message_1"}
    assert not any(tensor[2].any() for tensor in kept.values())
    assert len(live.update(graph.remove(torch.tensor([0, 1, 3, 4, 5])))) == 0
    assert len(live.update(graph.add(NO_ROWS, pairs_of()))) == 0
    live.update(graph.add(torch.ones(2, 1), pairs_of((6, 7))))
    expected = EmbeddingCache(live.topology).encode(graph.to_graph()[0])
    torch.testing.assert_close(live.of(torch.tensor([6, 7])), expected)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_row_has_the_same_bits_in_any_company(kernel, weighted):
    self_loops = weighted
    draw = torch.Generator().manual_seed(1)
    graph = GrowingGraph(num_features=19)
    live = LiveSmoother(graph, self_loops=self_loops)
    edges = torch.randint(200, (2, 800), generator=draw)
    edges[0, :150] = 0  # a hub
    weights = torch.rand(800, generator=draw) + 0.1 if weighted else None
    graph.add(torch.randn(200, 19, generator=draw), edges, weights)
    live.update(GraphChange(new=torch.arange(200)))
    whole = live.product(torch.arange(200), graph.features)
    for size in (1, 7, 199):
        some = torch.randperm(200, generator=draw)[:size]
        assert live.product(some, graph.features).equal(whole[some])
        few = graph.features[:, :3].contiguous()
        assert live.product(some, few).equal(whole[some][:, :3])
    other = LiveSmoother(graph, self_loops=self_loops)
    for part in torch.arange(200).split(50):
        other.update(GraphChange(touched=part))
    assert other.state()["scalings"].equal(live.state()["scalings"])


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("undirected", [True, False])
def test_weights_tell_whose_features_an_embedding_is_made_of(name, undirected):
    graph = path(*range(8), undirected=undirected)
    live = followed(graph, topologies.make(name))
    live.update(graph.remove(torch.tensor([6])))
    live.update(graph.add(torch.ones(2, 1), pairs_of((8, 3), (9, 3), (8, 9))))
    (powers,) = powers_of(live) or ([],)
    for node in (0, 3, 5, 9):
        positions, weights = contributions(live.smoother, node, powers)
        total = weights @ graph.features[positions].double()
        torch.testing.assert_close(total.float(), live.of(torch.tensor([node]))[0])
        reached = graph.ego(node, hops=live.topology.hops, limit=99).nodes
        assert positions.tolist() == sorted(reached.tolist())


@pytest.mark.parametrize("name", sorted({*topologies.names()} - {*LINEAR}))
def test_other_embeddings_have_no_weights(name):
    assert powers_of(followed(path(1, 2), topologies.make(name), scaling="unit")) is None
