"""Who changed what, and who was turned away: a line of the log for each."""

from __future__ import annotations

import logging

log = logging.getLogger("evergraph.audit")


def audit(event: str, *, level: int = logging.INFO, **facts: object) -> None:
    """Write down that something happened that an operator may be asked about later.

    event: a few words, always the same for the same kind of event. facts: by name, as JSON can
    hold them; never a token, and nothing that a node holds.

    >>> with_tests = logging.StreamHandler(__import__("sys").stdout)
    >>> log.addHandler(with_tests)
    >>> audit("token refused", level=logging.WARNING, address="192.0.2.7")
    token refused address='192.0.2.7'
    >>> log.removeHandler(with_tests)
    """
    told = " ".join(f"{name}={value!r}" for name, value in facts.items())
    log.log(level, "%s", f"{event} {told}".strip(), extra={"event": event, "facts": facts})
