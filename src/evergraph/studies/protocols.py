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


def learned(dataset: str, methods: Sequence[str], options: Options) -> Results:
    """Run methods under all protocols; a failing one does not stop the others.

    Protocols that need the same run share it: they differ in what they report.
    """
    found: dict[tuple[str, str], dict[str, Any] | str] = {}
    shared: dict[str, list[tuple[str, str]]] = {}
    for place in product(methods, ORDER):
        try:
            (job,) = expand(_bench(dataset, [place], options))
            check_jobs([job])
            run = resolved(job.config).model_copy(update={"protocol": None})
            if "memory" not in parts_used(job.config):
                run = run.model_copy(update={"memory": MemoryConfig()})
            shared.setdefault(run.to_toml(), []).append(place)
        except ConfigurationError as error:
            found[place] = str(error)
    first = [places[0] for places in shared.values()]
    folder = options.out / "protocols" / Path(dataset).stem
    rows = options.bench(_bench(dataset, first, options), folder)
    for row, places in zip(rows, shared.values(), strict=True):
        failure = "not finished" if row.failure is None else row.failure.error
        for method, protocol in places:
            told = {"headline": read_protocol(protocol).headline}
            result = failure if row.result is None else row.result | told
            found[method, protocol] = result
    return found


def _bench(dataset: str, places: Sequence[tuple[str, str]], options: Options) -> BenchConfig:
    quick = {"training": {"epochs": 1}} if options.quick else {}
    entries = [
        {"name": method, "label": f"{method}+{protocol}", "run": {"protocol": protocol, **quick}}
        for method, protocol in places
    ]
    return BenchConfig.of({"datasets": [dataset], "seeds": options.repeats(), "methods": entries})


def headline(result: Mapping[str, Any], metric: str = "average_accuracy") -> Any:
    """Return the mean and deviation that the result's protocol reports."""
    told = result["headline"]
    return result[metric][told["testing"]][told["averaging"]]


@studies.register
class Protocols(DatasetStudy):
    """The same methods under every protocol: AA and AF as each paper reports them."""

    name = "protocols"
    datasets = ("computers", "coauthor-cs")
    needs = ("matplotlib",)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        methods = options.methods or (QUICK_METHODS if options.quick else METHODS)
        results = learned(dataset, methods, options)
        stem, looks = Path(dataset).stem, looks_of(methods)
        made = []
        for method in methods:
            # A row per protocol: what its paper reports, and the other numbers of the run.
            title = f"{method} on {stem} under every protocol, percent"
            rows = [_line(protocol, results[method, protocol]) for protocol in ORDER]
            notes = (_seeds(options), SHARED, _spread(method, results))
            made.append(Sheet(f"protocols-{stem}-{method}", title, COLUMNS, rows, notes))
        if len(methods) > 1:
            made.append(_beside(stem, methods, results, options))
        title = f"Protocols on {stem}: AA as each paper reports it"
        picture = _draw(f"protocols-{stem}", title, looks, results)
        return [*made, Sheet(f"protocols-{stem}", title, picture=picture)]


def _line(protocol: str, result: dict[str, Any] | str) -> tuple[str, ...]:
    told = read_protocol(protocol)
    reports = f"{told.testing}, {told.averaging}"
    if told.pooled:
        name = result["config"]["method"]["name"] if isinstance(result, dict) else ""
        reports += ", per test set" + ("" if name.endswith(POOLED) else " (here per node)")
    if isinstance(result, str):
        return (protocol, reports, f"not run: {result}", *["-"] * (len(COLUMNS) - 3))
    every = (result["average_accuracy"][t][a] for t, a in READINGS)
    numbers = (headline(result), headline(result, "average_forgetting"), *every)
    return (protocol, reports, *(percent(number) for number in numbers))


def _seeds(options: Options) -> str:
    count = len(options.repeats())
    few = " --quick: one epoch, not to be quoted." if options.quick else ""
    return f"{count} seed{'s' if count > 1 else ''}.{few}"


def _spread(method: str, results: Results) -> str:
    """Return a sentence on the range over protocols, and over the readings of one run."""
    known = {p: r for p in ORDER if not isinstance(r := results[method, p], str)}
    if not known:
        return "No protocol could be run."
    reported = {p: 100 * headline(r)["mean"] for p, r in known.items()}
    low, high = (pick(reported, key=lambda p: reported[p]) for pick in (min, max))
    apart = {}
    for protocol, result in known.items():
        every = [100 * result["average_accuracy"][t][a]["mean"] for t, a in READINGS]
        apart[protocol] = max(every) - min(every)
    most = max(apart, key=lambda p: apart[p])
    return (
        f"Protocols: from {reported[low]:.1f} ({low}) to {reported[high]:.1f} ({high}), "
        f"{reported[high] - reported[low]:.1f} points apart. Readings of one run: up to "
        f"{apart[most]:.1f} points apart ({most})."
    )


def _beside(stem: str, methods: Sequence[str], results: Results, options: Options) -> Sheet:
    """Return all methods under every protocol."""
    title = f"Methods and protocols on {stem}: AA as each paper reports it, percent"
    rows = []
    for protocol in ORDER:
        found = [results[method, protocol] for method in methods]
        told = ["not run" if isinstance(r, str) else percent(headline(r)) for r in found]
        rows.append((protocol, *told))
    notes = (_seeds(options),)
    return Sheet(f"protocols-{stem}-methods", title, ("protocol", *methods), rows, notes)


def _draw(name: str, title: str, looks: Mapping[str, Look], results: Results) -> Picture:
    def draw(figure: Any, axes: Any) -> None:
        known = {k: 100 * headline(r)["mean"] for k, r in results.items() if isinstance(r, dict)}
        for method, look in looks.items():
            places = [place for place, p in enumerate(ORDER) if (method, p) in known]
            values = [known[method, ORDER[place]] for place in places]
            axes.plot(values, places, look.marker, color=look.colour, label=method, markersize=6)
        axes.set_yticks(range(len(ORDER)), ORDER)
        axes.set_ylim(len(ORDER) - 0.5, -0.5)
        axes.set_xlim(percent_limits([*known.values(), 100.0]))
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
