"""The live learner on a growing graph, changed by deltas only."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.core.device import exactly_threads
from evergraph.core.errors import ConfigurationError, DataError
from evergraph.core.label_space import Kind
from evergraph.core.seeding import seeded
from evergraph.core.sizes import parse_size
from evergraph.graphs import UNLABELLED
from evergraph.online.array_storage import ArrayStorage
from evergraph.online.checking import CheckedDelta, check_delta
from evergraph.online.delta import Delta, DeltaResult, Label, NodeId, name_of
from evergraph.online.graph.corrections import DRIFT
from evergraph.online.graph.growing_graph import GrowingGraph, no_nodes
from evergraph.online.graph.live_embeddings import LiveEmbeddings, check_whole_rows
from evergraph.online.heads import FusedHead, OnlineHead, TargetHead, heads
from evergraph.online.identifiers import IdTable
from evergraph.online.intake import Batch, Bounds, Held, merged, owners
from evergraph.online.knowledge import Knowledge, Settled
from evergraph.online.monitor import METRICS, PredictionRecord, Tallies
from evergraph.online.pieces import (
    PackedState,
    Packing,
    Pieces,
    described,
    made,
    packed,
    pieces_of,
    whole,
)
from evergraph.online.upsert import EdgesBeyond, News, edges_beyond, known_edges, only_new
from evergraph.online.view import LearnerView, Page, Status
from evergraph.topology import TopologyEncoder, topologies
from evergraph.topology.cached import Scaling
from evergraph.training.learner import part_of

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

# Chosen on validation nodes of WordNet, see docs/decisions/0041.
TOLERANCE = 0.05
PATIENCE = 8


class OnlineLearner(LearnerView):
    """A graph with embeddings, labels and a head, changed by deltas only.

    The same deltas in the same order give the same bits, however often it is read, saved and
    restored in between. One thread writes (``apply``); others read through ``frozen()``, see
    ``LearnerView``.

    Attributes:
        bounds: limits of new deltas, see ``check``; by default memory only. ``apply_batch`` does
            not check them.
        threads: of torch, for learning, as the last digits of sums depend on it. By default as many
            as torch uses; a folder sets it, so that a recovery gives the same bits.

    Args:
        topology: the f_topo; by default the head's choice.
        head: learns from embeddings; by default ``FusedHead``, the live form of ``auto``. It
            belongs to this learner from then on.
        scaling: of embeddings, ``unit`` or ``none``.
        undirected: whether edges are undirected.
        seed: of the head's random choices.
        targets: of the nodes: one ``class``, several ``labels``, or ``numbers``; by default that of
            the head.
        tolerance: a labelled node is counted again when (a part of) its vector has moved by more
            than this share of its length since it was last counted; 0 for any move.
        patience: number of deltas, or batches, after which scores are solved at the latest, see
            ``Solving``; 1 solves after every delta. ``status().solved`` is the last one included.
        memory_limit: of the process, in bytes or as text such as ``2GB``; features, embeddings and
            other wide arrays then lie in files, see ``ArrayStorage``. No bit depends on it.
        scratch: folder for these files; by default the system's temporary folder.

    >>> learner = OnlineLearner(head=FusedHead(width=64))
    >>> learner.apply(Delta(nodes=("a", "b", "c"), features=torch.eye(3), labels=("x", "y", None),
    ...                     edges=(("a", "c"),)))
    DeltaResult(seq=1, new_nodes=3, classes=2, recomputed=3, predicted=0, right=0, counted=2)
    >>> learner.predict(["c"])
    ['x']
    """

    def __init__(
        self,
        *,
        topology: TopologyEncoder | None = None,
        head: OnlineHead | None = None,
        scaling: Scaling = "unit",
        undirected: bool = True,
        seed: int = 0,
        targets: Kind | None = None,
        tolerance: float = TOLERANCE,
        patience: int = PATIENCE,
        memory_limit: int | str | None = None,
        scratch: Path | str | None = None,
    ) -> None:
        check_choice("scaling", scaling, ("unit", "none"))
        check_integer("seed", seed, least=0)
        check_number("tolerance", tolerance, least=0.0)
        check_integer("patience", patience, least=1)
        if head is None:
            head = FusedHead() if targets in (None, "class") else TargetHead(kind=targets)
        self.head = head
        if targets is not None and targets != self.head.kind:
            raise ConfigurationError(
                f"targets must be {self.head.kind!r} with head {self.head.name!r}, not {targets!r}"
                ": head 'targets' learns 'labels' and 'numbers'"
            )
        self.topology = topology if topology is not None else self.head.default_topology()
        check_whole_rows(self.topology)
        self.scaling: Scaling = scaling
        self.undirected = undirected
        self.seed = seed
        self.tolerance = tolerance
        self.patience = patience
        self.bounds: Bounds | None = Bounds(classes=None)
        self.threads: int | None = None
        self._seq = 0
        self._solved = 0
        self._ids = IdTable()
        self._record = PredictionRecord(self.head.kind)
        self._knowledge: Knowledge | None = None  # comes with the first node
        self._sharing = False
        super().__init__(self._ids, self._record.prequential, self._written())
        self._storage: ArrayStorage | None = None
        if memory_limit is not None:
            self.keep_within(memory_limit, scratch)

    @property
    def knowledge(self) -> Knowledge | None:
        """Graph, embeddings and head; None before the first node."""
        return self._knowledge

    @property
    def held(self) -> Held:
        """The parts on which the memory of a delta depends."""
        copied = sum(array.row_bytes for array in self.arrays() if not array.is_in_file)
        made = (self.head, self.topology, self.scaling)
        return Held(*made, self._knowledge, self._storage, copied)

    def keep_within(self, memory_limit: int | str, scratch: Path | str | None = None) -> None:
        """Keep wide arrays in files from now on; arguments as in the constructor."""
        limit, folder = parse_size(memory_limit), None if scratch is None else Path(scratch)
        with self._writing:
            self._storage = ArrayStorage(limit=limit, folder=folder)
            self._map()

    def _map(self) -> None:
        """Move wide arrays to files, if memory is limited."""
        if self._storage is not None and self._knowledge is not None:
            self._knowledge.map_to(self._storage)
            self.map_to(self._storage)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> OnlineLearner:
        """Return an empty learner with these ``parameters``."""
        given = dict(parameters)
        topology, head = made(topologies, given.pop("topology")), made(heads, given.pop("head"))
        return cls(topology=topology, head=head, **given)

    @property
    def parameters(self) -> dict[str, Any]:
        """Its parameters, as JSON can hold them."""
        return {
            "topology": described(topologies, self.topology),
            "head": described(heads, self.head),
            "scaling": self.scaling,
            "undirected": self.undirected,
            "seed": self.seed,
            "tolerance": self.tolerance,
            "patience": self.patience,
        }

    def check(self, delta: Delta, ahead: Mapping[NodeId, int] | None = None) -> CheckedDelta:
        """Return a validated delta, which ``apply`` does not check again; raise if it is invalid.

        Deltas that exceed ``bounds`` are rejected here and nowhere else: those of a journal are
        applied whatever their size.

        ahead: new nodes of earlier deltas in the same batch, with their positions.
        """
        checked = self._fitting(delta, ahead, fresh=True)
        if self.bounds is not None:
            self.bounds.check(checked, self.held)
        return checked

    def _fitting(
        self, delta: Delta, ahead: Mapping[NodeId, int] | None = None, *, fresh: bool = False
    ) -> CheckedDelta:
        """Return a validated delta, without checking ``bounds``."""
        known = self._knowledge
        if self._storage is not None and known is not None:
            # Disk space is claimed now, so that applying the delta cannot run out of it.
            self._storage.check(len(self._ids))
            for array in (*known.arrays(), *self.arrays()):
                array.reserve(len(ahead or ()) + len(delta.nodes))
        related = len(delta.relations) or len(delta.types)
        if related and not self.head.takes_relations:
            raise DataError(
                f"a delta must not have relations or types with head {self.head.name!r}, which "
                "does not use them: leave them out (head 'auto', which learns classes, uses them)"
            )
        if related and known is not None and known.relations is None:
            raise DataError(
                "a delta must not have relations or types if the learner began without them: its "
                "first nodes must have them"
            )
        return check_delta(
            delta,
            self._ids,
            num_features=None if known is None else known.graph.num_features,
            graph=None if known is None else known.graph,
            kind=self.head.kind,
            undirected=self.undirected,
            ahead=ahead or {},
            fresh=fresh,
        )

    def only_new(self, delta: Delta) -> tuple[Delta, News]:
        """Return a delta without what is known already, and the counts of what is new."""
        with self._writing:
            return only_new(
                delta, self._ids, self._knowledge, kind=self.head.kind, undirected=self.undirected
            )

    def every_id(self) -> list[NodeId]:
        """Return the ids of all nodes, in order of arrival."""
        with self._writing:
            return list(self._ids)

    def knows_nodes(self, ids: Sequence[NodeId]) -> list[bool]:
        """Return which ids are known."""
        with self._writing:
            return [node in self._ids for node in ids]

    def knows_edges(self, sources: pyarrow.Array, targets: pyarrow.Array) -> NDArray[np.bool_]:
        """Return which edges are known, for many at once; ids are strings or int64.  [edges]"""
        with self._writing:
            return known_edges(self._ids, self._knowledge, sources, targets)

    def edges_beyond(
        self, edges: tuple[pyarrow.Array, pyarrow.Array], without: Sequence[NodeId]
    ) -> EdgesBeyond:
        """Return known edges that are not among the given ones; see ``upsert.edges_beyond``."""
        with self._writing:
            known, both = (self._ids, self._knowledge), self.undirected
            return edges_beyond(*known, edges, without, both_ways=both)

    def apply(self, delta: Delta) -> DeltaResult:
        """Apply a delta: graph and features first, then labels, then nodes to forget.

        It is validated first (``check``), unless ``check`` returned it.
        """
        with self._writing:
            fitting = delta if isinstance(delta, CheckedDelta) else self.check(delta)
            return self.apply_batch([fitting])[0]

    def apply_batch(self, deltas: Sequence[Delta]) -> list[DeltaResult]:
        """Apply deltas as one change; see ``Batch`` for those that can be joined.

        Each result has its own ``seq``, nodes and predictions; classes and recomputed embeddings
        are those of the whole batch. All labels are predicted before any of them is learned. Deltas
        are validated first, unless ``check`` returned them.
        """
        with self._writing, exactly_threads(self.threads):
            batch = Batch()
            for delta in deltas:
                if not isinstance(delta, CheckedDelta):
                    delta = self._fitting(delta, batch.ahead)
                    if not batch.takes(delta):
                        raise DataError(
                            f"{delta!r} cannot be applied together with those before it"
                        )
                batch.add(delta)
            parts, whole = batch.deltas, merged(batch.deltas)
            assert whole.first == self._ids.next, "nodes were added after the delta was checked"
            if len(whole.nodes) and self._knowledge is None:
                related = bool(len(whole.relations) or len(whole.types))
                self._knowledge = self._begun(whole.features.shape[1], related=related)
                self._map()
                self._share()
            if self._knowledge is None:  # empty deltas, before the first node
                nothing = no_nodes()
                return self._done(parts, None, None, nothing, nothing)
            return self._apply(whole, parts, self._knowledge)

    def _begun(self, num_features: int, *, related: bool) -> Knowledge:
        """Create what depends on the width of features, and on whether there are relations."""
        graph = GrowingGraph(num_features=num_features, undirected=self.undirected)
        live = LiveEmbeddings(
            self.topology,
            num_features=num_features,
            scaling=self.scaling,
            # Unscaled rows may have columns of very different size, and an error relative to the
            # largest value could swamp a small one: no drift is allowed.
            drift=DRIFT if self.scaling == "unit" else 0.0,
        )
        made = {"topology": self.topology, "scaling": self.scaling, "related": related}
        self.head.begin(live.dims, generator=seeded(self.seed, "head"), **made)
        limits = {"tolerance": self.tolerance, "patience": self.patience}
        return Knowledge(graph, live, self.head, seed=self.seed, related=related, **limits)

    def _apply(
        self, delta: CheckedDelta, parts: Sequence[CheckedDelta], knowledge: Knowledge
    ) -> list[DeltaResult]:
        """Apply a delta; parts: the deltas that it was merged from."""
        if any(map(len, (delta.nodes, delta.edges, delta.removed_edges, delta.updated))):
            knowledge.extend(delta.nodes)
            knowledge.change(
                delta.features,
                delta.ends,
                weights=delta.weighed,
                cut=delta.cut if len(delta.removed_edges) else None,
                renewed=(delta.renewed, delta.updated_features) if len(delta.updated) else None,
                relations=delta.relations,
                types=delta.types,
            )
        nodes, names = _named(delta, self.head.kind)
        labels = knowledge.number(names)
        # Only nodes without a label count as predictions: one that changes was learned from.
        unknown = knowledge.labels.of(nodes) == UNLABELLED
        guesses = knowledge.guess(nodes[unknown], labels[unknown])
        knowledge.learn(nodes, labels)
        if len(delta.forgotten):
            knowledge.forget(delta.gone)
        settled = knowledge.settle(every=self._sharing)  # readers have a copy of all vectors
        return self._done(parts, settled, guesses, labels[unknown], owners(parts)[unknown])

    def _done(
        self,
        parts: Sequence[CheckedDelta],
        settled: Settled | None,
        guesses: Tensor | Tallies | None,
        labels: Tensor,
        owners: Tensor,
    ) -> list[DeltaResult]:
        """Turn the page, and return the results; owners: index of the part of each label."""
        found: list[tuple[int, int]] = []  # predictions, and correct ones
        first = self._seq + 1
        self._seq += len(parts)
        if settled is None or not settled.behind:
            self._solved = self._seq

        def write() -> Page:
            known = 0 if self._knowledge is None else len(self._knowledge.names)
            for place, delta in enumerate(parts):
                self._ids.add(delta.nodes)
                self._ids.remove(delta.forgotten)
                about = {"seq": first + place, "nodes": len(self._ids), "classes": known}
                found.append(self._record.count(guesses, labels, owners == place, **about))
            return self._written()

        self.turn(write, () if settled is None else [(settled.nodes, settled.vectors)])
        return [
            DeltaResult(
                seq=seq,
                new_nodes=len(delta.nodes),
                classes=self.status().classes,
                recomputed=0 if settled is None else settled.recomputed,
                predicted=predicted,
                right=right,
                counted=0 if settled is None else settled.counted,
            )
            for seq, (delta, (predicted, right)) in enumerate(zip(parts, found, strict=True), first)
        ]

    def _written(self) -> Page:
        """Return the page that readers see after the last delta."""
        known, record, kind = self._knowledge, self._record, self.head.kind
        graph = None if known is None else known.graph
        status = Status(
            seq=self._seq,
            nodes=len(self._ids),
            edges=0 if graph is None else graph.num_edges,
            classes=0 if known is None else len(known.names),
            labelled=0 if known is None else int(known.labels.counts_.sum()),
            features=0 if graph is None else graph.num_features,
            memory=0 if known is None else known.nbytes,
            predicted=record.prequential.asked,
            accuracy=record.prequential.accuracy,
            exact_forgetting=self.head.exact_forgetting,
            metric=METRICS[kind],
            relations=self.head.takes_relations and (known is None or known.relations is not None),
            solved=self._solved,
            undirected=self.undirected,
        )
        if known is None:
            return Page(status, (), torch.zeros(0, dtype=torch.bool), None, None, 0, kind)
        publish = known.published
        if self._sharing:  # frozen now, for readers that look things up while they change
            published = publish()
            publish = lambda: published  # noqa: E731
        scored = (known.names, known.met, self.head.scorer(), known.of, known.embeddings.dims)
        return Page(status, *scored, kind, record.watch.alarms(), publish)

    def frozen(self) -> LearnerView:
        """Return a view that any thread may read while this one learns; see ``LearnerView``."""
        with self._writing:
            if not self._sharing:
                self._sharing = True
                self._share()
                self.turn(self._written, ())
                self._shared = True
            return self

    def _share(self) -> None:
        """Give the view a copy of all embeddings, if it is shared and there are any."""
        if self._sharing and self._knowledge is not None:
            known = self._knowledge
            self.share(known.of, known.graph.num_nodes, self._storage)

    def unused_names(self) -> dict[Label, Label]:
        """Return the names of classes that no node has any more, and their replacements.

        The replacement for class 3 is ``dropped-3``.
        """
        with self._writing:
            if self._knowledge is None:
                return {}
            if self.head.kind != "class":
                raise ConfigurationError(
                    f"names can be dropped for a learner of classes only, not of {self.head.kind}"
                )
            return unused_names(self._knowledge.names, self._knowledge.met)

    def rename(self, names: Mapping[Label, Label], *, seq: int) -> None:
        """Rename classes that have no nodes, which counts as delta ``seq``.

        Numbers of classes, and so all that was learned, stay. It is not a delta: a replay that must
        give the same bits has to start from a snapshot taken afterwards.
        """
        with self._writing:
            assert self._knowledge is not None, "there are names"
            self._knowledge.rename(names)
            self._solved = seq if self._solved == self._seq else self._solved
            self._seq = seq
            self.turn(self._written, ())

    def state(self) -> dict[str, Tensor]:
        """Return the arrays of the state, by name; some are views in use, so copy what you keep."""
        return whole(self.pieces())

    def pieces(self) -> dict[str, Tensor | Pieces]:
        """Return the same for writing at once, in pieces where it must be converted."""
        with self._writing:
            kept = {} if self._knowledge is None else self._knowledge.pieces()
            for prefix, part in ({"ids": self._ids} | self._record.parts).items():
                kept |= {f"{prefix}.{name}": value for name, value in pieces_of(part).items()}
            return kept

    def packed(self) -> PackedState | None:
        """Return the state without the positions of forgotten nodes, None if there are none.

        A learner restored from it gives the same predictions.
        """
        with self._writing:
            if self._knowledge is None or self._ids.next == len(self._ids):
                return None
            packing = Packing.of(self._knowledge.graph.alive)
            found = packed(self.pieces(), packing)
            head = self.head.packed(self.head.state(), packing)
            found |= {f"head.{name}": value for name, value in head.items()}
            about = self.about() | {"base": self._ids.base + self._ids.next}
            return PackedState(found, about, places=self._ids.next - len(self._ids))

    def about(self) -> dict[str, Any]:
        """Return the rest of the state, as JSON can hold it."""
        kept = {"seq": self._seq, "solved": self._solved}
        if self._ids.base:
            kept["base"] = self._ids.base
        kept["num_features"] = self.status().features
        related = self._knowledge is not None and self._knowledge.relations is not None
        return kept | {"related": True} if related else kept

    def restore(self, state: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Restore what ``state`` and ``about`` returned."""
        with self._writing, exactly_threads(self.threads):
            before = about.get("threads")
            if before is not None and self.threads is not None and before != self.threads:
                logger.warning(
                    "the snapshot was learned with %d threads and this process uses %d: the last "
                    "digits of results may differ from those with %d threads",
                    before, self.threads, before,
                )  # fmt: skip
            self._seq = int(about["seq"])
            self._solved = int(about.get("solved", self._seq))
            if about["num_features"]:
                width, related = int(about["num_features"]), bool(about.get("related"))
                self._knowledge = self._begun(width, related=related)
                self._map()
                self._knowledge.restore(state)

            def read() -> Page:
                self._ids.restore(part_of(state, "ids."))
                for name, part in self._record.parts.items():
                    part.restore(part_of(state, f"{name}."))
                return self._written()

            self.turn(read, ())
            self._ids.base = int(about.get("base", 0))
            self._share()


def unused_names(names: Sequence[Label], met: Tensor) -> dict[Label, Label]:
    """Return names of classes without nodes, with replacements that hold only their number.

    names: of all classes, in order; met: which of them have nodes, bool [classes]

    >>> unused_names(["x", "y"], torch.tensor([True, False]))
    {'y': 'dropped-1'}
    """
    found: dict[Label, Label] = {}
    for number in (~met).nonzero().flatten().tolist():
        other = f"dropped-{number}"
        while other in names and other != names[number]:
            other += "'"
        if other != names[number]:
            found[names[number]] = other
    return found


def _named(delta: CheckedDelta, kind: Kind) -> tuple[Tensor, list[Label]]:
    """Return the nodes that a delta labels, and the names of their classes.  int64 [n]

    Several labels, or a number, are encoded as one name, see ``name_of``.
    """
    new = [(place, label) for place, label in enumerate(delta.labels) if label is not None]
    places = torch.tensor([place for place, _ in new], dtype=torch.int64)
    nodes = torch.cat([delta.first + places, delta.labelled])
    return nodes, [name_of(kind, label) for _, label in (*new, *delta.late)]
