"""Tasks whose training nodes arrive in small batches, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from evergraph.core.seeding import seeded
from evergraph.streams.arrival import Arrival
from evergraph.streams.splits import Split

BATCH = 10  # training nodes, unless another number is given: as in OCGL's benchmark


def in_batches(
    arrival: Arrival, splits: Sequence[Split], *, batch: int = BATCH, seed: int = 0
) -> tuple[Arrival, list[Split]]:
    """Return when each node arrives, and what each step is split into, where a batch is a step.

    The training nodes of a task come in a random order, ``batch`` at a time, each once; the last
    batch of a task may be smaller. Its validation and test nodes are all there with its first
    batch, without their labels, so that a task is tested on the same nodes ever after (Donghi et
    al. 2025, OCGL).

    splits: of each task.

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
