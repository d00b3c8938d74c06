"""Sizes in bytes, as people write and read them."""

from __future__ import annotations

import re

from evergraph.core.errors import ConfigurationError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def parse_size(text: str | int) -> int:
    """Return the bytes that a text such as ``4GB``, ``512MiB`` or ``1e9`` means.

    >>> parse_size("4GB"), parse_size("1.5 GiB"), parse_size(2048)
    (4000000000, 1610612736, 2048)
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([kKmMgGtT]?i?)[bB]?\s*", str(text))
    try:
        assert found is not None
        unit = found[2].upper()
        size = int(float(found[1]) * (_UNITS | _BINARY)[unit])
        assert size > 0
    except (AssertionError, ValueError, KeyError):
        raise ConfigurationError(
            f"memory limit must be a size such as 4GB or 512MiB, above 0, not {text!r}"
        ) from None
    return size


def shown(size: float) -> str:
    """Return bytes as a person would say them.

    >>> shown(2_450_000_000), shown(12_000_000)
    ('2.5 GB', '12 MB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
