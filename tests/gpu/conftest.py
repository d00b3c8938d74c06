"""A GPU contract: everything registered runs on a device, on graphs that are there already.

Run with ``pytest -m gpu`` on a machine with a CUDA device; elsewhere all of it is left out.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from evergraph.core.resources import Resources
from evergraph.graphs import Graph
from evergraph.topology.column_blocks import LEAST_RESERVE

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and leave them out where there is no device."""
    here = [item for item in items if item.path.parent == HERE]
    for item in here:
        item.add_marker(pytest.mark.gpu)
    if here and not torch.cuda.is_available():
        items[:] = [item for item in items if item.path.parent != HERE]
        config.hook.pytest_deselected(items=here)


@pytest.fixture
def on_gpu(small_graph: Graph) -> Graph:
    return small_graph.to("cuda")


@pytest.fixture
def little_room(small_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what leaves a few columns' room on the device: the small graph is then streamed."""
    left_on, little = Resources.left_on, LEAST_RESERVE + small_graph.indices.nbytes + 10_000

    def leave() -> None:
        monkeypatch.setattr(
            Resources,
            "left_on",
            lambda self, where: little if where.type == "cuda" else left_on(self, where),
        )

    return leave
