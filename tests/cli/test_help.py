"""What --help says: a line for every option, with what happens where it is not given."""

from __future__ import annotations

import typer

from evergraph.cli.app import COMMANDS, app


def test_help_tells_what_is_taken_where_nothing_is_given() -> None:
    group = typer.main.get_command(app)
    context = group.make_context("evergraph", ["--version"], resilient_parsing=True)
    seen = 0
    for name in COMMANDS:
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        inner = type(context)(command, info_name=name, parent=context)
        for parameter in command.params:
            if getattr(parameter, "hidden", False):  # a former name
                continue
            seen += 1
            where, text = f"{name} {parameter.name}", parameter.get_help_record(inner)[1]
            assert parameter.help, where
            if parameter.required:
                assert "required]" in text, where
            elif parameter.name == "settings":
                assert "such as " in text.lower(), where  # any number, and none to begin with
            elif getattr(parameter, "is_flag", False):
                assert parameter.default is False, where  # off unless given goes without saying
            elif parameter.default in (None, [], ()):
                assert "(default: " in text, where
            else:
                assert f"[default: {parameter.default}" in text, where
    assert seen > 60
