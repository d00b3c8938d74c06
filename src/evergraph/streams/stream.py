"""A graph as a sequence of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from evergraph.core.component import Shown
from evergraph.core.errors import ConfigurationError, check_choice
from evergraph.core.label_space import LabelSpace, Setting
from evergraph.core.resources import Resources
from evergraph.core.targets import Target
from evergraph.datasets.adapters import as_graph
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.reachability import covered_nodes
from evergraph.streams.arrival import (
    LEAST_NODES,
    SHARES,
    UNLABELLED_WAYS,
    Shares,
    Unlabelled,
    check_shares,
    fitting_way,
    split_by_masks,
    split_each,
    split_tasks,
    stand_in_labels,
    with_companions,
)
from evergraph.streams.task import TESTINGS, ClassSizes, Exam, Lease, Task, TaskMembers, Testing
from evergraph.streams.ways import (
    BATCH,
    By,
    ClassOrder,
    arrange,
    check_way,
    in_batches,
    without_classes,
)

Edges = Literal["within", "all"]
KnownLabels = Literal["nowhere", "global", "everywhere"]
EDGES: tuple[str, ...] = get_args(Edges)
KNOWN_LABELS: tuple[str, ...] = get_args(KnownLabels)


class GraphStream(Shown):
    """Tasks of new nodes, cut out of one graph.

    Classes are renumbered in order of arrival; ``classes`` maps back, and ``tasks`` lists the
    classes that are new with each task. Unlabelled nodes belong to no task and are left out.

    Nodes with ``targets``, several labels or numbers each, arrive by ``time`` or in ``random``
    order, and ``class`` means the one of the two that the graph allows. Those without known targets
    are left out. ``classes`` are then the targets' numbers, all present from the first task.

    A stream has ``len`` steps, and ``open`` opens one. A step is a task, except with ``online``,
    where it is a batch of one; counting and testing are by task there too.

    Args:
        graph: the whole graph, or what ``as_graph`` makes one of.
        by: how nodes arrive. ``class``: every task brings new classes, whole. ``time``: in the
            order of ``graph.time``, so that classes return. ``blurred``: class after class, with
            blurred borders between them. ``drifting``: the same with ``classes_per_task`` classes
            at a time, and time on a circle, so that the first ones return. ``random``: in random
            order. ``online``: by class, but a task's training nodes arrive in small batches.
        tasks: their number, by ``time`` (at most; by default one for each time), ``blurred`` (as
            many as by ``class`` by default), ``drifting`` (20) and ``random`` (5).
        blur: standard deviation of a node's arrival time, in positions: of one class each by
            ``blurred``, of ``classes_per_task`` by ``drifting``; 0 for none.
        batch: number of training nodes that arrive at a time by ``online``; 10 by default.
        classes_per_task: number of new classes in each task, by ``class`` and ``online``.
        order: of classes: ``label``, ``size`` (largest first), ``shuffled``, or a list of classes.
        edges: ``within`` drops edges between tasks (the paper's tables); ``all`` shows a task the
            graph of everything seen so far.
        setting: ``class-il`` (any class seen so far) or ``task-il`` (the classes of the node's own
            task).
        split: shares of training, validation and test nodes in every class, or numbers of nodes,
            such as (200, 50, 200); or ``masks``: the graph's own ``train_mask``, ``val_mask`` and
            ``test_mask``, of which ``seed`` is the column if they have several.
        labelled: instead of ``split``, the share of every class that is labelled for training,
            such as 0.05; as many nodes are for validation (no more than half of the rest), and all
            others are for test. For multi-label and regression targets, a share of every task.
        min_class_size: smaller classes are dropped; a class of fewer than three cannot be split.
        unlabelled: whether nodes without a class are left out (``leave-out``) or come ``along``
            with their first neighbour's task, see ``with_companions``. By default, along if nodes
            have several types or most have no class.
        known_labels: which test graphs show the labels of their training nodes, for methods that
            use labels nearby: the ``global`` one, ``everywhere``, or ``nowhere``. A task's graph
            always shows them; no graph shows another label.
        seed: seed of the split, a shuffled order, blurred borders and batches.
        device: device of the graphs for training and testing; by default that of ``graph``.
        resources: memory that may be used; subgraphs that do not fit are kept in files.

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

    def __init__(  # noqa: PLR0913
        self,
        graph: Any,
        *,
        by: By = "class",
        tasks: int | None = None,
        blur: float = 1.0,
        batch: int | None = None,
        classes_per_task: int = 2,
        order: ClassOrder = "label",
        edges: Edges = "within",
        setting: Setting = "class-il",
        split: Shares | Literal["masks"] = SHARES,
        labelled: float | None = None,
        min_class_size: int = LEAST_NODES,
        known_labels: KnownLabels = "global",
        unlabelled: Unlabelled | None = None,
        seed: int = 0,
        device: torch.device | str | None = None,
        resources: Resources | None = None,
    ) -> None:
        full_graph = as_graph(graph)
        check_choice("edges", edges, EDGES)
        check_choice("known_labels", known_labels, KNOWN_LABELS)
        labels = stand_in_labels(full_graph)
        if unlabelled is None:
            unlabelled = fitting_way(full_graph, labels != UNLABELLED)
        check_choice("unlabelled", unlabelled, UNLABELLED_WAYS)
        self.unlabelled: Unlabelled = unlabelled
        self.known_labels: KnownLabels = known_labels
        self.resources = resources
        self._label_space = LabelSpace(setting, names=full_graph.class_names)
        targets = full_graph.targets
        if targets is not None:
            timed = full_graph.time is not None
            by, tasks = without_classes(by, tasks=tasks, timed=timed, setting=setting)
            self._label_space = LabelSpace("class-il", kind=targets.kind, names=targets.names)
        check_way(by, tasks=tasks, blur=blur, setting=setting, batch=batch)
        self.edges = edges
        labelled_graph = full_graph if targets is None else full_graph.with_labels(labels)
        arrival = arrange(
            labelled_graph,
            by=by,
            tasks=tasks,
            blur=blur,
            classes_per_task=classes_per_task,
            order=order,
            min_class_size=min_class_size,
            seed=seed,
        )
        self.tasks = arrival.new_classes
        check_shares(split, labelled)
        if isinstance(split, str):
            self.splits = split_by_masks(arrival, full_graph.masks, seed)
        elif targets is None:
            self.splits = split_tasks(labels, arrival, shares=split, labelled=labelled, seed=seed)
        else:
            self.splits = split_each(arrival, shares=split, labelled=labelled, seed=seed)
        if by == "online":
            arrival, self.splits = in_batches(
                arrival, self.splits, batch=BATCH if batch is None else batch, seed=seed
            )
        self._batched = arrival.tasks is not None
        self._task_of = arrival.task_of.int()  # [steps]
        self._first_steps = [0, *accumulate(torch.bincount(self._task_of).tolist())]  # and the end
        owner = arrival.owner
        if unlabelled == "along":
            owner = with_companions(labelled_graph, owner)
        self._owner = owner.int()  # the step of every node; a graph may have 10^8
        # Each node's class by arrival; the last entry is for unlabelled nodes, numbered -1.
        class_numbers = torch.full((int(labels.max()) + 2,), UNLABELLED)
        class_numbers[self.classes] = torch.arange(len(self.classes))
        self._labels = class_numbers[labels].int()
        self._training_labels = torch.full_like(labels, UNLABELLED).int()
        self._targets: Tensor | None = None  # [all nodes, targets]
        if targets is None:
            for task_split in self.splits:
                self._training_labels[task_split.train] = labels[task_split.train].int()
        else:
            self._targets = targets.values.cpu()
            # All targets are new with the first task.
            self.tasks = [tuple(range(len(targets.names))), *([()] * (len(self.tasks) - 1))]
        structure = full_graph.without_labels()
        self._graph = structure if device is None else structure.to(device)
        self._members = TaskMembers(self._owner, self.splits)
        # Nodes with targets have no classes to count.
        counted = self._labels if targets is None else torch.full_like(self._labels, UNLABELLED)
        self._class_counts = ClassSizes(self._owner, counted, steps=len(arrival))
        known = torch.cat([torch.cat([s.train, s.validation]) for s in self.splits])
        self._known_counts = ClassSizes(self._owner[known], counted[known], steps=len(arrival))
        self._local: dict[int, tuple[int, Graph]] = {}  # with their step; they show labels
        self._local_exams: dict[tuple[int, str], tuple[int, Exam]] = {}
        self._union: tuple[int, Graph] | None = None  # with its task; it shows labels
        self._lease: Lease | None = None

    def __len__(self) -> int:
        return len(self._task_of)

    def _repr_facts(self) -> dict[str, object]:
        return {
            "tasks": len(self.tasks),
            **({"steps": len(self)} if self._batched else {}),
            self.target.plural: len(self.classes),
            "nodes": int((self._owner >= 0).sum()),
            "edges": self.edges,
            "setting": self.setting,
        }

    def __iter__(self) -> Iterator[Task]:
        return (self.open(index) for index in range(len(self)))

    @property
    def classes(self) -> list[int]:
        """The dataset's label of every class, in order of arrival."""
        return [label for classes in self.tasks for label in classes]

    @property
    def step_sizes(self) -> list[int]:
        """Number of nodes that arrive with each step, including nodes without a class."""
        counts: list[int] = torch.bincount(self._owner[self._owner >= 0]).tolist()
        return counts

    @property
    def setting(self) -> Setting:
        """class-il or task-il."""
        return self._label_space.setting

    @property
    def target(self) -> Target:
        """What its nodes have to be predicted: a class, labels or numbers."""
        return self._label_space.target

    @property
    def undirected(self) -> bool:
        """Whether every edge is known to go both ways."""
        return self._graph.undirected

    def met(self, index: int) -> int:
        """Return the number of tasks that have begun once step ``index`` has arrived."""
        return int(self._task_of[index]) + 1

    def open(self, index: int, *, cumulative: bool = False, sight: int | None = None) -> Task:
        """Return a task, or a batch of one by ``online``, and close the one opened before.

        cumulative: include the training nodes of every task so far, as ``joint`` needs.
        sight: number of hops around its nodes that will be read; None for all. A batch then comes
        with the nodes within that distance and their neighbours, which give them the right degrees.
        """
        if not 0 <= index < len(self):
            message = f"task must be a number from 0 to {len(self) - 1}, not {index!r}"
            raise ConfigurationError(message)
        if self._lease is not None:
            self._lease.close()
        ids, graph = self._nodes_and_graph(index, cumulative, sight)
        self._lease = Lease(graph)
        first = 0 if cumulative else index
        new_nodes = self._members.nodes(index, upto=cumulative)
        train = self._members.part("train", first, index)
        validation = self._members.part("validation", first, index)
        return Task(
            index=index,
            label_space=self.label_space(index),
            ids=ids,
            train=torch.searchsorted(ids, train),
            train_labels=self._labels[train].long(),
            validation=torch.searchsorted(ids, validation),
            validation_labels=self._labels[validation].long(),
            own=torch.searchsorted(ids, new_nodes),
            class_sizes=self._class_counts.between(first, index),
            met_sizes=self._class_counts.between(0, index),
            known_sizes=self._known_counts.between(0, index),
            lease=self._lease,
            train_targets=None if self._targets is None else self._targets[train],
            validation_targets=None if self._targets is None else self._targets[validation],
        )

    def _nodes_and_graph(
        self, index: int, cumulative: bool, sight: int | None
    ) -> tuple[Tensor, Graph]:
        """Return the nodes that a learner is given with a step, ascending, and their graph."""
        if self._batched and sight is not None and not cumulative:
            within = self.edges == "within"
            own_task = self._task_of[index]

            def arrived(nodes: Tensor) -> Tensor:
                steps = self._owner[nodes]
                has_arrived = (steps >= 0) & (steps <= index)
                return has_arrived & (self._tasks_of(steps) == own_task) if within else has_arrived

            members = self._members.nodes(index)
            covered = covered_nodes(self._graph, members, hops=sight + 1, available=arrived)
            nodes = covered.nonzero().flatten()
            return nodes, self._induced(nodes)
        if self.edges == "all":
            return self._members.nodes(index, upto=True), self._seen_graph(index)
        if not cumulative:
            task = self.met(index) - 1
            return self._members.between(*self._steps(task, index)), self._own_graph(task, index)
        nodes = self._members.nodes(index, upto=True)
        groups = self._tasks_of(self._owner).to(self._graph.device)
        return nodes, self._induced(nodes, groups=groups)

    def _tasks_of(self, steps: Tensor) -> Tensor:
        return self._task_of[steps] if self._batched else steps

    def _steps(self, task: int, index: int) -> tuple[int, int]:
        """Return the first and the last of a task's steps that have arrived by ``index``."""
        first, following = self._first_steps[task : task + 2]
        return first, min(index, following - 1)

    def label_space(self, index: int) -> LabelSpace:
        """Return the classes seen once task or step ``index`` has arrived."""
        seen = self.tasks[: self.met(index)]
        labels = tuple(chain.from_iterable(seen))
        return replace(self._label_space, sizes=tuple(map(len, seen)), labels=labels)

    def exams(self, index: int, testing: Testing, part: str = "test") -> list[Exam]:
        """Return the test sets after task or step ``index``.

        local: every task's nodes in their own task's subgraph so far, one set per task. global: all
        of them in the graph of everything seen so far, one set. part: ``test`` or ``validation``.
        """
        check_choice("testing", testing, TESTINGS)
        if testing == "local":
            return [self._local_exam(task, part, index) for task in range(self.met(index))]
        graph = self._seen_graph(index)
        if self.known_labels == "nowhere":
            graph = graph.structure
        nodes = self._members.nodes(index, upto=True)
        return [self._exam(graph, nodes, self._members.part(part, 0, index))]

    def preview(self, index: int, testing: Testing, part: str = "test") -> list[Exam]:
        """Return the test sets of the next task, on which no learner is trained.

        local: its nodes in its own subgraph. global: all nodes so far and its own, in their joint
        graph. Empty after the last task. Labels of future nodes are not shown.
        """
        if index + 1 == len(self):
            return []
        exam = self.exams(index + 1, testing, part)[-1]
        graph = exam.graph.structure
        if testing == "global" and self.known_labels != "nowhere":
            later = self._owner[self._members.nodes(index + 1, upto=True)] > index
            graph = graph.showing(exam.graph.labels.cpu().masked_fill(later, UNLABELLED))
        return [replace(exam, graph=graph)]

    def local_graph(self, index: int) -> Graph:
        """Return the subgraph induced by one task's nodes, without labels."""
        return self._own_graph(index, len(self) - 1).structure

    def union_graph(self, index: int) -> Graph:
        """Return the subgraph induced by everything seen after task ``index``, without labels."""
        return self._seen_graph(index).structure

    def _own_graph(self, task: int, index: int) -> Graph:
        """Return the subgraph of one task's nodes as of a step; it shows training labels."""
        first, last = self._steps(task, index)
        if task not in self._local or self._local[task][0] != last:
            self._local[task] = last, self._induced(self._members.between(first, last))
        return self._local[task][1]

    def _seen_graph(self, index: int) -> Graph:
        """Return the subgraph of everything seen after a task; it shows training labels."""
        if self._union is None or self._union[0] != index:
            self._union = index, self._induced(self._members.nodes(index, upto=True))
        return self._union[1]

    def _induced(self, nodes: Tensor, groups: Tensor | None = None) -> Graph:
        graph = self._graph.subgraph(nodes, groups=groups, resources=self.resources)
        return graph.showing(self._training_labels[nodes].long())

    def _local_exam(self, task: int, part: str, index: int) -> Exam:
        first, last = self._steps(task, index)
        cached = self._local_exams.get((task, part))
        if cached is None or cached[0] != last:
            graph = self._own_graph(task, index)
            if self.known_labels != "everywhere":
                graph = graph.structure
            test_nodes = self._members.part(part, first, last)
            cached = last, self._exam(graph, self._members.between(first, last), test_nodes)
            self._local_exams[task, part] = cached
        return cached[1]

    def _exam(self, graph: Graph, nodes: Tensor, test_nodes: Tensor) -> Exam:
        """Return the test set of some nodes of a graph.  [nodes of graph], [asked]"""
        targets = None if self._targets is None else self._targets[test_nodes]
        tasks = self._tasks_of(self._owner[test_nodes]).long()
        positions = torch.searchsorted(nodes, test_nodes)
        return Exam(graph, positions, self._labels[test_nodes].long(), tasks, targets)
