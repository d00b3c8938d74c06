"""What a learner is asked, as its last whole delta left it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any

from torch import Tensor

from evergraph.core.component import Shown
from evergraph.online.alarms import Alarm
from evergraph.online.delta import Label, NodeId
from evergraph.online.explanation import Explanation
from evergraph.online.learner_html import history_chart
from evergraph.online.neighbourhood import Neighbourhood
from evergraph.online.suggestions import Suggestion
from evergraph.online.view import Answer, History, LearnerView, Status


class Asked(Shown):
    """Answers from the view that a learner has written."""

    _view: LearnerView
    _writing: RLock

    def _repr_facts(self) -> dict[str, object]:
        status = self.status()
        facts = {name: getattr(status, name) for name in ("nodes", "edges", "classes", "labelled")}
        return facts | {"deltas": status.seq}

    def _repr_table(self) -> dict[str, object]:
        status = self.status()
        found = "-" if status.accuracy is None else f"{status.accuracy:.3f}"
        before = {f"{status.metric} before labels came": f"{found} of {status.predicted}"}
        return self._repr_facts() | before | {"bytes": status.memory}

    def _repr_pictures(self) -> str:
        return history_chart(self.history(), self.status())

    def predict(self, ids: Sequence[NodeId]) -> list[Any]:
        """Return the most likely class of each node, or its labels, or its number."""
        return self._view.predict(ids)

    def answer(self, ids: Sequence[NodeId], *, every_class: bool = False) -> Answer:
        """Return the likeliest class of each node with its probability, or all probabilities."""
        return self._view.answer(ids, every_class=every_class)

    def predict_proba(self, ids: Sequence[NodeId]) -> tuple[tuple[Label, ...], Tensor]:
        """Return the classes and the probability of each.  -> float32 [ids, classes]"""
        return self._view.predict_proba(ids)

    def embed(self, ids: Sequence[NodeId]) -> Tensor:
        """Return the embeddings of nodes.  -> float32 [ids, dims]"""
        return self._view.embed(ids)

    def status(self) -> Status:
        """Return what is known, in numbers."""
        return self._view.status

    @property
    def classes(self) -> tuple[Label, ...]:
        """The names of all classes, in order of arrival."""
        return self._view.classes

    def history(self) -> History:
        """Return the prequential curve and the confusion of the newest classes, for JSON."""
        return self._view.history()

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the alarm that predictions are worse than they were, while they are."""
        return self._view.alarms

    def explain(self, node: NodeId, *, top: int = 3, limit: int = 20) -> Explanation:
        """Return why a node is classified as it is; waits for a delta that is being applied.

        Who must not wait asks ``frozen()``.

        top: how many classes; limit: how many nodes are named at most.
        """
        with self._writing:
            return self._view.explain(node, top=top, limit=limit)

    def suggest(self, n: int, *, among: Sequence[NodeId] | None = None) -> tuple[Suggestion, ...]:
        """Return unlabelled nodes worth asking a person about, the first one first.

        Of what is known after the last whole delta; waits as ``explain`` does. The same learner
        always gives the same answer.

        n: how many at most; among: which nodes may be asked about, all unless given.

        >>> import torch
        >>> from evergraph.online.delta import Delta
        >>> from evergraph.online.heads import FusedHead
        >>> from evergraph.online.learner import OnlineLearner
        >>> learner = OnlineLearner(head=FusedHead(width=64))
        >>> _ = learner.apply(Delta(nodes="abcd", features=torch.eye(4), labels=[None] * 4,
        ...                         edges=(("a", "b"), ("a", "c"))))
        >>> [(found.id, found.reach) for found in learner.suggest(2)]
        [('a', 2), ('d', 0)]
        """
        with self._writing:
            return self._view.suggest(n, among=among)[1]

    def neighbourhood(
        self, node: NodeId, *, hops: int | None = None, limit: int = 60
    ) -> Neighbourhood:
        """Return what lies around a node, to be drawn; waits as ``explain`` does.

        hops: how far; as far as an embedding looks unless given. limit: how many nodes at most.
        """
        with self._writing:
            return self._view.neighbourhood(node, hops=hops, limit=limit)
