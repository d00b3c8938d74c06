"""A graph as a folder of arrays, which may be larger than memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.mapped import create_array, is_mapped, map_array, page_out, put
from evergraph.core.safe_files import disk_is_enough, written_aside
from evergraph.graphs.csr import take_rows
from evergraph.graphs.graph import Graph
from evergraph.graphs.relations import NodeTypes, Relations
from evergraph.graphs.targets import MASKS, Masks, Targets
from evergraph.graphs.validation import check_csr, check_labels

FACTS = "graph.json"
FORMAT = 2
RELATION_ARRAYS = ("relation_indptr", "relation_indices", "relation_kinds", "relation_weights")
PLAIN = ("indptr", "indices", "features", "labels", "time", "weights")
ARRAYS = (*PLAIN, "targets", "types", *MASKS, *RELATION_ARRAYS)
# Of numbers with a fraction; the others count or name something.
REAL = ("features", "weights", "targets", "relation_weights")
MATRICES = ("features", "targets", *MASKS)
# Names that belong to some arrays, stored in graph.json.
NAMED = ("targets", "types", "relations")
_BYTES_PER_BLOCK = 1 << 24


def is_graph_folder(folder: Path) -> bool:
    """Return whether a folder holds a finished graph."""
    return (folder / FACTS).is_file()


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the contents of ``graph.json``; raise unless this version reads its format."""
    try:
        facts: dict[str, Any] = json.loads((folder / FACTS).read_text("utf-8"))
        if not isinstance(facts, dict) or not isinstance(facts.get("about", {}), dict):
            raise ValueError("it is no object of graph facts")
    except FileNotFoundError:
        message = f"{folder}: holds no finished graph: {FACTS} is missing, import it again"
        raise DataError(message) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{folder / FACTS}: cannot be read ({error})") from None
    if facts.get("format") != FORMAT:
        raise DataError(
            f"{folder}: is of format {facts.get('format')!r}, this version reads {FORMAT}: import "
            "it again, or use the version that made it"
        )
    return facts


def open_graph_folder(folder: Path, *, verify: bool = False) -> Graph:
    """Return a graph whose arrays stay in their files until they are read.

    Sizes are always checked, so that truncated files are detected; ``verify`` also reads everything
    and compares checksums.
    """
    try:
        return _open(folder, read_facts(folder), verify=verify)
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{folder / FACTS}: cannot be read ({error!r}): import it again") from None


def _open(folder: Path, facts: dict[str, Any], *, verify: bool) -> Graph:
    arrays: dict[str, Any] = {}
    for name, entry in facts["arrays"].items():
        if name not in ARRAYS:
            raise DataError(f"{folder / FACTS}: names an unknown array {name!r}")
        path = folder / f"{name}.npy"
        size = path.stat().st_size if path.is_file() else 0
        if size != entry["bytes"]:
            message = f"has {size:,} bytes instead of {entry['bytes']:,}"
            raise DataError(f"{path}: {message}: import it again")
        if verify and checksum(path) != entry["sha256"]:
            message = "its contents have changed since it was written"
            raise DataError(f"{path}: {message}: import it again")
        arrays[name] = map_array(path)
        _check_layout(path, name, arrays[name])
    if not len(arrays["indptr"]):
        raise DataError(f"{folder}: has no row pointers: import it again")
    ends = int(arrays["indptr"][-1])
    entries = len(arrays["indices"])
    if ends != entries:  # as pointers that overflowed do
        raise DataError(
            f"{folder}: row pointers end at {ends:,}, but there are {entries:,} entries: import it "
            "again"
        )
    named: dict[str, Any] = {}
    if "targets" in facts:
        entry = facts["targets"]
        named["targets"] = Targets(arrays.pop("targets"), entry["kind"], tuple(entry["names"]))
    if "types" in facts:
        named["types"] = NodeTypes(tuple(facts["types"]), arrays.pop("types"))
    if "relations" in facts:
        parts = [arrays.pop(name, None) for name in RELATION_ARRAYS]
        named["relations"] = Relations(tuple(facts["relations"]), *parts)
    if MASKS[0] in arrays:
        named["masks"] = Masks(*(arrays.pop(name) for name in MASKS))
    return Graph(**arrays, **named, undirected=facts["undirected"], folder=folder)


def _check_layout(path: Path, name: str, array: Tensor) -> None:
    """Raise unless an array has the shape and the kind of numbers that its name stands for."""
    rank = 1 + (name in MATRICES)
    real = name in REAL
    widths = {"indptr": (4, 8), "indices": (4,)}.get(
        name.removeprefix("relation_"), (1,) if name in MASKS else (2, 4, 8)
    )
    sound = array.is_floating_point() == real and array.element_size() in widths
    if array.dim() != rank or not sound or array.is_complex():
        bits = " or ".join(str(8 * width) for width in widths)
        rule = f"{rank} of {'real' if real else 'whole'} numbers of {bits} bits"
        message = f"has {array.dim()} dimensions of {array.dtype}"
        raise DataError(f"{path}: {message}: expected {rule}")


def check_numbers(graph: Graph) -> None:
    """Raise unless all numbers of nodes, classes, relations and types are of ones that exist.

    A folder from elsewhere may hold any, and a product would read outside of its arrays. This reads
    the adjacency once, as every product does.
    """
    check_csr(graph.indptr, graph.indices, graph.num_nodes)
    check_labels(graph.labels)
    named: list[tuple[str, Tensor, Sequence[str]]] = []
    if graph.types is not None:
        named.append(("type", graph.types.numbers, graph.types.names))
    if (related := graph.relations) is not None:
        check_csr(related.indptr, related.indices, graph.num_nodes)
        for part in (related.kinds, related.weights):
            if part is not None and len(part) != len(related):
                message = f"relations have {len(part)} kinds or weights for {len(related)} entries"
                raise DataError(f"{message}: expected one for each")
        named.append(("relation", related.kinds, related.kind_names()))
    for noun, numbers, names in named:
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(names):
            raise DataError(
                f"{noun}s are numbered {int(numbers.min())} to {int(numbers.max())}: expected 0 to "
                f"{len(names) - 1}"
            )


def arrays_of(graph: Graph) -> dict[str, Tensor]:
    """Return the arrays of a graph by file name."""
    arrays = {name: getattr(graph, name) for name in PLAIN}
    if graph.targets is not None:
        arrays["targets"] = graph.targets.values
    if graph.types is not None:
        arrays["types"] = graph.types.numbers
    if graph.masks is not None:
        arrays.update(zip(MASKS, graph.masks.parts, strict=True))
    if graph.relations is not None:
        fields = (name.removeprefix("relation_") for name in RELATION_ARRAYS)
        related = (getattr(graph.relations, field) for field in fields)
        arrays.update(zip(RELATION_ARRAYS, related, strict=True))
    return {name: array for name, array in arrays.items() if array is not None}


def names_in(graph: Graph) -> dict[str, Any]:
    """Return the entries of ``graph.json`` for targets, types and relations, if there are any."""
    entries: dict[str, Any] = {}
    if graph.targets is not None:
        entries["targets"] = {"kind": graph.targets.kind, "names": list(graph.targets.names)}
    if graph.types is not None:
        entries["types"] = list(graph.types.names)
    if graph.relations is not None:
        entries["relations"] = list(graph.relations.names)
    return entries


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BYTES_PER_BLOCK):
            digest.update(block)
    return digest.hexdigest()


class GraphFolderWriter:
    """Writes the arrays of a graph into a folder, which is valid only once all are complete.

    ``create`` makes an array, which can be filled in any order; ``finish`` computes checksums and
    writes ``graph.json`` last. Until then no reader accepts the folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     writer = GraphFolderWriter(Path(place, "pair"))
    ...     _ = writer.create("indptr", (3,), torch.int32).copy_(torch.tensor([0, 1, 2]))
    ...     _ = writer.create("indices", (2,), torch.int32).copy_(torch.tensor([1, 0]))
    ...     _ = writer.create("features", (2, 1), torch.float32)
    ...     _ = writer.create("labels", (2,), torch.int64)
    ...     _ = writer.finish(undirected=True)
    ...     open_graph_folder(Path(place, "pair"))
    Graph(nodes=2, edges=2, features=1, classes=1)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with disk_is_enough(folder):
            folder.mkdir(parents=True, exist_ok=True)
        (folder / FACTS).unlink(missing_ok=True)  # from now on it is not a valid graph folder

    def create(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a new array of zeros, mapped for writing."""
        assert name in ARRAYS, name
        return create_array(self.folder / f"{name}.npy", shape, dtype)

    def copy(self, name: str, array: Tensor) -> None:
        """Write the values of an array, which may be larger than memory, or sparse."""
        target = self.create(name, tuple(array.shape), array.dtype)
        width = 1 if array.dim() == 1 else array.shape[1]
        step = max(_BYTES_PER_BLOCK // (4 * max(width, 1)), 1)
        for start in range(0, len(array), step):
            stop = min(start + step, len(array))
            if array.layout == torch.strided:
                put(target, start, array[start:stop].as_subclass(Tensor))
                if is_mapped(array):
                    page_out(array[start:stop])
            else:
                put(target, start, take_rows(array, torch.arange(start, stop)).to_dense())

    def finish(
        self,
        *,
        undirected: bool,
        about: Mapping[str, Any] | None = None,
        named: Mapping[str, Any] | None = None,
    ) -> str:
        """Complete the graph; return one checksum of all its arrays.

        undirected: whether every edge exists both ways. about: stored in ``graph.json`` unchanged.
        named: kind and names of ``targets``, names of ``types`` and of ``relations``, if there
        are arrays of them.
        """
        named = {name: value for name, value in (named or {}).items() if value is not None}
        assert set(named) <= set(NAMED), named
        paths = {name: self.folder / f"{name}.npy" for name in ARRAYS}
        arrays = {
            name: {"bytes": path.stat().st_size, "sha256": checksum(path)}
            for name, path in paths.items()
            if path.is_file()
        }
        sums = "".join(f"{name} {entry['sha256']}\n" for name, entry in arrays.items())
        sums += json.dumps(named) if named else ""
        total = hashlib.sha256(sums.encode()).hexdigest()
        facts = {
            "format": FORMAT,
            "undirected": undirected,
            "arrays": arrays,
            "sha256": total,
            **named,
            "about": dict(about or {}),
        }
        with disk_is_enough(self.folder), written_aside(self.folder / FACTS) as file:
            file.write(json.dumps(facts, indent=2).encode())
        return total
