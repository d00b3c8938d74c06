"""Published splits, from whichever way a graph comes to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import evergraph as eg
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.datasets import load, named_graph
from evergraph.datasets.arrays import write_npz
from evergraph.graphs import Graph
from evergraph.graphs.graph_folder import GraphFolderWriter, arrays_of, open_graph_folder
from evergraph.graphs.targets import MASKS, Masks
from evergraph.streams import GraphStream

RING = torch.stack([torch.arange(12), torch.arange(12).roll(1)])
CLASSES = torch.arange(12) // 3  # two tasks of two classes
# Of three nodes in every class the first is for training, and so on; node 11 is in no part.
FIRST = torch.arange(12) % 3
IN_NONE = 11


def masks_of(places: torch.Tensor) -> dict[str, torch.Tensor]:
    masks = {name: places == place for place, name in enumerate(MASKS)}
    masks["test_mask"][IN_NONE] = False
    return masks


def ring(**more: Any) -> Data:
    return Data(x=torch.eye(12), edge_index=RING, y=CLASSES, **more)


def several() -> dict[str, torch.Tensor]:
    """Masks of two columns; in the second, parts are in reverse order."""
    both = masks_of(FIRST), masks_of(2 - FIRST)
    return {name: torch.stack([masks[name] for masks in both], dim=1) for name in MASKS}


def parts(stream: GraphStream) -> list[list[list[int]]]:
    return [[p.tolist() for p in (s.train, s.validation, s.test)] for s in stream.splits]


FIRST_SPLIT = [[[0, 3], [1, 4], [2, 5]], [[6, 9], [7, 10], [8]]]


def by_named_graph(folder: Path) -> Any:
    return named_graph(ring(**masks_of(FIRST))).graph


def by_pt(folder: Path) -> Any:
    torch.save(ring(**masks_of(FIRST)), folder / "ring.pt")
    return folder / "ring.pt"


def by_npz(folder: Path) -> Any:
    write_npz(Graph.from_data(ring(**masks_of(FIRST))), folder / "ring.npz")
    return folder / "ring.npz"


def by_plural_arrays(folder: Path) -> Any:
    """As the published files of heterophilous graphs have them: one row a split."""
    masks = {f"{name}s": mask.numpy()[None] for name, mask in masks_of(FIRST).items()}
    np.savez(folder / "ring.npz", edge_index=RING, y=CLASSES, x=torch.eye(12), **masks)
    return folder / "ring.npz"


def by_graph_folder(folder: Path) -> Any:
    graph = Graph.from_data(ring(**masks_of(FIRST)))
    writer = GraphFolderWriter(folder / "ring")
    for name, array in arrays_of(graph).items():
        writer.copy(name, array)
    writer.finish(undirected=False)
    assert open_graph_folder(folder / "ring", verify=True).masks is not None
    return folder / "ring"


def by_hetero(folder: Path) -> Any:
    data = HeteroData()
    data["other"].x = torch.eye(12)[:2]
    data["node"].x, data["node"].y = torch.eye(12), CLASSES
    for name, mask in masks_of(FIRST).items():
        data["node"][name] = mask
    data["node", "to", "node"].edge_index = RING
    return data


WAYS = (by_named_graph, by_pt, by_npz, by_plural_arrays, by_graph_folder, by_hetero)


@pytest.mark.parametrize("way", WAYS)
def test_masks_are_the_split_whichever_way_a_graph_comes(way, tmp_path):
    graph = load(way(tmp_path))
    before = graph.num_nodes - 12  # nodes of another type come first
    expected = [[[node + before for node in part] for part in task] for task in FIRST_SPLIT]
    assert parts(GraphStream(graph, split="masks")) == expected


def test_the_seed_of_the_split_is_the_column_of_masks_that_have_several():
    stream = GraphStream(ring(**several()), split="masks", seed=1)
    assert parts(stream)[0] == [[2, 5], [1, 4], [0, 3]]
    with pytest.raises(ConfigurationError, match="from 0 to 1, not 2"):
        GraphStream(ring(**several()), split="masks", seed=2)


def test_a_run_gives_every_seed_the_split_of_its_number():
    how: dict[str, Any] = {"split": "masks", "split_seed": "run", "seeds": (0, 1)}
    result = eg.run(ring(**several()), "finetune", epochs=1, progress=False, device="cpu", **how)
    assert [seed.seed for seed in result.seeds] == [0, 1]
    assert result.dataset["split"] == pytest.approx((4 / 12, 4 / 12, 3 / 12))


def test_masks_cut_targets_as_well():
    several_labels = torch.stack([CLASSES % 2, 1 - CLASSES % 2], dim=1)
    data = Data(x=torch.eye(12), edge_index=RING, y=several_labels, **masks_of(FIRST))
    stream = GraphStream(data, split="masks", tasks=1)
    assert parts(stream) == [[[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8]]]


def test_a_graph_without_masks_says_which_are_needed():
    with pytest.raises(DataError, match="needs train_mask, val_mask, test_mask"):
        GraphStream(ring(train_mask=FIRST == 0), split="masks")


def test_a_node_in_two_parts_is_refused():
    masks = masks_of(FIRST) | {"val_mask": FIRST <= 1}
    with pytest.raises(DataError, match="node 0 is in two of train_mask"):
        GraphStream(ring(**masks), split="masks")


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (torch.ones(5).bool(), r"train_mask has shape \[5\]"),
        (torch.full((12,), 0.5), "train_mask holds torch.float32: expected True or False"),
    ],
)
def test_masks_that_are_none_are_refused(mask, said):
    with pytest.raises(DataError, match=said):
        load(ring(**masks_of(FIRST) | {"train_mask": mask}))


def test_a_task_without_training_nodes_is_named():
    masks = masks_of(FIRST)
    masks["train_mask"][:6] = False
    with pytest.raises(DataError, match="task 0 has no training nodes"):
        GraphStream(ring(**masks), split="masks")


def test_masks_that_are_not_used_are_pointed_out(caplog):
    eg.run(ring(**masks_of(FIRST)), "finetune", epochs=1, progress=False, device="cpu")
    assert "split='masks' (--split) uses them" in caplog.text


def test_masks_go_out_as_they_came_in():
    again = Graph.from_data(ring(**several())).to_data()
    for name, mask in several().items():
        assert torch.equal(again[name], mask)
    assert again.train_mask.dtype == torch.bool


def test_a_subgraph_has_the_masks_of_its_nodes():
    some = Graph.from_data(ring(**masks_of(FIRST))).subgraph(torch.tensor([4, 0]))
    assert isinstance(some.masks, Masks)
    assert some.masks.train[:, 0].tolist() == [False, True]
