"""What all parts have in common: their parameters by name.

Importing this module loads no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from evergraph.core.display import Shown
from evergraph.core.errors import ConfigurationError

# What a part is given to work with, rather than what makes it the part it is: not shown.
SURROUNDINGS = ("generator", "resources", "on_epoch")
_MISSING = object()


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
        ours, theirs = one._repr_table(), other._repr_table()
        same = type(one) is type(other) and ours.keys() == theirs.keys()
        return same and all(alike(value, theirs[name]) for name, value in ours.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
