"""The commands by name, each imported when it is asked for."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from evergraph.core.declared import declared_summary

# In the order in which --help lists them; NAME is the function NAME_command of a file so called.
COMMANDS = (
    "run",
    "bench",
    "info",
    "import",
    "list",
    "report",
    "reproduce",
    "serve",
    "ingest",
    "predict",
)


class Commands(TyperGroup):
    """Commands of which ``--help`` reads one line each, and a call imports one.

    Importing all of them takes longer than everything else that ``--help`` does.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by name, None where there is none of that name."""
        if cmd_name in COMMANDS:
            return _load(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that was typed; a wrong name is met with the nearest ones."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:  # click's own error, or that of the copy inside newer typers
            near = get_close_matches(args[0], self.list_commands(ctx))
            if near and hasattr(error, "message"):
                meant = ", ".join(map(repr, near))
                error.message = f"{error.message.rstrip('.')}. Did you mean {meant}?"
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command's name and what it does."""
        rows = [
            (name, declared_summary(f"cli/{name}_command.py", f"{name}_command"))
            for name in COMMANDS
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _load(name: str) -> Any:
    """Import a command and return what typer makes of its function."""
    function = getattr(import_module(f"evergraph.cli.{name}_command"), f"{name}_command")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(function)
    return typer.main.get_command(alone)
