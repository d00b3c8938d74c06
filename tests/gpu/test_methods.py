"""Every registered method on a GPU: it learns what it learns on a CPU, and can be stopped."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from evergraph.closed_form import ViewFeatures
from evergraph.core.seeding import seeded
from evergraph.experiments.bench.worker import learn
from evergraph.experiments.config import RunConfig
from evergraph.experiments.protocol import learn_stream
from evergraph.memory import EmbeddingMemory, SubgraphMemory, samplers
from evergraph.methods import load_learner, methods
from evergraph.nn import RandomFeatures, backbones
from evergraph.streams import GraphStream
from evergraph.training import Learner, Trainer
from small_runs import job_of

# Methods whose default size would only make the tests slow: a smaller backbone.
SMALL = {"analytic": partial(RandomFeatures, width=128), "auto": partial(ViewFeatures, width=64)}
# Samplers that look at the model, or break ties by chance: a GPU draws other numbers than a CPU.
DRAWN = ("embedding-coverage", "influence")
REFRESHED = ("tem", "analytic", "auto", "slda")


def make(
    name: str,
    device: str,
    *,
    seed: int = 0,
    epochs: int = 8,
    batch_size: int | None = None,
    **options: Any,
) -> Learner:
    """Return a learner without dropout, whose draws would differ from device to device."""
    trainer = Trainer(epochs=epochs, batch_size=batch_size, device=device)
    if "backbone" not in options:
        options["backbone"] = backbones.make(methods.resolve(name).default_backbone, dropout=0.0)
    if name in SMALL:
        options["backbone"] = SMALL[name]()
    return methods.make(name, trainer=trainer, generator=seeded(seed, "learner"), **options)


def fitted(learner: Learner, stream: GraphStream, tasks: Sequence[int]) -> Learner:
    for index in tasks:
        learner.fit_task(stream.open(index, cumulative=learner.cumulative))
    return learner


def answers(learner: Learner, stream: GraphStream) -> torch.Tensor:
    """Return the classes that a learner gives the test nodes of everything."""
    exam = stream.exams(len(stream) - 1, "global")[0]
    return learner.predict(exam.graph, exam.nodes, exam.tasks)


def agreement(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first == second).float().mean())


@pytest.mark.parametrize("name", methods.names())
def test_learns_what_a_cpu_learns(name, small_graph, on_gpu):
    found = []
    for graph, device in ((small_graph, "cpu"), (on_gpu, "cuda")):
        stream = GraphStream(graph, setting="task-il", edges="all")
        learner = fitted(make(name, device), stream, range(len(stream)))
        found.append(answers(learner, stream))
    assert agreement(*found) > 0.9


@pytest.mark.parametrize("name", methods.names())
def test_learns_the_newest_task_in_class_il(name, on_gpu):
    # A GPU draws other weights than a CPU, and what is left of old classes hangs on them.
    reports = list(learn_stream(make(name, "cuda", batch_size=64), GraphStream(on_gpu)))
    assert [len(r.rows["local"]["balanced"]) for r in reports] == [1, 2, 3]
    assert reports[-1].rows["local"]["balanced"][-1] > 0.8


@pytest.mark.parametrize("name", methods.names())
def test_a_saved_learner_is_the_same_here_and_much_the_same_on_a_cpu(name, on_gpu, tmp_path):
    stream = GraphStream(on_gpu, setting="task-il")
    learner = fitted(make(name, "cuda"), stream, range(len(stream)))
    learner.save(tmp_path / "m")
    assert answers(load_learner(tmp_path / "m"), stream).equal(answers(learner, stream))
    there = load_learner(tmp_path / "m", device="cpu")
    assert there.device.type == "cpu"
    assert agreement(answers(there, stream), answers(learner, stream)) > 0.95


@pytest.mark.parametrize("name", methods.names())
def test_learns_classes_that_come_back(name, on_gpu):
    stream = GraphStream(on_gpu, by="blurred", tasks=3)
    options = {"memory": SubgraphMemory()} if name == "er-gnn" else {}
    reports = list(learn_stream(make(name, "cuda", epochs=16, **options), stream))
    rows = reports[-1].rows["global"]["plain"]
    assert sum(rows) / len(rows) > 0.6


@pytest.mark.parametrize("name", methods.names())
def test_a_restored_learner_goes_on_as_one_that_was_never_stopped(name, on_gpu):
    stream = GraphStream(on_gpu)
    whole = fitted(make(name, "cuda"), stream, [0, 1])
    saved = {key: value.clone() for key, value in whole.state().items()}
    assert {value.device.type for value in saved.values()} == {"cpu"}
    resumed = make(name, "cuda", seed=99)  # another seed: everything must come from the state
    resumed.restore(saved, stream.label_space(1))
    for learner in (whole, resumed):
        fitted(learner, stream, [2])
    assert whole.state().keys() == resumed.state().keys()
    for key, value in whole.state().items():  # sums on a GPU may end in other last bits
        one, size = value.double(), max([1.0, *value.double().abs().flatten().tolist()])
        assert one.allclose(resumed.state()[key].double(), rtol=1e-3, atol=1e-3 * size), key
    assert agreement(answers(whole, stream), answers(resumed, stream)) > 0.97


@pytest.mark.parametrize("backbone", backbones.names())
@pytest.mark.parametrize("name", ["finetune", "ssm"])
def test_every_backbone(name, backbone, small_graph, on_gpu):
    if backbone == "random-features" and name != "finetune":
        pytest.skip("nothing of it is trained by replay")
    if backbone == "tuned":
        pytest.skip("joint alone chooses among networks")
    if backbone == "linear":
        pytest.skip(
            "all its weights start elsewhere on a GPU, and few epochs do not make up for it"
        )
    found = []
    for graph, device in ((small_graph, "cpu"), (on_gpu, "cuda")):
        stream = GraphStream(graph, setting="task-il")
        learner = make(name, device, backbone=backbones.make(backbone, dropout=0.0))
        found.append(answers(fitted(learner, stream, range(len(stream))), stream))
    assert agreement(*found) > 0.85


@pytest.mark.parametrize("name", samplers.names())
def test_every_sampler_of_embeddings_stores_what_it_stores_on_a_cpu(name, small_graph, on_gpu):
    kept = []
    for graph, device in ((small_graph, "cpu"), (on_gpu, "cuda")):
        stream = GraphStream(graph)
        memory = EmbeddingMemory(budget=10, sampler=samplers.make(name))
        fitted(make("tem", device, epochs=1, memory=memory), stream, range(len(stream)))
        kept.append(memory)
    ours, theirs = (set(memory.nodes_.tolist()) for memory in kept)
    assert len(ours) == len(theirs) == 60
    assert kept[1].labels_.bincount().tolist() == [10] * 6
    if not samplers.resolve(name).mergeable and name not in DRAWN:
        # Where some are equally good, the last bits of embeddings decide among them.
        assert len(ours & theirs) >= 45


@pytest.mark.parametrize("name", samplers.names())
def test_every_sampler_of_nodes_stores_and_restores(name, on_gpu):
    stream = GraphStream(on_gpu)
    memory = SubgraphMemory(budget=10, sampler=samplers.make(name))
    learner = fitted(make("ssm", "cuda", epochs=1, memory=memory), stream, [0, 1])
    assert len(memory) == 40
    again = make("ssm", "cuda", memory=SubgraphMemory(budget=10, sampler=samplers.make(name)))
    again.restore(learner.state(), stream.label_space(1))
    fitted(again, stream, [2])
    assert answers(again, stream).shape == answers(learner, stream).shape


def test_curvature_chooses_the_same_neighbours(small_graph, on_gpu):
    graphs = []
    for graph, device in ((small_graph, "cpu"), (on_gpu, "cuda")):
        learner = make("sem", device, epochs=1)
        fitted(learner, GraphStream(graph), [0])
        graphs.append(learner.memory.graph_)
    assert graphs[0].indices.equal(graphs[1].indices)
    assert graphs[1].device.type == "cpu"


@pytest.mark.parametrize("refresh", ["embeddings", "corrected"])
@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("name", REFRESHED)
def test_a_growing_graph_is_refreshed_wherever_embeddings_are(
    name, fits, refresh, small_graph, little_room
):
    if name == "auto" and refresh == "corrected":
        pytest.skip("auto counts anew, it does not correct")
    found = []
    for device in ("cpu", "cuda"):
        if device == "cuda" and not fits:
            little_room()
        stream = GraphStream(small_graph, edges="all", device=device)
        learner = make(name, device, refresh=refresh)
        found.append(answers(fitted(learner, stream, range(len(stream))), stream))
    assert agreement(*found) > 0.9


@pytest.mark.parametrize("labelled", [None, 0.1], ids=["many labels", "few, and guesses"])
def test_landmarks_and_guesses_match_a_cpu(labelled, small_graph):
    found = []
    for device in ("cpu", "cuda"):
        stream = GraphStream(small_graph, edges="all", device=device, labelled=labelled)
        learner = methods.make(
            "auto",
            refresh="embeddings",
            trainer=Trainer(device=device),
            generator=seeded(0, "learner"),
        )
        found.append(answers(fitted(learner, stream, range(len(stream))), stream).cpu())
    assert agreement(*found) > 0.9


ROOM = 60_000_000  # bytes: the features of the graph alone take 41 MB


@pytest.fixture
def small_gpu() -> Iterator[None]:
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(ROOM / torch.cuda.mem_get_info()[1])
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("small_gpu")
@pytest.mark.parametrize("method", ["tem", "finetune"])
def test_a_run_that_does_not_fit_goes_on_with_less(tmp_path, method):
    config = RunConfig.of(
        {
            "dataset": {"name": "synthetic", "nodes": 20_000, "classes": 4, "features": 512},
            "method": method,
            "training": {"epochs": 2},
            "device": "cuda",
        }
    )
    ending = learn(job_of(config, tmp_path / "run"), 0)
    assert ending.failure is None
    assert any("the GPU has too little memory" in note for note in ending.notes)
    assert (tmp_path / "run" / "result.json").exists()
