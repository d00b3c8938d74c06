"""Tokens and certificates read again while a service runs, on SIGHUP."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from evergraph.core.errors import EvergraphError
from evergraph.server.tokens import CurrentTokens, read_tokens

if TYPE_CHECKING:
    from evergraph.server.tls import Tls

log = logging.getLogger(__name__)


@dataclass
class Reloading:
    """What is read again; all of it, or where a file is wrong nothing.

    Attributes:
        token_file: who may read and write.
        tokens: those in use.
        tls: the certificate in use.
    """

    token_file: Path | None = None
    tokens: CurrentTokens | None = None
    tls: Tls | None = None
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __call__(self) -> None:
        """Read them again; what is wrong is said in the log, and changes nothing."""
        with self._lock:
            try:
                said = self._read()
            except EvergraphError as error:
                log.error("nothing was reloaded: %s", error)
                return
            log.info("reloaded %s" if said else "there is nothing to reload%s", " and ".join(said))

    def _read(self) -> list[str]:
        tokens = None if self.token_file is None else read_tokens(self.token_file)
        context = None if self.tls is None else self.tls.read()
        said = []
        if tokens is not None and self.tokens is not None:
            self.tokens.now = tokens
            said.append(f"{len(tokens)} tokens")
        if context is not None and self.tls is not None:
            self.tls.context = context
            said.append("the certificate")
        return said
