"""The watch over what labels say, delta after delta."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from evergraph.core.label_space import Kind
from evergraph.online.alarms.alarm import KINDS, Alarm, AlarmLog
from evergraph.online.alarms.arrivals import Arrivals
from evergraph.online.alarms.measure import LEVEL, WINDOW, Measure, Verdict
from evergraph.online.delta import Label
from evergraph.online.prequential import METRICS
from evergraph.training.learner import part_of

ACCURACY, NOVELTY, FADING = range(len(KINDS))


class Watch:
    """Raises alarms about predictions, new classes and classes that fade, and clears them.

    It follows from the deltas alone, so a learner that is recovered has the same alarms. See
    ``Measure`` and ``Arrivals`` for the rules, and for how often they are wrong.

    Args:
        kind: what nodes are said to be; numbers are watched for their error only.
        window: labels that are looked at together.
        level: false alarms of a kind a window, at most.

    >>> import torch
    >>> watch = Watch("class", window=100)
    >>> for seq in range(1, 12):
    ...     right = 90 if seq < 11 else 10
    ...     watch.see(seq, torch.zeros(100).long(), answers=(100, right), known=1)
    >>> [(alarm.kind, alarm.seq) for alarm in watch.alarms(["x"])]
    [('accuracy', 11)]
    """

    def __init__(self, kind: Kind, *, window: int = WINDOW, level: float = LEVEL) -> None:
        self.kind: Kind = kind
        numbers = kind == "numbers"
        self._accuracy = Measure(
            rises=numbers, share=not numbers, least=0.1 if numbers else 0.05,
            window=window, level=level,
        )  # fmt: skip
        self._novelty = Measure(rises=True, window=window, level=level)
        self._arrivals = Arrivals(window=window, level=level)
        self._log = AlarmLog()
        self._parts: dict[str, Measure | Arrivals | AlarmLog] = {
            "accuracy": self._accuracy,
            "novelty": self._novelty,
            "arrivals": self._arrivals,
            "log": self._log,
        }

    def see(
        self,
        seq: int,
        labels: Tensor,
        *,
        answers: tuple[int, float],
        known: int,
        owners: Tensor | None = None,
        nodes: int | None = None,
    ) -> None:
        """Look at the labels that a delta brought, once it is done.

        labels: classes, int64 [n], or any numbers; answers: what ``Prequential`` was told: how many
        were asked for, and how many were right; known: how many classes there are; owners: where
        nodes may have several labels, which of them each label is of, int64 [n]; nodes: how many
        these are then.
        """
        if answers[0]:
            self._set(ACCURACY, seq, self._accuracy.add(*answers))
        told = len(labels) if nodes is None else nodes
        if not told or self.kind == "numbers":
            return
        new = self._arrivals.add(labels, told, known, owners)
        self._set(NOVELTY, seq, self._novelty.add(told, new))
        self._set_fading(seq)

    def _set(self, kind: int, seq: int, said: Verdict | None) -> None:
        if said is not None:
            self._log.set(
                kind, seq=seq, on=said.on, value=said.value, expected=said.expected,
                labels=said.answers,
            )  # fmt: skip

    def _set_fading(self, seq: int) -> None:
        gone = {found.number: found for found in self._arrivals.fading()}
        for entry in self._log.entries:
            if entry.kind == FADING and entry.cleared < 0 and entry.about not in gone:
                self._log.set(FADING, seq=seq, on=False, about=entry.about)
        for number, found in gone.items():
            self._log.set(
                FADING, seq=seq, on=True, about=number, value=float(found.since),
                expected=found.every, labels=found.since,
            )  # fmt: skip

    def alarms(self, names: Sequence[Label]) -> tuple[Alarm, ...]:
        """Return all alarms that are raised and the latest that are over, oldest first.

        names: of classes.
        """
        return self._log.alarms(METRICS[self.kind], names)

    @property
    def raised(self) -> dict[str, int]:
        """How many alarms of each kind were ever raised."""
        return dict(zip(KINDS, self._log.totals, strict=True))

    def state(self) -> dict[str, Tensor]:
        """Return everything seen, by name."""
        parts = {name: part.state() for name, part in self._parts.items()}
        return {f"{part}.{name}": v for part, kept in parts.items() for name, v in kept.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned; nothing where a snapshot is older than alarms."""
        for name, part in self._parts.items():
            if kept := part_of(state, f"{name}."):
                part.restore(kept)
