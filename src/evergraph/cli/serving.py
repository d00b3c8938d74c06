"""A service as ``evergraph serve`` runs it: from its options to the application and its end."""

from __future__ import annotations

import logging
import os
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evergraph.cli.learner_target import token_for
from evergraph.cli.progress import spinner
from evergraph.core.plugins import load_plugins

if TYPE_CHECKING:
    import socket

    from evergraph.online.folder.learner_folder import LearnerFolder
    from evergraph.online.folder.replaying import Progress
    from evergraph.server.app import Application
    from evergraph.server.leader import Leader
    from evergraph.server.reloading import Reloading
    from evergraph.server.replicas import Replicas


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
        follow: URL of a service to keep up with; None: none.
        ca: PEM file of the authority that signed that one's certificate.
    """

    path: Path
    given: dict[str, Any]
    reload: Reloading
    opening: dict[str, Any]
    answering: dict[str, Any]
    listening: dict[str, Any]
    plugins: list[str] = field(default_factory=list)
    threads: int = 1
    follow: str | None = None
    ca: Path | None = None

    def run(self, bound: socket.socket, others: Replicas | None = None) -> None:
        """Serve until told to stop; raise where there is nothing to serve."""
        from evergraph.server.listening import listen
        from evergraph.server.starting import Starting

        starting = Starting(partial(self.application, others))
        with nullcontext() if others is None else closing(others):
            listen(starting, bound, others=others, reload=self.reload, **self.listening)
        if starting.failed is not None:
            raise starting.failed
        if starting.abandoned:
            # A thread is still at work, and the interpreter would wait for what it holds. The
            # folder is as after a crash: everything acknowledged is in its journal.
            logging.shutdown()
            os._exit(0)
        if starting.state.following is not None and starting.state.following.failed:
            raise typer.Exit(1)

    def application(self, others: Replicas | None, progress: Progress) -> Application:
        """Open the folder, and return what answers from it; in a thread, while the service says so.

        others: processes that answer beside this one; progress: told how far the recovery is.
        """
        with spinner("loading torch"):
            import torch

            from evergraph.server.app import create_app

            torch.set_num_threads(self.threads)
            load_plugins(self.plugins)
        leader = self._leader()
        folder = self._opened(leader, progress)
        place = None
        if others is not None:
            others.start()
            place = others.place
        return create_app(folder, leader=leader, place=place, **self.answering)

    def _leader(self) -> Leader | None:
        from evergraph.server.leader import Leader

        if self.follow is None:
            return None
        leader = Leader(self.follow, self._token(), ca=self.ca)

        def ask_with_another_token(_: object) -> None:
            leader.token = self._token()

        self.reload.then.append(ask_with_another_token)
        return leader

    def _token(self) -> str | None:
        return token_for(self.reload.token_file, "follow")

    def _opened(self, leader: Leader | None, progress: Progress) -> LearnerFolder:
        from evergraph.online.bounds import Bounds
        from evergraph.online.folder.learner_folder import LearnerFolder
        from evergraph.server.leader import follower_folder

        opening = self.opening | {"progress": progress, "bounds": Bounds(*self.opening["bounds"])}
        if leader is None:
            return LearnerFolder.of(self.path, self.given, **opening)
        return follower_folder(self.path, leader, **opening)
