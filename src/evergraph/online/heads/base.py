"""Base classes of heads and of their scorers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from evergraph.core.resolver import Resolver
from evergraph.core.targets import Key, Label, Target, target_of
from evergraph.online.state_arrays import Packing
from evergraph.topology import SGC, TopologyEncoder
from evergraph.topology.rowwise import Matrix

Ids = npt.NDArray[np.int64]  # positions of nodes


class Scorer(ABC):
    """Immutable class scores of a head, safe to use from any thread.

    No bit of a row's scores depends on the other rows (see ``evergraph.topology.rowwise``): what is
    predicted for a node depends on the node and the state alone. A few rows take well under a
    millisecond: a service computes them without a thread.
    """

    @abstractmethod
    def __call__(self, ids: Ids, vectors: Matrix) -> Matrix:
        """Return log-probabilities up to a constant per row.

        ids: positions of nodes, int64 [n]; vectors: their embeddings, float32 [n, dims]
        -> float32 [n, classes]
        """

    def slopes(self, vector: Tensor) -> Tensor | None:
        """Return ∂s_c/∂e if scores are piecewise linear, else None.  [dims] -> [classes, dims]"""
        return None


class OnlineHead(ABC):
    """A classifier that learns from embeddings, one delta at a time.

    A delta calls ``grow``, then ``forget``, ``move`` and ``learn`` as needed, then ``settle``;
    ``scorer`` may be called at any time after that. Nodes are given by their positions in the
    graph. A node whose label changes is forgotten and learned again. ``move`` and ``forget``
    receive the vectors that were last learned or moved to, so that a head may keep sums instead of
    nodes. Moves smaller than a tolerance are not reported to the head.

    Attributes:
        kind: of the targets that it learns, see ``target``.
        exact_forgetting: whether ``forget`` leaves no trace of a node.
        holds_back: whether it tunes itself on nodes left out in turn, see ``weigh``.
        lazy: whether ``settle`` may be delayed for some deltas; ``state`` then includes what is not
            settled yet. Other heads settle with every delta.
        takes_relations: whether it uses features along relations, beside each embedding.
        balanced: whether nodes left out are weighted so that every class counts alike.
        drops_classes: whether ``packed`` drops classes that no node has.
        least_left_out: nodes that a class must have before any of them is left out.
    """

    name: ClassVar[str]
    kind: str = "class"
    exact_forgetting: ClassVar[bool] = False
    holds_back: ClassVar[bool] = False
    lazy: ClassVar[bool] = False
    takes_relations: ClassVar[bool] = False
    drops_classes: ClassVar[bool] = False
    least_left_out: ClassVar[int] = 2
    balanced: bool = True

    @property
    def target(self) -> Target:
        """What it learns of a node: a class, labels or a number."""
        return target_of(self.kind)

    def default_topology(self) -> TopologyEncoder:
        """Return the f_topo to use unless another is given."""
        return SGC()

    @property
    def code_width(self) -> int:
        """Width of the class codes of each of two hops beside an embedding; 0 before ``begin``."""
        return 0

    @property
    def shaped(self) -> bool:
        """Whether degree and feature length stand beside an embedding; False before ``begin``."""
        return False

    @property
    def measured(self) -> bool:
        """Whether the plain feature length stands beside these, see ``KernelMap``."""
        return False

    def parts(self, dims: int) -> tuple[int, ...]:
        """Return the widths of the parts of a vector whose moves are measured separately.

        One part by default; see ``Counted``. Known after ``begin``.
        """
        return (dims,)

    @abstractmethod
    def begin(
        self, dims: int, *, topology: TopologyEncoder, generator: Generator, related: bool = False
    ) -> None:
        """Create what depends on the width of embeddings, before the first delta.

        topology: makes the embeddings; related: whether there are relations.
        """

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """How many classes there is room for."""

    @abstractmethod
    def grow(self, classes: int) -> None:
        """Make room for classes."""

    def meet(self, answers: Sequence[Key]) -> None:  # noqa: B027  (classes need no meaning)
        """Register the next targets that were met, in the order of their numbers."""

    def values(self, answers: Tensor) -> Tensor:
        """Return the targets that class numbers encode, for labels and numbers.  -> [n, targets]"""
        raise NotImplementedError

    @property
    def names(self) -> Collection[Label]:
        """Names of labels, in order; empty for classes and numbers."""
        return ()

    @abstractmethod
    def learn(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Learn labelled nodes.  int64 [n]; float32 [n, dims]; int64 [n]"""

    @abstractmethod
    def move(self, ids: Tensor, before: Tensor, after: Tensor, labels: Tensor) -> None:
        """Update learned nodes whose embeddings have changed.  before, after: float32 [n, dims]"""

    @abstractmethod
    def forget(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Forget learned nodes."""

    @property
    def most_weighed(self) -> int:
        """How many nodes it leaves out in turn."""
        return 0

    def sizes(self) -> Tensor | None:
        """Return the size of its sums, as sums of squares, for ``Wear``; None without sums.

        If they have lost digits, ``restart`` is called and everything is learned again.
        """
        return None

    def restart(self) -> None:  # noqa: B027  (never called for heads without sums)
        """Empty the sums; nothing else changes."""

    def landmarks_wanted(self, counts: Tensor, *, changed: bool, refit: bool = False) -> int:
        """Return how many new landmarks it wants to choose now; 0 to keep those it has.

        counts: labelled nodes of each class now, int64 [classes]; changed: whether this delta
        changed the sums; refit: whether it must choose anew.
        After ``stand_on``, ``restart`` is called and everything is learned again.
        """
        return 0

    def stand_on(  # noqa: B027  (few heads have landmarks)
        self, nodes: Tensor, vectors: Tensor, *, counts: Tensor
    ) -> None:
        """Use nodes as landmarks, with the vectors they are counted as.  [n]; [n, dims]

        counts: labelled nodes of each class.  int64 [classes]
        """

    def let_go(self, nodes: Tensor) -> bool:
        """Erase landmarks that are among some nodes; return whether there were any.

        Called before anything is subtracted, with all nodes that a forgotten node may have
        influenced, also through edges that were removed since: the copy of a landmark might hold a
        trace of it.
        """
        return False

    def weigh(  # noqa: B027  (few heads are weighed)
        self, nodes: Tensor, vectors: Tensor, labels: Tensor
    ) -> None:
        """Receive the learned nodes to leave out in turn, right before ``settle``.

        int64 [n]; vectors: float32 [n, dims]; labels: int64 [n]
        """

    @abstractmethod
    def settle(self) -> None:
        """Update the scores to all that was learned, moved and forgotten."""

    @abstractmethod
    def scorer(self) -> Scorer:
        """Return the scores of the last ``settle``."""

    def scores(self, ids: Tensor, vectors: Tensor) -> Tensor:
        """Return the scores of some nodes, see ``Scorer``.  -> [n, classes]"""
        return torch.from_numpy(self.scorer()(ids.numpy(), vectors.numpy()))

    def bytes_for(self, *, nodes: int, counted: int, classes: int, new: int) -> int:
        """Return about how many more bytes a delta needs at most.

        nodes: labelled ones, including those of the delta; counted: how many of these it learns or
        moves; classes: including those of the delta; new: how many of these are new.
        """
        return CLASS_BYTES * (classes + new)

    @property
    def nbytes(self) -> int:
        """How many bytes it keeps."""
        return sum(tensor.nbytes for tensor in self.state().values())

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return everything that later deltas and scores depend on."""

    def packed(
        self, state: dict[str, Tensor], nodes: Packing, classes: Packing
    ) -> dict[str, Tensor]:
        """Return a state with nodes and classes renumbered, for heads that keep such numbers."""
        return state

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned, after ``begin``."""


heads = Resolver[OnlineHead]("head")

CLASS_BYTES = 1 << 14  # estimate per class, for heads without an estimate of their own
BLOCK_VALUES = 1 << 20  # of a matrix with a value for every node and class, computed at a time


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of rows such that a matrix of each has at most ``BLOCK_VALUES`` values.

    A matrix of all nodes and classes is never held whole: a delta with as many classes as nodes
    would need their square.

    >>> list(row_blocks(3, 1 << 19))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = max(BLOCK_VALUES // max(columns, 1), 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def scores_of(scorer: Scorer, target: Target, met: Tensor, ids: Ids, vectors: Matrix) -> Matrix:
    """Return the scores of nodes; see ``class_scores`` for classes."""
    if target.is_class:
        return class_scores(scorer, met, ids, vectors)
    return scorer(ids, vectors)


def class_scores(scorer: Scorer, met: Tensor, ids: Ids, vectors: Matrix) -> Matrix:
    """Return the scores of all classes, -inf for those without nodes.

    met: bool [classes]; ids, vectors: see ``Scorer``; -> float32 [n, classes]

    >>> class Fixed(Scorer):
    ...     def __call__(self, ids, vectors): return vectors
    >>> class_scores(Fixed(), torch.tensor([True, False, True]), np.array([0]),
    ...              np.array([[1, 2]], np.float32))  # the third class is too new for the scorer
    array([[  1., -inf, -inf]], dtype=float32)
    """
    known, there = scorer(ids, vectors), met.numpy()
    if known.shape[1] == len(there) and there.all():
        return known
    scores = np.full((len(ids), len(there)), -np.inf, np.float32)
    known = known[:, : len(there)]
    np.copyto(scores[:, : known.shape[1]], known, where=there[: known.shape[1]])
    return scores


# Arrays of a head in closed form that have a row for every class.
OF_CLASSES = ("sums", "mass", "counts", "offsets", "class_weights", "chosen")


def of_classes(state: dict[str, Tensor], kept: Tensor) -> dict[str, Tensor]:
    """Return the state of a head in closed form with some classes alone.  kept: int64 [classes]"""
    found = dict(state)
    for name, value in state.items():
        what = name.rpartition(".")[2]
        if what in OF_CLASSES:
            found[name] = value[kept[kept < len(value)]]
        elif what == "weights":  # V, which may not have the newest classes yet
            found[name] = value[:, kept[kept < value.shape[1]]]
    return found
