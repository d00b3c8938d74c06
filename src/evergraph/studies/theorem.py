"""A measurement of the pseudo-training effect: how replaying an embedding moves its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.core.seeding import seeded
from evergraph.graphs import Graph, reach
from evergraph.nn import PDGNN
from evergraph.streams import GraphStream
from evergraph.studies.base import DatasetStudy, Options, Sheet, balanced, studies
from evergraph.studies.table2 import QUICK, results_by_memory
from evergraph.training import Trainer

REPLAYED = 200
STEP = 0.05
TASKS = 4
TIGHT = ("0.1", "1", "5")
BANDS = ((0.0, 0.5), (0.5, 0.8), (0.8, 1.01))


class Effect(NamedTuple):
    """The effect of one replayed embedding."""

    homophily: float  # share of its ego-subnetwork with its class, without itself
    # inside, outside: mean rise of its class's score inside and outside the ego-subnetwork
    inside: float
    outside: float
    # same_inside, same_outside: the same over nodes of its class only
    same_inside: float
    same_outside: float


@studies.register
class Theorem(DatasetStudy):
    """How much replaying one embedding moves its ego-subnetwork's predictions, by homophily."""

    name = "theorem"
    datasets = ("wordnet",)

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        stem = Path(dataset).stem
        title = f"Pseudo-training on {stem}: rise of its class's score after one replay, x 1000"
        count = REPLAYED // 10 if options.quick else REPLAYED
        effects = [
            e for seed in options.repeats() for e in pseudo_training(graph, count, seed=seed)
        ]
        columns = (
            "homophily of the ego",
            "replays",
            "in the ego",
            "outside",
            "ratio",
            "its class, in the ego",
            "its class, outside",
            "ego moves more in",
        )
        rows = [_band(effects, low, high) for low, high in (*BANDS, (0.0, 1.01))]
        notes = (
            f"One gradient step of {STEP} on one stored embedding, a linear f_out trained on the "
            f"first {TASKS} tasks, {count} replays a seed; the replayed node itself is left out.",
            "Scores before the softmax: a probability that is near 1 already has nowhere to rise.",
            "The paper proves that replaying an embedding trains the nodes it was made of, and "
            "assumes the benefit where they share its class; it shows no measurement.",
        )
        effect = Sheet(f"theorem-{stem}", title, columns, rows, notes)
        return [effect, coverage_and_accuracy(dataset, options)]


def coverage_and_accuracy(name: str, options: Options) -> Sheet:
    """Return AA beside the coverage ratio of the same runs, and their rank correlation."""
    stem = Path(name).stem
    ratios = QUICK if options.quick else TIGHT
    rows = []
    pairs_at: dict[str, list[tuple[float, float]]] = {ratio: [] for ratio in ratios}
    pairs = []  # coverage and accuracy
    for (sampler, ratio), result in results_by_memory(name, ratios, options).items():
        if result is None:
            continue
        coverage = result["coverage_ratio"]
        accuracy = balanced(result, "average_accuracy")["mean"]
        rows.append((sampler, f"{ratio} %", f"{100 * coverage:.1f}", f"{100 * accuracy:.1f}"))
        pairs_at[ratio].append((coverage, accuracy))
        pairs.append((coverage, accuracy))
    notes = options.differences(
        f"Rank correlation of coverage and AA: {_correlation(pairs)} over all runs; "
        + ", ".join(f"{_correlation(pairs_at[ratio])} at {ratio} %" for ratio in ratios)
        + ". At one budget it tells samplers apart; over all, larger budgets have more of both."
    )
    title = f"Coverage and accuracy on {stem}, class-IL, percent"
    columns = ("sampler", "kept", "coverage ratio", "AA")
    return Sheet(f"theorem-{stem}-coverage", title, columns, rows, notes)


def _correlation(pairs: Sequence[tuple[float, float]]) -> str:
    """Return Spearman's rank correlation."""
    if len(pairs) < 3 or any(len(set(values)) < 2 for values in zip(*pairs, strict=True)):
        return "-"
    return f"{float(scipy.stats.spearmanr(*zip(*pairs, strict=True)).statistic):+.2f}"


def pseudo_training(graph: Graph, count: int, *, seed: int) -> list[Effect]:
    """Replay single embeddings and measure the effects, with a linear f_out on the first tasks."""
    from evergraph.methods import Joint

    stream = GraphStream(graph)
    last = min(TASKS, len(stream)) - 1
    model = PDGNN(hidden=(), bias=False, dropout=0.0)
    trainer = Trainer(epochs=20, batch_size=512, device="cpu")
    learner = Joint(backbone=model, trainer=trainer, generator=seeded(seed, "theorem"))
    task = stream.open(last, cumulative=True)
    union = task.graph
    learner.fit_task(task)
    embeddings = model.prepare(union)
    labels = torch.empty(union.num_nodes, dtype=torch.int64)
    for part in ("train", "validation", "test"):
        (exam,) = stream.exams(last, "global", part)
        labels[exam.nodes] = exam.labels
    nodes = torch.randperm(len(labels), generator=seeded(seed, "replayed"))[:count]
    egos = reach(union, nodes, hops=model.hops)
    effects = [
        _effect(model, embeddings, labels, node, ego)
        for node, ego in zip(nodes.tolist(), egos, strict=True)
    ]
    return [effect for effect in effects if effect is not None]


def _effect(
    model: PDGNN, embeddings: Tensor, labels: Tensor, node: int, ego: Tensor
) -> Effect | None:
    """Take one step on one embedding, measure, and revert it."""
    others = ego[ego != node]
    if not len(others):
        return None
    label = int(labels[node])
    parameters = list(model.parameters())
    loss = cross_entropy(model(embeddings, torch.tensor([node])), labels[node : node + 1])
    gradients = torch.autograd.grad(loss, parameters)

    def scores_after_step(size: float) -> Tensor:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.add_(gradient, alpha=size)
        scores: Tensor = model(embeddings)[:, label]
        return scores

    with torch.no_grad():
        before: Tensor = model(embeddings)[:, label]
        rise = scores_after_step(-STEP) - before
        scores_after_step(STEP)
    inside = torch.zeros(len(labels), dtype=torch.bool)
    inside[others] = True
    outside = ~inside
    outside[node] = False
    same = labels == label
    means = []
    for part in (inside, outside, inside & same, outside & same):
        values = rise[part]
        means.append(float(values.mean()) if len(values) else float("nan"))
    return Effect(float(same[others].float().mean()), *means)


def _band(effects: list[Effect], low: float, high: float) -> tuple[str, ...]:
    in_band = [effect for effect in effects if low <= effect.homophily < high]
    name = "all" if (low, high) == (0.0, 1.01) else f"{low:.1f} to {min(high, 1.0):.1f}"
    if not in_band:
        return (name, "0", *["-"] * 6)
    mean = Effect(*np.nanmean(in_band, axis=0).tolist())
    ahead = float(np.mean([effect.inside > effect.outside for effect in in_band]))
    return (
        name,
        str(len(in_band)),
        f"{1000 * mean.inside:+.2f}",
        f"{1000 * mean.outside:+.2f}",
        f"{mean.inside / mean.outside:.1f}" if mean.outside > 0 else "-",
        f"{1000 * mean.same_inside:+.2f}",
        f"{1000 * mean.same_outside:+.2f}",
        f"{100 * ahead:.0f} %",
    )
