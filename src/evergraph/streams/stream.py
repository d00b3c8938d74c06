"""A graph as a sequence of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from evergraph.core.checks import check_choice
from evergraph.core.component import Shown
from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import Kind, LabelSpace, Setting
from evergraph.core.resources import Resources
from evergraph.datasets.doors import as_graph
from evergraph.graphs import UNLABELLED, Graph
from evergraph.streams.class_order import ClassOrder
from evergraph.streams.companions import (
    UNLABELLED_WAYS,
    Unlabelled,
    fitting_way,
    with_companions,
)
from evergraph.streams.splits import LEAST_NODES, SHARES, split_tasks
from evergraph.streams.target_streams import (
    new_targets,
    split_each,
    stand_in_labels,
    target_space,
)
from evergraph.streams.task import Lease, Task
from evergraph.streams.task_members import TaskMembers
from evergraph.streams.ways import By, arrange, check_way, without_classes

Edges = Literal["within", "all"]
Testing = Literal["local", "global"]
KnownLabels = Literal["nowhere", "global", "everywhere"]
EDGES: tuple[str, ...] = get_args(Edges)
TESTINGS: tuple[str, ...] = get_args(Testing)
KNOWN_LABELS: tuple[str, ...] = get_args(KnownLabels)
SHOWN_TASKS = 25  # in a notebook's table; of more it is said how many


@dataclass(frozen=True, eq=False)
class Exam:
    """A set of test nodes, and the right classes, which only the evaluator sees.

    Attributes:
        graph: the graph to embed them in; it shows labels of training nodes or none.
        nodes: positions in ``graph``.  int64 [nodes]
        labels: the right classes.  int64 [nodes]
        tasks: which task each node belongs to.  int64 [nodes]
        targets: what is right where nodes have several labels or numbers.  float32 [nodes, targets]
    """

    graph: Graph
    nodes: Tensor
    labels: Tensor
    tasks: Tensor
    targets: Tensor | None = None


class GraphStream(Shown):
    """Tasks of new nodes, cut out of one graph.

    Classes are renumbered in the order in which they arrive; ``classes`` maps back, ``tasks`` lists
    the classes that are new with each task. Unlabelled nodes belong to no task and are left out.

    A graph with ``targets``, several labels or numbers a node, has no classes to cut tasks by: its
    nodes arrive by ``time`` or in a ``random`` order, and ``class`` stands for the one of the two
    that the graph allows. Nodes of which nothing is known are left out. ``classes`` are then the
    numbers of the targets, all there with the first task.

    Args:
        graph: the whole graph, or what holds one: of PyG, NetworkX, SciPy, or a pair of tables
            (nodes, edges).
        by: how nodes arrive. ``class``: every task brings new classes, whole. ``time``: in the
            order of ``graph.time``, so that classes come back. ``blurred``: class after class, but
            borders between them blur. ``random``: in no order at all.
        tasks: how many, by ``time`` (at most; by default one for each time), ``blurred`` (by
            default as many as by ``class``) and ``random`` (by default 5).
        blur: standard deviation, in classes, of when a node arrives; 0 for none.
        classes_per_task: how many new classes each task brings, by ``class``.
        order: of classes: ``label``, ``shuffled``, or the classes in the order wanted.
        edges: ``within`` drops edges between tasks (the paper's tables); ``all`` shows a task the
            graph of everything seen so far.
        setting: ``class-il`` (any class seen so far) or ``task-il`` (the node's own task's).
        split: shares of training, validation and test nodes in every class, or how many of them,
            such as (200, 50, 200).
        min_class_size: smaller classes are dropped; a class of fewer than three cannot be split.
        unlabelled: whether nodes without a class are left out (``leave-out``) or come ``along``
            with the first task that has a neighbour of them, see ``with_companions``. Unless given,
            along where nodes are of several types or most of them have no class.
        known_labels: which graphs to test on show the dataset's labels of the training nodes in
            them, for methods that look at labels nearby: the ``global`` one, ``everywhere``, or
            ``nowhere``. A task's graph always shows them; no graph shows another label.
        seed: of the split, of a shuffled order and of blurred borders.
        device: where the graphs for training and testing are kept; by default that of ``graph``.
        resources: how much memory may be used; subgraphs that do not fit are kept in files.

    >>> ring = Graph.from_edges(torch.stack([torch.arange(24), torch.arange(24).roll(1)]),
    ...                         features=torch.eye(24), labels=torch.arange(24) // 4)
    >>> stream = GraphStream(ring, classes_per_task=2)
    >>> stream
    GraphStream(tasks=3, classes=6, nodes=24, edges='within', setting='class-il')
    >>> [task.label_space.num_classes for task in stream]
    [2, 4, 6]
    >>> blurred = GraphStream(ring, by="blurred", tasks=2, blur=1.0)
    >>> blurred.tasks, blurred.open(1).class_sizes
    ([(0, 1, 2, 4, 5), (3,)], {1: 1, 2: 1, 3: 3, 4: 3, 5: 4})
    """

    def __init__(
        self,
        graph: Any,
        *,
        by: By = "class",
        tasks: int | None = None,
        blur: float = 1.0,
        classes_per_task: int = 2,
        order: ClassOrder = "label",
        edges: Edges = "within",
        setting: Setting = "class-il",
        split: tuple[float, float, float] = SHARES,
        min_class_size: int = LEAST_NODES,
        known_labels: KnownLabels = "global",
        unlabelled: Unlabelled | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        resources: Resources | None = None,
    ) -> None:
        whole = as_graph(graph)
        check_choice("edges", edges, EDGES)
        check_choice("known_labels", known_labels, KNOWN_LABELS)
        labels = stand_in_labels(whole)
        if unlabelled is None:
            unlabelled = fitting_way(whole, labels != UNLABELLED)
        check_choice("unlabelled", unlabelled, UNLABELLED_WAYS)
        self.unlabelled: Unlabelled = unlabelled
        self.known_labels: KnownLabels = known_labels
        self.resources = resources
        self._label_space = LabelSpace(setting)
        if whole.targets is not None:
            timed = whole.time is not None
            by, tasks = without_classes(by, tasks=tasks, timed=timed, setting=setting)
            self._label_space = target_space(whole.targets)
        check_way(by, tasks=tasks, blur=blur, setting=setting)
        self.edges = edges
        shown = whole if whole.targets is None else whole.with_labels(labels)
        arrival = arrange(
            shown,
            by=by,
            tasks=tasks,
            blur=blur,
            classes_per_task=classes_per_task,
            order=order,
            min_class_size=min_class_size,
            seed=seed,
        )
        self.tasks = arrival.new_classes
        self.splits = (
            split_tasks(labels, arrival, shares=split, seed=seed)
            if whole.targets is None
            else split_each(arrival, shares=split, seed=seed)
        )
        owner = arrival.owner if unlabelled != "along" else with_companions(shown, arrival.owner)
        # Of every node of the dataset, of which there may be 10^8: in half the bytes.
        self._owner = owner.int()
        self._labels = self._renumber(labels).int()
        self._training_labels = self._hide_all_but_training(labels).int()
        self._targets: Tensor | None = None  # [all nodes, targets]
        if whole.targets is not None:
            self._targets = whole.targets.values.cpu()
            self._training_labels = torch.full_like(labels, UNLABELLED).int()
            self.tasks = new_targets(whole.targets, len(self.tasks))
        self._graph = whole.without_labels()
        if device is not None:
            self._graph = self._graph.to(device)
        self._members = TaskMembers(self._owner, self.splits)
        self._local: dict[int, Graph] = {}  # they show labels
        self._local_exams: dict[tuple[int, str], Exam] = {}
        self._union: tuple[int, Graph] | None = None  # as of which task; it shows labels
        self._lease: Lease | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    def _repr_facts(self) -> dict[str, object]:
        return {
            "tasks": len(self),
            ("classes" if self.kind == "class" else self.kind): len(self.classes),
            "nodes": int((self._owner >= 0).sum()),
            "edges": self.edges,
            "setting": self.setting,
        }

    def _repr_table(self) -> dict[str, object]:
        first = enumerate(self.tasks[:SHOWN_TASKS])
        new = {f"task {i}": f"classes {list(classes)}" for i, classes in first}
        more = len(self) - SHOWN_TASKS
        return self._repr_facts() | new | ({"more tasks": more} if more > 0 else {})

    def __iter__(self) -> Iterator[Task]:
        return (self.open(index) for index in range(len(self)))

    @property
    def classes(self) -> list[int]:
        """The dataset's label of every class, in order of arrival."""
        return [label for classes in self.tasks for label in classes]

    @property
    def setting(self) -> Setting:
        """class-il or task-il."""
        return self._label_space.setting

    @property
    def kind(self) -> Kind:
        """What a node is given: one ``class``, several ``labels``, or ``numbers``."""
        return self._label_space.kind

    @property
    def undirected(self) -> bool:
        """Whether every edge is known to run both ways."""
        return self._graph.undirected

    def open(self, index: int, *, cumulative: bool = False) -> Task:
        """Return a task and close the one opened before.

        cumulative: with the training nodes of every task so far, which is how ``joint`` sees it.
        """
        if not 0 <= index < len(self):
            raise ConfigurationError(
                f"task must be a number from 0 to {len(self) - 1}, not {index!r}"
            )
        if self._lease is not None:
            self._lease.close()
        everything = cumulative or self.edges == "all"
        ids = self._members.nodes(index, upto=everything)
        self._lease = Lease(self._task_graph(index, cumulative))
        own = self._members.nodes(index, upto=cumulative)
        train, validation = (
            self._members.part(part, index, upto=cumulative) for part in ("train", "validation")
        )
        return Task(
            index=index,
            label_space=self.label_space(index),
            ids=ids,
            train=self._members.places(train, index, upto=everything),
            train_labels=self._labels[train].long(),
            validation=self._members.places(validation, index, upto=everything),
            validation_labels=self._labels[validation].long(),
            own=self._members.places(own, index, upto=everything),
            class_sizes=self._sizes(own),
            met_sizes=self._sizes(self._members.nodes(index, upto=True)),
            lease=self._lease,
            train_targets=self._targets_of(train),
            validation_targets=self._targets_of(validation),
        )

    def _sizes(self, nodes: Tensor) -> dict[int, int]:
        return _count(self._labels[nodes]) if self._targets is None else {}

    def _targets_of(self, nodes: Tensor) -> Tensor | None:
        return None if self._targets is None else self._targets[nodes]

    def label_space(self, index: int) -> LabelSpace:
        """Return the classes met once task ``index`` has arrived."""
        met = self.tasks[: index + 1]
        labels = tuple(label for classes in met for label in classes)
        return replace(self._label_space, sizes=tuple(len(c) for c in met), labels=labels)

    def exams(self, index: int, testing: Testing, part: str = "test") -> list[Exam]:
        """Return what is to be classified after task ``index``.

        local: every task's nodes inside their own task's subgraph, one set per task. global: all
        of them in the graph of everything seen so far, one set. part: ``test`` or ``validation``.
        """
        check_choice("testing", testing, TESTINGS)
        if testing == "local":
            return [self._local_exam(task, part) for task in range(index + 1)]
        graph = self._seen_graph(index)
        if self.known_labels == "nowhere":
            graph = graph.structure
        return [self._exam(graph, part, index, upto=True)]

    def preview(self, index: int, testing: Testing, part: str = "test") -> list[Exam]:
        """Return what the next task will bring, to test on only: no learner fits it.

        local: its nodes inside its own subgraph. global: everything with it, in the graph that it
        makes; nodes seen already are there to compare with. Nothing after the last task. Labels
        of what comes are not shown.
        """
        if index + 1 == len(self):
            return []
        exam = self.exams(index + 1, testing, part)[-1]
        return [replace(exam, graph=self._before(exam.graph, index, testing))]

    def _before(self, graph: Graph, index: int, testing: Testing) -> Graph:
        """Return a graph that has grown since a task, with no label shown that came later."""
        if testing == "local" or self.known_labels == "nowhere":
            return graph.structure
        nodes = self._members.nodes(index + 1, upto=True)
        later = self._owner[nodes] > index
        return graph.structure.showing(graph.labels.cpu().masked_fill(later, UNLABELLED))

    def local_graph(self, index: int) -> Graph:
        """Return the subgraph induced by one task's nodes, without labels."""
        return self._own_graph(index).structure

    def union_graph(self, index: int) -> Graph:
        """Return the subgraph induced by everything seen after task ``index``, without labels."""
        return self._seen_graph(index).structure

    def _own_graph(self, index: int) -> Graph:
        """Return the subgraph of one task's nodes; it shows training labels."""
        if index not in self._local:
            self._local[index] = self._induced(self._members.nodes(index))
        return self._local[index]

    def _seen_graph(self, index: int) -> Graph:
        """Return the subgraph of everything seen after a task; it shows training labels."""
        if self._union is None or self._union[0] != index:
            self._union = index, self._induced(self._members.nodes(index, upto=True))
        return self._union[1]

    def _task_graph(self, index: int, cumulative: bool) -> Graph:
        if self.edges == "all":
            return self._seen_graph(index)
        if not cumulative:
            return self._own_graph(index)
        groups = self._owner.to(self._graph.device)
        return self._induced(self._members.nodes(index, upto=True), groups=groups)

    def _induced(self, nodes: Tensor, groups: Tensor | None = None) -> Graph:
        graph = self._graph.subgraph(nodes, groups=groups, resources=self.resources)
        return graph.showing(self._training_labels[nodes].long())

    def _local_exam(self, index: int, part: str) -> Exam:
        if (index, part) not in self._local_exams:
            graph = self._own_graph(index)
            if self.known_labels != "everywhere":
                graph = graph.structure
            self._local_exams[index, part] = self._exam(graph, part, index, upto=False)
        return self._local_exams[index, part]

    def _exam(self, graph: Graph, part: str, index: int, *, upto: bool) -> Exam:
        asked = self._members.part(part, index, upto=upto)
        places = self._members.places(asked, index, upto=upto)
        targets = self._targets_of(asked)
        labels, tasks = self._labels[asked].long(), self._owner[asked].long()
        return Exam(graph, places, labels, tasks, targets)

    def _hide_all_but_training(self, labels: Tensor) -> Tensor:
        shown = torch.full_like(labels, UNLABELLED)
        for split in self.splits:
            shown[split.train] = labels[split.train]
        return shown

    def _renumber(self, labels: Tensor) -> Tensor:
        """Return each node's class by arrival, -1 for nodes of no task.  [nodes] -> [nodes]"""
        width = int(labels.max()) + 2  # the last place is for unlabelled nodes, numbered -1
        arrival = torch.full((width,), UNLABELLED)
        arrival[self.classes] = torch.arange(len(self.classes))
        return arrival[labels]


def _count(labels: Tensor) -> dict[int, int]:
    counts = torch.bincount(labels[labels >= 0]).tolist()
    return {label: count for label, count in enumerate(counts) if count}
