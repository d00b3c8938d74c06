"""Ways to look at a node: which hops, side by side, and whether at labels nearby."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evergraph.core.checks import check_once
from evergraph.core.errors import ConfigurationError

FORM = re.compile(r"y|r(\+y)?|\d+(\|\d+)*(\|r)?(\+y)?")


@dataclass(frozen=True)
class View:
    """What a head sees of a node.

    Written ``0|2+y``: its own features beside those two hops away, and the classes of labelled
    neighbours. ``y`` alone is the classes of neighbours and nothing else. ``r``, as in ``0|2|r+y``,
    is what comes along each relation, where the graph has relations; where it has none, nothing.

    Attributes:
        hops: the hops of Â side by side, each of unit length.
        codes: whether class codes stand beside them, see ``ClassCodes``.
        related: whether what comes along relations does, see ``RelationHops``.

    >>> View.parse("0|2+y")
    View(hops=(0, 2), codes=True, related=False)
    >>> str(View((4,)))
    '4'
    """

    hops: tuple[int, ...]
    codes: bool = False
    related: bool = False

    @classmethod
    def parse(cls, name: str) -> View:
        """Return the view that a name stands for."""
        if not isinstance(name, str) or not FORM.fullmatch(name):
            raise ConfigurationError(
                "a view must be hops side by side with or without class codes, such as '2', "
                f"'0|2', '0|1|2+y', '0|2|r+y' or 'y', not {name!r}"
            )
        parts = name.removesuffix("+y").split("|")
        hops = tuple(int(part) for part in parts if part not in ("r", "y"))
        return cls(hops, name.endswith("y"), "r" in parts)

    def __str__(self) -> str:
        seen = "|".join([*map(str, self.hops), *(["r"] if self.related else [])])
        return f"{seen}+y" if seen and self.codes else seen or "y"


def parse_views(names: Sequence[str]) -> tuple[View, ...]:
    """Return the views that names stand for; at least one, each once.

    >>> [view.codes for view in parse_views(["2", "y"])]
    [False, True]
    """
    if isinstance(names, str) or not names:
        raise ConfigurationError(f"views must be a list of at least one view, not {names!r}")
    views = tuple(View.parse(name) for name in names)
    check_once("views", [str(view) for view in views])
    return views


def hops_of(views: Sequence[View]) -> tuple[int, ...]:
    """Return the hops that any of some views needs, ascending.

    >>> hops_of(parse_views(["0|2", "4+y", "y"]))
    (0, 2, 4)
    """
    return tuple(sorted({hop for view in views for hop in view.hops}))
