"""A learner beside a graph of relations and types ends where the final graph begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.closed_form.relations import RelationHops
from evergraph.core.errors import DataError
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.online.classifier import ContinualNodeClassifier
from evergraph.online.codecs.delta_bytes import delta_from_bytes, delta_to_bytes
from evergraph.online.codecs.tables import read_deltas
from evergraph.online.delta import Delta, NodeId
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead, FusedHead, Scorer, heads
from evergraph.online.learner import OnlineLearner
from evergraph.online.view.explanation import explain
from evergraph.server.arrow import arrow_from_delta, delta_from_arrow

WIDTH = 5
NAMES = ("cites", "writes")
TYPES = ("paper", "author", "venue")


def learner_of(*, undirected: bool = True) -> OnlineLearner:
    return OnlineLearner(head=FusedHead(width=32, codes=8), undirected=undirected)


def rows(nodes: list[int], turn: int = 0) -> torch.Tensor:
    drawn = [torch.randn(WIDTH, generator=seeded(turn, "row", node)) for node in nodes]
    return torch.stack(drawn) if drawn else torch.zeros(0, 0)


class History:
    """A graph told twice: delta by delta to one learner, and as it is to another."""

    def __init__(self, *, undirected: bool) -> None:
        self.undirected = undirected
        self.live = learner_of(undirected=undirected)
        self.nodes: dict[int, int] = {}  # and in which turn their features were last given
        self.edges: dict[tuple[int, int, str], float] = {}
        self.labels: dict[int, str] = {}
        self.turn = 0

    def step(self, kind: str, draw: Any) -> None:
        self.turn += 1
        delta = getattr(self, kind)(draw)
        if delta is not None:
            self.live.apply(delta_from_bytes(delta_to_bytes(delta)))

    def add(self, draw: Any) -> Delta:
        new = [len(self.nodes) + 100 * self.turn + place for place in range(2)]
        self.nodes |= dict.fromkeys(new, 0)
        labels = [draw(st.sampled_from(["x", "y", None])) for _ in new]
        self.labels |= {n: la for n, la in zip(new, labels, strict=True) if la is not None}
        return Delta(
            nodes=new,
            features=rows(new),
            labels=labels,
            types=[type_of(node) for node in new],
            **self.joined(draw, some=2),
        )

    def join(self, draw: Any) -> Delta:
        return Delta(**self.joined(draw, some=3))

    def joined(self, draw: Any, *, some: int) -> dict[str, Any]:
        known = sorted(self.nodes)
        edges, relations, weights = [], [], []
        for _ in range(some):
            pair = draw(st.sampled_from(known)), draw(st.sampled_from(known))
            name, weight = draw(st.sampled_from(NAMES)), draw(st.sampled_from([1.0, 2.5]))
            edges.append(pair)
            relations.append(name)
            weights.append(weight)
            if pair[0] != pair[1]:
                self.edges[(*pair, name)] = weight
        return {"edges": edges, "relations": relations, "weights": weights}

    def part(self, draw: Any) -> Delta | None:
        if not self.edges:
            return None
        source, target, _ = draw(st.sampled_from(sorted(self.edges)))
        ways = {(source, target)} | ({(target, source)} if self.undirected else set())
        self.edges = {e: w for e, w in self.edges.items() if e[:2] not in ways}
        return Delta(removed_edges=[(source, target)])

    def update(self, draw: Any) -> Delta:
        node = draw(st.sampled_from(sorted(self.nodes)))
        self.nodes[node] = self.turn
        return Delta(updated=[node], updated_features=rows([node], self.turn))

    def tell(self, draw: Any) -> Delta:
        node = draw(st.sampled_from(sorted(self.nodes)))
        self.labels[node] = draw(st.sampled_from(["x", "y"]))
        return Delta(late=[(node, self.labels[node])])

    def forget(self, draw: Any) -> Delta | None:
        if len(self.nodes) < 3:
            return None
        node = draw(st.sampled_from(sorted(self.nodes)))
        del self.nodes[node]
        self.labels.pop(node, None)
        self.edges = {e: w for e, w in self.edges.items() if node not in e[:2]}
        return Delta(forgotten=[node])

    def fresh(self) -> OnlineLearner:
        learner, nodes = learner_of(undirected=self.undirected), sorted(self.nodes)
        weighed = self.weights()
        learner.apply(
            Delta(
                nodes=nodes,
                features=torch.cat([rows([n], self.nodes[n]) for n in nodes]),
                labels=[self.labels.get(node) for node in nodes],
                types=[type_of(node) for node in nodes],
                edges=[edge[:2] for edge in weighed],
                relations=[edge[2] for edge in weighed],
                weights=list(weighed.values()),
            )
        )
        return learner

    def weights(self) -> dict[tuple[int, int, str], float]:
        return dict(self.edges)


def type_of(node: int) -> str:
    return TYPES[node % 3]


STEPS = ("add", "join", "part", "update", "tell", "forget")


@pytest.mark.parametrize("undirected", [True, False])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_history_ends_where_the_final_graph_begins(undirected: bool, data: Any) -> None:
    history = History(undirected=undirected)
    history.step("add", data.draw)
    for kind in data.draw(st.lists(st.sampled_from(STEPS), max_size=7)):
        history.step(kind, data.draw)
    nodes, fresh = sorted(history.nodes), history.fresh()
    found, wanted = (relation_vectors(one, nodes) for one in (history.live, fresh))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    batch = RelationHops().scaled(RelationHops().encode(batch_graph(history, nodes)))
    torch.testing.assert_close(found[:, : batch.shape[1]], batch, atol=1e-5, rtol=1e-5)


def relation_vectors(learner: OnlineLearner, nodes: Sequence[NodeId]) -> torch.Tensor:
    """Return what comes along relations, and class codes along them."""
    knowledge = learner._knowledge
    assert knowledge is not None
    assert knowledge.relations is not None
    assert knowledge.codes is not None
    places = learner._ids.positions(nodes)
    codes = knowledge.codes.of(places)[:, 2 * knowledge.codes.width :]
    return torch.cat([knowledge.relations.of(places), codes], dim=1)


def batch_graph(history: History, nodes: list[int]) -> Graph:
    place = {node: number for number, node in enumerate(nodes)}
    edges = history.weights()
    ends = torch.tensor([[place[e[side]] for e in edges] for side in (0, 1)], dtype=torch.int64)
    graph = Graph.from_edges(
        ends.reshape(2, -1),
        features=torch.cat([rows([n], history.nodes[n]) for n in nodes]),
        labels=torch.zeros(len(nodes), dtype=torch.int64),
    )
    relations = Relations.of(
        ends.reshape(2, -1),
        torch.tensor([NAMES.index(e[2]) for e in edges], dtype=torch.int64),
        NAMES,
        nodes=len(nodes),
        weights=torch.tensor(list(edges.values())),
    )
    numbers = torch.tensor([TYPES.index(type_of(node)) for node in nodes]).short()
    return graph.with_relations(relations).with_types(NodeTypes(TYPES, numbers))


FIRST = Delta(
    nodes=("a", "b", "c"),
    features=torch.eye(3),
    labels=("x", "y", None),
    types=("paper", None, "author"),
    edges=(("c", "a"), ("c", "b")),
    relations=("writes", "reviews"),
)


def test_a_folder_brings_relations_back(tmp_path: Path) -> None:
    def opened() -> LearnerFolder:
        return LearnerFolder.open(tmp_path / "live", make=learner_of)

    def likely(folder: LearnerFolder) -> torch.Tensor:
        return folder.learner.predict_proba(["c"])[1]

    with opened() as folder:
        folder.submit(FIRST)
        before = likely(folder)
        folder.compact()
        folder.submit(Delta(edges=(("a", "b"),), relations=("cites",)))
        after = likely(folder)
    with opened() as folder:
        assert likely(folder).equal(after)
        news = folder.upsert(Delta(edges=(("a", "b"), ("b", "a")), relations=("cites", "cites")))
        assert (news.news.new_edges, news.news.known_edges) == (1, 1)
    assert not before.equal(after)


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (FIRST, Delta(edges=(("a", "b"),), relations=("",)), "relations must be names of 1 to 200"),
        (FIRST, Delta(edges=(("a", "b"),), relations=("x", "y")), "not 2 for 1 edges"),
        (
            Delta(nodes=("a", "b"), features=torch.eye(2)),
            Delta(edges=(("a", "b"),), relations=("cites",)),
            "the learner began without any",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(first: Delta, then: Delta, said: str) -> None:
    learner = learner_of()
    learner.apply(first)
    with pytest.raises(DataError, match=said):
        learner.apply(then)


def test_a_head_that_does_not_look_refuses_them() -> None:
    learner = OnlineLearner(head=AnalyticHead(width=16))
    with pytest.raises(DataError, match="head 'analytic' does not look at them"):
        learner.apply(FIRST)


def drawn_delta(seed: int, *, related: bool, weighted: bool) -> Delta:
    generator = torch.Generator().manual_seed(seed)
    count = 50
    ends = torch.randint(count, (2, 120), generator=generator)
    ends = ends[:, ends[0] != ends[1]]
    kinds = torch.randint(3, (ends.shape[1],), generator=generator).tolist()
    types = torch.randint(4, (count,), generator=generator).tolist()
    weights = torch.rand(ends.shape[1], generator=generator).add(0.1).tolist()
    return Delta(
        nodes=range(count),
        features=torch.randn(count, WIDTH, generator=generator),
        labels=["xyz"[place % 3] if place % 5 else None for place in range(count)],
        edges=ends.t().tolist(),
        relations=[("cites", "writes", "knows")[kind] for kind in kinds] if related else (),
        types=[None if kind == 3 else TYPES[kind] for kind in types] if related else (),
        weights=weights if weighted else (),
    )


EXPLAINING = ("analytic", "auto")


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(EXPLAINING),
    seed=st.integers(0, 999),
    undirected=st.booleans(),
    weighted=st.booleans(),
    node=st.integers(0, 49),
    limit=st.sampled_from([0, 3, 50]),
)
def test_what_nodes_say_adds_up_to_the_score(
    name: str, seed: int, undirected: bool, weighted: bool, node: int, limit: int
) -> None:
    head = heads.make(name, width=32)
    learner = OnlineLearner(head=head, undirected=undirected)
    learner.apply(drawn_delta(seed, related=head.takes_relations, weighted=weighted))
    why = learner.explain(node, top=3, limit=limit)
    assert why.voices is not None
    sums = torch.tensor([voice.says for voice in why.voices]).sum(0) + torch.tensor(why.others)
    torch.testing.assert_close(sums, torch.tensor(why.scores), atol=2e-4, rtol=1e-4)
    assert max(map(abs, why.rest)) < 2e-4


def test_every_head_that_explains_is_held_to_it() -> None:
    ours = [s for s in Scorer.__subclasses__() if s.__module__.startswith("evergraph.")]
    explain_themselves = {s.__module__ for s in ours if "slopes" in vars(s)}
    assert explain_themselves == {heads.resolve(name).__module__ for name in EXPLAINING}


def test_an_explanation_names_who_speaks_against_an_edge_and_sees_no_later_delta() -> None:
    learner = learner_of(undirected=False)
    learner.apply(FIRST)
    before = learner.explain("c")
    assert before.voices is not None
    assert {voice.node for voice in before.voices} == {"a", "b", "c"}  # c is nobody's target
    with learner.frozen().pinned(["c"]) as pinned:
        learner.apply(Delta(updated=("a",), updated_features=5 * torch.ones(1, 3)))
        learner.apply(Delta(edges=(("b", "c"),), relations=("reviews",), forgotten=("a",)))
        assert explain(pinned, "c", top=3, limit=20) == before


def test_tables_bring_relations_and_types(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "id,label,type,x,y\na,art,paper,1,0\nb,law,paper,0,1\nc,,author,1,1\n"
    )
    (tmp_path / "edges.csv").write_text(
        "source,target,relation,weight\nc,a,writes,1\nc,b,reviews,2\na,b,cites,1\n"
    )
    graph = load(tmp_path)
    assert graph.relations is not None
    assert graph.types is not None
    assert graph.relations.names == ("writes", "reviews", "cites")
    assert graph.types.of(torch.arange(3)) == ["paper", "paper", "author"]
    assert graph.num_features == 2
    deltas = list(read_deltas(tmp_path / "nodes.csv", tmp_path / "edges.csv", batch=1))
    assert deltas[0].types == ("paper",)  # so that relations are known of from the first
    learner = learner_of()
    for delta in deltas:
        learner.apply(delta)
    whole = learner_of()
    (delta,) = read_deltas(tmp_path / "nodes.csv", tmp_path / "edges.csv")
    whole.apply(delta_from_arrow(arrow_from_delta(delta)))
    found, wanted = (relation_vectors(one, ["a", "b", "c"]) for one in (learner, whole))
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-6)
    batch = RelationHops().scaled(RelationHops().encode(graph))
    torch.testing.assert_close(wanted[:, : batch.shape[1]], batch, atol=1e-5, rtol=1e-5)


def test_relations_from_python() -> None:
    model = ContinualNodeClassifier(width=32)
    model.partial_fit(
        ["a", "b", "c"],
        torch.eye(3),
        ["x", "y", None],
        [("c", "a"), ("c", "b")],
        relations=["writes", "reviews"],
        types=["paper", float("nan"), "author"],
    )
    told = model.learner_._knowledge
    assert told is not None
    assert told.relations is not None
    assert list(told.relations.names) == ["writes", "reviews"]
    assert list(told.relations.types) == ["paper", "author"]


def test_a_model_takes_hetero_data() -> None:
    data: Any = pytest.importorskip("torch_geometric.data").HeteroData()
    data["paper"].x, data["paper"].y = torch.eye(2), torch.tensor([0, 1])
    data["author"].num_nodes = 1
    data["author", "writes", "paper"].edge_index = torch.tensor([[0], [1]])
    model = ContinualNodeClassifier(width=32).partial_fit(data)
    assert model.predict(["paper/1"]).tolist() == [1]
    assert model.learner_.neighbourhood("author/0").nodes == ("author/0", "paper/1")


def test_a_learner_that_does_not_look_ignores_columns_aloud(tmp_path: Path, call: Any) -> None:
    (tmp_path / "nodes.csv").write_text("id,target,type,x\na,1.5,paper,1\nb,2.5,paper,2\n")
    (tmp_path / "edges.csv").write_text("source,target,relation\na,b,cites\n")
    tables = ("--nodes", str(tmp_path / "nodes.csv"), "--edges", str(tmp_path / "edges.csv"))
    said = " ".join(call("ingest", str(tmp_path / "numbers"), *tables)[1].split())
    for column in ("relation", "type"):
        assert f"column '{column}' is ignored: this learner does not look at it" in said
    assert call("predict", str(tmp_path / "numbers"), "--all")[0].startswith("id,target\na,")
