"""What may be compared with what, and which repeats belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evergraph.core.errors import ResultsError
from evergraph.experiments.config import StreamConfig
from evergraph.experiments.dotted import flat
from evergraph.experiments.protocols import POOLED
from evergraph.reports.comparing.trials import Trials

# What an earlier version did not know, it did as the defaults say.
STREAM: dict[str, Any] = StreamConfig().model_dump(mode="json")

FACTS = ("nodes", "classes", "tasks")
Basis = Literal["paired seeds", "unpaired seeds", "tasks"]


@dataclass(frozen=True)
class Pairing:
    """Which repeats of two configurations are compared.

    Attributes:
        basis: what a difference is measured over. ``paired seeds``: repeats with the same seed, and
            so the same split. ``unpaired seeds``: there are no two such. ``tasks``: repeats do not
            suffice, and results on the last test's tasks are compared.
        ours, theirs: the seeds, in order; paired one by one if they are paired.
        left_out: seeds that only one of the two has, by its name.
    """

    basis: Basis
    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    left_out: Mapping[str, tuple[int, ...]]


def check_comparable(a: Trials, b: Trials) -> None:
    """Raise unless both answered the same questions: same graph, stream, split, way of testing."""
    ours, theirs = conditions(a), conditions(b)
    for key in dict.fromkeys([*ours, *theirs]):
        if ours.get(key) != theirs.get(key) and None not in (_fact(key, ours), _fact(key, theirs)):
            raise ResultsError(
                f"{a.name} and {b.name} cannot be compared: {key} is {ours.get(key)!r} for "
                f"{a.name} and {theirs.get(key)!r} for {b.name}"
            )


def conditions(trials: Trials) -> dict[str, Any]:
    """Return everything that two runs must share to be compared, by what it is called."""
    config = trials.config
    parameters = {key: value for key, value in config["dataset"].items() if key != "name"}
    return {
        "dataset": Path(config["dataset"]["name"]).stem,
        **{f"dataset.{key}": value for key, value in flat(parameters).items()},
        **flat({"stream": STREAM | config["stream"]}),
        "part": config.get("part", "test"),
        "protocol": config.get("protocol"),
        "metric": trials.metric,
        "testing": trials.way[0],
        "averaging": trials.way[1],
        "what is answered at once": _answered(str(config["method"]["name"])),
        **{f"the number of {fact}": trials.facts.get(fact) for fact in FACTS},
    }


def _answered(method: str) -> str:
    return "a whole test set" if method.endswith(POOLED) else "a node"


def _fact(key: str, known: Mapping[str, Any]) -> Any:
    """Return a fact, None where it is not known; anything else is known, even to be None."""
    return known.get(key) if key.startswith("the number of ") else True


def pair(a: Trials, b: Trials) -> Pairing:
    """Return which repeats are compared; raise if they have nothing in common.

    A seed stands for the same split in both: either all seeds share one, or it follows the seed.
    """
    common = tuple(sorted(a.scores.keys() & b.scores.keys()))
    ours, theirs = tuple(sorted(a.scores)), tuple(sorted(b.scores))
    if len(common) >= 2:
        alone = {t.name: tuple(sorted(t.scores.keys() - set(common))) for t in (a, b)}
        left_out = {name: seeds for name, seeds in alone.items() if seeds}
        return Pairing("paired seeds", common, common, left_out)
    if min(len(ours), len(theirs)) >= 2:
        return Pairing("unpaired seeds", ours, theirs, {})
    return _by_tasks(a, b, common)


def _by_tasks(a: Trials, b: Trials, common: tuple[int, ...]) -> Pairing:
    apart = not common and a.config["stream"].get("split_seed") == "run"
    why = {
        "every seed has a split of its own": apart,
        "their results on each task are not kept": not (a.tasks and b.tasks),
        "there is a single task": any(len(row) < 2 for t in (a, b) for row in t.tasks.values()),
    }
    for reason, holds in why.items():
        if holds:
            raise ResultsError(
                f"{a.name} and {b.name} cannot be compared by seeds {_told(a)} and {_told(b)}, and "
                f"not by tasks since {reason}: run both with at least 2 of the same seeds"
            )
    ours, theirs = (common or tuple(sorted(t.scores)) for t in (a, b))
    return Pairing("tasks", ours, theirs, {})


def _told(trials: Trials) -> str:
    return ", ".join(map(str, sorted(trials.scores)))
