"""Which edges of a table are in a growing graph, found without a loop over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from evergraph.online.identifiers import IdTable

if TYPE_CHECKING:
    import pyarrow

    from evergraph.online.knowledge import Knowledge


def known_edges(
    ids: IdTable, knowledge: Knowledge | None, sources: pyarrow.Array, targets: pyarrow.Array
) -> NDArray[np.bool_]:
    """Return which edges are known.  sources, targets: ids, both strings or both int64 [edges]"""
    if knowledge is None or not len(sources):
        return np.zeros(len(sources), dtype=bool)
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = int if pa.types.is_integer(sources.type) else str
    names = [name for name in ids if type(name) is kind]
    places = ids.where(names).numpy()
    known = pa.array(names, sources.type)

    def positions(side: pyarrow.Array) -> torch.Tensor:
        found = pc.fill_null(pc.index_in(side, value_set=known), -1).to_numpy()
        return torch.from_numpy(np.append(places, -1)[found])  # what is not found is last

    listed: NDArray[np.bool_] = knowledge.graph.lists(
        positions(sources), positions(targets)
    ).numpy()
    return listed
