"""Both ways in which a change is followed: by NumPy, and by compiled code."""

import pytest

from evergraph.online.graph import neighbour_lists


@pytest.fixture(params=["torch", "numba"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """So small a graph would not be followed by compiled code."""
    monkeypatch.setattr(neighbour_lists, "is_compiled", lambda _: request.param == "numba")
    return str(request.param)
