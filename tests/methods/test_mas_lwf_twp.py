"""What MAS finds sensitive, what LwF holds on to, what TWP adds for the topology."""

from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph
from evergraph.nn import GAT, GCN, PDGNN, backbones
from evergraph.streams import GraphStream
from evergraph.training.trainer import EVERYTHING


def halves(graph: Graph, **options: Any) -> GraphStream:
    return GraphStream(graph, split=(0.5, 0.25, 0.25), **options)


def test_mas_measures_how_much_the_outputs_move(make, two_pairs):
    """Ω against finite differences of the mean squared length of the outputs."""
    learner = make("mas", backbone=GCN(hidden=3))
    task = halves(two_pairs).open(0)
    learner.begin_task(task)
    found = learner.importance()

    def output():
        scores = learner.logits(task.graph, task.train).double()
        return float((scores**2).sum(1).mean())

    for name, parameter in learner.named_parameters().items():
        flat = parameter.data.view(-1)
        for place in range(0, len(flat), 5):
            step = 1e-2
            flat[place] += step
            above = output()
            flat[place] -= 2 * step
            below = output()
            flat[place] += step
            slope = abs(above - below) / (2 * step)
            assert float(found[name].view(-1)[place]) == pytest.approx(slope, abs=2e-3, rel=2e-2)


def test_mas_in_task_il_looks_at_the_tasks_own_outputs(make, two_pairs):
    learner = make("mas", backbone=GCN(hidden=3))
    stream = halves(two_pairs, setting="task-il")
    learner.fit_task(stream.open(0))
    learner.begin_task(stream.open(1))
    last = learner.importance()["backbone.convolutions.1.linear.weight"]
    assert float(last[:2].abs().sum()) == 0.0  # the first task's classes
    assert float(last[2:].abs().sum()) > 0.0


def test_mas_adds_up_over_tasks_and_needs_no_labels(make, two_pairs):
    learner = make("mas", backbone=GCN(hidden=3))
    stream = halves(two_pairs)
    learner.fit_task(stream.open(0))
    first = {name: value.clone() for name, value in learner.importance_.items()}
    assert learner.usage.importance == 2 * sum(v.numel() for v in first.values())
    learner.fit_task(stream.open(1))
    for name, value in first.items():
        rows = tuple(slice(size) for size in value.shape)
        assert bool((learner.importance_[name][rows] >= value - 1e-7).all())
    assert any(bool(learner.importance_[n].sum() > v.sum()) for n, v in first.items())


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
def test_lwf_distils_the_old_models_answers(make, small_graph, setting):
    """Of two old tasks of two classes: one softmax in class-IL, one a task in task-IL."""
    learner = make("lwf", backbone=GCN(hidden=3), strength=2.0, temperature=4.0)
    stream = GraphStream(small_graph, setting=setting)
    for index in range(2):
        learner.fit_task(stream.open(index))
    task = stream.open(2)
    old = learner.logits(task.graph, task.train)  # before the task
    learner.begin_task(task)
    groups = [slice(0, 4)] if setting == "class-il" else [slice(0, 2), slice(2, 4)]
    new = learner.scores(EVERYTHING)
    told = new.detach()
    for scores in (told, told + torch.arange(6.0)):  # near the old answers, and far
        terms = [
            -((old[:, own] / 4).softmax(1) * (scores[:, own] / 4).log_softmax(1)).sum(1).mean()
            for own in groups
        ]
        expected = sum(float(term) for term in terms)
        assert float(learner.distillation(scores, EVERYTHING)) == pytest.approx(expected, rel=1e-5)
        assert min(float(term) for term in terms) > 0.1
    distilled = float(learner.distillation(new, EVERYTHING))
    bare = float(learner.classification_loss(new, EVERYTHING))
    assert learner.loss(EVERYTHING).item() == pytest.approx(bare + 2 * distilled, rel=1e-5)


def test_twps_importance_weighs_both_squared_gradients(make, two_pairs):
    learner = make(
        "twp", backbone=GCN(hidden=3), loss_strength=2.0, topology_strength=5.0, beta=0.0
    )
    learner.begin_task(halves(two_pairs).open(0))
    by_loss = learner.gradients(learner.loss(EVERYTHING))
    by_topology = learner.gradients(learner.topology_loss())
    found = learner.importance()
    for name, value in found.items():
        expected = 2 * by_loss[name] ** 2 + 5 * by_topology[name] ** 2
        torch.testing.assert_close(value, expected, atol=1e-8, rtol=1e-4)
    assert any(float(gradient.abs().max()) > 0 for gradient in by_topology.values())


def test_twps_topology_term_by_hand_on_a_triangle(make):
    """A triangle, one weight w, features 1, 2, 3: e_ij = w x_i tanh(w x_j) for all nine pairs."""
    triangle = Graph.from_edges(
        torch.tensor([[0, 1, 2], [1, 2, 0]]),
        features=torch.tensor([[1.0], [2.0], [3.0]]),
        labels=torch.tensor([0, 0, 0]),
        undirected=True,
    )
    learner = make("twp", backbone=GCN(layers=1, bias=False))
    stream = GraphStream(triangle, classes_per_task=1, split=(0.34, 0.33, 0.33))
    learner.begin_task(stream.open(0))
    weight = next(iter(learner.named_parameters().values()))
    with torch.no_grad():
        weight.fill_(0.5)
    x = torch.tensor([1.0, 2.0, 3.0])
    scores = (0.5 * x)[:, None] * torch.tanh(0.5 * x)[None, :]
    assert float(learner.topology_loss()) == pytest.approx(float((scores**2).mean()), rel=1e-5)


def test_twp_reads_gats_own_attention(make, two_pairs):
    learner = make("twp", backbone=GAT(hidden=4, heads=2), beta=0.0)
    learner.begin_task(halves(two_pairs).open(0))
    gradients = learner.gradients(learner.topology_loss())
    assert float(gradients["backbone.convolutions.0.query"].abs().max()) > 0
    entries = two_pairs.num_edges // 2 + 8  # the first task's half of the graph, with self-loops
    scores = learner.backbone.edge_scores(learner._examples.inputs)
    assert [tuple(layer.shape) for layer in scores] == [(entries, 2), (entries, 1)]


def test_twps_beta_term_is_the_size_of_the_loss_gradient(make, two_pairs):
    learner = make("twp", backbone=GCN(hidden=3), beta=0.1)
    learner.begin_task(halves(two_pairs).open(0))
    bare = super(type(learner).__mro__[1], learner).loss(EVERYTHING)
    size = sum(float(g.abs().sum()) for g in learner.gradients(bare).values())
    assert learner.loss(EVERYTHING).item() == pytest.approx(float(bare) + 0.1 * size, rel=1e-5)
    learner.loss(EVERYTHING).backward()  # a gradient of a gradient
    parameters = learner.named_parameters().values()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in parameters)


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "sage"])
def test_twp_learns_where_edges_are_scored(make, two_pairs, name):
    learner = make("twp", backbone=backbones.make(name, hidden=8))
    stream = halves(two_pairs)
    for task in stream:
        learner.fit_task(task)
    assert all(bool(value.isfinite().all()) for value in learner.importance_.values())


@pytest.mark.parametrize("name", ["pdgnn", "sgc"])
def test_twp_without_attention_is_refused_in_one_sentence(make, name):
    with pytest.raises(ConfigurationError, match=r"topology_strength must be 0 with backbone"):
        make("twp", backbone=backbones.make(name))
    make("twp", backbone=PDGNN(), topology_strength=0.0)
