"""``evergraph plan``: what a run will take."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from evergraph.cli import options
from evergraph.cli.options import parse_seeds, parse_settings, several
from evergraph.cli.output import print_json, print_table, say
from evergraph.cli.progress import spinner
from evergraph.core.sizes import shown

if TYPE_CHECKING:
    from evergraph.experiments.plan import Cost, Plan


def plan_command(
    dataset: str = typer.Argument("wordnet", help="A name, or a path, as for a run."),
    method: str | None = typer.Option(None, help="Any method, as for a run (default: auto)."),
    seeds: options.Seeds = None,
    device: options.Device = None,
    settings: options.Settings = [],
    preset: options.Preset = None,
    plugins: options.Plugins = [],
    seconds: float = typer.Option(60.0, help="How long to spend on it; longer is more exact."),
    as_json: options.AsJson = False,
) -> None:
    """Estimate a run's time and memory by running it on small copies of its graph.

    For example: evergraph plan my_graph --method tem. The copies keep the degrees and classes of
    the graph; each is learned in a process of its own, on this machine and on the device that the
    run would use.
    """
    given = {"dataset": dataset, "seeds": parse_seeds(seeds), "device": device, "plugins": plugins}
    [config] = several(method, preset, given, parse_settings(settings))
    with spinner(f"loading torch and {dataset}"):
        from evergraph.experiments.plan import plan_run

    try:
        plan = plan_run(
            config,
            seconds=seconds,
            on_copy=lambda nodes: say(f"learning a copy of {nodes:,} nodes ...", err=True),
        )
    except KeyboardInterrupt:
        say("interrupted: a plan keeps nothing, give the same command again", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(asdict(plan))
        return
    _print(plan, config.method.name, dataset)


def _print(plan: Plan, method: str, dataset: str) -> None:
    columns = ("nodes", "processor", "clock", "memory", "GPU memory")
    rows = [_row(f"{cost.share * plan.nodes:,.0f}", cost) for cost in plan.copies]
    rows.append(_row(f"{plan.nodes:,} (estimated)", plan.seed))
    used = 5 if plan.seed.device_memory else 4
    print_table(columns[:used], [row[:used] for row in rows], f"{method} on {dataset}, one seed")
    if plan.seeds > 1:
        say(f"{plan.seeds} seeds, one after another: {_time(plan.seeds * plan.seed.clock)}")


def _row(nodes: str, cost: Cost) -> tuple[str, ...]:
    spent = _time(cost.processor), _time(cost.clock)
    return nodes, *spent, shown(cost.memory), shown(cost.device_memory)


def _time(seconds: float) -> str:
    """Return seconds as people say them.

    >>> _time(0.04), _time(75), _time(7_300), _time(200_000)
    ('0.0 s', '75 s', '122 min', '56 h')
    """
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 10_800 else f"{seconds / 3600:.0f} h"
