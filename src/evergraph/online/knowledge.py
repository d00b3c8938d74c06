"""A growing graph with its embeddings, labels and head, updated together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evergraph.closed_form.own_features import NO_WORDS, WordColumns
from evergraph.closed_form.views import WORDS
from evergraph.core.mapped import in_memory
from evergraph.core.targets import Tallies
from evergraph.graphs import UNLABELLED
from evergraph.online.arrays import (
    GrowingArray,
    KeptArrays,
    Packing,
    VectorChange,
    check_of_classes,
    check_values,
    joined,
    must,
    part_named,
)
from evergraph.online.delta import Label, NodeId
from evergraph.online.graph.growing_graph import GraphChange, GrowingGraph, no_nodes
from evergraph.online.graph.live_embeddings import NODES_PER_BLOCK, LiveEmbeddings
from evergraph.online.graph.live_relations import LiveRelations
from evergraph.online.graph.live_vectors import LiveCodes, LiveShape, LiveVectors, LiveWords
from evergraph.online.heads import FusedHead
from evergraph.online.heads.scorer import row_blocks
from evergraph.online.heads.staleness import RoundingLoss, Solving
from evergraph.online.identifiers import TargetTable
from evergraph.online.learned_nodes import Counted, HeldBack, NodeLabels
from evergraph.training.learner import part_of


class HeadUpdate(NamedTuple):
    """The effect of a delta on vectors and head."""

    changes: list[VectorChange]  # of all nodes, if they were requested
    recomputed: int  # number of embeddings computed
    counted: int  # number of labelled nodes that the head learned, or learned again
    behind: bool  # whether scores do not include all of them yet


class LabelChanges(NamedTuple):
    """Nodes that a change concerns, with the classes that the head has learned and the new ones."""

    nodes: Tensor  # int64 [n], ascending
    old: Tensor  # int64 [n]
    new: Tensor  # int64 [n]

    @property
    def stay(self) -> Tensor:
        """Which of them keep their class, and may have moved.  bool [n]"""
        return (self.old == self.new) & (self.old != UNLABELLED)

    @property
    def labelled(self) -> Tensor:
        """Which of them have a class, or had one.  bool [n]"""
        return (self.old != UNLABELLED) | (self.new != UNLABELLED)

    def where(self, mask: Tensor) -> LabelChanges:
        """Return those that a mask selects.  bool [n]"""
        return LabelChanges(self.nodes[mask], self.old[mask], self.new[mask])


class Knowledge(LiveVectors):
    """A growing graph whose embeddings, class codes and head are updated with it.

    Within a delta a node may move more than once, be labelled and forgotten; the head is updated
    once, by ``update_head``, with the node's vector when it was last counted and its current one.
    Nodes that have hardly moved are skipped (see ``Counted``), unless something is forgotten: then
    all around it are updated. Scores are solved at once or a little later (see ``Solving``).

    related: whether vectors have relations of edges and types of nodes; words: of features;
    tolerance, patience: see ``Counted`` and ``Solving``.
    """

    def __init__(
        self,
        graph: GrowingGraph,
        embeddings: LiveEmbeddings,
        head: FusedHead,
        *,
        seed: int = 0,
        related: bool = False,
        words: WordColumns = NO_WORDS,
        tolerance: float = 0.0,
        patience: int = 1,
    ) -> None:
        self.head = head
        self.word_columns = words if head.word_width else NO_WORDS  # other heads ignore them
        relations = LiveRelations(num_features=graph.num_features) if related else None
        width = head.code_width
        super().__init__(
            graph,
            embeddings,
            relations=relations,
            shape=LiveShape(graph, measured=head.measured) if head.shaped else None,
            words=LiveWords(head.word_width) if head.word_width else None,
            codes=LiveCodes(graph, width=width, seed=seed, relations=relations) if width else None,
        )
        self.classes = TargetTable()
        self.labels = NodeLabels()
        self.held = HeldBack()
        parts = head.engine.map.sizes
        exact = [number for number, part in enumerate(parts) if part == WORDS]  # too few to drift
        self.counted = Counted([*parts.values()], tolerance=tolerance, exact=exact)
        self.solving = Solving(patience=patience)
        self.rounding_loss = RoundingLoss()
        self._known_states = self._class_states()

    def _begin_change(self) -> None:
        super()._begin_change()
        self._relabelled: list[tuple[Tensor, Tensor]] = []  # nodes, and their classes before
        self._urgent = False
        # Whether counted vectors must lose every trace of what was removed, and whether landmarks
        # must be chosen anew.
        self._exactly = self._anew = False

    @property
    def nbytes(self) -> int:
        """Bytes of graph, embeddings, codes, labels, counted vectors and head."""
        entries = self.graph.entry_bytes
        if self.relations is not None:
            entries += self.relations.entry_bytes
        return sum(array.nbytes for array in self.arrays()) + entries + self.head.nbytes

    def bytes_for(self, nodes: int) -> int:
        """Return the memory that so many more nodes take in all arrays."""
        widths = [array.row_bytes for array in self.arrays()]
        # All arrays double their capacity at about the same time, and the widest of them then
        # exists twice for a moment.
        doubles = self.labels.kept["numbers"].moves(nodes)
        return nodes * sum(widths) + (self.graph.num_nodes * max(widths) if doubles else 0)

    def extend(self, ids: Sequence[NodeId]) -> None:
        """Make room for new nodes, right before ``change`` adds them; ids: the user's."""
        self.labels.extend(len(ids))
        self.held.extend(ids)

    def number(self, labels: Sequence[Any]) -> Tensor:
        """Return the numbers of targets; a new one gets the next number.  -> int64 [labels]"""
        for label in labels:
            if label not in self.classes:
                self.classes.add([label])
                self.head.register([label])
                if self.codes is not None:
                    self.codes.name([label])
        self.head.grow(len(self.classes))
        return self.classes.positions(labels)

    def guess(self, nodes: Tensor, answers: Tensor) -> Tallies | None:
        """Return how predictions from what was learned so far compare; None if nothing was.

        Computed in blocks of nodes, as there may be as many classes as nodes.

        answers: the true classes, int64 [n]
        """
        target, has_nodes = self.head.target, self.has_nodes
        if not len(nodes) or not bool(has_nodes.any()):
            return None
        scorer, vectors = self.head.scorer(has_nodes), self.of(nodes)
        parts = []
        for rows in row_blocks(len(nodes), len(self.names)):
            predicted = torch.from_numpy(target.decide(scorer(vectors[rows].numpy())))
            right = answers[rows] if target.is_class else self.head.values(answers[rows])
            parts.append(target.tally(predicted, right))
        return Tallies.joined(parts)

    @property
    def names(self) -> tuple[Label, ...]:
        """Names of classes or labels; empty for numbers."""
        return tuple(self.classes if self.head.target.is_class else self.head.names)

    def names_class(self, name: Label) -> bool:
        """Whether a class or label has this name."""
        return name in (self.classes if self.head.target.is_class else self.head.names)

    @property
    def has_nodes(self) -> Tensor:
        """Which classes have nodes.  bool [classes]"""
        return self._counts > 0

    @property
    def _counts(self) -> Tensor:
        """How many nodes each class has.  int64 [classes]"""
        counts = self.labels.counts_
        return torch.nn.functional.pad(counts, (0, len(self.classes) - len(counts)))

    def learn(self, nodes: Tensor, labels: Tensor) -> None:
        """Label nodes; a node with another label is first forgotten with that one."""
        changed = self.labels.of(nodes) != labels
        nodes, labels = nodes[changed], labels[changed]
        if len(nodes):
            self._relabel(nodes, labels)
            self._recode(GraphChange(), *self._relabelled_now(nodes))

    def _relabel(self, nodes: Tensor, labels: Tensor) -> None:
        before = self.labels.of(nodes)
        self._urgent |= bool((before != UNLABELLED).any())  # a label was corrected or removed
        self.labels.put(nodes, labels)
        self._touched.append(nodes)
        self._relabelled.append((nodes, before))

    def forget(self, nodes: Tensor) -> None:
        """Remove nodes from what was learned, and from the graph."""
        self._exactly = True
        self._touched.append(self.reached_by(nodes))  # even if no vector moves
        self._relabel(nodes, torch.full_like(nodes, UNLABELLED))
        self.held.wipe(nodes)
        if self.relations is not None:
            self.relations.forget(nodes)
        self._follow(self.graph.remove(nodes), *self._relabelled_now(nodes))

    def _relabelled_now(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return nodes, each once, and their classes.  int64 [n] each"""
        nodes = nodes.unique()
        return nodes, self.labels.of(nodes)

    def refit(self) -> None:
        """Compute and count everything as it is now, on landmarks that are chosen anew."""
        everything = self.graph.alive.nonzero().flatten()
        self._follow(GraphChange(touched=everything), no_nodes(), no_nodes())
        self._touched.append(everything)
        self._exactly = self._anew = True

    def update_head(self, *, every: bool = False) -> HeadUpdate:
        """Update the head to all changes since the last call.  every: return changed vectors"""
        changes = self._with_labels()
        self._erase_traces(changes)
        counted = self._count(changes.where(changes.labelled))
        self._solve_if_due(counted)
        vectors = self.vector_changes() if every else []
        update = HeadUpdate(vectors, self._recomputed, counted, self.solving.behind)
        self._begin_change()
        return update

    def _with_labels(self) -> LabelChanges:
        """Return what changed since ``update_head``.

        If something is forgotten, also the nodes whose counted vectors may hold a trace of it.
        """
        if self._exactly:
            self._touched.append(self.counted.unmarked())
        nodes = self._all_touched()
        new = self.labels.of(nodes)
        old = new.clone()
        for relabelled, before in reversed(self._relabelled):
            old[torch.searchsorted(nodes, relabelled)] = before
        return LabelChanges(nodes, old, new)

    def _erase_traces(self, changes: LabelChanges) -> None:
        """Erase landmarks that may hold a trace of what was removed.

        The copy of a landmark may hold a trace of neighbours that its node has lost. As long as its
        node stays and is marked, it is kept until something is forgotten; otherwise it is erased
        now.
        """
        nodes, stay = changes.nodes, changes.stay
        if self._cut and not self._exactly:
            self.counted.mark(nodes[stay])
        marked = self.counted.marked(nodes)
        traced = ~(marked & stay) if self._cut else marked & ~stay
        self._urgent |= self.head.erase_landmarks(nodes if self._exactly else nodes[traced])

    def _count(self, changes: LabelChanges) -> int:
        """Let the head forget, move and learn; return how many nodes it has counted (again)."""
        nodes, old, new = changes
        removed = (old != new) & (old != UNLABELLED)
        added = (old != new) & (new != UNLABELLED)
        staying = changes.where(changes.stay)
        whole = None if self._exactly else self._touched
        moved = self.counted.moved(staying.nodes, self.pieces, whole=whole, exactly=self._exactly)
        moved_nodes, moved_labels = staying.nodes[moved.places], staying.old[moved.places]
        vectors = self.of(nodes[added])
        counts, changed = self.labels.counts_, len(nodes) > 0
        num_landmarks = self.head.landmarks_wanted(counts, changed=changed, refit=self._anew)
        if not num_landmarks:
            self.head.forget(self.counted.of(nodes[removed]), old[removed])
            self.head.move(moved.before, moved.after, moved_labels)
            self.head.learn(vectors, new[added])
        self.counted.drop(nodes[removed])
        self.counted.put(moved_nodes, moved.after)
        self.counted.put(nodes[added], vectors)
        if num_landmarks:
            chosen = self.held.first(self.labels.every, num_landmarks)
            self.head.use_landmarks(chosen, self.counted.of(chosen), counts=counts)
            self._urgent = True
            return self._count_all()
        counted = len(moved.places) + int(added.sum())
        if self.rounding_loss.too_high(self.head.sizes()) or self._anew:
            # Sums have lost digits. This depends only on what was counted, so that a replay of the
            # same deltas recomputes them at the same points.
            counted += self._count_all()
        return counted

    def _count_all(self) -> int:
        """Let the head recompute its sums from all learned nodes; return their number."""
        labelled = (self.labels.every != UNLABELLED).nonzero().flatten()
        self.head.engine.clear()
        for nodes in labelled.split(NODES_PER_BLOCK):
            self.head.learn(self.counted.of(nodes), self.labels.of(nodes))
        self.rounding_loss.reset(self.head.sizes())
        return len(labelled)

    def _solve_if_due(self, counted: int) -> None:
        """Solve for the scores now, or leave that to a later change (see ``Solving``)."""
        states, labelled = self._class_states(), int(self.labels.counts_.sum())
        urgent = self._urgent or self._exactly or not states.equal(self._known_states)
        self._known_states = states
        if not self.solving.due(counted, known=labelled, urgent=urgent):
            return
        head, labels = self.head, self.labels.every
        least, balanced = head.least_left_out, head.balanced
        nodes = self.held.first(labels, head.most_left_out, least=least, balanced=balanced)
        head.leave_out(nodes, self.counted.of(nodes), labels[nodes])
        head.solve()

    def _class_states(self) -> Tensor:
        """Return what every class has: no nodes, too few for one to be left out, or enough.

        For other targets whether there are any nodes, as often as there are names.
        """
        if self.head.target.is_class:
            return self._counts.clamp_max(self.head.least_left_out)
        return (self._counts.sum() > 0).expand(max(len(self.names), 1))

    def arrays(self) -> Iterator[GrowingArray]:
        """Yield all arrays that are as long as the graph."""
        parts = (self.graph, *self._vectors, self.counted, self.held, self.labels)
        for part in parts:
            if part is not None:
                yield from part.arrays()

    def _parts(self) -> dict[str, Any]:
        """Return what ``state`` holds, by the names there."""
        parts = {
            "graph": self.graph,
            "embeddings": self.embeddings,
            "relations": self.relations,
            "shape": self.shape,
            "words": self.words,
            "codes": self.codes,
            "held": self.held,
            "counted": self.counted,
            "solving": self.solving,
            "wear": self.rounding_loss,
            "head": self.head,
            "labels": self.labels,
            "classes": self.classes,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def state(self) -> dict[str, Tensor]:
        """Return everything by name; some are views in use."""
        return joined({name: part.state() for name, part in self._parts().items()})

    def packed(self, nodes: Packing, classes: Packing) -> dict[str, Tensor]:
        """Return the same for the nodes and classes that are left, with their new numbers."""
        parts = self._parts()
        all_classes = parts.pop("classes")
        living = TargetTable()
        living.add([all_classes.at(number) for number in classes.living.tolist()])
        states = {name: part.packed(nodes, classes) for name, part in parts.items()}
        return joined(states | {"classes": living.state()})

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        for name, part in self._parts().items():
            part_state = part_of(state, f"{name}.")
            if part is self.head:  # which keeps the tensors it is given
                part_state = {key: in_memory(value) for key, value in part_state.items()}
            with part_named(name):
                part.restore(part_state)
                if isinstance(part, KeptArrays):
                    part.check_lengths(self.graph.num_nodes)
        self._check_fits(part_of(state, "head."))
        self.head.register(list(self.classes))
        self._restore_codes(list(self.classes), self.labels.every)
        self._known_states = self._class_states()
        self.head.scores(torch.zeros(1, self.dims))  # raises unless it fits

    def _check_fits(self, head: dict[str, Tensor]) -> None:
        """Raise unless parts that were restored have numbers of each other's classes and nodes."""
        labels, known = self.labels.every, len(self.classes)
        check_values("labels.numbers", labels, UNLABELLED, below=known)
        counted = len(self.labels.counts_)
        must("labels.counts", counted <= known, f"have at most {known:,} rows, not {counted:,}")
        with part_named("counted"):
            self.counted.check_counted(labels != UNLABELLED)
        places = self.head.landmarks.nodes
        check_values("head.landmark_nodes", places, -1, below=self.graph.num_nodes)
        if self.head.drops_classes:
            with part_named("head"):
                check_of_classes(head, known)
