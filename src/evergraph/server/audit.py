"""Who changed what, and who was turned away: a line of the log for each."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import Request

    from evergraph.online.delta import Delta

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


def audit_change(request: Request, delta: Delta, seq: int, seconds: float) -> None:
    """Write down a change that was taken in: by whom, how large, under which number.

    seconds: since the request came. Counts are of what was sent; those that are 0 are left out.
    """
    counts = {
        "nodes": len(delta.nodes),
        "edges": len(delta.edges),
        "labels": len(delta.labels) - delta.labels.count(None) + len(delta.late),
        "updated": len(delta.updated),
        "removed_edges": len(delta.removed_edges),
        "forgotten": len(delta.forgotten),
    }
    client = request.client
    audit(
        "change",
        route=request.url.path,
        seq=seq,
        key=delta.key,
        **{name: count for name, count in counts.items() if count},
        seconds=round(seconds, 4),
        address="?" if client is None else client.host,
    )
