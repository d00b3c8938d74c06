"""Tables in object storage: Arrow's file systems, here that of this machine by address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evergraph.tables.sources import StoredFile

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def addresses(tmp_path: Path) -> tuple[str, str]:
    nodes = {"id": list(range(6)), "label": [0, 0, 1, 1, 2, 2], "f": [0.5 * n for n in range(6)]}
    edges = {"source": [0, 1, 2, 3], "target": [1, 2, 3, 4]}
    for name, columns in (("nodes", nodes), ("edges", edges)):
        parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=2)
    return f"file://{tmp_path}/edges.parquet", f"file://{tmp_path}/nodes.parquet"


def test_import_by_address_gives_the_graph_of_the_files(
    call: Any, addresses: tuple[str, str]
) -> None:
    stored = json.loads(call("import", *addresses, "--out", "a", "--json")[0])
    files = (address.removeprefix("file://") for address in addresses)
    plain = json.loads(call("import", *files, "--out", "b", "--json")[0])
    assert stored["checksum"] == plain["checksum"]
    assert stored["entries"] == 8
    assert "a, which already existed" in call("import", *addresses, "--out", "a")[0]
    with StoredFile(addresses[0]).open() as file:  # so that only what is asked for is read
        assert file.seekable()
        assert file.size() == StoredFile(addresses[0]).state()[0]


def test_what_cannot_be_read_is_one_sentence(call: Any, addresses: tuple[str, str]) -> None:
    edges, nodes = addresses
    for wrong, said in (
        (nodes.replace("nodes", "none"), "none.parquet: no such file"),
        ("nowhere://b/n.parquet", "nowhere://b/n.parquet: cannot be reached"),
        ("s3://b/n.csv", "s3://b/n.csv: only .parquet is read from object storage"),
    ):
        _, err = call("import", edges, wrong, "--out", "g", expect=2)
        assert said in err
        assert len(err.strip().splitlines()) == 1
