"""Both ways in which a change is followed: by NumPy, and by compiled code."""

import pytest

from evergraph.graphs.kernels.scaled_rows import numba_works
from evergraph.online.graph import neighbour_lists


@pytest.fixture(params=["torch", "numba"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """So small a graph would not be followed by compiled code."""
    if request.param == "numba" and not numba_works():
        pytest.skip("numba is not at hand")
    monkeypatch.setattr(neighbour_lists, "is_compiled", lambda _: request.param == "numba")
    return str(request.param)
