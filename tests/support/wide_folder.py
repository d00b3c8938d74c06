"""A graph folder with more entries than 31 bits count, of which hardly a byte is on the disk."""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evergraph.graphs import UNLABELLED, Graph
from evergraph.graphs.graph_folder import FACTS

HEAVY, EACH = 2048, 1 << 20  # rows that nobody has written, and the entries of each
LIGHT = torch.arange(HEAVY, HEAVY + 12)  # nodes whose rows lie behind 2^31 entries
PAIRS = torch.stack([torch.arange(13) % 12, torch.arange(1, 14) % 12])  # a ring
PAIRS[:, 12] = torch.tensor([2, 7])  # and a chord


def light_graph() -> Graph:
    """Return the same nodes with no entries but those of the last twelve: a ring and a chord."""
    nodes = HEAVY + len(LIGHT)
    labels = torch.full((nodes,), UNLABELLED)
    labels[LIGHT] = torch.arange(12) // 3
    features = torch.ones(nodes, 2)
    features[LIGHT, 1] = torch.arange(12.0)
    return Graph.from_edges(HEAVY + PAIRS, features=features, labels=labels, undirected=True)


def wide_arrays() -> tuple[Tensor, Tensor]:
    """Return where rows begin, and the last entries; those before are zeros, 2^31 of them."""
    light = light_graph()
    heavy = torch.arange(HEAVY + 1) * EACH
    return torch.cat([heavy, HEAVY * EACH + light.indptr[HEAVY + 1 :].long()]), light.indices


def wide_folder(folder: Path) -> Path:
    """Write ``light_graph`` with 2^31 more entries, all of them zeros in a hole of a file.

    So every heavy row gathers from node 0, a million times over.
    """
    light, (indptr, tail) = light_graph(), wide_arrays()
    folder.mkdir()
    indices = np.lib.format.open_memmap(
        folder / "indices.npy", mode="w+", dtype=np.int32, shape=(int(indptr[-1]),)
    )
    indices[-len(tail) :] = tail.numpy()
    indices.flush()
    for name in ("features", "labels"):
        np.save(folder / f"{name}.npy", getattr(light, name).numpy())
    np.save(folder / "indptr.npy", indptr.numpy())
    sizes = {path.stem: {"bytes": path.stat().st_size} for path in folder.glob("*.npy")}
    facts = {"format": 2, "undirected": True, "arrays": sizes}
    (folder / FACTS).write_text(json.dumps(facts), "utf-8")
    return folder
