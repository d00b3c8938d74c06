"""What all parts have in common: their parameters by name, and a short way of saying what they are.

Importing this module loads no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from html import escape
from typing import Any

from evergraph.core.errors import ConfigurationError

# What a part is given to work with, rather than what makes it the part it is: not shown.
SURROUNDINGS = ("generator", "resources", "on_epoch")
_MISSING = object()


class Shown:
    """Something that says what it is in one line, and as a small table in a notebook.

    >>> class Point(Shown):
    ...     "A place on a line."
    ...     def _repr_facts(self): return {"x": 3}
    >>> Point()
    Point(x=3)
    >>> Point()._repr_html_()
    '<table><caption><b>Point</b> A place on a line.</caption><tr><th>x</th><td>3</td></tr></table>'
    """

    def _repr_facts(self) -> Mapping[str, object]:
        """Return what the line says; nothing but the name unless overridden."""
        return {}

    def _repr_table(self) -> Mapping[str, object]:
        """Return what the table says; the same unless overridden."""
        return self._repr_facts()

    def _repr_pictures(self) -> str:
        """Return HTML to stand below the table, escaped already; nothing unless overridden."""
        return ""

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self._repr_facts().items())
        return f"{type(self).__name__}({facts})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        title = f"<b>{type(self).__name__}</b> {escape(_first_line(type(self)))}"
        rows = "".join(
            f"<tr><th>{escape(str(name))}</th><td>{escape(_text(value))}</td></tr>"
            for name, value in self._repr_table().items()
        )
        return f"<table><caption>{title}</caption>{rows}</table>{self._repr_pictures()}"


class ShownRecord(Shown):
    """A dataclass that shows its fields; the line is as dataclasses have it.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Place(ShownRecord):
    ...     "Somewhere."
    ...     x: int
    >>> Place(3), "<th>x</th><td>3</td>" in Place(3)._repr_html_()
    (Place(x=3), True)
    """

    def _repr_facts(self) -> Mapping[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


class Part(Shown):
    """Something made of keyword parameters, each stored under its own name, as scikit-learn has it.

    The line says only what differs from the defaults; evaluated, it makes such a part again.

    >>> class Circle(Part):
    ...     "Round."
    ...     def __init__(self, *, radius: float = 1.0, colour: str = "red") -> None:
    ...         self.radius, self.colour = radius, colour
    >>> Circle(radius=2.0)
    Circle(radius=2.0)
    >>> Circle().get_params()
    {'radius': 1.0, 'colour': 'red'}
    """

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the parameters of the constructor: ``type(part)(**part.get_params())`` is alike.

        deep: with those of parts inside as well, under ``outer__inner``.
        """
        own: dict[str, Any] = {}
        for name in inspect.signature(type(self)).parameters:
            value = self._parameter_value(name)
            if value is _MISSING:
                raise ConfigurationError(
                    f"{type(self).__name__} must store its parameter {name!r} under that name"
                )
            own[name] = value
        return with_inner(own) if deep else own

    def _parameter_value(self, name: str) -> Any:
        """Return the value of a parameter, as the constructor takes it."""
        return getattr(self, name, _MISSING)

    def _parameter_default(self, name: str) -> Any:
        """Return what a parameter is if it is not given."""
        return inspect.signature(type(self)).parameters[name].default

    def _repr_facts(self) -> Mapping[str, object]:
        return {
            n: v for n, v in self._repr_table().items() if not alike(v, self._parameter_default(n))
        }

    def _repr_table(self) -> Mapping[str, object]:
        names = [n for n in inspect.signature(type(self)).parameters if n not in SURROUNDINGS]
        values = {name: self._parameter_value(name) for name in names}
        return {name: value for name, value in values.items() if value is not _MISSING}


def with_inner(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters, and those of the parts among them under ``outer__inner``."""
    inner = {
        f"{name}__{below}": value
        for name, part in parameters.items()
        if isinstance(part, Part)
        for below, value in part.get_params(deep=True).items()
    }
    return parameters | inner


def alike(one: object, other: object) -> bool:
    """Whether two values of a parameter mean the same; parts do if they are made alike.

    >>> alike((1, 2), [1, 2]), alike(1, True), alike("a", "b")
    (True, False, False)
    """
    if isinstance(one, Part) and isinstance(other, Part):
        return type(one) is type(other) and _made_alike(one, other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def _made_alike(one: Part, other: Part) -> bool:
    ours, theirs = one._repr_table(), other._repr_table()
    return ours.keys() == theirs.keys() and all(alike(v, theirs[n]) for n, v in ours.items())


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0]


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
