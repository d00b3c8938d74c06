"""What --help says: a line for every option, with what happens where it is not given."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from evergraph.cli.app import COMMANDS, app


def parameters() -> list[Any]:
    """Return every option and argument of every command, with the text that --help has for it."""
    group = typer.main.get_command(app)
    context = group.make_context("evergraph", ["--version"], resilient_parsing=True)
    found = []
    for name in COMMANDS:
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        inner = type(context)(command, info_name=name, parent=context)
        found += [
            pytest.param(
                parameter, parameter.get_help_record(inner)[1], id=f"{name} {parameter.name}"
            )
            for parameter in command.params
            if not getattr(parameter, "hidden", False)  # a former name
        ]
    return found


@pytest.mark.parametrize(("parameter", "text"), parameters())
def test_help_tells_what_is_taken_where_nothing_is_given(parameter: Any, text: str) -> None:
    assert parameter.help
    if parameter.required:
        assert "required]" in text
    elif parameter.name == "settings":
        assert "such as " in text.lower()  # any number of them, and none to begin with
    elif getattr(parameter, "is_flag", False):
        assert parameter.default is False  # that it is off unless given goes without saying
    elif parameter.default in (None, [], ()):
        assert "(default: " in text
    else:
        assert f"[default: {parameter.default}" in text


def test_every_command_was_looked_at() -> None:
    seen = {str(one.id).split()[0] for one in parameters()}
    assert seen == set(COMMANDS)
    assert len(parameters()) > 60
