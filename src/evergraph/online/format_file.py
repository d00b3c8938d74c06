"""What a learner's folder is: the version of its format, and what its learner was made with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.mapped import disk_is_enough
from evergraph.core.versions import own_version
from evergraph.core.written_aside import written_aside
from evergraph.online.snapshot import sync

FILE = "evergraph-learner.json"
FORMAT = 1


def stored_parameters(folder: Path) -> dict[str, Any] | None:
    """Return what the learner of a folder was made with; None if there is no learner yet."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
        version, parameters = content["format"], content["parameters"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot be read ({error!r}): put it back from a backup") from None
    if version != FORMAT:
        raise DataError(
            f"{path}: is of format {version!r}, this version of evergraph "
            f"({own_version()}) reads format {FORMAT}: install evergraph "
            f"{content.get('evergraph', '')} or newer, which wrote it"
        )
    return dict(parameters)


def store_parameters(folder: Path, parameters: Mapping[str, Any]) -> None:
    """Write down what the learner of a new folder is made with."""
    content = {
        "format": FORMAT,
        "evergraph": own_version(),
        "parameters": dict(parameters),
    }
    with disk_is_enough(folder), written_aside(folder / FILE) as file:
        file.write(json.dumps(content, indent=1).encode())
    sync(folder)


def check_parameters(folder: Path, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise, naming parameter and both values, unless a learner is made as the stored one was.

    What an earlier version did not know is None there.
    """
    ours = json.loads(json.dumps(dict(given)))
    for name in sorted(stored.keys() | ours.keys()):
        if stored.get(name) != ours.get(name):
            raise ConfigurationError(
                f"{folder} holds a learner with {name}={stored.get(name)!r}, which cannot be "
                f"opened with {name}={ours.get(name)!r}"
            )
