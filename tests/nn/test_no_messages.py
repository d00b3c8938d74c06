"""GNNs run on sparse products: no tensor of edges x width is ever made."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evergraph.graphs import Graph
from evergraph.nn import backbones
from evergraph.nn.gnn import GNN

NODES, DIMS, WIDTH, HEADS = 80, 24, 64, 8
GNNS = [name for name in backbones.names() if issubclass(backbones.resolve(name), GNN)]


class Watch(TorchDispatchMode):
    """Notes the largest tensor that any operation, forward or backward, puts out."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for output in tree_leaves(outputs):
            if isinstance(output, Tensor):
                dense = output.layout == torch.strided
                self.largest = max(self.largest, output.numel() if dense else output._nnz())
        return outputs


@pytest.fixture(scope="module")
def crowd() -> Graph:
    """Everyone is everyone's neighbour: edges x width is 80 times nodes x width."""
    return Graph.from_edges(
        torch.combinations(torch.arange(NODES)).T,
        features=torch.randn(NODES, DIMS, generator=torch.Generator().manual_seed(0)),
        labels=torch.zeros(NODES, dtype=torch.int64),
        undirected=True,
    )


def largest_of_a_step(model: Any, *inputs: Any, **options: Any) -> int:
    with Watch() as watch:
        scores = model(*inputs, **options)
        scores.square().sum().backward()
    return watch.largest


@pytest.mark.parametrize("name", GNNS)
def test_a_training_step_makes_nothing_as_large_as_messages(name, crowd):
    generator = torch.Generator().manual_seed(0)
    backbone = backbones.make(name, hidden=WIDTH)
    backbone.begin(DIMS, generator=generator)
    backbone.grow(5, generator=generator)
    inputs, rows = backbone.prepare(crowd), torch.arange(NODES)
    largest = largest_of_a_step(backbone.train(), inputs, rows, generator=generator)
    assert largest >= NODES * WIDTH  # the states were seen
    assert largest <= HEADS * (crowd.num_edges + NODES)
    assert HEADS * (crowd.num_edges + NODES) < crowd.num_edges * DIMS  # messages of any layer


def test_messages_would_have_been_noticed(crowd):
    weights = torch.ones(DIMS, WIDTH, requires_grad=True)

    def materialised(features, targets, sources):
        messages = (features @ weights)[sources]
        return torch.zeros(NODES, WIDTH).index_add(0, targets, messages)

    ends = crowd.edge_rows(), crowd.indices.long()
    assert largest_of_a_step(materialised, crowd.features, *ends) >= crowd.num_edges * WIDTH
