"""Forgetting before anything was learned."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.graphs import Graph


def test_a_learner_without_a_task_says_so(make: Any, two_pairs: Graph) -> None:
    learner = make("analytic", ledger=True)
    with pytest.raises(ConfigurationError, match="has learned no task yet: call fit_task first"):
        learner.forget(torch.tensor([0]), two_pairs)
