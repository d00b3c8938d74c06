"""The repeats of one configuration, and the pairing of those of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from evergraph.core.errors import ConfigurationError, ResultsError, check_choice
from evergraph.experiments.config import StreamConfig, flat
from evergraph.experiments.presets import POOLED
from evergraph.reports.runs import Finished
from evergraph.streams.arrival import BY_MASKS, SHARES, shares_of
from evergraph.streams.task import TESTINGS

LEAST_RESOLUTION = 0.001  # 0.1 points, the last displayed digit
Way = tuple[str, str]
"""A way of testing and one of averaging, such as ``("local", "balanced")``."""
Outcome = tuple[float, tuple[float, ...], int | None]
"""A score, its results on each task, and the split if every seed has its own."""
# Options that an earlier version did not have are at their defaults.
STREAM: dict[str, Any] = StreamConfig().model_dump(mode="json")
FACTS = ("nodes", "classes", "tasks")
Basis = Literal["paired seeds", "unpaired seeds", "one seed", "identical repeats"]


@dataclass(frozen=True)
class Trials:
    """The scores of the repeats of one configuration."""

    name: str
    # dataset, setting: as in reports
    dataset: str
    setting: str
    metric: str  # the metric of predictions, such as ``accuracy``
    way: Way  # how they were tested and averaged
    config: Mapping[str, Any]  # the configuration as plain values
    scores: Mapping[int, float]  # AA after the last task by seed, fractions
    # The last test's result on each task by seed; empty if it was not kept.
    tasks: Mapping[int, list[float]] = field(default_factory=dict)
    # Known facts about the graph: number of nodes, classes and tasks.
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """AA, the mean over all repeats."""
        return sum(self.scores.values()) / len(self.scores)

    @property
    def resplit(self) -> bool:
        """Whether every seed has its own split."""
        return bool(self.config["stream"].get("split_seed") == "run")

    @property
    def test_share(self) -> float:
        """The share of the graph's nodes that one split tests on."""
        stream = STREAM | self.config["stream"]
        shares = stream["split"]
        if shares == BY_MASKS:
            shares = self.facts.get("split", SHARES)
        shares = shares_of(shares, stream["labelled"])
        share = shares[1 if self.config.get("part") == "validation" else 2]
        if share < 1:
            return float(share)
        nodes, classes = self.facts.get("nodes", 0), self.facts.get("classes", 0)
        return min(share * classes / nodes if nodes else 1.0, share / sum(shares))

    @property
    def resolution(self) -> float:
        """The smallest difference between scores: one test node if known, at least 0.001."""
        nodes = float(self.facts.get("nodes", 0)) * self.test_share
        return max(LEAST_RESOLUTION, 1 / nodes) if nodes else LEAST_RESOLUTION

    @property
    def overlap(self) -> float:
        """Tested nodes over all others if repeats are splits of one graph, see the tests."""
        return self.test_share / (1 - self.test_share) if self.resplit else 0.0

    def outcome(self, seed: int) -> Outcome:
        """Return the outcome of a repeat; equal outcomes count as one observation."""
        split = seed if self.resplit else None
        return self.scores[seed], tuple(self.tasks.get(seed, ())), split

    @property
    def where(self) -> str:
        """The dataset and the setting, with the way of testing if it is not the default."""
        testing, averaging = self.way
        parts = [self.dataset, self.setting]
        if testing == "global":
            parts.append("tested globally")
        if averaging == "plain":
            parts.append("plain accuracy")
        return ", ".join(parts)


def trials_of(run: Finished, way: Way, *, name: str | None = None) -> Trials:
    """Return the repeats of a finished run, measured in one way."""
    testing, averaging = way
    check_choice("testing", testing, TESTINGS)
    seeds = run.result["accuracy_matrix"]
    measured = [*seeds[0][testing]]
    if averaging not in measured:
        raise ConfigurationError(
            f"averaging must be one of {', '.join(measured)} for {run.method} on {run.dataset}, "
            f"not {averaging!r}"
        )
    # A dataset's name, with its parameters if no label distinguishes it.
    parameters = {k: v for k, v in run.result["config"]["dataset"].items() if k != "name"}
    dataset = run.dataset
    if parameters and not run.labelled:
        dataset += f" ({', '.join(f'{key}={value}' for key, value in parameters.items())})"
    last = {int(seed["seed"]): [float(x) for x in seed[testing][averaging][-1]] for seed in seeds}
    scores = {seed: sum(row) / len(row) for seed, row in last.items()}
    facts = run.result.get("dataset", {})
    names = (name or run.method, dataset, run.setting, run.metric)
    return Trials(*names, way, run.result["config"], scores, last, facts)


@dataclass(frozen=True)
class Pairing:
    """The repeats of two configurations that are compared."""

    # The basis of a difference. ``paired seeds``: repeats with the same seed, and so the same
    # split. ``unpaired seeds``: fewer than two seeds are shared. ``one seed`` and ``identical
    # repeats``, which count as one: no spread, so nothing is tested.
    basis: Basis
    # The seeds, in order; matched one by one if they are paired.
    seeds_a: tuple[int, ...]
    seeds_b: tuple[int, ...]
    # a, b: their scores, one number for all repeats with the same outcome on the same split
    a: tuple[float, ...]
    b: tuple[float, ...]
    # Seeds that only one of the two has, by its name.
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def shows_spread(self) -> bool:
        """Whether the repeats show a spread."""
        return self.basis in ("paired seeds", "unpaired seeds")


def check_comparable(a: Trials, b: Trials) -> None:
    """Raise unless both have the same graph, stream, split and way of testing."""
    conditions_a, conditions_b = conditions(a), conditions(b)
    for key in dict.fromkeys([*conditions_a, *conditions_b]):
        value_a, value_b = conditions_a.get(key), conditions_b.get(key)
        # A number that an earlier version did not store is no difference.
        unknown = key.startswith("the number of ") and None in (value_a, value_b)
        if value_a != value_b and not unknown:
            raise ResultsError(
                f"{a.name} and {b.name} cannot be compared: {key} is {value_a!r} for {a.name} and "
                f"{value_b!r} for {b.name}"
            )


def conditions(trials: Trials) -> dict[str, Any]:
    """Return all conditions that two runs must share to be comparable, by name."""
    config = trials.config
    parameters = {key: value for key, value in config["dataset"].items() if key != "name"}
    pooled = str(config["method"]["name"]).endswith(POOLED)
    return {
        "dataset": Path(config["dataset"]["name"]).stem,
        **{f"dataset.{key}": value for key, value in flat(parameters).items()},
        **flat({"stream": STREAM | config["stream"]}),
        "part": config.get("part", "test"),
        "protocol": config.get("protocol"),
        "metric": trials.metric,
        "testing": trials.way[0],
        "averaging": trials.way[1],
        "what is answered at once": "a whole test set" if pooled else "a node",
        **{f"the number of {fact}": trials.facts.get(fact) for fact in FACTS},
    }


def pair(a: Trials, b: Trials) -> Pairing:
    """Return the repeats that are compared.

    A seed means the same split in both: either all seeds share one, or it follows the seed.
    """
    common = tuple(sorted(a.scores.keys() & b.scores.keys()))
    seeds_a, seeds_b = tuple(sorted(a.scores)), tuple(sorted(b.scores))
    basis: Basis = "one seed"
    left_out = {}
    if len(common) >= 2:
        basis = "paired seeds"
        alone = {t.name: tuple(sorted(t.scores.keys() - set(common))) for t in (a, b)}
        left_out = {name: seeds for name, seeds in alone.items() if seeds}
    elif min(len(seeds_a), len(seeds_b)) >= 2:
        basis = "unpaired seeds"
    if basis != "unpaired seeds" and common:
        seeds_a = seeds_b = common
        observed = _merged([(a.outcome(seed), b.outcome(seed)) for seed in common])
    else:
        observed = [
            [outcome[0] for outcome in dict.fromkeys(map(trials.outcome, seeds))]
            for trials, seeds in ((a, seeds_a), (b, seeds_b))
        ]
    if basis != "one seed" and min(map(len, observed)) < 2:
        basis = "identical repeats"
    return Pairing(basis, seeds_a, seeds_b, tuple(observed[0]), tuple(observed[1]), left_out)


def _merged(pairs: Sequence[tuple[Outcome, Outcome]]) -> list[list[float]]:
    """Return the scores of pairs, with the mean of all that share an outcome on either side.

    Otherwise a run would look more certain if it were repeated beside different runs of the other.
    """
    groups: list[list[tuple[Outcome, Outcome]]] = []
    for outcome_a, outcome_b in dict.fromkeys(pairs):
        joined = [(outcome_a, outcome_b)]
        separate = []
        for group in groups:
            if any(outcome_a == a or outcome_b == b for a, b in group):
                joined += group
            else:
                separate.append(group)
        groups = [*separate, joined]
    return [
        [fmean(a[0] for a, _ in group) for group in groups],
        [fmean(b[0] for _, b in group) for group in groups],
    ]
