"""Telling a service manager how a process does, as systemd's ``sd_notify`` does."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

SELDOM = 5.0  # seconds between two words where no watchdog asks for more
PATIENCE = 1.0  # seconds for a manager that has much to read
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notifier:
    """Sends what is told to the socket of a service manager; to nobody where there is none.

    Attributes:
        address: of the socket; ``@`` begins one that has no file.
        watchdog: seconds within which a process must say that it lives; None: it need not.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    >>> manager.bind(f"{folder.name}/notify")
    >>> told = {"NOTIFY_SOCKET": f"{folder.name}/notify", "WATCHDOG_USEC": "3000000"}
    >>> notifier = Notifier.of(told)
    >>> notifier.tell(READY=1, STATUS="ready")
    >>> manager.recv(100), notifier.pause
    (b'READY=1\\nSTATUS=ready', 1.0)
    >>> manager.close(), folder.cleanup()
    (None, None)
    """

    address: str | None = None
    watchdog: float | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Notifier:
        """Return the one that a service manager has asked for."""
        for_us = environment.get("WATCHDOG_PID") in (None, str(os.getpid()))
        interval = environment.get("WATCHDOG_USEC", "") if for_us else ""
        watchdog = int(interval) / 1e6 if interval.isdigit() and int(interval) else None
        return cls(environment.get("NOTIFY_SOCKET") or None, watchdog)

    @property
    def pause(self) -> float:
        """Seconds between two words: a third of what the watchdog allows."""
        return SELDOM if self.watchdog is None else min(SELDOM, self.watchdog / 3)

    def tell(self, **facts: object) -> None:
        """Send some facts; that nobody listens is no reason to stop."""
        if self.address is None:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        told = "\n".join(f"{name}={value}" for name, value in facts.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(PATIENCE)
                line.sendto(told.encode(), address)
        except OSError as error:
            log.debug("the service manager does not listen: %s", error)
