"""What the summary says of how runs were tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from evergraph.reports.runs import Finished
from evergraph.reports.tables.accuracy import labels_shown


@pytest.mark.parametrize(("known", "said"), [("global", False), ("everywhere", True)])
def test_labels_in_local_test_graphs_are_said(known: str, said: bool) -> None:
    run = Finished(Path("a"), {"config": {"stream": {"known_labels": known}}})
    older = Finished(Path("b"), {"config": {"stream": {}}})
    assert ("show labels of training nodes" in labels_shown([older, run])) is said
