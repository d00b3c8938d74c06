"""Settings of samplers: what they are unless given, and the least each may be."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from evergraph.core.errors import ConfigurationError
from evergraph.memory import EmbeddingMemory, SubgraphMemory, samplers

LEAST = [
    ("distribution-matching", "features", 0, -1),
    ("distribution-matching", "lr", 0.0, -0.01),
    ("distribution-matching", "steps", 0, -1),
    ("embedding-coverage", "radius", 0.0, -0.01),
    ("gradient-matching", "heads", 1, 0),
    ("gradient-matching", "lr", 0.0, -0.01),
    ("gradient-matching", "sharpness", 0.0, -0.01),
    ("gradient-matching", "steps", 0, -1),
    ("influence", "damping", 1e-8, 0.9e-8),
]


@pytest.mark.parametrize(("name", "option", "least", "less"), LEAST)
def test_the_least_is_taken_and_less_is_refused(
    name: str, option: str, least: float, less: float
) -> None:
    assert getattr(samplers.make(name, **{option: least}), option) == least
    with pytest.raises(ConfigurationError, match=f"{option} must be .* of at least {least}, not"):
        samplers.make(name, **{option: less})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("coverage", {"reach": "auto"}),
        (
            "distribution-matching",
            {"features": 256, "start": "herding", "steps": 50, "lr": 0.1},
        ),
        ("embedding-coverage", {"radius": 0.5}),
        (
            "gradient-matching",
            {"heads": 8, "sharpness": 1.0, "start": "herding", "steps": 50, "lr": 0.03},
        ),
        ("influence", {"damping": 0.01}),
    ],
)
def test_published_numbers_rest_on_these_defaults(name: str, expected: dict[str, Any]) -> None:
    sampler = samplers.make(name)
    assert set(inspect.signature(type(sampler)).parameters) == set(expected)
    assert {option: getattr(sampler, option) for option in expected} == expected


def test_memories_keep_as_many_as_their_papers_unless_told() -> None:
    embeddings, subgraphs = EmbeddingMemory(), SubgraphMemory()
    assert (embeddings.budget, embeddings.sampler.name) == (400, "coverage")
    assert (subgraphs.budget, subgraphs.sampler.name) == (100, "uniform")
