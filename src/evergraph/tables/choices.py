"""A user's choices for columns, made before the first table is read, and encoders of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    check_choice,
    check_integer,
    did_you_mean,
)
from evergraph.tables.values import LARGEST_WIDTH, Block, Matrix, WideEncoder, column_kinds, texts

OTHERS = "*"  # all columns that are not named
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
    name = "own"

    @classmethod
    def fitted(cls, values: Any, name: str, encoder: Encoder) -> OwnEncoder:
        """Determine the width from the first text."""
        known = texts(values, name).drop_null()[:1].to_pylist()
        return cls(_rows(encoder, known or [""], None).shape[1], encoder)

    def __str__(self) -> str:
        return f"by {self.encoder}"

    def encode(self, values: Any, name: str, *, before: int = 0) -> Block:
        column = texts(values, name)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        matrix = np.zeros((len(column), self.dims), np.float32)
        if known.any():
            matrix[known] = _rows(self.encoder, column.drop_null().to_pylist(), self.dims)
        return Block(matrix, gaps=~known)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.encoder.name, "version": self.encoder.version, "dims": self.dims}

    @classmethod
    def from_json(cls, values: dict[str, Any], encoders: Iterable[Encoder]) -> OwnEncoder:
        """Return it with the encoder of the saved name and version; raise if it is missing."""
        wanted = str(values["name"]), str(values["version"])
        available = [*encoders, *_registered.values()]
        for encoder in available:
            if (encoder.name, encoder.version) == wanted:
                return cls(int(values["dims"]), encoder)
        raise ConfigurationError(
            f"its columns need the encoder {wanted[0]!r} of version {wanted[1]!r}, which "
            f"is missing: given {', '.join(map(repr, available)) or 'no encoder'}"
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


@dataclass(frozen=True)
class Columns:
    """How to read the columns of tables. Columns without a choice are guessed.

    Attributes:
        kinds: kind of each column, by name: one of ``column_kinds``, an ``Encoder``, or the name
            of a registered encoder. ``*`` applies to all columns that are not named. ``number`` is
            scaled, ``raw`` is not.
        gaps: ``flag`` fills missing values and adds an indicator column; ``refuse`` raises.
        fill: ``median`` fills a missing number with the median of the first table, which also
            works for later deltas; ``neighbours`` with the mean of the node's neighbours, which
            needs the whole graph.
        strict: whether to refuse a category that is not in the first table.
        text_width: number of features per text, a multiple of 8.

    >>> Columns(kinds={"zip": "categry"})
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: column 'zip' cannot be read as 'categry': choose one \
of boolean, category, date, list, number, raw, skip, text, or use your own encoder
    """

    kinds: Mapping[str, str | Encoder] = field(default_factory=dict)
    gaps: str = "flag"
    fill: str = "median"
    strict: bool = False
    text_width: int = 128

    def __post_init__(self) -> None:
        check_choice("gaps", self.gaps, ("flag", "refuse"))
        check_choice("fill", self.fill, ("median", "neighbours"))
        check_integer("text_width", self.text_width, least=8)
        if self.text_width % 8 or self.text_width > LARGEST_WIDTH:
            raise ConfigurationError(
                f"text_width must be a multiple of 8 and at most {LARGEST_WIDTH}, "
                f"not {self.text_width}"
            )
        known = column_kinds.names()
        for name, kind in self.kinds.items():
            if kind not in known and registered(kind) is None:
                raise ConfigurationError(
                    f"column {name!r} cannot be read as {kind!r}: choose one of "
                    f"{', '.join(known)}, or use your own encoder"
                )

    def check_names(self, names: Collection[str]) -> None:
        """Raise if a kind is given for a name that is not a feature column."""
        for name in self.kinds:
            if name not in (*names, OTHERS):
                raise ConfigurationError(
                    f"columns names {name!r}, which is not a feature column: "
                    f"{did_you_mean(name, names)}the feature columns are {', '.join(names)}"
                )

    def check_fill(self, what: str, why: str) -> None:
        """Raise if gaps are to be filled from neighbours where that is impossible.

        what: the thing being made, such as ``a learner``.
        """
        if self.fill == "neighbours":
            raise ConfigurationError(f"fill must be 'median' for {what}, not 'neighbours': {why}")

    @property
    def reads_texts(self) -> bool:
        """Whether some kind needs columns exactly as written, such as ``007``."""
        return any(kind not in ("number", "raw", "skip") for kind in self.kinds.values())

    def kind_of(self, name: str) -> str | Encoder | None:
        """Return the chosen kind of a column, or None if it is to be guessed.

        >>> Columns({"*": "raw", "zip": "category"}).kind_of("age")
        'raw'
        """
        return self.kinds.get(name, self.kinds.get(OTHERS))

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The user's own encoders among the kinds."""
        encoders = map(registered, self.kinds.values())
        return tuple(encoder for encoder in encoders if encoder is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the choices for JSON, with own encoders by name and version."""
        kinds = {name: str(registered(kind) or kind) for name, kind in self.kinds.items()}
        return {**vars(self), "kinds": kinds}


def columns_of(value: Columns | Mapping[str, str | Encoder] | None) -> Columns:
    """Return ``Columns`` from a user's argument: ``Columns``, kinds by name, or None.

    >>> columns_of({"zip": "category"}).kinds
    {'zip': 'category'}
    """
    if isinstance(value, Columns):
        return value
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"columns must be a mapping of kinds or Columns, not {value!r}")
    return Columns(kinds=dict(value or {}))
