"""A service as ``evergraph serve`` runs it: from its options to the application and its end."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli.progress import spinner
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    import socket

    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.online.folder.status import Progress
    from evergraph.server.app import Application
    from evergraph.server.running import Reload


@dataclass(frozen=True)
class Serving:
    """What a service is made of.

    Attributes:
        path: the learner's folder.
        given: parameters of the learner, if the folder is new.
        reload: reads secrets again.
        opening: how the folder is opened, see ``LearnerFolder.of``; ``bounds`` as numbers.
        answering: how requests are answered, see ``create_app``.
        listening: how connections are taken, see ``listen``.
        plugins: modules with parts of one's own.
        threads: of torch.
        read_only: whether the folder is read, and what another process writes to it followed.
    """

    path: Path
    given: dict[str, Any]
    reload: Reload
    opening: dict[str, Any]
    answering: dict[str, Any]
    listening: dict[str, Any]
    plugins: list[str] = field(default_factory=list)
    threads: int = 1
    read_only: bool = False

    def run(self, bound: socket.socket) -> None:
        """Serve until told to stop; raise where there is nothing to serve."""
        from evergraph.server.running import listen
        from evergraph.server.startup import Starting

        starting = Starting(self.application)
        listen(starting, bound, reload=self.reload, **self.listening)
        if starting.failed is not None:
            raise starting.failed
        if starting.abandoned:
            # A thread is still at work, and the interpreter would wait for what it holds. The
            # folder is as after a crash: everything acknowledged is in its journal.
            logging.shutdown()
            os._exit(0)
        if starting.state.failed.is_set():  # the log has said why
            raise typer.Exit(1)

    def application(self, progress: Progress) -> Application:
        """Open the folder, and return what answers from it; in a thread, while the service says so.

        progress: told how far the recovery is.
        """
        with spinner("loading torch"):
            import torch

            from evergraph.server.app import create_app

            torch.set_num_threads(self.threads)
            load_plugins(self.plugins)
        return create_app(self._opened(progress), **self.answering)

    def _opened(self, progress: Progress) -> LearnerFolder:
        from evergraph.online.bounds import Bounds
        from evergraph.online.folder.learner_folder import LearnerFolder

        opening = self.opening | {"progress": progress, "bounds": Bounds(*self.opening["bounds"])}
        return LearnerFolder.of(self.path, self.given, readonly=self.read_only, **opening)
