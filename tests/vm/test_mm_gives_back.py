# SPDX-License-Identifier: GPL-2.0-only
"""pf_mm: what a buffer has grown by comes back, and nothing that waits in it is lost."""

import re
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from inside import inside, mark
from inside.cgroups import cgroup, enter
from inside.growing import (
    AWAY,
    FULL,
    MM,
    STOPS,
    Owner,
    Told,
    await_size,
    given_back,
    granted,
    knobs,
    limit,
    owner,
    owners,
    refused,
)
from inside.net import Peer, drain
from inside.streaming import open_window, small_windows
from inside.suite import ROOT, metric, wait_for

pytestmark = mark.ends

BURST = 2000  # ms: several times what it takes to fill a buffer


@inside(modules=MM)
def test_what_is_not_used_comes_back_and_nothing_is_lost() -> None:
    with owner() as one:
        own = one.size()
        sent = one.fill(limit(0))
        assert one.numbers() == (sent, True)
        before = given_back()["unused"]
        await_size(one, own, AWAY)
        assert granted() == 0
        assert given_back()["unused"] > before
        assert one.drops() == 0
        # And again.
        sent = one.fill(limit(0))
        assert one.drops() == 0
        assert one.numbers() == (sent, True)


@inside(modules=MM)
def test_what_is_used_stays() -> None:
    with owner() as one:
        sent = one.fill(limit(0))
        time.sleep(8)
        assert one.size() == limit(0)
        assert one.numbers() == (sent, True)


@inside(modules=MM)
def test_what_stands_is_given_no_room_and_loses_none_of_what_waits() -> None:
    with owner(burst=BURST) as one:
        own = one.size()
        sent = one.fill(limit(0))
        assert one.size() == limit(0)
        before = given_back()["standing"]
        await_size(one, own)
        assert granted() == 0
        assert given_back()["standing"] == before + 1
        # Nothing was taken from it since: it is not room that is missing.
        tried = refused()["standing"]
        one.flood(FULL)
        time.sleep(0.3)
        assert one.size() == own
        assert refused()["standing"] > tried
        assert one.numbers() == (sent, True)
        # At once when somebody receives.
        assert one.fill(limit(0)) == sent
        assert one.size() == limit(0)


@inside(modules=MM)
def test_who_drains_between_bursts_keeps_its_room() -> None:
    """It is full whenever the keeper looks, but for a moment now and then."""
    with owner(burst=BURST) as one:
        before = given_back()["standing"]
        for _ in range(4):
            sent = one.fill(limit(0))
            time.sleep(0.7 * BURST / 1000)
            assert one.numbers() == (sent, True)
        assert one.size() == limit(0)
        assert one.drops() == 0
        assert given_back()["standing"] == before


@inside(modules=MM)
def test_no_buffer_keeps_longer_than_allowed() -> None:
    """Nobody receives at all: what it holds would never drain."""
    with knobs(max_delay=50), owner() as one:
        own = one.size()
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            one.flood(20)
            time.sleep(0.005)
        await_size(one, own, 5)
        assert granted() == 0


GOES: dict[str, Callable[[Owner], None]] = {"close": Owner.close, "kill": Owner.kill}


@mark.parametrize("how", list(GOES))
@mark.parametrize("tcp", [False, True])
@inside(modules=MM)
def test_it_comes_back_with_the_socket(tcp: bool, how: str) -> None:
    with small_windows(), owner(tcp=tcp) as one:
        if tcp:
            open_window(one)
        else:
            one.flood(FULL)
        assert granted() > 0
        before = given_back()["closed"]
        GOES[how](one)
        wait_for(lambda: granted() == 0, 2)
        assert given_back()["closed"] > before


@inside(modules=MM)
def test_a_namespace_goes_with_its_sockets() -> None:
    """A socket that is still held would keep it, and our end of the pair with it."""
    there = Peer()
    with there, owner() as one:
        one.flood(FULL)
        assert granted() > 0
    there.close()

    def gone() -> bool:
        with suppress(OSError):
            socket.if_nametoindex(there.device)
            return False
        return granted() == 0

    wait_for(gone, 10)


@mark.parametrize("how", list(STOPS))
@inside(modules=MM)
def test_it_comes_back_when_everything_is_stopped(how: str) -> None:
    """With its buffer full; what is queued is not lost, and none grows meanwhile."""
    with owners(0, -10) as both:
        own = both[0].size()
        sent = [one.fill(limit(nice)) for one, nice in zip(both, (0, -10), strict=True)]
        assert [one.size() for one in both] == [limit(0), limit(-10)]
        with STOPS[how]():
            for one in both:
                # The write and the unloading wait for it; a mode is obeyed at the next look.
                await_size(one, own, 1 if how == "observe" else 0.5)
            both[0].flood(10)
            assert both[0].drops() == 10
            assert [one.numbers() for one in both] == [(number, True) for number in sent]
            both[1].flood(FULL)
            assert both[1].size() == own
            both[1].numbers()

        def grows_again() -> bool:
            """As soon as the socket is known again."""
            both[1].flood(100)
            return both[1].size() == limit(-10)

        wait_for(grows_again)


@inside(modules=MM)
def test_observing_changes_nothing_but_counts() -> None:
    before = {name: metric(f"packetflow_mm_{name}_total")[""] for name in ("grown", "observed")}
    with knobs(mode="observe"), owner() as one:
        own = one.size()
        one.flood(FULL)
        assert one.size() == own
        assert granted() == 0
        assert metric("packetflow_mm_observed_total")[""] == before["observed"] + 1
        assert metric("packetflow_mm_grown_total")[""] == before["grown"]
        assert one.row()["grows"] == "0"
        assert "would have grown" in (ROOT / "status").read_text()


class Grouped(Owner):
    """One whose socket counts against the memory of a control group."""

    def __init__(self, group: Path) -> None:
        self._group = group
        super().__init__()

    def _begin(self, control: socket.socket) -> None:
        enter(self._group)
        super()._begin(control)

    def _do_drain(self) -> int:
        return len(drain(self.sock))


class Eater(Told):
    """One that takes memory of the group, and keeps it."""

    def __init__(self, group: Path) -> None:
        self._group = group
        super().__init__(0, 30)
        self._answer()

    def _begin(self, control: socket.socket) -> None:
        enter(self._group)
        self._kept: list[bytes] = []
        control.send(b"0")

    def _do_eat(self, mib: int) -> int:
        self._kept.append(b"x" * (mib << 20))
        return mib


def send_large(to: Owner, datagrams: int) -> None:
    for _ in range(datagrams):
        with suppress(OSError):
            to.sender.send(bytes(8000))


@inside(modules=MM, timeout=120)
def test_room_comes_back_before_a_group_runs_out_of_memory() -> None:
    """Its buffer has grown while there was enough; then a program takes that.

    All within the two seconds after which what is not used comes back in any case.
    """
    with ExitStack() as stack:
        group = stack.enter_context(cgroup("small", controller="memory", max="96M"))
        stack.enter_context(knobs(scale=10_000, budget=4 << 20, burst=0))
        one = Grouped(group)
        stack.callback(one.end)
        for _ in range(12):
            send_large(one, 2500)
            one.ask("drain")
        grown = one.size()
        assert grown > 20 << 20
        eater = Eater(group)
        stack.callback(eater.end)
        send_large(one, 2500)
        one.ask("drain")
        for _ in range(8):
            eater.ask("eat", 8)
        time.sleep(0.3)
        send_large(one, 4000)
        for _ in range(3):
            eater.ask("eat", 2)
        killed = re.findall(r"^oom_kill (\d+)$", (group / "memory.events").read_text(), re.M)
        assert killed == ["0"]
        assert one.size() < grown
        assert given_back()["memory"] > 0
