"""The command line: ``evergraph``.

Nothing here imports torch before a command needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress

import typer

from evergraph.cli.commands import Commands, is_refusal, refusal
from evergraph.cli.output import never_fail, say
from evergraph.core.errors import EXIT_CODE, ClusterError, EvergraphError

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
