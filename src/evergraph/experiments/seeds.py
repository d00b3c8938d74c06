"""Seeds of a run, given as ``seed``, ``seeds`` or ``repeats``.

Importing this module loads neither torch nor pydantic.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from evergraph.core.errors import ConfigurationError, check_integer

SEEDING = ("seed", "seeds", "repeats")


def with_seeds(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with ``seed`` or ``repeats`` replaced by ``seeds``.

    >>> with_seeds({"seed": 5}), with_seeds({"repeats": 3}), with_seeds({"seeds": (7, 8)})
    ({'seeds': [5]}, {'seeds': [0, 1, 2]}, {'seeds': [7, 8]})
    >>> with_seeds({"seed": 5, "repeats": 3})
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: only one of seed, seeds and repeats can be given, \
not seed and repeats
    """
    given = [key for key in SEEDING if values.get(key) is not None]
    rest = {name: value for name, value in values.items() if name not in SEEDING}
    if not given:
        return rest
    if len(given) > 1:
        said = f"only one of seed, seeds and repeats can be given, not {' and '.join(given)}"
        raise ConfigurationError(said)
    [key] = given
    value = values[key]
    if key == "repeats":
        check_integer("repeats", value, least=1)
        return rest | {"seeds": list(range(operator.index(value)))}
    if key == "seed":
        check_integer("seed", value, least=0)
        return rest | {"seeds": [operator.index(value)]}
    if isinstance(value, int):
        rule = f"write seed = {value}, or repeats = {value} for that many seeds"
        raise ConfigurationError(f"seeds must be a list such as [0], not {value}: {rule}")
    if isinstance(value, Iterable) and not isinstance(value, str):
        value = list(value)
    return rest | {"seeds": value}
