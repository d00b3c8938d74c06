"""Graphs in ``.npz`` files, read and written without pickle.

Arrays: ``edge_index`` integer [2, edges]; ``y`` integer [nodes], or [nodes, targets] for several
labels (0 and 1) or numbers per node, NaN if unknown, with optional names in ``y_names`` (text
[targets]); features as ``x`` [nodes, dims], or as CSR in ``x_indptr``, ``x_indices``, ``x_shape``
and, unless all values are 1, ``x_data``, or none; optionally ``year`` integer [nodes], which
becomes ``Graph.time`` (``datetime64`` becomes seconds since 1970), ``edge_weight`` [edges], not
negative, and ``train_mask``, ``val_mask`` and ``test_mask``, see
``Masks``. Other arrays are ignored with a warning.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evergraph.core.errors import DataError, say_ignored
from evergraph.core.safe_files import written_aside
from evergraph.datasets.files.assembly import assemble, checked_csr
from evergraph.graphs import Graph
from evergraph.graphs.targets import MASKS, PLURALS, names_of_masks, read_masks, read_y
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
        arrays, others = _read_arrays(path)
        for key in ("edge_index", "y"):
            if key not in arrays:
                said = f"has no array {key!r}: it holds {', '.join(arrays) or 'none known'}"
                raise DataError(said)
        answers = read_y(_tensor(arrays, "y"))
        if "targets" in answers and "y_names" in arrays:
            names = tuple(map(str, arrays["y_names"]))
            answers = {"targets": replace(answers["targets"], names=names)}
        graph = assemble(
            path,
            edge_index=_tensor(arrays, "edge_index"),
            features=_features(arrays),
            **answers,
            time=_tensor(arrays, "year") if "year" in arrays else None,
            weights=_tensor(arrays, "edge_weight") if "edge_weight" in arrays else None,
            masks=read_masks(
                {name: _tensor(arrays, name) for name in (*MASKS, *PLURALS) if name in arrays},
                len(arrays["y"]),
            ),
            repeated=repeated,
        )
    known = (*KEYS, *MASKS)
    say_ignored(path, "array", others, f"only {', '.join(known[:-1])} and {known[-1]} are read")
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
        said = "without pickle" if "pickle" in str(error) else f"({reason(error)})"
        raise DataError(f"array {key!r} cannot be read {said}: expected numbers") from error
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


def _features(arrays: Arrays) -> Tensor | None:
    if "x" in arrays:
        return torch.from_numpy(arrays["x"].astype(np.float32, copy=False))
    csr = [key for key in ("x_indptr", "x_indices", "x_shape") if key in arrays]
    if not csr:
        return None
    if len(csr) < 3:
        said = f"holds {', '.join(csr)} only: CSR features need x_indptr, x_indices and x_shape"
        raise DataError(said)
    for key in csr:
        if arrays[key].dtype.kind not in "iu":
            raise DataError(f"array {key!r} holds {arrays[key].dtype}: expected integers")
    shape = arrays["x_shape"].tolist()
    if not isinstance(shape, list) or len(shape) != 2:
        raise DataError(f"array 'x_shape' is {shape}: expected [nodes, dims]")
    indices = _tensor(arrays, "x_indices")
    values = torch.from_numpy(arrays["x_data"]) if "x_data" in arrays else torch.ones(len(indices))
    return checked_csr(_tensor(arrays, "x_indptr"), indices, values, (shape[0], shape[1]))
