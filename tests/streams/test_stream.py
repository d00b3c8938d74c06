"""A stream shows a learner exactly what it may see; checked against the graph it was cut from.

Every node's feature is its own number in the whole graph, so any position can be traced back.
"""

import gc
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError, TaskClosedError, UnknownNameError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import UNLABELLED, Graph
from evergraph.streams import GraphStream, Task
from traced_graph import between, edges_of, ids

CLASSES, EACH, NODES = 6, 7, 48
ORDER = [4, 1, 5, 0, 2, 3]  # tasks (4, 1), (5, 0), (2, 3)
TASKS = [(4, 1), (5, 0), (2, 3)]
BOTH_EDGES = pytest.mark.parametrize("edges", ["within", "all"])


def whole_graph() -> Graph:
    """Six classes of seven nodes, mixed up; five nodes without a class and one class of one."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.cat([torch.arange(CLASSES).repeat(EACH), torch.full((5,), UNLABELLED)])
    labels = torch.cat([labels, torch.tensor([CLASSES])])
    return Graph.from_edges(
        torch.randint(NODES, (2, 200), generator=generator),  # directed
        features=torch.arange(float(NODES)).unsqueeze(1),
        labels=labels[torch.randperm(NODES, generator=generator)],
    )


WHOLE = whole_graph()
EDGES = edges_of(WHOLE)
LABEL = WHOLE.labels.tolist()


def stream_of(**options: Any) -> GraphStream:
    return GraphStream(WHOLE, **{"order": ORDER, **options})


def nodes_of(*classes: int) -> set[int]:
    return {node for node, label in enumerate(LABEL) if label in classes}


def seen(index: int) -> set[int]:
    return nodes_of(*(label for task in TASKS[: index + 1] for label in task))


def within_tasks(index: int) -> set[tuple[int, int]]:
    return set().union(*(between(EDGES, nodes_of(*task)) for task in TASKS[: index + 1]))


def original(stream: GraphStream, labels: Tensor) -> list[int]:
    """Arrival numbers back to the dataset's own labels."""
    return [stream.classes[label] for label in labels.tolist()]


def test_the_graph_used_here_can_tell_right_from_wrong():
    assert any(label == UNLABELLED for label in LABEL)
    assert between(EDGES, seen(1)) != within_tasks(1)
    assert any((t, s) not in EDGES for s, t in EDGES)


def test_tasks_arrive_in_the_order_given():
    stream = stream_of()
    assert len(stream) == 3
    assert stream.tasks == TASKS
    assert stream.classes == ORDER
    assert [task.index for task in stream] == [0, 1, 2]
    assert [task.label_space for task in stream] == [
        LabelSpace("class-il", (2,) * tasks) for tasks in (1, 2, 3)
    ]
    stream = stream_of(setting="task-il", classes_per_task=4)
    assert stream.setting == "task-il"
    assert [task.label_space for task in stream] == [
        LabelSpace("task-il", (4,)),
        LabelSpace("task-il", (4, 2)),
    ]


@given(
    order=st.permutations(range(CLASSES)),
    per_task=st.integers(1, 4),
    seed=st.integers(0, 1000),
    edges=st.sampled_from(["within", "all"]),
)
def test_labels_fit_in_any_order(order, per_task, seed, edges):
    stream = stream_of(order=order, classes_per_task=per_task, seed=seed, edges=edges)
    for task in stream:
        for part in ("train", "validation"):
            nodes, labels = getattr(task, part), getattr(task, f"{part}_labels")
            assert set(labels.tolist()) == set(task.label_space.newest())
            assert original(stream, labels) == [LABEL[node] for node in ids(task.graph, nodes)]
        assert set(ids(task.graph, task.own)) == nodes_of(*stream.tasks[task.index])


def test_a_task_is_shown_its_own_edges_or_every_edge_among_what_was_seen():
    for task in stream_of(edges="within"):
        own = nodes_of(*TASKS[task.index])
        assert set(ids(task.graph)) == own
        assert edges_of(task.graph) == between(EDGES, own)
        assert task.own.tolist() == list(range(len(own)))
    for task in stream_of(edges="all"):
        assert set(ids(task.graph)) == seen(task.index)
        assert edges_of(task.graph) == between(EDGES, seen(task.index))
        assert set(ids(task.graph, task.own)) == nodes_of(*TASKS[task.index])


def shown(stream: GraphStream, graph: Graph) -> dict[int, int]:
    """Return the labels that a graph shows, by the number of the node in the dataset."""
    places = (graph.labels != UNLABELLED).nonzero().flatten()
    return dict(zip(ids(graph, places), graph.labels[places].tolist(), strict=True))


def trained_upto(stream: GraphStream, index: int, *, alone: bool = False) -> dict[int, int]:
    splits = stream.splits[index : index + 1] if alone else stream.splits[: index + 1]
    return {int(node): LABEL[int(node)] for split in splits for node in split.train}


@BOTH_EDGES
def test_a_tasks_graph_shows_the_labels_of_training_nodes_alone(edges):
    stream = stream_of(edges=edges)
    for task in stream:
        expected = trained_upto(stream, task.index, alone=edges == "within")
        assert shown(stream, task.graph) == expected
        assert set(task.graph.structure.labels.tolist()) == {UNLABELLED}
    assert shown(stream, stream.open(2, cumulative=True).graph) == trained_upto(stream, 2)


@BOTH_EDGES
@pytest.mark.parametrize("known", ["nowhere", "global", "everywhere"])
def test_exams_show_labels_of_training_nodes_where_asked(edges, known):
    stream = stream_of(edges=edges, known_labels=known)
    for index in range(3):
        for task, exam in enumerate(stream.exams(index, "local")):
            expected = trained_upto(stream, task, alone=True) if known == "everywhere" else {}
            assert shown(stream, exam.graph) == expected
        (exam,) = stream.exams(index, "global")
        expected = {} if known == "nowhere" else trained_upto(stream, index)
        assert shown(stream, exam.graph) == expected


@BOTH_EDGES
def test_test_nodes_are_never_trained_or_validated_on(edges):
    stream = stream_of(edges=edges)
    train, validation, test = set[int](), set[int](), set[int]()
    for task in stream:
        train |= set(ids(task.graph, task.train))
        validation |= set(ids(task.graph, task.validation))
    for exam in stream.exams(2, "local"):
        test |= set(ids(exam.graph, exam.nodes))
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert train | validation | test == seen(2)
    # of seven nodes a class: a fifth, rounded down, is one
    assert (len(train), len(validation), len(test)) == (5 * 6, 6, 6)


@BOTH_EDGES
def test_an_earlier_tasks_graph_is_refused(edges):
    stream = stream_of(edges=edges)
    first = stream.open(0)
    assert first.graph is first.graph
    second = stream.open(1)
    with pytest.raises(TaskClosedError, match="task 0 is over"):
        _ = first.graph
    assert second.graph.num_nodes > 0
    assert len(first.train) == len(first.train_labels)  # what the learner wrote down it may keep


def open_then_move_on(stream: GraphStream, *, cumulative: bool) -> tuple[Task, weakref.ref[Graph]]:
    first = stream.open(0, cumulative=cumulative)
    trace = weakref.ref(first.graph)
    stream.open(1, cumulative=cumulative)
    gc.collect()
    return first, trace


@pytest.mark.parametrize(("edges", "cumulative"), [("all", False), ("all", True), ("within", True)])
def test_an_earlier_tasks_graph_is_let_go(edges, cumulative):
    stream = stream_of(edges=edges)
    first, trace = open_then_move_on(stream, cumulative=cumulative)
    assert trace() is None  # although both the stream and the task itself are still held
    assert (len(stream), first.index) == (3, 0)


def test_a_tasks_own_subgraph_is_kept_by_the_stream_for_local_exams():
    stream = stream_of(edges="within")
    first, trace = open_then_move_on(stream, cumulative=False)
    assert trace().structure is stream.local_graph(0)
    with pytest.raises(TaskClosedError):
        _ = first.graph


@pytest.mark.parametrize(
    ("edges", "expected"), [("within", within_tasks(1)), ("all", between(EDGES, seen(1)))]
)
def test_the_cumulative_view_has_all_tasks_so_far(edges, expected):
    stream = stream_of(edges=edges)
    parts = {"train": set(), "validation": set()}
    for index in range(2):
        task = stream.open(index)
        for part, nodes in parts.items():
            nodes |= set(ids(task.graph, getattr(task, part)))
    joint = stream.open(1, cumulative=True)
    assert set(ids(joint.graph)) == seen(1)
    assert edges_of(joint.graph) == expected
    assert set(ids(joint.graph, joint.own)) == seen(1)
    for part, nodes in parts.items():
        positions, labels = getattr(joint, part), getattr(joint, f"{part}_labels")
        assert set(ids(joint.graph, positions)) == nodes
        assert len(positions) == len(nodes)
        assert original(stream, labels) == [LABEL[n] for n in ids(joint.graph, positions)]
    assert joint.class_sizes == dict.fromkeys(range(4), EACH)
    assert joint.label_space == LabelSpace("class-il", (2, 2))


@BOTH_EDGES
@pytest.mark.parametrize("part", ["test", "validation"])
def test_local_exams_put_every_node_in_its_own_tasks_subgraph(edges, part):
    stream = stream_of(edges=edges)
    exams = stream.exams(2, "local", part)
    assert len(exams) == 3
    for index, exam in enumerate(exams):
        own = nodes_of(*TASKS[index])
        assert set(ids(exam.graph)) == own
        assert edges_of(exam.graph) == between(EDGES, own)
        assert set(exam.tasks.tolist()) == {index}
        asked = ids(exam.graph, exam.nodes)
        assert sorted(asked) == getattr(stream.splits[index], part).tolist()
        assert original(stream, exam.labels) == [LABEL[node] for node in asked]


@BOTH_EDGES
@pytest.mark.parametrize("part", ["test", "validation"])
def test_the_global_exam_puts_all_nodes_in_the_union_with_all_edges(edges, part):
    stream = stream_of(edges=edges)
    for index in (1, 0, 2):
        (exam,) = stream.exams(index, "global", part)
        assert set(ids(exam.graph)) == seen(index)
        assert edges_of(exam.graph) == between(EDGES, seen(index))
        asked = ids(exam.graph, exam.nodes)
        wanted = [getattr(split, part) for split in stream.splits[: index + 1]]
        assert sorted(asked) == torch.cat(wanted).sort().values.tolist()
        assert original(stream, exam.labels) == [LABEL[node] for node in asked]
        owners = [next(i for i, task in enumerate(TASKS) if LABEL[n] in task) for n in asked]
        assert exam.tasks.tolist() == owners


def test_an_exam_asks_in_the_graph_that_was_learned_from():
    within = stream_of(edges="within")
    task = within.open(1)
    assert within.exams(1, "local")[1].graph is task.graph.structure
    assert within.exams(2, "local")[1].graph is task.graph.structure
    everything = stream_of(edges="all")
    task = everything.open(1)
    assert everything.exams(1, "global")[0].graph is task.graph


def test_nodes_without_a_class_or_of_a_dropped_one_are_left_out():
    stream = stream_of(edges="all")
    left_out = nodes_of(UNLABELLED, CLASSES)
    assert len(left_out) == 6
    assert not left_out & set(ids(stream.open(2).graph))
    short = stream_of(order=[0, 1], edges="all")
    assert set(ids(short.open(0).graph)) == nodes_of(0, 1)


def test_class_sizes_count_all_nodes_of_the_tasks_own_classes():
    labels = torch.tensor([0] * 3 + [1] * 5 + [2] * 4 + [3] * 6 + [UNLABELLED] * 2)
    graph = Graph.from_edges(
        torch.tensor([[0], [1]]), features=torch.eye(len(labels)), labels=labels
    )
    for edges in ("within", "all"):
        stream = GraphStream(graph, order=[2, 1, 3, 0], edges=edges)
        assert [task.class_sizes for task in stream] == [{0: 4, 1: 5}, {2: 6, 3: 3}]


def test_options_reach_the_order_and_the_split():
    assert stream_of(order="label", classes_per_task=3).tasks == [(0, 1, 2), (3, 4, 5)]
    # the class of one node joins where small classes are let in, and is then too small to split
    with pytest.raises(DataError, match=f"class {CLASSES} has 1 nodes"):
        stream_of(order="label", classes_per_task=1, min_class_size=1)
    halves = stream_of(split=(0.5, 0.25, 0.25))
    # of seven: a quarter is 1.75, one node; five train
    assert [len(getattr(halves.splits[0], p)) for p in ("train", "validation", "test")] == [
        10,
        2,
        2,
    ]


def test_the_whole_graph_comes_back_unchanged():
    fresh = whole_graph()
    for edges in ("within", "all"):
        stream = stream_of(edges=edges)
        for task in stream:
            stream.exams(task.index, "local")
            stream.exams(task.index, "global")
        stream.open(2, cumulative=True)
    for name in ("indptr", "indices", "features", "labels"):
        assert getattr(WHOLE, name).equal(getattr(fresh, name))


def test_unknown_choices_are_refused():
    with pytest.raises(UnknownNameError, match=r"unknown edges 'some': .*all, within"):
        stream_of(edges="some")
    with pytest.raises(UnknownNameError, match="unknown setting 'domain-il'"):
        stream_of(setting="domain-il")
    with pytest.raises(UnknownNameError, match=r"unknown testing 'remote': .*global, local"):
        stream_of().exams(0, "remote")
    with pytest.raises(ConfigurationError, match="from 0 to 2, not 3"):
        stream_of().open(3)


# A ring of 18 nodes, classes of six: three tasks of one class; a node's feature is its number.
RING = Graph.from_edges(
    torch.stack([torch.arange(18), torch.arange(18).roll(1)]),
    features=torch.arange(18.0).unsqueeze(1),
    labels=torch.arange(18) // 6,
    undirected=True,
)


def ring_stream(**options: Any) -> GraphStream:
    return GraphStream(RING, classes_per_task=1, **options)


def test_what_comes_next_is_shown():
    stream = ring_stream()
    (exam,) = stream.preview(0, "local")
    assert exam.graph is stream.local_graph(1)
    assert exam.graph.features[:, 0].tolist() == list(range(6, 12))
    assert exam.graph.features[exam.nodes, 0].long().equal(stream.splits[1].test)
    assert set(exam.tasks.tolist()) == set(exam.labels.tolist()) == {1}
    assert set(exam.graph.labels.tolist()) == {-1}
    # Global shows everything with it.
    stream = ring_stream()
    (exam,) = stream.preview(0, "global", "validation")
    assert exam.graph.features[:, 0].tolist() == list(range(12))
    wanted = torch.cat([split.validation for split in stream.splits[:2]])
    assert exam.graph.features[exam.nodes, 0].long().equal(wanted.sort().values)
    assert set(exam.tasks.tolist()) == {0, 1}


@pytest.mark.parametrize("known", ["nowhere", "global", "everywhere"])
@pytest.mark.parametrize("edges", ["within", "all"])
@pytest.mark.parametrize("testing", ["local", "global"])
def test_previews_show_no_label_of_what_comes(testing, edges, known):
    stream = ring_stream(edges=edges, known_labels=known)
    for index in (0, 1):
        (exam,) = stream.preview(index, testing)
        shown = exam.graph.features[exam.graph.labels >= 0, 0].long()
        seen = torch.cat([split.train for split in stream.splits[: index + 1]])
        told = testing == "global" and known != "nowhere"
        assert shown.equal(seen if told else seen[:0])  # training nodes of the past, no others
        assert exam.graph.labels[exam.graph.labels >= 0].equal(RING.labels[shown])


def test_the_graph_previewed_is_the_one_learned_and_tested_on_next():
    stream = ring_stream(edges="all")
    (exam,) = stream.preview(0, "global")
    assert stream.open(1).graph.structure is exam.graph.structure
    assert stream.exams(1, "global")[0].graph.structure is exam.graph.structure
    assert stream.preview(2, "local") == stream.preview(2, "global") == []  # nothing follows
