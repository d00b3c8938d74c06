"""The parts of a live learner: how they are made, saved, restored, and shown to readers."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from evergraph.closed_form.own_features import NO_WORDS, WordColumns
from evergraph.core.component import Resolver
from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    check_choice,
    check_integer,
    check_number,
)
from evergraph.core.resources import exactly_threads
from evergraph.core.seeding import seeded
from evergraph.core.targets import target_of
from evergraph.graphs import UNLABELLED
from evergraph.online.arrays import PackedState, Packing, check_values, joined, must, part_named
from evergraph.online.graph.growing_graph import GrowingGraph
from evergraph.online.graph.live_embeddings import NODES_PER_BLOCK, LiveEmbeddings, check_whole_rows
from evergraph.online.heads import FusedHead, TargetHead, heads
from evergraph.online.intake import Bounds, PartsOfLearner
from evergraph.online.knowledge import Knowledge
from evergraph.online.view import LearnerView, PublishedState, Status
from evergraph.online.view.published import LentArray
from evergraph.topology import TopologyEncoder, topologies
from evergraph.topology.cached import Scaling
from evergraph.training.learner import part_of

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)

# Chosen on validation nodes of WordNet, see docs/decisions/0041.
TOLERANCE = 0.05
PATIENCE = 8
FIXED = ("dtype",)  # parameters of a topology that a live learner cannot choose
PLAIN = ("scaling", "undirected", "seed", "tolerance", "patience")  # parameters, as JSON has them


class LearnerState(LearnerView):
    """All that a learner consists of; ``OnlineLearner`` changes it by deltas."""

    def __init__(
        self,
        *,
        topology: TopologyEncoder | str | Mapping[str, Any] | None = None,
        head: FusedHead | str | Mapping[str, Any] | None = None,
        scaling: Scaling = "unit",
        undirected: bool = True,
        seed: int = 0,
        targets: str | None = None,
        tolerance: float = TOLERANCE,
        patience: int = PATIENCE,
    ) -> None:
        check_choice("scaling", scaling, ("unit", "none"))
        check_integer("seed", seed, least=0)
        check_number("tolerance", tolerance, least=0.0)
        check_integer("patience", patience, least=1)
        if head is None:
            kind = targets or "class"
            head = FusedHead() if target_of(kind).is_class else TargetHead(kind=kind)
        self.head = heads.part(head)
        if targets is not None and targets != self.head.kind:
            raise ConfigurationError(
                f"targets must be {self.head.kind!r} with head {self.head.name!r}, not {targets!r}"
                ": head 'targets' learns 'labels' and 'numbers'"
            )
        default = self.head.default_topology
        self.topology = default() if topology is None else topologies.part(topology)
        check_whole_rows(self.topology)
        self.scaling: Scaling = scaling
        self.undirected, self.seed = undirected, seed
        self.tolerance, self.patience = tolerance, patience
        self.bounds: Bounds | None = Bounds(classes=None)
        self.threads: int | None = None
        self._seq = self._solved = 0
        super().__init__(self.head.target)
        self.published = self._written()

    @property
    def knowledge(self) -> Knowledge | None:
        """Graph, embeddings and head; None before the first node."""
        return self._knowledge

    @property
    def held(self) -> PartsOfLearner:
        """The parts on which the memory of a delta depends."""
        copied = 0 if self._copied is None else self._copied.row_bytes
        return PartsOfLearner(self.head, self.topology, self.scaling, self._knowledge, copied)

    @property
    def parameters(self) -> dict[str, Any]:
        """Its parameters, as JSON can hold them."""
        return {
            "topology": _described(topologies, self.topology),
            "head": _described(heads, self.head),
        } | {name: getattr(self, name) for name in PLAIN}

    def _begun(
        self, num_features: int, *, related: bool, words: WordColumns = NO_WORDS
    ) -> Knowledge:
        """Create what depends on the width of features, and on whether there are relations."""
        graph = GrowingGraph(num_features=num_features, undirected=self.undirected)
        embeddings = LiveEmbeddings(self.topology, graph, scaling=self.scaling)
        generator = seeded(self.seed, "head")
        options: dict[str, Any] = {"related": related, "words": words}
        self.head.begin(embeddings.dims, topology=self.topology, generator=generator, **options)
        parameters = {name: getattr(self, name) for name in ("seed", "tolerance", "patience")}
        return Knowledge(graph, embeddings, self.head, **options, **parameters)

    def _written(self) -> PublishedState:
        """Return what readers see after the last delta."""
        known, record, target = self._knowledge, self._record, self.head.target
        status = Status(
            seq=self._seq,
            nodes=len(self._ids),
            edges=0 if known is None else known.graph.num_edges // (1 + self.undirected),
            classes=0 if known is None else len(known.names),
            labelled=0 if known is None else int(known.labels.counts_.sum()),
            features=0 if known is None else known.word_columns.of or known.graph.num_features,
            memory=0 if known is None else known.nbytes,
            predicted=record.prequential.asked,
            accuracy=record.prequential.accuracy,
            metric=target.running,
            relations=self.head.takes_relations and (known is None or known.relations is not None),
            solved=self._solved,
            undirected=self.undirected,
            better_than_chance=self.head.engine.better_than_chance,
        )
        if known is None:
            return PublishedState(status, (), torch.zeros(0, dtype=torch.bool), None, 0, target)
        has_nodes = known.has_nodes
        scored = (known.names, has_nodes, self.head.scorer(has_nodes), known.embeddings.dims)
        return PublishedState(status, *scored, target, record.watch.alarms())

    def frozen(self) -> LearnerView:
        """Return a view that any thread may read while this one learns; see ``LearnerView``."""
        with self.writing:
            if not self._shared:
                self._copy_vectors()
                self._shared = True
            return self

    def _copy_vectors(self) -> None:
        """Give readers a copy of all vectors, if there are any."""
        known = self._knowledge
        if known is None:
            return
        copied = LentArray(known.dims)
        copied.extend(known.graph.num_nodes)
        for nodes in torch.arange(known.graph.num_nodes).split(NODES_PER_BLOCK):
            copied.change(nodes, known.of(nodes))
        with self._lock:
            self._copied = copied

    def copy(self) -> Self:
        """Return a learner of its own that continues from here with the same bits."""
        with self.writing:
            copied = type(self)(**self.parameters)
            copied.__setstate__(self.__getstate__())
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __getstate__(self) -> dict[str, Any]:
        with self.writing:
            arrays = {name: value.clone() for name, value in self.state().items()}
            kept = {name: getattr(self, name) for name in ("parameters", "bounds", "threads")}
            return kept | {"arrays": arrays, "about": self.about()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if not vars(self):  # unpickled
            self.__init__(**state["parameters"])  # type: ignore[misc]
        self.bounds, self.threads = state["bounds"], state["threads"]
        self.restore(state["arrays"], state["about"])

    def state(self) -> dict[str, Tensor]:
        """Return the arrays of the state, by name; some are views in use, so copy what you keep."""
        with self.writing:
            arrays = {} if self._knowledge is None else self._knowledge.state()
            return arrays | joined({name: part.state() for name, part in self._beside().items()})

    def _beside(self) -> dict[str, Any]:
        """Return what is saved beside the knowledge."""
        record = self._record
        return {"ids": self._ids, "prequential": record.prequential, "alarms": record.watch}

    def packed(self) -> PackedState | None:
        """Return the state without forgotten nodes and unused classes, None if there are neither.

        A learner restored from it gives the same predictions.
        """
        with self.writing:
            if (known := self._knowledge) is None:
                return None
            nodes = Packing.of(known.graph.alive)
            kept_classes = known.has_nodes
            if not self.head.drops_classes:
                kept_classes = torch.ones_like(kept_classes)
            classes = Packing.of(kept_classes)
            if self._ids.next == len(self._ids) and bool(kept_classes.all()):
                return None
            beside = {name: part.packed(nodes, classes) for name, part in self._beside().items()}
            arrays = known.packed(nodes, classes) | joined(beside)
            about = self.about() | {"base": self._ids.base + self._ids.next}
            return PackedState(arrays, about, places=self._ids.next - len(self._ids))

    def about(self) -> dict[str, Any]:
        """Return the rest of the state, as JSON can hold it."""
        known = self._knowledge
        return {
            "seq": self._seq,
            "solved": self._solved,
            "base": self._ids.base,
            "num_features": 0 if known is None else known.graph.num_features,
            "related": known is not None and known.relations is not None,
            "words": [] if known is None else [*known.word_columns],
        }

    def _empty_knowledge(
        self, state: Mapping[str, Tensor], about: Mapping[str, Any]
    ) -> Knowledge | None:
        """Return what is to be restored, still empty; raise ``DataError`` if that cannot be."""
        for name in ("seq", "num_features", "solved", "base"):
            check_integer(name, about[name], least=0)
        width, words = about["num_features"], WordColumns.read(about["words"])
        features = state.get("graph.features")
        if width != (0 if features is None or features.dim() < 2 else features.shape[1]):
            raise DataError(f"features are not {width} wide")
        return self._begun(width, related=about["related"], words=words) if width else None

    def restore(self, state: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Restore what ``state`` and ``about`` returned; ``DataError`` if they do not fit."""
        with self.changing(), exactly_threads(self.threads):
            before = about.get("threads")
            if before is not None and self.threads is not None and before != self.threads:
                logger.warning(
                    "the snapshot was learned with %d threads and this process uses %d: the last "
                    "digits of results may differ from those with %d threads",
                    before,
                    self.threads,
                    before,
                )
            known = self._empty_knowledge(state, about)
            self._seq, self._solved = about["seq"], about["solved"]
            if known is not None:
                self._knowledge = known
                known.restore(state)

            def read() -> PublishedState:
                for name, part in self._beside().items():
                    with part_named(name):
                        part.restore(part_of(state, f"{name}."))
                self._check_whole(state)
                return self._written()

            self.publish(read)
            self._ids.base = about["base"]
            if self._shared:
                self._copy_vectors()

    def _check_whole(self, state: Mapping[str, Tensor]) -> None:
        """Raise unless a state was restored to the last array, and names fit its nodes."""
        for name in sorted(state.keys() - self.state().keys()):
            raise DataError(f"array {name!r} is not one of this learner")
        known = self._knowledge
        nodes, classes = (0, 0) if known is None else (known.graph.num_nodes, len(known.classes))
        must("ids.names", self._ids.next == nodes, f"be {nodes:,}, not {self._ids.next:,}")
        check_values("prequential.pairs", state["prequential.pairs"], UNLABELLED, below=classes)


def _described(resolver: Resolver[Any], component: Any) -> dict[str, Any]:
    """Return a component's name and its parameters, as JSON can hold them."""
    names = [name for name in resolver.parameters(component.name) if name not in FIXED]
    values = {"name": component.name} | {name: getattr(component, name) for name in names}
    described: dict[str, Any] = json.loads(json.dumps(values))
    return described
