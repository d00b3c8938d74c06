"""The ``evergraph`` command line: commands by name, and errors for unknown words.

Each command is imported when it is called, and torch only when a command needs it, so ``--help``
is quick.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from evergraph.cli.output import never_fail, say
from evergraph.core.component import declared_parts, declared_summary
from evergraph.core.errors import (
    EXIT_CODE,
    ClusterError,
    ConfigurationError,
    EvergraphError,
    UnknownNameError,
    did_you_mean,
)

LESSON = """\
[bold]evergraph[/bold] classifies the nodes of a graph that keeps growing.

Compare methods on a graph that arrives in tasks:
  [cyan]evergraph run[/cyan]                     WordNet in 22 tasks, recommended method
  [cyan]evergraph run --method finetune[/cyan]   a network without a memory, which forgets
  [cyan]evergraph run --preset paper[/cyan]      the recipe of the KDD 2024 paper
  [cyan]evergraph run --dataset my.npz[/cyan]    your graph: .npz, .pt, or a folder of tables
  [cyan]evergraph info wordnet[/cyan]            show what a graph contains
  [cyan]evergraph import E N --out G[/cyan]      convert tables of any size into a graph
  [cyan]evergraph plan wordnet[/cyan]            estimate a run's time and memory
  [cyan]evergraph embed G --out E[/cyan]         compute embeddings once, for many runs
  [cyan]evergraph list methods[/cyan]            list methods; also datasets, samplers, ...
  [cyan]evergraph bench quick[/cyan]             compare many methods
  [cyan]evergraph reproduce table1[/cyan]        reproduce a table of the paper
  [cyan]evergraph report runs[/cyan]             compare finished runs, with figures
  [cyan]evergraph compare A B[/cyan]             test whether one run beats another

Keep a learner up to date with tables or events (L is its folder):
  [cyan]evergraph ingest L --nodes N.csv[/cyan]  learn tables, again when they have grown
  [cyan]evergraph predict L --all[/cyan]         predict every node of a learner
  [cyan]evergraph evaluate L --nodes T.csv[/cyan]  compare predictions with true labels
  [cyan]evergraph report L[/cyan]                draw its accuracy, classes and confusion
  [cyan]evergraph serve L[/cyan]                 serve a live learner over HTTP
  [cyan]evergraph backup L day.tar[/cyan]        copy a learner while it is in use

Every command takes [cyan]--help[/cyan]. Continue a stopped run with [cyan]--resume[/cyan].
"""


def sentence_of(error: Any) -> str:
    """Return an error of typer's as one sentence."""
    context = getattr(error, "ctx", None)
    command = "evergraph" if context is None else context.command_path
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        options = [] if context is None else [o for p in context.command.params for o in p.opts]
        message = (
            f"no such option {error.option_name!r}: {did_you_mean(error.option_name, options)}"
        )
        return f"{message}{command} --help lists all"
    # Typer spreads lists over several lines, and prefixes some messages with "Value error".
    message = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; {command} --help shows the usage"


def arguments_as_options(message: str) -> str:
    """Return a message with the arguments of Python that it proposes as options.

    >>> arguments_as_options("n.csv: has no column 'id': it has no, kind; are they id='no', label='kind'?")
    "n.csv: has no column 'id': it has no, kind; are they --id no --label kind?"
    """
    start, question, arguments = message.rpartition(
        "; is it " if "; is it " in message else "; are they "
    )
    arguments = re.sub(
        r"\b(id|label|source|target|weight)='([^']*)'(?:, )?", r"--\1 \2 ", arguments
    )
    return f"{start}{question}{arguments.replace(' ?', '?')}"


def extra_arguments(command: str, extra: Sequence[str]) -> ConfigurationError:
    """Return the error for arguments that a command does not take; ``run`` takes options alone."""
    argument = extra[0]
    further = "further "
    hint = ""
    if command == "run":
        from evergraph.experiments.presets import presets

        option = "--dataset"
        if argument.endswith(".toml") or argument in presets():
            option = "--preset"
        elif argument.endswith(".py"):
            option = "--plugin"
        elif declared_parts("methods", "methods").keys() & set(argument.split(",")):
            option = "--method"
        further = ""
        hint = f"did you mean {option} {argument}? "
    elif command in ("ingest", "evaluate") and argument.endswith(TABLES):
        hint = "tables are given by --nodes and --edges: "
    return ConfigurationError(
        f"{command} takes no {further}argument {argument!r}: "
        f"{hint}evergraph {command} --help lists all options"
    )


# In the order in which --help lists them, each with the module that defines NAME_command.
COMMANDS = {
    "run": "run_command",
    "bench": "bench_commands",
    "info": "graph_commands",
    "plan": "run_command",
    "import": "graph_commands",
    "embed": "graph_commands",
    "list": "graph_commands",
    "report": "results_commands",
    "compare": "results_commands",
    "reproduce": "bench_commands",
    "serve": "serve_command",
    "ingest": "ingest_command",
    "predict": "asking_commands",
    "explain": "asking_commands",
    "suggest": "asking_commands",
    "status": "results_commands",
    "evaluate": "results_commands",
    "refit": "upkeep_commands",
    "compact": "upkeep_commands",
    "backup": "upkeep_commands",
    "restore": "upkeep_commands",
    "check": "upkeep_commands",
}


TABLES = (".csv", ".csv.gz", ".tsv", ".parquet")
# Words that people try first.
MEANT = {
    "learn": "ingest",
    "fit": "ingest",
    "train": "run",
    "add": "ingest",
    "test": "evaluate",
    "score": "evaluate",
    "classify": "predict",
    "show": "info",
    "describe": "info",
    "delete": "ingest --forget",
    "forget": "ingest --forget",
}


class Commands(TyperGroup):
    """Group that imports only the command being called.

    ``--help`` reads one line of each from its source, because importing all of them would take
    longer than everything else that ``--help`` does.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by name, or None if there is no such command."""
        if cmd_name in COMMANDS:
            return _load(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that was typed; the error for a wrong name suggests the nearest."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            if meant := MEANT.get(args[0]):
                message = f"unknown command {args[0]!r}: did you mean 'evergraph {meant}'?"
                raise ConfigurationError(message)
            raise UnknownNameError("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and summary of each command."""
        rows = [
            (name, declared_summary(f"cli/{file}.py", f"{name}_command"))
            for name, file in COMMANDS.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Command(TyperCommand):
    """Command whose error for an unexpected argument suggests what to type instead."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse options and arguments; raise if any argument is left over."""
        ctx.allow_extra_args = True  # rejected below, with a clearer error
        extra: list[str] = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            raise extra_arguments(str(ctx.info_name), extra)
        return extra


@cache  # typer asks for a command twice
def _load(name: str) -> Any:
    function = getattr(import_module(f"evergraph.cli.{COMMANDS[name]}"), f"{name}_command")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=Command)(function)
    return typer.main.get_command(alone)


# Plain help: rich's boxes import a Markdown parser and a syntax highlighter, which is slow.
app = typer.Typer(
    cls=Commands, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)


@app.callback(invoke_without_command=True)
def teach(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    """Continual node classification on graphs that grow."""
    if version:
        from evergraph import __version__

        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        text = LESSON  # rich would colour it as well, and takes as long to import as all the rest
        for mark, code in (("[bold]", 1), ("[cyan]", 36), ("[/bold]", 0), ("[/cyan]", 0)):
            text = text.replace(mark, f"\033[{code}m")
        typer.echo(text, nl=False, color=False if os.environ.get("NO_COLOR") else None)


def main() -> None:
    """Run the command line; evergraph's and typer's errors print one sentence and exit with 2."""
    # Read by OpenMP when torch is loaded: waiting threads sleep instead of spinning. Otherwise
    # another busy process on one core makes training ten times slower (docs/decisions/0009).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING, force=True)
    logging.getLogger("evergraph").setLevel(logging.INFO)
    never_fail()
    try:
        code = app(prog_name="evergraph", standalone_mode=False)
    except EvergraphError as error:
        say(f"error: {arguments_as_options(str(error))}", err=True)
        if isinstance(error, ClusterError):  # Ray would take minutes to shut down
            _discard_output()
            os._exit(EXIT_CODE)
        sys.exit(EXIT_CODE)
    except OSError as error:  # stdout on a full disk, or a file deleted meanwhile
        file = "" if error.filename is None else f"{error.filename}: "
        say(f"error: {file}{error.strerror or error}", err=True)
        _discard_output()
        sys.exit(EXIT_CODE)
    except Exception as error:
        # Typer's own errors have these; newer versions bundle a click of their own, so that their
        # class does not tell.
        if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
            raise
        say(f"error: {sentence_of(error)}", err=True)
        sys.exit(EXIT_CODE)
    sys.exit(code)


def _discard_output() -> None:
    """Discard buffered stdout that cannot be written: Python would try again at exit."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
