"""What somebody types who has a graph in hand and has read nothing."""

import pytest
import torch

import evergraph as eg


def test_a_strangers_ten_lines(small_graph, tmp_path, monkeypatch):
    for package in ("torch_geometric", "pandas", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    from torch_geometric.data import Data

    edges = torch.stack([small_graph.indices.long(), small_graph.edge_rows()])
    x, y = small_graph.features, small_graph.labels

    data = Data(x=x, edge_index=edges, y=y)
    result = eg.run(data, method="auto", memory="2MB", device="cpu")
    frame = result.to_frame()
    axes = result.plot()
    result.learner.save("m")
    predicted = eg.load_learner("m").predict(data)

    assert (predicted == y).float().mean() > 0.9
    assert predicted.equal(result.learner.predict(data))
    last = frame[(frame.after == 3) & (frame.testing == "local") & (frame.average == "balanced")]
    assert last.accuracy.mean() == pytest.approx(result.average_accuracy())
    assert axes.lines[-1].get_ydata()[-1] == pytest.approx(100 * result.average_accuracy("global"))
