"""Components: classes found by name, their parameters, and how they show in a notebook.

Importing this module loads neither torch nor matplotlib.
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, fields
from functools import cache, partial
from html import escape
from inspect import cleandoc
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from evergraph.core.errors import (
    ConfigurationError,
    UnknownNameError,
    check_choice,
    check_integer,
    check_number,
    did_you_mean,
)
from evergraph.core.packages import PREFIX, load_installed_plugins

# Cached, since computing the signature of a class takes as long as making an instance.
signature_of: Callable[[Any], inspect.Signature] = cache(inspect.signature)


class Shown:
    """Object with a one-line repr, and a small table in a notebook.

    >>> class Point(Shown):
    ...     "A place on a line."
    ...     def _repr_facts(self): return {"x": 3}
    >>> Point()
    Point(x=3)
    >>> Point()._repr_html_()
    '<table><caption><b>Point</b> A place on a line.</caption><tr><th>x</th><td>3</td></tr></table>'
    """

    def _repr_facts(self) -> Mapping[str, object]:
        """Return the facts of the line; none by default."""
        return {}

    def _repr_table(self) -> Mapping[str, object]:
        """Return the facts of the table; those of the line by default."""
        return self._repr_facts()

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self._repr_facts().items())
        return f"{type(self).__name__}({facts})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        summary = (type(self).__doc__ or "").strip().split("\n")[0]
        title = f"<b>{type(self).__name__}</b> {escape(summary)}"
        rows = ""
        for name, value in self._repr_table().items():
            text = value if isinstance(value, str) else repr(value)
            rows += f"<tr><th>{escape(str(name))}</th><td>{escape(text)}</td></tr>"
        return f"<table><caption>{title}</caption>{rows}</table>"


class ShownRecord(Shown):
    """Dataclass that shows its fields; its repr is the dataclass's own."""

    def _repr_facts(self) -> Mapping[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


T = TypeVar("T")
PACKAGE = Path(__file__).parents[1]


class Resolver(Generic[T]):
    """Classes of one kind by their ``name`` attribute.

    A component is registered by decorating its class; nothing else in the library has to change.
    The class may come from a plug-in: see ``evergraph.core.packages``.

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
        signature = signature_of(self.resolve(name))
        return [p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]

    def check(
        self, name: str, parameters: Mapping[str, Any], *, hidden: Collection[str] = ()
    ) -> None:
        """Raise if ``name`` does not take one of these parameters.

        hidden: those that it takes, but that the caller cannot set.
        """
        known = [p for p in self.parameters(name) if p not in hidden]
        for parameter in parameters:
            if parameter not in known:
                takes = f"{did_you_mean(parameter, known)}it takes {', '.join(known) or 'none'}"
                message = f"{self.kind} {name!r} has no parameter {parameter!r}: {takes}"
                raise ConfigurationError(message)

    def make(self, name: str, **parameters: Any) -> T:
        """Return an instance of ``name``."""
        self.check(name, parameters)
        return self.resolve(name)(**parameters)

    def part(self, value: T | str | Mapping[str, Any]) -> T:
        """Return a component, given as itself, by its name, or as a table of name and parameters.

        >>> from evergraph.topology import topologies
        >>> topologies.part({"name": "sgc", "hops": 3}).hops
        3
        """
        if isinstance(value, str):
            return self.make(value)
        if isinstance(value, Mapping):
            parameters = dict(value)
            if "name" not in parameters:
                raise ConfigurationError(f"a table of a {self.kind} must have a name, not {value}")
            return self.make(parameters.pop("name"), **parameters)
        if isinstance(value, type) or not hasattr(value, "name"):
            kinds = f"its name, a table of name and parameters, or a {self.kind} object"
            raise ConfigurationError(f"{self.kind} must be {kinds}, not {value!r}")
        return value

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
    summaries: dict[str, str] = {}
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
                        summaries[str(name)] = _first_line(node)
    return dict(sorted(summaries.items()))


def declared_summary(file: str, function: str) -> str:
    """Return the first line of a function's docstring; empty if it has none.

    >>> declared_summary("core/component.py", "declared_summary")
    "Return the first line of a function's docstring; empty if it has none."
    """
    path = PACKAGE / file
    for node in ast.parse(path.read_text("utf-8")).body if path.exists() else []:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return _first_line(node)
    return ""


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> str:
    return cleandoc(ast.get_docstring(node, clean=False) or "").split("\n")[0]


# Parameters that are not shown: a component works with them, but they do not define it.
SURROUNDINGS = ("generator", "resources", "on_epoch")
_MISSING = object()
T_co = TypeVar("T_co", covariant=True)


def number(default: float | None, *, least: float, most: float = math.inf) -> Any:
    """Declare a parameter of a dataclass that is a number within [least, most].

    Here and below, None is allowed if it is the default. See ``Part`` for an example.
    """
    check = partial(check_number, least=least, most=most)
    return field(default=default, metadata={"check": check})


def integer(default: int | None, *, least: int) -> Any:
    """Declare a parameter of a dataclass that is an integer of at least ``least``."""
    return field(default=default, metadata={"check": partial(check_integer, least=least)})


def choice(default: str | None, choices: Collection[str]) -> Any:
    """Declare a parameter of a dataclass that is one of ``choices``."""
    return field(default=default, metadata={"check": partial(check_choice, choices=choices)})


class Made(Generic[T_co]):
    """Declare a parameter of a dataclass that is made by the component itself if it is not given.

    The constructor takes None for it, and ``_parameter_default`` makes it.

    parts: makes it of a name, or of a table of name and parameters; default: makes it if it is not
    given. Both are those of the base class if that declares the same parameter.
    """

    def __init__(
        self, parts: Resolver[Any] | None = None, *, default: Callable[[], Any] | None = None
    ) -> None:
        self._parts, self.default = parts, default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        for base in owner.__mro__[1:]:
            if isinstance(declared := vars(base).get(name), Made):
                self._parts = self._parts or declared._parts
                self.default = self.default or declared.default

    def __get__(self, part: Part | None, owner: type) -> T_co:
        return cast("T_co", None if part is None else part.__dict__.get(self._name))

    def __set__(self, part: Part, value: T_co | str | Mapping[str, Any] | None) -> None:
        component = value if value is None or self._parts is None else self._parts.part(value)
        part.__dict__[self._name] = component


class Part(Shown):
    """Component with keyword parameters stored under their own names, as in scikit-learn.

    Its repr shows only parameters that differ from the defaults; evaluating it makes an equal one.

    >>> class Circle(Part):
    ...     "Round."
    ...     def __init__(self, *, radius: float = 1.0, colour: str = "red") -> None:
    ...         self.radius, self.colour = radius, colour
    >>> Circle(radius=2.0)
    Circle(radius=2.0)
    >>> Circle().get_params()
    {'radius': 1.0, 'colour': 'red'}

    The constructor may also be that of a dataclass, which inherits parameters and checks them.

    >>> from dataclasses import dataclass
    >>> @dataclass(kw_only=True, eq=False, repr=False)
    ... class Disc(Part):
    ...     radius: float = number(1.0, least=0.0)
    >>> Disc(radius=-2.0)
    Traceback (most recent call last):
    evergraph.core.errors.ConfigurationError: radius must be a number of at least 0.0, not -2.0
    """

    def __post_init__(self) -> None:
        """Check the parameters of a dataclass, and make those that are not given."""
        for parameter in (f for f in fields(self) if f.init):  # type: ignore[arg-type]
            name = parameter.name
            value = getattr(self, name)
            if value is None and parameter.default is None:
                setattr(self, name, self._parameter_default(name))
            elif "check" in parameter.metadata:
                parameter.metadata["check"](name, value)
            elif isinstance(parameter.default, bool) and not isinstance(value, bool):
                raise ConfigurationError(f"{name} must be true or false, not {value!r}")

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return the constructor's parameters: ``type(part)(**part.get_params())`` makes a copy.

        deep: also return those of inner components, as ``outer__inner``.
        """
        parameters: dict[str, Any] = {}
        for name in self._parameter_names():
            parameters[name] = value = self._parameter_value(name)
            if value is _MISSING:
                message = f"{type(self).__name__} must store its parameter {name!r} under that name"
                raise ConfigurationError(message)
        for name, value in list(parameters.items()) if deep else ():
            if isinstance(value, Part):
                inner = value.get_params(deep=True)
                parameters |= {f"{name}__{inner_name}": part for inner_name, part in inner.items()}
        return parameters

    @classmethod
    def _parameter_names(cls) -> list[str]:
        """Return the names of the parameters, a class's own before those it inherits."""
        annotations = [vars(base).get("__annotations__", {}) for base in cls.__mro__]
        names = signature_of(cls).parameters
        return sorted(names, key=lambda name: [name in own for own in annotations], reverse=True)

    def _parameter_value(self, name: str) -> Any:
        """Return the value of a parameter, as the constructor takes it."""
        return getattr(self, name, _MISSING)

    def _parameter_default(self, name: str) -> Any:
        declared = inspect.getattr_static(type(self), name, None)
        if isinstance(declared, Made) and declared.default is not None:
            return declared.default()
        parameter = signature_of(type(self)).parameters.get(name)
        return None if parameter is None else parameter.default

    def _repr_facts(self) -> Mapping[str, object]:
        table = self._repr_table().items()
        return {n: v for n, v in table if not alike(v, self._parameter_default(n))}

    def _repr_table(self) -> Mapping[str, object]:
        names = [name for name in self._parameter_names() if name not in SURROUNDINGS]
        values = {name: self._parameter_value(name) for name in names}
        return {name: value for name, value in values.items() if value is not _MISSING}


def alike(first: object, second: object) -> bool:
    """Return whether two parameter values are equal; components are compared by parameters."""
    if isinstance(first, Part) and isinstance(second, Part):
        first_table = first._repr_table()
        second_table = second._repr_table()
        if type(first) is not type(second) or first_table.keys() != second_table.keys():
            return False
        return all(alike(value, second_table[name]) for name, value in first_table.items())
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(alike, first, second))
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    return bool(first == second)
