"""The learner that a command uses: in a folder, or behind a service."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union, cast

import typer

from evergraph.cli.output import spinner
from evergraph.core.errors import ConfigurationError, DataError, LockedError
from evergraph.core.packages import load_plugins, require
from evergraph.server.client import Client, is_url

if TYPE_CHECKING:
    from evergraph.online.codecs.table_deltas import TableDeltas
    from evergraph.online.delta import Delta, EdgeColumns, Label, NodeId
    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.server.auth import Scope
    from evergraph.tables import Scheme
    from evergraph.tables.sources import Source

LOADING = "loading torch and the learner"
FORMAT_FILE = "evergraph-learner.json"  # of ``folder.markers``, which imports torch
# Both have the methods that the commands call.
Target: TypeAlias = Union["_InFolder", "Client"]


def is_learner(folder: Path) -> bool:
    """Whether a folder holds a learner."""
    return (folder / FORMAT_FILE).is_file()


@dataclass(frozen=True)
class Access:
    """How a command reaches a learner: its options for one that a service keeps."""

    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a token that the service accepts for this (default: none)."),
    ] = None
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="PEM file of the authority that signed an https service's certificate "
            "(default: the system's authorities).",
        ),
    ] = None

    def client(self, url: str, scope: Scope) -> Client:
        """Return a client of a service, with a token for what is needed."""
        return Client(url, token=token_for(self.token_file, scope), ca=self.ca)

    def check_folder(self, folder: str) -> None:
        """Raise if an option is given that a folder has no use for."""
        for option, value in (("--token-file", self.token_file), ("--ca", self.ca)):
            if value is not None:
                raise ConfigurationError(f"{option} is for a service, and {folder} is a folder")

    @contextmanager
    def open_or_create(
        self, target: str, scope: Scope, parameters: dict[str, Any] | None = None
    ) -> Iterator[Target]:
        """Open a learner's folder, which is created if it is missing, or a client of a service.

        scope: access needed, read or write; given: parameters if the learner is new
        """
        if is_url(target):
            yield self.client(target, scope)
            return
        self.check_folder(target)
        from evergraph.online.folder.learner_folder import LearnerFolder

        with advising("if it is a service, give its URL"):
            folder = LearnerFolder.open(target, parameters, readonly=scope == "read")
        with folder:
            yield _InFolder(folder)

    @contextmanager
    def open(
        self,
        target: str,
        scope: Scope = "read",
        *,
        plugins: Sequence[str] = (),
        doing: str | None = None,
    ) -> Iterator[Target]:
        """Open a learner that exists, with a spinner; doing: its words."""
        load_plugins(plugins)
        with spinner(doing or ("querying" if is_url(target) else LOADING)):
            if not is_url(target):
                self.check_folder(target)
                from evergraph.online.folder.markers import stored_parameters

                if stored_parameters(Path(target)) is None:
                    raise DataError(f"{target} holds no learner: evergraph ingest creates one")
            with self.open_or_create(target, scope) as learner:
                yield learner


@contextmanager
def advising(advice: str) -> Iterator[None]:
    """Say what to do about a locked folder in the words of the command line, not of Python."""
    try:
        yield
    except LockedError as error:
        sentence = re.sub("open (the folder|it) with readonly=True", advice, str(error))
        raise LockedError(sentence) from None


class _InFolder:
    """A learner in a folder, with the methods of ``Client``, which describes them."""

    def __init__(self, folder: LearnerFolder) -> None:
        self._folder = folder
        self.last_key = folder.last_key

    def knows_nodes(self, ids: Sequence[NodeId]) -> Sequence[bool]:
        return self._folder.learner.knows_nodes(ids)

    def edges_beyond(self, *dump: Any) -> tuple[EdgeColumns, int]:
        return self._folder.learner.edges_beyond(*dump)

    def check(self, deltas: TableDeltas) -> None:
        deltas.check_known(self._folder.learner.knows_nodes)

    def upsert(self, delta: Delta) -> dict[str, Any]:
        done = self._folder.upsert(delta)
        return asdict(done.applied) | {"news": asdict(done.news)}

    def predict(
        self, ids: Sequence[NodeId], *, every_class: bool = False, known: bool = False
    ) -> list[dict[str, Any]]:
        answer, targets = self._folder.learner.answer_beside_known(ids, every_class=every_class)
        predictions = map(asdict, answer.predictions)
        return [row | {"known": target} for row, target in zip(predictions, targets, strict=True)]

    def ask(self, delta: Delta, *, every_class: bool = False) -> list[dict[str, Any]]:
        return [*map(asdict, self._folder.learner.ask(delta, every_class=every_class).predictions)]

    def columns(self) -> Scheme | None:
        return self._folder.columns

    def every_id(self) -> list[NodeId]:
        return self._folder.learner.every_id()

    def classes(self) -> list[Label]:
        return list(self._folder.learner.classes)

    def submit(self, delta: Delta) -> dict[str, Any]:
        return asdict(self._folder.submit(delta))

    def suggest(self, n: int) -> list[dict[str, Any]]:
        from evergraph.server.schema import to_json

        return [to_json(suggestion) for suggestion in self._folder.learner.suggest(n)]

    def explain(
        self, node: str, *, integer: bool, limit: int, table: Source | None = None
    ) -> dict[str, Any]:
        from evergraph.server.schema import CLASSES, to_json
        from evergraph.tables.chunks import read_table
        from evergraph.tables.columns import as_whole, ids
        from evergraph.tables.nodes import texts_of
        from evergraph.tables.sources import naming

        learner, node_id = self._folder.learner, cast("NodeId", node)
        if integer or not learner.knows_nodes([node])[0]:  # then it may be an integer id
            with suppress(ValueError):
                node_id = int(node)
        scheme = self._folder.columns
        columns, values = () if scheme is None else scheme.columns_of_features, None
        if table is not None and scheme is not None:
            with naming(table):
                rows = read_table(table, ("id",), text=texts_of(scheme))
                if isinstance(node_id, int):
                    integer_ids = as_whole(ids(rows, "id"), "id")
                    rows = rows.set_column(rows.column_names.index("id"), "id", integer_ids)
                values = scheme.values_in(rows)
        options: dict[str, Any] = {"top": CLASSES, "limit": limit, "columns": columns}
        explanation: dict[str, Any] = to_json(learner.explain(node_id, **options, values=values))
        return explanation

    def status(self) -> dict[str, Any]:
        return asdict(self._folder.status()) | asdict(self._folder.learner.status())

    def alarms(self) -> list[dict[str, Any]]:
        return [asdict(alarm) for alarm in self._folder.learner.alarms()]

    def refit(self) -> dict[str, Any]:
        from evergraph.online.delta import Delta

        return self.submit(Delta(refit=True))

    def compact(self, *, now: bool, keys: bool) -> dict[str, Any]:
        folder = self._folder
        return asdict(folder.purge(keys=keys) if now else folder.compacted())


def token_for(path: Path | None, scope: Scope) -> str | None:
    """Return the first token of a file that grants a scope."""
    if path is None:
        return None
    require("fastapi", extra="serve", why="--token-file")
    from evergraph.server.auth import RIGHTS, read_tokens

    tokens = [token for granted, token in read_tokens(path).listed if scope in RIGHTS[granted]]
    if not tokens:
        raise ConfigurationError(f"{path} must list a token with scope {scope}, and has none")
    return tokens[0]
