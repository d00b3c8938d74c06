"""PyG's objects, which take seconds to import: only once one is made."""

from typing import Any


def pyg_data(**parts: Any) -> Any:
    from torch_geometric.data import Data

    return Data(**parts)


def pyg_hetero() -> Any:
    from torch_geometric.data import HeteroData

    return HeteroData()
