"""The commands by name, each imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from evergraph.cli.refusals import extra_arguments
from evergraph.core.declared import declared_summary
from evergraph.core.errors import UnknownNameError

# In the order in which --help lists them; NAME is the function NAME_command of a file so called.
COMMANDS = (
    "run",
    "bench",
    "info",
    "plan",
    "import",
    "embed",
    "list",
    "report",
    "compare",
    "reproduce",
    "book",
    "submit",
    "serve",
    "ingest",
    "predict",
    "explain",
    "suggest",
    "compact",
    "backup",
    "restore",
    "check",
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
        """Return the command that was typed; a wrong name is met with the nearest one."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise UnknownNameError("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command's name and what it does."""
        rows = [
            (name, declared_summary(f"cli/{name}_command.py", f"{name}_command"))
            for name in COMMANDS
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Command(TyperCommand):
    """A command that says what to do about an argument for which it has no place."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return what is left when all options and arguments are read: nothing."""
        ctx.allow_extra_args = True  # they are refused here, in our words
        left: list[str] = super().parse_args(ctx, args)
        if left and not ctx.resilient_parsing:
            raise extra_arguments(str(ctx.info_name), left)
        return left


def _load(name: str) -> Any:
    """Import a command and return what typer makes of its function."""
    function = getattr(import_module(f"evergraph.cli.{name}_command"), f"{name}_command")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=Command)(function)
    return typer.main.get_command(alone)
