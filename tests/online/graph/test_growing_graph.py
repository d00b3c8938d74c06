"""A graph that grows and shrinks: what stands in it, what it refuses, and what a change touches."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evergraph.graphs import Graph
from evergraph.online.arrays import GrowingArray
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.neighbour_lists import NeighbourLists
from growing_paths import pairs_of, path

NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


def rows(graph: GrowingGraph) -> list[list[int]]:
    return [graph.rows(torch.tensor([node]))[1].tolist() for node in range(graph.num_nodes)]


@pytest.mark.parametrize("undirected", [True, False])
def test_a_removed_node_leaves_a_hole_for_ever(undirected):
    graph = path(1, 2, 3, 4, undirected=undirected)
    change = graph.remove(torch.tensor([1, 1]))
    assert change.removed.tolist() == [1]
    assert change.touched.tolist() == ([0, 2] if undirected else [2])
    assert rows(graph) == ([[], [], [3], [2]] if undirected else [[], [], [], [2]])
    assert graph.num_edges == (2 if undirected else 1)
    assert graph.gatherers(torch.tensor([0])).tolist() == [0]
    assert graph.features.flatten().tolist() == [1, 0, 3, 4]
    assert graph.alive.tolist() == [True, False, True, True]
    graph.add(torch.tensor([[5.0]]), pairs_of((4, 0)))
    assert graph.num_nodes == 5
    assert rows(graph)[1] == []
    found, positions = graph.to_graph()
    assert positions.tolist() == [0, 2, 3, 4]
    assert found.features.flatten().tolist() == [1, 3, 4, 5]


def test_an_ego_is_cut_off_at_its_limit_nearest_first():
    graph = path(*range(6))
    whole = graph.ego(2, hops=2, limit=10)
    assert whole.nodes.tolist() == [2, 1, 3, 0, 4]
    assert whole.distances.tolist() == [0, 1, 1, 2, 2]
    assert sorted(map(tuple, whole.edges.T.tolist())) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert whole.whole
    part = graph.ego(2, hops=2, limit=4)
    assert part.nodes.tolist() == [2, 1, 3, 0]
    assert not part.whole
    assert graph.ego(2, hops=0, limit=1).whole


def test_an_ego_along_arrows_holds_whom_features_come_from():
    near = path(1, 2, 3, 4, undirected=False).ego(2, hops=1, limit=9)
    assert near.nodes.tolist() == [2, 1]
    assert near.edges.tolist() == [[1], [2]]


@pytest.mark.parametrize("undirected", [True, False])
def test_the_last_weight_counts_and_0_is_no_edge(undirected):
    graph = path(0, 0, 0, weights=[1.0, 3.0], undirected=undirected)
    twice = pairs_of((0, 1), (1, 0), (2, 1), (1, 2), (0, 2), (2, 2))
    change = graph.add(torch.empty(0, 1), twice, torch.tensor([5.0, 7.0, 4.0, 0.0, 0.0, 9.0]))
    assert change.touched.tolist() == [0, 1, 2]
    there, back = torch.tensor([0, 1, 1, 2, 0]), torch.tensor([1, 0, 2, 1, 2])
    found = [7.0, 7.0, 0.0, 0.0, 0.0] if undirected else [5.0, 7.0, 0.0, 4.0, 0.0]
    assert graph.weights_of(there, back).tolist() == found
    known = graph.add(torch.empty(0, 1), pairs_of((0, 1)))  # no weight: as it was
    assert (len(known.touched), float(graph.weights_of(there[:1], back[:1]))) == (0, found[0])


def test_no_weights_are_kept_before_the_first_that_is_not_1():
    graph = path(0, 0, 0, weights=[1.0, 1.0])
    assert (graph.weighted, graph.entry_bytes, "weights" in graph.state()) == (False, 4 * 4, False)
    assert graph.to_graph()[0].weights is None
    graph.add(torch.empty(0, 1), pairs_of((0, 1)), torch.tensor([2.0]))
    assert graph.entry_bytes == 4 * (4 + 4)
    assert graph.to_graph()[0].weights.tolist() == [2.0, 2.0, 1.0, 1.0]
    assert graph.ego(1, hops=1, limit=3).weights.tolist() == [2.0, 1.0]


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            st.integers(0, 4),
            st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12),
        ),
        st.tuples(st.just("remove"), st.sets(st.integers(0, 40), max_size=3), st.none()),
        st.tuples(st.just("restore"), st.none(), st.none()),
    ),
    max_size=12,
)


@given(steps=steps, undirected=st.booleans())
def test_any_sequence_gives_what_plain_sets_give(steps, undirected):
    graph = GrowingGraph(num_features=1, undirected=undirected)
    alive = {}  # features by place
    edges = set()

    def gathered():
        return {v: sorted(s for s, t in edges if t == v) for v in range(graph.num_nodes)}

    for kind, what, pairs in steps:
        before, places = gathered(), list(alive)
        if kind == "restore":
            other = GrowingGraph(num_features=1, undirected=undirected)
            other.restore(graph.state())
            graph = other
            continue
        if kind == "add":
            fresh = {v: v + 0.5 for v in range(graph.num_nodes, graph.num_nodes + what)}
            places += fresh
            drawn = [(places[a % len(places)], places[b % len(places)]) for a, b in pairs if places]
            change = graph.add(torch.tensor([*fresh.values()]).reshape(-1, 1), pairs_of(*drawn))
            assert change.new.tolist() == list(fresh)
            alive |= fresh
            both = {*drawn, *((t, s) for s, t in drawn if undirected)}
            edges |= {(s, t) for s, t in both if s != t}
        else:
            gone = {places[node % len(places)] for node in what} if places else set()
            change = graph.remove(torch.tensor(sorted(gone), dtype=torch.int64))
            assert change.removed.tolist() == sorted(gone)
            alive = {v: feature for v, feature in alive.items() if v not in gone}
            edges = {edge for edge in edges if not gone & set(edge)}
        after = gathered()
        assert change.touched.tolist() == [
            v for v in before if before[v] != after[v] and v in alive
        ]
        assert rows(graph) == list(after.values())
        assert graph.num_edges == len(edges)
        for v in range(graph.num_nodes):
            receive = sorted({v, *(t for s, t in edges if s == v)})
            assert graph.gatherers(torch.tensor([v])).tolist() == receive
    found, positions = graph.to_graph()
    assert positions.tolist() == list(alive)
    place = {v: number for number, v in enumerate(alive)}
    expected = Graph.from_edges(
        pairs_of(*((place[s], place[t]) for s, t in edges)),
        features=torch.tensor([*alive.values()]).reshape(-1, 1),
        labels=torch.full((len(alive),), -1),
    )
    for name in ("indptr", "indices", "features"):
        assert getattr(found, name).equal(getattr(expected, name))


def test_a_state_is_the_same_however_the_graph_came_to_be():
    """Lists lie elsewhere in a graph that grew node by node; what is written must not show it."""
    once, slowly = path(*range(1, 31)), GrowingGraph(num_features=1)
    for node in range(30):
        slowly.add(torch.tensor([[node + 1.0]]), pairs_of((node - 1, node)) if node else NO_EDGES)
    state = {name: value.clone() for name, value in slowly.state().items()}
    assert all(once.state()[name].equal(state[name]) for name in state)
    slowly.remove(torch.tensor([3]))
    assert state["alive"].all()
    assert not slowly.state()["alive"].all()


def test_a_list_that_shrank_and_grows_while_all_are_packed_finds_room():
    lists = NeighbourLists()
    lists.extend(3)
    many = np.arange(10)
    lists.insert(np.zeros(10, dtype=np.int64), many)
    lists.delete(np.zeros(10, dtype=np.int64), many)
    lists.insert(np.full(20, 1), np.arange(20))
    # Row 0 has room for ten, which packing takes from it: row 2 asks for more than the pool has.
    rows = np.concatenate([np.zeros(10, dtype=np.int64), np.full(500, 2)])
    lists.insert(rows, np.concatenate([many, np.arange(500)]))
    for row, count in enumerate((10, 20, 500)):
        assert lists.rows(np.array([row]))[1].tolist() == list(range(count))


written = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "delete", "restore"]),
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 15)), max_size=40),
    ),
    max_size=20,
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(written=written)
def test_lists_hold_what_sets_would(kernel, written):
    lists, plain = NeighbourLists(), set()
    lists.extend(16)  # as many as there are columns
    for verb, drawn in written:
        rows, columns = np.array(drawn, dtype=np.int64).reshape(-1, 2).T
        if verb == "restore":
            state, lists = lists.state(), NeighbourLists()
            lists.restore(state)
        elif verb == "insert":
            changed = sorted({row for row, _ in set(drawn) - plain})
            assert lists.insert(rows, columns).tolist() == changed
            plain |= set(drawn)
        else:
            changed = sorted({row for row, _ in set(drawn) & plain})
            assert lists.delete(rows, columns).tolist() == changed
            plain -= set(drawn)
        indptr, indices = lists.rows(np.arange(6))
        owners = np.repeat(np.arange(6), np.diff(indptr))
        assert list(zip(owners.tolist(), indices.tolist(), strict=True)) == sorted(plain)
        assert lists.num_entries == len(plain)


def test_lists_are_rarely_packed_anew(monkeypatch):
    """Packing reads all lists: over n entries it may happen about log n times, not n times."""
    packed = []
    repack = NeighbourLists._repack
    monkeypatch.setattr(
        NeighbourLists, "_repack", lambda self, more: (packed.append(1), repack(self, more))[1]
    )
    lists = NeighbourLists()
    lists.extend(50)
    for turn in range(2000):
        lists.insert(np.array([turn % 50]), np.array([turn]))
    assert 3 < len(packed) <= 12


def test_an_array_is_rarely_copied_and_grows_with_zeros():
    array, rooms = GrowingArray(2), set()
    for row in range(1000):
        array.extend(1)
        assert array.array[row].tolist() == [0, 0]
        array.array[row] = row
        rooms.add(array.array.__array_interface__["data"][0])
    assert array.array[:, 1].tolist() == list(range(1000))
    assert len(rooms) <= 11
