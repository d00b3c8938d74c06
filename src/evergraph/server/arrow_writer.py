"""Deltas written as Arrow tables, for a service that reads them with ``arrow``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.extras import require
from evergraph.online.checking import pairs_of
from evergraph.online.delta import Delta, NodeId
from evergraph.server.arrow import MARK
from evergraph.tables.arrow import pa
from evergraph.tables.columns import RELATION, TYPE
from evergraph.tables.names import ENDS

if TYPE_CHECKING:
    from evergraph.tables.scheme import Scheme


def arrow_from_delta(delta: Delta, scheme: Scheme | None = None) -> bytes:
    """Return a delta as bytes that ``delta_from_arrow`` reads.

    scheme: by which its columns were encoded; the service keeps that of the first delta.

    >>> import torch
    >>> from evergraph.server.arrow import delta_from_arrow
    >>> sent = arrow_from_delta(Delta(nodes=("a",), features=torch.ones(1, 2), labels=(None,)))
    >>> delta_from_arrow(sent).features
    tensor([[1., 1.]])
    """
    require("pyarrow", extra="tables", why="sending a delta to a service")

    def wide(features: Tensor, nodes: Sequence[NodeId]) -> Any:
        if len(nodes) and (len(features) != len(nodes) or not features.numel()):
            # Sent without features, these would be nodes to label or to forget.
            raise DataError(
                f"features have shape {tuple(features.shape)}: expected [{len(nodes)}, dims]"
            )
        rows = np.ascontiguousarray(features.numpy(), dtype=np.float32)
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), max(rows.shape[1], 1))

    edges, removed = (dict(zip(ENDS, pairs.sides, strict=True)) for pairs in pairs_of(delta))
    updating, cutting = (
        [word] * len(part)
        for word, part in (("update", delta.updated), ("remove", delta.removed_edges))
    )
    tables: list[dict[str, Any]] = [
        {
            "id": list(delta.nodes),
            "label": list(delta.labels),
            "features": wide(delta.features, delta.nodes),
            TYPE: delta.types,
        },
        edges | {"weight": np.array(delta.weights, float), RELATION: delta.relations},
        removed | {"op": cutting},
        {
            "id": list(delta.updated),
            "features": wide(delta.updated_features, delta.updated),
            "op": updating,
        },
        {"id": [node for node, _ in delta.late], "label": [label for _, label in delta.late]},
        {"id": list(delta.forgotten)},
    ]
    metadata = {"columns": scheme.to_json()} if scheme is not None and len(delta.nodes) else {}
    mark = {MARK: json.dumps(metadata).encode()}
    sink = pa.BufferOutputStream()
    for columns in tables:
        if given := {name: values for name, values in columns.items() if len(values)}:
            table = pa.table(given).replace_schema_metadata(mark)
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
    return bytes(sink.getvalue())
