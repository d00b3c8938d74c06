"""Columns of targets: one class, several labels, or numbers to predict.

``label``: text, integers or booleans, whose classes are ``true`` and ``false``. ``labels``: texts
separated by semicolons, such as ``art;law``, or a list of texts in Parquet. Labels are unknown if
the field is empty or holds a spelling of a missing ``label``; ``;`` alone, or an empty list, means
that the node has none. ``target``, or several columns ``target_...``: numbers; a gap is an unknown
value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.errors import DataError, nearest, say
from evergraph.core.targets import OneClass
from evergraph.core.targets.one_class import alike
from evergraph.graphs import UNLABELLED
from evergraph.tables.arrow import pa, pc
from evergraph.tables.columns import as_integers, is_number, is_text, mixed, parsed, wrong_value

# Common names of label columns elsewhere.
MEANT = ("class", "classes", "target", "targets", "y", "category", "group", "outcome", "labels")
# Exact texts for a missing label, as databases, pandas, R and Excel write them.
SPELLINGS = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "\\N")
LABELS, TARGET, TARGETS = "labels", "target", "target_"
BETWEEN = ";"
_MAX_PAIRS_NAMED = 5  # pairs of classes that are named


def filled(values: pa.Array) -> pa.Array:
    """Return texts with blanks stripped, null if they are empty or spell a missing value.

    >>> import pyarrow as pa
    >>> filled(pa.array([" 7", "", "NULL", None])).to_pylist()
    ['7', None, None, None]
    """
    return _without_missing(pc.utf8_trim_whitespace(values))


def _without_missing(values: pa.Array) -> pa.Array:
    """Return texts, null if they are empty or spell a missing value, blanks aside."""
    trimmed = pc.utf8_trim_whitespace(values)
    missing = pc.is_in(trimmed, value_set=pa.array(["", *SPELLINGS], trimmed.type))
    return pc.if_else(missing, pa.scalar(None, values.type), values)


def boolean_name(value: bool) -> str:
    """Return the class of a boolean, spelled as in JSON, SQL and Arrow.

    >>> boolean_name(True), boolean_name(False)
    ('true', 'false')
    """
    return "true" if value else "false"


def label_values(
    values: pa.Array, *, guess: bool, before: int = 0, rows: NDArray[Any] | None = None
) -> pa.Array:
    """Return labels as text or int64, null if a node has none.  [rows]

    Missing labels are null, an empty text, one of ``SPELLINGS``, NaN among numbers, and -1.

    guess: whether texts that are all numbers become numbers, and texts such as ``True`` booleans,
    as in a CSV, which has no types; before, rows: as in ``as_integers``.

    >>> import pyarrow as pa
    >>> label_values(pa.array(["3", "NULL", "1.0", ""]), guess=True).to_pylist()
    [3, None, 1, None]
    >>> label_values(pa.array(["art", "\\\\N", "none"]), guess=True).to_pylist()
    ['art', None, 'none']
    """
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.string())
    if pa.types.is_union(kind):
        return mixed([one_label(value) for value in values.to_pylist()])
    if is_text(kind):
        # Only a CSV has blanks that mean nothing, as after its commas.
        values = filled(values) if guess else _without_missing(values)
        encoded = values.dictionary_encode()
        kinds = (pa.int64(), pa.float64()) if guess else ()
        read = (parsed(encoded.dictionary, number) for number in kinds)
        numbers = next((found for found in read if found is not None), None)
        if numbers is None:
            small = pc.utf8_lower(values)
            names = pa.array([boolean_name(True), boolean_name(False)], small.type)
            return pc.if_else(pc.is_in(small, value_set=names), small, values) if guess else values
        values = numbers.take(encoded.indices)
    elif pa.types.is_floating(kind):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values)
    elif not pa.types.is_integer(kind) and not pa.types.is_null(kind):
        raise DataError(f"column 'label' holds {kind}: expected text or integers")
    whole = as_integers(values, "label", before=before, rows=rows)
    row = pc.index(pc.less(whole, UNLABELLED), True).as_py()
    if row >= 0:
        before = before if rows is None else int(rows[row]) - row
        rule = f"a class >= 0, or {UNLABELLED} for none"
        raise wrong_value(whole, row, "label", rule, before=before)
    return pc.if_else(pc.equal(whole, UNLABELLED), pa.scalar(None, pa.int64()), whole)


def class_names(values: pa.Array) -> tuple[str, ...]:
    """Return the class names, by number, of labels from ``label_values``."""
    if not is_text(values.type):
        return ()
    return tuple(sorted({name for name in pc.unique(values).to_pylist() if name is not None}))


def numbered(values: pa.Array) -> Tensor:
    """Return the class numbers of labels from ``label_values``.  int64 [rows]"""
    if is_text(values.type):
        names = class_names(values)
        values = pc.index_in(values, value_set=pa.array(names, type=values.type)).cast(pa.int64())
    return torch.from_numpy(values.fill_null(UNLABELLED).to_numpy().copy())


def numbered_labels(labels: Sequence[Any]) -> tuple[Tensor, tuple[str, ...] | None]:
    """Return labels as class numbers, with the sorted class names if labels are texts.

    None and NaN are missing labels, as is -1 among numbers.

    labels: [nodes] -> int64 [nodes]

    >>> numbered_labels(["b", None, "a"])
    (tensor([ 1, -1,  0]), ('a', 'b'))
    >>> numbered_labels([2, None, -1.0])
    (tensor([ 2, -1, -1]), None)
    """
    plain = (each.item() if isinstance(each, np.generic | Tensor) else each for each in labels)
    known: list[Any] = list(map(OneClass().read, plain))
    given = [label for label in known if label is not None]
    if given and all(isinstance(label, str) for label in given):
        names = tuple(sorted(set(given)))
        place = {name: number for number, name in enumerate(names)}
        return torch.tensor([place.get(label, UNLABELLED) for label in known]), names
    for label in given:
        if not isinstance(label, int):
            raise DataError(f"label {label!r} must be a whole number, unless all labels are text")
    numbers = [UNLABELLED if label is None else label for label in known]
    return torch.tensor(numbers, dtype=torch.int64), None


def spelled_missing(values: pa.Array) -> dict[str, int]:
    """Return how often each of ``SPELLINGS`` occurs among labels.

    >>> import pyarrow as pa
    >>> spelled_missing(pa.array(["art", "NULL", "", "NULL", None]))
    {'NULL': 2}
    """
    if not is_text(values.type):
        return {}
    values = pc.utf8_trim_whitespace(values)
    missing = values.filter(pc.is_in(values, value_set=pa.array(SPELLINGS, values.type)))
    return {row["values"]: row["counts"] for row in missing.value_counts().to_pylist()}


def is_missing(label: object) -> bool:
    """Whether a single label is missing, by the rule of ``label_values``.

    >>> [is_missing(label) for label in (None, float("nan"), -1, "NA", "", "none", 0)]
    [True, True, True, True, True, False, False]
    """
    if isinstance(label, str):
        return label.strip() in ("", *SPELLINGS)
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, int | float) and (label != label or label == UNLABELLED)


def one_label(label: Any) -> Any:
    """Return a single label as ``label_values`` converts it, None if it is missing.

    >>> [one_label(label) for label in (" art ", "NULL", 3.0, -1, True)]
    [' art ', None, 3, None, 'true']
    """
    if is_missing(label):
        return None
    if isinstance(label, str | bool):
        return label if isinstance(label, str) else boolean_name(label)
    if isinstance(label, int | float) and label < UNLABELLED:
        raise DataError(f"label is {label}: expected a class >= 0, or {UNLABELLED} for none")
    return int(label) if isinstance(label, float) and label.is_integer() else label


def meant_as_label(columns: Iterable[str]) -> list[str]:
    """Return the columns that may be meant as ``label``.

    >>> meant_as_label(["id", "age", "Class"])
    ['Class']
    """
    return [name for name in columns if name.lower() in MEANT or nearest("label", [name.lower()])]


def say_unlabelled(where: object, columns: Iterable[str]) -> None:
    """Say that a first table has no labels, and name columns that may be meant as such."""
    named = "another column is named by label= (--label)"
    if meant := meant_as_label(columns):
        named = (
            f"if {' or '.join(map(repr, meant))} holds labels, give label={meant[0]!r} (--label "
            f"{meant[0]}); it is read as a feature"
        )
    say(where, f"has no column 'label', so no node has a label: {named}")


def say_alike(where: object, names: Iterable[object]) -> None:
    """Report classes of a table or graph whose names differ only in case or blanks."""
    for sentence in islice(alike(names), _MAX_PAIRS_NAMED):
        say(where, sentence)


def say_missing(path: object, found: dict[str, int]) -> None:
    """Report how many labels are missing because of their spelling."""
    if found:
        count = sum(found.values())
        written = " or ".join(repr(text).replace("\\\\", "\\") for text in sorted(found))
        many = "labels are" if count > 1 else "label is"
        say(path, f"{count:,} {many} missing, written as {written}: this is not a class name")


def target_names(columns: Sequence[str]) -> list[str]:
    """Return the columns of a node table that hold targets.

    With a column ``label``, each node has one class and all other columns are features.

    >>> target_names(["id", "age", "target_height", "target_weight"]), target_names(["id", "label"])
    (['target_height', 'target_weight'], [])
    """
    if "label" in columns:
        return []
    numbers = [name for name in columns if name == TARGET or name.startswith(TARGETS)]
    if LABELS in columns and numbers:
        raise DataError(
            f"has columns {LABELS!r} and {numbers[0]!r}: expected either several labels per node or "
            "numbers, not both"
        )
    return [LABELS] if LABELS in columns else numbers


def called(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the numbers in some columns."""
    return tuple(name.removeprefix(TARGETS) for name in columns)


def label_lists(values: pa.Array) -> list[list[str] | None]:
    """Return the labels of each node, None if they are unknown.

    >>> import pyarrow as pa
    >>> label_lists(pa.array(["law; art", None, "", ";"]))
    [['law', 'art'], None, None, []]
    """
    types = pa.types
    if types.is_list(values.type) or types.is_large_list(values.type):
        if pa.types.is_boolean(values.type.value_type):
            values = values.cast(pa.list_(pa.string()))
        rows = values.to_pylist()
        return [None if row is None else [str(label) for label in row] for row in rows]
    if not is_text(values.type) and not types.is_null(values.type):
        raise DataError(
            f"column {LABELS!r} holds {values.type}: expected texts such as 'art{BETWEEN}law', or "
            "lists of them"
        )
    return [None if text is None else label_parts(text) for text in values.to_pylist()]


def label_parts(text: str) -> list[str] | None:
    """Return the labels in a text, or None if they are unknown.

    >>> label_parts("law; art"), label_parts(";"), label_parts("NA")
    (['law', 'art'], [], None)
    """
    if text.strip() in ("", *SPELLINGS):
        return None
    return [part.strip() for part in text.split(BETWEEN) if part.strip()]


def numbers(values: pa.Array, name: str, *, before: int = 0) -> NDArray[np.float32]:
    """Return a column of numbers to predict, NaN where missing.  float32 [rows]"""
    if pa.types.is_null(values.type):
        return np.full(len(values), np.nan, dtype=np.float32)
    if not is_number(values.type):
        raise DataError(f"column {name!r} holds {values.type}: expected numbers to predict")
    read_values: NDArray[np.float32] = (
        values.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float32)
    )
    if np.isinf(read_values).any():
        rule = "a finite number, or no value if it is unknown"
        raise wrong_value(values, int(np.isinf(read_values).argmax()), name, rule, before=before)
    return read_values
