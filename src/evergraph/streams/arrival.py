"""The step at which each node arrives, and whether it is for training, validation or test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    check_choice,
    check_integer,
    check_number,
    say,
)
from evergraph.core.seeding import seeded
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.csr import RowSweep, row_entries
from evergraph.graphs.targets import MASKS, Masks

NOWHERE = -1
Unlabelled = Literal["leave-out", "along"]
UNLABELLED_WAYS: tuple[str, ...] = get_args(Unlabelled)
ROUNDS = 2  # longest path of unlabelled nodes from a task to one that arrives with it
_NEVER = 2**31 - 1
# Share of unlabelled nodes above which leaving them out would change the graph too much.
MAX_UNLABELLED = 0.5
Shares = tuple[float, float, float]
"""Training, validation and test nodes: shares of a class, or numbers of nodes."""
SHARES: Shares = (0.6, 0.2, 0.2)
BY_MASKS = "masks"  # the split that the graph came with
LEAST_NODES = 3  # per class: one each for training, validation and test
PARTS = {"train": "training", "validation": "validation", "test": "test"}


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
    arrives = owner != NOWHERE
    first = torch.full((int(labels.max()) + 1,), tasks)  # [labels], the task of the first node
    first.scatter_reduce_(0, labels[arrives], owner[arrives], "amin")
    first_tasks = first[list(classes)].tolist()
    new_classes: list[list[int]] = [[] for _ in range(tasks)]
    for label, task in zip(classes, first_tasks, strict=True):
        new_classes[task].append(label)
    return Arrival(owner, [tuple(labels) for labels in new_classes])


def fitting_way(graph: Graph, classified: Tensor) -> Unlabelled:
    """Return the default for nodes without a class, and warn if they are many.

    They come along if nodes have several types or if most nodes have no class.

    classified: whether a node has a class or targets.  bool [nodes]
    """
    if graph.types is not None:
        return "along"
    unclassified = 1 - int(classified.sum()) / max(len(classified), 1)
    if unclassified <= MAX_UNLABELLED or not len(classified):
        return "leave-out"
    say(
        "stream.unlabelled",
        f"{100 * unclassified:.1f} % of the nodes have no class and come along with the first task that "
        "has a neighbour of them: 'leave-out' leaves them out",
    )
    return "along"


def with_companions(graph: Graph, owner: Tensor) -> Tensor:
    """Return the task of each node; unlabelled nodes arrive with the first task that needs them.

    A node without a class, such as the author of classified papers, arrives with the earliest task
    that has a neighbour of it, or a neighbour's neighbour through another node without a class.
    Edges are processed in blocks, so that this takes about 12 bytes per node at any size.

    owner: the task of each node, -1 for nodes in no task.  int64 [nodes] -> int64 [nodes]

    >>> star = Graph.from_edges(torch.tensor([[0, 0, 3], [1, 2, 4]]), features=torch.zeros(5, 1),
    ...                         labels=torch.tensor([-1, 0, 1, -1, -1]), undirected=True)
    >>> with_companions(star, torch.tensor([-1, 1, 0, -1, -1]))
    tensor([ 0,  1,  0, -1, -1])
    """
    unlabelled = graph.labels.cpu() == UNLABELLED
    sweep = graph.to("cpu").sweep
    arrival_steps = owner.int().masked_fill_(owner < 0, _NEVER)
    for _ in range(ROUNDS):
        earliest = _earliest_around(sweep, arrival_steps, both=not graph.undirected)
        arrival_steps = torch.where(unlabelled, earliest, arrival_steps)
    return arrival_steps.masked_fill_(arrival_steps == _NEVER, -1).long()


def _earliest_around(sweep: RowSweep, steps: Tensor, *, both: bool) -> Tensor:
    """Return the least value of each node and its neighbours.  [nodes] -> [nodes]

    both: whether to include the nodes in whose rows it occurs.
    """
    indptr, indices = sweep.plain
    earliest = steps.clone()

    def earliest_in_block(rows: Tensor) -> Tensor:
        owners, entries = row_entries(indptr, rows)
        columns = indices.index_select(0, entries).long()
        row_earliest = steps[rows].scatter_reduce_(0, owners, steps[columns], "amin")
        if both:
            earliest.scatter_reduce_(0, columns, steps[rows][owners], "amin")
        return row_earliest

    for part, row_earliest in sweep.blocks(None, earliest_in_block):
        torch.minimum(earliest[part], row_earliest, out=earliest[part])
    return earliest


@dataclass(frozen=True)
class Split:
    """Node numbers, ascending and disjoint.  3 x int64 [nodes]"""

    train: Tensor
    validation: Tensor
    test: Tensor


def split_classes(
    labels: Tensor,
    classes: Sequence[int],
    *,
    shares: Shares = SHARES,
    labelled: float | None = None,
    seed: int = 0,
) -> Split:
    """Split the nodes of some classes at random, each class in the same shares.

    Three integers are numbers of nodes: other nodes of the class are in no part, and a class
    with too few is split in proportion. Every class gives at least one node to each part. The
    draw for a class depends on ``seed`` and the class alone, not on the order in which classes
    arrive.

    labelled: instead of shares, the share of a class that is labelled for training. As many nodes
    are for validation, but no more than half of the rest, and all others are for test: 0.05 gives
    5, 5 and 90 %, and 0.6 gives 60, 20 and 20 %. With the same seed, training nodes of a smaller
    share are among those of a larger one.

    labels: int64 [nodes]

    >>> few = split_classes(torch.tensor([0] * 10 + [1] * 4), (0, 1), shares=(3, 1, 1))
    >>> [len(part) for part in (few.train, few.validation, few.test)]
    [5, 2, 2]
    >>> few = split_classes(torch.tensor([0] * 40 + [1] * 4), (0, 1), labelled=0.05)
    >>> [len(part) for part in (few.train, few.validation, few.test)]
    [3, 3, 38]
    """
    check_shares(shares, labelled)
    parts: list[list[Tensor]] = [[], [], []]
    for label in classes:
        nodes = (labels == label).nonzero().flatten()
        shuffle = torch.randperm(len(nodes), generator=seeded(seed, "split", label))
        nodes = nodes[shuffle]
        total = 1.0
        if _are_counts(shares):
            total = sum(shares)
            nodes = nodes[: int(total)]
        count = len(nodes)
        if count < LEAST_NODES:
            raise DataError(
                f"class {label} has {count} nodes, too few to split into training, validation and "
                f"test: at least {LEAST_NODES} are needed (min_class_size = {LEAST_NODES} drops "
                "such classes)"
            )
        # Round down, but not below the decimal share: 0.29 of 100 is 29.
        if labelled is not None:
            train = min(max(1, int(labelled * count + 1e-9)), count - 2)
            validation = min(train, (count - train) // 2)
        else:
            sizes = [max(1, int(share / total * count + 1e-9)) for share in shares[1:]]
            validation = min(sizes[0], count - 2)
            train = count - validation - min(sizes[1], count - validation - 1)
        cuts = nodes.tensor_split((train, train + validation))
        for part, part_nodes in zip(parts, cuts, strict=True):
            part.append(part_nodes)
    return Split(*(torch.cat(part).sort().values for part in parts))


def shares_of(shares: Shares, labelled: float | None) -> Shares:
    """Return the shares, or numbers, of training, validation and test nodes; see above.

    >>> shares_of(SHARES, 0.5), shares_of((20, 30, 50), None)
    ((0.5, 0.25, 0.25), (20, 30, 50))
    """
    if labelled is None:
        return shares
    validation = min(labelled, (1 - labelled) / 2)
    return labelled, validation, 1 - labelled - validation


def split_tasks(
    labels: Tensor,
    arrival: Arrival,
    *,
    shares: Shares = SHARES,
    labelled: float | None = None,
    seed: int = 0,
) -> list[Split]:
    """Split whole classes, then give each task the nodes of every part that arrive with it.

    A class that occurs in several tasks is split once: its shares hold over all of them together.

    labels: int64 [nodes]
    """
    split = split_classes(labels, arrival.classes, shares=shares, labelled=labelled, seed=seed)
    advice = "" if labelled is None else f", or label more than {labelled:g} (parameter labelled)"
    return _shared_out(split, arrival, advice)


def stand_in_labels(graph: Graph) -> Tensor:
    """Return the labels for cutting and splitting: one class for all nodes with known targets.

    If the graph has classes, these are returned; -> int64 [nodes], on the CPU.
    """
    if graph.targets is None:
        return graph.labels.cpu()
    has_targets = graph.targets.known.any(dim=1).cpu()
    count = int(has_targets.sum())
    if count < LEAST_NODES:
        raise DataError(
            f"targets are known of {count} nodes, too few to split into training, "
            f"validation and test: at least {LEAST_NODES} are needed"
        )
    return torch.where(has_targets, 0, UNLABELLED)


def split_each(
    arrival: Arrival, *, shares: Shares = SHARES, labelled: float | None = None, seed: int = 0
) -> list[Split]:
    """Split the nodes of every task at random in the same shares, without regard to classes."""
    counts = torch.bincount(arrival.owner[arrival.owner >= 0], minlength=len(arrival)).tolist()
    if min(counts) < LEAST_NODES:
        raise DataError(
            f"task {counts.index(min(counts))} has {min(counts)} nodes, too few to split into "
            f"training, validation and test: make fewer tasks than {len(arrival)} (parameter tasks)"
        )
    tasks = Arrival(arrival.owner, [(index,) for index in range(len(arrival))])
    return split_tasks(arrival.owner, tasks, shares=shares, labelled=labelled, seed=seed)


def split_by_masks(arrival: Arrival, masks: Masks | None, split: int) -> list[Split]:
    """Give each task the nodes of a published split that arrive with it.

    Nodes outside of the three masks are in no part. split: the column of the masks.
    """
    if masks is None:
        raise DataError(
            f"split='masks' needs {', '.join(MASKS)}: the graph does not have all three"
        )
    part_nodes = [nodes[arrival.owner[nodes] >= 0] for nodes in masks.nodes(split)]
    return _shared_out(Split(*part_nodes), arrival, ", or use another split")


def _shared_out(split: Split, arrival: Arrival, advice: str) -> list[Split]:
    """Give each task the nodes that arrive with it.  more: advice if a part of one is empty"""
    parts = [arrival.shared_out(getattr(split, part)) for part in PARTS]
    splits = [Split(*nodes) for nodes in zip(*parts, strict=True)]
    for index, task_split in enumerate(splits):
        for part, noun in PARTS.items():
            if not len(getattr(task_split, part)):
                raise DataError(
                    f"task {index} has no {noun} nodes: make fewer tasks than {len(splits)} "
                    f"(parameter tasks){advice}"
                )
    return splits


def check_shares(shares: Shares | str, labelled: float | None) -> None:
    """Raise unless the split is three positive shares that sum to one, three integers, or masks.

    ``labelled`` must be between 0 and 1, and ``split`` then be left at its default.
    """
    if isinstance(shares, str):
        check_choice("split", shares, (BY_MASKS,))
    elif _are_counts(shares):
        for count in shares:
            check_integer("split", count, least=1)
    else:
        for share in shares:
            check_number("split", share, least=0.0, most=1.0)
        if len(shares) != 3 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
            raise ConfigurationError(
                "split must be three positive shares that sum to 1, or three whole numbers of "
                f"nodes, not {list(shares)}"
            )
    if labelled is None:
        return
    check_number("labelled", labelled, least=0.0, most=1.0)
    if not 0 < labelled < 1:
        raise ConfigurationError(
            f"labelled must be above 0 and below 1, a share of every class, not {labelled!r}"
        )
    if tuple(shares) != SHARES:
        raise ConfigurationError(
            "labelled and split both set the number of training nodes: leave out one of them"
        )


def _are_counts(shares: Shares) -> bool:
    return len(shares) == 3 and all(isinstance(share, int) for share in shares)
