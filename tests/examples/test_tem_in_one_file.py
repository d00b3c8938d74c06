"""The example is the library's method, told in one file."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

from evergraph.core.seeding import seeded
from evergraph.evaluation.evaluator import average_accuracy, matrix_of
from evergraph.experiments.protocol import learn_stream
from evergraph.graphs import Graph, normalised, reach_sizes
from evergraph.memory import EmbeddingMemory
from evergraph.methods import TEM
from evergraph.methods.examples import make_examples
from evergraph.nn import PDGNN, masked_cross_entropy
from evergraph.streams import GraphStream
from evergraph.topology import SGC
from evergraph.training import Trainer
from from_file import module_of

PATH = Path(__file__).parents[2] / "examples" / "tem_in_one_file.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return module_of(PATH)


@pytest.fixture(scope="module")
def graph(example: ModuleType) -> Graph:
    edges, features, labels = example.random_graph()
    return Graph.from_edges(edges, features=features, labels=labels, undirected=True)


def test_it_fits_on_200_lines_and_uses_nothing_of_ours():
    text = PATH.read_text()
    assert len(text.splitlines()) <= 200
    assert "import evergraph" not in text
    assert "from evergraph" not in text


def test_its_pieces_equal_the_librarys(example, graph):
    edges = torch.stack([graph.indices.long(), graph.edge_rows()])
    matrix = example.propagation_matrix(edges, graph.num_nodes)
    torch.testing.assert_close(matrix.to_dense(), normalised(graph).to_dense())
    torch.testing.assert_close(
        example.embed(matrix, graph.features), SGC(hops=2).encode(graph), atol=1e-5, rtol=1e-4
    )
    everyone = torch.arange(graph.num_nodes)
    assert example.ego_sizes(matrix).equal(reach_sizes(graph, everyone, hops=2))


def test_its_loss_equals_the_librarys(example, graph):
    model = example.MLP(16, torch.Generator().manual_seed(0))
    model.grow(6)
    targets = graph.labels[:500]
    theirs = example.replay_loss(model, graph.features[:500], targets)
    space = GraphStream(graph).label_space(2)
    examples = make_examples(graph.features[:500], None, targets, label_space=space)
    ours = masked_cross_entropy(model(examples.inputs), targets, weights=examples.weights)
    torch.testing.assert_close(ours, theirs)


def test_it_reaches_the_librarys_accuracy(example, graph, monkeypatch):
    monkeypatch.setattr(example, "EPOCHS", 40)
    stream = GraphStream(graph)
    split = {
        part: torch.cat([getattr(s, part) for s in stream.splits]) for part in ("train", "test")
    }
    edges = torch.stack([graph.indices.long(), graph.edge_rows()])
    theirs = matrix_of(example.learn(edges, graph.features, graph.labels, split))
    learner = TEM(
        backbone=PDGNN(hidden=(256,), bias=False, dropout=0.0, scaling="none"),
        memory=EmbeddingMemory(budget=400),
        trainer=Trainer(epochs=40, lr=0.005, weight_decay=5e-4, batch_size=None, device="cpu"),
        generator=seeded(0, "learner"),
    )
    reports = learn_stream(learner, stream, testings=["local"])
    ours = matrix_of([report.rows["local"]["balanced"] for report in reports])
    # The same splits and the same mathematics; only the initial weights and draws differ.
    assert average_accuracy(theirs) == pytest.approx(average_accuracy(ours), abs=0.03)
    assert 0.5 < average_accuracy(theirs) < 0.95  # neither hopeless nor trivial
