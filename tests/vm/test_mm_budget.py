# SPDX-License-Identifier: GPL-2.0-only
"""pf_mm: all buffers together grow inside a budget, and the least important gives back first."""

import os
import random
import re
import resource
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from inside import inside, mark
from inside.cgroups import cgroup, entered
from inside.growing import (
    FULL,
    MM,
    Told,
    await_size,
    given_back,
    granted,
    knobs,
    limit,
    own_size,
    owner,
    owners,
    refused,
)
from inside.net import drain, sysctl, udp
from inside.suite import ROOT, metric, wait_for

pytestmark = mark.ends

SO_BUF_LOCK = 72
GRANTS_OF_USER, FEW = 4096, 100
SOME = 50  # the keeper makes place for 64 a tenth of a second


@inside(modules=MM)
def test_the_least_important_gives_back_first() -> None:
    own = own_size()
    low_gain, high_gain = limit(10) - own, limit(0) - own
    budget = (low_gain + high_gain) * 9 // 10 >> 10
    with owners(10, 5, 0) as (low, middle, high), knobs(budget=budget):
        low.flood(FULL)
        await_size(low, limit(10))
        low.numbers()
        # It fits beside the low one no more, who does not use what it has.
        sent = high.fill(limit(0))
        await_size(high, limit(0), 5)
        assert high.drops() == 0
        assert low.size() < limit(10)
        assert granted() <= budget << 10
        assert high.numbers() == (sent, True)
        high.flood(FULL)
        # Everything is used by now: nobody takes from an equal or a better one.
        before = refused()["budget"]
        middle.flood(FULL)
        low.flood(FULL)
        wait_for(lambda: refused()["budget"] > before, 5)
        assert high.size() == limit(0)
        assert "raise budget" in (ROOT / "status").read_text()


def relief() -> float:
    return metric("packetflow_mm_relief_seconds")[""]


@inside(modules=MM)
def test_who_waits_for_room_is_remembered_and_forgotten() -> None:
    """The m of the paper's threshold is fed by every step, those at once too."""
    nothing = 1e-5

    def grow_at_once() -> None:
        for _ in range(10):
            with owners(0, 0, 0) as others:
                for other in others:
                    other.flood(FULL)

    grow_at_once()
    assert relief() < nothing
    own = own_size()
    with owners(10, 0) as (low, high), knobs(budget=(limit(10) - own) >> 10):
        low.fill(limit(10))
        low.numbers()

        def waited_for_room() -> bool:
            high.flood(FULL)
            return relief() > nothing

        wait_for(waited_for_room, 5)
    grow_at_once()
    assert relief() < nothing


@inside(modules=MM)
def test_what_is_full_and_not_read_makes_room_for_the_more_important() -> None:
    """Of two such the less important one first; what waits in them is not lost."""
    own = own_size()
    budget = (limit(10) - own + limit(5) - own) >> 10
    with owners(10, 5, 0) as (low, middle, high), knobs(budget=budget):
        sent = [low.fill(limit(10)), middle.fill(limit(5))]
        # To the byte, but for what the budget is short of as it is told in KiB.
        assert low.size() == limit(10)
        assert middle.size() > limit(5) - 1024
        high.flood(FULL)

        def as_far_as_it_goes() -> bool:
            high.flood(10)
            return high.size() - own > (budget << 10) * 7 // 8

        wait_for(as_far_as_it_goes, 5)
        assert low.size() == own
        assert middle.size() < limit(5)
        assert granted() <= budget << 10
        assert [one.numbers() for one in (low, middle)] == [(number, True) for number in sent]


@inside(modules=MM)
def test_the_budget_is_never_exceeded() -> None:
    own = own_size()
    for budget in (1, 7, 100, 333):
        with knobs(budget=budget), owners(*range(-20, 20, 5)) as all_of_them:
            top = 0
            for _ in range(15):
                one = random.choice(all_of_them)
                one.flood(random.randrange(1000))
                if random.random() < 0.4:
                    random.choice(all_of_them).numbers()
                sizes = [one.size() for one in all_of_them]
                top = max(top, sum(sizes) - own * len(sizes))
                assert granted() <= budget << 10
            assert top <= budget << 10
        wait_for(lambda: granted() == 0, 2)


@inside(modules=MM)
def test_a_budget_that_is_lowered_is_kept_soon() -> None:
    own = own_size()
    with owners(5, 0) as (low, high):
        for one in (low, high):
            one.flood(FULL)
        await_size(high, limit(0))
        await_size(low, limit(5))
        with knobs(budget=(limit(0) - own) >> 10):
            wait_for(lambda: granted() <= limit(0) - own, 2)
            # Both are full, but for less than a packet: the less important one loses what it has.
            assert own <= low.size() < own + 1024
            assert limit(0) - 1024 < high.size() <= limit(0)
        assert given_back()["reclaimed"] > 0


class Crowd(Told):
    """Sockets of another user, which it fills itself."""

    def __init__(self, number: int) -> None:
        self._number = number
        super().__init__(0, 60)
        self._answer()

    def _begin(self, control: socket.socket) -> None:
        os.setresuid(65534, 0, 0)
        self.socks = [udp() for _ in range(self._number)]
        control.send(b"0")

    def _do_fill(self) -> int:
        """To the brim, whatever that is."""
        for sock in self.socks:
            for _ in range(150):
                sock.sendto(bytes(3000), sock.getsockname())
        return 0

    def _do_drain(self) -> int:
        return sum(len(drain(sock)) for sock in self.socks)


class Many(Crowd):
    """So many small ones, each of which a datagram fills."""

    def _begin(self, control: socket.socket) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * self._number, 2 * self._number))
        super()._begin(control)
        for sock in self.socks:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_BUF_LOCK, 0)

    def _do_some(self, first: int) -> int:
        for sock in self.socks[first : first + SOME]:
            for _ in range(2):  # before 6.18 the second finds that the first has filled it
                sock.sendto(bytes(1500), sock.getsockname())
        return 0


def with_room() -> int:
    """How many sockets have any."""
    found = re.search(r"KiB, to (\d+) sockets", (ROOT / "status").read_text())
    assert found
    return int(found[1])


@inside(modules=MM, timeout=120)
def test_one_user_has_so_many_buffers_that_grow_and_no_more() -> None:
    with ExitStack() as stack:
        (one,) = stack.enter_context(owners(0))
        crowd = Many(GRANTS_OF_USER + 200)
        stack.callback(crowd.end)
        for first in range(0, GRANTS_OF_USER + 200, SOME):
            crowd.ask("some", first)
            time.sleep(0.12)
        got = with_room()
        assert GRANTS_OF_USER - FEW <= got <= GRANTS_OF_USER, (got, refused())
        one.fill(limit(0))
        await_size(one, limit(0), 5)


@mark.parametrize("drained", [True, False])
@inside(modules=MM, timeout=120)
def test_one_user_leaves_half_to_another(drained: bool) -> None:
    """That is as important, and comes when all of the budget is taken."""
    budget = 8 << 20
    with ExitStack() as stack:
        stack.enter_context(knobs(budget=budget >> 10))
        (one,) = stack.enter_context(owners(0))
        crowd = Crowd(60)
        stack.callback(crowd.end)
        for _ in range(2):
            crowd.ask("fill")
            if drained:
                crowd.ask("drain")
        assert granted() > budget * 9 // 10
        for _ in range(3):
            sent = one.fill(limit(0))
            await_size(one, limit(0), 5)
            assert one.drops() == 0
            assert one.numbers() == (sent, True)
            crowd.ask("fill")
        assert granted() <= budget


@inside(modules=MM)
def test_the_default_budget_is_a_part_of_memory() -> None:
    (total,) = re.findall(r"^MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    share = metric("packetflow_mm_budget_bytes")[""] / (int(total) << 10)
    assert 0.02 < share < 0.05


@inside(modules=MM)
def test_the_protocols_memory_is_a_limit_too() -> None:
    """So large a buffer that what CPUs keep back of the kernel's count does not matter."""
    own, pages = 8 << 20, 3000
    with (
        sysctl("net.core.rmem_default", str(own)),
        sysctl("net.ipv4.udp_mem", f"{pages} 1000000 1000000"),
        knobs(scale=5000),
        owner() as one,
    ):
        before = refused()["memory"]
        for _ in range(2000):
            one.sender.send(bytes(8000))
        # UDP itself refused nothing before its first limit.
        assert own * 9 // 10 < one.queued() < pages * 4096
        assert one.size() == own
        assert refused()["memory"] > before
        for _ in range(10):
            assert one.row()["grows"] == "0"
            time.sleep(0.05)
        assert "udp_mem" in (ROOT / "status").read_text()


@inside(modules=MM)
def test_the_cgroups_memory_is_a_limit_too() -> None:
    with (
        cgroup("small", controller="memory", max="24M") as small,
        entered(small),
        owner() as one,
        knobs(scale=10_000, budget=4 << 20),
    ):
        before = refused()["memory"]
        for _ in range(5000):
            with suppress(OSError):
                one.sender.send(bytes(8000))
        assert own_size() < one.size() < 24 << 20
        assert refused()["memory"] > before
