"""The live learner on a growing graph, changed by deltas only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evergraph.core.errors import DataError
from evergraph.core.resources import exactly_threads
from evergraph.core.targets import Tallies
from evergraph.graphs import UNLABELLED
from evergraph.online.checking import CheckedDelta, check_delta
from evergraph.online.delta import Delta, DeltaResult, EdgeColumns, NodeId
from evergraph.online.graph.growing_graph import no_nodes
from evergraph.online.intake import Batch, merged, owners
from evergraph.online.knowledge import HeadUpdate
from evergraph.online.learner_state import LearnerState
from evergraph.online.sparse_rows import fitting
from evergraph.online.upsert import News, edges_beyond, only_new
from evergraph.online.view import Answer, PublishedState

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Self


class OnlineLearner(LearnerState):
    """A graph with embeddings, labels and a head, changed by deltas only.

    The same deltas in the same order give the same bits, however often it is read, saved and
    restored in between. Of several threads one at a time writes (``apply``), and others read what
    is whole: they wait for a delta, or not with ``frozen()``, see ``LearnerView``.

    Attributes:
        bounds: limits of new deltas, see ``check``; by default memory only. ``apply_batch`` does
            not check them.
        threads: of torch, for learning, as the last digits of sums depend on it. By default as many
            as torch uses; a folder sets it, so that a recovery gives the same bits.

    Args:
        topology, scaling, undirected, seed, tolerance, patience: as of ``ContinualNodeClassifier``.
        head: likewise; by default ``FusedHead``, the live form of ``auto``. An object belongs to
            this learner from then on.
        targets: of the nodes, by default those of the head.

    >>> from evergraph.online.heads import FusedHead
    >>> learner = OnlineLearner(head=FusedHead(width=64))
    >>> learner.apply(Delta(nodes=("a", "b", "c"), features=torch.eye(3), labels=("x", "y", None),
    ...                     edges=(("a", "c"),)))
    DeltaResult(seq=1, new_nodes=3, classes=2, recomputed=3, predicted=0, right=0, counted=2)
    >>> learner.predict(["c"])
    ['x']
    """

    def check(self, delta: Delta, ahead: Mapping[NodeId, int] | None = None) -> CheckedDelta:
        """Return a validated delta, which ``apply`` does not check again; raise if it is invalid.

        Deltas beyond ``bounds`` are rejected here only: those of a journal are applied whatever
        their size. ahead: new nodes of earlier deltas in the same batch, with their positions.
        """
        with self.writing:
            checked = self._fitting(delta, ahead, fresh=True)
            if self.bounds is not None:
                self.bounds.check(checked, self.held)
            return checked

    def _fitting(
        self, delta: Delta, ahead: Mapping[NodeId, int] | None = None, *, fresh: bool = False
    ) -> CheckedDelta:
        """Return a validated delta, without checking ``bounds``."""
        known = self._knowledge
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
            self.fitting(delta),
            self._ids,
            num_features=None if known is None else known.num_features,
            graph=None if known is None else known.graph,
            target=self.head.target,
            undirected=self.undirected,
            ahead=ahead or {},
            fresh=fresh,
        )

    def fitting(self, delta: Delta) -> Delta:
        """Return a delta with its features as the learner keeps them: dense, and as wide."""
        reads_words = self.head.reads_own(self.topology)
        with self.writing:
            return fitting(delta, self._knowledge, reads_words=reads_words)

    def only_new(self, delta: Delta) -> tuple[Delta, News]:
        """Return a delta without what is known already, and the counts of what is new."""
        with self.writing:
            return only_new(
                self.fitting(delta),
                self._ids,
                self._knowledge,
                target=self.head.target,
                undirected=self.undirected,
            )

    @property
    def next_number(self) -> int:
        """How many nodes have ever been added: a number for the next that has no id."""
        return self._ids.base + self._ids.next

    def holds(self, ids: Sequence[NodeId], features: Tensor) -> bool:
        """Return whether all of these are known nodes with these features, in a graph with edges.

        Without edges a known node is answered like a new one.
        """
        with self.writing:
            known = self._knowledge
            if known is None or not known.graph.num_edges or not all(self.knows_nodes(ids)):
                return False
            return known.features_of(self._ids.positions(ids)).equal(features)

    def every_id(self) -> list[NodeId]:
        """Return the ids of all nodes, in order of arrival."""
        with self.writing:
            return list(self._ids)

    def knows_nodes(self, ids: Sequence[NodeId]) -> list[bool]:
        """Return which ids are known."""
        with self.writing:
            return [node in self._ids for node in ids]

    def edges_beyond(
        self, edges: tuple[pyarrow.Array, pyarrow.Array], without: Sequence[NodeId]
    ) -> tuple[EdgeColumns, int]:
        """Return known edges that are not among the given ones; see ``upsert.edges_beyond``."""
        with self.writing:
            known = (self._ids, self._knowledge)
            return edges_beyond(*known, edges, without, both_ways=self.undirected)

    def apply(self, delta: Delta) -> DeltaResult:
        """Apply a delta, checked first: graph and features, then labels, then nodes to forget."""
        with self.writing:
            fitting = delta if isinstance(delta, CheckedDelta) else self.check(delta)
            return self.apply_batch([fitting])[0]

    def apply_batch(self, deltas: Sequence[Delta]) -> list[DeltaResult]:
        """Apply deltas as one change; see ``Batch`` for those that can be joined.

        All labels are predicted before any of them is learned. Classes and recomputed embeddings
        are those of the whole batch. Deltas are validated first, unless ``check`` returned them.
        """
        with self.changing(), exactly_threads(self.threads):
            checked = [delta for delta in deltas if isinstance(delta, CheckedDelta)]
            parts = checked if len(checked) == len(deltas) else self._batch(deltas)
            batch = merged(parts)
            assert batch.first == self._ids.next, "nodes were added after the delta was checked"
            if len(batch.nodes) and self._knowledge is None:
                related = bool(len(batch.relations) or len(batch.types))
                width, words = batch.features.shape[1], batch.words
                self._knowledge = self._begun(width - words.width, related=related, words=words)
                if self._shared:
                    self._copy_vectors()
            update, guesses, delta_of_guess = self._applied(batch, parts)
            results: list[DeltaResult] = []
            first = self._seq + 1
            self._seq += len(parts)
            if not update.behind:
                self._solved = self._seq

            def write() -> PublishedState:
                classes = 0 if self._knowledge is None else len(self._knowledge.names)
                for index, delta in enumerate(parts):
                    self._ids.add(delta.nodes)
                    self._ids.remove(delta.forgotten)
                    predicted, right = self._record.count(
                        guesses,
                        delta_of_guess == index,
                        seq=first + index,
                        nodes=len(self._ids),
                        classes=classes,
                    )
                    result = DeltaResult(
                        seq=first + index,
                        new_nodes=len(delta.nodes),
                        classes=classes,
                        recomputed=update.recomputed,  # of the whole batch, as ``counted``
                        predicted=predicted,
                        right=right,
                        counted=update.counted,
                    )
                    results.append(result)
                return self._written()

            self.publish(write, update.changes)
            return results

    def _batch(self, deltas: Sequence[Delta]) -> list[CheckedDelta]:
        """Return deltas of a journal, each validated with those before it."""
        batch = Batch()
        for delta in deltas:
            fitting = self._fitting(delta, batch.ahead)
            if not batch.takes(fitting):
                raise DataError(f"{delta!r} cannot be applied together with those before it")
            batch.add(fitting)
        return batch.deltas

    def ask(
        self, delta: Delta, ids: Sequence[NodeId] | None = None, *, every_class: bool = False
    ) -> Answer:
        """Return the predictions that a delta would lead to, without applying it.

        They are those of adding the delta, asking, and forgetting it: the delta is applied to a
        copy of the learner, so a question costs memory and time for that. ``seq`` is that of the
        learner, and the delta's key is not looked at.

        ids: of new or known nodes; by default the new nodes of the delta

        >>> learner = OnlineLearner()
        >>> _ = learner.apply(Delta(nodes=("a", "b"), features=torch.eye(2), labels=("x", "y")))
        >>> new = Delta(nodes=("c",), features=torch.eye(2)[1:], edges=(("c", "b"),))
        >>> learner.ask(new).predictions[0].label, learner.status().nodes
        ('y', 2)
        """
        asked = list(delta.nodes) if ids is None else ids
        later = self.after(delta)
        answer = later.answer(asked, every_class=every_class)
        return replace(answer, seq=later.status().seq - 1)

    def after(self, delta: Delta) -> Self:
        """Return a copy of the learner to which a delta was applied."""
        copied = self.copy()
        copied.apply(delta)
        return copied

    def _applied(
        self, delta: CheckedDelta, parts: Sequence[CheckedDelta]
    ) -> tuple[HeadUpdate, Tallies | None, Tensor]:
        """Apply a delta; parts: the deltas that it was merged from.

        -> the effect, what was predicted, and the part that each prediction is of, int64 [n]
        """
        knowledge, target = self._knowledge, self.head.target
        if knowledge is None:  # empty deltas, before the first node
            nothing = HeadUpdate([], recomputed=0, counted=0, behind=False)
            return nothing, None, no_nodes()
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
        # Labels of new nodes, then late ones.
        new = [(index, label) for index, label in enumerate(delta.labels) if label is not None]
        labelled = delta.first + torch.tensor([index for index, _ in new], dtype=torch.int64)
        nodes = torch.cat([labelled, delta.labelled])
        labels = knowledge.number([target.key(label) for _, label in (*new, *delta.late)])
        # Only nodes without a label count as predictions: one that changes was learned from.
        unknown = knowledge.labels.of(nodes) == UNLABELLED
        guesses = knowledge.guess(nodes[unknown], labels[unknown])
        knowledge.learn(nodes, labels)
        if len(delta.forgotten):
            knowledge.forget(delta.gone)
        # Readers have a copy of all vectors.
        if delta.refit:
            knowledge.refit()
        update = knowledge.update_head(every=self._shared)
        return update, guesses, owners(parts)[unknown]
