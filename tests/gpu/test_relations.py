"""Relations and types on a GPU give what they give on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from evergraph.closed_form import ViewFeatures
from evergraph.closed_form.relations import RelationCodes, RelationHops
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, NodeTypes, Relations
from evergraph.methods import ERGNN, Auto
from evergraph.streams import GraphStream
from evergraph.topology import EmbeddingCache
from evergraph.training import Trainer


@pytest.fixture
def related(small_graph: Graph) -> Graph:
    """Return the graph with three relations of three weights, and two types."""
    ends = torch.stack([small_graph.indices.long(), small_graph.edge_rows()])
    kinds = ends.sum(0) % 3
    relations = Relations.of(
        ends, kinds, ("a", "b", "c"), nodes=small_graph.num_nodes, weights=1.0 + kinds
    )
    types = NodeTypes(("even", "odd"), (torch.arange(small_graph.num_nodes) % 2).short())
    return small_graph.with_relations(relations).with_types(types)


@pytest.mark.parametrize("encoder", [RelationHops(width=32), RelationCodes(width=32)])
def test_embeddings(encoder: RelationHops | RelationCodes, related: Graph) -> None:
    found = encoder.encode(related.to("cuda"))
    assert found.device.type == "cuda"
    assert found.cpu().allclose(encoder.encode(related), rtol=1e-4, atol=1e-5)


def test_embeddings_that_do_not_fit(related: Graph, little_room: Callable[[], None]) -> None:
    little_room()
    cache = EmbeddingCache(RelationHops(width=32), device="cuda")
    expected = EmbeddingCache(RelationHops(width=32))(related)
    assert cache(related).cpu().allclose(expected, rtol=1e-4, atol=1e-5)


def test_a_stream_learned_by_auto(related: Graph) -> None:
    scores = []
    for device in ("cpu", "cuda"):
        stream = GraphStream(related, device=device)
        learner = Auto(
            backbone=ViewFeatures(views=("0|1|r+y", "0|r"), width=64),
            trainer=Trainer(device=device),
            generator=seeded(0),
        )
        for task in stream:
            learner.fit_task(task)
        (exam,) = stream.exams(len(stream) - 1, "global")
        scores.append(learner.logits(exam.graph, exam.nodes).cpu())
    assert scores[1].allclose(scores[0], rtol=1e-2, atol=1e-2)


def test_a_stream_learned_by_replay(related: Graph) -> None:
    learner = ERGNN(trainer=Trainer(device="cuda", epochs=2), generator=seeded(0))
    stream = GraphStream(related, device="cuda")
    for task in stream:
        learner.fit_task(task)
    (exam,) = stream.exams(len(stream) - 1, "global")
    assert learner.logits(exam.graph, exam.nodes).isfinite().all()
