"""What the source says of registered parts, read and not run: importing them takes torch."""

from __future__ import annotations

import ast
from inspect import cleandoc
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def declared_parts(folder: str, resolver: str) -> dict[str, str]:
    """Return the names that classes register under, each with the first line of its docstring.

    What ``Resolver.summaries`` returns once the package is imported, for seconds less. Nothing is
    found where a package came without its source, or where a class has no ``name`` of its own.

    Args:
        folder: of the package's files, from the root of the library, such as ``"memory/samplers"``.
        resolver: what the resolver is called in them, such as ``"samplers"``.

    >>> declared_parts("topology", "topologies")["identity"]
    'E = X: the features as they are, to see what topology adds.'
    """
    found: dict[str, str] = {}
    for file in sorted((PACKAGE / folder).rglob("*.py")):
        text = file.read_text("utf-8")
        if f"@{resolver}.register" in text:  # most files have none: parsing is what takes time
            found |= _registered(ast.parse(text), resolver)
    return dict(sorted(found.items()))


def declared_summary(file: str, function: str) -> str:
    """Return the first line of a function's docstring, empty where it has none.

    >>> declared_summary("core/declared.py", "declared_summary")
    "Return the first line of a function's docstring, empty where it has none."
    """
    path = PACKAGE / file
    body = ast.parse(path.read_text("utf-8")).body if path.exists() else []
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return _first_line(node)
    return ""


def _registered(module: ast.Module, resolver: str) -> dict[str, str]:
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    return {
        name: _first_line(node)
        for node in classes
        if any(ast.unparse(mark) == f"{resolver}.register" for mark in node.decorator_list)
        and (name := _name(node)) is not None
    }


def _name(node: ast.ClassDef) -> str | None:
    """Return the text that a class body gives to ``name``."""
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="name")], value=ast.Constant(value=str(name))):
                return name
            case ast.AnnAssign(target=ast.Name(id="name"), value=ast.Constant(value=str(name))):
                return name
    return None


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> str:
    return cleandoc(ast.get_docstring(node, clean=False) or "").split("\n")[0]
