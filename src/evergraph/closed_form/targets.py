"""Sums for several labels or numbers of a node, of which some may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.closed_form.ridge import RidgeProblem
from evergraph.closed_form.statistics import ClassStatistics, Features, row_blocks
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.memory.budget import MemoryUsage
from evergraph.training.learner import part_of

MOST_PATTERNS = 64


@dataclass(frozen=True, eq=False)
class TargetMoments:
    """Sums of least squares for nodes with the same known targets.

    Attributes:
        gram: G = Σ φφᵀ, lower triangle.  [m, m]
        sums: Σ φ.  float64 [m]
        count: number of nodes.
        cross: M = Σ φ yᵀ of these targets.  float64 [m, targets]
        totals, squares: Σ y and Σ y².  float64 [targets]
    """

    gram: Tensor
    sums: Tensor
    count: float
    cross: Tensor
    totals: Tensor
    squares: Tensor

    @property
    def mean(self) -> Tensor:
        """φ̄.  [m]"""
        return self.sums / self.count

    @property
    def level(self) -> Tensor:
        """ȳ of every target.  [targets]"""
        return self.totals / self.count

    @property
    def spread(self) -> Tensor:
        """Σ (y - ȳ)² of every target, above 0.  [targets]"""
        spread = self.squares - self.count * self.level.square()
        return spread.clamp_min(1e-12 * self.squares.clamp_min(1e-30))

    def problem(self, *, centred: bool) -> RidgeProblem:
        """Return the ridge problem of these targets.

        A = G and M = Σ φ yᵀ, or with centred features and values G - n φ̄φ̄ᵀ and M - n φ̄ȳᵀ.
        """
        one = self.cross.new_ones(())
        if not centred:
            nothing = self.cross[:, :0]
            return RidgeProblem(self.gram, one, nothing, nothing[0], self.cross, self.count)
        right = self.cross.addr(self.sums, self.level, alpha=-1)
        minus = one.expand(1) * -self.count
        return RidgeProblem(self.gram, one, self.mean[:, None], minus, right, self.count)


class TargetStatistics:
    """Sums of features and targets, from which heads are solved even if some values are missing.

    G_p = Σ φφᵀ, M_p = Σ φ yᵀ, Σ φ, Σ y, Σ y² and a count for each pattern p of known targets. A
    pattern is a set of targets that are known together. Column t of a head needs sums over the
    nodes where t is known, Σ_{p∋t}: a single missing value is left out exactly, and nothing is
    imputed. There is one Gram matrix per pattern, for at most 64 patterns.

    As with ``ClassStatistics``, statistics of two sets of nodes add up to those of both, and nodes
    can be removed with the values with which they were added.

    Args:
        width: see ``ClassStatistics``. Sums are in float64: little may be left of centred ones, and
            with the smallest λ float32 would cost labels the fourth digit.
        targets: number of targets.

    >>> statistics = TargetStatistics(1, targets=2)
    >>> values = torch.tensor([[1., 5.], [float("nan"), 7.]])
    >>> statistics.add(torch.tensor([[2.], [3.]]), values, torch.ones(2))
    >>> [statistics.moments([t]).cross.item() for t in (0, 1)]
    [2.0, 31.0]
    """

    precise = True

    def __init__(self, width: int, *, targets: int, device: torch.device | str = "cpu") -> None:
        self.width, self.targets = width, targets
        self.device = torch.device(device)
        self.patterns_: dict[tuple[bool, ...], ClassStatistics] = {}
        self.cross_: dict[tuple[bool, ...], Tensor] = {}  # float64 [m + 2, targets]

    @property
    def num_classes(self) -> int:
        """Number of targets, which is the number of the head's columns."""
        return self.targets

    @property
    def mass_(self) -> Tensor:
        """Number of nodes with each target known; empty before the first.  float64 [targets]"""
        if not self.patterns_:
            return torch.zeros(0, dtype=torch.float64)
        counts = [float(each.mass_.sum()) for each in self.patterns_.values()]
        known = torch.tensor([*self.patterns_], dtype=torch.float64)
        return torch.tensor(counts, dtype=torch.float64) @ known

    def grow(self, targets: int) -> None:
        """Do nothing: all targets exist from the beginning."""
        assert targets == self.targets

    def exchange(self, before: Tensor, after: Tensor, values: Tensor, weights: Tensor) -> None:
        """Replace the features of nodes.  [n, m] each; [n, targets]; [n]"""
        self.add(before, values, weights, -1)
        self.add(after, values, weights)

    def clear(self) -> None:
        """Remove all nodes."""
        self.patterns_, self.cross_ = {}, {}

    def clear_rounding(self) -> None:
        """Do nothing: patterns without nodes are deleted."""

    def erase(self, places: Tensor) -> None:
        """Set features to 0 for all nodes."""
        for pattern, statistics in self.patterns_.items():
            statistics.erase(places)
            self.cross_[pattern][places] = 0.0

    def add(self, features: Features, values: Tensor, weights: Tensor, sign: int = 1) -> None:
        """Add nodes, or remove them if the sign is -1, with everything as when they were added.

        features: [n, m], or an iterable of blocks of their rows, held one at a time; values: NaN if
        unknown, [n, targets]; weights: positive [n]
        """
        if not len(values):
            return
        patterns, owner = (~values.isnan()).unique(dim=0, return_inverse=True)
        new_patterns = [tuple(pattern) for pattern in patterns.tolist()]
        self._check_room(new_patterns)
        for rows, part in row_blocks(features):
            for number, pattern in enumerate(new_patterns):
                mask = owner[part] == number
                if any(pattern) and bool(mask.any()):
                    part_values, part_weights = values[part][mask], weights[part][mask]
                    self._count_rows(pattern, rows[mask], part_values, part_weights, sign)
        # Patterns without nodes are deleted, and with them any rounding left.
        empty = [p for p, sums in self.patterns_.items() if not int(sums.counts_.sum())]
        for pattern in empty:
            del self.patterns_[pattern], self.cross_[pattern]

    def _check_room(self, more: list[tuple[bool, ...]]) -> None:  # before anything is counted
        patterns = {*self.patterns_, *(pattern for pattern in more if any(pattern))}
        if len(patterns) > MOST_PATTERNS:
            raise DataError(
                f"targets must be known in at most {MOST_PATTERNS} combinations, each with its "
                f"Gram matrix, not {len(patterns)}: leave out targets or nodes with few known "
                "values"
            )

    def _count_rows(
        self, pattern: tuple[bool, ...], rows: Tensor, values: Tensor, weights: Tensor, sign: int
    ) -> None:
        """Add nodes of one pattern to its sums."""
        statistics, cross = self._of(pattern)
        same = torch.zeros(len(rows), dtype=torch.int64, device=self.device)
        statistics.add(rows, same, weights, sign)
        filled = values.double().nan_to_num(0.0)
        weighted = filled * (sign * weights.double())[:, None]
        cross[:-2].addmm_(rows.double().t(), weighted)
        cross[-2] += weighted.sum(0)
        cross[-1] += (weighted * filled).sum(0)

    def _of(self, pattern: tuple[bool, ...]) -> tuple[ClassStatistics, Tensor]:
        if pattern not in self.patterns_:
            self.patterns_[pattern] = ClassStatistics(
                self.width, precise=self.precise, device=self.device
            )
            self.patterns_[pattern].grow(1)
            shape = self.width + 2, self.targets
            self.cross_[pattern] = torch.zeros(shape, dtype=torch.float64, device=self.device)
        return self.patterns_[pattern], self.cross_[pattern]

    def groups(self) -> Iterator[list[int]]:
        """Yield groups of targets that are known for the same nodes and share a Gram matrix.

        Targets that are unknown for all nodes are in no group.
        """
        columns = list(zip(*self.patterns_, strict=True))  # per target, the patterns that hold it
        for column in sorted(set(columns), reverse=True):
            if any(column):
                yield [target for target, other in enumerate(columns) if other == column]

    def moments(self, group: list[int]) -> TargetMoments:
        """Return the sums over all nodes for which the targets of a group are known."""
        patterns = [pattern for pattern in self.patterns_ if pattern[group[0]]]
        parts = [self.patterns_[pattern] for pattern in patterns]
        total = parts[0]
        for part in parts[1:]:
            total = total.merged(part)
        cross = torch.stack([self.cross_[pattern] for pattern in patterns]).sum(0)[:, group]
        return TargetMoments(
            gram=total.gram_,
            sums=total.sums_[0],
            count=float(total.mass_.sum()),
            cross=cross[:-2],
            totals=cross[-2],
            squares=cross[-1],
        )

    def transform(self, matrix: Tensor) -> None:
        """Replace every φ by Wᵀφ.  matrix: W, float64 [m, m]"""
        for pattern, statistics in self.patterns_.items():
            statistics.transform(matrix)
            cross = self.cross_[pattern]
            cross[:-2] = matrix.t() @ cross[:-2]

    def merged(self, other: TargetStatistics, classes: Tensor | None = None) -> TargetStatistics:
        """Return the statistics of the nodes of both, with the same targets."""
        same = self.width == other.width and self.targets == other.targets
        if not same or classes is not None:
            raise ConfigurationError(
                "statistics can be merged if they have the same targets and width, not "
                f"{self.targets} and {other.targets} targets, {self.width} and {other.width} wide"
            )
        merged = self._empty()
        merged._check_room([*self.patterns_, *other.patterns_])
        for part in (self, other):
            for pattern, statistics in part.patterns_.items():
                sums, cross = merged._of(pattern)
                merged.patterns_[pattern] = sums.merged(statistics)
                cross += part.cross_[pattern].to(self.device)
        return merged

    def widened(self, targets: int) -> TargetStatistics:
        """Return statistics with more targets; the new ones are 0 for all nodes so far.

        >>> statistics = TargetStatistics(1, targets=1)
        >>> statistics.add(torch.ones(1, 1), torch.ones(1, 1), torch.ones(1))
        >>> statistics.widened(2).moments([1]).cross.tolist()
        [[0.0]]
        """
        more = targets - self.targets
        wide = self._empty(targets=targets)
        for pattern, statistics in self.patterns_.items():
            known = pattern + (True,) * more
            wide.patterns_[known] = statistics
            wide.cross_[known] = torch.nn.functional.pad(self.cross_[pattern], (0, more))
        return wide if more else self

    def narrowed(self, width: int) -> TargetStatistics:
        """Return the statistics of the first features alone."""
        narrow = self._empty(width=width)
        for pattern, statistics in self.patterns_.items():
            narrow.patterns_[pattern] = statistics.narrowed(width)
            cross = self.cross_[pattern]
            narrow.cross_[pattern] = torch.cat([cross[:width], cross[-2:]])
        return narrow

    def _empty(self, **other: int) -> TargetStatistics:
        kept = {name: getattr(self, name) for name in ("width", "targets", "device")}
        return TargetStatistics(**kept | other)

    @property
    def usage(self) -> MemoryUsage:
        """Number of values in all sums, and their bytes."""
        crosses = (
            MemoryUsage(statistics=each.numel(), bytes=each.nbytes) for each in self.cross_.values()
        )
        return sum((each.usage for each in self.patterns_.values()), sum(crosses, MemoryUsage()))

    def state(self) -> dict[str, Tensor]:
        """Return everything kept, by name."""
        state = {"patterns": torch.tensor([*self.patterns_]).reshape(-1, self.targets)}
        for place, (pattern, statistics) in enumerate(self.patterns_.items()):
            state[f"{place}.cross"] = self.cross_[pattern]
            state |= {f"{place}.{name}": value for name, value in statistics.state().items()}
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.patterns_, self.cross_ = {}, {}
        self.targets = state["patterns"].shape[1]
        for place, row in enumerate(state["patterns"].tolist()):
            pattern = tuple(map(bool, row))
            sums = part_of(state, f"{place}.")
            statistics, _ = self._of(pattern)
            self.cross_[pattern] = sums.pop("cross").to(self.device)
            statistics.restore(sums)
