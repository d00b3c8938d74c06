"""Which nodes each task has, and where they stand among them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evergraph.streams.splits import Split


class TaskMembers:
    """Answers, for a task or for all tasks up to it: which nodes, of which part, in which place.

    Large graphs are asked for the same after every task, so each task's nodes are found once, and
    the last answer for everything so far is kept.

    Args:
        owner: the task of each node, -1 for nodes of none.  integer [all nodes]
        splits: of each task.

    >>> split = Split(torch.tensor([1]), torch.tensor([2]), torch.tensor([4]))
    >>> roll = TaskMembers(torch.tensor([-1, 0, 0, 1, 0]), [split])
    >>> roll.nodes(0), roll.places(roll.part("test", 0), 0)
    (tensor([1, 2, 4]), tensor([2]))
    """

    def __init__(self, owner: Tensor, splits: Sequence[Split]) -> None:
        here = (owner >= 0).nonzero().flatten()
        tasks = owner[here]
        counts = torch.bincount(tasks).tolist()
        self._own = here[tasks.argsort(stable=True)].split(counts)
        self._owner = owner
        self._splits = splits
        self._upto: tuple[int, Tensor] | None = None  # task, nodes

    def nodes(self, index: int, *, upto: bool = False) -> Tensor:
        """Return the nodes of a task, or of every task up to it, ascending.  int64 [nodes]"""
        return self._everything(index) if upto else self._own[index]

    def part(self, part: str, index: int, *, upto: bool = False) -> Tensor:
        """Return those for training, validation or test, ascending.  int64 [nodes]"""
        if not upto:
            nodes: Tensor = getattr(self._splits[index], part)
            return nodes
        every: Tensor = torch.cat([getattr(split, part) for split in self._splits[: index + 1]])
        return every.sort().values

    def places(self, wanted: Tensor, index: int, *, upto: bool = False) -> Tensor:
        """Return where each of some nodes stands among ``nodes(index)``.  int64 [wanted]"""
        return torch.searchsorted(self.nodes(index, upto=upto), wanted)

    def _everything(self, index: int) -> Tensor:
        if self._upto is None or self._upto[0] != index:
            seen = (self._owner >= 0) & (self._owner <= index)
            self._upto = index, seen.nonzero().flatten()
        return self._upto[1]
