"""The order in which classes arrive, and their grouping into tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from evergraph.core.checks import check_integer
from evergraph.core.display import listed
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.seeding import seeded
from evergraph.streams.splits import LEAST_NODES

logger = logging.getLogger(__name__)

ClassOrder = Literal["label", "size", "shuffled"] | Sequence[int]


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
    if last := classes[sum(map(len, tasks)) :]:
        logger.info("%s is left out: it comes last, and a task needs two", called(last, names))
    if not tasks:
        found = "1 class has" if len(classes) == 1 else f"{len(classes)} classes have"
        raise DataError(
            f"no task can be made: {found} at least {min_size} nodes, "
            f"and a task needs {min(per_task, 2)}"
        )
    return tasks


def called(classes: Sequence[int], names: Sequence[str] = ()) -> str:
    """Return classes by name, or by number if they have none.

    >>> called([3]), called([0, 1], ["art", "law"])
    ('class 3', "classes 'art', 'law'")
    """
    shown = [repr(names[c]) if c < len(names) else str(c) for c in classes]
    return f"{'class' if len(shown) == 1 else 'classes'} {listed(shown)}"


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
    large = [c for c, size in enumerate(counts) if size >= min_size]
    if small := [c for c, size in enumerate(counts) if 0 < size < min_size]:
        verb = "is" if len(small) == 1 else "are"
        logger.info(
            "%s %s left out: fewer than %d nodes (min_class_size)",
            called(small, names), verb, min_size,
        )  # fmt: skip
    if order == "label":
        return large
    if order == "size":
        return sorted(large, key=lambda c: -counts[c])
    if order == "shuffled":
        shuffle = torch.randperm(len(large), generator=seeded(seed, "class order"))
        return [large[i] for i in shuffle.tolist()]
    if isinstance(order, str):
        raise ConfigurationError(
            f"order must be 'label', 'size', 'shuffled' or classes, not {order!r}"
        )
    given = list(order)
    if len(set(given)) != len(given) or not set(given) <= set(large):
        raise ConfigurationError(
            f"order must name each class at most once, of those that are large enough, not {given}"
        )
    return given


def group_classes(classes: Sequence[int], per_task: int) -> list[tuple[int, ...]]:
    """Cut classes into tasks of ``per_task``, without a single class left over at the end.

    >>> group_classes([4, 1, 5], 2)
    [(4, 1)]
    """
    check_integer("classes_per_task", per_task, least=1)
    tasks = [tuple(classes[i : i + per_task]) for i in range(0, len(classes), per_task)]
    alone = per_task > 1 and bool(tasks) and len(tasks[-1]) == 1
    return tasks[:-1] if alone else tasks
