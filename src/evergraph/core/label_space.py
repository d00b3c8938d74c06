"""Classes that a node may have, in class-IL and task-IL, and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.core.errors import check_choice
from evergraph.core.targets import Target, target_kinds, target_of

Setting = Literal["class-il", "task-il"]
SETTINGS: tuple[str, ...] = get_args(Setting)


@dataclass(frozen=True)
class LabelSpace:
    """The classes seen so far, by task, and those that a node of each task may have.

    Classes are numbered in order of arrival: task 0 has classes 0..k-1, and so on. If classes
    recur, a size counts only classes that are new with a task, and may be 0; task-IL is not defined
    there. ``labels`` are the dataset's labels of the classes, in order of arrival; without them the
    labels are the classes' numbers.

    If nodes have several labels or numbers, ``kind`` says which (see ``core.targets``). These
    targets, with ``names``, then take the place of classes; all of them exist from the first task
    on, and none excludes another. For classes, ``names`` are the texts of the dataset's labels, by
    number, if they were texts.

    >>> space = LabelSpace("task-il", (2, 2))
    >>> space.allowed(torch.tensor([0, 1])).int()
    tensor([[1, 1, 0, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    >>> LabelSpace("class-il", (2, 2)).allowed(torch.tensor([0, 1])) is None
    True
    """

    setting: Setting
    sizes: tuple[int, ...] = field(default=())
    labels: tuple[int, ...] = field(default=(), compare=False)
    kind: str = "class"
    names: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check_choice("setting", self.setting, SETTINGS)
        check_choice("kind", self.kind, target_kinds.names())

    @property
    def target(self) -> Target:
        """What is known of its kind of targets."""
        return target_of(self.kind)

    @property
    def num_classes(self) -> int:
        """Number of classes seen so far."""
        return sum(self.sizes)

    @property
    def classes(self) -> list[int]:
        """The dataset's label of every class, in order of arrival; without labels, its number.

        >>> LabelSpace("class-il", (2, 1), labels=(7, 3, 5)).classes
        [7, 3, 5]
        """
        return list(self.labels) or list(range(self.num_classes))

    @property
    def called(self) -> list[int] | list[str]:
        """Names of the classes, or else their labels, in order of arrival."""
        if self.target.is_class and self.names:
            return [self.names[label] for label in self.classes]
        return self.classes

    def grown(self, new_classes: int, labels: Sequence[int] = ()) -> LabelSpace:
        """Return the space after one more task; labels: of its new classes, if they have any."""
        all_labels = (*self.labels, *labels)
        labels_by_class = all_labels if len(all_labels) == self.num_classes + new_classes else ()
        return replace(self, sizes=(*self.sizes, new_classes), labels=labels_by_class)

    def joined(self, other: LabelSpace, classes: Tensor | None = None, *, total: int) -> LabelSpace:
        """Return the space of two merged learners.

        classes: this space's number of each class of the other; the same numbers by default. total:
        number of classes of both together.

        >>> here, there = LabelSpace("class-il", (2,), (5, 7)), LabelSpace("class-il", (1,), (9,))
        >>> here.joined(there, torch.tensor([2]), total=3).classes
        [5, 7, 9]
        """
        new_classes = total - self.num_classes
        if new_classes <= 0:
            return self
        own_numbers = range(other.num_classes) if classes is None else classes.tolist()
        names = dict(zip(own_numbers, other.labels, strict=False))
        new_numbers = range(self.num_classes, total)
        return self.grown(new_classes, [names[number] for number in new_numbers if number in names])

    def newest(self) -> range:
        """Return the classes that are new with the latest task."""
        return range(self.num_classes - self.sizes[-1], self.num_classes)

    def groups(self) -> list[range]:
        """Return the classes that compete with each other: all of them, or those of each task.

        >>> LabelSpace("task-il", (2, 3)).groups()
        [range(0, 2), range(2, 5)]
        >>> LabelSpace("class-il", (2, 3)).groups()
        [range(0, 5)]
        """
        if self.setting == "class-il":
            return [range(self.num_classes)]
        ends = list(accumulate(self.sizes))
        pairs = zip(ends, self.sizes, strict=True)
        return [range(end - size, end) for end, size in pairs if size]

    @property
    def decided(self) -> bool:
        """Whether no node has a choice of classes, so that there is nothing to learn.

        >>> LabelSpace("class-il", (1,)).decided, LabelSpace("class-il", (1, 1)).decided
        (True, False)
        >>> LabelSpace("task-il", (1, 1)).decided
        True
        """
        return self.target.is_class and all(len(group) == 1 for group in self.groups())

    def task_of(self, labels: Tensor) -> Tensor:
        """Return the task in which each class first appeared.  int64 [n] -> int64 [n]

        >>> LabelSpace("class-il", (2, 3)).task_of(torch.tensor([0, 1, 2, 4]))
        tensor([0, 0, 1, 1])
        """
        ends = torch.tensor(self.sizes, device=labels.device).cumsum(0)
        return torch.searchsorted(ends, labels, right=True)

    def allowed(self, tasks: Tensor, *, device: torch.device | None = None) -> Tensor | None:
        """Return the classes allowed for each row's task, or None if all are.

        tasks: int64 [n] -> bool [n, num_classes], on ``device`` if one is given
        """
        if self.setting == "class-il":
            return None
        tasks = tasks if device is None else tasks.to(device)
        sizes = torch.tensor(self.sizes, device=tasks.device)
        owner = torch.repeat_interleave(torch.arange(len(self.sizes), device=tasks.device), sizes)
        return owner[None, :] == tasks[:, None]

    def terms(self, tasks: Tensor) -> Tensor:
        """Return the loss term each row belongs to: one in all, or one per task.  [n] -> [n]

        In class-IL the paper's loss is one weighted mean over current and stored nodes together;
        in task-IL it is the sum of such means, one for each task.
        """
        return torch.zeros_like(tasks) if self.setting == "class-il" else tasks


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for some nodes, from one pass of the model, on the CPU.

    Attributes:
        classes: the most likely class, numbered in order of arrival.  int64 [nodes]
        confidence: the probability of that class.  0..1 [nodes]
        novelty: larger is less like any class learned so far; any unit.  [nodes]
        values: the probability of each label if nodes have several, or the predicted numbers; None
            for classes. ``classes`` are then the targets with the largest value, ``confidence`` is
            that value, and ``novelty`` is unknown (NaN).  [nodes, targets]
    """

    classes: Tensor
    confidence: Tensor
    novelty: Tensor
    values: Tensor | None = None


def predicted_values(scores: Tensor, target: Target) -> Predictions:
    """Return predictions for nodes with several labels or numbers."""
    values = target.shares(scores).cpu()
    largest, classes = values.max(dim=1)
    return Predictions(classes, largest, torch.full_like(largest, torch.nan), values)
