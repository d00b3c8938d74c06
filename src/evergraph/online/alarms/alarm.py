"""An alarm, the list of those that were raised, and which of them are news."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from evergraph.online.delta import Label

log = logging.getLogger(__name__)

KINDS = ("accuracy", "novelty", "fading")
MOST = 64  # alarms over that are kept


@dataclass(frozen=True)
class Alarm:
    """Something that is no longer as it was.

    Attributes:
        kind: ``accuracy`` (predictions are worse than they were; of several labels their F1, of
            numbers their error), ``novelty`` (more labels than before are of new classes) or
            ``fading`` (a class no longer comes).
        seq: the number of the delta that raised it.
        message: what is wrong, in one sentence.
        value: what was measured.
        expected: what the past let expect.
        about: the class that fades; None for the other kinds.
        cleared: the number of the delta after which all was normal again; None while it is not.
    """

    kind: str
    seq: int
    message: str
    value: float
    expected: float
    about: Label | None = None
    cleared: int | None = None


@dataclass(frozen=True)
class Entry:
    """An alarm in numbers, as a snapshot keeps it; -1 stands for no class and not over yet."""

    kind: int
    seq: int
    cleared: int
    value: float
    expected: float
    about: int = -1
    labels: int = 0


class AlarmLog:
    """All alarms that are raised, and the latest of those that are over.

    >>> log = AlarmLog()
    >>> log.set(0, seq=4, on=True, value=0.5, expected=0.8, labels=200)
    >>> log.set(0, seq=5, on=True, value=0.4, expected=0.8, labels=200)  # the same alarm
    >>> log.set(0, seq=6, on=False)
    >>> [(entry.seq, entry.cleared) for entry in log.entries]
    [(4, 6)]
    """

    def __init__(self) -> None:
        self.entries: tuple[Entry, ...] = ()
        self.totals = (0,) * len(KINDS)  # that were ever raised, by kind

    def raised(self, kind: int, about: int = -1) -> bool:
        """Whether there is such an alarm now."""
        return any((e.kind, e.about, e.cleared) == (kind, about, -1) for e in self.entries)

    def set(
        self,
        kind: int,
        *,
        seq: int,
        on: bool,
        about: int = -1,
        value: float = 0.0,
        expected: float = 0.0,
        labels: int = 0,
    ) -> None:
        """Raise an alarm unless it is raised, or clear it if it is."""
        if on and not self.raised(kind, about):
            self.entries += (Entry(kind, seq, -1, value, expected, about, labels),)
            self.totals = tuple(n + (place == kind) for place, n in enumerate(self.totals))
        elif not on:
            self.entries = tuple(
                replace(e, cleared=seq) if (e.kind, e.about, e.cleared) == (kind, about, -1) else e
                for e in self.entries
            )
        over = [entry for entry in self.entries if entry.cleared >= 0]
        dropped = set(map(id, over[: len(over) - MOST])) if len(over) > MOST else set()
        self.entries = tuple(entry for entry in self.entries if id(entry) not in dropped)

    def alarms(self, metric: str, names: Sequence[Label]) -> tuple[Alarm, ...]:
        """Return all as they are told, oldest first.

        metric: what accuracy is called, see ``METRICS``; names: of classes.
        """
        return tuple(_told(entry, metric, names) for entry in self.entries)

    def state(self) -> dict[str, Tensor]:
        """Return everything, by name.  float64 [entries, 7]: whole numbers are exact to 2⁵³"""
        rows = [list(vars(entry).values()) for entry in self.entries]
        entries = torch.tensor(rows, dtype=torch.float64).reshape(-1, 7)
        return {"entries": entries, "totals": torch.tensor(self.totals)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state`` returned."""
        self.entries = tuple(
            Entry(int(kind), int(seq), int(cleared), value, expected, int(about), int(labels))
            for kind, seq, cleared, value, expected, about, labels in state["entries"].tolist()
        )
        self.totals = tuple(state["totals"].tolist())


def _told(entry: Entry, metric: str, names: Sequence[Label]) -> Alarm:
    about = names[entry.about] if entry.about >= 0 else None
    return Alarm(
        kind=KINDS[entry.kind],
        seq=entry.seq,
        message=_sentence(entry, metric, about),
        value=entry.value,
        expected=entry.expected,
        about=about,
        cleared=None if entry.cleared < 0 else entry.cleared,
    )


def _sentence(entry: Entry, metric: str, about: Label | None) -> str:
    kind, labels = KINDS[entry.kind], f"{entry.labels:,}"
    if kind == "fading":
        due = entry.value / max(entry.expected, 1.0)
        return f"{about!r} has not come with the last {labels} labels: about {due:.0f} were due"
    if kind == "accuracy" and metric == "mean absolute error":
        return (
            f"{metric} of the last {labels} predictions is {entry.value:.4g}: expected about "
            f"{entry.expected:.4g}"
        )
    now, usual = f"{100 * entry.value:.1f} %", f"{100 * entry.expected:.1f} %"
    if kind == "accuracy":
        return f"{metric} of the last {labels} predictions is {now}: expected about {usual}"
    return f"{now} of the last {labels} labels are of classes that are new: expected about {usual}"


class AlarmNews:
    """Tells each alarm once, from now on: none that a recovery finds or raises again.

    >>> news = AlarmNews(after=4)
    >>> old, new = (Alarm("novelty", seq, "", 1.0, 0.0) for seq in (4, 5))
    >>> [alarm.seq for alarm in news.of([old, new])], news.of([old, new])
    ([5], [])
    """

    def __init__(self, *, after: int) -> None:
        self._after = after

    def of(self, alarms: Iterable[Alarm]) -> list[Alarm]:
        """Return those that were raised since the last time."""
        fresh = [alarm for alarm in alarms if alarm.seq > self._after]
        self._after = max([self._after, *(alarm.seq for alarm in fresh)])
        return fresh


OnAlarm = Callable[[Alarm], object]


def tell(alarms: Iterable[Alarm], call: OnAlarm) -> None:
    """Call a function with each alarm; that it fails is no reason to think that a delta did."""
    for alarm in alarms:
        try:
            call(alarm)
        except Exception:
            log.exception("the function that is told of alarms failed with %r", alarm)


def warn(alarm: Alarm) -> None:
    """Write an alarm to the log."""
    log.warning("alarm (%s): %s", alarm.kind, alarm.message)
