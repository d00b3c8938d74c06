"""What may be compared with what, and which repeats belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from evergraph.core.errors import ResultsError
from evergraph.experiments.config import StreamConfig
from evergraph.experiments.dotted import flat
from evergraph.experiments.protocols import POOLED
from evergraph.reports.comparing.trials import Outcome, Trials

# What an earlier version did not know, it did as the defaults say.
STREAM: dict[str, Any] = StreamConfig().model_dump(mode="json")

FACTS = ("nodes", "classes", "tasks")
Basis = Literal["paired seeds", "unpaired seeds", "one seed", "identical repeats"]


@dataclass(frozen=True)
class Pairing:
    """Which repeats of two configurations are compared.

    Attributes:
        basis: what a difference is measured over. ``paired seeds``: repeats with the same seed, and
            so the same split. ``unpaired seeds``: there are no two such. ``one seed``, and
            ``identical repeats``, which count as one: nothing, there is no spread to measure with.
        ours, theirs: the seeds, in order; paired one by one if they are paired.
        a, b: what they came to, one number for all that came to the same on the same split.
        left_out: seeds that only one of the two has, by its name.
    """

    basis: Basis
    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    a: tuple[float, ...]
    b: tuple[float, ...]
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def shows_spread(self) -> bool:
        """Whether repeats tell anything about chance."""
        return self.basis in ("paired seeds", "unpaired seeds")


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
    """Return which repeats are compared.

    A seed stands for the same split in both: either all seeds share one, or it follows the seed.
    """
    common = tuple(sorted(a.scores.keys() & b.scores.keys()))
    ours, theirs = tuple(sorted(a.scores)), tuple(sorted(b.scores))
    basis: Basis = "one seed"
    left_out = {}
    if len(common) >= 2:
        basis = "paired seeds"
        alone = {t.name: tuple(sorted(t.scores.keys() - set(common))) for t in (a, b)}
        left_out = {name: seeds for name, seeds in alone.items() if seeds}
    elif min(len(ours), len(theirs)) >= 2:
        basis = "unpaired seeds"
    if basis != "unpaired seeds" and common:
        ours = theirs = common
        observed = _merged([(a.outcome(seed), b.outcome(seed)) for seed in common])
    else:
        observed = [
            [outcome[0] for outcome in dict.fromkeys(map(trials.outcome, seeds))]
            for trials, seeds in ((a, ours), (b, theirs))
        ]
    if basis != "one seed" and min(map(len, observed)) < 2:
        basis = "identical repeats"
    return Pairing(basis, ours, theirs, tuple(observed[0]), tuple(observed[1]), left_out)


def _merged(pairs: Sequence[tuple[Outcome, Outcome]]) -> list[list[float]]:
    """Return the scores of pairs, one for all that share an outcome on either side: their mean.

    Otherwise a run could be made to look surer by repeating it beside different runs of the other.
    """
    groups: list[list[tuple[Outcome, Outcome]]] = []
    for one in dict.fromkeys(pairs):
        alike = [
            group
            for group in groups
            if any(o == x for p in group for o, x in zip(one, p, strict=True))
        ]
        groups = [group for group in groups if group not in alike]
        groups.append([one, *(each for group in alike for each in group)])
    return [[fmean(p[side][0] for p in group) for group in groups] for side in (0, 1)]
