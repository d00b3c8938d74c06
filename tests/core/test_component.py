"""Parts by their parameters, how they show themselves, and parameters that break a rule."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import evergraph as eg
from evergraph.core.component import Part, Resolver, alike
from evergraph.core.errors import (
    ConfigurationError,
    UnknownNameError,
    check_choice,
    check_integer,
    check_number,
)
from evergraph.core.seeding import seeded
from evergraph.memory import EmbeddingMemory
from evergraph.memory.samplers import samplers
from evergraph.methods import TEM, methods
from evergraph.nn import PDGNN, backbones
from evergraph.topology import topologies
from evergraph.training import Learner

# Whose default size would only make the test slow.
SMALL: dict[str, dict[str, Any]] = {"view-features": {"width": 16}}
RESOLVERS: tuple[Resolver[Any], ...] = (methods, samplers, topologies, backbones)
REGISTERED = [(resolver, name) for resolver in RESOLVERS for name in resolver.names()]


def made(resolver: Resolver[Any], name: str) -> Part:
    options = dict(SMALL.get(name, {}))
    if resolver is methods:
        options["generator"] = seeded(0, "learner")
    part = resolver.make(name, **options)
    return part


OTHERS = [
    eg.ContinualNodeClassifier(),
    eg.ContinualNodeClassifier(
        topology=eg.topologies.PPR(alpha=0.2), head_options={"epochs": 3}, seed=4
    ),
    eg.training.Trainer(),
    eg.training.Trainer(epochs=2, batch_size=None, device="cpu", schedule="cosine"),
    eg.memory.EmbeddingMemory(),
    eg.memory.EmbeddingMemory(budget=20, sampler=eg.samplers.UniformSampler()),
    eg.memory.SubgraphMemory(budget=0.5, sampler=eg.samplers.CoverageSampler()),
    eg.backbones.SimpleConvolution(hidden=0),
    eg.backbones.SimpleConvolution(hidden=8, hops=3),
    eg.backbones.PDGNN(topology=eg.topologies.PPR(alpha=0.2), hidden=()),
    eg.backbones.GCN(layers=3),
    eg.topologies.MixHop(hops=4, kept_hops=(2, 4), unit=True),
    eg.backbones.RandomFeatures(width=32, topology=eg.topologies.Reservoir(dims=4)),
    eg.RunConfig.of({"method": "ewc", "topology": {"name": "ppr", "alpha": 0.2}, "seeds": [1, 2]}),
    eg.RunConfig.of({"stream": {"setting": "task-il"}, "memory": {"sampler": "uniform"}}),
]


def test_its_parameters_and_its_line_make_such_a_part_again():
    known = {cls.__name__: cls for each in RESOLVERS for cls in map(each.resolve, each.names())}
    known |= {type(other).__name__: type(other) for other in OTHERS}
    registered = [made(*one) for one in REGISTERED]
    for part in (*registered, *OTHERS):
        parameters, again = part.get_params(), type(part)(**part.get_params())
        assert again.get_params().keys() == parameters.keys(), part
        for name, value in parameters.items():
            assert again.get_params()[name] is value or alike(again.get_params()[name], value), name
        assert alike(part, again), part
        if not isinstance(part, Learner):  # whose generator no line can hold
            assert alike(eval(repr(part), known), part)
    for (resolver, name), part in zip(REGISTERED, registered, strict=True):
        given = ", ".join(f"{key}={value}" for key, value in SMALL.get(name, {}).items())
        assert repr(part) == f"{resolver.resolve(name).__name__}({given})"


def test_the_line_says_what_differs():
    generator = torch.Generator()
    tem = eg.methods.TEM(memory=eg.memory.EmbeddingMemory(budget=20), generator=generator)
    assert repr(tem) == str(tem) == "TEM(memory=EmbeddingMemory(budget=20))"
    ewc = eg.methods.EWC(backbone=eg.backbones.PDGNN(), strength=3.0, generator=generator)
    assert repr(ewc) == "EWC(strength=3.0, backbone=PDGNN())"
    own = eg.methods.EWC(trainer=eg.training.Trainer(epochs=1), generator=generator)
    assert repr(own) == "EWC(trainer=Trainer(epochs=1))"
    config = eg.RunConfig.of({"method": "ewc", "stream": {"setting": "task-il"}})
    assert repr(config) == "RunConfig(method='ewc', stream={'setting': 'task-il'})"


def test_parameters_of_parts_inside_are_told_where_asked_for():
    tem = eg.methods.TEM(memory=eg.memory.EmbeddingMemory(budget=20), generator=torch.Generator())
    deep = tem.get_params(deep=True)
    assert (deep["memory__budget"], deep["memory__sampler__reach"]) == (20, "auto")
    assert (deep["backbone__topology__hops"], deep["trainer__epochs"]) == (2, 30)
    assert "memory__budget" not in tem.get_params()
    assert tem.get_params()["memory"] is tem.memory
    config = eg.RunConfig.of({"topology": {"name": "ppr", "hops": 3}})
    assert config.get_params(deep=True)["topology__hops"] == 3
    assert config.get_params(deep=True)["stream__setting"] == "class-il"


def test_a_part_that_hides_a_parameter_can_still_be_looked_at():
    class Lost(Part):
        def __init__(self, *, size=3):
            pass

    assert repr(Lost()) == "Lost()"
    with pytest.raises(ConfigurationError, match="Lost must store its parameter 'size'"):
        Lost().get_params()


def test_a_notebook_shows_a_table_of_all_parameters_with_nothing_to_run_in_it():
    text = eg.topologies.PPR(alpha=0.2)._repr_html_()
    assert text.startswith("<table><caption><b>PPR</b> Smooths by a lazy walk")
    assert "<tr><th>hops</th><td>2</td></tr>" in text
    assert "<tr><th>alpha</th><td>0.2</td></tr>" in text
    config = eg.RunConfig.of({"dataset": "<script>"})
    assert "&lt;script&gt;" in config._repr_html_()
    assert "<script>" not in config._repr_html_()


def test_graphs_streams_and_tasks_say_their_sizes(small_graph):
    stream = eg.GraphStream(small_graph, setting="task-il")
    assert repr(stream) == (
        "GraphStream(tasks=3, classes=6, nodes=360, edges='within', setting='task-il')"
    )
    assert "<th>tasks</th><td>3</td>" in stream._repr_html_()
    task = stream.open(1)
    sizes = f"nodes={len(task.own)}, train={len(task.train)}, validation={len(task.validation)}"
    assert repr(task) == f"Task(index=1, {sizes}, classes=[2, 3])"
    assert "<th>nodes</th><td>360</td>" in small_graph._repr_html_()
    assert repr(small_graph).startswith("Graph(nodes=360, edges=")


def test_integers_from_the_least_on_pass_and_nothing_else():
    for value in (1, 2, 10**12, np.int64(1)):
        check_integer("hops", value, least=1)
    for value in (0, -3, 1.0, 1.5, "1", None, True, math.nan):
        with pytest.raises(ConfigurationError) as caught:
            check_integer("hops", value, least=1)
        assert str(caught.value) == f"hops must be an integer of at least 1, not {value!r}"


def test_numbers_within_the_bounds_pass_and_nothing_else():
    for value in (0, 0.0, 0.5, 1, 1.0, np.float32(0.25), Fraction(1, 3)):
        check_number("alpha", value, least=0.0, most=1.0)
    for value in (-1e-9, 1.0000001, math.nan, math.inf, "0.5", None, True, 1j):
        with pytest.raises(ConfigurationError) as caught:
            check_number("alpha", value, least=0.0, most=1.0)
        assert str(caught.value) == f"alpha must be a number from 0.0 to 1.0, not {value!r}"


def test_a_number_without_upper_bound_may_be_large_but_not_infinite():
    check_number("lr", 1e300, least=0.0)
    for value in (math.inf, -1.0):
        with pytest.raises(
            ConfigurationError, match=f"lr must be a number of at least 0.0, not {value}"
        ):
            check_number("lr", value, least=0.0)


def test_a_choice_passes_and_anything_else_is_told_the_choices():
    check_choice("edges", "all", ("within", "all"))
    for value in ("al", None, ["all"]):
        with pytest.raises(UnknownNameError) as caught:
            check_choice("edges", value, ("within", "all"))
        assert f"unknown edges {value!r}" in str(caught.value)
        assert str(caught.value).endswith("choose one of all, within")


def test_parts_of_methods_are_taken_by_name_and_as_tables():
    drawn = torch.Generator()
    by_name = TEM(backbone="pdgnn", memory=EmbeddingMemory(sampler="uniform"), generator=drawn)
    assert isinstance(by_name.backbone, PDGNN)
    assert by_name.memory.sampler.name == "uniform"
    table = TEM(
        backbone={"name": "pdgnn", "topology": {"name": "s2gc", "hops": 3}}, generator=drawn
    )
    assert (table.backbone.topology.name, table.backbone.topology.hops) == ("s2gc", 3)
    with pytest.raises(ConfigurationError, match="backbone must be its name, a table of name and"):
        TEM(backbone=3, generator=drawn)
