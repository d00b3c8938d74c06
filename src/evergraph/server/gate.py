"""Places for connections: how many there are, for whom, and who gives way where none is left."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterator, Sequence

RESERVE = 32  # places beside all others, for questions after the service's health
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Line:
    """One connection, from the moment it is accepted.

    Attributes:
        group: those of the same address.
        health: whether it may only ask how the service does.
        since: when it began to wait.
        drop: ends it.
        left: whether its place was given to another.
    """

    __slots__ = ("drop", "group", "health", "left", "since")

    def __init__(self, group: Group, drop: Callable[[], None], *, health: bool) -> None:
        self.group = group
        self.drop = drop
        self.health = health
        self.since = 0.0
        self.left = False


class Group:
    """Connections that are counted together, and those among them that nobody answers just now.

    Attributes:
        count: how many there are.
        silent: those that owe the head of a request, the oldest first.
        idle: those whose last request was answered, the oldest first.
    """

    __slots__ = ("count", "idle", "name", "silent")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.count = 0
        self.silent: dict[Line, None] = {}
        self.idle: dict[Line, None] = {}

    def oldest(self) -> Line | None:
        """Return who gives way first: whoever has said nothing for longest."""
        return next(iter(self.silent), None) or next(iter(self.idle), None)


class Gate:
    """Gives a place to every connection, as long as there are any.

    Where there are none, a connection that is not being answered gives way: one that has not sent
    the head of a request yet, or else one whose last request was answered, in both cases the
    oldest. Where an address has used up its share, only its own connections give way. Where all
    are being answered, some more may ask for the service's health and for nothing else.

    Args:
        connections: how many places there are.
        per_address: how many of them for one address; IPv6 addresses of one /64 are one address.
        seconds: how long a connection may owe the head of a request.
        proxies: networks that speak for many: for these only ``connections`` counts.
        clock: seconds from some moment on.

    >>> gate = Gate(connections=2, per_address=2, seconds=1.0)
    >>> left = []
    >>> first = gate.enter("192.0.2.1", lambda: left.append("first"))
    >>> second = gate.enter("192.0.2.2", lambda: left.append("second"))
    >>> gate.asked(first)
    >>> third = gate.enter("192.0.2.3", lambda: left.append("third"))
    >>> left, third.health
    (['second'], False)
    """

    def __init__(
        self,
        *,
        connections: int,
        per_address: int,
        seconds: float,
        proxies: Sequence[Network] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.connections = connections
        self.per_address = per_address
        self.seconds = seconds
        self._proxies = proxies
        self._clock = clock
        self._all = Group()
        self._reserve = Group()
        self._groups: dict[str, Group] = {}

    def enter(self, address: str, drop: Callable[[], None]) -> Line | None:
        """Return a place for a connection, None where there is none even for a health check."""
        group = self._groups.get(name := group_of(address)) or Group(name)
        free = group.count < self.per_address or self._speaks_for_many(address)
        if (free or self._make_way(group)) and (
            self._all.count < self.connections or self._make_way(self._all)
        ):
            self._groups[name] = group
            line = Line(group, drop, health=False)
        elif self._reserve.count < RESERVE or self._make_way(self._reserve):
            line = Line(self._reserve, drop, health=True)
        else:
            return None
        self._count(line, 1)
        self.heard(line)
        return line

    def heard(self, line: Line) -> None:
        """Note that a connection owes the head of a request from now on."""
        self._answering(line)
        line.since = self._clock()
        line.group.silent[line] = None
        if not line.health:
            self._all.silent[line] = None

    def asked(self, line: Line) -> None:
        """Note that a request has come, and is being answered."""
        self._answering(line)

    def answered(self, line: Line) -> None:
        """Note that a connection has nothing to wait for but its next request."""
        if not line.left:
            line.group.idle[line] = None
            if not line.health:
                self._all.idle[line] = None

    def leave(self, line: Line) -> None:
        """Free the place of a connection that has ended; a second time nothing happens."""
        self._answering(line)
        if not line.left:
            line.left = True
            self._count(line, -1)
            if not line.group.count:
                self._groups.pop(line.group.name, None)

    def late(self) -> None:
        """End connections that have owed the head of a request for too long."""
        due = self._clock() - self.seconds
        for group in (self._all, self._reserve):
            for line in list(_begun_before(group.silent, due)):
                self._end(line)

    def make_way(self) -> None:
        """End a connection that nobody is answering, if there is one; rather not the newest."""
        line = next(iter(self._all.idle), None) or self._all.oldest()
        if line is not None:
            self._end(line)

    def close(self) -> None:
        """End all connections that owe a request."""
        for group in (self._all, self._reserve):
            for line in list(group.silent):
                self._end(line)

    def _make_way(self, group: Group) -> bool:
        line = group.oldest()
        if line is not None:
            self._end(line)
        return line is not None

    def _end(self, line: Line) -> None:
        self.leave(line)
        line.drop()

    def _answering(self, line: Line) -> None:
        for group in (line.group,) if line.health else (line.group, self._all):
            group.silent.pop(line, None)
            group.idle.pop(line, None)

    def _count(self, line: Line, more: int) -> None:
        line.group.count += more
        if not line.health:
            self._all.count += more

    def _speaks_for_many(self, address: str) -> bool:
        return any(ipaddress.ip_address(plain(address)) in network for network in self._proxies)


def plain(address: str) -> str:
    """Return an address as its owner writes it: IPv4 comes through IPv6 sockets in disguise.

    >>> plain("::ffff:192.0.2.1"), plain("fe80::1%eth0")
    ('192.0.2.1', 'fe80::1')
    """
    if ":" not in address:
        return address
    bare = address.partition("%")[0]
    return bare[7:] if bare.startswith("::ffff:") and "." in bare else bare


def group_of(address: str) -> str:
    """Return what is counted as one address: for IPv6 all that one network gives out.

    >>> group_of("192.0.2.1"), group_of("2001:db8::1") == group_of("2001:db8::2")
    ('192.0.2.1', True)
    """
    bare = plain(address)
    if ":" not in bare:
        return bare
    try:
        return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(bare)) >> 64 << 64))
    except ValueError:  # a name that a proxy gave
        return bare


def _begun_before(lines: dict[Line, None], moment: float) -> Iterator[Line]:
    """Yield those that began to wait before a moment; they are in that order."""
    for line in lines:
        if line.since > moment:
            return
        yield line
