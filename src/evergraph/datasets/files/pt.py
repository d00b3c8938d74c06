"""Graphs in ``.pt`` files: a PyG ``Data`` or a dict of tensors, loaded without unsafe pickles."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.packages import require
from evergraph.datasets.files.assembly import assemble, checked_csr
from evergraph.graphs import Graph
from evergraph.graphs.csr import as_csr
from evergraph.graphs.pyg import read_attributes
from evergraph.graphs.validation import check_real
from evergraph.tables.sources import naming, reason

EXPECTED = "expected torch.save of a torch_geometric Data or of a dict with x, edge_index and y"


def read_pt(path: Path, *, repeated: str = "last") -> Graph:
    """Return the graph in a ``.pt`` file.

    The file is a ``Data``, the tuple that PyG's in-memory datasets save, or a dict. ``x`` is
    optional, as are ``time`` (or OGB's ``node_year``), edge weights (``edge_weight``, or an
    ``edge_attr`` of one column) and ``train_mask``, ``val_mask`` and ``test_mask``. Other contents
    are ignored with a warning. repeated: as in ``load``.
    """
    with naming(path):
        content = _content(path)
        tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
        for key in ("edge_index", "y"):
            if key not in tensors:
                raise DataError(f"has no tensor {key!r}: it holds {', '.join(tensors) or 'none'}")
        held = [str(key) for key, value in content.items() if value is not None]
        arrays = read_attributes(tensors, path, held)
        return assemble(path, features=_features(tensors.get("x")), repeated=repeated, **arrays)


def _content(path: Path) -> Mapping[Any, Any]:
    """Return the saved values by name.

    Tensors, containers and PyG's own records alone are unpickled, so that no code can run.
    """
    try:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except UnpicklingError as refused:
            if "torch_geometric" not in str(refused):
                raise
            # PyG takes seconds to import, so this is only done for files that need it.
            with torch.serialization.safe_globals(_pyg_records(path)):
                content = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise DataError(f"needs pickled objects that are not safe to load: {EXPECTED}") from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"is damaged or not a .pt file ({reason(error)}): {EXPECTED}") from error
    if isinstance(content, tuple) and content:  # PyG's in-memory datasets: (dict, slices, class)
        content = content[0]
    if hasattr(content, "to_dict"):
        content = content.to_dict()
    if not isinstance(content, Mapping):
        raise DataError(f"holds a {type(content).__name__}: {EXPECTED}")
    return content


def _pyg_records(path: Path) -> list[Any]:
    require("torch_geometric", extra="pyg", why=f"{path}: a torch_geometric Data")
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    return [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


def _features(x: Tensor | None) -> Tensor | None:
    if x is None or x.layout == torch.strided:
        return x
    if x.dim() != 2 or x.layout not in (torch.sparse_csr, torch.sparse_coo):
        raise DataError(f"x is {x.layout} with shape {list(x.shape)}: expected [nodes, dims]")
    check_real(x)
    if x.layout == torch.sparse_coo:
        try:
            x = torch.sparse_coo_tensor(x._indices(), x._values(), x.shape, check_invariants=True)
        except RuntimeError as error:
            raise DataError(f"x is not a valid sparse matrix ({reason(error)})") from error
        x = as_csr(x)
    # A crafted file could point outside the matrix, so its parts are checked.
    return checked_csr(x.crow_indices(), x.col_indices(), x.values(), (x.shape[0], x.shape[1]))
