"""A learner beside a graph of relations and types ends where the final graph begins."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_bytes import delta_from_arrow
from evergraph.closed_form.codes import RelationHops
from evergraph.core.errors import DataError
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.graphs.relations import Relations
from evergraph.online.classifier import ContinualNodeClassifier
from evergraph.online.codecs.tables import read_deltas
from evergraph.online.delta import Delta, NodeId
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.heads import AnalyticHead, FusedHead, heads
from evergraph.online.learner import OnlineLearner
from evergraph.server.client import arrow_from_delta
from growth import growth


def learner_of(*, undirected: bool = True) -> OnlineLearner:
    return OnlineLearner(head=FusedHead(width=32, codes=8), undirected=undirected)


def relation_vectors(learner: OnlineLearner, nodes: Sequence[NodeId]) -> torch.Tensor:
    """Return what comes along relations, and class codes along them."""
    knowledge = learner._knowledge
    places = learner._ids.positions(nodes)
    codes = knowledge.codes.of(places)[:, 2 * knowledge.codes.width :]
    return torch.cat([knowledge.relations.of(places), codes], dim=1)


FIRST = Delta(
    nodes=("a", "b", "c"),
    features=torch.eye(3),
    labels=("x", "y", None),
    types=("paper", None, "author"),
    edges=(("c", "a"), ("c", "b")),
    relations=("writes", "reviews"),
)


def test_what_is_new_of_edges_is_told_relation_by_relation():
    learner = learner_of()
    learner.apply(FIRST)
    edges = [("c", "a"), ("c", "a"), ("a", "c"), ("c", "b"), ("c", "b"), ("a", "b"), ("a", "b")]
    names = ["writes", "cites", "writes", "reviews", "reviews", "cites", "cites"]
    weights = [1.0, 2.0, 1.0, 3.0, 0.0, 1.0, 4.0]  # the last of a repeated edge counts
    new, news = learner.only_new(Delta(edges=edges, relations=names, weights=weights))
    kept = zip(new.edges, new.relations, new.weights, strict=True)
    assert [*kept] == [
        (("c", "a"), "cites", 2.0),
        (("a", "c"), "writes", 1.0),
        (("c", "b"), "reviews", 0.0),
        (("a", "b"), "cites", 4.0),
    ]
    counts = (news.new_edges, news.known_edges, news.changed_weights, news.removed_edges)
    assert counts == (3, 3, 0, 1)  # known: what is there, and rows that are repeated


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (FIRST, Delta(edges=(("a", "b"),), relations=("",)), "relations must be names of 1 to 200"),
        (FIRST, Delta(edges=(("a", "b"),), relations=("x", "y")), "not 2 for 1 edges"),
        (
            Delta(nodes=("a", "b"), features=torch.eye(2)),
            Delta(edges=(("a", "b"),), relations=("cites",)),
            "the learner began without them",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(first, then, said):
    learner = learner_of()
    learner.apply(first)
    with pytest.raises(DataError, match=said):
        learner.apply(then)
    with pytest.raises(DataError, match="head 'analytic', which does not use them"):
        OnlineLearner(head=AnalyticHead(width=16)).check(FIRST)


EXPLAINING = ("analytic", "auto")


@settings(max_examples=10)
@given(
    name=st.sampled_from(EXPLAINING),
    seed=st.integers(0, 999),
    undirected=st.booleans(),
    weighted=st.booleans(),
    node=st.integers(0, 49),
    limit=st.sampled_from([0, 3, 50]),
)
def test_what_nodes_say_adds_up_to_the_score(name, seed, undirected, weighted, node, limit):
    head = heads.make(name, width=32)
    learner = OnlineLearner(head=head, undirected=undirected)
    related = head.takes_relations
    learner.apply(growth(seed, 1, each=50, dims=5, related=related, weighted=weighted)[0])
    why = learner.explain(f"0.{node}", top=3, limit=limit)
    sums = torch.tensor([voice.says for voice in why.voices]).sum(0) + torch.tensor(why.others)
    places = [learner.classes.index(name) for name in why.classes]
    intercept = head.engine.fused_.offsets[places].float()
    torch.testing.assert_close(sums + intercept, torch.tensor(why.scores), atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(torch.tensor(why.rest), intercept, atol=2e-4, rtol=1e-4)
    assert len(why.voices) <= limit
    shares = learner.predict_proba([f"0.{node}"])[1][0]
    assert float(shares[places[0]]) == pytest.approx(float(shares.max()))


def test_tables_bring_relations_and_types(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "id,label,type,x,y\na,art,paper,1,0\nb,law,paper,0,1\nc,,author,1,1\n"
    )
    (tmp_path / "edges.csv").write_text(
        "source,target,relation,weight\nc,a,writes,1\nc,b,reviews,2\na,b,cites,1\n"
    )
    graph = load(tmp_path)
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
    plain = graph.with_features(graph.features[:, :2])
    batch = RelationHops().scaled(RelationHops().encode(plain))
    torch.testing.assert_close(wanted[:, : batch.shape[1]], batch, atol=1e-5, rtol=1e-5)


def test_relations_from_python():
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
    assert list(told.relations.names) == ["writes", "reviews"]
    assert list(told.relations.types) == ["paper", "author"]


def test_relations_of_a_graph():
    edges = torch.tensor([[0, 1], [1, 2]])
    graph = Graph.from_edges(
        edges, features=torch.eye(3), labels=torch.tensor([0, 1, -1]), undirected=True
    )
    kinds = torch.tensor([1, 0])
    graph = graph.with_relations(Relations.of(edges, kinds, ("writes", "reviews"), nodes=3))
    told = ContinualNodeClassifier(width=32).partial_fit(graph).learner_._knowledge
    assert sorted(told.relations.names) == ["reviews", "writes"]


def test_a_learner_that_does_not_look_ignores_columns_aloud(tmp_path, call):
    (tmp_path / "nodes.csv").write_text("id,label,type,x\na,law,paper,1\nb,art,paper,2\n")
    (tmp_path / "edges.csv").write_text("source,target,relation\na,b,cites\n")
    tables = ("--nodes", str(tmp_path / "nodes.csv"), "--edges", str(tmp_path / "edges.csv"))
    LearnerFolder.open(tmp_path / "plain", {"head": {"name": "analytic"}}).close()
    said = " ".join(call("ingest", str(tmp_path / "plain"), *tables)[1].split())
    for column in ("relation", "type"):
        assert f"column '{column}' is ignored: this learner does not use it" in said
