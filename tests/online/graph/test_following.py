"""Embeddings and class codes that follow a graph: by hand, and those of the final graph always."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from evergraph.closed_form import ClassCodes
from evergraph.closed_form.codes import class_codes, others_alone
from evergraph.core.errors import ConfigurationError
from evergraph.graphs import UNLABELLED, smoother
from evergraph.graphs.kernels.scaled_rows import numba_works
from evergraph.online.graph import live_codes, live_embeddings
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph
from evergraph.online.graph.live_codes import LiveCodes
from evergraph.online.graph.live_embeddings import HopStates, LiveEmbeddings
from evergraph.online.graph.live_smoother import (
    DRIFT,
    ChangedRows,
    Direct,
    LiveSmoother,
    Pushed,
    differences,
)
from evergraph.online.graph.pushing import push
from evergraph.online.view.explanation import contributions, powers_of
from evergraph.topology import SGC, EmbeddingCache, MixHop, topologies

WIDTH = 8
NAMES = [3, 1, 2]  # of the classes 0, 1 and 2
NO_ROWS = torch.empty(0, 1)
LINEAR = ("appnp", "identity", "ppr", "s2gc", "sgc")


@pytest.fixture
def corrected(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """Rows are corrected by either kernel, where so small a graph would be summed as a whole."""
    monkeypatch.setattr(live_embeddings, "WHOLE", 9.0)


def pairs_of(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def path(*features: float, weights: list[float] | None = None, **given: Any) -> GrowingGraph:
    """0 - 1 - 2 - ...; arrows to the right if directed."""
    graph = GrowingGraph(num_features=1, **given)
    edges = pairs_of(*((v, v + 1) for v in range(len(features) - 1)))
    weighed = None if weights is None else torch.tensor(weights)
    graph.add(torch.tensor(features)[:, None], edges, weighed)
    return graph


def followed(graph: GrowingGraph, topology: Any = None, **given: Any) -> LiveEmbeddings:
    given = {"scaling": "none", **given}
    live = LiveEmbeddings(topology or SGC(hops=1), num_features=graph.num_features, **given)
    live.update(graph, GraphChange(new=torch.arange(graph.num_nodes)))
    return live


def all_of(live: LiveEmbeddings, nodes: int) -> Any:
    return live.of(torch.arange(nodes)).flatten().tolist()


def drifts(live: LiveEmbeddings, hop: int = 1) -> list[float]:
    return live._source._drifts[hop - 1].array.tolist()  # type: ignore[union-attr]


def test_a_node_that_comes_by_hand() -> None:
    """One node comes to the end of the path 0 - 1 - 2: Â x before and after."""
    graph = path(1, 2, 4)
    live, s6 = followed(graph), 6**-0.5
    before = [1 / 2 + 2 * s6, 1 * s6 + 2 / 3 + 4 * s6, 2 * s6 + 4 / 2]
    assert all_of(live, 3) == pytest.approx(before)
    nodes, weights = contributions(graph.frozen(), live.smoother.frozen(), 1, [0, 1])
    assert (nodes.tolist(), weights.tolist()) == ([0, 1, 2], pytest.approx([s6, 1 / 3, s6]))
    moved = live.update(graph, graph.add(torch.tensor([[8.0]]), pairs_of((2, 3))))
    assert moved.tolist() == [1, 2, 3]  # 1 because 2 counts for less: degree 3, not 2
    after = [before[0], 1 * s6 + 2 / 3 + 4 / 3, 2 / 3 + 4 / 3 + 8 * s6, 4 * s6 + 8 / 2]
    assert all_of(live, 4) == pytest.approx(after)


def test_weights_that_change_an_edge_that_goes_and_other_features_by_hand() -> None:
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
    assert live.update(graph, change).tolist() == [0, 1, 2]
    assert float(live.of(torch.tensor([0]))) == pytest.approx(1 / 2 + 2 / (2 * 2.5) ** 0.5)
    change = graph.disconnect(pairs_of((2, 1)))
    assert change.touched.tolist() == [1, 2]
    live.update(graph, change)
    assert all_of(live, 3) == pytest.approx([1.5, 1.5, 4.0])
    change = graph.renew(torch.tensor([2, 0]), torch.tensor([[4.0], [6.0]]))
    assert (len(change.touched), change.renewed.tolist()) == (0, [0])  # 2 has the same
    assert live.update(graph, change).tolist() == [0, 1]
    assert all_of(live, 3) == pytest.approx([4.0, 4.0, 4.0])


@pytest.mark.usefixtures("corrected")
def test_a_push_on_a_path_of_four_by_hand() -> None:
    """0 - 1 - 2 - 3: degrees with loops are 2, 3, 3, 2. Node 0 turns from 1 to 3."""
    graph = path(1, 2, 4, 8)
    live = followed(graph)
    change = graph.renew(torch.tensor([0]), torch.tensor([[3.0]]))
    live.smoother.refresh(graph, change.touched)  # of nobody
    sent = ChangedRows(change.renewed, torch.tensor([[1.0]]))
    assert change.entries is not None
    given = (live.smoother, sent, change.renewed.numpy(), graph.features, Direct.of(change.entries))
    found = differences(*given, live._source._states[0], compiled=graph.compiled)  # type: ignore[union-attr]
    assert found.rows.flatten().tolist() == pytest.approx([2 / 2**0.5])  # d_0 = (3 - 1) / √2
    direct, nobody = change.entries, change.touched.numpy()
    pushed = push(graph, found.nodes, direct=direct, others=nobody, loops=True)
    assert pushed.rows.tolist() == [0, 1]
    before = [1 / 2 + 2 / 6**0.5, 1 / 6**0.5 + 2 / 3 + 4 / 3]
    assert all_of(live, 2) == pytest.approx(before)
    assert live.update(graph, change).tolist() == [0, 1]
    assert all_of(live, 2) == pytest.approx([before[0] + 2 / 2, before[1] + 2 / 6**0.5])
    assert [drift > 0 for drift in drifts(live)] == [True, True, False, False]


@pytest.mark.usefixtures("corrected")
@pytest.mark.parametrize(("most", "exact"), [(DRIFT, True), (float("inf"), False)])
def test_what_is_large_comes_and_goes_and_leaves_nothing(most: float, exact: bool) -> None:
    """A neighbour of a million: without a bound, corrected rows keep what it rounded away."""
    graph = GrowingGraph(num_features=1)
    leaves = torch.rand(40, 1, generator=torch.Generator().manual_seed(0))
    graph.add(torch.cat([leaves, torch.tensor([[1e6]])]), pairs_of(*((0, v) for v in range(1, 40))))
    live = followed(graph)
    live._source._most = most
    for _ in range(3):
        live.update(graph, graph.add(NO_ROWS, pairs_of((0, 40))))
        live.update(graph, graph.disconnect(pairs_of((40, 0))))
    off = abs(float(live.of(torch.tensor([0])) - followed(graph).of(torch.tensor([0]))))
    assert (off < 1e-6) == exact


@pytest.mark.usefixtures("corrected")
def test_what_is_forgotten_is_summed_away() -> None:
    """Whoever felt a node that goes is summed anew, whatever it was corrected by before."""
    graph = path(*range(1, 10))
    live = followed(graph, SGC(hops=2))
    live.update(graph, graph.renew(torch.tensor([4]), torch.tensor([[1e4]])))
    assert all(drifts(live, 2)[node] > 0 for node in (2, 3, 5, 6))
    live.update(graph, graph.remove(torch.tensor([4])))
    assert not any(drifts(live, 2)[2:7])
    assert live.of(torch.arange(9)).equal(followed(graph, SGC(hops=2)).of(torch.arange(9)))


def test_where_a_change_reaches_everything_all_is_summed_and_what_stays_is_not_told(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_embeddings, "WHOLE", 0.0)
    monkeypatch.setattr(live_embeddings, "correct", None)
    graph = path(*range(9), undirected=False)
    live = followed(graph, SGC(hops=2))
    moved = live.update(graph, graph.renew(torch.tensor([4]), torch.tensor([[7.0]])))
    assert moved.tolist() == [4, 5, 6]
    assert live.of(torch.arange(9)).equal(followed(graph, SGC(hops=2)).of(torch.arange(9)))


@pytest.mark.parametrize(("counted", "summed"), [(0, []), (1, [0]), (2, [0, 1])])
def test_from_some_hop_on_rows_are_counted_before_all_are_summed(
    kernel: str, monkeypatch: pytest.MonkeyPatch, counted: int, summed: list[int]
) -> None:
    """10 nodes give to 8 hubs: 80 pairs reach 18 rows of 118, for which all are not summed."""
    graph = GrowingGraph(num_features=1, undirected=False)
    edges = torch.cartesian_prod(torch.arange(10), torch.arange(10, 18)).T
    graph.add(torch.arange(118.0)[:, None], edges)
    live = followed(graph, SGC(hops=3))
    monkeypatch.setattr(live_embeddings, "COUNTED", counted)
    found, sum_all = [], HopStates._sum_all

    def noted(self: HopStates, new: Tensor, hop: int) -> ChangedRows:
        found.append(hop)
        return sum_all(self, new, hop)

    monkeypatch.setattr(HopStates, "_sum_all", noted)
    live.update(graph, graph.renew(torch.arange(10), torch.full((10, 1), 7.0)))
    assert found == summed
    expected = followed(graph, SGC(hops=3)).of(torch.arange(118))
    torch.testing.assert_close(live.of(torch.arange(118)), expected)


@pytest.mark.usefixtures("corrected")
@pytest.mark.parametrize("undirected", [True, False])
def test_means_follow_as_well(undirected: bool) -> None:
    graph = path(*range(1, 10), undirected=undirected)
    live = followed(graph, SGC(hops=2), scheme="row")
    change = graph.add(NO_ROWS, pairs_of((0, 4), (7, 2)))
    change = change.then(graph.disconnect(pairs_of((5, 6))))
    felt = live.update(graph, change.then(graph.renew(torch.tensor([8]), torch.ones(1, 1))))
    whole = smoother(graph.to_graph()[0], scheme="row")
    expected = whole.product(whole.product(graph.features))
    torch.testing.assert_close(live.of(torch.arange(9)), expected)
    if not undirected:  # 4, 2 and 6 gather otherwise; nobody is told of their degrees but they
        assert felt.tolist() == [2, 3, 4, 5, 6, 7, 8]
    with pytest.raises(ConfigurationError, match="'symmetric' with topology 'h2gcn'"):
        LiveEmbeddings(topologies.make("h2gcn"), num_features=1, scheme="row")


@pytest.mark.parametrize(("hops", "expected"), [(0, [9]), (1, [7, 8, 9]), (2, [6, 7, 8, 9])])
@pytest.mark.parametrize("name", ["mixhop", "h2gcn"])
def test_only_who_feels_a_change_is_computed(name: str, hops: int, expected: list[int]) -> None:
    graph = path(*range(1, 10))
    live = followed(graph, topologies.make(name, hops=hops))
    assert live.update(graph, graph.add(torch.ones(1, 1), pairs_of((8, 9)))).tolist() == expected


def test_what_is_read_does_not_grow_with_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    product = LiveSmoother.product

    def counted(
        self: LiveSmoother, graph: GrowingGraph, nodes: Tensor, *given: Tensor | None
    ) -> Tensor:
        read.append(len(nodes))
        return product(self, graph, nodes, *given)

    def pushed(*given: Any, **named: Any) -> Pushed:
        found = push(*given, **named)
        read.append(len(found.places))
        return found

    monkeypatch.setattr(LiveSmoother, "product", counted)
    monkeypatch.setattr(live_embeddings, "push", pushed)
    costs = []
    for nodes in (200, 2000):
        graph = path(*range(nodes))
        live = followed(graph, SGC(hops=2))
        read.clear()
        live.update(graph, graph.add(torch.ones(1, 1), pairs_of((10, nodes))))
        costs.append(list(read))
    # 10 and the new one give otherwise, to 4 and 2, and the new one is summed. Then 9, 10, 11 and
    # the new one do, to 3, 4, 3 and 2; all that 10 gathers from is other, so that it is summed too.
    assert costs[0] == costs[1] == [6, 1, 12, 2]


def test_a_removed_node_leaves_nothing_and_the_last_one_may_go() -> None:
    graph = path(*range(1, 7))
    live = followed(graph, topologies.make("reservoir"), scaling="unit")
    assert live.update(graph, graph.remove(torch.tensor([2]))).tolist() == [0, 1, 3, 4, 5]
    assert not live.of(torch.tensor([2])).any()
    kept = {n: t for n, t in live.state().items() if n.startswith(("state", "message"))}
    assert set(kept) == {"state_1", "state_2", "message_0", "message_1"}
    assert not any(tensor[2].any() for tensor in kept.values())
    assert len(live.update(graph, graph.remove(torch.tensor([0, 1, 3, 4, 5])))) == 0
    assert len(live.update(graph, graph.add(NO_ROWS, pairs_of()))) == 0
    live.update(graph, graph.add(torch.ones(2, 1), pairs_of((6, 7))))
    expected = EmbeddingCache(live.topology).encode(graph.to_graph()[0])
    torch.testing.assert_close(live.of(torch.tensor([6, 7])), expected)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_row_has_the_same_bits_in_any_company(kernel: str, weighted: bool) -> None:
    self_loops = weighted
    draw = torch.Generator().manual_seed(1)
    graph, live = GrowingGraph(num_features=19), LiveSmoother(self_loops=self_loops)
    edges = torch.randint(200, (2, 800), generator=draw)
    edges[0, :150] = 0  # a hub
    weights = torch.rand(800, generator=draw) + 0.1 if weighted else None
    graph.add(torch.randn(200, 19, generator=draw), edges, weights)
    live.refresh(graph, torch.arange(200))
    whole = live.product(graph, torch.arange(200), graph.features)
    for size in (1, 7, 199):
        some = torch.randperm(200, generator=draw)[:size]
        assert live.product(graph, some, graph.features).equal(whole[some])
        few = graph.features[:, :3].contiguous()
        assert live.product(graph, some, few).equal(whole[some][:, :3])
    other = LiveSmoother(self_loops=self_loops)
    for part in torch.arange(200).split(50):
        other.refresh(graph, part)
    assert other.state()["scalings"].equal(live.state()["scalings"])


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("undirected", [True, False])
def test_weights_tell_whose_features_an_embedding_is_made_of(name: str, undirected: bool) -> None:
    graph = path(*range(8), undirected=undirected)
    live = followed(graph, topologies.make(name))
    live.update(graph, graph.remove(torch.tensor([6])))
    live.update(graph, graph.add(torch.ones(2, 1), pairs_of((8, 3), (9, 3), (8, 9))))
    (powers,) = powers_of(live) or ([],)
    for node in (0, 3, 5, 9):
        positions, weights = contributions(graph.frozen(), live.smoother.frozen(), node, powers)
        total = weights @ graph.features[positions].double()
        torch.testing.assert_close(total.float(), live.of(torch.tensor([node]))[0])
        reached = graph.frozen().ego(node, hops=live.topology.hops, limit=99).nodes
        assert positions.tolist() == sorted(reached.tolist())


@pytest.mark.parametrize("name", sorted({*topologies.names()} - {*LINEAR}))
def test_other_embeddings_have_no_weights(name: str) -> None:
    assert powers_of(followed(path(1, 2), topologies.make(name), scaling="unit")) is None


@pytest.mark.parametrize(
    "topology", [SGC(), MixHop(kept_hops=(0, 2), unit=True), topologies.make("h2gcn")]
)
def test_a_snapshot_of_an_older_version_is_completed(topology: Any) -> None:
    graph = path(1, 2, 4, 8, 16)
    live, codes = followed(graph, topology), LiveCodes(width=4)
    codes.name(["x", "y"])
    everyone = GraphChange(new=torch.arange(5))
    codes.update(graph, everyone, torch.tensor([0, 3]), torch.tensor([0, 1]))
    kept = [part.state() for part in (live, codes)]
    new = {"drift_1", "drift_2", "state_2", "own", "unscaled"}
    other = LiveEmbeddings(topology, num_features=1, scaling="none")
    others = LiveCodes(width=4)
    others.name(["x", "y"])
    for part, state in zip((other, others), kept, strict=True):
        part.restore({name: tensor for name, tensor in state.items() if name not in new})
    others.show(torch.tensor([0, 3]), torch.tensor([0, 1]))
    for restored, first in ((other, live), (others, codes)):
        restored.attach(graph)
        assert restored.of(torch.arange(5)).equal(first.of(torch.arange(5)))
        assert restored.state().keys() == first.state().keys()


def coded(graph: GrowingGraph, labels: dict[int, int]) -> LiveCodes:
    codes = LiveCodes(width=WIDTH)
    codes.name(NAMES)
    everyone = GraphChange(new=torch.arange(graph.num_nodes))
    codes.update(graph, everyone, torch.tensor([*labels]), torch.tensor([*labels.values()]))
    return codes


def codes_from_scratch(graph: GrowingGraph, labels: dict[int, int]) -> tuple[Tensor, Tensor]:
    whole, positions = graph.to_graph()
    names = [NAMES[labels[p]] if p in labels else UNLABELLED for p in positions.tolist()]
    encoder = ClassCodes(width=WIDTH)
    return positions, encoder.scaled(encoder.encode(whole.showing(torch.tensor(names))))


def test_codes_near_and_far_by_hand() -> None:
    """0 - 1 - 2 - 3 with 0 of class 0 and 2 of class 1."""
    codes = coded(path(0, 0, 0, 0), {0: 0, 2: 1})
    first, second = class_codes(NAMES[:2], width=WIDTH)
    near, far = codes.of(torch.tensor([1]))[0].split(WIDTH)
    mixed = first / 2**0.5 + second / 2  # N_10 = 1/√2, N_12 = 1/2
    torch.testing.assert_close(near, mixed / mixed.norm())
    assert not far.any()  # nothing with a label is two hops away
    near, far = codes.of(torch.tensor([0]))[0].split(WIDTH)
    assert not near.any()
    torch.testing.assert_close(far, second)  # its own code, which comes back to it, is not there


@pytest.mark.parametrize("leaves", [2, 50])
def test_rounding_leaves_nothing_of_a_nodes_own_label(leaves: int) -> None:
    """Were it only subtracted, its last digits would be scaled to unit length: a whole label."""
    graph = GrowingGraph(num_features=1)
    graph.add(torch.zeros(leaves + 1, 1), pairs_of(*((0, v + 1) for v in range(leaves))))
    codes = coded(graph, {1: 0})
    assert not codes.of(torch.tensor([1])).any()
    assert codes.of(torch.tensor([2]))[0, WIDTH:].norm() == pytest.approx(1.0)
    positions, expected = codes_from_scratch(graph, {1: 0})
    torch.testing.assert_close(codes.of(positions), expected)


def test_a_label_moves_what_is_within_two_hops_and_nobody_else() -> None:
    graph = path(*[0.0] * 9)
    codes = coded(graph, {0: 0, 8: 1})
    before = codes.of(torch.arange(9))
    moved = codes.update(graph, GraphChange(), torch.tensor([4]), torch.tensor([2]))
    assert moved.tolist() == [2, 3, 4, 5, 6]
    codes.update(graph, GraphChange(), torch.tensor([4]), torch.tensor([UNLABELLED]))
    torch.testing.assert_close(codes.of(torch.arange(9)), before, atol=1e-6, rtol=0)


place = st.integers(0, 40)
steps = st.lists(
    st.fixed_dictionaries(
        {
            "new": st.integers(0, 3),
            "edges": st.lists(
                st.tuples(place, place, st.sampled_from([0.0, 0.25, 1.0, 6.0])), max_size=8
            ),
            "weigh": st.booleans(),
            "cut": st.lists(place, max_size=2),
            "renewed": st.sets(place, max_size=2),
            "power": st.integers(0, 6),  # of ten: how large features are
            "labels": st.dictionaries(place, st.integers(-1, 2), max_size=3),
            "gone": st.sets(place, max_size=2),
            "restore": st.booleans(),
        }
    ),
    min_size=1,
    max_size=6,
)


class Followed:
    """A graph with embeddings and codes, and a shadow of these, to which every move is held."""

    def __init__(self, topology: Any, *, undirected: bool) -> None:
        self.undirected = undirected
        self.graph = GrowingGraph(num_features=2, undirected=undirected)
        self.live = LiveEmbeddings(topology, num_features=2, scaling="none")
        self.codes = LiveCodes(width=WIDTH)
        self.codes.name(NAMES)
        self.labels: dict[int, int] = {}
        self.shadows = [torch.zeros(0, self.live.dims), torch.zeros(0, self.codes.dims)]
        self.draw = torch.Generator().manual_seed(0)

    def follow(self, change: GraphChange, told: dict[int, int]) -> None:
        self.labels = {n: c for n, c in (self.labels | told).items() if c >= 0}
        nodes, classes = torch.tensor([*told]).long(), torch.tensor([*told.values()]).long()
        moved = self.live.update(self.graph, change)
        assert set(change.new.tolist()) <= set(moved.tolist())
        felt = [moved, self.codes.update(self.graph, change, nodes, classes)]
        for number, (part, moved) in enumerate(zip((self.live, self.codes), felt, strict=True)):
            shadow = self.shadows[number]
            more = torch.zeros(self.graph.num_nodes - len(shadow), shadow.shape[1])
            shadow = torch.cat([shadow, more])
            shadow[moved], shadow[change.removed] = part.of(moved), 0
            assert part.of(torch.arange(self.graph.num_nodes)).equal(shadow)  # nobody else moved
            self.shadows[number] = shadow

    def step(self, step: dict[str, Any]) -> None:
        """Add, weigh, cut and renew as one change; then tell labels; then remove."""
        graph, count = self.graph, step["new"]
        known = graph.alive.nonzero().flatten().tolist()
        known += range(graph.num_nodes, graph.num_nodes + count)
        if not known:
            return

        def at(place: int) -> int:
            return int(known[place % len(known)])

        def rows(count: int) -> Tensor:
            return 10.0 ** step["power"] * torch.randn(count, 2, generator=self.draw)

        edges = pairs_of(*((at(a), at(b)) for a, b, _ in step["edges"]))
        weights = torch.tensor([w for *_, w in step["edges"]]) if step["weigh"] else None
        change = graph.add(rows(count), edges, weights)
        every = torch.arange(graph.num_nodes)
        owners = every.repeat_interleave(torch.from_numpy(graph.into.lengths(every.numpy())))
        listed = torch.stack([torch.from_numpy(graph.rows(every)[1]).long(), owners])
        if listed.shape[1]:
            cut = [place % listed.shape[1] for place in step["cut"]]
            change = change.then(graph.disconnect(listed[:, cut]))
        nodes = torch.tensor(sorted({at(place) for place in step["renewed"]}), dtype=torch.int64)
        self.follow(change.then(graph.renew(nodes, rows(len(nodes)))), {})
        self.follow(GraphChange(), {at(place): label for place, label in step["labels"].items()})
        gone = sorted({at(place) for place in step["gone"]})
        if gone:
            hidden = dict.fromkeys(gone, UNLABELLED)
            self.follow(graph.remove(torch.tensor(gone)), hidden)

    def restart(self) -> None:
        """Go on with what states, names and labels tell, which is all there was."""
        parts = (self.graph, self.live, self.codes)
        kept = [{name: v.clone() for name, v in part.state().items()} for part in parts]
        other = Followed(self.live.topology, undirected=self.undirected)
        for part, state in zip((other.graph, other.live, other.codes), kept, strict=True):
            part.restore(state)
        nodes, classes = torch.tensor([*self.labels]), torch.tensor([*self.labels.values()])
        other.codes.show(nodes.long(), classes.long())
        for part in (other.live, other.codes):
            part.attach(other.graph)
        self.graph, self.live, self.codes = other.graph, other.live, other.codes
        for part, state in zip((self.graph, self.live, self.codes), kept, strict=True):
            assert state.keys() == part.state().keys()
            assert all(value.equal(state[name]) for name, value in part.state().items())


@pytest.mark.parametrize(
    ("kernel", "names"),
    [("torch", sorted(topologies.names())), ("numba", ["sgc", "mixhop"])],
    indirect=["kernel"],
)
@settings(max_examples=27, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    steps=steps,
    undirected=st.booleans(),
    hops=st.sampled_from([2, 0, 1, 3]),
    self_loops=st.booleans(),
    whole=st.booleans(),
)
def test_any_history_comes_to_the_final_graph(
    kernel: str,
    names: list[str],
    data: st.DataObject,
    steps: list[Any],
    undirected: bool,
    hops: int,
    self_loops: bool,
    whole: bool,
) -> None:
    """Features that differ by a million: a row is exact beside its own largest value."""
    name = data.draw(st.sampled_from(names))
    topology = topologies.make(name, hops=hops, self_loops=self_loops)
    one = Followed(topology, undirected=undirected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_embeddings, "WHOLE", 0.3 if whole else 9.0)
        for step in steps:
            one.step(step)
            if step["restore"]:
                one.restart()
    positions, codes = codes_from_scratch(one.graph, one.labels)
    if len(positions):
        expected = EmbeddingCache(topology, scaling="none").encode(one.graph.to_graph()[0])
        largest = expected.abs().amax(1, keepdim=True)
        assert bool(((one.live.of(positions) - expected).abs() <= 1e-5 * largest + 1e-6).all())
        torch.testing.assert_close(one.codes.of(positions), codes, atol=1e-5, rtol=0)


@pytest.mark.skipif(not numba_works(), reason="numba is not at hand")
def test_compiled_code_finds_the_rows_in_which_rounding_shows() -> None:
    """The same rows as the formula: of labelled nodes, where little is left beside the drift."""
    from evergraph.online.graph.live_kernels import find_swamped

    draw = torch.Generator().manual_seed(1)
    shown, own = torch.randn(400, 8, generator=draw), torch.rand(400, generator=draw)
    shown[::5] = 0
    left = 10.0 ** -torch.randint(9, (400, 1), generator=draw)
    far = own[:, None] * shown + torch.randn(400, 8, generator=draw) * left
    drift = torch.rand(400, generator=draw) * 10.0 ** -torch.randint(4, 12, (400,), generator=draw)
    drift[::7] = 0
    tops = others_alone(far, own, shown).abs().amax(1)
    expected = (drift > live_codes.DRIFT * tops) & shown.any(1)
    due, limits = np.zeros(400, np.bool_), (live_codes.DRIFT, live_codes.BARELY)
    arrays = (part.numpy() for part in (torch.arange(400), far, own, shown, drift))
    find_swamped(*arrays, *map(np.float32, limits), due)
    assert 50 < due.sum() < 350
    assert due.tolist() == expected.tolist()
