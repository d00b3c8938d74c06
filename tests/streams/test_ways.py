"""However nodes arrive, a stream shows the same things of them.

Every node's feature is its own number in the whole graph, so any position can be traced back.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.errors import ConfigurationError, DataError, UnknownNameError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import UNLABELLED, Graph
from evergraph.streams import GraphStream, split_classes
from evergraph.streams.ways import arrival_times, blurred, by_time, group_times
from traced_graph import between, edges_of, ids

NODES, YEARS = 100, 3
PARTS = ("train", "validation", "test")


def whole_graph() -> Graph:
    """Three classes of thirty nodes over three years, eight nodes of none and a class of two."""
    generator = torch.Generator().manual_seed(3)
    sizes = [30, 30, 30, 2, 8]
    labels = torch.repeat_interleave(torch.tensor([0, 1, 2, 3, UNLABELLED]), torch.tensor(sizes))
    return Graph.from_edges(
        torch.randint(NODES, (2, 500), generator=generator),  # directed
        features=torch.arange(float(NODES)).unsqueeze(1),
        labels=labels[torch.randperm(NODES, generator=generator)],
        time=torch.randint(YEARS, (NODES,), generator=generator) * 10 + 1990,
    )


WHOLE = whole_graph()
KEPT = {node for node, label in enumerate(WHOLE.labels.tolist()) if label in (0, 1, 2)}
WAYS = pytest.mark.parametrize(
    "way",
    [
        {"by": "time"},
        {"by": "blurred", "tasks": 4, "blur": 0.5},
        {"by": "drifting", "tasks": 4, "blur": 0.5},
    ],
)
EDGES = edges_of(WHOLE)


def stream_of(**options: Any) -> GraphStream:
    return GraphStream(WHOLE, **{"min_class_size": 3, "edges": "all", **options})


def test_time_cuts_the_graph_at_years():
    stream = stream_of(by="time")
    assert len(stream) == YEARS
    for task in stream:
        year = 1990 + 10 * task.index
        own = {n for n in KEPT if int(WHOLE.time[n]) == year}
        assert set(ids(task.graph, task.own)) == own
    assert stream.tasks == [(0, 1, 2), (), ()]
    assert stream.label_space(2) == LabelSpace("class-il", (3, 0, 0))


def test_a_drift_ends_with_the_classes_it_began_with():
    labels = torch.arange(4).repeat_interleave(250)
    graph = Graph.from_edges(
        torch.empty(2, 0, dtype=torch.long), features=torch.zeros(1000, 1), labels=labels
    )
    drift = GraphStream(graph, by="drifting", classes_per_task=1, blur=0.5)
    assert len(drift) == 20
    first, last = (drift.open(index).class_sizes for index in (0, 19))
    ends = drift.tasks[0]  # of a circle: the first class and the one before it
    assert {0, 3} <= set(ends)
    for sizes in (first, last):
        assert sum(sizes[drift.classes.index(label)] for label in (0, 3)) > 40  # of 50 nodes
    pairs = GraphStream(graph, by="drifting", classes_per_task=2, blur=0.0, tasks=4)
    assert pairs.tasks == [(0, 1), (), (2, 3), ()]


@WAYS
def test_splits_are_those_of_whole_classes_whatever_the_way(way):
    whole = split_classes(WHOLE.labels, (0, 1, 2), seed=2)
    stream = stream_of(seed=2, **way)
    arrived = [node for task in stream for node in ids(task.graph, task.own)]
    assert sorted(arrived) == sorted(KEPT)  # every node of a class large enough, once
    for part in PARTS:
        nodes = torch.cat([getattr(split, part) for split in stream.splits])
        assert nodes.sort().values.equal(getattr(whole, part))
    for task, split in zip(stream, stream.splits, strict=True):
        assert ids(task.graph, task.train) == split.train.tolist()
        assert ids(task.graph, task.validation) == split.validation.tolist()
        assert set(split.test.tolist()) <= set(ids(task.graph, task.own))


@pytest.mark.parametrize(
    "way", [{}, {"by": "online"}, {"by": "time"}, {"by": "blurred", "tasks": 2}, {"by": "random"}]
)
def test_a_share_of_every_class_is_labelled_whatever_the_way(way):
    stream = stream_of(seed=2, labelled=0.3, classes_per_task=1, **way)
    for part, each in zip(PARTS, (9, 9, 12), strict=True):  # of 30 nodes a class
        nodes = torch.cat([getattr(split, part) for split in stream.splits])
        assert torch.bincount(WHOLE.labels[nodes]).tolist() == [each] * 3


def test_too_few_labels_for_the_tasks_are_refused():
    with pytest.raises(DataError, match=r"or label more than 0.04 \(parameter labelled\)"):
        stream_of(by="random", tasks=5, labelled=0.04)  # three training nodes


@WAYS
def test_labels_are_right_and_numbered_by_first_arrival(way):
    stream = stream_of(order=[2, 0, 1], **way)
    met = set()
    for task in stream:
        labels = [stream.classes[label] for label in task.train_labels.tolist()]
        assert labels == WHOLE.labels[ids(task.graph, task.train)].tolist()
        here = {int(WHOLE.labels[n]) for n in ids(task.graph, task.own)}
        assert set(stream.tasks[task.index]) == here - met
        met |= here
        assert [stream.classes[c] for c in task.class_sizes] == [
            c for c in stream.classes if c in here
        ]
    assert stream.tasks[0] == tuple(c for c in (2, 0, 1) if c in stream.tasks[0])


@WAYS
@pytest.mark.parametrize("edges", ["within", "all"])
def test_graphs_and_exams_follow_the_owner(way, edges):
    stream = stream_of(**way | {"edges": edges})
    seen, within = set[int](), set[tuple[int, int]]()
    met = dict.fromkeys(range(3), 0)
    for task in stream:
        assert sum(task.class_sizes.values()) == len(task.own)
        for label, size in task.class_sizes.items():
            met[label] += size
        assert task.met_sizes == {label: size for label, size in met.items() if size}
        own = set(ids(task.graph, task.own))
        seen |= own
        within |= between(EDGES, own)
        assert edges_of(task.graph) == between(EDGES, seen if edges == "all" else own)
        assert edges_of(stream.local_graph(task.index)) == between(EDGES, own)
        (exam,) = stream.exams(task.index, "global")
        assert set(ids(exam.graph)) == seen
        local = stream.exams(task.index, "local")[task.index]
        assert ids(local.graph, local.nodes) == stream.splits[task.index].test.tolist()
        assert set(local.tasks.tolist()) == {task.index}
    assert met == dict.fromkeys(range(3), 30)
    joint = stream.open(len(stream) - 1, cumulative=True)
    assert edges_of(joint.graph) == (between(EDGES, seen) if edges == "all" else within)


@given(per_task=st.integers(1, 3), seed=st.integers(0, 50))
def test_blurred_streams_have_as_many_tasks_as_by_class(per_task, seed):
    counts = [
        len(stream_of(by=by, classes_per_task=per_task, seed=seed)) for by in ("class", "blurred")
    ]
    assert counts[0] == counts[1]


def test_too_many_tasks_are_refused():
    with pytest.raises(DataError, match=r"task \d+ has no \w+ nodes: make fewer tasks than 60"):
        stream_of(by="blurred", tasks=60)
    with pytest.raises(DataError, match="make fewer tasks than 1000"):
        stream_of(by="blurred", tasks=1000)  # more than there are nodes
    years = replace(WHOLE, time=torch.arange(NODES))
    with pytest.raises(DataError, match=f"task 0 has no .* than {len(KEPT)}"):
        GraphStream(years, by="time", min_class_size=3)
    assert len(GraphStream(years, by="time", min_class_size=3, tasks=4)) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": 3}, "tasks must be left out with by = 'class'"),
        ({"by": "time", "tasks": 0}, "tasks must be an integer of at least 1, not 0"),
        ({"by": "blurred", "blur": -1.0}, "blur must be a number of at least 0.0, not -1.0"),
        ({"by": "blurred", "classes_per_task": 0}, "classes_per_task must be an integer"),
        ({"by": "time", "setting": "task-il"}, "'task-il' needs tasks with classes of their own"),
        ({"by": "blurred", "setting": "task-il"}, "'task-il' needs tasks with classes of their"),
        ({"by": "online", "tasks": 3}, "tasks must be left out with by = 'online'"),
        ({"by": "online", "batch": 0}, "batch must be an integer of at least 1, not 0"),
        ({"by": "class", "batch": 3}, "batch is for by = 'online'"),
        ({"by": "day"}, "unknown by 'day': .*blurred, class, drifting, online, random, time"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(options, message):
    with pytest.raises((ConfigurationError, UnknownNameError), match=message):
        stream_of(**options)


def test_a_graph_without_times_or_large_classes_is_refused():
    with pytest.raises(DataError, match="needs the time of every node"):
        GraphStream(replace(WHOLE, time=None), by="time", min_class_size=3)
    with pytest.raises(DataError, match="no class has at least 99 nodes"):
        stream_of(by="time", min_class_size=99)


@pytest.mark.parametrize("way", [{"by": "class"}, {"by": "time"}, {"by": "blurred", "tasks": 3}])
def test_a_class_too_small_to_split_is_dropped(way, caplog):
    with caplog.at_level("INFO", "evergraph"):
        stream = GraphStream(WHOLE, **way)
        GraphStream(replace(WHOLE, class_names=("a", "b", "c", "rare")), **way)
    assert 3 not in stream.classes  # of two nodes
    for name in ("3", "'rare'"):
        assert f"class {name} is left out: fewer than 3 nodes (min_class_size)" in caplog.text
    with pytest.raises(DataError, match="class 3 has 2 nodes, too few to split"):
        GraphStream(WHOLE, **({"classes_per_task": 4} | way), min_class_size=2)


LABELS = torch.tensor([1, 0, 2, 0, 1, 2, 2, 2, -1, 3])
MANY = torch.arange(4).repeat_interleave(2500)


def classes_in(owner: torch.Tensor, labels: torch.Tensor, task: int) -> list[int]:
    return sorted(set(labels[owner == task].tolist()))


def test_without_blur_batches_cut_the_sequence_of_classes_by_hand():
    # sequence 2 2 2 2 | 0 0 1 1: batches of four; class 3 and the unlabelled node do not arrive
    arrival = blurred(LABELS, classes=[2, 0, 1], tasks=2, blur=0.0)
    assert arrival.owner.tolist() == [1, 1, 0, 1, 1, 0, 0, 0, -1, -1]
    assert arrival.new_classes == [(2,), (0, 1)]
    # batches of three, three and two: 2 2 2 | 2 0 0 | 1 1
    thirds = blurred(LABELS, classes=[2, 0, 1], tasks=3, blur=0.0)
    assert thirds.new_classes == [(2,), (0,), (1,)]
    assert torch.bincount(thirds.owner[:8]).tolist() == [3, 3, 2]
    assert classes_in(thirds.owner, LABELS, 1) == [0, 2]


def test_a_time_is_place_plus_uniform_plus_blur_times_normal():
    sharp = arrival_times(MANY, classes=[3, 2, 1, 0], blur=0.0, seed=5)
    inside = sharp - (3 - MANY)
    assert 0 < float(inside.min()) < 0.01
    assert 0.99 < float(inside.max()) < 1
    assert abs(float(inside.mean()) - 0.5) < 0.02
    noise = arrival_times(MANY, classes=[3, 2, 1, 0], blur=2.0, seed=5) - sharp
    assert abs(float(noise.mean())) < 0.06
    assert abs(float(noise.std()) - 2.0) < 0.06
    assert abs(float((noise.abs() < 2.0).double().mean()) - 0.683) < 0.02  # a normal's share
    assert abs(float(torch.corrcoef(torch.stack([inside, noise]))[0, 1])) < 0.03


def test_little_blur_mixes_neighbouring_classes_and_much_blur_mixes_all():
    little = blurred(MANY, classes=[0, 1, 2, 3], tasks=4, blur=0.1).owner
    assert classes_in(little, MANY, 0) == [0, 1]
    assert classes_in(little, MANY, 3) == [2, 3]
    much = blurred(MANY, classes=[0, 1, 2, 3], tasks=4, blur=1000.0).owner
    for task in range(4):
        counts = torch.bincount(MANY[much == task])
        assert counts.sum() == 2500
        assert int((counts - 625).abs().max()) < 100  # four standard deviations


@given(cut=st.integers(3, 40), seed=st.integers(0, 100), blur=st.floats(0, 3))
def test_a_nodes_time_depends_on_seed_and_node_alone(cut, seed, blur):
    labels = torch.arange(40) % 3
    whole = arrival_times(labels, classes=[0, 1, 2], blur=blur, seed=seed)
    part = arrival_times(labels[:cut], classes=[0, 1, 2], blur=blur, seed=seed)
    assert part.equal(whole[:cut])
    moved = arrival_times(labels, classes=[2, 1, 0], blur=blur, seed=seed)
    torch.testing.assert_close(moved - whole, 2.0 - 2.0 * labels.double())
    other = arrival_times(labels, classes=[0, 1, 2], blur=blur, seed=seed + 1)
    assert not other.equal(whole)


@given(tasks=st.integers(1, 12), blur=st.floats(0, 5), seed=st.integers(0, 100))
def test_batches_are_equal_and_every_node_arrives_once(tasks, blur, seed):
    labels = torch.arange(36) % 3
    arrival = blurred(labels, classes=[2, 0, 1], tasks=tasks, blur=blur, seed=seed)
    sizes = torch.bincount(arrival.owner, minlength=tasks)
    assert int(sizes.max() - sizes.min()) <= 1
    assert len(arrival) == tasks
    assert int(sizes.sum()) == 36


def nodes_of(label: int) -> torch.Tensor:
    return MANY.eq(label)


def test_nodes_of_a_class_arrive_in_no_order_of_their_numbers():
    for seed in (0, 1):
        times = arrival_times(MANY, classes=[0, 1, 2, 3], blur=0.0, seed=seed)
        for label in range(4):
            own = times[nodes_of(label)]
            number = torch.arange(len(own), dtype=torch.float64)
            # Four standard deviations of a correlation of nothing.
            assert abs(float(torch.corrcoef(torch.stack([number, own]))[0, 1])) < 0.08
    first, second = (blurred(MANY, classes=[0], tasks=2, blur=0.0, seed=s).owner for s in (0, 1))
    own = nodes_of(0)
    assert abs(float((first[own] == second[own]).double().mean()) - 0.5) < 0.05  # another draw


def test_a_drift_puts_classes_together_by_hand():
    # without blur: classes 2 and 0 in one place, then 1 and 3: 2 2 2 2 0 0 | 1 1 3
    arrival = blurred(LABELS, classes=[2, 0, 1, 3], tasks=2, blur=0.0, together=2, comes_back=True)
    assert classes_in(arrival.owner, LABELS, 0) == [0, 2]
    times = arrival_times(LABELS, classes=[2, 0, 1, 3], blur=0.0, together=2, seed=0)
    assert times.floor()[:8].tolist() == [1, 0, 0, 0, 1, 0, 0, 0]


@given(seed=st.integers(0, 100), blur=st.floats(0, 3), together=st.integers(1, 4))
def test_times_on_a_circle_differ_by_whole_rounds(seed, blur, together):
    options = {"classes": [3, 0, 1, 2], "blur": blur, "together": together, "seed": seed}
    plain = arrival_times(LABELS, **options)
    round_ = arrival_times(LABELS, comes_back=True, **options)
    length = -(-4 // together)
    here = plain.isfinite()
    assert here.equal(round_.isfinite())
    assert float(round_[here].min()) >= 0
    assert float(round_[here].max()) < length
    rounds = (plain[here] - round_[here]) / length
    torch.testing.assert_close(rounds, rounds.round())


TIMED = torch.tensor([0, 1, 0, 2, 1, -1])
WHEN = torch.tensor([2003, 1999, 1999, 2001, 2003, 1990])


def test_times_make_tasks_by_hand():
    arrival = by_time(TIMED, WHEN, classes=[0, 1, 2])
    assert arrival.owner.tolist() == [2, 0, 0, 1, 2, -1]  # the unlabelled 1990 makes no task
    assert arrival.new_classes == [(0, 1), (2,), ()]
    # Classes that do not arrive make no task.
    arrival = by_time(TIMED, WHEN, classes=[1, 0])
    assert arrival.owner.tolist() == [1, 0, 0, -1, 1, -1]
    assert arrival.new_classes == [(1, 0), ()]
    # five nodes in two tasks: two in 1999, then one and two
    assert by_time(TIMED, WHEN, classes=[0, 1, 2], tasks=2).owner.tolist() == [1, 0, 0, 1, 1, -1]


@pytest.mark.parametrize(
    ("counts", "tasks", "expected"),
    [
        ([1, 1, 1, 1], 2, [0, 0, 1, 1]),
        ([5, 1, 1, 1], 2, [0, 1, 1, 1]),
        ([1, 1, 8], 2, [0, 0, 1]),
        ([1, 1, 8], 3, [0, 1, 2]),  # a share of 3.3 would take two times, but all need one
        ([8, 1, 1], 3, [0, 1, 2]),
        ([1, 2, 4, 8, 16, 32], 3, [0, 0, 0, 0, 1, 2]),  # 15, 16, 32
        ([3, 3], 9, [0, 1]),  # no more tasks than times
        ([4, 2], 1, [0, 0]),
    ],
)
def test_groups_are_nearly_equal(counts, tasks, expected):
    assert group_times(counts, tasks).tolist() == expected


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=30), tasks=st.integers(1, 12))
def test_groups_are_consecutive_and_as_many_as_asked(counts, tasks):
    groups = group_times(counts, tasks)
    assert groups.unique_consecutive().tolist() == list(range(min(tasks, len(counts))))
