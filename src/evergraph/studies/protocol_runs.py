"""Methods run under every protocol, and what each paper would report of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from evergraph.core.errors import ConfigurationError
from evergraph.experiments.bench.config import BenchConfig
from evergraph.experiments.bench.jobs import check_jobs, expand
from evergraph.experiments.build import parts_used, resolved
from evergraph.experiments.config import MemoryConfig, RunConfig
from evergraph.experiments.protocols import read_protocol
from evergraph.studies.base import Options

ORDER = ("paper", "cglb", "delome", "puma", "tpp", "llm4gcl", "ocgl")

Results = Mapping[tuple[str, str], dict[str, Any] | str]
"""By method and protocol: a result, or the sentence that says why there is none."""


def learned(dataset: str, methods: Sequence[str], options: Options) -> Results:
    """Run methods under all protocols; one that cannot be run so says why, and stops no other.

    Protocols that ask for the same run share it: they differ in what they report of it.
    """
    found: dict[tuple[str, str], dict[str, Any] | str] = {}
    shared: dict[str, list[tuple[str, str]]] = {}
    for place in product(methods, ORDER):
        try:
            (job,) = expand(_bench(dataset, [place], options))
            check_jobs([job])
            shared.setdefault(_alike(job.config), []).append(place)
        except ConfigurationError as error:
            found[place] = str(error)
    first = [places[0] for places in shared.values()]
    rows = options.bench(_bench(dataset, first, options), _folder(dataset, options))
    for row, places in zip(rows, shared.values(), strict=True):
        failure = "not finished" if row.failure is None else row.failure.error
        for method, protocol in places:
            told = {"headline": read_protocol(protocol).headline}
            result = failure if row.result is None else row.result | told
            found[method, protocol] = result
    return found


def _alike(config: RunConfig) -> str:
    """Return a text that is the same for configurations which run the same."""
    plain = resolved(config).model_copy(update={"protocol": None})
    if "memory" not in parts_used(config):
        plain = plain.model_copy(update={"memory": MemoryConfig()})
    return plain.to_toml()


def _bench(dataset: str, places: Sequence[tuple[str, str]], options: Options) -> BenchConfig:
    quick = {"training": {"epochs": 1}} if options.quick else {}
    entries = [
        {"name": method, "label": f"{method}+{protocol}", "run": {"protocol": protocol, **quick}}
        for method, protocol in places
    ]
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
