"""How often ``compare`` claims a difference between two methods that are equally good.

A dataset is 1,000 nodes of two classes with 16 features. One method learns from the first half of
the features, the other from the second, and both halves are drawn alike: on datasets of this kind
neither is better, and a test at 95 % confidence should claim a difference on 5 of 100. Every seed
has its own split of the dataset, as with ``stream.split_seed = "run"``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measure import Options, Table, run

from evergraph.core.seeding import seeded
from evergraph.evaluation.statistics import paired_difference
from evergraph.reports.comparing import compare_trials
from evergraph.reports.trials import Trials
from evergraph.streams.arrival import split_classes

DATASETS, NODES, FEATURES, SIGNAL = 1000, 1000, 16, 0.3
SEEDS = (3, 5, 10)
LABELLED = (None, 0.3, 0.1)  # None: 60, 20 and 20 % for training, validation and test


def accuracies(features: Tensor, labels: Tensor, labelled: float | None) -> dict[int, float]:
    """Return the accuracy of ridge regression on the test nodes of every split."""
    found = {}
    for seed in range(max(SEEDS)):
        split = split_classes(labels, (0, 1), labelled=labelled, seed=seed)
        rows, signs = features[split.train], 2 * labels.to(features) - 1
        gram = rows.T @ rows + torch.eye(rows.shape[1])
        head = torch.linalg.solve(gram, rows.T @ signs[split.train])
        right = (features[split.test] @ head) * signs[split.test] > 0
        found[seed] = float(right.double().mean())
    return found


def claims(dataset: int, labelled: float | None) -> list[tuple[bool, bool]]:
    """Return for each number of seeds whether a difference is claimed, before and after.

    Before: by Student's t, which takes the splits of a dataset for independent.
    """
    generator = seeded(dataset, "dataset")
    labels = torch.randint(2, (NODES,), generator=generator)
    features = torch.randn(NODES, FEATURES, generator=generator)
    features += SIGNAL * (2 * labels - 1)[:, None]
    names, halves = ("first", "second"), features.split(FEATURES // 2, dim=1)
    scores = [accuracies(half, labels, labelled) for half in halves]
    stream = {"split_seed": "run", "labelled": labelled}
    found = []
    for seeds in SEEDS:
        first, second = (
            Trials(
                name,
                "simulated",
                "class-il",
                "accuracy",
                ("local", "plain"),
                {"dataset": {"name": "simulated"}, "method": {"name": name}, "stream": stream},
                {seed: score for seed, score in mine.items() if seed < seeds},
                facts={"nodes": NODES, "classes": 2},
            )
            for name, mine in zip(names, scores, strict=True)
        )
        pairs = [*first.scores.values()], [*second.scores.values()]
        before = paired_difference(*pairs, least_spread=first.resolution).p_value < 0.05
        found.append((before, compare_trials(first, second).verdict in ("better", "worse")))
    return found


def tables(options: Options) -> list[Table]:
    """Count claims over all datasets."""
    datasets = 10 if options.quick else DATASETS
    rows = []
    for labelled in LABELLED:
        counts = torch.tensor([claims(each, labelled) for each in range(datasets)]).double()
        name = "60 %" if labelled is None else f"{100 * labelled:.0f} %"
        for seeds, (before, after) in zip(SEEDS, counts.mean(0).tolist(), strict=True):
            rows.append([name, str(seeds), f"{100 * before:.1f} %", f"{100 * after:.1f} %"])
    note = "before: Student's t on the seeds; after: corrected for splits that share nodes."
    columns = ("training nodes", "seeds", "before", "after")
    title = f"Differences claimed between equals, of {datasets} datasets"
    return [Table(title, columns, rows, (note, "5 % are expected; fewer is cautious."))]


if __name__ == "__main__":
    run("false_claims", "False claims of a difference", tables)
