"""Rules for parameters, with messages that name the parameter, the rule and the value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from pathlib import Path

from evergraph.core.errors import ConfigurationError, UnknownNameError


def check_integer(name: str, value: object, *, least: int) -> None:
    """Raise unless ``value`` is an integer of at least ``least``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise ConfigurationError(f"{name} must be an integer of at least {least}, not {value!r}")


def check_number(name: str, value: object, *, least: float, most: float = math.inf) -> None:
    """Raise unless ``value`` is a finite number within [least, most]."""
    sound = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))
    if not sound or not least <= float(value) <= most:  # type: ignore[arg-type]
        rule = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ConfigurationError(f"{name} must be a number {rule}, not {value!r}")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise UnknownNameError(name, value, choices)


def check_once(name: str, values: Iterable[object], *, remedy: str = "") -> None:
    """Raise if any of ``values`` occurs twice."""
    for value, count in Counter(values).items():
        if count > 1:
            raise ConfigurationError(f"{name} must differ, not have {value!r} twice{remedy}")


def check_directory(name: str, path: Path | None) -> None:
    """Raise if a folder is given that does not exist."""
    if path is not None and not path.is_dir():
        raise ConfigurationError(f"{name} must be an existing folder, not {path}")
