"""The commands by name, each imported when asked for, and what is said to unknown words."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from evergraph.core.errors import ConfigurationError, UnknownNameError, did_you_mean
from evergraph.core.resolver import declared_parts, declared_summary


def is_refusal(error: Exception) -> bool:
    """Whether an error is typer's own; by its looks, for newer typers have a click of their own."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def refusal(error: Any) -> str:
    """Return one sentence for an error of typer's."""
    context = getattr(error, "ctx", None)
    where = "evergraph" if context is None else context.command_path
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        known = [] if context is None else [o for p in context.command.params for o in p.opts]
        said = f"no such option {error.option_name!r}: {did_you_mean(error.option_name, known)}"
        return f"{said}{where} --help lists all"
    # Typer writes lists over several lines, and says of some sentences what raised them.
    said = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    return f"{said[:1].lower()}{said[1:]}; {where} --help tells more"


def extra_arguments(command: str, extra: Sequence[str]) -> ConfigurationError:
    """Return what to say to arguments for which a command has no place.

    >>> str(extra_arguments("run", ["tem"]))
    "run takes no argument 'tem': did you mean --method tem? evergraph run --help lists all options"
    """
    hint = f"did you mean {_option(extra[0])} {extra[0]}? " if command == "run" else ""
    return ConfigurationError(
        f"{command} takes no {'further ' if command != 'run' else ''}argument {extra[0]!r}: "
        f"{hint}evergraph {command} --help lists all options"
    )


def _option(word: str) -> str:
    """Return the option of ``run`` that a word was probably meant for."""
    from evergraph.experiments.presets import presets

    if word.endswith(".toml") or word in presets():
        return "--preset"
    if word.endswith(".py"):
        return "--plugin"
    names = set(declared_parts("methods", "methods"))
    return "--method" if names & set(word.split(",")) else "--dataset"


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
