"""Base of all components: keyword parameters by name.

Importing this module does not load torch.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from evergraph.core.display import Shown
from evergraph.core.errors import ConfigurationError

# Parameters that a component works with but that do not define it: not shown.
SURROUNDINGS = ("generator", "resources", "on_epoch")
_MISSING = object()
Init = TypeVar("Init", bound=Callable[..., None])


def formerly(**names: str) -> Callable[[Init], Init]:
    """Make a constructor accept former parameter names for one version, with a warning.

    names: the new name of each former name.
    """

    def decorated(init: Init) -> Init:
        @wraps(init)
        def taking(self: Any, *given: Any, **named: Any) -> None:
            for old in names.keys() & named.keys():
                warn_renamed(f"{type(self).__name__}({old}=...)", names[old])
                named[names[old]] = named.pop(old)
            init(self, *given, **named)

        taking.formerly = names  # type: ignore[attr-defined]
        return cast("Init", taking)

    return decorated


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller's caller that a name has changed."""
    said = f"{old} is now called {new}; the old name works for one more version"
    warnings.warn(said, DeprecationWarning, stacklevel=3)


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
    """

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the constructor's parameters: ``type(part)(**part.get_params())`` makes a copy.

        deep: also return those of inner components, as ``outer__inner``.
        """
        own: dict[str, Any] = {}
        for name in inspect.signature(type(self)).parameters:
            own[name] = value = self._parameter_value(name)
            if value is _MISSING:
                raise ConfigurationError(
                    f"{type(self).__name__} must store its parameter {name!r} under that name"
                )
        for name, value in list(own.items()) if deep else ():
            if isinstance(value, Part):
                inner = value.get_params(deep=True)
                own |= {f"{name}__{below}": part for below, part in inner.items()}
        return own

    def _parameter_value(self, name: str) -> Any:
        """Return the value of a parameter, as the constructor takes it."""
        return getattr(self, name, _MISSING)

    def _parameter_default(self, name: str) -> Any:
        return inspect.signature(type(self)).parameters[name].default

    def _repr_facts(self) -> Mapping[str, object]:
        return {
            n: v for n, v in self._repr_table().items() if not alike(v, self._parameter_default(n))
        }

    def _repr_table(self) -> Mapping[str, object]:
        names = [n for n in inspect.signature(type(self)).parameters if n not in SURROUNDINGS]
        values = {name: self._parameter_value(name) for name in names}
        return {name: value for name, value in values.items() if value is not _MISSING}


def alike(one: object, other: object) -> bool:
    """Return whether two parameter values are equal; components are compared by parameters.

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
