"""Where a node is, by its id."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from evergraph.core.errors import DataError
from evergraph.datasets.importing import node_index
from evergraph.datasets.importing.node_index import NodeIndex


@pytest.mark.parametrize(
    ("known", "asked", "found"),
    [
        ([5, 3, 4], ["3", "5"], [1, 0]),
        (["5", "3", "4"], [3, 5], [1, 0]),
        (["-5", "-4"], ["-4", "-5"], [1, 0]),
        ([10**15, 3], [3, 10**15], [1, 0]),
        ([-(2**63), 2**63 - 1], [2**63 - 1], [1]),
        (["007", "7"], ["7", "007"], [1, 0]),
        (["a", "7"], ["7", "a"], [1, 0]),
        (["7"], [], []),
    ],
)
def test_ids_are_found(known: list[Any], asked: list[Any], found: list[int]) -> None:
    values = pa.array(asked, None if asked else pa.string())
    assert NodeIndex(pa.array(known)).positions(values, "source").tolist() == found


@pytest.mark.parametrize("asked", ["8", "6", "007", " 7", "+7", "0x7", "x", "7.0"])
def test_an_id_is_one_only_as_it_is_written(asked: str) -> None:
    for known in (["7", "9"], [7, 9]):
        index = NodeIndex(pa.array(known))
        with pytest.raises(DataError, match=r"row 12 has target '.*': expected the id of a node"):
            index.positions(pa.array(["9", asked]), "target", before=10)


def test_dense_ids_are_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_index.NodeIndex, "_search", None)
    index = NodeIndex(pa.array([str(node) for node in range(100)]))
    assert index.positions(pa.array(["99", "0"]), "source").tolist() == [99, 0]
