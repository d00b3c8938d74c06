"""JSON objects that carry their own checksum: a small file that changed is told from a whole one.

The field ``sha256`` is that of the other fields, written without blanks and in the order of their
names: blanks and the order of fields in the file are no matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evergraph.core.errors import DataError

CHECK = "sha256"


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the checksum of an object.

    >>> digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1, "sha256": "is left out"})
    True
    """
    kept = {name: value for name, value in content.items() if name != CHECK}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def with_check(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its checksum, as ``read_checked`` takes it.

    >>> sorted(with_check({"seq": 3}))
    ['seq', 'sha256']
    """
    return {**content, CHECK: digest_of(content)}


def parse_checked(data: bytes, path: Path) -> dict[str, Any]:
    """Return the object that some bytes of a file are; raise ``DataError`` unless it is whole.

    One without a checksum is returned as it is: whoever asks knows whether it may be so.

    >>> parse_checked(b'{"seq": 3, "sha256": "0"}', Path("a.json"))
    Traceback (most recent call last):
    evergraph.core.errors.DataError: a.json: does not match its checksum: put it back from a backup
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        said = str(error).splitlines()[0][:200]
        raise DataError(f"{path}: is not JSON ({said}): put it back from a backup") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: must be a JSON object, not {type(content).__name__}")
    if CHECK in content and content[CHECK] != digest_of(content):
        raise DataError(f"{path}: does not match its checksum: put it back from a backup")
    return content


def read_checked(path: Path) -> dict[str, Any]:
    """Return the object in a file, as ``parse_checked`` does; raise where it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_checked(data, path)


def needs_check(content: Mapping[str, Any], path: Path) -> None:
    """Raise unless an object has a checksum."""
    if CHECK not in content:
        raise DataError(f"{path}: has lost its checksum: put it back from a backup")
