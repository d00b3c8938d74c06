"""Learners in files, and what else may be found there."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import evergraph as eg
from evergraph.core.errors import ConfigurationError, DataError, UnknownNameError
from evergraph.core.seeding import seeded
from evergraph.training.learner import description


@pytest.fixture(scope="module")
def learner(small_graph):
    """TEM after two of three tasks, classes in an order of their own, with parts of its own."""
    learner = eg.methods.TEM(
        memory=eg.memory.EmbeddingMemory(budget=7, sampler=eg.samplers.DegreeSampler()),
        backbone=eg.backbones.PDGNN(topology=eg.topologies.PPR(alpha=0.3), hidden=(16,)),
        trainer=eg.training.Trainer(epochs=20, lr=0.02, device="cpu", momentum="fresh"),
        generator=seeded(0, "learner"),
    )
    stream = eg.GraphStream(small_graph, order=[5, 0, 3, 1, 4, 2])
    for index in (0, 1):
        learner.fit_task(stream.open(index))
    return learner


def about(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        found = json.loads(file.metadata()["evergraph"])
    return found


def rewritten(path: Path, **changes: Any) -> Path:
    told, state = about(path) | changes, load_file(path)
    other = path.with_name("other.eg")
    save_file(state, other, metadata={"evergraph": json.dumps(told)})
    return other


def test_the_header_tells_what_the_learner_is_made_of(learner, tmp_path):
    learner.save(tmp_path / "m")
    told = about(tmp_path / "m")
    assert told["label_space"] == {
        "setting": "class-il",
        "sizes": [2, 2],
        "labels": [5, 0, 3, 1],
        "kind": "class",
        "names": [],
    }
    assert told["method"]["name"] == "tem"
    assert told["method"]["memory"] == {"budget": 7, "sampler": {"name": "degree"}}
    assert told["method"]["backbone"]["topology"]["alpha"] == 0.3
    assert told["method"]["trainer"]["device"] == "cpu"
    assert "generator" not in told["method"]
    assert repr(eg.load_learner(tmp_path / "m")) == repr(learner)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_predictions_are_the_datasets_labels(learner, small_graph):
    seen = torch.isin(small_graph.labels, torch.tensor([5, 0, 3, 1]))
    predicted = learner.predict(small_graph)
    assert len(predicted) == small_graph.num_nodes
    assert (predicted[seen] == small_graph.labels[seen]).float().mean() > 0.6
    some = torch.tensor([4, 2])
    assert learner.predict(small_graph, some).equal(predicted[some])
    probabilities = learner.predict_proba(small_graph, some)
    assert [learner.classes[i] for i in probabilities.argmax(1)] == predicted[some].tolist()
    # The evaluator is answered in numbers of arrival, as its exams are written.
    numbers = learner.answer(small_graph, some).classes
    assert torch.tensor(learner.classes)[numbers].equal(predicted[some])


def test_a_data_is_read_as_what_was_learned_was(small_graph, tmp_path):
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import Data

    chain = torch.stack([torch.arange(59), torch.arange(1, 60)])
    features = torch.rand(60, 5, generator=seeded(0, "features"))
    weights = torch.arange(1.0, 60.0)
    data = Data(x=features, edge_index=chain, edge_weight=weights, y=torch.arange(60) // 15)
    asked = Data(x=features, edge_index=chain, edge_weight=weights)  # without labels
    for undirected in (True, False):
        result = eg.run(
            data, "tem", undirected=undirected, epochs=2, device="cpu", edges="all", progress=False
        )
        graph = eg.Graph.from_data(data, undirected=undirected)
        expected = result.learner.predict_proba(graph)
        other = eg.Graph.from_data(data, undirected=not undirected)
        assert not result.learner.predict_proba(other).equal(expected)
        result.learner.save(tmp_path / "m")
        loaded = eg.load_learner(tmp_path / "m")
        assert loaded.predict_proba(data).equal(expected)
        assert loaded.predict_proba(asked).equal(expected)
    with pytest.raises(DataError, match="must have 'x' and 'edge_index'"):
        loaded.predict(Data(x=features))


def test_a_learner_of_a_gpu_is_loaded_where_there_is_none(learner, small_graph, tmp_path):
    learner.save(tmp_path / "m")
    # What a GPU adds: the state of its own noise, which no CPU generator takes.
    told, state = about(tmp_path / "m"), load_file(tmp_path / "m")
    told["method"]["trainer"]["device"] = "cuda"
    state["noise"] = torch.zeros(16, dtype=torch.uint8)
    save_file(state, tmp_path / "gpu", metadata={"evergraph": json.dumps(told)})
    loaded = eg.load_learner(tmp_path / "gpu", device="cpu")
    assert loaded.predict_proba(small_graph).equal(learner.predict_proba(small_graph))
    if not torch.cuda.is_available():
        assert eg.load_learner(tmp_path / "gpu").device.type == "cpu"


def test_unsavable_learners_are_refused(tmp_path, learner, monkeypatch):
    untaught = eg.methods.Finetune(generator=torch.Generator())
    with pytest.raises(ConfigurationError, match="fit_task first"):
        untaught.save(tmp_path / "m")
    monkeypatch.setattr(learner, "replay_weight", torch.ones(1))
    with pytest.raises(ConfigurationError, match=r"replay_weight of TEM cannot be saved.*Tensor"):
        learner.save(tmp_path / "m")
    assert [*tmp_path.iterdir()] == []


def test_what_is_no_learner_is_refused(tmp_path, learner):
    with pytest.raises(DataError, match="none cannot be read"):
        eg.load_learner(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(DataError, match="text is not a learner saved by evergraph"):
        eg.load_learner(tmp_path / "text")
    save_file({"a": torch.ones(1)}, tmp_path / "bare")
    with pytest.raises(DataError, match="bare is not a learner"):
        eg.load_learner(tmp_path / "bare")
    learner.save(tmp_path / "m")
    with pytest.raises(DataError, match=r"has format 1, .* but this version reads 2"):
        eg.load_learner(rewritten(tmp_path / "m", format=1))
    unknown = about(tmp_path / "m")["method"] | {"name": "temm"}
    with pytest.raises(UnknownNameError, match="did you mean 'tem'"):
        eg.load_learner(rewritten(tmp_path / "m", method=unknown))
    wide = description(eg.backbones.PDGNN(hidden=(9,)))
    with pytest.raises(DataError, match="does not hold a whole learner"):
        eg.load_learner(
            rewritten(tmp_path / "m", method=about(tmp_path / "m")["method"] | {"backbone": wide})
        )


def test_merging_keeps_the_labels_of_both(small_graph):
    def taught(classes):
        learner = eg.methods.Analytic(
            backbone=eg.backbones.RandomFeatures(width=32),
            trainer=eg.training.Trainer(device="cpu"),
            generator=seeded(0, "learner"),
        )
        order = [*classes, *(c for c in range(6) if c not in classes)]
        learner.fit_task(eg.GraphStream(small_graph, order=order).open(0))
        return learner

    one, other = taught([5, 0]), taught([3, 1])
    one.merge(other, classes=torch.tensor([3, 2]))
    assert one.classes == [5, 0, 1, 3]
