"""What a node is said to be, a class, several labels or a number, and the name that stands for it.

A live learner numbers what nodes are said to be in the order in which it comes, whatever it is: a
set of labels or a number is written as a text, and that text is numbered as the name of a class is.
"""

from __future__ import annotations

import json
import math

from evergraph.core.errors import DataError
from evergraph.core.label_space import Kind
from evergraph.online.delta import Label, Told
from evergraph.online.identifiers import check_id


def check_told(kind: Kind, value: object) -> None:
    """Raise unless a value is what nodes of a kind are said to be.

    >>> check_told("labels", "art")
    Traceback (most recent call last):
    evergraph.core.errors.DataError: labels of a node must be a list of them, not 'art'
    """
    if kind == "class":
        check_id("label", value)
    elif kind == "labels":
        if not isinstance(value, list | tuple):
            raise DataError(f"labels of a node must be a list of them, not {value!r}")
        for label in value:
            check_id("label", label)
    elif type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise DataError(f"what a node has must be a finite number, not {value!r}")


def name_of(kind: Kind, value: Told) -> Label:
    """Return the name that stands for what a node is said to be; the order of labels is no matter.

    >>> name_of("labels", ["law", "art"]), name_of("numbers", 2), name_of("class", "art")
    ('["art", "law"]', '2.0', 'art')
    """
    if kind == "labels":
        assert isinstance(value, list | tuple)
        return json.dumps(sorted(set(value), key=lambda label: (str(label), str(type(label)))))
    return repr(float(value)) if kind == "numbers" else value  # type: ignore[arg-type, return-value]


def meant_by(kind: Kind, name: Label) -> Told:
    """Return what a name stands for.

    >>> meant_by("labels", '["art", "law"]'), meant_by("numbers", "2.0"), meant_by("class", 7)
    (('art', 'law'), 2.0, 7)
    """
    if kind == "labels":
        return tuple(json.loads(str(name)))
    return float(name) if kind == "numbers" else name
