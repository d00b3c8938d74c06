"""What a user decides of columns, before the first table is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from evergraph.core.checks import check_choice, check_integer
from evergraph.core.errors import ConfigurationError, did_you_mean
from evergraph.tables.own import Encoder, is_encoder, registered

KINDS = ("number", "raw", "boolean", "category", "text", "date", "list", "skip")
OTHERS = "*"  # stands for all columns that are not named
LARGEST_WIDTH = 512  # signs in one digest


@dataclass(frozen=True)
class Columns:
    """How the columns of tables are to be read, where it is not to be guessed.

    Attributes:
        kinds: of columns, by name: one of ``KINDS``, an ``Encoder`` of one's own or its name; that
            of ``*`` is for all columns that are not named. ``number`` is scaled, ``raw`` is not.
        gaps: ``flag`` fills them and tells of them in a column more; ``refuse`` raises.
        fill: ``median`` fills a gap among numbers with the median of the first table, which a later
            delta can do as well; ``neighbours`` with the mean of its neighbours, which only a
            graph that is read whole knows.
        strict: whether a category that the first table had not is refused.
        text_width: how many features a text becomes, a multiple of 8.

    >>> Columns(kinds={"zip": "categry"})
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: column 'zip' cannot be read as 'categry': choose one \
of number, raw, boolean, category, text, date, list, skip, or an encoder of your own
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
                f"text_width must be a multiple of 8 of at most {LARGEST_WIDTH}, "
                f"not {self.text_width}"
            )
        for name, kind in self.kinds.items():
            if kind not in KINDS and not is_encoder(kind):
                raise ConfigurationError(
                    f"column {name!r} cannot be read as {kind!r}: choose one of "
                    f"{', '.join(KINDS)}, or an encoder of your own"
                )

    def check_names(self, names: Collection[str]) -> None:
        """Raise if a kind is named of what is no feature column."""
        for name in self.kinds:
            if name not in (*names, OTHERS):
                raise ConfigurationError(
                    f"columns names {name!r}, which is no feature column: "
                    f"{did_you_mean(name, names)}there are {', '.join(names)}"
                )

    def check_fill(self, what: str, why: str) -> None:
        """Raise if gaps are to be filled from neighbours where that cannot be done.

        what: is being made, such as ``a learner``.
        """
        if self.fill == "neighbours":
            raise ConfigurationError(f"fill must be 'median' for {what}, not 'neighbours': {why}")

    @property
    def reads_texts(self) -> bool:
        """Whether a kind is named that needs columns as they are written, such as ``007``."""
        return any(kind not in ("number", "raw", "skip") for kind in self.kinds.values())

    def kind_of(self, name: str) -> str | Encoder | None:
        """Return what a column is to be read as; None where it is to be guessed.

        >>> Columns({"*": "raw", "zip": "category"}).kind_of("age")
        'raw'
        """
        return self.kinds.get(name, self.kinds.get(OTHERS))

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """The encoders of one's own among them."""
        found = (registered(kind) for kind in self.kinds.values() if is_encoder(kind))
        return tuple(encoder for encoder in found if encoder is not None)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it; encoders of one's own by name and version."""
        kinds = {
            name: str(registered(kind) or kind) if is_encoder(kind) else kind
            for name, kind in self.kinds.items()
        }
        return {**vars(self), "kinds": kinds}


def columns_of(value: Columns | Mapping[str, str | Encoder] | None) -> Columns:
    """Return choices from what a user gives: themselves, kinds by name, or nothing.

    >>> columns_of({"zip": "category"}).kinds
    {'zip': 'category'}
    """
    if isinstance(value, Columns):
        return value
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"columns must be kinds by name or Columns, not {value!r}")
    return Columns(kinds=dict(value or {}))
