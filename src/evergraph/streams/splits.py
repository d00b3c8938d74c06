"""Training, validation and test nodes, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    check_choice,
    check_integer,
    check_number,
)
from evergraph.core.seeding import seeded
from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.targets import MASKS, Masks
from evergraph.streams.arrival import Arrival

Shares = tuple[float, float, float]
"""Training, validation and test nodes: shares of a class, or numbers of nodes."""
SHARES: Shares = (0.6, 0.2, 0.2)
BY_MASKS = "masks"  # the split that the graph came with
LEAST_NODES = 3  # per class: one each for training, validation and test
PARTS = {"train": "training", "validation": "validation", "test": "test"}


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
        nodes, whole = nodes[shuffle], 1.0
        if _are_counts(shares):
            whole = sum(shares)
            nodes = nodes[: int(whole)]
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
            wanted = [max(1, int(share / whole * count + 1e-9)) for share in shares[1:]]
            validation = min(wanted[0], count - 2)
            train = count - validation - min(wanted[1], count - validation - 1)
        cuts = nodes.tensor_split((train, train + validation))
        for part, chosen in zip(parts, cuts, strict=True):
            part.append(chosen)
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
    whole = split_classes(labels, arrival.classes, shares=shares, labelled=labelled, seed=seed)
    more = "" if labelled is None else f", or label more than {labelled:g} (parameter labelled)"
    return _shared_out(whole, arrival, more)


def stand_in_labels(graph: Graph) -> Tensor:
    """Return the labels for cutting and splitting: one class for all nodes with known targets.

    If the graph has classes, these are returned; -> int64 [nodes], on the CPU.
    """
    if graph.targets is None:
        return graph.labels.cpu()
    here = graph.targets.known.any(dim=1).cpu()
    if int(here.sum()) < LEAST_NODES:
        raise DataError(
            f"targets are known of {int(here.sum())} nodes, too few to split into training, "
            f"validation and test: at least {LEAST_NODES} are needed"
        )
    return torch.where(here, 0, UNLABELLED)


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
    arriving = [nodes[arrival.owner[nodes] >= 0] for nodes in masks.nodes(split)]
    return _shared_out(Split(*arriving), arrival, ", or use another split")


def _shared_out(whole: Split, arrival: Arrival, more: str) -> list[Split]:
    """Give each task the nodes that arrive with it.  more: advice if a part of one is empty"""
    parts = [arrival.shared_out(getattr(whole, part)) for part in PARTS]
    splits = [Split(*nodes) for nodes in zip(*parts, strict=True)]
    for index, split in enumerate(splits):
        for part, called in PARTS.items():
            if not len(getattr(split, part)):
                raise DataError(
                    f"task {index} has no {called} nodes: make fewer tasks than {len(splits)} "
                    f"(parameter tasks){more}"
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
