"""FOLDER/columns.json: how the columns of tables are read, fitted on the first table.

It is written before the first delta that uses it, and stays: a learner that has nodes but no such
file began with plain numbers and stays with them. It stores hashes of categories. A file of an
earlier version, which has their names, is rewritten without them by the next purge.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.written_aside import written_aside
from evergraph.online.folder.markers import (
    ACKNOWLEDGED_FILE,
    CHECK,
    acknowledged_in,
    read_checked,
    with_check,
)
from evergraph.tables.choices import OTHERS, Columns
from evergraph.tables.hashed import without_names
from evergraph.tables.own import Encoder, registered
from evergraph.tables.scheme import Scheme

COLUMNS_FILE = "columns.json"
FIELDS = {"format", "columns", "strict", "refuse_gaps", CHECK}


def stored_columns(folder: Path, encoders: Iterable[Encoder] = ()) -> Scheme | None:
    """Return how a folder's tables are read; None for plain numbers.

    encoders: custom encoders that the first table was read with.
    """
    path = folder / COLUMNS_FILE
    if not path.exists():
        return None
    content = read_checked(path)
    if other := sorted(content.keys() - FIELDS):
        raise DataError(f"{path}: has the unknown field {other[0]!r}")
    try:
        return Scheme.from_json(content, encoders)
    except (ValueError, AttributeError, DataError) as error:
        raise DataError(f"{path}: cannot be read ({error}): restore it from a backup") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path.parent}: {error}") from None


def store_columns(folder: Path, scheme: Scheme | None) -> None:
    """Store how a folder's tables are read; None for plain numbers."""
    if scheme is None:
        (folder / COLUMNS_FILE).unlink(missing_ok=True)
        return
    _write(folder, scheme.to_json())


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    with disk_is_enough(folder), written_aside(folder / COLUMNS_FILE) as file:
        file.write(json.dumps(with_check(content)).encode())


def drop_names(folder: Path) -> None:
    """Rewrite the file if an earlier version left the names of categories in it.

    It is read as JSON, not as a scheme, which may need encoders that are not available.
    """
    path = folder / COLUMNS_FILE
    if not path.exists():
        return
    content = read_checked(path)
    kept = [each | {"encoder": without_names(each["encoder"])} for each in content["columns"]]
    if kept != content["columns"]:
        _write(folder, content | {"columns": kept})


def columns_for(folder: Path, choices: Columns) -> Scheme | Columns | None:
    """Return how to read a table for a folder: its scheme, None for plain, or choices to fit.

    A scheme left by a process that was killed before the first delta is ignored.
    """
    if not acknowledged_in(folder / ACKNOWLEDGED_FILE):
        return choices
    scheme = stored_columns(folder, choices.encoders)
    check_chosen(folder, scheme, choices)
    return scheme


def check_chosen(where: object, scheme: Scheme | None, choices: Columns) -> None:
    """Raise if choices contradict what the first table has fixed.

    Equal choices may be repeated, as when a stopped command is run again. A learner of plain
    numbers (no scheme) has no categories and accepts no gaps.
    """
    kinds = {} if scheme is None else scheme.kinds
    if scheme is None and choices.kinds.get(OTHERS, "raw") != "raw":
        raise ConfigurationError(
            f"{where}: columns cannot be read as {choices.kinds[OTHERS]!r}: they have been plain "
            "numbers since the first table"
        )
    for name in dict.fromkeys((*choices.kinds, *kinds)):
        kind = None if name == OTHERS else choices.kind_of(name)
        if kind is not None and kinds.get(name) != str(registered(kind) or kind):
            there = kinds.get(name, "a plain number" if scheme is None else "no column")
            raise ConfigurationError(
                f"{where}: column {name!r} cannot be read as {str(kind)!r}: it has been {there} "
                "since the first table"
            )
    if scheme is None:
        return
    for option in ("gaps", "strict", "text_width"):
        value = getattr(choices, option)
        if value not in (getattr(Columns(), option), getattr(scheme, option)):
            raise ConfigurationError(
                f"{where}: {option} cannot be {value!r}: it has been {getattr(scheme, option)!r} "
                "since the first table"
            )
