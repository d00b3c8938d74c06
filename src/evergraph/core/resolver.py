"""Classes by name, made from keyword arguments."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Collection, Mapping
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, Generic, TypeVar

from evergraph.core.errors import ConfigurationError, UnknownNameError, did_you_mean
from evergraph.core.plugins import PREFIX, load_installed_plugins

T = TypeVar("T")
PACKAGE = Path(__file__).parents[1]


class Resolver(Generic[T]):
    """Classes of one kind by their ``name`` attribute.

    A component is registered by decorating its class; nothing else in the library has to change.
    The class may come from a plug-in: see ``evergraph.core.plugins``.

    >>> class Shape: name = "?"
    >>> shapes = Resolver[Shape]("shape")
    >>> @shapes.register
    ... class Square(Shape):
    ...     "Four equal sides."
    ...     name = "square"
    ...     def __init__(self, *, side: float = 1.0) -> None: self.side = side
    >>> shapes.make("square", side=2.0).side
    2.0
    >>> shapes.make("square", sides=2.0)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: shape 'square' has no parameter 'sides': \
did you mean 'side'? it takes side
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._classes: dict[str, type[T]] = {}
        self._aliases: dict[str, str] = {}

    def register(self, cls: type[T]) -> type[T]:
        """Register ``cls`` under its ``name``, and its ``aliases`` if it has any.

        A class that is defined again, as by a notebook cell that is run twice, replaces itself.
        """
        name: str = cls.name  # type: ignore[attr-defined]
        # Only its own aliases: a subclass must not claim those of its parent.
        aliases: tuple[str, ...] = vars(cls).get("aliases", ())
        for taken in (name, *aliases):
            known = self._known(taken)
            if known is not None and _definition(known) != _definition(cls):
                raise ConfigurationError(
                    f"two {self.kind}s are called {taken!r}, {_full_name(known)} and "
                    f"{_full_name(cls)}: rename one of them"
                )
        self._aliases = {alias: to for alias, to in self._aliases.items() if to != name}
        self._classes[name] = cls
        self._aliases |= dict.fromkeys(aliases, name)
        return cls

    def names(self) -> list[str]:
        """Return the registered names, sorted, including those of installed packages."""
        load_installed_plugins()
        return sorted(self._classes)

    def resolve(self, name: str) -> type[T]:
        """Return the class called ``name``; raise with the known names if there is none."""
        if (cls := self._known(name)) is None:
            load_installed_plugins()
            if (cls := self._known(name)) is None:
                raise UnknownNameError(self.kind, name, [*self._classes, *self._aliases])
        return cls

    def parameters(self, name: str) -> list[str]:
        """Return the keyword parameters that the constructor of ``name`` takes."""
        signature = inspect.signature(self.resolve(name))
        return [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]

    def check(
        self, name: str, parameters: Mapping[str, Any], *, hidden: Collection[str] = ()
    ) -> None:
        """Raise if ``name`` does not take one of these parameters.

        hidden: those that it takes, but that the caller cannot set.
        """
        known = [each for each in self.parameters(name) if each not in hidden]
        for parameter in parameters:
            if parameter not in known:
                takes = f"{did_you_mean(parameter, known)}it takes {', '.join(known) or 'none'}"
                said = f"{self.kind} {name!r} has no parameter {parameter!r}: {takes}"
                raise ConfigurationError(said)

    def make(self, name: str, **parameters: Any) -> T:
        """Return an instance of ``name``."""
        self.check(name, parameters)
        return self.resolve(name)(**parameters)

    def part(self, given: T | str | Mapping[str, Any]) -> T:
        """Return a component, given as itself, by its name, or as a table of name and parameters.

        >>> from evergraph.topology import topologies
        >>> topologies.part({"name": "sgc", "hops": 3}).hops
        3
        """
        if isinstance(given, str):
            return self.make(given)
        if isinstance(given, Mapping):
            parameters = dict(given)
            if "name" not in parameters:
                raise ConfigurationError(f"a table of a {self.kind} must have a name, not {given}")
            return self.make(parameters.pop("name"), **parameters)
        if isinstance(given, type) or not hasattr(given, "name"):
            kinds = f"its name, a table of name and parameters, or a {self.kind} object"
            raise ConfigurationError(f"{self.kind} must be {kinds}, not {given!r}")
        return given

    def summaries(self) -> dict[str, str]:
        """Return each name with the first line of its docstring."""
        return {name: first_line(self._classes[name]) for name in self.names()}

    def _known(self, name: str) -> type[T] | None:
        return self._classes.get(self._aliases.get(name, name))


def _definition(cls: type) -> tuple[str, str]:
    """Return where a class is defined; a script may be imported by its name and as ``__main__``."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return file or cls.__module__, cls.__qualname__


def _full_name(cls: type) -> str:
    """Return a class's full name; for a plug-in, its file instead of its generated module name."""
    if cls.__module__.startswith(PREFIX):
        return f"{cls.__qualname__} of {_definition(cls)[0]}"
    return f"{cls.__module__}.{cls.__qualname__}"


def first_line(cls: type) -> str:
    """Return the first line of a class's docstring."""
    return (inspect.getdoc(cls) or "").split("\n")[0]


@cache
def declared_parts(folder: str, resolver: str) -> Mapping[str, str]:
    """Return the names that classes register under, each with the first line of its docstring.

    The same as ``Resolver.summaries`` without importing the package, which takes seconds. Classes
    without source or without a ``name`` of their own are not found. folder: of the package in the
    library, such as ``"memory/samplers"``. resolver: its name there, such as ``"samplers"``.
    """
    found: dict[str, str] = {}
    for file in sorted((PACKAGE / folder).rglob("*.py")):
        text = file.read_text("utf-8")
        if f"@{resolver}.register" not in text:  # most files have none, and parsing takes time
            continue
        for node in (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)):
            if f"{resolver}.register" not in map(ast.unparse, node.decorator_list):
                continue
            for statement in node.body:
                match statement:
                    case (
                        ast.Assign(targets=[ast.Name(id="name")], value=ast.Constant(value=name))
                        | ast.AnnAssign(target=ast.Name(id="name"), value=ast.Constant(value=name))
                    ):
                        found[str(name)] = _first_line(node)
    return dict(sorted(found.items()))


def declared_summary(file: str, function: str) -> str:
    """Return the first line of a function's docstring; empty if it has none.

    >>> declared_summary("core/resolver.py", "declared_summary")
    "Return the first line of a function's docstring; empty if it has none."
    """
    path = PACKAGE / file
    for node in ast.parse(path.read_text("utf-8")).body if path.exists() else []:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return _first_line(node)
    return ""


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> str:
    return cleandoc(ast.get_docstring(node, clean=False) or "").split("\n")[0]
