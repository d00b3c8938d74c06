"""What learns from embeddings while nodes come, move and go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import Kind
from evergraph.core.resolver import Resolver
from evergraph.online.delta import Label
from evergraph.online.pieces import Packing
from evergraph.topology import SGC, TopologyEncoder


class Scorer(ABC):
    """Class scores as they were when it was made: it never changes, so anyone may ask it.

    Attributes:
        quick: whether a few rows take well under a millisecond; a service then answers for them
            without handing them to a thread.
    """

    quick: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, ids: Tensor, vectors: Tensor) -> Tensor:
        """Return log-probabilities up to a constant a row.

        ids: which nodes, int64 [n]; vectors: their embeddings, float32 [n, dims] -> [n, classes]
        """

    def few(self, ids: Sequence[int], vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the same scores for a handful of nodes, where calls cost more than arithmetic.

        Up to rounding: what must come out the same bit for bit asks the scorer itself.

        [n, dims] -> [n, classes]
        """
        scores = self(torch.tensor(ids, dtype=torch.int64), torch.from_numpy(vectors))
        found: npt.NDArray[np.float32] = scores.numpy()
        return found

    def slopes(self, vector: Tensor) -> Tensor | None:
        """Return ∂s_c/∂e at an embedding, where scores are piecewise linear in it, else None.

        [dims] -> [classes, dims]
        """
        return None


class OnlineHead(ABC):
    """Learns classes from embeddings, one delta at a time.

    The calls of a delta: ``grow``, then ``forget``, ``move`` and ``learn`` as it has them, then
    ``settle``; ``scorer`` at any time after. Nodes are named by their positions in the graph. A
    node whose label changes is forgotten and learned. Vectors given to ``move`` and ``forget`` are
    those that were last learned or moved to, so a head may keep sums instead of nodes. It does not
    hear of nodes that have moved less than a tolerance since.

    Attributes:
        kind: what nodes are said to be: one ``class``, several ``labels``, or ``numbers``.
        exact_forgetting: whether after ``forget`` nothing of a node is left.
        holds_back: whether it weighs what it has learned by nodes left out in turn, see ``weigh``.
        lazy: whether ``settle`` may come deltas after what it is for; ``state`` then keeps what is
            to be settled. Others settle with every delta.
        balanced: whether every class is to count alike among nodes left out, or every node.
    """

    name: ClassVar[str]
    kind: Kind = "class"
    exact_forgetting: ClassVar[bool] = False
    holds_back: ClassVar[bool] = False
    lazy: ClassVar[bool] = False
    balanced: bool = True

    def default_topology(self) -> TopologyEncoder:
        """Return the f_topo whose embeddings it learns from unless another is given."""
        return SGC()

    @property
    def code_width(self) -> int:
        """How wide class codes are that stand beside each embedding, two hops; 0: there are none.

        Known after ``begin``.
        """
        return 0

    @property
    def takes_relations(self) -> bool:
        """Whether it looks at what comes along relations, beside each embedding."""
        return False

    def parts(self, dims: int) -> tuple[int, ...]:
        """Return how wide the parts of a vector are whose movements are looked at apart.

        One part unless a head has several, see ``Counted``. Known after ``begin``.
        """
        return (dims,)

    @abstractmethod
    def begin(
        self,
        dims: int,
        *,
        topology: TopologyEncoder,
        scaling: str,
        generator: torch.Generator,
        related: bool = False,
    ) -> None:
        """Make what depends on the width of embeddings, before the first delta.

        topology, scaling: how embeddings are made; related: whether there are relations, for heads
        that take them.
        """

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """How many classes there is room for."""

    @abstractmethod
    def grow(self, classes: int) -> None:
        """Make room for classes."""

    def meet(self, answers: Sequence[Label]) -> None:  # noqa: B027  (classes need no meaning)
        """Learn what classes are called that are new, in the order in which they are numbered."""

    def values(self, answers: Tensor) -> Tensor:
        """Return what numbered answers stand for, where they are no classes.  -> [n, targets]"""
        raise NotImplementedError

    @property
    def names(self) -> Collection[Label]:
        """What labels are called, in order; nothing where nodes have classes or numbers."""
        return ()

    def labels_of(self, answers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels that numbered answers stand for, and which answer each is of.

        int64 [n] -> places among the answers, columns of labels: int64 [m] each
        """
        raise NotImplementedError

    @abstractmethod
    def learn(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Take in nodes with known classes.  int64 [n]; float32 [n, dims]; int64 [n]"""

    @abstractmethod
    def move(self, ids: Tensor, before: Tensor, after: Tensor, labels: Tensor) -> None:
        """Follow learned nodes whose embeddings have changed.  before, after: float32 [n, dims]"""

    @abstractmethod
    def forget(self, ids: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Let go of learned nodes."""

    @property
    def most_weighed(self) -> int:
        """How many nodes it leaves out in turn."""
        return 0

    def sizes(self) -> Tensor | None:
        """Return how large its sums are, as sums of squares, for ``Wear``; None without sums.

        Where they have lost digits it is told to ``restart``, and all it had learned again.
        """
        return None

    def restart(self) -> None:  # noqa: B027  (heads without sums are never told to)
        """Empty the sums; nothing else changes."""

    def landmarks_wanted(self, labelled: int, classes: int, *, changed: bool) -> int:
        """Return how many labelled nodes it wants to stand on anew; 0: it stays on those it has.

        labelled, classes: how many there are now; changed: whether this delta counted anything.
        After ``stand_on`` it is told to ``restart``, and all it had learned again.
        """
        return 0

    def stand_on(  # noqa: B027  (few heads have landmarks)
        self, nodes: Tensor, vectors: Tensor, *, labelled: int, classes: int
    ) -> None:
        """Take nodes as landmarks, as they are counted.  int64 [n]; float32 [n, dims]"""

    def let_go(self, nodes: Tensor) -> bool:
        """Wipe landmarks that are among some nodes; return whether there were any.

        Told before anything is counted out, of all that a forgotten node may have a part in, and of
        all around edges that go: a copy might hold something of a node that is forgotten later.
        """
        return False

    def weigh(self, vectors: Tensor, labels: Tensor) -> None:  # noqa: B027  (few heads are weighed)
        """Look at learned nodes, as they were counted, right before it settles.

        vectors: float32 [n, dims]; labels: int64 [n]
        """

    @abstractmethod
    def settle(self) -> None:
        """Bring the scores up to date with all that was learned, moved and forgotten."""

    @abstractmethod
    def scorer(self) -> Scorer:
        """Return the scores as of the last ``settle``."""

    def scores(self, ids: Tensor, vectors: Tensor) -> Tensor:
        """Return the scores of some nodes, see ``Scorer``.  -> [n, classes]"""
        return self.scorer()(ids, vectors)

    def bytes_for(self, *, nodes: int, counted: int, classes: int, new: int) -> int:
        """Return how many more bytes it takes while it follows a delta, at most about.

        nodes: labelled ones, with those of the delta; counted: how many of these it is told of;
        classes: with those of the delta; new: how many of these are.
        """
        return CLASS_BYTES * (classes + new)

    @property
    def nbytes(self) -> int:
        """How many bytes it keeps."""
        return sum(tensor.nbytes for tensor in self.state().values())

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return all that later deltas and scores depend on."""

    def packed(self, state: dict[str, Tensor], packing: Packing) -> dict[str, Tensor]:
        """Return what ``state`` returned once nodes have other positions.

        Heads that keep positions, or a row for each, renumber them here; most keep neither.
        """
        return state

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned, after ``begin``."""


class _Heads(Resolver[OnlineHead]):
    def resolve(self, name: str) -> type[OnlineHead]:
        """Return the class called ``name``; say of one that is gone what to use."""
        if name == "method":
            raise ConfigurationError(
                "the head 'method' is gone, and learners made with it cannot be opened: use "
                "'auto', 'analytic' or 'replay', and give a new learner the nodes again"
            )
        return super().resolve(name)


heads = _Heads("head")

CLASS_BYTES = 1 << 14  # of a class, in a head that does not say how many
BLOCK_VALUES = 1 << 20  # computed at a time where there is a value for every node and class


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of so many rows that a matrix of each has at most ``BLOCK_VALUES`` values.

    What has a value for every node and every class is never held whole: a delta of as many classes
    as nodes would need their square.

    >>> list(row_blocks(3, 1 << 19))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = max(BLOCK_VALUES // max(columns, 1), 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def likeliest_classes(scorer: Scorer, met: Tensor, ids: Tensor, vectors: Tensor) -> Tensor:
    """Return the class with the highest score among those that have nodes, a few rows at a time.

    Of equal scores the class that came first wins.

    met: bool [classes]; ids, vectors: see ``Scorer``; -> int64 [n]

    >>> class Fixed(Scorer):
    ...     def __call__(self, ids, vectors): return vectors
    >>> likeliest_classes(Fixed(), torch.tensor([True, False, True]), torch.tensor([0, 1]),
    ...                   torch.tensor([[1., 2.], [2., 9.]]))  # the second class has no nodes
    tensor([0, 0])
    """
    found = torch.zeros(len(ids), dtype=torch.int64)
    for rows in row_blocks(len(ids), len(met)):
        known = scorer(ids[rows], vectors[rows])[:, : len(met)]
        if known.shape[1]:  # classes that are too new for the scorer are no choice
            found[rows] = known.masked_fill(~met[: known.shape[1]], -torch.inf).argmax(1)
    return found


def class_scores(scorer: Scorer, met: Tensor, ids: Tensor, vectors: Tensor) -> Tensor:
    """Return the scores of all classes, -inf for those that have no node (any more).

    met: bool [classes]; ids, vectors: see ``Scorer``; -> float32 [n, classes]

    >>> class Fixed(Scorer):
    ...     def __call__(self, ids, vectors): return vectors
    >>> class_scores(Fixed(), torch.tensor([True, False, True]), torch.tensor([0]),
    ...              torch.tensor([[1., 2.]]))  # the third class is too new for the scorer
    tensor([[1., -inf, -inf]])
    """
    known = scorer(ids, vectors)
    scores = torch.full((len(ids), len(met)), -torch.inf)
    scores[:, : known.shape[1]] = known[:, : len(met)]
    return scores.masked_fill_(~met, -torch.inf)
