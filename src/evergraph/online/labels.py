"""Targets of nodes as users hold them, and the table of those that a learner has met."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.targets import Key, Label, NodeTarget, Target, target_of
from evergraph.graphs.targets import Targets, read_targets
from evergraph.online.identifiers import IdTable
from evergraph.online.state_arrays import check_values, must
from evergraph.tables.frames import is_a
from evergraph.training.learner import part_of


def as_labels(values: Any, count: int) -> list[Label | None]:
    """Return classes as a list, like ``as_targets``."""
    return as_targets("class", values, count)  # type: ignore[return-value]


def as_targets(kind: str, values: Any, count: int) -> list[NodeTarget | None]:
    """Return the targets of nodes as a list, None for those without one.

    values: a class per node, None or NaN (in a tensor -1) for none; a list of labels per node,
    empty for a node that has none of them, or a matrix of 0 and 1; or numbers, None or NaN for
    unknown. None for no targets at all.

    >>> as_targets("labels", [["art", "law"], [], None], 3)
    [['art', 'law'], [], None]
    >>> as_targets("numbers", torch.tensor([1.5, float("nan")]), 2)
    [1.5, None]
    """
    if values is None:
        return [None] * count
    target = target_of(kind)
    if isinstance(values, Tensor | np.ndarray) and values.ndim:
        values = target.of_array(values)
    targets = [target.read(value) for value in plain_values(values, "labels")]
    if len(targets) != count:
        raise DataError(f"labels must be as many as nodes, not {len(targets)} for {count} nodes")
    return targets


def graph_targets(kind: str, targets: Targets) -> list[NodeTarget | None]:
    """Return the targets of a graph for a model of this kind; raise if it cannot learn them."""
    if targets.kind != kind:
        raise DataError(f"nodes have {targets.kind}, but the model was made with targets={kind!r}")
    return targets.target.of_matrix(targets.values, targets.names)


def targets_of_y(kind: str, y: Tensor | None, count: int) -> list[NodeTarget | None]:
    """Return the targets in ``y`` of a PyG ``Data``."""
    if y is not None and y.dim() == 2 and y.shape[1] > 1 and not target_of(kind).is_class:
        return graph_targets(kind, read_targets(y))
    return as_targets(kind, y, count)


def target_score(
    kind: str, predicted: Sequence[Any], right: Sequence[Any], *, balanced: bool = False
) -> float:
    """Return accuracy, micro F1 of labels or R² of numbers.

    balanced: average over classes or labels, each counting alike.

    Two of three true labels are predicted, and one that is not true: 4 / (4 + 1 + 1).

    >>> round(target_score("labels", [["a"], ["b", "c"]], [["a", "c"], ["b"]]), 4)
    0.6667
    """
    target = target_of(kind)
    measure = target.balanced_score if balanced else target.score
    if not measure:
        raise ConfigurationError(f"balanced is for classes and labels, not for {target.plural}")
    return target.rows[measure](*target.compared(predicted, right))


def plain_values(values: Any, name: str) -> list[Any]:
    """Return values as a list of plain Python objects; name: of the parameter, for errors."""
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        hint = ""
        if isinstance(values, str):
            is_file = values.endswith((".csv", ".parquet"))
            hint = (
                ": pandas.read_csv reads a file" if is_file else f": a single one is [{values!r}]"
            )
        raise DataError(f"{name} must be a list or an array, not {values!r}{hint}")
    if isinstance(values, Tensor | np.ndarray) and values.ndim == 0:
        raise DataError(f"{name} must be a list or an array, not a single {values.item()!r}")
    if is_a(values, "pyarrow"):
        listed: list[Any] = values.to_pylist()
        return listed
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in listed]


def target_table(target: Target) -> IdTable | TargetTable:
    """Return an empty table of the distinct targets that a learner has met."""
    return IdTable() if target.is_class else TargetTable(target)


class TargetTable:
    """Distinct sets of labels, or numbers, with positions in order of arrival.

    What ``IdTable`` is for classes; ``Target.key`` tells what is equal.

    >>> table = TargetTable(target_of("labels"))
    >>> table.add([("art", "law"), ()])
    >>> table.positions([(), ("art", "law")]), table.at(0)
    (tensor([1, 0]), ('art', 'law'))
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._positions: dict[Key, int] = {}
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __contains__(self, key: Any) -> bool:
        return key in self._positions

    def at(self, position: int) -> Any:
        """Return the target at a position."""
        return self._keys[position]

    def positions(self, keys: Sequence[Any]) -> Tensor:
        """Return the positions of known targets.  -> int64 [keys]"""
        return torch.tensor([self._positions[key] for key in keys], dtype=torch.int64)

    def add(self, keys: Sequence[Any]) -> None:
        """Add new targets at the next positions."""
        for key in keys:
            self._positions[key] = len(self._keys)
            self._keys.append(key)

    def state(self) -> dict[str, Tensor]:
        """Return the targets as arrays: numbers, or the names of labels and each set of them."""
        if not self.target.is_named:
            return {"numbers": torch.tensor(self._keys, dtype=torch.float64)}
        sets = [list(self.target.names(key)) for key in self._keys]
        names = dict.fromkeys(label for labels in sets for label in labels)
        table = IdTable()
        table.add(list(names))
        members = table.positions([label for labels in sets for label in labels])
        sizes = torch.tensor([*map(len, sets)], dtype=torch.int64)
        named = {f"names.{name}": value for name, value in table.state().items()}
        return {"set_sizes": sizes, "members": members, **named}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self._positions, self._keys = {}, []
        if not self.target.is_named:
            self.add(state["numbers"].tolist())
            return
        names = IdTable()
        names.restore(part_of(state, "names."))
        check_values("members", state["members"], 0, below=len(names))
        members = [names.at(place) for place in state["members"].tolist()]
        ends = [*accumulate(state["set_sizes"].tolist())]
        must("set_sizes", (ends or [0])[-1] == len(members), f"add up to {len(members):,} members")
        starts = [0, *ends]
        self.add([tuple(members[a:b]) for a, b in zip(starts, ends, strict=False)])
