"""Views of a node: combinations of hops, relations and labels nearby; and rows of these."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import scipy
import torch
from torch import Tensor

from evergraph.closed_form.own_features import (
    MOST_WORDS,
    WORD_BYTES,
    Words,
    restored_words,
    stored_words,
    unit_words,
)
from evergraph.core.errors import ConfigurationError, check_once
from evergraph.training.learner import part_of

# The parts of a node: hops are named by their numbers; the others are class codes, features along
# relations, class codes along relations, a node's shape, the length of its own features, which
# brings a constant beside them (see ``KernelMap``), and its own words, which stand for hop 0 where
# a memory has them.
CODES, RELATIONS, RELATION_CODES, SHAPE, LENGTH, WORDS = -1, -2, -3, -4, -5, -6
CODE_HOPS = 2
# Unit vectors in a part, if not one; the length is part of one with hop 0.
UNITS = {CODES: CODE_HOPS, RELATIONS: 3, LENGTH: 0}
# Hops beyond this are far: they are computed for a few projected columns, see ``ViewFeatures``.
FAR = 8
ENDLESS = 1 << 20  # as many hops as it takes to be where they end, see ``EndOfHops``
FORM = re.compile(r"y|r(\+y)?|(\d+|c)(\|(\d+|c))*(\|r)?(\|s)?(\+y)?")


@dataclass(frozen=True)
class View:
    """The parts of a node that a head reads.

    Written ``0|2+y``: a node's own features, those two hops away, and the classes of labelled
    neighbours. ``y`` alone is the classes of neighbours only. ``r``, as in ``0|2|r+y``, adds
    features along each relation; it has no effect on a graph without relations. ``s``, as in
    ``0|s``, adds a node's number of neighbours and the length of its features. ``c`` is a hop, too:
    the mean over all nodes that are connected with it, where hops end.

    Attributes:
        hops: the hops of Â, concatenated, each of unit length; ``ENDLESS`` for ``c``.
        codes: whether class codes are included, see ``ClassCodes``.
        related: whether features along relations are included, see ``RelationHops``.
        shaped: whether degree and feature length are included, see ``shape_of``.

    >>> View.parse("0|2+y")
    View(hops=(0, 2), codes=True, related=False, shaped=False)
    >>> str(View((4,)))
    '4'
    """

    hops: tuple[int, ...]
    codes: bool = False
    related: bool = False
    shaped: bool = False

    @property
    def is_far(self) -> bool:
        """Whether it has a far hop."""
        return max(self.hops, default=0) > FAR

    @classmethod
    def parse(cls, name: str) -> View:
        """Return the view with this name."""
        if not isinstance(name, str) or not FORM.fullmatch(name):
            raise ConfigurationError(
                "a view must be hops joined by '|' with or without class codes, such as '2', "
                f"'0|2', '0|s', '0|1|2+y', '0|2|r+y', 'c' or 'y', not {name!r}"
            )
        parts = name.removesuffix("+y").replace("c", str(ENDLESS)).split("|")
        hops = tuple(int(part) for part in parts if part.isdigit())
        return cls(hops, name.endswith("y"), "r" in parts, "s" in parts)

    @property
    def parts(self) -> tuple[int, ...]:
        """The parts of the view; a graph may not have all of them."""
        own = (WORDS, LENGTH) if 0 in self.hops else ()
        codes = (CODES, RELATION_CODES) if self.codes else ()
        others = ((RELATIONS,) if self.related else ()) + ((SHAPE,) if self.shaped else ())
        return (*self.hops, *own, *others, *codes)

    def __str__(self) -> str:
        others = ["r"] * self.related + ["s"] * self.shaped
        hops = ["c" if hop == ENDLESS else str(hop) for hop in self.hops]
        name = "|".join([*hops, *others])
        return f"{name}+y" if name and self.codes else name or "y"


def parse_views(names: Sequence[str]) -> tuple[View, ...]:
    """Return the views with these names; at least one, without duplicates."""
    if isinstance(names, str) or not names:
        raise ConfigurationError(f"views must be a list of at least one view, not {names!r}")
    views = tuple(View.parse(name) for name in names)
    check_once("views", [str(view) for view in views])
    return views


def hops_of(views: Sequence[View]) -> tuple[int, ...]:
    """Return the hops that some views need, ascending."""
    return tuple(sorted({hop for view in views for hop in view.hops}))


def live_views(
    hops: Sequence[int], on_landmarks: bool, *, related: bool = False
) -> tuple[View, ...]:
    """Return the views of a live learner by default: the nearest hop, the furthest, and all coded.

    On landmarks all have a node's degree and feature length beside them. Random features, which
    represent a wide hop poorly, have all hops without codes instead of the nearest.

    related: whether views of all hops include features along relations

    >>> [str(view) for view in live_views((0, 1, 2), True)]
    ['0', '2', '0|1|2|s+y']
    >>> [str(view) for view in live_views((0, 2), False)]
    ['2', '0|2', '0|2+y']
    """
    near, far = View((min(hops),)), View((max(hops),))
    all_hops = View(tuple(hops), related=related, shaped=on_landmarks)
    uncoded = (near, far) if on_landmarks else (far, all_hops)
    return tuple(dict.fromkeys((*uncoded, replace(all_hops, codes=True))))


@dataclass(frozen=True, eq=False)
class ViewRows:
    """Rows of some nodes for all views, looked up a few at a time.

    Attributes:
        arrays: dense rows of all nodes, by the parts that stand side by side in them: the near hops
            of Â that any view needs, first of all; far hops; class codes, if a label is shown;
            features along relations; degree and length.  [nodes, dims] each
        words: all nodes' own features, if they are sparse, and hops are of projected ones.
        nodes: the selected nodes; None for all, in order.  int64 [n] | None
    """

    arrays: Mapping[tuple[int, ...], Tensor]
    words: Words | None = None
    nodes: Tensor | None = None

    @property
    def hops(self) -> Tensor:
        """All nodes' near hops, concatenated.  [nodes, hops x d]"""
        return next(iter(self.arrays.values()))

    @property
    def codes(self) -> Tensor | None:
        """All nodes' class codes; None if no label is shown.  [nodes, code dims] | None"""
        return self.arrays.get((CODES,))

    def __len__(self) -> int:
        return len(self.hops) if self.nodes is None else len(self.nodes)

    def __getitem__(self, part: slice) -> ViewRows:
        if self.nodes is not None:
            return replace(self, nodes=self.nodes[part])
        arrays = {held: rows[part] for held, rows in self.arrays.items()}
        return ViewRows(arrays, None if self.words is None else self.words[part])

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.hops.device

    def of(self, nodes: Tensor) -> ViewRows:
        """Return a selection of nodes."""
        return replace(self, nodes=nodes)

    @property
    def dims(self) -> int:
        """Most values of two bytes per node, without codes."""
        codes = (CODES,), (RELATION_CODES,)
        dense = sum(rows.shape[1] for held, rows in self.arrays.items() if held not in codes)
        return dense + (0 if self.words is None else MOST_WORDS * WORD_BYTES // 2)

    def taken(self, device: torch.device, dtype: torch.dtype = torch.float32) -> ViewRows:
        """Return the selected rows in memory, on a device; words of unit length."""
        arrays, words = dict(self.arrays), self.words
        if self.nodes is not None:
            for held, rows in arrays.items():
                arrays[held] = rows.index_select(0, self.nodes.to(rows.device))
            words = None if words is None else words[self.nodes.cpu().numpy()]
        arrays = {held: rows.to(device, dtype) for held, rows in arrays.items()}
        return ViewRows(arrays, None if words is None else unit_words(words))

    def stored(self) -> dict[str, Tensor]:
        """Return the rows of all nodes by name, without those that there are not."""
        dense = {"parts_" + ",".join(map(str, held)): rows for held, rows in self.arrays.items()}
        words = {} if self.words is None else stored_words(self.words)
        return dense | {f"words_{name}": rows for name, rows in words.items()}

    @classmethod
    def restored(cls, stored: dict[str, Tensor]) -> ViewRows:
        """Return the rows that ``stored`` returned."""
        arrays, words = part_of(stored, "parts_"), part_of(stored, "words_")
        dense = {tuple(map(int, held.split(","))): rows for held, rows in arrays.items()}
        return cls(dense, restored_words(words) if words else None)

    def joined(self, other: ViewRows) -> ViewRows:
        """Return the rows of both, all of them in memory; class codes may be missing: zeros.

        >>> coded = ViewRows({(0,): torch.ones(1, 1), (CODES,): torch.ones(1, 2)})
        >>> ViewRows({(0,): torch.ones(1, 1)}).joined(coded).codes.tolist()
        [[0.0, 0.0], [1.0, 1.0]]
        """
        arrays = {}
        for held, known in {**self.arrays, **other.arrays}.items():
            nothing = known.new_zeros(1, known.shape[1])
            both = [rows.arrays.get(held, nothing.expand(len(rows), -1)) for rows in (self, other)]
            arrays[held] = torch.cat(both)
        if self.words is None or other.words is None:
            return ViewRows(arrays)
        return ViewRows(arrays, scipy.sparse.vstack([self.words, other.words], "csr"))

    def parts(self) -> dict[int, Any]:
        """Return rows in memory by part."""
        parts: dict[int, Any] = {}
        for held, rows in self.arrays.items():
            parts |= zip(held, rows.tensor_split(len(held), dim=1), strict=True)
        return parts if self.words is None else parts | {WORDS: self.words}
