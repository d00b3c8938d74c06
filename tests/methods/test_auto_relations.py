"""Relations in auto's views: seen where they are, left out where not, and forgotten with nodes."""

import pytest
import torch

from auto_learners import accuracy, learned, scores_of
from evergraph.closed_form.views import RELATION_CODES, RELATIONS
from evergraph.core.errors import ConfigurationError
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.methods import Auto, load_learner
from evergraph.streams import GraphStream

NODES = 160
VIEWS = ("0|1|2|r+y", "0|1|2|r")


def stream_of(*, related: bool = True, typed: bool = False) -> GraphStream:
    """Return nodes whose class is the relation that joins them to one of four anchors."""
    drawn = seeded(0, "anchors and friends")
    kinds = torch.arange(NODES) % 2
    anchors = torch.randint(4, (NODES,), generator=drawn)
    ends = torch.stack([anchors, torch.arange(NODES) + 4])
    features = torch.randn(NODES + 4, 6, generator=drawn)
    labels = torch.cat([torch.full((4,), -1), kinds])
    if typed:  # nothing else tells
        ends, features = ends[:, :0], torch.ones(NODES + 4, 1)
    graph = Graph.from_edges(ends, features=features, labels=labels, undirected=True)
    if typed:
        numbers = torch.cat([torch.zeros(4).long(), kinds]).short()
        graph = graph.with_types(NodeTypes(("here", "there"), numbers))
    elif related:
        names = ("likes", "hates")
        graph = graph.with_relations(Relations.of(ends, kinds, names, nodes=NODES + 4))
    return GraphStream(graph, unlabelled="along")


@pytest.fixture(scope="module")
def related() -> GraphStream:
    return stream_of()


@pytest.fixture(scope="module")
def known(related: GraphStream) -> Auto:
    """A learner of relations, for questions alone."""
    return learned(related, *VIEWS, width=96)


def test_classes_that_only_relations_tell_are_learned(related, known):
    assert accuracy(known, related, "local") > 0.9
    plain, typed = stream_of(related=False), stream_of(typed=True)
    assert accuracy(learned(plain, *VIEWS, width=96), plain, "local") < 0.7
    assert accuracy(learned(typed, *VIEWS, width=96), typed, "local") == 1.0


def test_without_relations_r_is_nothing():
    stream = stream_of(related=False)
    plain, same = learned(stream, "0|1|2+y", "0|1|2"), learned(stream, *VIEWS)
    graph = stream.open(0).graph
    assert scores_of(plain, graph).equal(scores_of(same, graph))
    with pytest.raises(ConfigurationError, match="need a graph with relations or node types"):
        learned(stream, "r")


def test_a_saved_learner_keeps_relations(related, known, tmp_path):
    known.save(tmp_path / "model.eg")
    loaded = load_learner(tmp_path / "model.eg")
    graph = related.open(0).graph
    assert scores_of(loaded, graph).equal(scores_of(known, graph))
    assert known.probes_.rows_.arrays[(RELATIONS,)].shape == (len(known.probes_), 3 * 256)
    assert known.probes_.rows_.codes.shape[1] == 2 * 16
    assert known.probes_.rows_.arrays[(RELATION_CODES,)].shape[1] == 16
