"""The ways in which nodes of a graph can arrive, by name, and the order of classes."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    check_choice,
    check_integer,
    check_number,
    listed,
)
from evergraph.core.label_space import Setting
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.streams.arrival import LEAST_NODES, NOWHERE, Arrival, Split, arrival_of

logger = logging.getLogger(__name__)
By = Literal["class", "time", "blurred", "drifting", "random", "online"]
ClassOrder = Literal["label", "size", "shuffled"] | Sequence[int]
WAYS: tuple[str, ...] = get_args(By)
WHOLE = ("class", "online")  # all nodes of a class arrive with the same task
RANDOM_TASKS = 5  # default number of tasks in random order, and for nodes with targets
DRIFTING_TASKS = 20  # default number of tasks of a drift
BATCH = 10  # default number of training nodes per batch, as in OCGL's benchmark


def check_way(
    by: By, *, tasks: int | None, blur: float, setting: Setting, batch: int | None = None
) -> None:
    """Raise unless the parameters are valid for this way of arrival."""
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
    """Return how nodes with targets and no class arrive, and in how many tasks.

    ``class`` has no meaning here: it is replaced by ``time`` if times are known and by ``random``
    otherwise, in five tasks unless another number is given.

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
    return ("time" if timed else "random"), tasks or RANDOM_TASKS


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
    """Return when each node of a graph arrives; see ``GraphStream`` for the parameters."""
    # Computed in main memory, whatever the device of the graph.
    labels = graph.labels.cpu()
    time = None if graph.time is None else graph.time.cpu()
    sizes = torch.bincount(labels[labels >= 0], minlength=graph.num_classes)
    options: dict[str, Any] = {"order": order, "min_size": min_class_size, "seed": seed}
    options["names"] = graph.class_names
    if by in WHOLE:
        return by_class(labels, order_classes(sizes, per_task=classes_per_task, **options))
    classes = arrange_classes(sizes, **options)
    if not classes:
        raise DataError(f"no task can be made: no class has at least {min_class_size} nodes")
    if by == "time":
        return by_time(labels, time, classes=classes, tasks=tasks)
    if by == "random":  # in batches of equal size, as if all had the same class
        tasks = tasks or RANDOM_TASKS
        alike = torch.where(torch.isin(labels, torch.tensor(classes)), 0, NOWHERE)
        owner = blurred(alike, classes=[0], tasks=tasks, blur=0.0, seed=seed).owner
        return arrival_of(owner, labels, classes=classes, tasks=tasks)
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
    # As many as by class, although here a class left over alone still arrives.
    tasks = tasks or max(1, len(group_classes(classes, classes_per_task)))
    return blurred(labels, classes=classes, tasks=tasks, blur=blur, seed=seed)


def by_class(labels: Tensor, tasks: Sequence[tuple[int, ...]]) -> Arrival:
    """Return the arrival of whole classes.

    labels: int64 [nodes]; tasks: the classes of each, as ``order_classes`` returns them.

    >>> by_class(torch.tensor([0, 1, 2, -1, 1]), [(2,), (1,)]).owner
    tensor([-1,  1,  0, -1,  1])
    """
    width = int(labels.max()) + 2  # the last entry is for unlabelled nodes, numbered -1
    owner = torch.full((width,), NOWHERE)
    for index, classes in enumerate(tasks):
        owner[list(classes)] = index
    return Arrival(owner[labels], list(tasks))


def by_time(
    labels: Tensor, time: Tensor | None, *, classes: Sequence[int], tasks: int | None = None
) -> Arrival:
    """Return the arrival of nodes in the order of their times.

    Nodes with the same time arrive together. ``join`` numbers the domains of its graphs as times.

    labels, time: int64 [nodes]; classes: those that arrive at all; tasks: maximum number of tasks,
    of consecutive times and nearly equal size; None makes a task of every time.

    >>> by_time(torch.tensor([0, 1, 0, 1]), torch.tensor([1999, 1998, 2003, 1998]),
    ...         classes=[0, 1]).owner
    tensor([1, 0, 2, 0])
    """
    if time is None:
        raise DataError("by = 'time' needs the time of every node, and the graph has none")
    arrives = torch.isin(labels, torch.tensor(classes))
    _, time_index, counts = time[arrives].unique(return_inverse=True, return_counts=True)
    task_of_time = group_times(counts.tolist(), len(counts) if tasks is None else tasks)
    owner = torch.full_like(labels, NOWHERE)
    owner[arrives] = task_of_time[time_index]
    return arrival_of(owner, labels, classes=classes)


def group_times(counts: Sequence[int], tasks: int) -> Tensor:
    """Return the task of each time, without empty tasks.  -> int64 [times]

    Each task in turn takes the times that bring it nearest to an equal share of the rest.

    counts: nodes of each time, in order.
    """
    before = [0, *accumulate(counts)]  # nodes before each time, and their total
    cuts = [0]
    for tasks_left in range(min(tasks, len(counts)), 1, -1):
        nodes_done = before[cuts[-1]]
        target_end = nodes_done + (before[-1] - nodes_done) / tasks_left
        cut = bisect_left(before, target_end)
        if before[cut] - target_end >= target_end - before[cut - 1]:
            cut -= 1  # the nearest, and the first of two equally near
        # At least one time for this task and for each that follows.
        cuts.append(min(max(cut, cuts[-1] + 1), len(counts) - tasks_left + 1))
    return torch.bucketize(torch.arange(len(counts)), torch.tensor(cuts[1:]), right=True)


def blurred(
    labels: Tensor,
    *,
    classes: Sequence[int],
    tasks: int,
    blur: float = 1.0,
    together: int = 1,
    comes_back: bool = False,
    seed: int = 0,
) -> Arrival:
    """Return the arrival of nodes sorted by time and cut into batches of equal size.

    Without blur, classes arrive one after the other, and batches may cross their borders; with a
    little, neighbouring classes mix; with much, the order is random. Many small batches make a
    stream without tasks whose nodes are seen once.

    labels: int64 [nodes]; classes: those that arrive, in order; tasks: number of batches;
    together, comes_back: see ``arrival_times``.

    >>> blurred(torch.tensor([1, 1, 0, 0, 0, 1]), classes=[0, 1], tasks=2, blur=0.0).owner
    tensor([1, 1, 0, 0, 0, 1])
    """
    times = arrival_times(
        labels, classes=classes, blur=blur, together=together, comes_back=comes_back, seed=seed
    )
    arriving = times.isfinite().nonzero().flatten()
    order = arriving[times[arriving].argsort(stable=True)]
    owner = torch.full_like(labels, NOWHERE)
    for index, nodes in enumerate(order.tensor_split(tasks)):
        owner[nodes] = index
    return arrival_of(owner, labels, classes=classes, tasks=tasks)


def arrival_times(
    labels: Tensor,
    *,
    classes: Sequence[int],
    blur: float,
    together: int = 1,
    comes_back: bool = False,
    seed: int,
) -> Tensor:
    """Return t_v = k + u_v + blur · ε_v, k the position of v's class among ``classes``.

    u_v is uniform on 0..1 and ε_v standard normal, drawn from the seed and the node's number
    alone; nodes whose class does not arrive have an infinite time. So at time t a class has the
    share w_k(t) ∝ n_k · p_k(t) of the arriving nodes, n_k its nodes and p_k a bump around k + 1/2
    of standard deviation √(blur² + 1/12): Gaussian mixing curves, as in DRIFT (Sun et al. 2026).

    labels: int64 [nodes]; together: number of neighbouring classes at one position; comes_back:
    whether time is a circle, on which times beyond the end continue at the beginning and the
    other way round: the first classes return with the last ones.  -> float64 [nodes]
    """
    width = int(labels.max()) + 2  # the last entry is for unlabelled nodes, numbered -1
    class_position = torch.full((width,), torch.inf, dtype=torch.float64)
    positions = torch.arange(len(classes)) // together
    class_position[list(classes)] = positions.double()
    within_class = _uniform(len(labels), seeded(seed, "arrival", "inside"))
    # By the inverse of the distribution function: torch.randn draws in blocks, so a node's number
    # would depend on the number of nodes.
    noise = torch.special.ndtri(_uniform(len(labels), seeded(seed, "arrival", "blur")))
    times: Tensor = class_position[labels] + within_class + blur * noise
    if comes_back:
        arrives = times.isfinite()
        times[arrives] = times[arrives].remainder(float(positions[-1]) + 1)
    return times


def _uniform(count: int, generator: torch.Generator) -> Tensor:
    """Draw numbers above 0 and below 1.  -> float64 [count]"""
    draws = torch.rand(count, dtype=torch.float64, generator=generator)
    return draws.clamp_min_(2.0**-54)


def in_batches(
    arrival: Arrival, splits: Sequence[Split], *, batch: int = BATCH, seed: int = 0
) -> tuple[Arrival, list[Split]]:
    """Return when each node arrives, and the split of each step, if a batch is a step.

    The training nodes of a task arrive in random order, ``batch`` at a time, each once; the last
    batch of a task may be smaller. Its validation and test nodes all arrive with its first batch,
    without their labels, so that a task is always tested on the same nodes (Donghi et al. 2025,
    OCGL).

    splits: the split of each task.

    >>> tasks = Arrival(torch.tensor([0, 0, 0, 0, 0, 1, 1, 1]), [(0,), (1,)])
    >>> split = [Split(*map(torch.tensor, parts)) for parts in
    ...          (([0, 1, 2], [3], [4]), ([5], [6], [7]))]
    >>> arrival, steps = in_batches(tasks, split, batch=2)
    >>> arrival.tasks, [len(step.train) for step in steps], [len(step.test) for step in steps]
    (tensor([0, 0, 1]), [2, 1, 1], [1, 0, 1])
    """
    owner = arrival.owner.clone()
    task_of: list[int] = []
    steps: list[Split] = []
    for task, split in enumerate(splits):
        shuffle = torch.randperm(len(split.train), generator=seeded(seed, "batches", task))
        held_out = split.validation, split.test
        owner[torch.cat(held_out)] = len(steps)
        for nodes in split.train[shuffle].split(batch):
            owner[nodes] = len(steps)
            steps.append(Split(nodes.sort().values, *held_out))
            held_out = split.validation[:0], split.test[:0]
            task_of.append(task)
    return Arrival(owner, arrival.new_classes, torch.tensor(task_of)), steps


def order_classes(
    sizes: Tensor,
    *,
    per_task: int,
    order: ClassOrder = "label",
    min_size: int = LEAST_NODES,
    seed: int = 0,
    names: Sequence[str] = (),
) -> list[tuple[int, ...]]:
    """Group classes into tasks of ``per_task``, in order of arrival.

    Classes of fewer than ``min_size`` nodes are dropped, and so is a single class left over at
    the end (a task needs two classes, unless ``per_task`` is 1).

    sizes: int64 [classes], nodes of each class. order: ``label``; ``size``, the largest first;
    ``shuffled`` by ``seed``; or a list of classes. names: of the classes, for messages.

    >>> order_classes(torch.tensor([5, 5, 1, 5, 5, 5]), per_task=2)
    [(0, 1), (3, 4)]
    """
    classes = arrange_classes(sizes, order=order, min_size=min_size, seed=seed, names=names)
    tasks = group_classes(classes, per_task)
    if left_over := classes[sum(map(len, tasks)) :]:
        logger.info(
            "%s is left out: it comes last, and a task has %d classes (classes_per_task)",
            called(left_over, names),
            per_task,
        )
    if not tasks:
        classes_found = "1 class has" if len(classes) == 1 else f"{len(classes)} classes have"
        raise DataError(
            f"no task can be made: {classes_found} at least {min_size} nodes, "
            f"and a task needs {min(per_task, 2)}"
        )
    return tasks


def called(classes: Sequence[int], names: Sequence[str] = ()) -> str:
    """Return classes by name, or by number if they have none.

    >>> called([3]), called([0, 1], ["art", "law"])
    ('class 3', "classes 'art', 'law'")
    """
    class_names = [repr(names[c]) if c < len(names) else str(c) for c in classes]
    return f"{'class' if len(class_names) == 1 else 'classes'} {listed(class_names)}"


def arrange_classes(
    sizes: Tensor,
    *,
    order: ClassOrder = "label",
    min_size: int = LEAST_NODES,
    seed: int = 0,
    names: Sequence[str] = (),
) -> list[int]:
    """Return the classes of at least ``min_size`` nodes, in order of arrival.

    >>> arrange_classes(torch.tensor([5, 1, 5]), order=[2, 0])
    [2, 0]
    >>> arrange_classes(torch.tensor([5, 1, 9, 5]), order="size")  # equal sizes by label
    [2, 0, 3]
    """
    counts = sizes.tolist()
    large_enough = [c for c, size in enumerate(counts) if size >= min_size]
    if too_small := [c for c, size in enumerate(counts) if 0 < size < min_size]:
        verb = "is" if len(too_small) == 1 else "are"
        logger.info(
            "%s %s left out: fewer than %d nodes (min_class_size)",
            called(too_small, names),
            verb,
            min_size,
        )
    if order == "label":
        return large_enough
    if order == "size":
        return sorted(large_enough, key=lambda c: -counts[c])
    if order == "shuffled":
        shuffle = torch.randperm(len(large_enough), generator=seeded(seed, "class order"))
        return [large_enough[i] for i in shuffle.tolist()]
    if isinstance(order, str):
        raise ConfigurationError(
            f"order must be 'label', 'size', 'shuffled' or classes, not {order!r}"
        )
    chosen = list(order)
    if len(set(chosen)) != len(chosen) or not set(chosen) <= set(large_enough):
        raise ConfigurationError(
            f"order must name each class at most once, of those that are large enough, not {chosen}"
        )
    return chosen


def group_classes(classes: Sequence[int], per_task: int) -> list[tuple[int, ...]]:
    """Cut classes into tasks of ``per_task``, without a single class left over at the end.

    >>> group_classes([4, 1, 5], 2)
    [(4, 1)]
    """
    check_integer("classes_per_task", per_task, least=1)
    tasks = [tuple(classes[i : i + per_task]) for i in range(0, len(classes), per_task)]
    has_single_class = per_task > 1 and bool(tasks) and len(tasks[-1]) == 1
    return tasks[:-1] if has_single_class else tasks
