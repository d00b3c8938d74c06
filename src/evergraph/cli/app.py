"""The command line: ``evergraph``, its commands by name, and what is said to unknown words.

A command is imported when it is asked for, and nothing here imports torch before a command needs
it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from evergraph.cli.output import never_fail, say
from evergraph.core.errors import (
    EXIT_CODE,
    ClusterError,
    ConfigurationError,
    EvergraphError,
    UnknownNameError,
    did_you_mean,
)
from evergraph.core.resolver import declared_parts, declared_summary

LESSON = """\
[bold]evergraph[/bold] classifies the nodes of a graph that grows, task after task.

  [cyan]evergraph run[/cyan]                     WordNet in 22 tasks, the best recipe we know
  [cyan]evergraph run --method finetune[/cyan]   a network without a memory: watch it forget
  [cyan]evergraph run --preset paper[/cyan]      the recipe of the KDD 2024 paper
  [cyan]evergraph run --dataset my.npz[/cyan]    your graph: .npz, .pt, or a folder of tables
  [cyan]evergraph info wordnet[/cyan]            what is in a graph
  [cyan]evergraph import E N --out G[/cyan]      tables of edges and nodes, of any size
  [cyan]evergraph plan papers[/cyan]             what a run would take, before it starts
  [cyan]evergraph embed G --out E[/cyan]         embeddings once, for any number of runs
  [cyan]evergraph list methods[/cyan]            also datasets, backbones, samplers, ...
  [cyan]evergraph bench quick[/cyan]             many methods side by side
  [cyan]evergraph reproduce table1[/cyan]        a table of the paper, made again
  [cyan]evergraph report runs[/cyan]             compare finished runs, with pictures
  [cyan]evergraph compare A B[/cyan]             which of two runs is better, in one sentence
  [cyan]evergraph serve papers[/cyan]            a learner living with its graph, over HTTP
  [cyan]evergraph backup papers day.tar[/cyan]   a copy of it, while it goes on learning

Every command takes [cyan]--help[/cyan]. A run that was stopped goes on with [cyan]--resume[/cyan].
"""


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


# In the order in which --help lists them, with the file that has the function NAME_command.
COMMANDS = {
    "run": "run_command",
    "bench": "bench_command",
    "info": "listing_commands",
    "plan": "run_command",
    "import": "graph_commands",
    "embed": "graph_commands",
    "list": "listing_commands",
    "report": "results_commands",
    "compare": "results_commands",
    "reproduce": "reproduce_command",
    "submit": "results_commands",
    "serve": "serve_command",
    "ingest": "ingest_command",
    "predict": "asking_commands",
    "explain": "asking_commands",
    "suggest": "asking_commands",
    "compact": "upkeep_commands",
    "backup": "upkeep_commands",
    "restore": "upkeep_commands",
    "check": "upkeep_commands",
}


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
            (name, declared_summary(f"cli/{file}.py", f"{name}_command"))
            for name, file in COMMANDS.items()
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
    function = getattr(import_module(f"evergraph.cli.{COMMANDS[name]}"), f"{name}_command")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=Command)(function)
    return typer.main.get_command(alone)


# Plain help: the boxes take Markdown and a highlighter of source code, which are slow to import.
app = typer.Typer(
    cls=Commands, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)


@app.callback(invoke_without_command=True)
def teach(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    """Continual node classification on graphs that grow."""
    if version:
        from evergraph import __version__

        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        from rich.console import Console

        Console().print(LESSON, end="")


def main() -> None:
    """Run the command line; an error of ours, or of typer's, is one sentence and exit code 2."""
    # Read by OpenMP when torch is loaded: threads that wait sleep instead of spinning, without
    # which a neighbour on one of the cores makes training ten times slower (docs/decisions/0009).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING, force=True)
    logging.getLogger("evergraph").setLevel(logging.INFO)
    never_fail()
    try:
        code = app(prog_name="evergraph", standalone_mode=False)
    except EvergraphError as error:
        say(f"error: {error}", err=True)
        if isinstance(error, ClusterError):  # of which Ray would take leave for minutes
            _forget_output()
            os._exit(EXIT_CODE)
        sys.exit(EXIT_CODE)
    except OSError as error:  # stdout on a full disk, or a file that went away meanwhile
        where = "" if error.filename is None else f"{error.filename}: "
        say(f"error: {where}{error.strerror or error}", err=True)
        _forget_output()
        sys.exit(EXIT_CODE)
    except Exception as error:
        if not is_refusal(error):
            raise
        say(f"error: {refusal(error)}", err=True)
        sys.exit(EXIT_CODE)
    sys.exit(code)


def _forget_output() -> None:
    """Throw away what stdout still holds: at the end Python would try to write it once more."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
