"""What users are told: exceptions, rules for parameters that raise them, and warnings.

All exceptions are derived from ``EvergraphError``. A message is one sentence that names the
parameter or file, the rule and the value. The command line prints it and exits with ``EXIT_CODE``.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from pathlib import Path

logger = logging.getLogger("evergraph.notices")  # for warnings; errors are raised
EXIT_CODE = 2
MOST_NAMED = 40  # most names in one sentence
MAX_NAMES_LISTED = 12  # most names shown in a table; the rest are counted


def listed(names: Sequence[object]) -> str:
    """Return comma-separated names, and the number of names left out."""
    more = f" and {len(names) - MAX_NAMES_LISTED} more" if len(names) > MAX_NAMES_LISTED else ""
    return ", ".join(str(name) for name in names[:MAX_NAMES_LISTED]) + more


def nearest(name: object, choices: Iterable[str]) -> str:
    """Return the most similar of some names; empty if none is similar."""
    return next(iter(get_close_matches(str(name), list(choices), n=1)), "")


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """Return the most similar of some names as a question; empty if none is similar.

    >>> did_you_mean("neigbours", ["hops", "neighbours"])
    "did you mean 'neighbours'? "
    """
    similar = nearest(name, choices)
    return f"did you mean {similar!r}? " if similar else ""


class EvergraphError(Exception):
    """Base of every error raised on purpose by evergraph."""


class ConfigurationError(EvergraphError):
    """A parameter breaks its rule."""


class UnknownNameError(ConfigurationError):
    """A name is unknown.

    >>> raise UnknownNameError("sampler", "coverge", ["coverage", "uniform"])
    Traceback (most recent call last):
    evergraph.core.errors.UnknownNameError: unknown sampler 'coverge': did you mean 'coverage'? \
choose one of coverage, uniform
    """

    def __init__(self, kind: str, name: object, choices: Iterable[str]) -> None:
        known = sorted(choices)
        hint = did_you_mean(name, known)
        offer = f"choose one of {', '.join(known)}"
        if len(known) > MOST_NAMED:
            nearest = get_close_matches(str(name), known, n=8, cutoff=0.0)
            offer = f"the nearest of {len(known)} are {', '.join(nearest)}"
        super().__init__(f"unknown {kind} {name!r}: {hint}{offer}")


class DataError(EvergraphError):
    """A graph or a file is not valid."""


class DownloadError(DataError):
    """A dataset could not be fetched."""


class WrongFileError(DataError):
    """A fetched file has a wrong checksum."""


class UnknownNodeError(DataError):
    """An id is not in the graph; this includes forgotten nodes."""


class LooseEdgeError(UnknownNodeError):
    """An edge leads to an id that is not in the graph."""


class UnknownEdgeError(DataError):
    """An edge is not in the graph, or no longer."""


class DuplicateNodeError(DataError):
    """An id is already in the graph, or is given twice."""


class InvalidRowsError(DataError, ValueError, TypeError):
    """Rows or targets given in scikit-learn's manner are not valid."""


class NothingLearnedError(DataError):
    """A prediction is requested before any label."""


class KeyReusedError(DataError):
    """A delta has the key of another one, which was applied before."""


class ResultsError(EvergraphError):
    """A results folder has unexpected contents."""


class TaskClosedError(EvergraphError):
    """A learner accessed the data of a task that is over."""


class DivergedError(EvergraphError):
    """Training ended in a loss or in weights that are not finite."""


class DeviceError(EvergraphError):
    """The requested device is not available."""


class LockedError(EvergraphError):
    """Another process uses a folder of a learner or of results."""


class StoppedError(EvergraphError):
    """A learner's folder accepts no more deltas."""


class TooMuchError(EvergraphError):
    """A delta exceeds a limit; nothing of it was applied."""


class ResourceError(EvergraphError):
    """Memory or disk space is insufficient."""


class ClusterError(EvergraphError):
    """A Ray cluster, or a machine that it needs, is lost."""


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


def say(where: object, sentence: str) -> None:
    """Log one line as a warning: the source, and a sentence.

    Python shows warnings by default; the command line writes them to stderr.
    """
    logger.warning("%s: %s", where, sentence)


@cache
def say_once(where: object, sentence: str) -> None:
    """Log a line at most once per process."""
    say(where, sentence)


def say_ignored(
    where: object, what: str, names: Iterable[object], why: str, *, once: bool = False
) -> None:
    """Log that something was given but is not used; log nothing if there are no names.

    where: a file or an object; what: such as ``column``; why: the reason; once: at most once per
    process.
    """
    quoted = [repr(name) for name in names]
    if quoted:
        many = len(quoted) > 1
        ignored = (
            f"{what}{'s' if many else ''} {', '.join(quoted)} {'are' if many else 'is'} ignored"
        )
        (say_once if once else say)(where, f"{ignored}: {why}")
