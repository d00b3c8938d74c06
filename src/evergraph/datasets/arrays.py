"""Graphs of arrays, as ``.npz`` and ``.pt`` files hold them, read without unsafe pickles.

Arrays of ``.npz``: ``edge_index`` integer [2, edges]; ``y`` integer [nodes], or [nodes, targets]
for several labels (0 and 1) or numbers per node, NaN if unknown, with optional names in ``y_names``
(text [targets]); features as ``x`` [nodes, dims], or as CSR in ``x_indptr``, ``x_indices``,
``x_shape`` and, unless all values are 1, ``x_data``, or none; optionally ``year`` integer [nodes],
which becomes ``Graph.time`` (``datetime64`` becomes seconds since 1970), ``edge_weight`` [edges],
not negative, and ``train_mask``, ``val_mask`` and ``test_mask``, see ``Masks``. Other arrays are
ignored with a warning. A ``.pt`` file holds a PyG ``Data`` or a dict of tensors.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import DataError, say_ignored
from evergraph.core.packages import require
from evergraph.core.safe_files import written_aside
from evergraph.graphs import Graph
from evergraph.graphs.csr import as_csr, csr_tensor
from evergraph.graphs.pyg import read_attributes
from evergraph.graphs.targets import MASKS, PLURALS, names_of_masks, read_masks, read_y
from evergraph.graphs.validation import MOST_NODES, check_csr, check_real
from evergraph.tables.columns import column_peaks, say_dominant_column
from evergraph.tables.sources import naming, reason

KEYS = (
    "edge_index",
    "y",
    "y_names",
    "x",
    "x_indptr",
    "x_indices",
    "x_shape",
    "x_data",
    "year",
    "edge_weight",
)
Arrays = dict[str, npt.NDArray[np.generic]]


def read_npz(path: Path, *, repeated: str = "last") -> Graph:
    """Return the graph in an ``.npz`` file, edges as listed.  repeated: as in ``load``"""
    with naming(path):
        arrays, unread = _read_arrays(path)
        for key in ("edge_index", "y"):
            if key not in arrays:
                message = f"has no array {key!r}: it holds {', '.join(arrays) or 'none known'}"
                raise DataError(message)
        labels_or_targets = read_y(_tensor(arrays, "y"))
        if "targets" in labels_or_targets and "y_names" in arrays:
            names = tuple(map(str, arrays["y_names"]))
            labels_or_targets = {"targets": replace(labels_or_targets["targets"], names=names)}
        graph = assemble(
            path,
            edge_index=_tensor(arrays, "edge_index"),
            features=_npz_features(arrays),
            **labels_or_targets,
            time=_tensor(arrays, "year") if "year" in arrays else None,
            weights=_tensor(arrays, "edge_weight") if "edge_weight" in arrays else None,
            masks=read_masks(
                {name: _tensor(arrays, name) for name in (*MASKS, *PLURALS) if name in arrays},
                len(arrays["y"]),
            ),
            repeated=repeated,
        )
    known = (*KEYS, *MASKS)
    say_ignored(path, "array", unread, f"only {', '.join(known[:-1])} and {known[-1]} are read")
    return graph


def write_npz(graph: Graph, path: Path) -> None:
    """Write a graph as ``.npz`` atomically."""
    arrays = {
        "edge_index": torch.stack([graph.indices, graph.edge_rows().int()]),
        "y": graph.labels if graph.targets is None else graph.targets.values,
    }
    features = graph.features
    if features.layout != torch.strided:
        arrays["x_indptr"], arrays["x_indices"] = features.crow_indices(), features.col_indices()
        arrays["x_shape"], arrays["x_data"] = torch.tensor(features.shape), features.values()
    elif features.shape[1]:
        arrays["x"] = features
    if graph.time is not None:
        arrays["year"] = graph.time
    if graph.weights is not None:
        arrays["edge_weight"] = graph.weights
    if graph.masks is not None:
        arrays |= dict(zip(MASKS, graph.masks.parts, strict=True))
    with written_aside(path) as file:
        plain: Any = {key: array.cpu().numpy() for key, array in arrays.items()}
        if graph.targets is not None:
            plain["y_names"] = np.array(graph.targets.names)
        np.savez(file, **plain)


def _read_arrays(path: Path) -> tuple[Arrays, list[str]]:
    """Return the known arrays of the file, and the names of the others."""
    if not zipfile.is_zipfile(path):
        raise DataError("is not a complete .npz file: expected a zip archive of arrays")
    try:
        with np.load(path, allow_pickle=False) as archive:
            known = (*KEYS, *names_of_masks(dict.fromkeys(archive.files)))
            others = [name for name in archive.files if name not in known]
            return {key: _plain(archive, key) for key in known if key in archive.files}, others
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError) as error:
        raise DataError(f"is damaged ({error}): expected a zip archive of arrays") from error


def _plain(archive: np.lib.npyio.NpzFile, key: str) -> npt.NDArray[np.generic]:
    """Return one array; raise if it needs pickle."""
    try:
        array: npt.NDArray[np.generic] = archive[key]
    except (ValueError, MemoryError) as error:
        how = "without pickle" if "pickle" in str(error) else f"({reason(error)})"
        raise DataError(f"array {key!r} cannot be read {how}: expected numbers") from error
    if key == "year" and isinstance(array, np.ndarray) and array.dtype.kind == "M":
        if np.isnat(array).any():
            node = int(np.isnat(array).argmax())
            raise DataError(f"array 'year' has no date for node {node}: expected one")
        return array.astype("datetime64[s]").astype(np.int64)
    if key == "y_names" and isinstance(array, np.ndarray) and array.dtype.kind == "U":
        return array
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise DataError(f"array {key!r} holds {getattr(array, 'dtype', 'bytes')}: expected numbers")
    return array


def _tensor(arrays: Arrays, key: str) -> Tensor:
    """Return an array as int64, or unchanged if it holds floats or booleans."""
    array = arrays[key]
    return torch.from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array)


def _npz_features(arrays: Arrays) -> Tensor | None:
    if "x" in arrays:
        return torch.from_numpy(arrays["x"].astype(np.float32, copy=False))
    csr = [key for key in ("x_indptr", "x_indices", "x_shape") if key in arrays]
    if not csr:
        return None
    if len(csr) < 3:
        message = f"holds {', '.join(csr)} only: CSR features need x_indptr, x_indices and x_shape"
        raise DataError(message)
    for key in csr:
        if arrays[key].dtype.kind not in "iu":
            raise DataError(f"array {key!r} holds {arrays[key].dtype}: expected integers")
    shape = arrays["x_shape"].tolist()
    if not isinstance(shape, list) or len(shape) != 2:
        raise DataError(f"array 'x_shape' is {shape}: expected [nodes, dims]")
    indices = _tensor(arrays, "x_indices")
    values = torch.from_numpy(arrays["x_data"]) if "x_data" in arrays else torch.ones(len(indices))
    return checked_csr(_tensor(arrays, "x_indptr"), indices, values, (shape[0], shape[1]))


# CSR stores 8 bytes for every 4-byte value, and its products cost far more per value. Below one
# value in twenty it saves several times the memory; above, a dense matrix is better in both.
SPARSE_BELOW = 0.05


def fitting_layout(features: Tensor) -> Tensor:
    """Return features as CSR if fewer than one value in twenty is non-zero, else dense.

    >>> fitting_layout(torch.eye(40)).layout
    torch.sparse_csr
    >>> fitting_layout(torch.eye(4).to_sparse_csr()).layout
    torch.strided
    """
    if features.numel() == 0:
        return features
    dense = features.layout == torch.strided
    stored = int(features.count_nonzero()) if dense else features.values().numel()
    sparse_pays = stored < SPARSE_BELOW * features.numel()
    if sparse_pays:
        return as_csr(features) if dense else features
    return features if dense else features.to_dense()


def assemble(
    path: object, *, features: Tensor | None, names: Sequence[str] | None = None, **arrays: Any
) -> Graph:
    """Return the graph of a file's arrays; without features the width is 0.

    Warns about a feature column that dominates the others.

    features: [nodes, dims], dense or CSR; path, names: of the file and of the feature columns, for
    messages; arrays: as ``Graph.from_edges`` takes them.
    """
    labels, targets = arrays.get("labels"), arrays.get("targets")
    if targets is not None and features is not None and len(features) != len(targets):
        raise DataError(
            f"y has shape {list(targets.values.shape)}: expected [nodes] or [nodes, targets], and "
            f"there are {len(features)} nodes"
        )
    if features is None:
        features = torch.zeros(len(targets or ()) if labels is None else labels.numel(), 0)
    graph = Graph.from_edges(features=features, where=path, **arrays)
    say_dominant_column(path, column_peaks(graph.features), names)
    return graph


def checked_csr(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a float32 CSR matrix from the parts in a file; raise unless they are valid.

    indptr: integer [rows + 1]; indices, values: [stored].
    """
    rows, columns = shape
    check_real(values)
    if not (0 <= rows <= MOST_NODES and 0 <= columns <= MOST_NODES):
        raise DataError(f"CSR features have shape {list(shape)}: expected [nodes, dims]")
    if indptr.shape != (rows + 1,) or indices.dim() != 1 or values.shape != indices.shape:
        raise DataError(
            f"CSR features have {indptr.numel()} row pointers, {indices.numel()} column indices "
            f"and {values.numel()} values: expected {rows + 1}, and as many values as indices"
        )
    check_csr(indptr, indices, columns)
    return csr_tensor(indptr, indices, values.float(), shape)


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
        return assemble(path, features=_pt_features(tensors.get("x")), repeated=repeated, **arrays)


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


def _pt_features(x: Tensor | None) -> Tensor | None:
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
