"""A user's choices for columns, made before the first table is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.errors import ConfigurationError, did_you_mean
from evergraph.tables.own import Encoder, registered

KINDS = ("number", "raw", "boolean", "category", "text", "date", "list", "skip")
OTHERS = "*"  # all columns that are not named
LARGEST_WIDTH = 512  # bits in one digest


@dataclass(frozen=True)
class Columns:
    """How to read the columns of tables. Columns without a choice are guessed.

    Attributes:
        kinds: kind of each column, by name: one of ``KINDS``, an ``Encoder``, or the name of a
            registered encoder. ``*`` applies to all columns that are not named. ``number`` is
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
of number, raw, boolean, category, text, date, list, skip, or use your own encoder
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
        for name, kind in self.kinds.items():
            if kind not in KINDS and registered(kind) is None:
                raise ConfigurationError(
                    f"column {name!r} cannot be read as {kind!r}: choose one of "
                    f"{', '.join(KINDS)}, or use your own encoder"
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
        found = map(registered, self.kinds.values())
        return tuple(encoder for encoder in found if encoder is not None)

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
