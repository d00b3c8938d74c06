"""What auto keeps of the training nodes of graphs that are gone, and what it is good for."""

from dataclasses import replace

import pytest
import torch

from auto_learners import VIEWS, auto, close, final_graph, learned, never_labelled, scores_of
from evergraph.closed_form import memory_heads
from evergraph.closed_form.kept_nodes import nodes_per_class
from evergraph.closed_form.kernel_map import KernelMap
from evergraph.closed_form.view_features import ViewFeatures
from evergraph.closed_form.views import View
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.graphs import Graph
from evergraph.graphs.csr import as_csr
from evergraph.methods import load_learner
from evergraph.streams import GraphStream


def by_label(scores, stream):
    """Return scores with a column for each of the dataset's labels, ascending."""
    return scores[:, torch.tensor(stream.classes).argsort()]


def test_the_order_of_tasks_changes_neither_what_is_kept_nor_the_answers(small_graph):
    answers, kept = [], []
    for order in ([0, 1, 2, 3, 4, 5], [3, 2, 5, 4, 1, 0], [4, 5, 0, 1, 2, 3]):
        stream = GraphStream(small_graph, order=order, known_labels="everywhere")
        learner = learned(stream, budget=7)
        graphs = [stream.exams(2, "local")[order.index(c) // 2].graph for c in (0, 2, 4)]
        answers.append(by_label(torch.cat([scores_of(learner, g) for g in graphs]), stream))
        kept.append(learner.embeddings_.nodes_.sort().values)
        assert torch.bincount(learner.embeddings_.labels_).tolist() == [7] * 6
    for each in (1, 2):
        assert kept[each].equal(kept[0])
        close(answers[each], answers[0], 1e-4)


def test_nodes_beside_the_sums_answer_where_random_features_are_few():
    """Features as wide as there are words, and sums too narrow for them."""
    graph = load("synthetic", nodes=600, classes=4, homophily=0.5, noise=0.7, features=64)
    stream = GraphStream(graph, known_labels="nowhere")
    right = []
    for budget in (0, 60):
        learner = learned(stream, "0|1|2+y", "0|2", width=16, budget=budget)
        exams = stream.exams(1, "local")
        hits = [learner.logits(e.graph, e.nodes).argmax(1).eq(e.labels).float() for e in exams]
        right.append(float(torch.cat(hits).mean()))
    assert right[1] > right[0] + 0.05


@pytest.mark.parametrize(("width", "asked"), [(16, True), (512, False)])
def test_a_memory_that_spares_no_loss_is_not_asked(width, asked, monkeypatch):
    """Two nodes of a class say nothing that sums over all of them do not, if these are wide."""
    graph = load("synthetic", nodes=600, classes=4, homophily=0.5, noise=0.7, features=8)
    stream = GraphStream(graph, known_labels="nowhere")
    monkeypatch.setattr(memory_heads, "ENOUGH_ANSWERS", 100)
    learner = learned(stream, "0|1|2+y", "0|2", width=width, budget=60 if asked else 2)
    learner.solve()
    weights = learner.backbone.memory_heads.weights
    assert bool(weights[0].any()) == asked
    assert bool(learner.backbone.memory_heads.used(coded=False)) == asked


@pytest.mark.parametrize("objective", ["balanced", "plain"])
def test_a_learner_with_a_memory_is_saved_and_loaded(objective, small_graph, tmp_path):
    stream = GraphStream(small_graph, known_labels="everywhere")
    learner, other = (auto(budget=5, objective=objective) for _ in range(2))
    for task in stream:
        learner.fit_task(task)
    assert learner.embeddings_.heads is None  # nothing is solved before somebody asks
    other.restore(learner.state(), learner.label_space_)
    graph = final_graph(stream)
    for seen in (graph, graph.structure):
        assert scores_of(other, seen).equal(scores_of(learner, seen))
    learner.save(tmp_path / "learner.safetensors")
    again = load_learner(tmp_path / "learner.safetensors")
    assert scores_of(again, graph).equal(scores_of(learner, graph))
    assert again.usage == learner.usage


def test_forgetting_in_a_graph_of_one_task(small_graph):
    """The classes of the other task keep their nodes, these fill up from the graph given."""
    stream = GraphStream(small_graph, classes_per_task=3)
    learner, never, task = learned(stream, ledger=True, budget=6), auto(budget=6), stream.open(0)
    before = learner.embeddings_.nodes_
    gone = torch.rand(task.graph.num_nodes, generator=seeded(1)) < 0.25
    learner.forget(task.ids[gone], task.graph, known_as=task.ids)
    for index in range(2):
        never.fit_task(never_labelled(task, gone) if index == 0 else stream.open(index))
    assert learner.embeddings_.nodes_.sort().values.equal(never.embeddings_.nodes_.sort().values)
    others = torch.isin(before, stream.open(1).ids)
    assert bool(torch.isin(before[others], learner.embeddings_.nodes_).all())


def test_a_memory_where_the_graph_is_kept_is_of_the_graph_as_it_is(small_graph):
    """Random features with refresh: what is kept is seen anew too."""
    stream = GraphStream(small_graph, edges="all")
    learner = learned(stream, refresh="embeddings", budget=5)
    seen = learner.backbone.prepare(stream.open(2).graph)
    ids = stream.open(2).ids
    expected = seen.of(torch.searchsorted(ids, learner.embeddings_.nodes_)).taken("cpu")
    close(learner.embeddings_.rows_.hops.float(), expected.hops, 1e-3)


@pytest.fixture(scope="module")
def texts() -> Graph:
    """A graph of twelve words a node, out of more than hops are wide."""
    graph = load("synthetic", nodes=240, classes=4, features=3000, homophily=0.5)
    rarest = graph.features.topk(12, dim=1).indices
    words = torch.zeros_like(graph.features).scatter_(1, rarest, 1.0)
    return graph.with_features(as_csr(words))


def of_words() -> ViewFeatures:
    return ViewFeatures(views=VIEWS, width=48)


def test_own_words_are_kept_as_they_are(texts, tmp_path):
    """Hops are projected; the kernel of kept nodes is of the words themselves."""
    stream = GraphStream(texts, known_labels="everywhere")
    learner = learned(stream, backbone=of_words(), budget=5)
    words = learner.embeddings_.rows_.words
    own = texts.features.to_dense()[learner.embeddings_.nodes_] / 12**0.5
    close(torch.from_numpy(words.toarray()), own, 1e-6)
    size = learner.embeddings_.nbytes
    learner.embeddings_.rows_ = replace(learner.embeddings_.rows_, words=None)
    assert size - learner.embeddings_.nbytes == 20 * 12 * 8 + 21 * 4 + 8
    learner.embeddings_.rows_ = replace(learner.embeddings_.rows_, words=words)
    graph = final_graph(stream)
    kernel = learner.backbone.kernels(learner.embeddings_.rows_)
    asked = learner.backbone.prepare(graph).of(torch.arange(7))
    view = View((0,))
    expected = KernelMap.of((view,), {0: own})
    given = texts.features.to_dense()[:7] / 12**0.5
    close(
        kernel.features(view, kernel.projected_rows(asked, [view])),
        expected.features(view, expected.projected({0: given})),
        1e-5,
    )
    learner.save(tmp_path / "learner.safetensors")
    again = load_learner(tmp_path / "learner.safetensors")
    assert scores_of(again, graph).equal(scores_of(learner, graph))


def test_the_order_of_tasks_leaves_no_trace_in_words(texts):
    answers = []
    for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
        stream = GraphStream(texts, order=order, known_labels="everywhere")
        learner = learned(stream, backbone=of_words(), budget=9)
        answers.append(by_label(scores_of(learner, texts.structure), stream))
    close(answers[0], answers[1], 1e-4)


def test_words_are_forgotten_as_if_never_met(texts):
    """As in a graph of one task: the classes of the other keep their words."""
    stream = GraphStream(texts, classes_per_task=2, known_labels="everywhere")
    learner = learned(stream, backbone=of_words(), ledger=True, budget=6)
    never, task = auto(backbone=of_words(), budget=6), stream.open(0)
    gone = torch.rand(task.graph.num_nodes, generator=seeded(1)) < 0.25
    assert bool(torch.isin(learner.embeddings_.nodes_, task.ids[gone]).any())
    learner.forget(task.ids[gone], task.graph, known_as=task.ids)
    for index in range(2):
        never.fit_task(never_labelled(task, gone) if index == 0 else stream.open(index))
    assert same_words(learner, never)
    graph = stream.exams(1, "local")[1].graph
    close(scores_of(learner, graph), scores_of(never, graph), 1e-4)


def test_words_of_two_learners_merge(texts):
    stream = GraphStream(texts, classes_per_task=2, known_labels="everywhere")
    other = GraphStream(texts, classes_per_task=2, order=[3, 2, 0, 1])
    ours, theirs = (auto(backbone=ViewFeatures(width=48), budget=5) for _ in range(2))
    both = learned(stream, backbone=ViewFeatures(width=48), budget=5)
    ours.fit_task(stream.open(0))
    theirs.fit_task(other.open(0))
    ours.merge(theirs, classes=torch.tensor([3, 2]))
    assert same_words(ours, both)
    graph = stream.exams(1, "local")[0].graph
    close(scores_of(ours, graph), scores_of(both, graph), 1e-4)


def same_words(one, other):
    """Return whether two learners keep the same nodes with the same words."""
    words = [
        each.embeddings_.rows_.words[each.embeddings_.nodes_.argsort().numpy()].toarray()
        for each in (one, other)
    ]
    same = one.embeddings_.nodes_.sort().values.equal(other.embeddings_.nodes_.sort().values)
    return same and abs(words[0] - words[1]).max() < 1e-6


def test_a_dense_graph_is_answered_as_a_sparse_one(texts):
    stream = GraphStream(texts, known_labels="everywhere")
    learner = learned(stream, backbone=of_words(), budget=5)
    dense = texts.with_features(texts.features.to_dense())
    close(scores_of(learner, dense.structure), scores_of(learner, texts.structure), 1e-4)


def test_a_limit_is_divided_among_sums_memory_and_probes():
    usual = ViewFeatures()
    given = {"classes": 10, "dims": 3_000, "views": len(usual.parsed)}
    small, large = (
        nodes_per_class(size, **given, width=usual.width) for size in (42_000_000, 60_000_000)
    )
    assert small[0] == large[0] == 102  # embeddings: all that is worth its time
    assert 0 < small[1] < large[1]
    embeddings, _ = nodes_per_class(3_000_000, **given, width=64)
    assert 8 <= embeddings < 102
    embeddings, probes = nodes_per_class(1_000_000, **given, width=64)
    assert embeddings == 0  # three of a class say less than as many probes
    assert probes > 3
    embeddings, _ = nodes_per_class(None, **given | {"classes": 2_000}, width=usual.width)
    assert embeddings == 1
