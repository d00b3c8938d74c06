"""Who gets a place and who gives way, by hand."""

from __future__ import annotations

import ipaddress

from evergraph.server.gate import RESERVE, Gate, Line


class Here:
    """A gate with a clock that is set by hand, and the names of those that were dropped."""

    def __init__(self, **given: object) -> None:
        self.now = 0.0
        self.dropped: list[str] = []
        self.gate = Gate(seconds=10.0, clock=lambda: self.now, **given)  # type: ignore[arg-type]

    def enter(self, name: str, address: str = "192.0.2.1") -> Line:
        self.now += 1
        line = self.gate.enter(address, lambda: self.dropped.append(name))
        assert line is not None
        return line


def test_the_oldest_that_said_nothing_gives_way_first_then_the_oldest_that_was_answered() -> None:
    here = Here(connections=3, per_address=3)
    a, b, c = (here.enter(name) for name in "abc")
    for line in (a, b):
        here.gate.asked(line)
        here.gate.answered(line)
    here.gate.asked(a)
    here.gate.asked(here.enter("d"))
    assert here.dropped == ["c"]
    here.gate.asked(here.enter("e"))
    assert here.dropped == ["c", "b"]
    assert here.enter("f").health  # a, d and e are being answered
    here.gate.leave(c)  # once more, when its socket is gone
    here.gate.leave(a)
    assert not here.enter("g").health


def test_an_address_that_has_its_share_keeps_out_itself_alone() -> None:
    here = Here(connections=4, per_address=2)
    other = here.enter("other", "192.0.2.2")
    for name in "abc":
        here.enter(name)
    assert here.dropped == ["a"]
    v6 = [here.enter(f"v6-{i}", f"2001:db8::{i}") for i in range(3)]
    assert here.dropped == ["a", "v6-0"] or here.dropped == ["a", "other", "v6-0"]
    assert {line.group for line in v6} == {v6[0].group}
    assert other.group is not v6[0].group


def test_a_proxy_speaks_for_many() -> None:
    networks = [ipaddress.ip_network("192.0.2.0/24")]
    here = Here(connections=5, per_address=1, proxies=networks)
    for name in "abc":
        here.enter(name, "::ffff:192.0.2.9")
    here.enter("d", "203.0.113.1")
    here.enter("e", "203.0.113.1")
    assert here.dropped == ["d"]


def test_those_that_owe_a_head_for_too_long_are_ended() -> None:
    here = Here(connections=9, per_address=9)
    a, b = here.enter("a"), here.enter("b")
    here.gate.asked(a)
    here.now = 11.5
    here.gate.late()
    assert here.dropped == []
    here.now = 12.5
    here.gate.answered(a)
    here.gate.late()
    assert here.dropped == ["b"]
    here.gate.heard(a)  # a byte of its next request
    here.now = 23.0
    here.gate.late()
    assert here.dropped == ["b", "a"]
    assert b.left
    assert here.gate._all.count == 0
    assert here.gate._groups == {}


def test_the_reserve_is_turned_over() -> None:
    here = Here(connections=1, per_address=1)
    here.gate.asked(here.enter("busy"))
    lines = [here.enter(str(i)) for i in range(RESERVE + 2)]
    assert all(line.health for line in lines)
    assert here.dropped == ["0", "1"]
    for line in lines[2:]:
        here.gate.asked(line)
    assert here.gate.enter("192.0.2.1", lambda: None) is None
