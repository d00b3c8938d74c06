"""Targets of nodes, and which nodes a published split has for training, validation and test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evergraph.core.component import Shown
from evergraph.core.errors import ConfigurationError, DataError, check_choice, check_once
from evergraph.core.mapped import is_mapped
from evergraph.core.targets import Target, target_kinds, target_of
from evergraph.graphs.validation import UNLABELLED

MASKS = ("train_mask", "val_mask", "test_mask")
"""Attributes of PyG's ``Data``; files may also have them in the plural."""
PLURALS = {f"{name}s": name for name in MASKS}


@dataclass(frozen=True, eq=False, repr=False)
class Targets(Shown):
    """Several labels or numbers per node; each single value may be unknown.

    Attributes:
        values: NaN if a value is not known; for labels, 1 if a node has one and 0 if it does
            not.  float32 [nodes, targets]
        kind: ``labels`` or ``numbers``.
        names: names of the targets; t0, t1, ... by default.

    >>> Targets(torch.tensor([[1., 0.], [float("nan"), 1.]]), "labels", ("art", "law"))
    Targets(kind='labels', nodes=2, targets=2, known=3)
    """

    values: Tensor
    kind: str
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = [kind for kind in target_kinds.names() if not target_of(kind).is_class]
        check_choice("kind", self.kind, kinds)
        if self.values.dim() != 2 or not self.values.shape[1]:
            raise DataError(
                f"targets have shape {list(self.values.shape)}: expected [nodes, targets], at "
                "least one"
            )
        if not self.names:
            object.__setattr__(self, "names", tuple(f"t{t}" for t in range(self.values.shape[1])))
        if len(self.names) != self.values.shape[1]:
            raise DataError(
                f"targets have {self.values.shape[1]} columns and {len(self.names)} names: expected"
                " a name for each"
            )
        check_once("names of targets", self.names)
        if not is_mapped(self.values):  # a graph folder's values were checked when it was made
            object.__setattr__(self, "values", _checked(self.values, self.target, self.names))

    def _repr_facts(self) -> dict[str, object]:
        nodes, targets = self.values.shape
        known = int(self.known.sum())
        return {"kind": self.kind, "nodes": nodes, "targets": targets, "known": known}

    def __len__(self) -> int:
        return len(self.values)

    @property
    def target(self) -> Target:
        """What is known of its kind."""
        return target_of(self.kind)

    @property
    def known(self) -> Tensor:
        """Whether each value is known.  bool [nodes, targets]"""
        return ~self.values.isnan()

    def each(self, change: Callable[[Tensor], Tensor]) -> Targets:
        """Return them with their values changed, or itself if unchanged."""
        values = change(self.values)
        return self if values is self.values else Targets(values, self.kind, self.names)

    @classmethod
    def from_lists(
        cls, labels: Sequence[Sequence[str] | None], *, names: Sequence[str] = ()
    ) -> Targets:
        """Return the labels from lists: empty for a node without labels, None if not known.

        names: in order; sorted by default.

        >>> Targets.from_lists([["b"], None, ["a", "b"], []]).values
        tensor([[0., 1.],
                [nan, nan],
                [1., 1.],
                [0., 0.]])
        """
        known_labels = {label for row in labels if row is not None for label in row}
        columns = {name: column for column, name in enumerate(names or sorted(known_labels))}
        if not known_labels <= columns.keys():
            raise DataError(
                f"label {min(known_labels - columns.keys())!r} is none of {', '.join(columns)}"
            )
        values = torch.full((len(labels), len(columns)), torch.nan)
        for node, row in enumerate(labels):
            if row is not None:
                values[node] = 0.0
                values[node, [columns[label] for label in row]] = 1.0
        return cls(values, "labels", tuple(columns))

    @classmethod
    def joined(cls, parts: Sequence[Targets | None]) -> Targets | None:
        """Return those of several graphs in sequence; None if no graph has any.

        All must have the same kind and names.
        """
        present = [part for part in parts if part is not None]
        if not present:
            return None
        alike = {(part.kind, part.names) for part in present}
        if len(present) < len(parts) or len(alike) > 1:
            raise DataError("graphs can be joined if all have the same targets, or none has any")
        return cls(torch.cat([part.values for part in present]), present[0].kind, present[0].names)


def labels_beside(targets: Targets | None, labels: Tensor | None) -> Tensor:
    """Return labels, all unknown beside targets; raise unless one of the two is given."""
    if labels is None and targets is not None:
        return torch.full((len(targets),), UNLABELLED, device=targets.values.device)
    if labels is None or (targets is not None and bool((labels != UNLABELLED).any())):
        given = "neither" if targets is None else "both"
        raise DataError(f"a graph has either labels or targets, not {given}")
    return labels


def read_targets(values: Tensor) -> Targets:
    """Return the targets of a matrix ``y``: labels if all known values are 0 or 1, else numbers.

    Integers and booleans are labels and must be 0 or 1; NaN means unknown.

    >>> read_targets(torch.tensor([[0, 1], [1, 1]])).kind, read_targets(torch.ones(2, 1) / 2).kind
    ('labels', 'numbers')
    """
    if values.is_complex():
        raise DataError(f"y holds {values.dtype}: expected real numbers")
    integral = not values.is_floating_point()
    values = values.float()
    binary = bool((values.isnan() | (values == 0) | (values == 1)).all())
    several = values.dim() == 2 and values.shape[1] > 1
    return Targets(values, "labels" if integral or (binary and several) else "numbers")


def read_y(y: Tensor) -> dict[str, Any]:
    """Return ``y`` as an argument of ``from_edges``: labels, or targets.

    A column of integers or booleans holds classes, as in OGB; more columns, or floating-point
    numbers, hold targets. A vector of integral floating-point numbers is rejected, since these may
    be classes that pandas converted because of gaps; as a matrix of one column they are numbers to
    predict.

    >>> list(read_y(torch.tensor([[1], [2]]))), list(read_y(torch.tensor([0.5, 2.0])))
    (['labels'], ['targets'])
    """
    if y.dim() == 2 and (y.shape[1] > 1 or y.is_floating_point()):
        return {"targets": read_targets(y)}
    if y.dim() == 1 and y.is_floating_point() and bool((y != y.floor()).any()):
        return {"targets": read_targets(y[:, None])}
    labels = one_column("y", y)
    return {"labels": labels.long() if labels.dtype == torch.bool else labels}


def one_column(name: str, values: Tensor) -> Tensor:
    """Return [nodes], or [nodes, 1] as in OGB, as [nodes]."""
    if values.dim() != 1 and values.shape[1:] != (1,):
        raise DataError(f"{name} has shape {list(values.shape)}: expected one value per node")
    return values.reshape(-1)


def _checked(values: Tensor, target: Target, names: Sequence[str]) -> Tensor:
    """Return values as float32; raise if a known one is not allowed for its kind."""
    float_values = values.detach().float()
    unknown = float_values.isnan()
    sound, rule = target.check_matrix(float_values)
    wrong = ~(sound | unknown)
    if bool(wrong.any()):
        node, column = (int(index) for index in wrong.nonzero()[0])
        raise DataError(
            f"node {node} has {values[node, column].item()!r} for target {names[column]!r}: "
            f"expected {rule}, or NaN if it is not known"
        )
    return float_values


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


def read_masks(attributes: Mapping[str, Any], nodes: int) -> Masks | None:
    """Return the masks among some attributes, None if there is not one of each.

    attributes: arrays [nodes], [nodes, splits] or, if the name is a plural, [splits, nodes]

    >>> whole = torch.tensor([True, False])
    >>> read_masks({"train_mask": whole, "val_mask": ~whole, "test_mask": whole}, 2).splits
    1
    >>> read_masks({"train_mask": whole}, 2) is None
    True
    """
    named = {PLURALS.get(name, name): (name, value) for name, value in attributes.items()}
    if not all(isinstance(named.get(name, ("", None))[1], Tensor) for name in MASKS):
        return None
    return Masks(*(_checked_mask(*named[name], nodes) for name in MASKS))


def names_of_masks(attributes: Mapping[str, Any]) -> list[str]:
    """Return the attributes that ``read_masks`` reads, none if one of the three is missing."""
    names = [name for name in attributes if PLURALS.get(name, name) in MASKS]
    return names if {PLURALS.get(name, name) for name in names} == set(MASKS) else []


def _checked_mask(name: str, mask: Tensor, nodes: int) -> Tensor:
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
