"""A learner that lives in a folder and survives whatever happens to its process.

FOLDER/evergraph-learner.json  the format, and what the learner was made with
FOLDER/columns.json            how columns of tables are read, where they are not plain numbers
FOLDER/journal.sqlite          every delta since the older snapshot; -wal and -shm belong to it
FOLDER/snapshot-120/           the learner after delta 120; the last two are kept
FOLDER/acknowledged            the number of the last delta that somebody was told is safe
FOLDER/lock                    held by the one process that writes
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from evergraph.core.checks import check_integer, check_number
from evergraph.core.display import Shown
from evergraph.core.errors import ConfigurationError, DataError, StoppedError, did_you_mean
from evergraph.core.file_lock import Closing
from evergraph.online.delta import Delta, DeltaResult, is_empty
from evergraph.online.folder.columns_file import (
    check_same_columns,
    store_columns,
    stored_columns,
)
from evergraph.online.folder.journal import JOURNAL_FILE, Journal
from evergraph.online.folder.markers import BEFORE, stored_parameters
from evergraph.online.folder.queue import DeltaQueue
from evergraph.online.folder.reader import FolderReader
from evergraph.online.folder.status import FolderStatus, Progress, Purged, folder_bytes
from evergraph.online.folder.writer import FolderWriter
from evergraph.online.heads import heads
from evergraph.online.intake import Bounds
from evergraph.online.learner import OnlineLearner
from evergraph.online.upsert import Upserted
from evergraph.tables.own import Encoder
from evergraph.tables.scheme import Scheme

DAY = 24 * 60 * 60.0  # seconds


class LearnerFolder(Closing, Shown):
    """A folder of one learner, opened to write, by one process at a time, or to read, by many.

    A delta is acknowledged when ``submit`` returns: the disk has it, and the learner knows it.
    Whoever opens the folder again, after a crash too, finds the learner as it was, bit for bit.

    >>> import tempfile, torch
    >>> from evergraph.online.learner import OnlineLearner
    >>> place = tempfile.TemporaryDirectory()
    >>> delta = Delta(nodes=("a",), features=torch.ones(1, 2), labels=("x",), key="first")
    >>> with LearnerFolder.open(place.name, make=OnlineLearner) as folder:
    ...     folder.submit(delta).seq, folder.submit(delta).seq  # the same key counts once
    (1, 1)
    >>> with LearnerFolder.open(place.name, make=OnlineLearner, readonly=True) as folder:
    ...     folder.learner.predict(["a"])
    ['x']
    >>> place.cleanup()
    """

    def __init__(self, files: FolderWriter | FolderReader) -> None:
        if not isinstance(files, FolderWriter | FolderReader):
            raise ConfigurationError(
                f"LearnerFolder({str(files)!r}) opens nothing: call LearnerFolder.of(path), or "
                "LearnerFolder.open(path, make=...) for a learner made by your own function"
            )
        self._files = files
        self._closed = False
        self._columns: Scheme | None = None
        self._encoders: tuple[Encoder, ...] = ()

    def _repr_facts(self) -> dict[str, object]:
        return {"path": str(self.path)} | ({"closed": True} if self._closed else {})

    def _repr_pictures(self) -> str:
        return "" if self._closed else self.learner._repr_html_()

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        make: Callable[[], OnlineLearner],
        readonly: bool = False,
        snapshot_every: int = 1000,
        snapshot_bytes: int = 1 << 26,
        replay_seconds: float = 10.0,
        close_seconds: float = 1.0,
        retry: float = 30.0,
        key_age: float = 7.0,
        keys_kept: int = 10_000,
        memory_limit: int | str | None = None,
        scratch: Path | str | None = None,
        progress: Progress | None = None,
        bounds: Bounds | None = None,
        threads: int = 1,
    ) -> LearnerFolder:
        """Open a folder, and recover its learner.

        Args:
            path: the folder; if there is none, it is made, unless it is only to be read.
            make: returns a learner that has seen nothing, with the parameters of the folder's.
            readonly: read what is there, which another process may be adding to; see ``refresh``.
            snapshot_every: after how many deltas a snapshot is taken in the background.
            snapshot_bytes: after how many bytes of deltas, if that comes first.
            replay_seconds: after how many seconds of applying them, if that comes first: a restart
                takes as long again. It is three times what the last snapshot took, at least.
            close_seconds: closing takes a snapshot where a restart would take longer than that,
                and longer than reading a snapshot does.
            retry: seconds after which a snapshot that failed is tried again.
            key_age: days for which the key of a delta is known; older ones go with the next
                snapshot, and a delta that is sent again then counts as new.
            keys_kept: how many keys are kept however old they are.
            memory_limit: the most that the process is to hold, in bytes or as text such as
                ``2GB``: what is wide lies in files then, see ``OnlineLearner``. Nothing that is
                learned or stored depends on it.
            scratch: where these files go.
            progress: called with how far the recovery is, about twice a second, and at its begin
                and end.
            bounds: what a delta may ask for; memory alone unless given. It is for what is new:
                what the folder holds already is taken in, whatever it asks for.
            threads: of torch, for what is learned. The last digits depend on it: whoever opens the
                folder with as many finds the same bits, with another number a warning says so.
        """
        check_integer("snapshot_every", snapshot_every, least=1)
        check_integer("snapshot_bytes", snapshot_bytes, least=1)
        check_number("replay_seconds", replay_seconds, least=0)
        check_number("close_seconds", close_seconds, least=0)
        check_number("retry", retry, least=0)
        check_number("key_age", key_age, least=0)
        check_integer("keys_kept", keys_kept, least=0)
        check_integer("threads", threads, least=1)

        def made() -> OnlineLearner:  # with what is not among its parameters
            learner = make()
            if memory_limit is not None:
                learner.keep_within(memory_limit, scratch)
            learner.threads = threads
            if bounds is not None:
                learner.bounds = bounds
            return learner

        if readonly:
            return cls(FolderReader(Path(path), made, progress=progress))
        return cls(
            FolderWriter(
                Path(path),
                made,
                snapshot_every=snapshot_every,
                snapshot_bytes=snapshot_bytes,
                replay_seconds=replay_seconds,
                close_seconds=close_seconds,
                retry=retry,
                key_age=key_age * DAY,
                keys_kept=keys_kept,
                progress=progress,
            )
        )

    @classmethod
    def of(
        cls,
        path: Path | str,
        given: Mapping[str, Any] | None = None,
        *,
        readonly: bool = False,
        encoders: Iterable[Encoder] = (),
        **settings: Any,
    ) -> LearnerFolder:
        """Open a folder whose learner is as it was made, or as ``given`` says where it is new.

        given: parameters as ``OnlineLearner.parameters`` has them, or some of them. Those of a
        folder that is there already must be the same. encoders: of one's own, by which columns of
        its tables are read; who only reads the folder needs none. settings: as those of ``open``,
        which are all but ``make``.
        """
        make, needed = maker_of(Path(path), given), tuple(encoders)
        if not readonly:
            stored_columns(Path(path), needed)  # refused before anything is opened
        opened = cls.open(path, make=make, readonly=readonly, **settings)
        opened._encoders = needed
        return opened

    @property
    def path(self) -> Path:
        """The folder."""
        return self._files.path

    @property
    def columns(self) -> Scheme | None:
        """How columns of tables are read; None where they are plain numbers, or none came yet."""
        if self._columns is None and (width := self.learner.status().features):
            found = stored_columns(self.path, self._encoders)
            # What a killed process left before its first delta fits nothing that came since.
            self._columns = found if found is not None and found.width == width else None
        return self._columns

    def keep_columns(self, scheme: Scheme | None) -> None:
        """Keep how columns are read, before the first nodes come; afterwards it must be the same.

        scheme: None for plain numbers.
        """
        with self.lock:
            self._writer()
            if self.learner.status().features:
                self.check_columns(scheme)
            else:
                store_columns(self.path, scheme)
                self._columns = scheme

    def check_columns(self, scheme: Scheme | None) -> None:
        """Raise unless columns are read as those of the first nodes were, which have come."""
        check_same_columns(self.path, self.columns, scheme)

    @property
    def learner(self) -> OnlineLearner:
        """The learner, as the last delta left it; another object once it was recovered anew."""
        return self._files.learner

    def watch(
        self, *, on_change: Callable[[], None] | None, on_stop: Callable[[], None] | None = None
    ) -> None:
        """Have somebody called, with the lock held, before who sent a delta is answered.

        on_change: when the learner has learned something, or is another object; on_stop: when no
        more deltas are taken, see ``submit``. None: nobody.
        """
        self._files.on_change = on_change
        if isinstance(self._files, FolderWriter):
            self._files.on_stop = on_stop

    @property
    def lock(self) -> threading.RLock:
        """Held while the learner changes; who holds it sees no half of a delta."""
        return self._files.lock

    @property
    def seq(self) -> int:
        """How many deltas the learner has been given."""
        return self._files.seq

    @property
    def readonly(self) -> bool:
        """Whether it was opened to read."""
        return isinstance(self._files, FolderReader)

    def submit(self, delta: Delta) -> DeltaResult:
        """Take a delta in, whole and for good; return what it did.

        A delta whose key was used before is not applied again: what it did then is returned. What
        the learner refuses changes nothing. If the disk is full, ``ResourceError`` says so, nothing
        has changed, and the delta can be sent again. One that could not be applied is set aside,
        and nothing has changed either. After any other error of the disk ``StoppedError`` says so,
        now and later: whether the delta was taken in shows when the folder is opened again and it
        is sent again with its key. Alarms that it raises are written to the log.
        """
        (answer,) = self.submit_many([delta])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit_many(self, deltas: Sequence[Delta]) -> list[DeltaResult | Exception]:
        """Take deltas in, in order; return what each did, or why it was refused.

        One that is refused is refused by itself. Those that can be are applied together and
        written with one wait for the disk; see ``Batch``. So are deltas that several threads
        ``submit`` at the same time.
        """
        return self._writer().waiting.submit(deltas)

    @property
    def waiting(self) -> DeltaQueue:
        """Deltas that wait: ``offer`` one to it, which waits until somebody calls ``serve``."""
        return self._writer(closed=True).waiting

    def upsert(self, delta: Delta) -> Upserted:
        """Take in what is new of a delta and pass over what is known; see ``only_new``.

        It has no key: sent again it counts once, since nothing of it is new then.
        """
        if delta.key is not None:
            raise ConfigurationError(
                f"an upsert takes no key, since it counts once anyway, not {delta.key!r}"
            )
        with self.lock:  # nothing may come between the look and the change
            self._writer()
            new, news = self.learner.only_new(delta)
            if is_empty(new):
                known = self.learner.status().classes
                return Upserted(DeltaResult(seq=self.seq, classes=known), news)
            return Upserted(self.submit(new), news)

    def last_key(self, prefix: str) -> str | None:
        """Return the key of the newest delta whose key begins so, None where there is none.

        A stream that names its deltas by their places finds out how far it was taken in. Nobody
        waits: it is read beside what is being written.
        """
        self._writer()  # refuses where there is none
        with closing(Journal(self.path / JOURNAL_FILE, readonly=True)) as journal:
            return journal.keys.last(prefix)

    def compact(self) -> int:
        """Take a snapshot now, drop deltas that are no longer needed, return its number."""
        return self._writer().compact()

    def compacted(self) -> Purged:
        """Do the same; return how large the folder was and is, too."""
        before = folder_bytes(self.path)
        return Purged(self.compact(), before, folder_bytes(self.path))

    def purge(self, *, keys: bool = False, names: bool = False) -> Purged:
        """Leave the state of now and nothing older: one snapshot, and no delta in the journal.

        What was forgotten has left the folder then, but for what docs/online-durability.md lists
        (its part in medians, scales and word counts of the first table among it), and its places
        have left memory: ``learner`` is another object, which knows the same. A reader that is
        behind begins anew with the snapshot.

        keys: drop all keys of deltas too; one that is sent again then counts as new. names: call
        classes that no node has any more ``dropped-3`` or the like; readers begin anew then.
        """
        return self._writer().purge(keys=keys, names=names)

    def refresh(self) -> int:
        """Follow the writer: apply what was written since, return how many deltas that were."""
        if isinstance(self._files, FolderWriter):
            return 0  # nobody else writes
        return self._files.refresh()

    def status(self) -> FolderStatus:
        """Return how the folder is doing."""
        return self._files.status()

    def close(self) -> None:
        """Finish what is under way and let others write; a second time does nothing."""
        if not self._closed:
            self._closed = True
            self._files.close()

    def _writer(self, *, closed: bool = False) -> FolderWriter:
        """Return what takes changes; closed: also where it does so no more, and will say so."""
        if isinstance(self._files, FolderReader):
            raise ConfigurationError(f"{self.path} was opened with readonly=True: it takes nothing")
        if self._closed and not closed:
            raise StoppedError(f"{self.path} is closed: open it again")
        return self._files


def maker_of(folder: Path, given: Mapping[str, Any] | None = None) -> Callable[[], OnlineLearner]:
    """Return what makes the learner of a folder: as it was made, or where it is new as given.

    given: some of the parameters; those of a folder that is there must be the same.
    """
    given, stored = given or {}, stored_parameters(folder)
    known = defaults(given)
    if stored is not None:
        known = OnlineLearner().parameters | BEFORE | stored
    return partial(made_with, folder, merged(known, given))


def defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a new learner: the f_topo is the choice of the head that is given.

    Where only another number of hops is given, the last of them is kept beside the features.
    """
    name = given.get("head", {}).get("name")
    known = OnlineLearner(head=None if name is None else heads.make(name)).parameters
    topology, asked = known["topology"], given.get("topology", {})
    if "keep" in topology and "hops" in asked:
        topology["keep"] = sorted({0, asked["hops"]})
    return known


def merged(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Lay what was given over what is known; a part of another name begins anew."""
    merged = dict(known)
    for key, value in given.items():
        if key not in known:
            raise ConfigurationError(
                f"a learner has no parameter {key!r}: {did_you_mean(key, known)}"
                f"it takes {', '.join(known)}"
            )
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            same = value.get("name", old["name"]) == old["name"]
            merged[key] = old | value if same else value
        else:
            merged[key] = value
    return merged


def made_with(folder: Path, parameters: Mapping[str, Any]) -> OnlineLearner:
    """Return a learner that has seen nothing; say which file is wrong where none can be made."""
    try:
        return OnlineLearner.from_parameters(parameters)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
        raise DataError(
            f"{folder}: no learner can be made with its parameters ({error}): put its format file "
            "back from a backup"
        ) from error
