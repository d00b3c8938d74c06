"""What work costs on a machine: constants that were measured, and how they are read."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from evergraph.core.errors import DataError
from evergraph.core.written_aside import written_aside
from evergraph.datasets.base import default_cache

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN = "plan-constants.json"  # in the cache of datasets: what ``evergraph plan --measure`` found


@dataclass(frozen=True)
class GatherCost:
    """What an adjacency entry costs on one core, where rows are gathered from so many bytes.

    Attributes:
        bytes: of the array that rows are gathered from.
        entry_ns: of an entry, whatever its width.
        column_ns: more for every float32 column.
    """

    bytes: float
    entry_ns: float
    column_ns: float


@dataclass(frozen=True)
class Constants:
    """Measured costs; the units are told in constants.toml.

    Attributes:
        machine, cores: where they were measured, and on how many cores ``threads_*`` was.
        gather: of smaller arrays first.
        gather_speedup, product_speedup, cut_speedup: how many times as fast all cores are as one.
        cut_ns, row_byte_ns: of an entry that is looked at, and of a byte of features that is taken.
        value_ns: of a value that is scaled in memory.
        counting: (width, GFlop/s) of statistics; answering: the same of predictions.
        solving: GFlop/s of a Cholesky factor.
        step_s: of a step of training, beside its products.
        exam_s: of a set of test nodes, beside its products.
        process_bytes, start_s: of a process that has done nothing yet.
        cached_gbs, written_gbs, read_gbs: of files that stay in the system's cache, and of a disk.
        ray_start_s, ray_piece_s, ray_put_gbs: of Ray.
    """

    machine: str
    cores: int
    gather: tuple[GatherCost, ...]
    gather_speedup: float
    product_speedup: float
    cut_speedup: float
    cut_ns: float
    row_byte_ns: float
    value_ns: float
    counting: tuple[tuple[float, float], ...]
    answering: tuple[tuple[float, float], ...]
    solving: float
    step_s: float
    exam_s: float
    process_bytes: float
    start_s: float
    cached_gbs: float
    written_gbs: float
    read_gbs: float
    ray_start_s: float
    ray_piece_s: float
    ray_put_gbs: float

    def gather_ns(self, columns: float, gathered_bytes: float) -> float:
        """Return what an entry and hop costs on one core, in nanoseconds.

        Between two sizes that were measured, costs lie on a line over the logarithm of bytes:
        caches are left behind by and by. Beyond the last they stay.
        """
        points = self.gather
        entry = interpolated([(g.bytes, g.entry_ns) for g in points], gathered_bytes)
        column = interpolated([(g.bytes, g.column_ns) for g in points], gathered_bytes)
        return entry + column * columns

    def speedup(self, measured: float, threads: int) -> float:
        """Return how many times as fast so many threads are as one.

        Each beyond the first adds what it was measured to add on ``cores``.

        >>> c = read_constants()
        >>> c.speedup(1.0 * c.cores, 1), c.speedup(1.0 * c.cores, 16)
        (1.0, 16.0)
        """
        if self.cores == 1:
            return float(threads)
        return 1 + (threads - 1) * max(measured - 1, 0.0) / (self.cores - 1)


def interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    """Return the value at a place, on lines over the logarithm of places; the ends go on flat.

    >>> interpolated([(1, 10.0), (100, 20.0)], 10), interpolated([(1, 10.0), (100, 20.0)], 1e9)
    (15.0, 20.0)
    """
    if at <= points[0][0]:
        return points[0][1]
    for (low, first), (high, second) in pairwise(points):
        if at <= high:
            share = math.log(at / low) / math.log(high / low)
            return first + share * (second - first)
    return points[-1][1]


def read_constants(cache: Path | None = None) -> Constants:
    """Return what was measured on this machine, or what came with the installation."""
    own = (default_cache() if cache is None else cache) / OWN
    if own.is_file():
        try:
            return constants_of(json.loads(own.read_text("utf-8")))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{own}: cannot be read ({error}): measure again by evergraph plan --measure"
            ) from None
    text = resources.files(__package__).joinpath("constants.toml").read_text("utf-8")
    return constants_of(tomllib.loads(text))


def constants_of(values: dict[str, Any]) -> Constants:
    """Return the record of plain values."""
    gather = tuple(GatherCost(*point) for point in values["gather"])
    tables = {name: tuple(map(tuple, values[name])) for name in ("counting", "answering")}
    return Constants(**values | {"gather": gather} | tables)


def write_constants(constants: Constants, cache: Path | None = None) -> Path:
    """Keep what was measured; return where."""
    path = (default_cache() if cache is None else cache) / OWN
    path.parent.mkdir(parents=True, exist_ok=True)
    values = asdict(constants)
    values["gather"] = [[g.bytes, g.entry_ns, g.column_ns] for g in constants.gather]
    with written_aside(path) as file:
        file.write(json.dumps(values, indent=2).encode())
    return path
