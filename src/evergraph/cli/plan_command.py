"""``evergraph plan``: what a run will take, told before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.errors import ConfigurationError
from evergraph.core.sizes import parse_size, shown

if TYPE_CHECKING:
    from evergraph.experiments.planning.constants import Constants
    from evergraph.experiments.planning.graph_facts import GraphFacts
    from evergraph.experiments.planning.machine import Machines
    from evergraph.experiments.planning.plan import Plan


def plan_command(
    dataset: str | None = typer.Argument(
        None,
        help="A dataset's name, or a path: a graph folder, split or whole, or a file that a run "
        "takes; nothing is downloaded (default: the sizes below).",
    ),
    machines: int = typer.Option(1, help="How many machines."),
    memory: str | None = typer.Option(
        None, help="Memory of each, such as 128GB (default: that of this machine)."
    ),
    cores: int | None = typer.Option(None, help="Cores of each (default: those of this machine)."),
    link: str = typer.Option("10Gbit", help="What the network of each carries a second."),
    disk: str | None = typer.Option(
        None, help="What the disk of each reads and writes a second (default: as measured)."
    ),
    memory_limit: str | None = typer.Option(
        None, help="The --memory-limit that the run will be given (default: none)."
    ),
    threads: int = typer.Option(1, help="Threads of each Ray worker."),
    job: str = typer.Option(
        "run", help="run: a stream on the graph; embed: all nodes once, then a stream on them."
    ),
    method: str = typer.Option("auto", help="auto, analytic or tem."),
    hops: int = typer.Option(2, help="L, how far an embedding looks; auto has its own."),
    width: int | None = typer.Option(
        None, help="Random features or hidden units (default: the method's own)."
    ),
    classes_per_task: int = typer.Option(2, help="New classes per task."),
    scale: float = typer.Option(1.0, help="Of a twin, as for a run."),
    nodes: float | None = typer.Option(None, help="How many nodes (default: the dataset's)."),
    edges: float | None = typer.Option(
        None, help="Adjacency entries; an edge counts twice (default: the dataset's)."
    ),
    features: int | None = typer.Option(None, help="How many features (default: the dataset's)."),
    classes: int | None = typer.Option(None, help="How many classes (default: the dataset's)."),
    labelled: float | None = typer.Option(None, help="Nodes with a class (default: all)."),
    measure: bool = typer.Option(
        False, "--measure", help="Measure this machine first, and keep what was found."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Tell memory, traffic and time of a run before it starts, and what will not fit.

    For example: evergraph plan products --machines 4 --memory 128GB --link 25Gbit. Without
    --measure, constants are used that were measured on this machine before, or those that came
    with the installation; the last line says which.
    """
    if dataset is None and nodes is None and measure:
        _measured()
        return
    from evergraph.experiments.planning.learning import learning_of
    from evergraph.experiments.planning.plan import make_plan

    facts = _facts(dataset, scale, nodes, edges, features, classes, labelled)
    on = _machines(machines, cores, memory, link, disk, memory_limit, threads)
    learning = learning_of(method, features=facts.features, hops=hops, width=width)
    constants = _measured() if measure else _constants()
    plan = make_plan(
        facts,
        on,
        learning,
        constants,
        job=job,  # type: ignore[arg-type]
        classes_per_task=classes_per_task,
    )
    if as_json:
        print_json(plan.to_dict() | {"constants": constants.machine})
        return
    _print(plan, constants)


def _facts(
    dataset: str | None,
    scale: float,
    nodes: float | None,
    edges: float | None,
    features: int | None,
    classes: int | None,
    labelled: float | None,
) -> GraphFacts:
    from evergraph.experiments.planning.graph_facts import facts_by_hand, facts_of

    sizes = {"nodes": nodes, "edges": edges, "features": features, "classes": classes}
    given = [name for name, value in sizes.items() if value is not None]
    if dataset is not None:
        if given or labelled is not None:
            first = (given or ["labelled"])[0]
            raise ConfigurationError(f"--{first} was given with dataset {dataset!r}: leave one out")
        return facts_of(dataset, scale=scale)
    missing = [name for name, value in sizes.items() if value is None]
    if missing:
        raise ConfigurationError(
            f"a plan takes a dataset, or its sizes: --{' and --'.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing"
        )
    assert nodes is not None
    assert edges is not None
    assert features is not None
    assert classes is not None
    for name, value in (*sizes.items(), ("labelled", labelled)):
        if value is not None and value < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {value:g}")
    return facts_by_hand(nodes, edges, features, classes, labelled=labelled)


def _machines(
    count: int,
    cores: int | None,
    memory: str | None,
    link: str,
    disk: str | None,
    memory_limit: str | None,
    threads: int,
) -> Machines:
    import os

    import psutil

    from evergraph.core.checks import check_integer
    from evergraph.experiments.planning.machine import Machines, parse_rate

    cores = (os.cpu_count() or 1) if cores is None else cores
    for name, value in (("machines", count), ("cores", cores), ("threads", threads)):
        check_integer(name, value, least=1)
    there = int(psutil.virtual_memory().total) if memory is None else parse_size(memory)
    return Machines(
        count,
        cores,
        there,
        parse_rate(link),
        None if memory_limit is None else parse_size(memory_limit),
        threads,
        None if disk is None else parse_rate(disk),
    )


def _constants() -> Constants:
    from evergraph.experiments.planning.constants import read_constants

    return read_constants()


def _measured() -> Constants:
    from rich.console import Console

    from evergraph.experiments.planning.constants import write_constants
    from evergraph.experiments.planning.measuring import measure

    console = Console(stderr=True)
    with spinner("measuring this machine, which takes about a minute"):
        found = measure(on_stage=lambda stage: console.log(f"measuring: {stage}"))
    say(f"measured constants are kept in {write_constants(found)}", err=True)
    return found


def _print(plan: Plan, constants: Constants) -> None:
    facts, on, best = plan.facts, plan.machines, plan.best
    say(
        f"{facts.name}: {facts.nodes:,} nodes, {facts.entries:,} entries, {facts.features} "
        f"features, {len(facts.class_sizes)} classes; adjacency {shown(facts.adjacency_bytes)}, "
        f"features {shown(facts.feature_bytes)}"
    )
    say(
        f"{on.count} machine{'s' if on.count > 1 else ''} of {on.cores} cores, {shown(on.memory)} "
        f"of memory and {on.link * 8 / 1e9:g} Gbit/s; {plan.learning.method}, job {plan.job}"
    )
    columns = ("way", "embedding", "in total", "over a link", "memory", "disk")
    print_table(columns, [_row(way, best is way) for way in plan.ways])
    for way in plan.ways:
        if way.misfit is not None:
            say(f"{way.name} does not fit: {way.misfit}.")
    if best is not None:
        steps = [(s.name, s.where, _time(s.seconds), _bytes(s.bytes_moved)) for s in best.steps]
        print_table(("step", "where", "time", "over a link"), steps, title=f"Best: {best.name}")
    if plan.job == "run" and facts.labelled < facts.nodes // 2:
        say(
            f"The {facts.nodes - facts.labelled:,} nodes without a class come along with tasks; "
            "--job embed plans one embedding of all nodes, and a stream on those with a class."
        )
    say(f"Constants: {constants.machine}.")


def _row(way: Any, best: bool) -> tuple[str, ...]:
    name = f"{way.name} (best)" if best else way.name
    if way.misfit is not None:
        return name, "-", "-", "-", "does not fit", "-"
    return (
        name,
        _time(way.embedding),
        _time(way.seconds),
        _bytes(way.bytes_moved),
        _bytes(way.memory),
        _bytes(way.disk),
    )


def _time(seconds: float) -> str:
    """Return seconds as people say them.

    >>> _time(0.04), _time(75), _time(7_300), _time(200_000)
    ('0.0 s', '75 s', '122 min', '56 h')
    """
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 10_800 else f"{seconds / 3600:.0f} h"


def _bytes(size: float) -> str:
    return "-" if size == 0 else shown(size)
