"""A learner that is kept in a folder and survives a crash of its process or machine.

FOLDER/evergraph-learner.json  format version and the learner's parameters
FOLDER/columns.json            how columns of tables are read, unless they are plain numbers
FOLDER/journal.sqlite          every delta since the older snapshot; with its -wal and -shm files
FOLDER/snapshot-120/           the learner after delta 120; the last two are kept
FOLDER/acknowledged            number of the last acknowledged delta
FOLDER/lock                    held by the one process that writes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from evergraph.core.component import Shown
from evergraph.core.errors import (
    ConfigurationError,
    DataError,
    StoppedError,
    check_integer,
    check_number,
    did_you_mean,
)
from evergraph.core.safe_files import Closing
from evergraph.core.targets import target_of
from evergraph.online.delta import Delta, DeltaResult, is_empty
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.markers import (
    FolderStatus,
    KeptColumns,
    Purged,
    folder_bytes,
    stored_columns,
    stored_parameters,
)
from evergraph.online.folder.queue import DeltaQueue
from evergraph.online.folder.recovery import FolderReader, Make, Progress
from evergraph.online.folder.snapshot import JournalLoad
from evergraph.online.folder.writer import FolderWriter
from evergraph.online.heads import FusedHead, heads
from evergraph.online.intake import Bounds
from evergraph.online.learner import OnlineLearner
from evergraph.online.upsert import Upserted
from evergraph.tables.choices import Encoder
from evergraph.tables.scheme import Scheme

DAY = 24 * 60 * 60.0  # seconds


class LearnerFolder(Closing, Shown):
    """The folder of a learner, open for writing by one process or read-only by many.

    A delta is acknowledged when ``submit`` returns: it is on disk, and the learner has applied it.
    Opening the folder again, even after a crash, restores the learner bit for bit.

    >>> import tempfile, torch
    >>> scratch = tempfile.TemporaryDirectory()
    >>> delta = Delta(nodes=("a",), features=torch.ones(1, 2), labels=("x",), key="first")
    >>> with LearnerFolder.open(scratch.name) as folder:
    ...     folder.submit(delta).seq, folder.submit(delta).seq  # the same key is applied once
    (1, 1)
    >>> with LearnerFolder.open(scratch.name, readonly=True) as folder:
    ...     folder.learner.predict(["a"])
    ['x']
    >>> scratch.cleanup()

    Attributes:
        path: the folder.
        lock: held while the learner changes, so that its holder never sees half a delta.
        readonly: whether it was opened read-only.
    """

    def __init__(self, files: FolderWriter | FolderReader) -> None:
        if not isinstance(files, FolderWriter | FolderReader):
            raise ConfigurationError(
                f"LearnerFolder({str(files)!r}) does not open a folder: call "
                "LearnerFolder.open(path)"
            )
        self._files = files
        self.path, self.lock = files.path, files.lock
        self.readonly = isinstance(files, FolderReader)
        self._closed = False

    def _repr_facts(self) -> dict[str, object]:
        return {"path": str(self.path)} | ({"closed": True} if self._closed else {})

    def _repr_html_(self) -> str:
        return super()._repr_html_() + ("" if self._closed else self.learner._repr_html_())

    @classmethod
    def open(  # noqa: PLR0913
        cls,
        path: Path | str,
        given: Mapping[str, Any] | None = None,
        *,
        make: Make | None = None,
        readonly: bool = False,
        encoders: Iterable[Encoder] = (),
        snapshot_every: int = 1000,
        snapshot_bytes: int = 1 << 26,
        replay_seconds: float = 10.0,
        close_seconds: float = 1.0,
        retry: float = 30.0,
        key_age: float = 7.0,
        keys_kept: int = 10_000,
        progress: Progress | None = None,
        bounds: Bounds | None = None,
        threads: int = 1,
    ) -> LearnerFolder:
        """Open a folder, and recover its learner.

        Args:
            path: the folder; created if it does not exist, unless ``readonly``.
            given: parameters of a new learner, as in ``OnlineLearner.parameters``, or some of
                them; they must match those of an existing folder.
            make: instead of ``given``, returns an empty learner with the folder's parameters.
            readonly: open for reading, while another process may write; see ``refresh``.
            encoders: custom encoders for columns of its tables, not needed with ``readonly``.
            snapshot_every: deltas after which a snapshot is taken in the background.
            snapshot_bytes: bytes of deltas after which it is taken, if that comes first.
            replay_seconds: seconds spent on applying deltas after which it is taken, if that comes
                first; a restart would spend them again. At least three times the duration of the
                last snapshot.
            close_seconds: closing takes a snapshot if a restart would replay for longer than this,
                and for longer than a snapshot takes to read.
            retry: seconds until a failed snapshot is tried again.
            key_age: days for which delta keys are kept. Older ones are dropped with the next
                snapshot; a delta with a dropped key counts as new.
            keys_kept: number of newest keys that are kept whatever their age.
            progress: called with the progress of the recovery, at its start and end and about
                twice a second.
            bounds: limits of new deltas; by default memory only. Deltas that the folder holds
                already are applied whatever their size.
            threads: of torch, for learning. The last digits of results depend on it: with the same
                number the folder is restored bit for bit, with another one a warning is logged.
        """
        check_integer("snapshot_every", snapshot_every, least=1)
        check_integer("snapshot_bytes", snapshot_bytes, least=1)
        check_integer("keys_kept", keys_kept, least=0)
        check_integer("threads", threads, least=1)
        durations = {"replay_seconds": replay_seconds, "close_seconds": close_seconds}
        for name, value in (durations | {"retry": retry, "key_age": key_age}).items():
            check_number(name, value, least=0)
        if make is not None and given is not None:
            raise ConfigurationError("only one of given and make can say how a learner is made")
        columns = KeptColumns(Path(path), tuple(encoders))
        if make is None:
            make = maker_of(Path(path), given)
            if not readonly:
                stored_columns(Path(path), columns.encoders)  # refused before anything is opened
        new_learner = make

        def made() -> OnlineLearner:  # with what is not among its parameters
            learner = new_learner()
            learner.threads = threads
            if bounds is not None:
                learner.bounds = bounds
            return learner

        files: FolderReader | FolderWriter
        if readonly:
            files = FolderReader(columns, made, progress=progress)
        else:
            files = FolderWriter(
                columns,
                made,
                JournalLoad(snapshot_every, snapshot_bytes, replay_seconds),
                close_seconds=close_seconds,
                retry=retry,
                key_age=key_age * DAY,
                keys_kept=keys_kept,
                progress=progress,
            )
        return cls(files)

    @property
    def columns(self) -> Scheme | None:
        """How columns of tables are read; None for plain numbers, and before the first node.

        It is fixed by the first delta with nodes (``Delta.scheme``).
        """
        return self._files.columns.of(self.learner)

    @property
    def learner(self) -> OnlineLearner:
        """The learner after the last delta; a different object after it had to be recovered."""
        return self._files.learner

    def watch(
        self, *, on_change: Callable[[], None] | None, on_stop: Callable[[], None] | None = None
    ) -> None:
        """Set callbacks, which run with the lock held, before the sender of a delta is answered.

        on_change: when the learner has changed or is a different object; on_stop: when writes have
        stopped, see ``submit``.
        """
        self._files.on_change = on_change or (lambda: None)
        self._files.on_stop = on_stop or (lambda: None)

    @property
    def seq(self) -> int:
        """How many deltas the learner has applied."""
        return self._files.seq

    def submit(self, delta: Delta) -> DeltaResult:
        """Apply a delta durably, all of it or nothing; return its result.

        A delta whose key was used before is not applied again, and its first result is returned. A
        delta that the learner rejects changes nothing. A full disk raises ``ResourceError``:
        nothing has changed, and the delta can be sent again. A delta that fails to apply is set
        aside, and nothing has changed either. After any other disk error this and all later calls
        raise ``StoppedError``; to find out whether the delta was written, open the folder again and
        send it again with its key. Alarms that it raises are logged.
        """
        (answer,) = self.submit_many([delta])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit_many(self, deltas: Sequence[Delta]) -> list[DeltaResult | Exception]:
        """Apply deltas in order; return the result of each, or the error that rejected it.

        They are applied together where possible, with one wait for the disk, as are those that
        several threads ``submit`` at the same time; see ``Batch``.
        """
        return self._writer().waiting.submit(deltas)

    @property
    def waiting(self) -> DeltaQueue:
        """The queue of deltas: ``offer`` adds one, and ``serve`` applies those that wait."""
        return self._writer(closed=True).waiting

    def upsert(self, delta: Delta) -> Upserted:
        """Apply the new part of a delta and skip what is known; see ``only_new``.

        It takes no key: repeating it changes nothing.
        """
        if delta.key is not None:
            raise ConfigurationError(
                f"an upsert takes no key, since repeating it changes nothing, not {delta.key!r}"
            )
        self._writer()
        with self.lock:  # nothing may change between the comparison and the delta
            self._files.columns.check(delta, self.learner)
            new, news = self.learner.only_new(delta)
            if is_empty(new):
                known = self.learner.status().classes
                return Upserted(DeltaResult(seq=self.seq, classes=known), news)
            return Upserted(self.submit(new), news)

    def last_key(self, prefix: str) -> str | None:
        """Return the newest delta key with this prefix, None if there is none; without waiting."""
        self._writer()  # raises if the folder is read-only or closed
        with closing(Journal(self.path / JOURNAL_FILE, readonly=True)) as journal:
            return journal.keys.last(prefix)

    def compact(self) -> int:
        """Take a snapshot, trim the journal, and return the number of the snapshot."""
        return self._writer().compact()

    def compacted(self) -> Purged:
        """Compact, and return the sizes of the folder before and after."""
        before = folder_bytes(self.path)
        return Purged(self.compact(), before, folder_bytes(self.path))

    def purge(self, *, keys: bool = False) -> Purged:
        """Keep only the current state: one snapshot, and no delta in the journal.

        Forgotten nodes, and classes that no node has, are erased from the folder, with the
        exceptions that the documentation lists (such as their part in medians, scales and word
        counts of the first table), and from memory: ``learner`` becomes another object with the
        same predictions. Readers that are behind start over from the snapshot.

        keys: drop all delta keys too; a delta sent again then counts as new.
        """
        return self._writer().purge(keys=keys)

    def refresh(self) -> int:
        """Apply deltas that the writing process has added; return how many."""
        return self._files.refresh() if isinstance(self._files, FolderReader) else 0

    def status(self) -> FolderStatus:
        """Return the status of the folder."""
        return self._files.status()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._files.close()

    def _writer(self, *, closed: bool = False) -> FolderWriter:
        """Return the writer or raise; closed: return it even if the folder was closed."""
        if isinstance(self._files, FolderReader):
            raise ConfigurationError(
                f"{self.path} was opened with readonly=True: it cannot be changed"
            )
        if self._closed and not closed:
            raise StoppedError(f"{self.path} is closed: open it again")
        if not closed:
            self._files.check_process()
        return self._files


def maker_of(folder: Path, given: Mapping[str, Any] | None = None) -> Make:
    """Return what makes the learner of a folder; given: some parameters, which must match it."""
    given, known = given or {}, stored_parameters(folder)
    if known is None:  # with the default f_topo of the given head
        name = given.get("head", {}).get("name")
        known = OnlineLearner(head=None if name is None else heads.make(name)).parameters
    parameters = dict(known)
    for key, value in given.items():
        if key not in known:
            raise ConfigurationError(
                f"a learner has no parameter {key!r}: {did_you_mean(key, known)}"
                f"it takes {', '.join(known)}"
            )
        old = known[key]
        parts = isinstance(value, dict) and isinstance(old, dict)
        same = parts and value.get("name", old["name"]) == old["name"]
        parameters[key] = old | value if same else value  # another component replaces all of it
    return partial(made_with, folder, parameters)


def made_with(folder: Path, parameters: Mapping[str, Any]) -> OnlineLearner:
    """Return an empty learner; if that fails, the error names the folder."""
    try:
        return OnlineLearner(**parameters)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
        raise DataError(
            f"{folder}: no learner can be made with its parameters ({error}): put its format file "
            "back from a backup"
        ) from error


# Parameters of a model that are not parameters of its learner, or reach it as those of its head.
OF_A_MODEL = ("targets", "width", "objective", "head_options", "columns", "on_alarm")


def parameters_of_model(made: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a learner that were given explicitly to a classifier.

    made: the learner's parameters; given: the classifier's, see ``ContinualNodeClassifier``.

    >>> made = {"topology": {"name": "sgc"}, "head": {"name": "auto", "width": 8}, "seed": 3}
    >>> parameters_of_model(made, {"width": 8, "seed": 3})
    {'head': {'width': 8}, 'seed': 3}
    """
    options = {*(given.get("head_options") or ())}
    options |= {key for key in ("width", "objective") if given.get(key) is not None}
    named = given.get("head")
    if isinstance(named, FusedHead):
        options |= {*made["head"]}
    elif named is not None:
        options |= {"name", *(named if isinstance(named, Mapping) else ())}
    if not target_of(given.get("targets", "class")).is_class:
        options |= {"name", "kind"}
    head = {key: value for key, value in made["head"].items() if key in options}
    parameters = {"head": head} if head else {}
    for key, value in given.items():
        if key in made and key != "head" and not (key == "topology" and value is None):
            parameters[key] = made[key]
        elif key not in made and key not in OF_A_MODEL:
            raise ConfigurationError(
                f"{key!r} reaches no learner: a model in a folder takes "
                f"{', '.join([*made, *OF_A_MODEL])}"
            )
    return parameters
