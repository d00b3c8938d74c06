"""A learner to talk to: in a folder, or behind a service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from evergraph.core.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from evergraph.online.codecs.tables import TableDeltas
    from evergraph.online.delta import Delta, NodeId
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.tokens import Scope


class Target(Protocol):
    """What the commands need of a learner."""

    def unknown(self, deltas: TableDeltas) -> tuple[TableDeltas, int]:
        """Return deltas without edges that are known, as far as that takes no asking."""
        ...

    def upsert(self, delta: Delta) -> dict[str, Any]:
        """Have what is new of a change taken in."""
        ...

    def predict(self, ids: Sequence[NodeId]) -> list[dict[str, Any]]:
        """Return id, label and probability of nodes."""
        ...

    def status(self) -> dict[str, Any]:
        """Return what the learner knows, in numbers."""
        ...


@contextmanager
def opened(
    target: str, *, token_file: Path | None, scope: Scope, given: dict[str, Any] | None = None
) -> Iterator[Target]:
    """Open a folder, or say where a service is.

    scope: what is to be done with it; given: parameters of a learner that is to be made.
    """
    from evergraph.server.client import Client, is_url

    if is_url(target):
        yield Client(target, token=_token(token_file, scope))
        return
    if token_file is not None:
        raise ConfigurationError(f"--token-file is for a service, and {target} is a folder")
    with open_folder(Path(target), given or {}, readonly=scope == "read") as folder:
        yield InFolder(folder)


def open_folder(path: Path, given: dict[str, Any], *, readonly: bool) -> LearnerFolder:
    """Open a folder whose learner is as it was made, or as ``given`` says where it is new."""
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.online.folder.markers import stored_parameters
    from evergraph.online.learner import OnlineLearner

    stored = stored_parameters(path) or {}
    parameters = _merged(OnlineLearner().parameters | stored, given)
    make = lambda: OnlineLearner.from_parameters(parameters)  # noqa: E731
    return LearnerFolder.open(path, make=make, readonly=readonly)


class InFolder:
    """A learner in a folder."""

    def __init__(self, folder: LearnerFolder) -> None:
        self._folder = folder

    def unknown(self, deltas: TableDeltas) -> tuple[TableDeltas, int]:
        """Return deltas without edges that are known, and how many; refuse edges to nowhere."""
        learner = self._folder.learner
        deltas.check_known(learner.knows_nodes)
        return deltas.without_known_edges(learner.knows_edges)

    def upsert(self, delta: Delta) -> dict[str, Any]:
        """Have what is new of a change taken in."""
        done = self._folder.upsert(delta)
        return asdict(done.applied) | {"news": asdict(done.news)}

    def predict(self, ids: Sequence[NodeId]) -> list[dict[str, Any]]:
        """Return id, label and probability of nodes."""
        told = self._folder.learner.answer(ids).predictions
        return [{"id": p.id, "label": p.label, "probability": p.probability} for p in told]

    def status(self) -> dict[str, Any]:
        """Return what the learner knows, in numbers."""
        return asdict(self._folder.learner.status())


def _merged(known: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Lay what was typed over what is known; another name begins anew."""
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


def _token(path: Path | None, scope: Scope) -> str | None:
    """Return the first token of a file that will do."""
    if path is None:
        return None
    from evergraph.server.tokens import read_tokens

    found = [token for held, token in read_tokens(path).listed if held in (scope, "write")]
    if not found:
        raise ConfigurationError(f"{path}: must list a token that may {scope}, and has none")
    return found[0]
