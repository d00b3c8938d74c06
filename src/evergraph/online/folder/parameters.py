"""What the learner of a folder is made with, where some of it is given and the rest is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.core.errors import ConfigurationError, DataError, did_you_mean

if TYPE_CHECKING:
    from evergraph.online.learner import OnlineLearner


def defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a new learner: the f_topo is the choice of the head that is given.

    Where only another number of hops is given, the last of them is kept beside the features.
    """
    from evergraph.online.heads import heads
    from evergraph.online.learner import OnlineLearner

    name = given.get("head", {}).get("name")
    known = OnlineLearner(head=None if name is None else heads.make(name)).parameters
    topology, asked = known["topology"], given.get("topology", {})
    if "keep" in topology and "hops" in asked:
        topology["keep"] = sorted({0, asked["hops"]})
    return known


def merged(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Lay what was given over what is known; a part of another name begins anew."""
    merged = dict(known)
    for key, value in given.items():
        if key not in known:
            raise ConfigurationError(
                f"a learner has no parameter {key!r}: {did_you_mean(key, known)}"
                f"it takes {', '.join(known)}"
            )
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            same = value.get("name", old["name"]) == old["name"]
            merged[key] = old | value if same else value
        else:
            merged[key] = value
    return merged


def made_with(folder: Path, parameters: Mapping[str, Any]) -> OnlineLearner:
    """Return a learner that has seen nothing; say which file is wrong where none can be made."""
    from evergraph.online.learner import OnlineLearner

    try:
        return OnlineLearner.from_parameters(parameters)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
        raise DataError(
            f"{folder}: no learner can be made with its parameters ({error}): put its format file "
            "back from a backup"
        ) from error
