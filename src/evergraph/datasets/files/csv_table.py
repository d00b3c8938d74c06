"""A CSV and how it is written: what stands between columns, and before the fraction of a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.core.checks import check_choice
from evergraph.core.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow

DECIMALS = (".", ",")
_COMMA_NUMBER = r"^\s*([-+]?\d*),(\d+(?:[eE][-+]?\d+)?)\s*$"


@dataclass(frozen=True)
class CsvTable:
    """What stands in the place of a path where a CSV is not written in the usual way.

    Attributes:
        path: of the file.
        delimiter: one sign between columns; ``tab`` and ``\\t`` are a tabulator.
        decimal: ``.`` or ``,``; with ``,`` a value such as 3,5 is a number in every column but
            ids, labels and times.

    >>> str(CsvTable(Path("nodes.csv"), delimiter=";"))
    'nodes.csv'
    >>> CsvTable(Path("nodes.csv"), delimiter="::")
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: delimiter must be one sign, not '::'
    """

    path: Path
    delimiter: str = ","
    decimal: str = "."

    def __post_init__(self) -> None:
        if self.delimiter in ("tab", "\\t"):
            object.__setattr__(self, "delimiter", "\t")
        if len(self.delimiter) != 1 or not self.delimiter.isascii():
            raise ConfigurationError(f"delimiter must be one sign, not {self.delimiter!r}")
        check_choice("decimal", self.decimal, DECIMALS)
        if self.path.suffix == ".parquet":
            raise ConfigurationError(
                f"delimiter and decimal are for a CSV, and {self.path} is none"
            )

    @property
    def suffix(self) -> str:
        """How its name ends."""
        return self.path.suffix

    @property
    def name(self) -> str:
        """What it is called."""
        return self.path.name

    @property
    def written(self) -> str:
        """How it is written, where that is not the usual way; empty where it is."""
        usual = (self.delimiter, self.decimal) == (",", ".")
        return "" if usual else f" (delimiter {self.delimiter!r}, decimal {self.decimal!r})"

    def __str__(self) -> str:
        return str(self.path)

    def options(self, **convert: Any) -> dict[str, Any]:
        """Return how pyarrow is to read it.  convert: other options of conversion"""
        import pyarrow.csv as csv

        return {
            "parse_options": csv.ParseOptions(delimiter=self.delimiter),
            "convert_options": csv.ConvertOptions(decimal_point=self.decimal, **convert),
        }

    def hint(self) -> str:
        """Return what its first line tells of another delimiter; empty if nothing."""
        try:
            with self.path.open(encoding="utf-8", errors="replace") as file:
                return delimiter_hint(file.readline().rstrip().split(self.delimiter))
        except OSError:
            return ""

    def with_points(self, table: pyarrow.Table, apart: tuple[str, ...]) -> pyarrow.Table:
        """Return a table whose texts that are numbers have a point before the fraction.

        apart: columns that stay as they are.

        >>> import pyarrow as pa
        >>> german = CsvTable(Path("n.csv"), decimal=",")
        >>> german.with_points(pa.table({"f": ["-3,5", "a, b"]}), ())["f"].to_pylist()
        ['-3.5', 'a, b']
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.decimal == ".":
            return table
        for place, field in enumerate(table.schema):
            if field.name not in apart and pa.types.is_string(field.type):
                texts = pc.replace_substring_regex(table[field.name], _COMMA_NUMBER, r"\1.\2")
                table = table.set_column(place, field, texts)
        return table


def delimiter_hint(columns: Sequence[str]) -> str:
    """Return a question where all names of columns seem to be one; empty where they do not.

    >>> delimiter_hint(["id;label;size"]), delimiter_hint(["id", "label"])
    ("; is it written with --delimiter ';'?", '')
    """
    found = [sign for sign in ";\t|" if len(columns) == 1 and sign in columns[0]]
    return f"; is it written with --delimiter {found[0]!r}?" if found else ""


def as_csv(path: Path | CsvTable) -> CsvTable:
    """Return a CSV as it is written; a path alone is written in the usual way."""
    return path if isinstance(path, CsvTable) else CsvTable(path)
