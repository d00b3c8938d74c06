"""From a sketch to a graph on disk: features in blocks of rows, edges in batches."""

from __future__ import annotations

import logging
import shutil

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.core.mapped import page_out
from evergraph.datasets.edge_sorter import EdgeSorter
from evergraph.datasets.streamed_block_model import StreamedBlockModel
from evergraph.datasets.twin_sketch import TwinSketch, numpy_generator
from evergraph.graphs.graph_folder import GraphFolderWriter

log = logging.getLogger(__name__)

SORT_MEMORY = 10**9
_BLOCK = 1 << 24  # features


def write_labels(sketch: TwinSketch, writer: GraphFolderWriter) -> None:
    """Write the class of every node."""
    writer.create("labels", (len(sketch.labels),), torch.int64).numpy()[:] = sketch.labels


def write_features(
    labels: NDArray[np.int64], writer: GraphFolderWriter, *, width: int, noise: float, seed: int
) -> None:
    """Draw x_i = μ_(y_i) + noise · ε_i around unit vectors μ.  float32 [nodes, width]"""
    generator = numpy_generator(seed, "features")
    centres = generator.standard_normal((int(labels.max()) + 1, width), np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    features = writer.create("features", (len(labels), width), torch.float32)
    rows = max(1, _BLOCK // width)
    for start in range(0, len(labels), rows):
        block = features[start : start + rows].numpy()
        generator.standard_normal(dtype=np.float32, out=block)
        block *= noise
        block += centres[labels[start : start + rows]]
        page_out(features[start : start + rows])


def write_edges(sketch: TwinSketch, writer: GraphFolderWriter, *, seed: int) -> None:
    """Draw the edges, and sort them on disk."""
    generator = numpy_generator(seed, "edges")
    model = StreamedBlockModel(sketch.homes, sketch.within, sketch.among, generator=generator)
    counts = model.plan(sketch.edges, sketch.homophily, labels=sketch.labels)
    aside, nodes, drawn = writer.folder / "runs", len(sketch.labels), 0
    sorter = EdgeSorter(aside, nodes=nodes, undirected=True, memory=SORT_MEMORY)
    for left, right in model.draw(*counts):
        sorter.add(left, right)
        drawn += len(left)
        log.info("%.0f %% of all edges are drawn", 100 * drawn / sum(counts))
    entries = sorter.finish(writer)
    shutil.rmtree(aside)
    log.info("%d entries are written, %d were asked for", entries, 2 * sketch.edges)
