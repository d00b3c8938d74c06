"""Options that say how tables are written, shared by every command that reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from evergraph.cli.inputs import tables_of

if TYPE_CHECKING:
    from evergraph.tables.names import ColumnNames
    from evergraph.tables.sources import Source


def _column(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar="COLUMN", help=f"Column {what} (default: {name}).")


@dataclass(frozen=True)
class ColumnOptions:
    """The user's names of columns."""

    id_column: Annotated[str | None, _column("id", "of node ids")] = None
    label_column: Annotated[str | None, _column("label", "of labels")] = None
    source_column: Annotated[str | None, _column("source", "where edges begin")] = None
    target_column: Annotated[str | None, _column("target", "where edges end")] = None
    weight_column: Annotated[str | None, _column("weight", "of edge weights")] = None

    @property
    def names(self) -> ColumnNames:
        """The names that were given, by ours."""
        ours = ("id", "label", "source", "target", "weight")
        given = {name: getattr(self, f"{name}_column") for name in ours}
        return cast("ColumnNames", {ours: theirs for ours, theirs in given.items() if theirs})


@dataclass(frozen=True)
class TableOptions(ColumnOptions):
    """The user's names of columns, and how a CSV is written."""

    delimiter: Annotated[str, typer.Option(help="Column separator of a CSV, such as ;.")] = ","
    decimal: Annotated[str, typer.Option(help="Decimal mark of a CSV: . or ,")] = "."
    encoding: Annotated[str, typer.Option(help="Encoding of a CSV, such as latin-1.")] = "utf-8"

    def tables(
        self,
        nodes: str | None,
        edges: str | None,
        *,
        database: str | None = None,
        pipe: str | None = None,
    ) -> tuple[Source | None, Source | None]:
        """Return the tables of nodes and of edges; database, pipe: as in ``tables_of``."""
        return tables_of(
            nodes,
            edges,
            database=database,
            delimiter=self.delimiter,
            decimal=self.decimal,
            encoding=self.encoding,
            pipe=pipe,
            names=self.names,
        )


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Spread each parameter of a command that is a record of options into these options."""
    hints = get_type_hints(command, include_extras=True)
    records: dict[str, Any] = {n: kind for n, kind in hints.items() if is_dataclass(kind)}
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if (record := records.get(parameter.name)) is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        options = get_type_hints(record, include_extras=True)
        parameters += [
            parameter.replace(name=each.name, annotation=options[each.name], default=each.default)
            for each in fields(record)
        ]

    @wraps(command)
    def called(**given: Any) -> None:
        made = {
            name: record(**{each.name: given.pop(each.name) for each in fields(record)})
            for name, record in records.items()
        }
        command(**given, **made)

    del called.__wrapped__
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called
