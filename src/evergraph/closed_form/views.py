"""Views of a node: combinations of hops, relations and labels nearby; and rows of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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


# The dense attributes of ``ViewRows`` with one row per node.
STORED = ("hops", "codes", "relation_codes", "relations", "shape", "far")


@dataclass(frozen=True, eq=False)
class ViewRows:
    """Rows of some nodes for all views, looked up a few at a time."""

    hops: Tensor  # all nodes' near hops of Â that any view needs, concatenated.  [nodes, hops x d]
    # all nodes' class codes; None if no label is shown.  [nodes, code dims] | None
    codes: Tensor | None = None
    nodes: Tensor | None = None  # the selected nodes; None for all, in order.  int64 [n] | None
    # all nodes' features along relations; None if the graph has none. [nodes, relation dims] | None
    relations: Tensor | None = None
    # all nodes' degree and length; None if no view uses them.  [nodes, 64] | None
    shape: Tensor | None = None
    # all nodes' far hops, concatenated; None if no view has one. [nodes, hops x 128 or less] | None
    far: Tensor | None = None
    # all nodes' own features, if they are sparse, and hops are of projected ones; None if not
    words: Words | None = None
    # all nodes' class codes along relations; None without codes or relations. [nodes, code dims]
    relation_codes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.hops) if self.nodes is None else len(self.nodes)

    def __getitem__(self, part: slice) -> ViewRows:
        if self.nodes is not None:
            return replace(self, nodes=self.nodes[part])
        words = None if self.words is None else self.words[part]
        return replace(self._each(lambda rows: rows[part]), words=words)

    def _each(self, change: Callable[[Tensor], Tensor]) -> ViewRows:
        def changed(name: str) -> Any:
            rows = getattr(self, name)
            return None if rows is None else change(rows)

        return ViewRows(**{name: changed(name) for name in STORED})

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
        parts = (self.hops, self.relations, self.shape, self.far)
        words = 0 if self.words is None else MOST_WORDS * WORD_BYTES // 2
        return words + sum(rows.shape[1] for rows in parts if rows is not None)

    def taken(self, device: torch.device, dtype: torch.dtype = torch.float32) -> ViewRows:
        """Return the selected rows in memory, on a device; words of unit length."""

        def rows(tensor: Tensor) -> Tensor:
            if self.nodes is not None:
                tensor = tensor.index_select(0, self.nodes.to(tensor.device))
            return tensor.to(device, dtype)

        words = self.words
        if words is not None and self.nodes is not None:
            words = words[self.nodes.cpu().numpy()]
        return replace(self._each(rows), words=None if words is None else unit_words(words))

    def stored(self) -> dict[str, Tensor]:
        """Return the rows of all nodes by name, without those that there are not."""
        words = {} if self.words is None else stored_words(self.words)
        return self._dense() | {f"words_{name}": rows for name, rows in words.items()}

    def _dense(self) -> dict[str, Tensor]:
        """Return the dense rows that there are, by name."""
        named = {name: getattr(self, name) for name in STORED}
        return {name: rows for name, rows in named.items() if rows is not None}

    @classmethod
    def restored(cls, stored: Mapping[str, Tensor]) -> ViewRows:
        """Return the rows that ``stored`` returned."""
        words = {name.removeprefix("words_"): stored[name] for name in stored if "words_" in name}
        rows = {name: stored[name] for name in STORED if name in stored}
        return cls(**rows, words=restored_words(words) if words else None)

    def joined(self, other: ViewRows) -> ViewRows:
        """Return the rows of both, all of them in memory; class codes may be missing: zeros.

        >>> coded = ViewRows(torch.ones(1, 1), torch.ones(1, 2))
        >>> ViewRows(torch.ones(1, 1)).joined(coded).codes.tolist()
        [[0.0, 0.0], [1.0, 1.0]]
        """
        first, second = self._dense(), other._dense()
        for coded, uncoded in ((first, second), (second, first)):
            for name in coded.keys() - uncoded.keys():
                shape = len(uncoded["hops"]), coded[name].shape[1]
                uncoded[name] = coded[name].new_zeros(shape)
        rows = {name: torch.cat([first[name], second[name]]) for name in first}
        if self.words is None or other.words is None:
            return ViewRows(**rows)
        return ViewRows(**rows, words=scipy.sparse.vstack([self.words, other.words], "csr"))

    def parts(self, hops: Sequence[int]) -> dict[int, Any]:
        """Return rows in memory by part; hops: the hops that they hold."""
        near = [hop for hop in hops if hop <= FAR]
        far = [hop for hop in hops if hop > FAR]
        parts = dict(zip(near, self.hops.tensor_split(len(near), dim=1), strict=True))
        if self.far is not None:
            parts |= zip(far, self.far.tensor_split(len(far), dim=1), strict=True)
        others = {CODES: self.codes, RELATION_CODES: self.relation_codes, WORDS: self.words}
        others |= {RELATIONS: self.relations, SHAPE: self.shape}
        return parts | {part: rows for part, rows in others.items() if rows is not None}
