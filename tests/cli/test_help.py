"""What --help says reaches the reader: rich drops what looks like markup to it."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("command", "default"), [("run", "(default: tem)"), ("serve", "(default: analytic)")]
)
def test_help_names_the_defaults(command: str, default: str, call: Any) -> None:
    out, _ = call(command, "--help")
    assert default in " ".join(out.split())
