"""Names become parts, and what the source says of them."""

import sys
from types import ModuleType

import pytest

from evergraph.core import component
from evergraph.core.component import Resolver, declared_parts, first_line
from evergraph.core.errors import ConfigurationError, UnknownNameError
from evergraph.datasets import datasets
from evergraph.memory import samplers
from evergraph.memory.samplers import CoverageSampler, UniformSampler
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.online.heads import heads
from evergraph.studies import studies
from evergraph.topology import topologies


class Shape:
    name = "?"


def shapes() -> Resolver[Shape]:
    resolver = Resolver[Shape]("shape")

    @resolver.register
    class Square(Shape):
        """Four equal sides.

        And more that a list does not show.
        """

        name = "square"
        aliases = ("quadrat", "box")

        def __init__(self, *, side: float = 1.0, filled: bool = False) -> None:
            self.side = side
            self.filled = filled

    @resolver.register
    class Dot(Shape):
        """No side at all."""

        name = "dot"

    return resolver


def test_names_and_aliases():
    resolver = shapes()
    assert resolver.resolve("square").name == "square"
    assert resolver.resolve("quadrat") is resolver.resolve("box") is resolver.resolve("square")
    assert resolver.resolve("dot").name == "dot"
    # Who derives a part of his own from one of ours need not think of its other names.
    resolver = shapes()
    square = resolver.resolve("box")
    far = resolver.register(type("Far", (square,), {"name": "far"}))
    assert resolver.resolve("far") is far
    assert resolver.resolve("box") is square


def test_one_name_twice_is_refused():
    resolver = shapes()
    point = type("Point", (Shape,), {"name": "dot"})
    with pytest.raises(ConfigurationError) as caught:
        resolver.register(point)
    assert str(caught.value).startswith("two shapes are called 'dot', ")
    assert str(caught.value).endswith(f"Dot and {__name__}.Point: rename one of them")
    with pytest.raises(ConfigurationError, match="two shapes are called 'box'"):
        resolver.register(type("Crate", (Shape,), {"name": "crate", "aliases": ("box",)}))
    assert resolver.names() == ["dot", "square"]


def cell(resolver: Resolver[Shape], *, module: str, aliases: tuple[str, ...]) -> type[Shape]:
    """Define a class as a notebook's cell does, each time it is run."""
    made = type("Star", (Shape,), {"name": "star", "aliases": aliases, "__module__": module})
    return resolver.register(made)


@pytest.mark.parametrize("module", ["__main__", __name__, "a_notebook"])
def test_a_class_defined_again_replaces_itself(module):
    resolver = shapes()
    first = cell(resolver, module=module, aliases=("asterisk", "sun"))
    second = cell(resolver, module=module, aliases=("sun",))
    assert resolver.resolve("star") is resolver.resolve("sun") is second is not first
    assert resolver.names() == ["dot", "square", "star"]
    with pytest.raises(UnknownNameError):  # the second has no such alias
        resolver.resolve("asterisk")


def test_a_script_that_imports_itself_defines_one_class(monkeypatch):
    for name in ("__main__", "my_script"):
        module = ModuleType(name)
        module.__file__ = "/home/me/my_script.py"
        monkeypatch.setitem(sys.modules, name, module)
    resolver = shapes()
    cell(resolver, module="__main__", aliases=())
    imported = cell(resolver, module="my_script", aliases=())
    assert resolver.resolve("star") is imported
    with pytest.raises(ConfigurationError, match="two shapes are called 'star'"):
        cell(resolver, module="another_script", aliases=())


def test_an_unknown_name_lists_names_and_aliases_and_guesses():
    with pytest.raises(UnknownNameError) as caught:
        shapes().resolve("sqare")
    message = str(caught.value)
    assert "unknown shape 'sqare'" in message
    assert "did you mean 'square'?" in message
    assert "choose one of box, dot, quadrat, square" in message


def test_parameters_are_the_keyword_ones_in_order():
    assert shapes().parameters("square") == ["side", "filled"]
    assert shapes().parameters("dot") == []

    class Line(Shape):
        name = "line"

        def __init__(self, start, *, end, **style): ...

    resolver = Resolver[Shape]("shape")
    resolver.register(Line)
    assert resolver.parameters("line") == ["end"]


@pytest.mark.parametrize(
    ("name", "takes"),
    [("square", "did you mean 'side'? it takes side, filled"), ("dot", "it takes none")],
)
def test_an_unknown_parameter_is_told_with_those_that_exist(name, takes):
    for use in (shapes().make, lambda name, **kw: shapes().check(name, kw)):
        with pytest.raises(ConfigurationError) as caught:
            use(name, sides=2)
        assert str(caught.value) == f"shape {name!r} has no parameter 'sides': {takes}"


def test_summaries_and_other_names():
    assert first_line(type("Bare", (), {})) == ""
    assert shapes().summaries() == {"dot": "No side at all.", "square": "Four equal sides."}
    # The papers other names for samplers resolve.
    assert samplers.resolve("reservoir") is UniformSampler
    assert samplers.resolve("weighted-reservoir") is CoverageSampler


@pytest.mark.parametrize(
    ("folder", "name", "resolver"),
    [
        ("datasets", "datasets", datasets),
        ("memory/samplers", "samplers", samplers),
        ("methods", "methods", methods),
        ("nn closed_form", "backbones", backbones),
        ("online/heads", "heads", heads),
        ("studies", "studies", studies),
        ("topology", "topologies", topologies),
    ],
)
def test_source_and_resolver_agree(folder, name, resolver):
    declared = {}
    for each in folder.split():
        declared |= declared_parts(each, name)
    ours = {
        part: line
        for part, line in resolver.summaries().items()
        if resolver.resolve(part).__module__.startswith("evergraph.")  # and not another test's
    }
    assert declared == ours
    assert len(ours) >= 3


def test_only_registered_names_count(tmp_path, monkeypatch):
    monkeypatch.setattr(component, "PACKAGE", tmp_path)
    declared_parts.cache_clear()
    (tmp_path / "shapes.py").write_text(
        '@shapes.register\nclass Square(Shape):\n    """\n    Four sides.\n\n    Equal.\n    """\n'
        '    name: ClassVar[str] = "square"\n'
        '@shapes.register\nclass Nameless(Shape):\n    """No name."""\n'
        '@dataclass\nclass Other:\n    """Not registered."""\n    name = "other"\n'
        '@bodies.register\nclass Cube:\n    """Of another resolver."""\n    name = "cube"\n'
    )
    assert declared_parts(".", "shapes") == {"square": "Four sides."}
    assert declared_parts("absent", "shapes") == {}
