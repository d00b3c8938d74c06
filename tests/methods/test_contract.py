"""What every registered method must do."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.closed_form import ViewFeatures
from evergraph.core.errors import ConfigurationError, TaskClosedError
from evergraph.core.seeding import seeded
from evergraph.datasets import load
from evergraph.experiments.protocol import learn_stream
from evergraph.graphs import Graph
from evergraph.memory import SubgraphMemory
from evergraph.methods import load_learner, methods
from evergraph.nn import PrototypeNetwork, RandomFeatures, Tuned, UntrainedGCN
from evergraph.streams import GraphStream
from evergraph.training import Learner, Trainer

# Methods whose default size would only make the tests slow: a smaller backbone.
SMALL = {
    "analytic": partial(RandomFeatures, width=128),
    "auto": partial(ViewFeatures, width=48, views=("0|1|2+y", "0", "y", "2")),
    "ocgl": partial(UntrainedGCN, dims=32),
    "hpn": partial(PrototypeNetwork, extractors=8),
    "joint": partial(Tuned, hidden=64),
}
# Methods whose default sampler must see a class whole: another, where classes come back.
UNIFORM: dict[str, Callable[[], SubgraphMemory]] = {"er-gnn": SubgraphMemory}
# Methods that draw nothing: every seed gives the same learner.
DRAW_NOTHING = {"ocgl", "slda"}
# The worked example of the documentation is held to the same.
PAGE, PAGE_METHOD = Path(__file__).parents[2] / "docs" / "extending.md", "mean-replay"
NAMES = [*methods.names(), PAGE_METHOD]


@pytest.fixture(autouse=True)
def _page_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the page's code as it is written there, for the tests that are about it."""
    if request.node.callspec.params.get("name") != PAGE_METHOD:
        return
    monkeypatch.setattr(methods, "_classes", dict(methods._classes))
    code = PAGE.read_text("utf-8").split("```python\n# mean_replay.py\n")[1].split("\n```")[0]
    exec(code, {"__name__": "mean_replay"})
    assert PAGE_METHOD in methods.names()


@pytest.fixture(autouse=True)
def _two_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``joint`` choose between two networks of its five, which ``test_joint`` has."""
    monkeypatch.setattr(Tuned, "CANDIDATES", Tuned.CANDIDATES[::4])


@pytest.fixture(scope="module")
def tiny_graph() -> Graph:
    """Six classes of twenty nodes: enough to see that something is learned."""
    return load("synthetic", nodes=120, classes=6, features=16, noise=0.4, seed=1)


def make(name: str, *, seed: int = 0, epochs: int = 1, **options: Any) -> Learner:
    batch = 16 if name == "joint" else 32  # it shares its steps among candidates
    trainer = Trainer(epochs=epochs, lr=0.02, batch_size=batch, device="cpu")
    if name in SMALL:
        options = {"backbone": SMALL[name]()} | options
    return methods.make(name, trainer=trainer, generator=seeded(seed, "learner"), **options)


# Each value of each axis: setting, edges, and the ways in which nodes arrive.
STREAMS: dict[str, dict[str, Any]] = {
    "task-il": {"setting": "task-il", "edges": "all", "classes_per_task": 3},
    "blurred": {"by": "blurred", "tasks": 3},
    "online": {"by": "online", "batch": 20, "edges": "all"},
}


@pytest.mark.parametrize("name", NAMES)
def test_no_test_label_moves_a_logit(name, tiny_graph, monkeypatch):
    stream = GraphStream(tiny_graph, edges="all")
    labels = tiny_graph.labels.clone()
    for split, classes in zip(stream.splits, stream.tasks, strict=True):
        labels[split.test] = classes[0]  # whole tasks, so that all nodes still arrive with theirs
    with monkeypatch.context() as patched:
        patched.setattr("evergraph.streams.stream.split_tasks", lambda *_, **__: stream.splits)
        others = GraphStream(tiny_graph.with_labels(labels), edges="all")
    assert others.open(0).class_sizes != stream.open(0).class_sizes
    scores = []
    for each in (stream, others):
        learner = make(name)
        for index in range(2):
            learner.fit_task(each.open(index, cumulative=learner.cumulative))
        scores.append(learner.logits(each.union_graph(1), torch.arange(40)))
    assert scores[0].equal(scores[1])


@cache
def stream_of(graph: Graph, way: str) -> GraphStream:
    return GraphStream(graph, **STREAMS[way])


@pytest.mark.parametrize("way", STREAMS)
@pytest.mark.parametrize("name", NAMES)
def test_learns_however_nodes_arrive(name, way, tiny_graph):
    stream = stream_of(tiny_graph, way)
    by_class = way == "task-il"
    options = {} if by_class or name not in UNIFORM else {"memory": UNIFORM[name]()}
    epochs, every = {"online": (2, 3), "blurred": (3, 3)}.get(way, (3, 1))
    learner = make(name, epochs=epochs, **options)
    reports = list(learn_stream(learner, stream, test_every=every))
    assert [r.index for r in reports] == [*range(every - 1, len(stream), every)]
    assert [len(r.rows["local"]["plain"]) for r in reports] == [
        stream.met(r.index) for r in reports
    ]
    if by_class:  # the current task is learned, whatever became of the others
        assert reports[-1].rows["global"]["balanced"][-1] > 0.8
        nodes = torch.tensor([0])
        with pytest.raises(ConfigurationError, match="task of each node"):
            learner.predict(tiny_graph, nodes)
        for exam in stream.exams(1, "local"):
            predicted = learner.predict(exam.graph, exam.nodes, exam.tasks)
            assert (predicted // 3).equal(exam.tasks)  # three classes a task
    elif way == "online":  # at some time: regularisers hold back more with every batch
        assert max(report.rows["global"]["plain"][-1] for report in reports) > 0.5
    else:  # of six classes; regularisers hold half-learned ones back
        assert stream.tasks[-1] == ()  # the last task brings nothing but classes met before
        rows = reports[-1].rows["global"]["plain"]
        assert sum(rows) / len(rows) > 0.7


@pytest.mark.parametrize("name", NAMES)
def test_asked_saved_or_restored_it_goes_on_to_the_same_bits(name, tiny_graph, tmp_path):
    """Four learners of the same tasks; the same seed is all that the first two have in common."""
    stream = GraphStream(tiny_graph, order=[5, 0, 3, 1, 4, 2])
    no_draw_of_ours = torch.get_rng_state()
    asked, silent = make(name), make(name)
    restored = make(name, seed=99)  # another seed: everything must come from the state
    with pytest.raises(ConfigurationError, match="fit_task first"):
        asked.predict(tiny_graph)
    earlier = stream.open(0, cumulative=asked.cumulative)
    for learner in (asked, silent, restored):
        learner.fit_task(stream.open(0, cumulative=learner.cumulative))
    first, same, other = (
        torch.cat([p.detach().flatten() for p in learner.named_parameters().values()])
        for learner in (asked, silent, restored)
    )
    assert first.equal(same)
    assert first.equal(other) == (name in DRAW_NOTHING)
    graph = stream.union_graph(1)
    answers = asked.predict(graph)
    assert answers.equal(asked.predict(graph))

    for learner in (asked, silent):  # would raise if it read an earlier task's graph
        learner.fit_task(stream.open(1, cumulative=learner.cumulative))
    restored = make(name, seed=99)
    restored.restore({k: v.clone() for k, v in silent.state().items()}, stream.label_space(1))
    silent.save(tmp_path / "learner.eg")
    loaded = load_learner(tmp_path / "learner.eg")
    assert repr(loaded) == repr(silent)
    assert loaded.classes == asked.classes == [5, 0, 3, 1]
    assert loaded.usage == asked.usage
    assert loaded.predict_proba(graph).equal(asked.predict_proba(graph))
    assert loaded.predict(graph).equal(asked.predict(graph))
    assert set(loaded.predict(graph).tolist()) <= {5, 0, 3, 1}

    for learner in (asked, silent, restored, loaded):
        learner.fit_task(stream.open(2, cumulative=learner.cumulative))
    expected = silent.state()
    for learner in (asked, restored, loaded):
        assert learner.state().keys() == expected.keys()
        for key, value in learner.state().items():
            assert value.equal(expected[key]), key
    assert torch.get_rng_state().equal(no_draw_of_ours)
    with pytest.raises(TaskClosedError, match="task 0 is over"):
        asked.fit_task(earlier)


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_edges_can_be_learned(name, small_graph):
    lonely = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long),
        features=small_graph.features,
        labels=small_graph.labels,
    )
    report = next(iter(learn_stream(make(name, epochs=2), GraphStream(lonely))))
    assert report.rows["local"]["balanced"][0] > 0.8
