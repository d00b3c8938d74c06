"""Products by the Triton kernel: by hand, against the CPU, and the same bits in parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from evergraph.graphs import Graph, smoother
from graphs_to_draw import graph_of, path_pairs

pytest.importorskip("triton")
WIDTHS = (1, 3, 31, 32, 33, 100, 128, 129, 300)


def random_graph(nodes: int = 90) -> Graph:
    """Directed, with a hub of more entries than are unrolled and nodes without neighbours."""
    generator = torch.Generator().manual_seed(5)
    some = torch.randint(nodes, (2, 3 * nodes), generator=generator)
    hub = torch.stack([torch.arange(nodes), torch.zeros(nodes, dtype=torch.int64)])
    pairs = torch.cat([some[:, some[1] % 3 != 1], hub], 1)
    labels = torch.zeros(nodes, dtype=torch.int64)
    return Graph.from_edges(pairs, features=torch.eye(nodes), labels=labels)


def random_features(seed: int, width: int, nodes: int = 90) -> Tensor:
    return torch.randn(nodes, width, generator=torch.Generator().manual_seed(seed))


def test_a_path_by_hand() -> None:
    #  0 - 1 - 2   and 3 apart: means over a node and its neighbours
    path = graph_of(path_pairs(3), 4).to("cuda")
    features = torch.tensor([[6.0, 60.0], [12.0, 120.0], [18.0, 180.0], [5.0, 50.0]]).cuda()
    found = smoother(path, scheme="row", kernel="triton").product(features)
    assert found[:, 0].cpu().allclose(torch.tensor([9.0, 12.0, 15.0, 5.0]))
    alone = smoother(path, scheme="none", self_loops=False, kernel="triton").product(features)
    assert alone[:, 1].tolist() == [120.0, 240.0, 120.0, 0.0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_equals_the_cpu(width: int, self_loops: bool, weighted: bool) -> None:
    graph = random_graph()
    if weighted:
        drawn = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(1))
        graph = replace(graph, weights=drawn + 0.1)
    features, add = random_features(1, width), random_features(2, width)
    given = {"scale": 0.7, "add_scale": 0.3}
    expected = smoother(graph, self_loops=self_loops).product(features, add=add, **given)
    operator = smoother(graph.to("cuda"), self_loops=self_loops, kernel="triton")
    found = operator.product(features.cuda(), add=add.cuda(), **given)
    torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-5)
    assert "matrix" not in vars(operator)  # never written out


@pytest.mark.parametrize("width", [5, 100, 300])
def test_blocks_of_columns_and_rows_give_the_same_bits(width: int) -> None:
    operator = smoother(random_graph().to("cuda"), kernel="triton")
    features = random_features(3, width).cuda()
    whole = operator.product(features)
    out = torch.full_like(whole, torch.nan)
    for columns in (slice(0, width // 3), slice(width // 3, width)):
        for rows in (slice(0, 41), slice(41, 90)):
            operator.rows(rows).product(features[:, columns], out=out[rows, columns])
    assert out.equal(whole)


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_half_numbers_are_summed_in_whole_ones(dtype: torch.dtype, digits: float) -> None:
    graph = random_graph()
    features = random_features(4, 100)
    expected = smoother(graph, scheme="none").product(features)
    operator = smoother(graph.to("cuda"), scheme="none", kernel="triton")
    found = operator.product(features.cuda().to(dtype))
    assert found.dtype == dtype
    apart = (found.float().cpu() - expected).norm(dim=1) / expected.norm(dim=1)
    assert apart.max() < digits
    # 4,096 ones and a half: added up in float16, the sum would end at 2,048
    star = Graph.from_edges(
        torch.stack([torch.arange(1, 4097), torch.zeros(4096, dtype=torch.int64)]),
        features=torch.ones(4097, 1),
        labels=torch.zeros(4097, dtype=torch.int64),
    ).to("cuda")
    ones = torch.ones(4097, 1, dtype=dtype, device="cuda")
    assert smoother(star, scheme="none", kernel="triton").product(ones)[0] == 4096


def test_row_pointers_of_64_bits() -> None:
    graph = random_graph().to("cuda")
    operator = smoother(graph, kernel="triton")
    wide = replace(operator, indptr=operator.indptr.long())
    features = random_features(6, 7).cuda()
    assert wide.product(features).equal(operator.product(features))
