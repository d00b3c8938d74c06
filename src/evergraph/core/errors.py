"""Every exception a user can meet.

    EvergraphError
    ├── ConfigurationError      a parameter breaks its rule
    │   └── UnknownNameError    a name that no component has; lists the names that exist
    ├── DataError               a graph or a file is not what it should be
    │   ├── DownloadError       a dataset could not be fetched
    │   ├── WrongFileError      a file that was fetched has other bytes than it should have
    │   ├── UnknownNodeError    an id that no node of the graph has
    │   │   └── LooseEdgeError  an edge to such an id
    │   ├── UnknownEdgeError    an edge that the graph does not have
    │   ├── DuplicateNodeError  an id that a node of the graph has already
    │   ├── NothingLearnedError an answer is asked for before any label has come
    │   ├── KeyReusedError      a delta has the key of another one
    │   └── DroppedError        deltas are asked for that only a snapshot holds
    ├── ResultsError            a results folder holds something else than expected
    ├── TaskClosedError         a learner reached for a task that is over
    ├── DivergedError           training ended in numbers that are not finite
    ├── DeviceError             the device asked for is not there
    ├── LockedError             another process is at work in a folder
    ├── StoppedError            a learner's folder takes no more deltas
    ├── TooMuchError            a delta asks for more than it may
    ├── ResourceError           memory or disk does not suffice
    └── ClusterError            a Ray cluster is gone, or a machine that it needs

A message is one sentence that names the parameter or file, the rule and the value.
The command line prints it and exits with ``EXIT_CODE``.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

EXIT_CODE = 2
MOST_NAMED = 40  # names in one sentence


def nearest(name: object, choices: Iterable[str]) -> str:
    """Return the name that is most like another, empty where none is near.

    >>> nearest("neigbours", ["hops", "neighbours"]), nearest("zzz", ["hops"])
    ('neighbours', '')
    """
    return next(iter(get_close_matches(str(name), list(choices), n=1)), "")


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """Return the nearest of some names as a question, empty where none is near.

    >>> did_you_mean("neigbours", ["hops", "neighbours"])
    "did you mean 'neighbours'? "
    """
    near = nearest(name, choices)
    return f"did you mean {near!r}? " if near else ""


class EvergraphError(Exception):
    """Base of every error raised on purpose by evergraph."""


class ConfigurationError(EvergraphError):
    """A parameter breaks its rule."""


class UnknownNameError(ConfigurationError):
    """A name that no registered component has.

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
            offer = f"of {len(known)} the nearest are {', '.join(nearest)}"
        super().__init__(f"unknown {kind} {name!r}: {hint}{offer}")


class DataError(EvergraphError):
    """A graph or a file is not what it should be."""


class DownloadError(DataError):
    """A dataset could not be fetched."""


class WrongFileError(DataError):
    """A file that was fetched has other bytes than it should have."""


class UnknownNodeError(DataError):
    """An id that no node of the graph has; that of a forgotten node is one."""


class LooseEdgeError(UnknownNodeError):
    """An edge to an id that no node of the graph has."""


class UnknownEdgeError(DataError):
    """An edge that the graph does not have, or not any more."""


class DuplicateNodeError(DataError):
    """An id that a node of the graph has already, or that is given twice."""


class NothingLearnedError(DataError):
    """An answer is asked for before any label has come."""


class KeyReusedError(DataError):
    """A delta has the key of another one, which was applied before."""


class DroppedError(DataError):
    """Deltas are asked for that a journal has dropped, since a snapshot holds them."""


class ResultsError(EvergraphError):
    """A results folder holds something else than expected."""


class TaskClosedError(EvergraphError):
    """A learner reached for the data of a task that is over."""


class DivergedError(EvergraphError):
    """Training ended in a loss or in weights that are not finite."""


class DeviceError(EvergraphError):
    """The device asked for is not there."""


class LockedError(EvergraphError):
    """Another process is at work in a folder: a learner's, or one of results."""


class StoppedError(EvergraphError):
    """A learner's folder takes no more deltas."""


class TooMuchError(EvergraphError):
    """A delta asks for more than one may; nothing of it was taken in."""


class ResourceError(EvergraphError):
    """Memory or disk does not suffice."""


class ClusterError(EvergraphError):
    """A Ray cluster is gone, or a machine of it that is needed."""
