"""Methods ranked over the datasets of one setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evergraph.evaluation.statistics import Ranks, nemenyi
from evergraph.evaluation.statistics.ranks import LEAST_DATASETS
from evergraph.experiments.protocols import POOLED
from evergraph.reports.comparing.trials import TESTINGS
from evergraph.reports.runs import Finished, Group


@dataclass(frozen=True)
class Standing:
    """How methods stand over several datasets, tested in one way.

    Attributes:
        setting, testing: in which.
        datasets: over which.
        methods: that were run on all of them, the best mean rank first.
        left_out: that were not, or that answer whole test sets.
        ranks: of ``methods``, in their order.
    """

    setting: str
    testing: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    left_out: tuple[str, ...]
    ranks: Ranks

    def behind(self, place: int) -> bool:
        """Whether a method is told apart from the first one."""
        return self.ranks.differ(0, place)


def standings(groups: Sequence[Group]) -> list[Standing]:
    """Return one for every setting of at least 3 datasets and way of testing."""
    by_setting: dict[str, list[Group]] = {}
    for group in groups:
        by_setting.setdefault(group.setting, []).append(group)
    found = [_standing(each, testing) for each in by_setting.values() for testing in TESTINGS]
    return [standing for standing in found if standing is not None]


def _standing(groups: Sequence[Group], testing: str) -> Standing | None:
    scores = [{e.name: e.accuracy(testing) for e in group.entries if _alone(e.run)}
              for group in groups]  # fmt: skip
    everywhere = [name for name in scores[0] if all(name in each for each in scores)]
    if len(groups) < LEAST_DATASETS or len(everywhere) < 2:
        return None
    ranks = nemenyi([[each[name] for name in everywhere] for each in scores])
    mean = dict(zip(everywhere, ranks.mean_ranks, strict=True))
    order = sorted(everywhere, key=lambda name: mean[name])
    every = {e.name for group in groups for e in group.entries}
    return Standing(
        setting=groups[0].setting,
        testing=testing,
        datasets=tuple(group.dataset for group in groups),
        methods=tuple(order),
        left_out=tuple(sorted(every - set(order))),
        ranks=nemenyi([[each[name] for name in order] for each in scores]),
    )


def _alone(run: Finished) -> bool:
    """Whether a run's method answers every node alone, whatever a benchmark calls it."""
    return not str(run.result["config"]["method"]["name"]).endswith(POOLED)
