"""Figure 6: the hidden states after one, half and all tasks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from evergraph.core.errors import DataError
from evergraph.core.seeding import seeded
from evergraph.graphs import Graph
from evergraph.methods import methods
from evergraph.nn import backbones
from evergraph.reports.figures import Picture, drawn
from evergraph.streams import GraphStream
from evergraph.studies.base import DatasetStudy, Options, Sheet, made_once, studies
from evergraph.training import Trainer

MIN_POINTS = 8  # fewest points for t-SNE with a perplexity of 2 or more
SHOWN = {"finetune": "Fine-tune", "er-gnn": "ER-GNN", "tem": "PDGNNs-TEM"}
MAX_POINTS = 1500
Panel = dict[str, Any]
"""A ``title``, ``points`` on the plane and the ``classes`` of each.  [n, 2], [n]"""


@studies.register
class Fig6(DatasetStudy):
    """t-SNE of hidden states after 1, half and all tasks, for Fine-tune, ER-GNN and TEM."""

    name = "fig6"
    datasets = ("wordnet",)
    needs = ("matplotlib", "sklearn")

    def sheets(self, dataset: str, graph: Graph, options: Options) -> list[Sheet]:
        stem = Path(dataset).stem
        fewest = min(len(exam.nodes) for exam in GraphStream(graph).exams(0, "local"))
        if fewest < MIN_POINTS:
            raise DataError(
                f"{dataset}: fig6 needs {MIN_POINTS} test nodes in the first task, not {fewest}"
            )
        title = f"Figure 6, {stem}: hidden states of test nodes, a colour a class"
        folder = options.out / "fig6"
        panels = {
            method: made_once(
                folder / f"{stem}-{method}.json", partial(_panels, method, graph, options.quick)
            )
            for method in SHOWN
        }
        notes = options.differences(
            f"t-SNE of at most {MAX_POINTS} test nodes of all tasks so far, one seed, tested locally; "
            "ER-GNN on a normalised GCN, the others on PDGNN."
        )
        picture = _draw(f"fig6-{stem}", title, panels)
        return [Sheet(f"fig6-{stem}", title, notes=notes, picture=picture)]


def _panels(method: str, graph: Graph, quick: bool) -> list[Panel]:
    """Learn a stream and return the points after one, half and all tasks."""
    from sklearn.manifold import TSNE

    backbone = backbones.make(methods.resolve(method).default_backbone)
    recipe = vars(backbone.recipe) | ({"epochs": 3} if quick else {})
    learner = methods.make(
        method, backbone=backbone, trainer=Trainer(**recipe), generator=seeded(0, "learner")
    )
    stream = GraphStream(graph)
    shown = {0, (len(stream) - 1) // 2, len(stream) - 1}
    panels = []
    for index in range(len(stream)):
        learner.fit_task(stream.open(index))
        if index not in shown:
            continue
        states, labels = [], []
        learner.backbone.eval()
        with torch.no_grad():
            for exam in stream.exams(index, "local"):
                inputs = learner.backbone.prepare(exam.graph)
                nodes = exam.nodes.to(learner.device)
                states.append(learner.backbone.hidden_states(inputs, nodes).cpu())
                labels.append(exam.labels)
        learner.backbone.train()
        rows = torch.randperm(sum(map(len, labels)), generator=seeded(0, "points"))[:MAX_POINTS]
        perplexity = min(30.0, max(2.0, (len(rows) - 1) / 4))
        tsne = TSNE(random_state=0, init="pca", perplexity=perplexity)
        points = tsne.fit_transform(torch.cat(states)[rows].numpy())
        panels.append(
            {
                "title": f"after {index + 1} of {len(stream)}",
                "points": points.tolist(),
                "classes": torch.cat(labels)[rows].tolist(),
            }
        )
    return panels


def _draw(name: str, title: str, panels_of: dict[str, list[Panel]]) -> Picture:
    columns = max(len(panels) for panels in panels_of.values())

    def draw(figure: Any, axes: Any) -> None:
        figure.clear()
        grid = figure.subplots(len(panels_of), columns, squeeze=False)
        for row, (method, panels) in zip(grid, panels_of.items(), strict=True):
            row[0].set_ylabel(SHOWN[method])
            for panel_axes, panel in zip(row, panels, strict=False):
                x, y = zip(*panel["points"], strict=True)
                panel_axes.scatter(x, y, c=panel["classes"], s=3, cmap="turbo", linewidths=0)
                panel_axes.set(xticks=[], yticks=[])
                panel_axes.set_title(panel["title"], fontsize=8, fontweight="normal")

    return drawn(name, title, (2.6 * columns, 2.4 * len(panels_of)), draw)
