"""Heads that are solved for late, where tests look at something else."""

from collections.abc import Iterator

import pytest

from evergraph.online.heads import staleness


@pytest.fixture(scope="module")
def patient() -> Iterator[None]:
    """Let learners wait as long as their patience, who solve for so few nodes at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staleness, "SMALL", 0)
        patch.setattr(staleness, "SHARE", 10.0)
        yield
