"""User-defined encoders: any function from texts to rows of numbers, with a name and a version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.tables.values import Block, Matrix, WideEncoder, texts

# Registered by plugins, so that the command line finds encoders by name.
_registered: dict[str, Encoder] = {}


@dataclass(frozen=True, repr=False)
class Encoder:
    """A named function that turns texts into features.

    A learner's folder keeps the name and version, not the function: opening it for writing requires
    the same encoder again.

    Attributes:
        name: name of the encoder, such as ``mini-lm``.
        version: version of its model; another version is another encoder.
        of: takes a list of texts, returns one row of finite numbers for each.  float [texts, width]

    >>> lengths = Encoder.named("length", version="1", of=lambda texts: [[len(t)] for t in texts])
    >>> lengths
    Encoder('length', version='1')
    """

    name: str
    version: str
    of: Callable[[list[str]], Any] = field(compare=False)

    @classmethod
    def named(cls, name: str, *, version: str, of: Callable[[list[str]], Any]) -> Encoder:
        """Return an encoder; call ``register`` to make it available by name."""
        if not callable(of):
            raise ConfigurationError(f"the encoder {name!r} must be a function, not {of!r}")
        return cls(str(name), str(version), of)

    def register(self) -> Encoder:
        """Make it available by name, for example in a plugin for ``--column title=mini-lm``."""
        _registered[self.name] = self
        return self

    def __repr__(self) -> str:
        return f"Encoder({self.name!r}, version={self.version!r})"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def registered(kind: str | Encoder) -> Encoder | None:
    """Return the given encoder, or the registered one with this name, None if there is none."""
    return kind if isinstance(kind, Encoder) else _registered.get(kind)


@dataclass(frozen=True)
class OwnEncoder(WideEncoder):
    """Texts encoded by a user's function; a gap is a row of zeros."""

    encoder: Encoder
    kind = "own"

    @classmethod
    def fit(cls, values: Any, name: str, encoder: Encoder) -> OwnEncoder:
        """Determine the width from the first text."""
        known = texts(values, name).drop_null()[:1].to_pylist()
        return cls(_rows(encoder, known or [""], None).shape[1], encoder)

    def __str__(self) -> str:
        return f"by {self.encoder}"

    def encode(self, values: Any, name: str, *, before: int = 0) -> Block:
        """Return the function's rows for the texts."""
        found = texts(values, name)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        matrix = np.zeros((len(found), self.dims), np.float32)
        if known.any():
            matrix[known] = _rows(self.encoder, found.drop_null().to_pylist(), self.dims)
        return Block(matrix, gaps=~known)

    def to_json(self) -> dict[str, Any]:
        """Return name, version and width."""
        return {"name": self.encoder.name, "version": self.encoder.version, "dims": self.dims}

    @classmethod
    def from_json(cls, values: dict[str, Any], encoders: Iterable[Encoder]) -> OwnEncoder:
        """Return it with the encoder of the saved name and version; raise if it is missing."""
        wanted = str(values["name"]), str(values["version"])
        there = [*encoders, *_registered.values()]
        for encoder in there:
            if (encoder.name, encoder.version) == wanted:
                return cls(int(values["dims"]), encoder)
        raise ConfigurationError(
            f"its columns need the encoder {wanted[0]!r} of version {wanted[1]!r}, which "
            f"is missing: given {', '.join(map(repr, there)) or 'no encoder'}"
        )


def _rows(encoder: Encoder, found: Sequence[str], dims: int | None) -> Matrix:
    """Return an encoder's rows for texts; raise unless they are rows of finite numbers."""
    rows = np.asarray(encoder.of(list(found)), dtype=np.float32)
    sound = rows.ndim == 2 and len(rows) == len(found) and rows.shape[1] > 0
    if not sound or (dims is not None and rows.shape[1] != dims):
        width = "width" if dims is None else dims
        raise DataError(
            f"the encoder {encoder.name!r} returned an array of shape {rows.shape} for "
            f"{len(found)} texts: expected [{len(found)}, {width}]"
        )
    if not np.isfinite(rows).all():
        raise DataError(f"the encoder {encoder.name!r} returned numbers that are not finite")
    return rows
