"""Base of all components: keyword parameters by name.

Importing this module does not load torch.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping
from dataclasses import field, fields
from functools import partial
from typing import Any, Generic, TypeVar, cast

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.core.display import Shown
from evergraph.core.errors import ConfigurationError
from evergraph.core.resolver import Resolver

# Parameters that a component works with but that do not define it: not shown.
SURROUNDINGS = ("generator", "resources", "on_epoch")
_MISSING = object()
T_co = TypeVar("T_co", covariant=True)


def number(default: float | None, *, least: float, most: float = math.inf) -> Any:
    """Declare a parameter of a dataclass that is a number within [least, most].

    Here and below, None is allowed if it is the default. See ``Part`` for an example.
    """
    check = partial(check_number, least=least, most=most)
    return field(default=default, metadata={"check": check})


def integer(default: int | None, *, least: int) -> Any:
    """Declare a parameter of a dataclass that is an integer of at least ``least``."""
    return field(default=default, metadata={"check": partial(check_integer, least=least)})


def choice(default: str | None, choices: Collection[str]) -> Any:
    """Declare a parameter of a dataclass that is one of ``choices``."""
    return field(default=default, metadata={"check": partial(check_choice, choices=choices)})


class Made(Generic[T_co]):
    """Declare a parameter of a dataclass that is made by the component itself if it is not given.

    The constructor takes None for it, and ``_parameter_default`` makes it.

    parts: makes it of a name, or of a table of name and parameters; those of the base class if that
    declares the same parameter.
    """

    def __init__(self, parts: Resolver[Any] | None = None) -> None:
        self._parts = parts

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        inherited = [vars(base).get(name) for base in owner.__mro__]
        parts = [each._parts for each in inherited if isinstance(each, Made)]
        self._parts = next((each for each in parts if each is not None), None)

    def __get__(self, part: Part | None, owner: type) -> T_co:
        return cast("T_co", None if part is None else part.__dict__.get(self._name))

    def __set__(self, part: Part, value: T_co | str | Mapping[str, Any] | None) -> None:
        made = value if value is None or self._parts is None else self._parts.part(value)
        part.__dict__[self._name] = made


class Part(Shown):
    """Component with keyword parameters stored under their own names, as in scikit-learn.

    Its repr shows only parameters that differ from the defaults; evaluating it makes an equal one.

    >>> class Circle(Part):
    ...     "Round."
    ...     def __init__(self, *, radius: float = 1.0, colour: str = "red") -> None:
    ...         self.radius, self.colour = radius, colour
    >>> Circle(radius=2.0)
    Circle(radius=2.0)
    >>> Circle().get_params()
    {'radius': 1.0, 'colour': 'red'}

    The constructor may also be that of a dataclass, which inherits parameters and checks them.

    >>> from dataclasses import dataclass
    >>> @dataclass(kw_only=True, eq=False, repr=False)
    ... class Disc(Part):
    ...     radius: float = number(1.0, least=0.0)
    >>> Disc(radius=-2.0)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: radius must be a number of at least 0.0, not -2.0
    """

    def __post_init__(self) -> None:
        """Check the parameters of a dataclass, and make those that are not given."""
        for each in (each for each in fields(self) if each.init):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if value is None and each.default is None:
                setattr(self, each.name, self._parameter_default(each.name))
            elif "check" in each.metadata:
                each.metadata["check"](each.name, value)
            elif isinstance(each.default, bool) and not isinstance(value, bool):
                raise ConfigurationError(f"{each.name} must be true or false, not {value!r}")

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the constructor's parameters: ``type(part)(**part.get_params())`` makes a copy.

        deep: also return those of inner components, as ``outer__inner``.
        """
        own: dict[str, Any] = {}
        for name in self._parameter_names():
            own[name] = value = self._parameter_value(name)
            if value is _MISSING:
                said = f"{type(self).__name__} must store its parameter {name!r} under that name"
                raise ConfigurationError(said)
        for name, value in list(own.items()) if deep else ():
            if isinstance(value, Part):
                inner = value.get_params(deep=True)
                own |= {f"{name}__{below}": part for below, part in inner.items()}
        return own

    @classmethod
    def _parameter_names(cls) -> list[str]:
        """Return the names of the parameters, a class's own before those it inherits."""
        declared = [vars(base).get("__annotations__", {}) for base in cls.__mro__]
        names = inspect.signature(cls).parameters
        return sorted(names, key=lambda name: [name in some for some in declared], reverse=True)

    def _parameter_value(self, name: str) -> Any:
        """Return the value of a parameter, as the constructor takes it."""
        return getattr(self, name, _MISSING)

    def _parameter_default(self, name: str) -> Any:
        found = inspect.signature(type(self)).parameters.get(name)
        return None if found is None else found.default

    def _repr_facts(self) -> Mapping[str, object]:
        table = self._repr_table().items()
        return {n: v for n, v in table if not alike(v, self._parameter_default(n))}

    def _repr_table(self) -> Mapping[str, object]:
        names = [name for name in self._parameter_names() if name not in SURROUNDINGS]
        values = {name: self._parameter_value(name) for name in names}
        return {name: value for name, value in values.items() if value is not _MISSING}


def alike(one: object, other: object) -> bool:
    """Return whether two parameter values are equal; components are compared by parameters."""
    if isinstance(one, Part) and isinstance(other, Part):
        ours, theirs = one._repr_table(), other._repr_table()
        same = type(one) is type(other) and ours.keys() == theirs.keys()
        return same and all(alike(value, theirs[name]) for name, value in ours.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
