"""The ways in which a graph may grow, by name."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.label_space import Setting
from evergraph.graphs import Graph
from evergraph.streams.arrival import Arrival
from evergraph.streams.blurred import at_random, blurred
from evergraph.streams.by_class import by_class
from evergraph.streams.by_time import by_time
from evergraph.streams.class_order import (
    ClassOrder,
    arrange_classes,
    group_classes,
    order_classes,
)
from evergraph.streams.splits import LEAST_NODES

By = Literal["class", "time", "blurred", "drifting", "random", "online"]
WAYS: tuple[str, ...] = get_args(By)
WHOLE = ("class", "online")  # every task has classes of its own, all of whose nodes are in it
TASKS = 5  # in a random order, and of nodes with targets, unless something else is said
DRIFTING_TASKS = 20  # steps of a drift, unless something else is said


def check_way(
    by: By, *, tasks: int | None, blur: float, setting: Setting, batch: int | None = None
) -> None:
    """Raise unless the parameters mean something for this way of growing."""
    check_choice("by", by, WAYS)
    check_number("blur", blur, least=0.0)
    if tasks is not None:
        check_integer("tasks", tasks, least=1)
    if batch is not None:
        check_integer("batch", batch, least=1)
    if by in WHOLE and tasks is not None:
        raise ConfigurationError(
            f"tasks must be left out with by = {by!r}, where classes_per_task decides, not {tasks}"
        )
    if by != "online" and batch is not None:
        raise ConfigurationError(
            f"batch is for by = 'online', where tasks arrive in batches: leave it out with {by!r}"
        )
    if by not in WHOLE and setting == "task-il":
        raise ConfigurationError(
            f"setting 'task-il' needs tasks with classes of their own: use by = 'class', not {by!r}"
        )


def without_classes(
    by: By, *, tasks: int | None, timed: bool, setting: Setting
) -> tuple[By, int | None]:
    """Return how nodes arrive that have targets and no class, and in how many tasks.

    ``class``, which means nothing here, stands for the order of time where that is known and for a
    random one where it is not, in five tasks unless another number is given.

    >>> without_classes("class", tasks=None, timed=False, setting="class-il")
    ('random', 5)
    """
    if by not in ("class", "time", "random"):
        raise ConfigurationError(
            f"by = {by!r} needs classes: nodes with several labels or numbers arrive by 'time' or "
            "'random'"
        )
    if setting == "task-il":
        raise ConfigurationError(
            "setting 'task-il' needs tasks with classes of their own, and nodes with several "
            "labels or numbers have none: use 'class-il'"
        )
    if by != "class":
        return by, tasks
    return ("time" if timed else "random"), tasks or TASKS


def arrange(
    graph: Graph,
    *,
    by: By = "class",
    tasks: int | None = None,
    blur: float = 1.0,
    classes_per_task: int = 2,
    order: ClassOrder = "label",
    min_class_size: int = LEAST_NODES,
    seed: int = 0,
) -> Arrival:
    """Return when each node of a graph arrives; see ``GraphStream`` for what decides it.

    >>> graph = Graph.from_edges(torch.empty(2, 0, dtype=torch.long), features=torch.eye(6),
    ...                          labels=torch.tensor([0, 0, 0, 1, 1, 1]),
    ...                          time=torch.tensor([7, 8, 8, 9, 9, 9]))
    >>> arrange(graph, by="time", tasks=2).new_classes
    [(0,), (1,)]
    """
    # Who arrives when is worked out in main memory, wherever the graph itself is.
    labels, time = graph.labels.cpu(), None if graph.time is None else graph.time.cpu()
    sizes = torch.bincount(labels[labels >= 0], minlength=graph.num_classes)
    rule: dict[str, Any] = {"order": order, "min_size": min_class_size, "seed": seed}
    if by in WHOLE:
        return by_class(labels, order_classes(sizes, per_task=classes_per_task, **rule))
    classes = arrange_classes(sizes, **rule)
    if not classes:
        raise DataError(f"no task can be made: no class has at least {min_class_size} nodes")
    if by == "time":
        return by_time(labels, time, classes=classes, tasks=tasks)
    if by == "random":  # a single border to blur: none
        return at_random(labels, classes=classes, tasks=tasks or TASKS, seed=seed)
    if by == "drifting":
        check_integer("classes_per_task", classes_per_task, least=1)
        return blurred(
            labels,
            classes=classes,
            tasks=tasks or DRIFTING_TASKS,
            blur=blur,
            together=classes_per_task,
            comes_back=True,
            seed=seed,
        )
    # As many as by class, although a class left over alone arrives here.
    tasks = tasks or max(1, len(group_classes(classes, classes_per_task)))
    return blurred(labels, classes=classes, tasks=tasks, blur=blur, seed=seed)
