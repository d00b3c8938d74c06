"""``run`` on what a user holds in hand, told by keywords."""

from pathlib import Path
from typing import Any

import pytest
import torch

import evergraph as eg
from evergraph.core.errors import ConfigurationError, ResultsError, UnknownNameError
from evergraph.datasets.importing.importing import import_graph
from evergraph.experiments.config import RunConfig
from evergraph.experiments.runner import Observer
from evergraph.experiments.settings import configured

QUICK: dict[str, Any] = {"epochs": 2, "device": "cpu", "progress": False}
SYNTHETIC = {"name": "synthetic", "nodes": 360, "classes": 6, "features": 16, "noise": 0.4}


def test_a_graph_in_hand_gives_what_the_same_dataset_gives(small_graph):
    here = eg.run(small_graph, "finetune", setting="task-il", repeats=2, **QUICK)
    dataset = {**SYNTHETIC, "seed": 1}
    named = eg.run(method="finetune", dataset=dataset, setting="task-il", repeats=2, **QUICK)
    assert [s.rows for s in here.seeds] == [s.rows for s in named.seeds]
    assert here.dataset == named.dataset
    assert here.config.dataset.parameters == {
        "nodes": 360,
        "edges": small_graph.num_edges,
        "features": 16,
        "classes": 6,
    }
    assert (here.config.dataset.name, here.config.seeds) == ("in memory", (0, 1))
    assert here.config.method.name == "finetune"
    assert repr(here).startswith("RunResult(method='finetune', dataset='in memory', setting='task-")
    assert "<th>local, balanced</th><td>AA " in here._repr_html_()


def test_the_method_is_auto_unless_told(small_graph):
    opened = []
    observer = Observer(on_task=lambda seed, report: opened.append("task"))
    result = eg.run(small_graph, memory="200KB", observer=observer, device="cpu")
    assert result.config.method.name == "auto"
    assert result.config.method.parameters["memory"] == "200KB"
    assert 0 < result.to_dict()["memory"]["bytes"] <= 200_000
    assert opened == ["task"] * 3
    config = RunConfig.of({"dataset": SYNTHETIC, "method": "finetune"})
    assert eg.run(config, **QUICK).config.method.name == "finetune"


def test_another_graph_is_not_mixed_into_a_folder(tmp_path, small_graph):
    first = eg.run(small_graph, "finetune", out=tmp_path / "a", **QUICK)
    again = eg.run(small_graph, "finetune", out=str(tmp_path / "a"), resume=True, **QUICK)
    assert [s.rows for s in again.seeds] == [s.rows for s in first.seeds]
    assert first.learner is not None
    assert again.learner is None  # it was finished: nothing was learned anew
    other = small_graph.subgraph(torch.arange(300))
    with pytest.raises(ResultsError, match=r"another configuration: dataset\.edges"):
        eg.run(other, "finetune", out=tmp_path / "a", resume=True, **QUICK)


def test_the_last_seeds_learner_is_kept_unless_told(small_graph):
    result = eg.run(small_graph, "finetune", seeds=[3, 5], **QUICK)
    assert isinstance(result.learner, eg.methods.Finetune)
    exam = eg.GraphStream(small_graph).exams(2, "local")[2]
    right = result.learner.answer(exam.graph, exam.nodes, exam.tasks).classes == exam.labels
    assert float(right.double().mean()) == result.seeds[1].rows[2]["local"]["plain"][2]
    assert eg.run(small_graph, "finetune", keep_learner=False, **QUICK).learner is None
    assert "learner" not in result.to_dict()


def test_settings_find_their_places():
    config = configured(
        RunConfig(),
        {
            "method": "tem",
            "topology__alpha": 0.3,  # given before the name it belongs to
            "topology": "ppr",
            "hops": 4,
            "budget": 7,
            "sampler": eg.samplers.GradientMatchingSampler(heads=2),
            "lr": 0.5,
            "hidden": (3,),
            "edges": "all",
            "seeds": [4],
        },
    )
    assert config.topology.parameters == {"alpha": 0.3, "hops": 4}
    assert config.memory.budget == 7
    assert config.memory.sampler.name == "gradient-matching"
    assert config.memory.sampler.parameters["heads"] == 2
    assert (config.training.lr, config.head.hidden, config.stream.edges) == (0.5, (3,), "all")
    assert config.seeds == (4,)


def test_a_backbone_brings_its_topology(small_graph):
    backbone = eg.backbones.PDGNN(topology=eg.topologies.PPR(alpha=0.3), hidden=(4,))
    config = configured(RunConfig(), {"backbone": backbone})
    assert config.topology.parameters["alpha"] == 0.3
    result = eg.run(small_graph, eg.methods.TEM, backbone=backbone, **QUICK)
    assert isinstance(result.learner, eg.methods.TEM)
    assert repr(result.learner.backbone) == "PDGNN(topology=PPR(alpha=0.3), hidden=(4,))"


def test_an_unknown_setting_or_source_is_met_with_what_there_is(small_graph):
    with pytest.raises(UnknownNameError, match="unknown setting 'epoch': did you mean 'epochs'"):
        eg.run(small_graph, epoch=3)
    with pytest.raises(ConfigurationError, match=r"a graph must be a Graph, .* not list"):
        eg.run([1, 2])
    with pytest.raises(ConfigurationError, match="dataset must be given once"):
        eg.run(small_graph, dataset="wordnet")


def test_progress_is_shown_where_it_is_asked_for(small_graph, capsys, monkeypatch):
    eg.run(small_graph, "finetune", epochs=1, device="cpu")
    assert capsys.readouterr().err == ""  # nobody is looking
    eg.run(small_graph, "finetune", epochs=1, device="cpu", progress=True)
    assert "finetune on a graph in memory  seed 0  task 3/3  AA " in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    eg.run(small_graph, "finetune", epochs=1, device="cpu", progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("method", "memory", "message"),
    [
        ("auto", "lots", "such as 4GB or 512MiB, above 0, not 'lots'"),
        ("tem", "2MB", "memory in bytes needs method auto; tem keeps nodes: set a budget"),
        ("finetune", "2MB", "'finetune' has no parameter 'memory'"),
    ],
)
def test_unkeepable_parts_are_refused(method, memory, message, small_graph):
    with pytest.raises(ConfigurationError, match=message):
        eg.run(small_graph, method, memory=memory, device="cpu", progress=False)


@pytest.fixture
def named_folder(tmp_path: Path) -> Path:
    """Tables of two groups of people whose classes have names; 'zoo' sorts behind 'art'."""
    folder = tmp_path / "people"
    folder.mkdir()
    names = ["zoo" if i % 2 else "art" for i in range(40)]
    rows = [f"n{i},{name},{i % 2}.{i},{i % 3}" for i, name in enumerate(names)]
    (folder / "nodes.csv").write_text("\n".join(["id,label,f,g", *rows]) + "\n")
    pairs = [f"n{i},n{i + 2}" for i in range(38)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *pairs]) + "\n")
    return folder


def test_labels_that_were_texts_come_back_as_texts(named_folder, tmp_path):
    graph = eg.load(named_folder)
    assert graph.class_names == ("art", "zoo")
    narrow = {"name": "random-features", "width": 64}
    result = eg.run(graph, "analytic", backbone=narrow, device="cpu", progress=False)
    predicted = result.learner.predict(graph)
    assert predicted.tolist() == ["zoo" if i % 2 else "art" for i in range(40)]
    assert result.learner.classes == ["art", "zoo"]
    result.learner.save(tmp_path / "model.eg")
    again = eg.load_learner(tmp_path / "model.eg")
    assert again.predict(graph).tolist() == predicted.tolist()
    imported = tmp_path / "imported"
    import_graph(named_folder / "edges.csv", named_folder / "nodes.csv", imported)
    assert eg.load(imported).class_names == ("art", "zoo")
    model = eg.ContinualNodeClassifier(width=64).partial_fit(graph)
    assert set(model.classes_) == {"art", "zoo"}
