"""Public functions have return types that mypy shows."""

from pathlib import Path

import pytest


@pytest.mark.slow
def test_types_are_shown():
    api = pytest.importorskip("mypy.api")
    told, _, failed = api.run([str(Path(__file__).with_name("types_shown.py"))])
    assert not failed, told
