"""Griffe extension of mkdocs.yml: examples become code blocks, registered parts show their name."""

from __future__ import annotations

from typing import Any

import griffe


class FencedExamples(griffe.Extension):
    """Puts a fence around every example, since our docstrings have no Examples heading."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of anything that has one."""
        if obj.docstring is not None:
            obj.docstring.value = named(fenced(obj.docstring.value), registered_name(obj))


def registered_name(obj: griffe.Object) -> str | None:
    """Return the name by which a registered class is chosen; None for anything else."""
    if not isinstance(obj, griffe.Class):
        return None
    registered = any(str(decorator.value).endswith(".register") for decorator in obj.decorators)
    name = obj.members.get("name")
    if not registered or not isinstance(name, griffe.Attribute):
        return None
    return str(name.value).strip("\"'")


def named(text: str, name: str | None) -> str:
    """Return text with the name after its first paragraph, where there is a name."""
    if name is None:
        return text
    summary, *rest = text.split("\n\n")
    return "\n\n".join([summary, f"Chosen by the name `{name}`.", *rest])


def fenced(text: str) -> str:
    """Return text in which each block that begins with ``>>>`` stands in a fence."""
    blocks = text.split("\n\n")
    return "\n\n".join(
        f"```pycon\n{block}\n```" if block.startswith(">>>") else block for block in blocks
    )
