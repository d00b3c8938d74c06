"""Â in blocks of rows: each worker sees its own."""

from __future__ import annotations

from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.core.engine import LocalEngine
from evergraph.core.ray_transport import pack
from evergraph.graphs import Graph, propagate, smoother
from evergraph.graphs.graph_folder import GraphFolderWriter, arrays_of, open_graph_folder
from evergraph.topology.node_blocks import BLOCKS_A_WORKER, node_blocks, smooth_rows
from graphs_to_draw import graph_of, path_pairs


class Several(LocalEngine):
    """One process that says it is several."""

    workers = 2


PATH, LONG = graph_of(path_pairs(4), 4), graph_of(path_pairs(40), 40)


def test_a_hop_on_a_path_by_hand() -> None:
    # With self-loops degrees are 2, 3, 3, 2: node 1 gets 6/√6 + 6/3 + 0/3.
    blocks = node_blocks(PATH, engine=Several())
    found = blocks.product(torch.tensor([[6.0], [6.0], [0.0], [0.0]]))
    six = 6 / 6**0.5
    torch.testing.assert_close(found, torch.tensor([[3 + six], [six + 2], [2.0], [0.0]]))


def test_a_block_holds_its_own_rows_alone() -> None:
    blocks = node_blocks(LONG, engine=Several())
    assert 1 < len(blocks.blocks) <= BLOCKS_A_WORKER * 2
    sent = [pack(block).values["indices"].values["array"].values for block in blocks.blocks]
    assert torch.equal(torch.cat([torch.from_numpy(part) for part in sent]), LONG.indices)
    assert max(map(len, sent)) <= 2 * len(LONG.indices) / len(sent)
    assert not any(block.left.numel() == 40 for block in blocks.blocks)


def test_a_block_gives_its_rows_and_no_others() -> None:
    whole = smoother(LONG)
    blocks = node_blocks(LONG, engine=Several())
    block, features = blocks.blocks[1], torch.arange(40.0)[:, None]
    found = smooth_rows(block, features=features, right=blocks.right, scale=2.0)
    rows = slice(block.first, block.first + len(block.left))
    torch.testing.assert_close(found, 2 * whole.product(features)[rows])


@given(st.integers(1, 30), st.integers(0, 60), st.integers(0, 2**31), st.booleans(), st.booleans())
def test_products_are_those_of_one_process(
    nodes: int, edges: int, seed: int, self_loops: bool, undirected: bool
) -> None:
    draw = torch.Generator().manual_seed(seed)
    graph = Graph.from_edges(
        torch.randint(nodes, (2, edges), generator=draw),
        features=torch.randn(nodes, 3, generator=draw),
        labels=torch.zeros(nodes, dtype=torch.long),
        undirected=undirected,
    )
    more = torch.randn(nodes, 3, generator=draw)
    whole = smoother(graph, self_loops=self_loops)
    blocks = node_blocks(graph, engine=Several(), self_loops=self_loops)
    for options in ({}, {"add": more, "scale": 0.9, "add_scale": 0.1}):
        found = propagate(blocks, graph.features, **options)
        torch.testing.assert_close(found, propagate(whole, graph.features, **options))


def test_the_result_goes_where_it_is_told_to() -> None:
    out = torch.full((4, 4), torch.nan)
    blocks = node_blocks(PATH, engine=LocalEngine())
    assert blocks.product(torch.eye(4), out=out) is out
    torch.testing.assert_close(out, smoother(PATH).matrix.to_dense())


def test_of_a_graph_in_files_no_array_travels(tmp_path: Path) -> None:
    # What a worker is given of a graph folder that it can open: paths, and pointers of its rows.
    writer = GraphFolderWriter(tmp_path)
    for name, array in arrays_of(LONG).items():
        writer.copy(name, array)
    writer.finish(undirected=True)
    graph = open_graph_folder(tmp_path)
    block = node_blocks(graph, engine=Several()).blocks[1]
    sent = pack(block).values
    assert sent["indices"].values["array"].path == tmp_path / "indices.npy"
    assert len(sent["indptr"].values) == len(block.left) + 1 < 40
    whole = pack({"graph": graph})["graph"].values
    names = ("indptr", "indices", "features", "labels")
    assert [whole[name].path.name for name in names] == [f"{name}.npy" for name in names]
