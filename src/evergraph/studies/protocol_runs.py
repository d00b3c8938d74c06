"""Methods run under every protocol, and what each paper would report of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.core.errors import ConfigurationError
from evergraph.experiments.bench.checks import check_jobs
from evergraph.experiments.bench.config import BenchConfig
from evergraph.experiments.bench.jobs import expand
from evergraph.studies.base import Options

ORDER = ("paper", "cglb", "delome", "puma", "tpp", "llm4gcl", "ocgl")

Results = Mapping[tuple[str, str], dict[str, Any] | str]
"""By method and protocol: a result, or the sentence that says why there is none."""


def learned(dataset: str, methods: Sequence[str], options: Options) -> Results:
    """Run methods under all protocols; one that cannot be run so says why, and stops no other."""
    found: dict[tuple[str, str], dict[str, Any] | str] = {}
    entries = []
    for method in methods:
        for protocol in ORDER:
            entry = _entry(method, protocol, options)
            try:
                check_jobs(expand(_bench(dataset, [entry], options)))
                entries.append(entry)
            except ConfigurationError as error:
                found[method, protocol] = str(error)
    rows = options.bench(_bench(dataset, entries, options), _folder(dataset, options))
    for row in rows:
        method, _, protocol = row.job.label.rpartition("+")
        failure = "not finished" if row.failure is None else row.failure.error
        found[method, protocol] = failure if row.result is None else row.result
    return found


def _entry(method: str, protocol: str, options: Options) -> dict[str, Any]:
    quick = {"training": {"epochs": 1}} if options.quick else {}
    return {"name": method, "label": f"{method}+{protocol}", "run": {"protocol": protocol, **quick}}


def _bench(dataset: str, entries: Sequence[dict[str, Any]], options: Options) -> BenchConfig:
    return BenchConfig.of({"datasets": [dataset], "seeds": options.repeats(), "methods": entries})


def _folder(dataset: str, options: Options) -> Path:
    return options.out / "protocols" / Path(dataset).stem


def headline(result: Mapping[str, Any], metric: str = "average_accuracy") -> Any:
    """Return the mean and deviation that the result's protocol reports."""
    told = result["headline"]
    return result[metric][told["testing"]][told["averaging"]]


def per_seed(result: dict[str, Any] | str) -> list[float]:
    """Return the final accuracy of every seed, as the protocol reports it."""
    assert not isinstance(result, str)
    told = result["headline"]
    matrices = (seed[told["testing"]][told["averaging"]] for seed in result["accuracy_matrix"])
    return [float(np.mean(rows[-1])) for rows in matrices]
