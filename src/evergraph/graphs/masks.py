"""Published splits: which nodes are for training, validation and test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError

MASKS = ("train_mask", "val_mask", "test_mask")
"""Attributes of PyG's ``Data``; files may also have them in the plural."""
PLURALS = {f"{name}s": name for name in MASKS}


@dataclass(frozen=True, eq=False)
class Masks:
    """Training, validation and test nodes of one published split, or of several.

    Attributes:
        train, validation, test: whether each node is in the part.  3 x bool [nodes, splits]

    >>> two = torch.tensor([[True, False], [False, True], [False, False]])
    >>> masks = Masks(two, two.roll(1, 0), two.roll(2, 0))
    >>> masks.splits, [part.tolist() for part in masks.nodes(1)]
    (2, [[1], [2], [0]])
    """

    train: Tensor
    validation: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        shapes = {tuple(part.shape) for part in self.parts}
        if len(shapes) > 1:
            raise DataError(f"{', '.join(MASKS)} must have one shape, not {sorted(shapes)}")

    def __len__(self) -> int:
        return len(self.train)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """The three masks, in the order of ``MASKS``."""
        return self.train, self.validation, self.test

    @property
    def splits(self) -> int:
        """Number of splits."""
        return self.train.shape[1]

    def shares(self, split: int) -> tuple[float, float, float]:
        """Return the share of all nodes that each part of a split has."""
        train, validation, test = (len(nodes) / max(len(self), 1) for nodes in self.nodes(split))
        return train, validation, test

    def each(self, change: Callable[[Tensor], Tensor]) -> Masks:
        """Return them with every array changed."""
        return Masks(*map(change, self.parts))

    def nodes(self, split: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the nodes of the three parts of a split, ascending.  3 x int64 [nodes]

        split: its number; any number if there is only one.
        """
        if self.splits > 1 and not 0 <= split < self.splits:
            raise ConfigurationError(
                f"split='masks' takes the column that the seed of the split names: it must be from "
                f"0 to {self.splits - 1}, not {split}"
            )
        column = split if self.splits > 1 else 0
        train, validation, test = (part[:, column].cpu() for part in self.parts)
        twice = (train.int() + validation.int() + test.int() > 1).nonzero().flatten()
        if len(twice):
            raise DataError(
                f"node {int(twice[0])} is in two of {', '.join(MASKS)}: they must not overlap"
            )
        first, second, third = (part.nonzero().flatten() for part in (train, validation, test))
        return first, second, third


def read_masks(given: Mapping[str, Any], nodes: int) -> Masks | None:
    """Return the masks among some attributes, None if there is not one of each.

    given: arrays [nodes], [nodes, splits] or, if the name is a plural, [splits, nodes]

    >>> whole = torch.tensor([True, False])
    >>> read_masks({"train_mask": whole, "val_mask": ~whole, "test_mask": whole}, 2).splits
    1
    >>> read_masks({"train_mask": whole}, 2) is None
    True
    """
    found = {PLURALS.get(name, name): (name, value) for name, value in given.items()}
    if not all(isinstance(found.get(name, ("", None))[1], Tensor) for name in MASKS):
        return None
    return Masks(*(_checked(*found[name], nodes) for name in MASKS))


def names_of_masks(given: Mapping[str, Any]) -> list[str]:
    """Return the attributes that ``read_masks`` reads, none if one of the three is missing."""
    names = [name for name in given if PLURALS.get(name, name) in MASKS]
    return names if {PLURALS.get(name, name) for name in names} == set(MASKS) else []


def _checked(name: str, mask: Tensor, nodes: int) -> Tensor:
    """Return a mask as bool [nodes, splits]."""
    shape = list(mask.shape)
    if mask.dim() == 1:
        mask = mask[:, None]
    elif mask.dim() == 2 and mask.shape[0] != nodes:
        mask = mask.t()
    if mask.dim() != 2 or mask.shape[0] != nodes or not mask.shape[1]:
        raise DataError(f"{name} has shape {shape}: expected [nodes] or [nodes, splits]")
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise DataError(f"{name} holds {mask.dtype}: expected True or False for every node")
    return mask.bool().contiguous()
