"""What every registered method must do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from doctest import DocTestParser
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.closed_form import ViewFeatures
from evergraph.core.errors import ConfigurationError, TaskClosedError
from evergraph.core.seeding import seeded
from evergraph.experiments.protocol import learn_stream
from evergraph.graphs import Graph
from evergraph.memory import SubgraphMemory
from evergraph.methods import load_learner, methods
from evergraph.nn import RandomFeatures, Tuned
from evergraph.streams import GraphStream
from evergraph.training import Learner, Trainer

# Methods whose default size would only make the tests slow: a smaller backbone.
SMALL = {
    "analytic": partial(RandomFeatures, width=128),
    "auto": partial(ViewFeatures, width=64),
    "joint": partial(Tuned, hidden=64),
}
# Methods whose default sampler must see a class whole: another, where classes come back.
UNIFORM: dict[str, Callable[[], SubgraphMemory]] = {"er-gnn": SubgraphMemory}
# Methods that draw nothing: every seed gives the same learner.
DRAW_NOTHING = {"ocgl", "slda"}
# The worked example of the documentation is held to the same.
PAGE, PAGE_METHOD = Path(__file__).parents[2] / "docs" / "adding-a-method.md", "mean-replay"
NAMES = [*methods.names(), PAGE_METHOD]


@pytest.fixture(autouse=True)
def _page_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the page's code as it is written there, for the tests that are about it."""
    if request.node.callspec.params.get("name") != PAGE_METHOD:
        return
    monkeypatch.setattr(methods, "_classes", dict(methods._classes))
    lines = [e.source for e in DocTestParser().get_examples(PAGE.read_text("utf-8"))]
    last = next(i for i, line in enumerate(lines) if "class MeanReplay" in line)
    exec("".join(lines[: last + 1]), {"__name__": "mean_replay"})
    assert PAGE_METHOD in methods.names()


def make(name: str, *, seed: int = 0, epochs: int = 4, **options: Any) -> Learner:
    trainer = Trainer(epochs=epochs, batch_size=64, device="cpu")
    if name in SMALL:
        options = {"backbone": SMALL[name]()} | options
    return methods.make(name, trainer=trainer, generator=seeded(seed, "learner"), **options)


@pytest.mark.parametrize("setting", ["class-il", "task-il"])
@pytest.mark.parametrize("edges", ["within", "all"])
@pytest.mark.parametrize("name", NAMES)
def test_learns_every_setting_and_both_kinds_of_edges(
    name: str, edges: Any, setting: Any, small_graph: Graph
) -> None:
    stream = GraphStream(small_graph, setting=setting, edges=edges)
    reports = list(learn_stream(make(name, epochs=8), stream))
    assert [len(r.rows["local"]["balanced"]) for r in reports] == [1, 2, 3]
    newest = reports[-1].rows["global" if edges == "all" else "local"]["balanced"][-1]
    assert newest > 0.8  # the current task is learned, whatever became of the others


@pytest.mark.parametrize("by", ["time", "blurred"])
@pytest.mark.parametrize("name", NAMES)
def test_learns_classes_that_come_back(name: str, by: Any, small_graph: Graph) -> None:
    times = torch.randint(3, (small_graph.num_nodes,), generator=seeded(0, "time"))
    stream = GraphStream(replace(small_graph, time=times), by=by, tasks=3)
    assert stream.tasks[-1] == ()  # the last task brings nothing but classes met before
    options = {"memory": UNIFORM[name]()} if name in UNIFORM else {}
    reports = list(learn_stream(make(name, epochs=8, **options), stream))
    assert [len(r.rows["local"]["plain"]) for r in reports] == [1, 2, 3]
    rows = reports[-1].rows["global"]["plain"]
    assert sum(rows) / len(rows) > 0.7  # of six classes; regularisers hold half-learned ones back


@pytest.mark.parametrize("name", NAMES)
def test_learns_tasks_that_come_in_batches(name: str, small_graph: Graph) -> None:
    stream = GraphStream(small_graph, by="online", batch=30, edges="all")
    options = {"memory": UNIFORM[name]()} if name in UNIFORM else {}
    reports = list(learn_stream(make(name, epochs=2, **options), stream, test_every=3))
    assert [r.index for r in reports[:2]] == [2, 5]
    assert reports[-1].index == len(stream) - 1
    assert [len(r.rows["local"]["plain"]) for r in reports] == [
        stream.met(report.index) for report in reports
    ]
    # At some time the newest task is learned: regularisers hold back more with every batch.
    assert max(report.rows["global"]["plain"][-1] for report in reports) > 0.5


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_learner_goes_on_to_the_same_bits(name: str, small_graph: Graph) -> None:
    stream = GraphStream(small_graph)
    whole = make(name)
    broken = make(name)
    for learner in (whole, broken):
        learner.fit_task(stream.open(0, cumulative=learner.cumulative))
    resumed = make(name, seed=99)  # another seed: everything must come from the state
    resumed.restore(
        {key: value.clone() for key, value in broken.state().items()}, stream.label_space(0)
    )
    for index in (1, 2):
        for learner in (whole, resumed):
            learner.fit_task(stream.open(index, cumulative=learner.cumulative))
    assert whole.state().keys() == resumed.state().keys()
    for key, value in whole.state().items():
        assert value.equal(resumed.state()[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_learner_predicts_and_goes_on_to_the_same_bits(
    name: str, small_graph: Graph, tmp_path: Path
) -> None:
    stream = GraphStream(small_graph, order=[5, 0, 3, 1, 4, 2])
    learner = make(name)
    for index in (0, 1):
        learner.fit_task(stream.open(index, cumulative=learner.cumulative))
    learner.save(tmp_path / "learner.eg")
    loaded = load_learner(tmp_path / "learner.eg")
    assert repr(loaded) == repr(learner)
    assert loaded.classes == learner.classes == [5, 0, 3, 1]
    assert loaded.state().keys() == learner.state().keys()
    graph = stream.union_graph(1)
    assert loaded.predict(graph).equal(learner.predict(graph))
    assert set(loaded.predict(graph).tolist()) <= {5, 0, 3, 1}
    assert loaded.predict_proba(graph).equal(learner.predict_proba(graph))
    assert loaded.usage == learner.usage
    for one in (learner, loaded):
        one.fit_task(stream.open(2, cumulative=one.cumulative))
    for key, value in learner.state().items():
        assert value.equal(loaded.state()[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_learner_and_no_global_randomness_is_used(
    name: str, small_graph: Graph
) -> None:
    before = torch.get_rng_state()
    states = []
    for seed in (0, 0, 1):
        learner = make(name, seed=seed)
        stream = GraphStream(small_graph)
        learner.fit_task(stream.open(0, cumulative=learner.cumulative))
        states.append(
            torch.cat([p.flatten() for p in learner.named_parameters().values()]).detach()
        )
    assert states[0].equal(states[1])
    assert states[0].equal(states[2]) == (name in DRAW_NOTHING)
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("name", NAMES)
def test_never_reads_an_earlier_tasks_graph(name: str, small_graph: Graph) -> None:
    stream = GraphStream(small_graph)
    learner = make(name)
    earlier = stream.open(0, cumulative=learner.cumulative)
    learner.fit_task(earlier)
    learner.fit_task(stream.open(1, cumulative=learner.cumulative))  # would raise if it did
    with pytest.raises(TaskClosedError, match="task 0 is over"):
        learner.fit_task(earlier)


@pytest.mark.parametrize("name", NAMES)
def test_predicting_before_learning_and_without_tasks_in_task_il_is_refused(
    name: str, small_graph: Graph
) -> None:
    learner = make(name)
    stream = GraphStream(small_graph, setting="task-il")
    nodes = torch.tensor([0])
    with pytest.raises(ConfigurationError, match="fit_task first"):
        learner.predict(small_graph, nodes)
    learner.fit_task(stream.open(0, cumulative=learner.cumulative))
    with pytest.raises(ConfigurationError, match="which task"):
        learner.predict(small_graph, nodes)


@pytest.mark.parametrize("name", NAMES)
def test_task_il_answers_within_the_nodes_own_task(name: str, small_graph: Graph) -> None:
    stream = GraphStream(small_graph, setting="task-il")
    learner = make(name, epochs=1)
    for index in range(3):
        learner.fit_task(stream.open(index, cumulative=learner.cumulative))
    for exam in stream.exams(2, "local"):
        predicted = learner.predict(exam.graph, exam.nodes, exam.tasks)
        assert (predicted // 2).equal(exam.tasks)  # two classes a task


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_edges_can_be_learned(name: str, small_graph: Graph) -> None:
    lonely = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long),
        features=small_graph.features,
        labels=small_graph.labels,
    )
    reports = list(learn_stream(make(name, epochs=8), GraphStream(lonely)))
    assert reports[0].rows["local"]["balanced"][0] > 0.8
