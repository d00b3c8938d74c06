"""Verification of a learner's folder: every file, and that deltas and graphs give its snapshots.

``skip`` leaves out deltas by hand if a folder cannot be opened because of them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.core.errors import ConfigurationError, DataError, EvergraphError
from evergraph.core.safe_files import LOCK_FILE, is_held, left_beside, sync
from evergraph.graphs import UNLABELLED
from evergraph.online.arrays import KeptArrays
from evergraph.online.delta import DeltaResult
from evergraph.online.folder import markers, recovery, snapshot
from evergraph.online.folder.journal import JOURNAL_FILE, NOTHING, Journal, JournalEntry, SetAside
from evergraph.online.folder.learner_folder import LearnerFolder, maker_of
from evergraph.online.folder.markers import ACKNOWLEDGED_FILE, COLUMNS_FILE, FORMAT_FILE
from evergraph.online.folder.recovery import Make
from evergraph.online.folder.snapshot import ABOUT, MANIFEST, NAME, STATE, Snapshot, snapshots_in
from evergraph.online.folder.sqlite_file import check_journal
from evergraph.online.graph.growing_graph import GraphChange
from evergraph.online.graph.live_embeddings import NODES_PER_BLOCK
from evergraph.online.graph.live_vectors import LiveCodes
from evergraph.online.knowledge import Knowledge
from evergraph.online.learner import OnlineLearner

KNOWN = {FORMAT_FILE, COLUMNS_FILE, JOURNAL_FILE, ACKNOWLEDGED_FILE, LOCK_FILE}
KNOWN |= {f"{JOURNAL_FILE}-wal", f"{JOURNAL_FILE}-shm"}
IN_SNAPSHOT = {STATE, ABOUT, MANIFEST}
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finding:
    """A fault."""

    file: str  # in the folder; ``learner`` if it cannot be recovered
    what: str  # one sentence


def checkup(
    folder: Path, *, quick: bool = False, deep: bool = False, on_progress: OnProgress | None = None
) -> list[Finding]:
    """Return all faults of a folder, to which another process may write; nothing is changed.

    quick: check files only. Otherwise deltas after the oldest snapshot are applied again, and the
    learner is recovered, which takes about as long. deep: compute what every snapshot keeps beside
    graph and labels anew, see ``differing``; this takes as long as learning everything at once.
    """
    if not folder.is_dir() or markers.stored_parameters(folder) is None:
        raise DataError(f"{folder} holds no learner: there is no {FORMAT_FILE}")
    written = is_held(folder / LOCK_FILE)
    findings = [*_listed(folder, written=written)]
    acknowledged = None
    try:
        # First, as the journal may grow.
        acknowledged = markers.acknowledged_in(folder / ACKNOWLEDGED_FILE)
    except DataError as error:
        findings.append(_finding(folder, error, ACKNOWLEDGED_FILE))
    on_delta = None if on_progress is None else partial(on_progress, "verify")
    sentences = check_journal(folder / JOURNAL_FILE, on_delta)
    findings += [Finding(JOURNAL_FILE, sentence) for sentence in sentences]
    snapshots = []
    for _, path in snapshots_in(folder):
        try:
            snapshots.append(snapshot.read_snapshot(path))
        except DataError as error:
            if path.exists():  # else it has been replaced meanwhile
                findings.append(_finding(folder, error, path.name))
    if acknowledged is not None and not any(finding.file == JOURNAL_FILE for finding in findings):
        findings += _ends(folder, acknowledged, written=written)
    if deep:
        findings += _recomputed(maker_of(folder), snapshots)
    if not quick:
        findings += _learner(folder, maker_of(folder), snapshots, sound=not findings)
    return findings


def _finding(folder: Path, error: Exception, file: str) -> Finding:
    """Return an error about a file as a finding, without the path of the folder."""
    text = str(error).replace(f"{folder}{os.sep}", "")
    return Finding(file, text.removeprefix(f"{file}: "))


def _listed(folder: Path, *, written: bool) -> Iterator[Finding]:
    """Check names and permissions; temporary files are fine while a process writes."""
    for path in sorted(folder.iterdir()):
        files_inside: list[Path] = []
        with suppress(FileNotFoundError, NotADirectoryError):  # a snapshot may go meanwhile
            files_inside = sorted(path.iterdir()) if NAME.fullmatch(path.name) else []
        if path.name.startswith("."):
            if not written:
                yield Finding(path.name, "was left by a killed process")
        elif not files_inside and path.name not in KNOWN and path.exists():
            yield Finding(path.name, "does not belong to a learner's folder")
        for file in (path, *files_inside):
            name = str(file.relative_to(folder))
            if file.is_symlink():
                yield Finding(name, "is a symbolic link, which evergraph never writes")
            if file != path and file.name not in IN_SNAPSHOT:
                yield Finding(name, "does not belong to a snapshot")
            try:
                mode = file.stat().st_mode
            except FileNotFoundError:  # SQLite's files come and go
                continue
            if mode & stat.S_IWOTH:
                yield Finding(name, f"may be written by everybody (mode {stat.S_IMODE(mode):o})")
            if not os.access(file, os.R_OK):
                yield Finding(name, "may not be read by this user")
    for path in left_beside(folder):
        sentence = "was left by a killed backup: opening a folder beside it for writing removes it"
        yield Finding(f"../{path.name}", sentence)
    if not (folder / ACKNOWLEDGED_FILE).exists():
        yield Finding(
            ACKNOWLEDGED_FILE, "is missing: the loss of the journal's end would go unnoticed"
        )
    try:
        markers.stored_columns(folder)
    except DataError as error:
        yield _finding(folder, error, COLUMNS_FILE)
    except EvergraphError:
        return  # custom columns, whose encoder is not available here


def _ends(folder: Path, acknowledged: int, *, written: bool) -> Iterator[Finding]:
    """Compare the ends of the journal with the acknowledged number and the snapshots."""
    with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
        first, last = journal.first(), journal.last()
    numbers = [number for number, _ in snapshots_in(folder)]
    if acknowledged > last:
        yield Finding(JOURNAL_FILE, f"ends with delta {last}, but {acknowledged} were acknowledged")
    if acknowledged < last and not written and (folder / ACKNOWLEDGED_FILE).exists():
        yield Finding(
            ACKNOWLEDGED_FILE,
            f"holds {acknowledged}, and the journal ends with delta {last}: a process was killed "
            "between the two, or the file is old; opening the folder for writing repairs it",
        )
    if numbers and numbers[0] > last and not written:
        yield Finding(JOURNAL_FILE, f"ends with delta {last}, before snapshot-{numbers[0]}")
    if first > 1 and not any(number + 1 >= first for number in numbers):
        yield Finding(JOURNAL_FILE, f"begins with delta {first}, and no snapshot holds the rest")


def _recomputed(make: Make, snapshots: list[Snapshot]) -> Iterator[Finding]:
    """Compute the arrays of every snapshot from its graph and labels."""
    for restored in snapshots:
        name = f"snapshot-{restored.seq}"
        try:
            learner = make()
            learner.restore(restored.state, restored.about)
            differing_arrays = [*differing(learner)]
        except Exception as error:
            yield Finding(name, f"cannot be computed anew ({error})")
            continue
        if differing_arrays:
            names = ", ".join(differing_arrays)
            yield Finding(name, f"holds what its graph and labels do not give ({names})")


def _learner(
    folder: Path, make: Make, snapshots: list[Snapshot], *, sound: bool
) -> Iterator[Finding]:
    """Apply the deltas between snapshots again, and recover the learner."""
    for newer, older in pairwise(snapshots):
        yield from _replayed(folder, make, older, newer)
    try:
        with LearnerFolder.open(folder, make=make, readonly=True) as opened:
            width = opened.learner.status().features
    except Exception as error:
        if sound or not isinstance(error, DataError):  # else it has been reported
            yield _finding(folder, error, "learner")
        return
    try:
        scheme = markers.stored_columns(folder)
    except EvergraphError:
        return  # reported already, or with a custom encoder
    if scheme is not None and width and scheme.width != width:
        yield Finding(COLUMNS_FILE, f"gives {scheme.width} features, and the learner has {width}")


def _replayed(folder: Path, make: Make, older: Snapshot, newer: Snapshot) -> Iterator[Finding]:
    """Apply the deltas between two snapshots to the older one, and compare it with the newer."""
    name = f"snapshot-{newer.seq}"
    try:
        learner = make()
        learner.restore(older.state, older.about)
        with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
            for batch in journal.batches_after(older.seq):
                if batch[-1].seq <= newer.seq:
                    results = recovery.apply_entries(learner, journal, batch)
                    yield from _results(journal, batch, results)
        state = learner.state()
    except Exception as error:
        # Unless deltas in between were dropped, or are damaged, which has been reported.
        if isinstance(error, recovery.UnappliedError) or not isinstance(error, DataError):
            yield Finding(name, f"or snapshot-{older.seq} cannot be restored ({error})")
        return
    common = state.keys() & newer.state.keys()
    differing_arrays = {array for array in common if not _same(state[array], newer.state[array])}
    differing_arrays |= state.keys() ^ newer.state.keys()
    if differing_arrays:
        first_three = ", ".join(sorted(differing_arrays)[:3])
        yield Finding(name, f"differs from snapshot-{older.seq} plus the journal ({first_three})")


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two arrays are equal; NaN, which stands for what is not known, equals NaN."""
    return np.array_equal(one.numpy(), other.numpy(), equal_nan=one.is_floating_point())


def _results(
    journal: Journal, batch: Sequence[JournalEntry], results: Sequence[DeltaResult]
) -> Iterator[Finding]:
    """Compare the results of deltas with those that are kept with their keys."""
    for entry, result in zip(batch, results, strict=True):
        known = None if entry.key is None else journal.keys.known(entry.key, entry.data)
        if known is not None and known[1] != json.dumps(vars(result), sort_keys=True):
            sentence = f"the result of key {entry.key!r} is not what delta {entry.seq} gives"
            yield Finding(JOURNAL_FILE, sentence)


def skip(folder: Path, *seqs: int, why: str) -> list[SetAside]:
    """Set deltas aside, as if they had been empty; why: a sentence that is kept with them.

    Their numbers stay in use, their keys become free again. First all later deltas are applied
    without them to a temporary learner: if that fails, nothing is changed. Snapshots that include
    the deltas are removed; an older one must exist, or a journal that begins with delta 1.
    """
    if not why.strip():
        raise ConfigurationError("why must give a reason for leaving out a delta, and is empty")
    for name in (FORMAT_FILE, JOURNAL_FILE):
        if not (folder / name).exists():
            raise DataError(f"{folder} holds no learner: there is no {name}")
    make = maker_of(folder)
    with markers.lock_folder(folder):
        _check_without(folder, make, frozenset(seqs))
        # Snapshots first, so that a process killed in between leaves an unchanged learner.
        for number, path in snapshots_in(folder):
            if number >= min(seqs):
                snapshot.remove_snapshot(path)
        sync(folder)  # so that they stay removed after a power cut
        with closing(recovery.open_journal(folder, make)) as journal:
            journal.aside.skip(dict.fromkeys(sorted(set(seqs)), why))
            return journal.aside.listed()[-len(set(seqs)) :]


def listed(folder: Path) -> list[SetAside]:
    """Return the deltas set aside in a folder; [] if its journal cannot be read."""
    try:
        with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
            return journal.aside.listed()
    except DataError:
        return []


def _check_without(folder: Path, make: Make, seqs: Collection[int]) -> None:
    """Raise unless a learner can be recovered without these deltas; change nothing."""
    with closing(Journal(folder / JOURNAL_FILE, readonly=True)) as journal:
        first, last = journal.first(), journal.last()
        known = {entry.seq for entry in journal.aside.listed()}
        for seq in sorted(seqs):
            if not first <= seq <= last:
                hint = ": only snapshots hold it, forget its nodes instead" if seq < first else ""
                range_held = f"holds deltas {first} to {last}, not" if 0 < first <= last else None
                raise DataError(f"{journal.path}: {range_held or 'holds no delta'} {seq}{hint}")
            if seq in known and next(journal.after(seq - 1)).data == NOTHING:
                raise DataError(f"{journal.path}: delta {seq} was left out already")
        # Damaged snapshots are reported when the folder is opened.
        learner, begun = recovery.restore_newest(folder, make, before=min(seqs), damaged=[])
        if not begun and first > 1:
            raise DataError(
                f"{folder}: delta {min(seqs)} cannot be left out, since there is no snapshot from "
                f"before it and the journal begins with delta {first}: forget its nodes instead"
            )
        try:
            for batch in journal.batches_after(begun):
                remaining = [
                    replace(entry, data=NOTHING, key=None) if entry.seq in seqs else entry
                    for entry in batch
                ]
                recovery.apply_entries(learner, journal, remaining)
        except recovery.UnappliedError as error:
            numbers = ", ".join(map(str, sorted(seqs)))
            words = " ".join(f"--skip {seq}" for seq in sorted({*seqs, error.first}))
            raise DataError(
                f"{folder}: without delta{'s' if len(seqs) > 1 else ''} {numbers}, {error.name} "
                f"cannot be applied ({error.why}): leave that out as well with {words}, or restore "
                "the folder from a backup; nothing was changed"
            ) from error


# Shares of a row's largest value, and of the largest of all: what rounding may differ by.
CLOSE, FLOOR = 1e-4, 1e-6
# Which rows of codes are sums without a node's own depends on the order in which a graph came.
OF_ORDER = ("subtracted", "bare")
SUMS = ("sums", "mass", "counts", "gram", "cross")


def differing(learner: OnlineLearner) -> Iterator[str]:
    """Yield the names of arrays that graph, labels, landmarks and penalties do not give.

    Embeddings, class codes and shapes are computed from the graph, sums from the vectors that
    labelled nodes are counted as, and weights from the sums, unless these wait to be solved. What
    is kept along relations, and the landmarks, are taken as they are.

    >>> from evergraph.online.delta import Delta
    >>> learner = OnlineLearner()
    >>> _ = learner.apply(Delta(nodes="ab", features=torch.eye(2), labels="xy", edges=["ab"]))
    >>> list(differing(learner))
    []
    >>> learner.knowledge.embeddings.kept["state_1"].tensor[0, 0] += 0.01
    >>> list(differing(learner))
    ['embeddings.state_1']
    """
    known = learner.knowledge
    if known is None:
        return
    other = OnlineLearner(**learner.parameters)
    options: dict[str, Any] = {"related": known.relations is not None, "words": known.word_columns}
    fresh = other._begun(known.graph.num_features, **options)
    yield from _vectors(known, fresh)
    labelled = (known.labels.every != UNLABELLED).nonzero().flatten()
    counts = torch.bincount(known.labels.of(labelled), minlength=len(known.labels.counts_))
    if not counts.equal(known.labels.counts_):
        yield "labels.counts"
    other.head.register(list(known.classes))
    other.head.grow(len(known.classes))
    other.head.use_landmarks_of(learner.head)
    moved = 0
    for nodes in labelled.split(NODES_PER_BLOCK):
        moved += len(known.counted.moved(nodes, known.pieces).places)
        other.head.learn(known.counted.of(nodes), known.labels.of(nodes))
    if moved:
        yield "counted.rows"
    stored, recomputed = learner.head.state(), other.head.state()
    sums = sorted(name for name in stored.keys() | recomputed.keys() if name.split(".")[-1] in SUMS)
    differing_sums = [
        f"head.{name}" for name in sums if not _close(stored.get(name), recomputed.get(name))
    ]
    yield from differing_sums
    engine = learner.head.engine
    if not differing_sums and engine.solved and len(engine.strengths_):
        for place, share in enumerate(engine.fused_.weights):
            if not _close(engine.heads_[place], engine.solution(place).weights * share):
                yield f"head.view_{place}.weights"


def _vectors(known: Knowledge, fresh: Knowledge) -> Iterator[str]:
    """Compute what the vectors of nodes are made of from the graph, and compare it."""
    graph, labels = known.graph, known.labels
    nodes, removed = (mask.nonzero().flatten() for mask in (graph.alive, ~graph.alive))
    change = GraphChange(new=nodes, removed=removed)
    pairs: list[tuple[str, KeptArrays, KeptArrays]] = []
    fresh.graph.restore(graph.state())
    fresh.embeddings.update(change)
    pairs.append(("embeddings", known.embeddings, fresh.embeddings))
    if known.shape is not None and fresh.shape is not None:
        fresh.shape.update(change)
        pairs.append(("shape", known.shape, fresh.shape))
    if known.codes is not None and fresh.codes is not None:
        fresh.codes.relations = known.relations
        fresh.codes.name(list(known.classes))
        fresh.codes.update(change, nodes, labels.of(nodes))
        pairs.append(("codes", known.codes, fresh.codes))
    for name, stored_part, fresh_part in pairs:
        stored, recomputed = _arrays(stored_part), _arrays(fresh_part)
        yield from (f"{name}.{key}" for key in stored if not _close(stored[key], recomputed[key]))


def _arrays(part: KeptArrays) -> dict[str, Tensor]:
    stored = part.kept.items()
    arrays = {key: array.tensor for key, array in stored if key not in OF_ORDER}
    if isinstance(part, LiveCodes):
        arrays["state_2"] = part.of(torch.arange(len(arrays["state_2"])))
    return arrays


def _close(stored: Tensor | None, recomputed: Tensor | None) -> bool:
    """Whether two arrays have the same shape, and rows that differ by rounding; never with NaN."""
    if stored is None or recomputed is None or stored.shape != recomputed.shape:
        return False
    if not stored.numel():
        return True
    rows, others = (array.double().reshape(len(array), -1) for array in (stored, recomputed))
    allowed = CLOSE * others.abs().amax(1, keepdim=True) + FLOOR * others.abs().max()
    return bool(((rows - others).abs() <= allowed).all())
