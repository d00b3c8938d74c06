"""What is read from the source is what importing it registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from evergraph.core import resolver
from evergraph.core.resolver import Resolver, declared_parts, declared_summary
from evergraph.datasets import datasets
from evergraph.memory import samplers
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.online.heads.base import heads
from evergraph.studies import studies
from evergraph.topology import topologies


@pytest.mark.parametrize(
    ("folder", "name", "resolver"),
    [
        ("datasets", "datasets", datasets),
        ("memory/samplers", "samplers", samplers),
        ("methods", "methods", methods),
        ("nn", "backbones", backbones),
        ("online/heads", "heads", heads),
        ("studies", "studies", studies),
        ("topology", "topologies", topologies),
    ],
)
def test_source_and_resolver_say_the_same(
    folder: str, name: str, resolver: Resolver[object]
) -> None:
    ours = {
        part: line
        for part, line in resolver.summaries().items()
        if resolver.resolve(part).__module__.startswith("evergraph.")  # and not another test's
    }
    assert declared_parts(folder, name) == ours
    assert len(ours) >= 3


def test_only_what_is_decorated_and_named_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "PACKAGE", tmp_path)
    (tmp_path / "shapes.py").write_text(
        '@shapes.register\nclass Square(Shape):\n    """\n    Four sides.\n\n    Equal.\n    """\n'
        '    name: ClassVar[str] = "square"\n'
        '@shapes.register\nclass Nameless(Shape):\n    """No name."""\n'
        '@dataclass\nclass Other:\n    """Not registered."""\n    name = "other"\n'
        '@bodies.register\nclass Cube:\n    """Of another resolver."""\n    name = "cube"\n'
    )
    assert declared_parts(".", "shapes") == {"square": "Four sides."}
    assert declared_parts("absent", "shapes") == {}


def test_a_function_without_docstring_or_file_has_an_empty_summary() -> None:
    assert declared_summary("core/resolver.py", "_registered") == ""
    assert declared_summary("core/absent.py", "anything") == ""
