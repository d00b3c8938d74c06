"""The same methods on the same graph under every protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from evergraph.core.errors import ConfigurationError
from evergraph.experiments.bench.jobs import BenchConfig, check_jobs, expand
from evergraph.experiments.build import parts_used, resolved
from evergraph.experiments.config import MemoryConfig
from evergraph.experiments.presets import POOLED, read_protocol
from evergraph.graphs import Graph
from evergraph.reports.figures import Look, Picture, drawn, looks_of, percent_limits
from evergraph.reports.runs import percent
from evergraph.studies.base import DatasetStudy, Options, Sheet, studies

ORDER = ("paper", "cglb", "delome", "puma", "tpp", "llm4gcl", "ocgl")
Results = Mapping[tuple[str, str], dict[str, Any] | str]
"""By method and protocol: a result, or the reason why there is none."""
METHODS = ("finetune", "tem", "analytic", "tpp")
QUICK_METHODS = ("finetune", "tem")
READINGS = tuple((t, a) for t in ("local", "global") for a in ("balanced", "plain"))
SHARED = (
    "Protocols that ask for the same run share it, and differ in which of its numbers they report."
)
COLUMNS = ("protocol", "reports", "AA", "AF", *(f"AA {t}, {a}" for t, a in READINGS))


def results_under_protocols(dataset: str, methods: Sequence[str], options: Options) -> Results:
    """Run methods under all protocols; a failing one does not stop the others.

    Protocols that need the same run share it: they differ in what they report.
    """
    results: dict[tuple[str, str], dict[str, Any] | str] = {}
    shared: dict[str, list[tuple[str, str]]] = {}  # by the configuration of their run
    for pair in product(methods, ORDER):
        try:
            (job,) = expand(_bench(dataset, [pair], options))
            check_jobs([job])
            run = resolved(job.config).model_copy(update={"protocol": None})
            if "memory" not in parts_used(job.config):
                run = run.model_copy(update={"memory": MemoryConfig()})
            shared.setdefault(run.to_toml(), []).append(pair)
        except ConfigurationError as error:
            results[pair] = str(error)
    first = [pairs[0] for pairs in shared.values()]
    folder = options.out / "protocols" / Path(dataset).stem
    rows = options.bench(_bench(dataset, first, options), folder)
    for row, pairs in zip(rows, shared.values(), strict=True):
        failure = "not finished" if row.failure is None else row.failure.error
        for method, protocol in pairs:
            reported = {"headline": read_protocol(protocol).headline}
            results[method, protocol] = failure if row.result is None else row.result | reported
    return results


def _bench(dataset: str, pairs: Sequence[tuple[str, str]], options: Options) -> BenchConfig:
    quick = {"training": {"epochs": 1}} if options.quick else {}
    entries = [
        {"name": method, "label": f"{method}+{protocol}", "run": {"protocol": protocol, **quick}}
        for method, protocol in pairs
    ]
    return BenchConfig.of({"datasets": [dataset], "seeds": options.repeats(), "methods": entries})


def headline(result: Mapping[str, Any], metric: str = "average_accuracy") -> Any:
    """Return the mean and deviation that the result's protocol reports."""
    reported = result["headline"]
    return result[metric][reported["testing"]][reported["averaging"]]


@studies.register
class Protocols(DatasetStudy):
    """The same methods under every protocol: AA and AF as each paper reports them."""

    name = "protocols"
    datasets = ("computers", "coauthor-cs")
    needs = ("matplotlib",)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        methods = options.methods or (QUICK_METHODS if options.quick else METHODS)
        results = results_under_protocols(dataset, methods, options)
        stem = Path(dataset).stem
        sheets = []
        for method in methods:
            # A row per protocol: what its paper reports, and the other numbers of the run.
            title = f"{method} on {stem} under every protocol, percent"
            rows = [_cells(protocol, results[method, protocol]) for protocol in ORDER]
            notes = (_seeds(options), SHARED, _spread(method, results))
            sheets.append(Sheet(f"protocols-{stem}-{method}", title, COLUMNS, rows, notes))
        if len(methods) > 1:
            sheets.append(_sheet_of_methods(stem, methods, results, options))
        title = f"Protocols on {stem}: AA as each paper reports it"
        picture = _draw(f"protocols-{stem}", title, looks_of(methods), results)
        return [*sheets, Sheet(f"protocols-{stem}", title, picture=picture)]


def _cells(name: str, result: dict[str, Any] | str) -> tuple[str, ...]:
    protocol = read_protocol(name)
    reports = f"{protocol.testing}, {protocol.averaging}"
    if protocol.pooled:
        method = result["config"]["method"]["name"] if isinstance(result, dict) else ""
        reports += ", per test set" + ("" if method.endswith(POOLED) else " (here per node)")
    if isinstance(result, str):
        return (name, reports, f"not run: {result}", *["-"] * (len(COLUMNS) - 3))
    readings = [result["average_accuracy"][t][a] for t, a in READINGS]
    spreads = [headline(result), headline(result, "average_forgetting"), *readings]
    return (name, reports, *map(percent, spreads))


def _seeds(options: Options) -> str:
    count = len(options.repeats())
    warning = " --quick: one epoch, not to be quoted." if options.quick else ""
    return f"{count} seed{'s' if count > 1 else ''}.{warning}"


def _spread(method: str, results: Results) -> str:
    """Return a sentence on the range over protocols, and over the readings of one run."""
    reported: dict[str, float] = {}
    ranges: dict[str, float] = {}  # of the readings of one run
    for protocol in ORDER:
        result = results[method, protocol]
        if isinstance(result, str):
            continue
        reported[protocol] = 100 * headline(result)["mean"]
        readings = [100 * result["average_accuracy"][t][a]["mean"] for t, a in READINGS]
        ranges[protocol] = max(readings) - min(readings)
    if not reported:
        return "No protocol could be run."
    low = min(reported, key=lambda p: reported[p])
    high = max(reported, key=lambda p: reported[p])
    widest = max(ranges, key=lambda p: ranges[p])
    return (
        f"Protocols: from {reported[low]:.1f} ({low}) to {reported[high]:.1f} ({high}), "
        f"{reported[high] - reported[low]:.1f} points apart. Readings of one run: up to "
        f"{ranges[widest]:.1f} points apart ({widest})."
    )


def _sheet_of_methods(
    stem: str, methods: Sequence[str], results: Results, options: Options
) -> Sheet:
    """Return all methods under every protocol."""
    title = f"Methods and protocols on {stem}: AA as each paper reports it, percent"
    rows = []
    for protocol in ORDER:
        cells = []
        for method in methods:
            result = results[method, protocol]
            cells.append("not run" if isinstance(result, str) else percent(headline(result)))
        rows.append((protocol, *cells))
    notes = (_seeds(options),)
    return Sheet(f"protocols-{stem}-methods", title, ("protocol", *methods), rows, notes)


def _draw(name: str, title: str, looks: Mapping[str, Look], results: Results) -> Picture:
    def draw(figure: Any, axes: Any) -> None:
        means = {
            pair: 100 * headline(result)["mean"]
            for pair, result in results.items()
            if isinstance(result, dict)
        }
        for method, look in looks.items():
            rows = [row for row, protocol in enumerate(ORDER) if (method, protocol) in means]
            values = [means[method, ORDER[row]] for row in rows]
            axes.plot(values, rows, look.marker, color=look.colour, label=method, markersize=6)
        axes.set_yticks(range(len(ORDER)), ORDER)
        axes.set_ylim(len(ORDER) - 0.5, -0.5)
        axes.set_xlim(percent_limits([*means.values(), 100.0]))
        axes.set(xlabel="average accuracy after the last task (%)")
        axes.set_title(title, pad=24)
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=len(looks),
            frameon=False,
            borderaxespad=0.1,
            borderpad=0.2,
            handletextpad=0.1,
            columnspacing=1.2,
            fontsize=8,
        )

    return drawn(name, title, (6.2, 3.0), draw)
