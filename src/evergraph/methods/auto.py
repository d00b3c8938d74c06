"""Several learners side by side, of which validation nodes choose one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.core.errors import ConfigurationError
from evergraph.core.label_space import LabelSpace
from evergraph.graphs import Graph
from evergraph.memory import MemoryUsage
from evergraph.methods.analytic import Analytic
from evergraph.methods.backbone_learner import BackboneLearner
from evergraph.methods.base import methods
from evergraph.methods.probes import Probes
from evergraph.methods.refresh import Refresh
from evergraph.methods.tem import TEM
from evergraph.methods.whole_task import WholeTaskLearner
from evergraph.nn import PDGNN, Backbone, RandomFeatures
from evergraph.streams import Task
from evergraph.topology import SGC, EmbeddingCache, MixHop, TopologyEncoder
from evergraph.training import Trainer
from evergraph.training.learner import part_of

logger = logging.getLogger(__name__)

# How an ego-subnetwork may be seen: how far, and whether hops are kept apart.
VIEWS: dict[str, TopologyEncoder] = {
    "2": SGC(hops=2),
    "4": SGC(hops=4),
    "6": SGC(hops=6),
    "2+4": MixHop(hops=4, keep=(2, 4), unit=True),
    "0+2": MixHop(hops=2, keep=(0, 2), unit=True),
}
CANDIDATES = (
    "analytic:2", "analytic:4", "analytic:6", "analytic:2+4", "analytic:0+2",
    "tem:2", "tem:4", "tem:0+2",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Candidate:
    """One of the learners, and how it sees a node.

    Attributes:
        name: method and view.
        view: a name in ``VIEWS``.
        learner: the learner itself.
    """

    name: str
    view: str
    learner: BackboneLearner


@methods.register
class Auto(WholeTaskLearner):
    """Learns with several methods and topologies at once; what validates best so far answers.

    After every task each candidate is asked about some validation nodes of all tasks so far, kept
    for that as embeddings, and the best is chosen: from what was seen by then, with no look at
    what comes. Candidates that trail the best by more than ``lead`` are let go for good, with all
    they keep, so that after some tasks one or two are left. Until the first validation node comes
    the first candidate answers, and none is let go.

    Args:
        candidates: ``method:view`` names, methods ``analytic`` and ``tem``; views ``2``, ``4`` and
            ``6`` hops of SGC, ``2+4`` and ``0+2`` hops kept apart.
        width: of the random features of ``analytic``.
        budget: of the memory of ``tem``, embeddings a class.
        probes: how many validation nodes of each class are kept.
        lead: how far a candidate may trail and stay, in accuracy.
        patience: after how many tasks the first may be let go.
        refresh: of all candidates, see ``analytic``.
        backbone: f_out and scaling of ``tem``'s candidates; its topology is not used.
        trainer, generator: see ``BackboneLearner``.
    """

    name = "auto"
    default_backbone = "pdgnn"
    backbone: PDGNN

    def __init__(
        self,
        *,
        candidates: Sequence[str] = CANDIDATES,
        width: int = 8192,
        budget: int = 1000,
        probes: int = 100,
        lead: float = 0.02,
        patience: int = 3,
        refresh: Refresh = "none",
        backbone: Backbone | None = None,
        trainer: Trainer | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(backbone=backbone, trainer=trainer, generator=generator)
        check_integer("probes", probes, least=1)
        check_integer("patience", patience, least=1)
        check_number("lead", lead, least=0.0)
        if isinstance(candidates, str) or not isinstance(candidates, Sequence):
            raise ConfigurationError(
                f"candidates must be a list of 'method:view' names, not {candidates!r}"
            )
        self.candidates = tuple(map(str, candidates))
        self.width = width
        self.budget = budget
        self.probes = probes
        self.lead = lead
        self.patience = patience
        self.refresh: Refresh = refresh
        if not self.candidates or len(set(self.candidates)) < len(self.candidates):
            raise ConfigurationError(
                f"candidates must name at least one, each once, not {list(self.candidates)}"
            )
        views = {self._parsed(name)[1] for name in self.candidates}
        self._caches = {v: self._cache(v) for v in VIEWS if v in views}
        self.probes_ = {view: Probes(probes) for view in self._caches}
        self.alive_ = [self._make(name) for name in self.candidates]
        self.chosen_ = self.alive_[0]

    @classmethod
    def check_backbone(cls, backbone: Backbone) -> None:
        """Raise unless the model is one on embeddings."""
        if type(backbone) is not PDGNN:
            raise ConfigurationError(
                "auto chooses among models on embeddings: use backbone 'pdgnn', not "
                f"{backbone.name!r}"
            )

    def _parsed(self, name: str) -> tuple[str, str]:
        method, _, view = name.partition(":")
        check_choice("candidates: method", method, ("analytic", "tem"))
        check_choice("candidates: view", view, tuple(VIEWS))
        return method, view

    def _cache(self, view: str) -> EmbeddingCache:
        assert isinstance(self.backbone, PDGNN)
        return EmbeddingCache(
            VIEWS[view],
            scaling=self.backbone.scaling,
            device=self.device,
            storage=self.backbone.storage,
            resources=self.resources,
        )

    def _make(self, name: str) -> Candidate:
        method, view = self._parsed(name)
        seed = int(torch.randint(2**62, (), generator=self.generator))
        common: dict[str, Any] = {
            "trainer": self._trainer(),
            "generator": torch.Generator().manual_seed(seed),
            "refresh": self.refresh,
        }
        topology, head = VIEWS[view], self.backbone
        learner: BackboneLearner
        if method == "analytic":
            features = RandomFeatures(
                topology=topology, width=self.width, centred=True, scaling=head.scaling
            )
            learner = Analytic(backbone=features, **common)
        else:
            model = PDGNN(
                topology=topology,
                hidden=head.hidden,
                bias=head.bias,
                dropout=head.dropout,
                scaling=head.scaling,
            )
            learner = TEM(backbone=model, memory=TEM.make_memory(budget=self.budget), **common)
        assert isinstance(learner.backbone, PDGNN)
        learner.backbone.embeddings = self._caches[view]  # each view is computed once for all
        return Candidate(name, view, learner)

    def _trainer(self) -> Trainer:
        ours = self.trainer
        names = ("epochs", "lr", "weight_decay", "batch_size", "momentum", "schedule", "on_epoch")
        settings = {name: getattr(ours, name) for name in names}
        return Trainer(**settings, device=ours.device.type, resources=ours.resources)

    def fit_task(self, task: Task) -> None:
        """Let every candidate learn the task, then choose."""
        self.label_space_ = task.label_space
        for candidate in self.alive_:
            candidate.learner.fit_task(task)
        for view in {candidate.view for candidate in self.alive_}:
            embeddings = self._caches[view](task.graph)
            self.probes_[view].keep(task, embeddings, refresh=self.refresh == "embeddings")
        self._choose(task)

    def _choose(self, task: Task) -> None:
        if not len(self.probes_[self.chosen_.view].labels_):
            name = self.chosen_.name
            logger.info("task %d: %s goes on, with no validation nodes to tell", task.index, name)
            return
        marks = {c.name: self._mark(c) for c in self.alive_}
        best = max(marks.values())
        self.chosen_ = next(c for c in self.alive_ if marks[c.name] == best)
        if task.index + 1 >= self.patience:
            self.alive_ = [c for c in self.alive_ if marks[c.name] >= best - self.lead]
        shown = ", ".join(f"{name} {100 * mark:.1f}" for name, mark in marks.items())
        logger.info("task %d: %s is chosen of %s", task.index, self.chosen_.name, shown)

    @torch.no_grad()
    def _mark(self, candidate: Candidate) -> float:
        assert self.label_space_ is not None
        probes, backbone = self.probes_[candidate.view], candidate.learner.backbone
        backbone.eval()
        scores = backbone(probes.embeddings_.to(self.device))
        backbone.train()
        return probes.accuracy(scores, self.label_space_)

    def logits(self, graph: Graph, nodes: Tensor) -> Tensor:
        """Return the scores of the candidate that is chosen.  -> [nodes, classes]"""
        return self.chosen_.learner.logits(graph, nodes)

    def novelty(self, graph: Graph, nodes: Tensor, *, logits: Tensor | None = None) -> Tensor:
        """Return what the candidate that is chosen says."""
        return self.chosen_.learner.novelty(graph, nodes, logits=logits)

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the parts of every candidate that is left."""
        for candidate in self.alive_:
            for part, module in candidate.learner.modules():
                yield f"{candidate.name}.{part}", module

    @property
    def usage(self) -> MemoryUsage:
        """What all candidates that are left keep, and the validation nodes they are told apart by.

        Models of candidates other than the one that answers count as well.
        """
        parts = [candidate.learner.usage for candidate in self.alive_]
        total = {f.name: sum(getattr(p, f.name) for p in parts) for f in fields(MemoryUsage)}
        others = [c for c in self.alive_ if c is not self.chosen_]
        spare = sum(p.numel() for c in others for p in c.learner.named_parameters().values())
        probes = [self.probes_[view] for view in {c.view for c in self.alive_}]
        total["models"] += spare
        total["samples"] += sum(p.embeddings_.numel() for p in probes)
        total["bytes"] += 4 * spare + sum(p.nbytes for p in probes)
        return MemoryUsage(**total)

    @property
    def recomputed(self) -> tuple[int, int] | None:
        """What the candidate that is chosen says."""
        return self.chosen_.learner.recomputed

    @property
    def embed_seconds(self) -> float:
        """Seconds spent computing embeddings so far."""
        return sum(cache.seconds for cache in self._caches.values())

    def state(self) -> dict[str, Tensor]:
        """Return all that later tasks depend on, as named CPU tensors."""
        state = {"generator": self.generator.get_state()}
        state["chosen"] = torch.tensor(self.candidates.index(self.chosen_.name))
        for candidate in self.alive_:
            for name, value in candidate.learner.state().items():
                state[f"{candidate.name}/{name}"] = value
        for view in {candidate.view for candidate in self.alive_}:
            for name, value in self.probes_[view].state().items():
                state[f"probes:{view}/{name}"] = value.cpu()
        return state

    def restore(self, state: dict[str, Tensor], label_space: LabelSpace) -> None:
        """Take back what ``state`` returned, at the point where it was taken."""
        self.label_space_ = label_space
        self.generator.set_state(state["generator"])
        left = {key.split("/", 1)[0] for key in state}
        self.alive_ = [c for c in self.alive_ if c.name in left]
        for candidate in self.alive_:
            candidate.learner.restore(part_of(state, f"{candidate.name}/"), label_space)
        for view, probes in self.probes_.items():
            if f"probes:{view}" in left:
                probes.restore(part_of(state, f"probes:{view}/"))
        chosen = self.candidates[int(state["chosen"])]
        self.chosen_ = next(c for c in self.alive_ if c.name == chosen)
