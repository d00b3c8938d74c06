"""Without an extra, one sentence before any work: what is missing and the command that helps."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.core.errors import ConfigurationError
from evergraph.datasets import load
from evergraph.datasets.importing.importing import import_graph
from evergraph.graphs import Graph
from evergraph.online.codecs.tables import read_deltas
from evergraph.online.delta import Delta
from evergraph.reports.figures import Frame, drawn
from evergraph.reports.report import write_report


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def hide(package: str) -> None:
        for name in [*sys.modules]:
            if name.partition(".")[0] == package:
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)

    return hide


def tables(folder: Path) -> Path:
    (folder / "nodes.csv").write_text("id,label,x\na,0,1\nb,1,2\n")
    (folder / "edges.csv").write_text("source,target\na,b\n")
    return folder


def pair() -> Graph:
    edges, labels = torch.tensor([[0], [1]]), torch.tensor([0, 1])
    return Graph.from_edges(edges, features=torch.eye(2), labels=labels)


def sent(folder: Path) -> bytes:
    from evergraph.server.client import arrow_from_delta

    return arrow_from_delta(Delta(nodes=("a",), features=torch.ones(1, 2), labels=(None,)))


CASES: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "folder of tables": ("pyarrow", "tables", load),
    "import": (
        "pyarrow",
        "tables",
        lambda at: import_graph(at / "edges.csv", at / "nodes.csv", at / "graph"),
    ),
    "ingest": (
        "pyarrow",
        "tables",
        lambda at: read_deltas(at / "nodes.csv", None, batch=1, integers=False),
    ),
    "client": ("pyarrow", "tables", sent),
    "published": ("torch_geometric", "pyg", lambda at: load("corafull", cache=at / "cache")),
    "data": ("torch_geometric", "pyg", lambda at: pair().to_data()),
    "report": ("matplotlib", "report", lambda at: write_report([], at)),
    "figure": (
        "matplotlib",
        "report",
        lambda at: drawn("curve", "A curve", Frame(1, 1), lambda figure, axes: None),
    ),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_missing_extra_is_named_with_its_command(case, tmp_path, without):
    package, extra, work = CASES[case]
    tables(tmp_path)
    without(package)
    expected = (
        rf"needs the package {package}, which is missing: pip install 'evergraph\[{extra}\]'$"
    )
    with pytest.raises(ConfigurationError, match=expected):
        work(tmp_path)
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"nodes.csv", "edges.csv"}  # nothing was begun


def test_a_pt_file_needs_pyg_only_if_it_holds_something_of_it(tmp_path, without):
    graph = pair()
    torch.save(graph.to_data(), tmp_path / "data.pt")
    edges = torch.tensor([[0], [1]])
    plain = {"edge_index": edges, "x": graph.features, "y": graph.labels}
    torch.save(plain, tmp_path / "plain.pt")
    assert load(tmp_path / "data.pt", undirected=False).num_edges == 1
    without("torch_geometric")
    assert load(tmp_path / "plain.pt", undirected=False).num_edges == 1
    with pytest.raises(ConfigurationError, match=r"data\.pt: .* needs .* 'evergraph\[pyg\]'"):
        load(tmp_path / "data.pt")


def test_without_pyarrow_arrow_is_refused(tmp_path, without):
    from arrow_bytes import delta_from_arrow
    from evergraph.server.http import RefusedError

    body = sent(tmp_path)
    without("pyarrow")
    with pytest.raises(RefusedError, match="reads JSON only") as refused:
        delta_from_arrow(body)
    assert refused.value.status == 415
