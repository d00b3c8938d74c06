"""The step at which each node arrives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NOWHERE = -1


@dataclass(frozen=True, eq=False)
class Arrival:
    """The step in which each node arrives, and the classes that are new with each task.

    A step is a task, unless tasks arrive in batches: then each batch is a step of its task.

    Attributes:
        owner: the step of each node, -1 for nodes in no step.  int64 [nodes]
        new_classes: for every task, the dataset's labels that first occur in it; may be empty.
        tasks: the task of each step, ascending, if tasks arrive in several steps.  int64 [steps]
    """

    owner: Tensor
    new_classes: list[tuple[int, ...]]
    tasks: Tensor | None = None

    def __len__(self) -> int:
        return len(self.new_classes) if self.tasks is None else len(self.tasks)

    @property
    def task_of(self) -> Tensor:
        """The task of each step.  int64 [steps]"""
        return torch.arange(len(self)) if self.tasks is None else self.tasks

    @property
    def classes(self) -> list[int]:
        """The dataset's label of every class, in order of first arrival."""
        return [label for classes in self.new_classes for label in classes]

    def shared_out(self, nodes: Tensor) -> tuple[Tensor, ...]:
        """Return, for every step, those of ``nodes`` that arrive with it, in the given order.

        nodes: int64 [n], each with a step; -> one int64 [n of the step] per step
        """
        owners = self.owner[nodes]
        counts = torch.bincount(owners, minlength=len(self)).tolist()
        shares: tuple[Tensor, ...] = nodes[owners.argsort(stable=True)].split(counts)
        return shares


def arrival_of(
    owner: Tensor, labels: Tensor, *, classes: Sequence[int], tasks: int | None = None
) -> Arrival:
    """Return the arrival of nodes whose tasks are known: a class is new with its first node.

    owner, labels: int64 [nodes]; classes: those that arrive, in the order used within a task;
    tasks: number of tasks; by default those that have nodes.
    """
    tasks = int(owner.max()) + 1 if tasks is None else tasks
    here = owner != NOWHERE
    first = torch.full((int(labels.max()) + 1,), tasks)  # [labels], the task of the first node
    first.scatter_reduce_(0, labels[here], owner[here], "amin")
    met = first[list(classes)].tolist()
    new: list[list[int]] = [[] for _ in range(tasks)]
    for label, task in zip(classes, met, strict=True):
        new[task].append(label)
    return Arrival(owner, [tuple(labels) for labels in new])
