# SPDX-License-Identifier: GPL-2.0-only
"""pf_mm: a buffer that fills grows by priority, inside a budget, and nothing of it stays.

A buffer's size is what SO_RCVBUF shows its owner: sk_rcvbuf, to the byte.
"""

import hashlib
import itertools
import os
import random
import re
import signal
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inside import inside, mark
from inside.growing import (
    DEFAULT,
    Owner,
    given_back,
    granted,
    knobs,
    limit,
    owner,
    owners,
    refused,
)
from inside.net import Peer, pressure, sysctl
from inside.suite import ROOT, dropped, insmod, metric, rmmod, set_knob, stops, takes_only, wait_for
from vm.test_proc import BAD, BAD_NUMBER

MM = ("pf_mm",)
FULL = 3000  # datagrams: more than any of these buffers holds
LASTING: dict[str, dict[str, object]] = {"pf_mm": {"burst": 0}}  # what stands keeps its room
BURST = 2000  # ms: several times what it takes to fill a buffer
AWAY = 20  # s: in which what is not used has come back
TRACING = Path("/sys/kernel/tracing")
ENQUEUE = "__udp_enqueue_schedule_skb"

KNOBS = {
    "mode": ("observe", "enforce"),
    "default_size": ("4", "262144", "500"),
    "scale": ("10", "10000", "100"),
    "budget": ("0", "1", "1073741824", "auto"),
    "burst": ("0", "60000", "200"),
    "max_delay": ("1", "60000", "0"),
    "override_locked": ("1", "0"),
    "exempt": ("1", "65535", "53,100-110", "none"),
}
BAD_FOR = {
    "mode": ["0", "1", "Enforce", "enforced", "enforce observe", "observe\n\n"],
    "default_size": [*BAD_NUMBER, "0", "3", "262145", "500K"],
    "scale": [*BAD_NUMBER, "0", "9", "10001", "100%"],
    "budget": [*BAD_NUMBER, "Auto", "automatic", "1073741825", "4294967295", "4294967296"],
    "burst": [*BAD_NUMBER, "60001", "4294967296", "5ms"],
    "max_delay": [*BAD_NUMBER, "60001", "4294967296", "5ms"],
    "override_locked": [*BAD_NUMBER, "2", "yes"],
    "exempt": ["0", "65536", "1-", "-1", "2-1", "1-2-3", "1,,2", ",1", "1,", "from:1", "1,none"],
}


def own_size() -> int:
    """That of a new UDP socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def await_size(of: Owner, size: int, timeout: float = 15.0) -> None:
    seen = []

    def reached() -> bool:
        seen.append(of.size())
        return seen[-1] == size

    try:
        wait_for(reached, timeout)
    except AssertionError:
        raise AssertionError(seen[-1], size, granted(), given_back(), refused()) from None


# Growth


@mark.parametrize("address", ["127.0.0.1", "::1"])
@mark.parametrize("nice", [-20, -5, 0, 5, 10, 19])
@inside(modules=MM)
def test_a_flooded_buffer_grows_to_what_its_priority_allows(nice: int, address: str) -> None:
    with owner(nice, address) as one:
        own = one.size()
        one.flood(FULL)
        expected = max(own, limit(nice))
        await_size(one, expected)
        assert granted() == expected - own
        assert one.row()["sbmax"] == str(limit(nice))
        one.flood(FULL)
        assert one.size() == expected
    wait_for(lambda: granted() == 0)


@mark.parametrize("address", ["127.0.0.1", "::1"])
@inside(modules=MM)
def test_it_grows_before_anything_is_lost(address: str) -> None:
    """At peace, in one burst, with nobody reading: stock would lose half."""
    with owner(0, address) as one:
        sent = one.fill(limit(0))
        assert one.drops() == 0
        assert one.queued() > one.size() // 2
        assert one.size() == limit(0)
        assert one.numbers() == (sent, True)


@inside(modules=MM)
def test_a_buffer_that_does_not_fill_stays() -> None:
    with owner() as one:
        own = one.size()
        grown = metric("packetflow_mm_grown_total")
        for _ in range(20):
            one.flood(own // 5 // one.truesize())
            one.numbers()
        assert one.size() == own
        assert metric("packetflow_mm_grown_total") == grown


@inside(modules=MM)
def test_few_steps_are_enough() -> None:
    with owner() as one, knobs(scale=1600):
        grown = metric("packetflow_mm_grown_total")[""]
        one.flood(30_000)
        await_size(one, 16 * DEFAULT)
        assert metric("packetflow_mm_grown_total")[""] - grown <= 7


@inside(modules=MM)
def test_the_limit_follows_the_knobs() -> None:
    with owner() as one, knobs(default_size=600, scale=150):
        one.flood(FULL)
        await_size(one, (600 << 10) * 3 // 2)
        set_knob("mm/scale", 100)
        await_size(one, 600 << 10, 2)
        assert granted() == (600 << 10) - own_size()


@inside(modules=MM)
def test_the_limit_follows_the_priority() -> None:
    with owner(0) as one:
        one.flood(FULL)
        await_size(one, limit(0))
        before = given_back()["limit"]
        one.ask("renice", 5)
        wait_for(lambda: one.row()["prio"] == "125")
        await_size(one, limit(5), 2)
        assert given_back()["limit"] > before
        one.ask("renice", -10)
        wait_for(lambda: one.row()["prio"] == "110")
        one.numbers()
        one.flood(FULL)
        await_size(one, limit(-10))


@inside(modules=MM)
def test_the_table_says_who_can_grow() -> None:
    with owner() as one:
        assert one.row()["grows"] == "0"
        one.flood(one.size() * 3 // 4 // one.truesize())
        assert own_size() < one.size() < limit(0)
        assert one.row()["grows"] == "1"
        one.flood(FULL)
        await_size(one, limit(0))
        wait_for(lambda: one.row()["grows"] == "0")


# How it comes back


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


def close(one: Owner) -> None:
    one.close()


def kill(one: Owner) -> None:
    os.kill(one.pid, signal.SIGKILL)
    os.waitpid(one.pid, 0)
    one.alive = False


GOES: dict[str, Callable[[Owner], None]] = {"close": close, "kill": kill}


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


STOPS = stops("pf_mm")


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


# The program's and the administrator's own wishes


@inside(modules=MM)
def test_a_size_that_the_program_set_before_stays() -> None:
    with owner() as one:
        size = one.ask("set", 30_000)
        assert size == 60_000
        one.flood(FULL)
        time.sleep(0.5)
        assert one.size() == size
        assert granted() == 0


@mark.parametrize("wish", [5_000, 30_000, 200_000])
@inside(modules=MM)
def test_a_size_that_the_program_sets_later_stays(wish: int) -> None:
    with owner() as one:
        one.flood(FULL)
        await_size(one, limit(0))
        before = given_back()["changed"]
        size = one.ask("set", wish)
        assert size == 2 * wish
        wait_for(lambda: granted() == 0, 2)
        assert given_back()["changed"] == before + 1
        one.flood(FULL)
        rmmod("pf_mm")
        assert one.size() == size
        insmod("pf_mm")
        one.flood(FULL)
        time.sleep(0.3)
        assert one.size() == size


@inside(modules=MM)
def test_the_very_size_that_it_has_grown_to_is_the_programs_when_it_sets_it() -> None:
    with owner() as one:
        own = one.size()
        one.flood(own * 3 // 4 // one.truesize())
        assert one.size() == 2 * own
        assert one.ask("set", own) == 2 * own
        wait_for(lambda: granted() == 0, 2)
        rmmod("pf_mm")
        assert one.size() == 2 * own
        insmod("pf_mm")


@inside(modules=MM)
def test_a_size_is_not_kept_by_locking_it() -> None:
    """Not beyond what the program could have set; that it may keep."""
    with owner() as one:
        own = one.size()
        with sysctl("net.core.rmem_max", str(own // 2)):
            one.flood(FULL)
            await_size(one, limit(0))
            before = given_back()
            assert one.ask("lock", 2) == limit(0)
            await_size(one, own, 2)
            wait_for(lambda: granted() == 0, 2)
            assert given_back()["exempt"] == before["exempt"] + 1
            assert given_back()["changed"] == before["changed"]
        one.ask("lock", 0)
        one.numbers()
        one.flood(FULL)
        await_size(one, limit(0))
        with sysctl("net.core.rmem_max", str(limit(0) // 2)):
            one.ask("lock", 2)
            wait_for(lambda: granted() == 0, 2)
            assert given_back()["changed"] == before["changed"] + 1
            assert one.size() == limit(0)


@mark.cpus(2)
@inside(timeout=120, modules=MM, pinned=False)
def test_a_size_that_the_program_sets_meanwhile_stays() -> None:
    chance = random.Random(1)
    for _ in range(60):
        with owner() as one:
            child = os.fork()
            if not child:
                with suppress(OSError):
                    one.flood(FULL)
                os._exit(0)
            time.sleep(chance.random() / 100)
            size = one.ask("set", chance.randrange(5_000, 100_000))
            os.waitpid(child, 0)
            time.sleep(0.25)
            assert one.size() == size
    wait_for(lambda: granted() == 0)


@inside(modules=MM)
def test_a_locked_size_can_be_overridden_and_is_given_back() -> None:
    with owner() as one:
        size = one.ask("set", 30_000)
        with knobs(override_locked=1):
            one.flood(FULL)
            await_size(one, limit(0))
            assert granted() == limit(0) - size
        await_size(one, size, 2)
        assert granted() == 0
        one.numbers()
        with knobs(override_locked=1):
            one.flood(FULL)
            await_size(one, limit(0))
            rmmod("pf_mm")
            assert one.size() == size
            insmod("pf_mm", override_locked=1)


@inside(modules=MM)
def test_without_a_budget_rmem_max_is_obeyed() -> None:
    with sysctl("net.core.rmem_max", "150000"), knobs(budget=0), owner(-20) as one:
        one.flood(FULL)
        await_size(one, 300_000)
        one.flood(FULL)
        assert one.size() == 300_000
        with sysctl("net.core.rmem_max", "130000"):
            await_size(one, 260_000, 2)
        one.numbers()
        with sysctl("net.core.rmem_max", "4000000"):
            one.flood(FULL)
            await_size(one, limit(-20))


@inside(modules=MM)
def test_an_exempt_port_is_left_alone() -> None:
    with owner() as one:
        own = one.size()
        with knobs(exempt=f"1-5,{one.to[1]}"):
            one.flood(FULL)
            assert one.size() == own
        one.numbers()
        one.flood(FULL)
        await_size(one, limit(0))
        before = given_back()["exempt"]
        with knobs(exempt=one.to[1]):
            await_size(one, own, 2)
            assert given_back()["exempt"] == before + 1
            assert granted() == 0


@inside(modules=MM)
def test_sockets_of_the_kernel_are_left_alone() -> None:
    """A tunnel's, say, that nobody decapsulates fast enough; it has no file and no owner."""
    before = metric("packetflow_mm_grown_total")
    subprocess.run(
        ["ip", "link", "add", "vx", "type", "vxlan", "id", "7", "dstport", "4789", "dev", "lo"],
        check=True,
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(FULL):
            sender.sendto(bytes(200), ("127.0.0.1", 4789))
    assert metric("packetflow_mm_grown_total") == before


# The budget


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
    top = Path("/sys/fs/cgroup")
    made = top / "small"
    (top / "cgroup.subtree_control").write_text("+memory")
    made.mkdir()
    here = os.getpid()
    try:
        (made / "memory.max").write_text("24M")
        (made / "cgroup.procs").write_text(str(here))
        with owner() as one, knobs(scale=10_000, budget=4 << 20):
            before = refused()["memory"]
            for _ in range(5000):
                with suppress(OSError):
                    one.sender.send(bytes(8000))
            assert own_size() < one.size() < 24 << 20
            assert refused()["memory"] > before
    finally:
        (top / "cgroup.procs").write_text(str(here))
        wait_for(lambda: not (made / "cgroup.procs").read_text())
        made.rmdir()
        (top / "cgroup.subtree_control").write_text("-memory")


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


# With pf_filter


@inside(modules=("pf_filter", "pf_mm"))
def test_b2_waits_as_long_as_the_buffer_can_grow() -> None:
    with owner() as one, pressure() as full:
        sent = limit(0) * 9 // 10 // one.truesize()
        for _ in range(sent // 50):
            full.again()
            one.flood(50)
        assert one.size() == limit(0)
        assert one.drops() == 0
        assert one.row()["early_full"] == "0"
        wait_for(lambda: one.row()["grows"] == "0")
        for _ in range(20):
            full.again()
            one.flood(50)
        assert one.size() == limit(0)
        early = int(one.row()["early_full"])
        assert 100 < early <= dropped()["socket_full"]
        assert one.drops() >= early


# TCP

SMALL_WINDOW = 131_072


@contextmanager
def small_windows(most: int = SMALL_WINDOW, scaled_for: int = 4 << 20) -> Iterator[None]:
    """In this namespace, which is the test's own. For rmem_max a connection chooses its scale."""
    setting = Path("/proc/sys/net/ipv4/tcp_rmem")
    before = setting.read_text()
    setting.write_text(f"4096 {SMALL_WINDOW} {most}")
    try:
        with sysctl("net.core.rmem_max", str(scaled_for)):
            yield
    finally:
        setting.write_text(before)


class Stream:
    """Bytes of which no two pieces are alike, on their way to an owner's connection."""

    def __init__(self, to: Owner) -> None:
        self._to = to
        self._chance = random.Random(5)
        self._made = bytearray()
        self.sent = self.received = 0

    def fill(self, most: int = 1 << 30) -> None:
        """Send until nothing more is taken."""
        end, idle = self.sent + most, 0
        while idle < 5 and self.sent < end:
            if len(self._made) == self.sent:
                self._made += self._chance.randbytes(16384)
            try:
                self.sent += self._to.sender.send(self._made[self.sent : end])
                idle = 0
            except BlockingIOError:
                idle += 1
                time.sleep(0.01)

    def take(self, piece: int = 65536) -> int:
        """Have it receive what is there, and see that this is what was sent."""
        count, digest = self._to.ask("bytes", 1 << 30, piece)
        piece_sent = self._made[self.received : self.received + count]
        assert hashlib.sha256(piece_sent).hexdigest() == digest, self.received
        self.received += count
        return int(count)

    def finish(self) -> None:
        def over() -> bool:
            self.take()
            return self.received == self.sent

        wait_for(over)


def open_window(one: Owner, size: int = limit(0)) -> Stream:
    """By bursts, until the buffer has its size."""
    stream = Stream(one)

    def grown() -> bool:
        stream.fill()
        stream.take(8192)
        return one.size() == size

    try:
        wait_for(grown, 20)
    except AssertionError:
        raise AssertionError(one.size(), granted(), refused()) from None
    return stream


@mark.parametrize("address", ["127.0.0.1", "::1"])
@inside(modules=MM)
def test_a_window_opens_beyond_what_autotuning_allows(address: str) -> None:
    with small_windows(), owner(0, address, tcp=True) as one:
        assert one.size() == SMALL_WINDOW
        stream = open_window(one)
        assert granted() == limit(0) - SMALL_WINDOW

        def more() -> bool:
            """It opens by and by, as data come."""
            stream.fill()
            waiting = one.queued()
            stream.take()
            assert waiting <= limit(0)
            return waiting > SMALL_WINDOW * 3 // 2

        wait_for(more)


@inside(modules=MM)
def test_no_space_is_given_for_a_window_that_cannot_be_told() -> None:
    """Of 65535 << 2 here. Without that limit it would go on to the tenfold."""
    with small_windows(scaled_for=SMALL_WINDOW), knobs(scale=1000), owner(tcp=True) as one:
        stream, most = Stream(one), 0
        for _ in range(40):
            stream.fill()
            stream.take(8192)
            most = max(most, one.size())
        assert SMALL_WINDOW < most <= 4 * (65535 << 2)
        stream.finish()


@inside(modules=MM)
def test_autotunings_limit_holds_without_pf_mm() -> None:
    """What the tests beside this one have pf_mm go beyond."""
    with small_windows(), knobs(mode="observe"), owner(tcp=True) as one:
        stream = Stream(one)
        for _ in range(20):
            stream.fill()
            assert one.queued() <= SMALL_WINDOW * 3 // 2
            stream.take(8192)
        assert one.size() == SMALL_WINDOW


def pruned() -> int:
    """Packets of streams that were dropped for want of room, in this namespace."""
    lines = Path("/proc/thread-self/net/netstat").read_text().splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("TcpExt:"))
    found = dict(zip(names, map(int, values), strict=True))
    return sum(found[name] for name in ("RcvPruned", "TCPRcvQDrop"))


@mark.parametrize("how", list(STOPS))
@inside(modules=MM)
def test_a_stream_is_whole_when_everything_is_stopped(how: str) -> None:
    """In the midst of it, with the buffer full."""
    with small_windows(), owner(tcp=True) as one:
        stream = open_window(one)
        stream.fill()
        before, queued = pruned(), one.queued()
        with STOPS[how]():
            wait_for(lambda: one.size() < limit(0) or queued >= limit(0) * 9 // 10, 2)
            assert one.size() >= min(queued, limit(0))
            if how != "observe":
                assert (ROOT / "mm").exists() == (how == "enable")
            for _ in range(20):
                stream.take()
                stream.fill()
            stream.finish()
            if how == "observe":
                await_size(one, SMALL_WINDOW, 5)
        assert pruned() == before


@inside(modules=MM)
def test_a_stream_is_whole_while_its_buffer_changes() -> None:
    with small_windows(), owner(tcp=True) as one:
        stream, before = Stream(one), pruned()
        sizes = set()
        deadline = time.monotonic() + 12
        for turn in itertools.count():
            stream.fill()
            set_knob("mm/mode", "observe" if turn % 5 >= 3 else "enforce")
            stream.take(8192)
            sizes.add(one.size())
            if time.monotonic() > deadline:
                break
        set_knob("mm/mode", "enforce")
        stream.finish()
        assert stream.sent > 4 * limit(0)
        assert len(sizes) >= 2
        assert pruned() == before


@inside(modules=MM)
def test_tcp_is_never_smaller_than_on_stock() -> None:
    """Where its limit is less than what autotuning may give, pf_mm leaves it to that."""
    with small_windows(4 << 20), knobs(budget=1), owner(19, tcp=True) as one:
        stream, sizes = Stream(one), []
        for _ in range(20):
            stream.fill()
            stream.take()
            sizes.append(one.size())
        assert sizes == sorted(sizes)
        assert sizes[0] >= SMALL_WINDOW
        assert granted() == 0


@inside(modules=MM)
def test_without_a_budget_tcp_rmem_is_obeyed() -> None:
    with small_windows(), knobs(budget=0), owner(tcp=True) as one:
        stream = Stream(one)
        for _ in range(20):
            stream.fill()
            stream.take(8192)
        assert one.size() == SMALL_WINDOW
        assert granted() == 0


@inside(modules=MM)
def test_a_connection_that_needs_less_gives_its_space_back() -> None:
    """As its peer uses up what it was promised: a trickle does."""
    with small_windows(), owner(tcp=True) as one:
        stream = open_window(one)
        stream.finish()

        def back() -> bool:
            stream.fill(4096)
            stream.take()
            return one.size() == SMALL_WINDOW

        wait_for(back, 2 * AWAY)
        wait_for(lambda: granted() == 0, 5)
        stream.finish()
        # And again.
        open_window(one)


@inside(modules=MM)
def test_a_connection_that_its_peer_resets_gives_its_space_back() -> None:
    """Though its owner has it open, and data in it."""
    with small_windows(), owner(tcp=True) as one:
        open_window(one).fill()
        before = given_back()["closed"]
        one.sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.sender.close()
        await_size(one, SMALL_WINDOW, 2)
        wait_for(lambda: granted() == 0, 2)
        assert given_back()["closed"] == before + 1


@inside(modules=MM)
def test_a_window_that_the_program_clamps_stays_so() -> None:
    with small_windows(), owner(tcp=True) as one:
        stream = Stream(one)
        # From 6.6 on the kernel itself forgets a clamp when it learns how well packets are filled.
        with knobs(mode="observe"):
            for _ in range(5):
                stream.fill()
                stream.take()
        one.ask("clamp", 16384)
        for _ in range(20):
            stream.fill()
            stream.take(4096)
        assert one.size() == SMALL_WINDOW
        assert granted() == 0


# Settings


@mark.parametrize("knob", list(KNOBS))
@inside(modules=MM)
def test_a_knob_takes_what_it_should_and_nothing_else(knob: str) -> None:
    good = KNOBS[knob]
    bad = [*BAD, *BAD_FOR[knob], good[0] + "\n\n", good[0] + "\r\n", good[0] + " ", "1" * 5000]
    takes_only(ROOT / "mm" / knob, good, bad)


@inside(modules=MM)
def test_its_files_are_its_parameters() -> None:
    files = list((ROOT / "mm").iterdir())
    assert {file.name for file in files} == set(KNOBS)
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        parameter = Path("/sys/module/pf_mm/parameters") / file.name
        assert parameter.read_text() == file.read_text()
        assert stat.S_IMODE(parameter.stat().st_mode) == 0o444


@inside(modules=MM, mm={"budget": 64, "default_size": 300, "scale": 200, "exempt": "9,11-12"})
def test_parameters_count_from_the_start() -> None:
    assert (ROOT / "mm/exempt").read_text() == "9,11-12\n"
    assert metric("packetflow_mm_budget_bytes")[""] == 64 << 10
    with owner() as one:
        own = one.size()
        one.flood(FULL)
        wait_for(lambda: one.size() == own + (64 << 10))
        assert granted() == 64 << 10


@inside(modules=MM)
def test_the_default_budget_is_a_part_of_memory() -> None:
    (total,) = re.findall(r"^MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    share = metric("packetflow_mm_budget_bytes")[""] / (int(total) << 10)
    assert 0.02 < share < 0.05


# Coming and going


@inside(modules=MM)
def test_where_there_is_no_tracepoint_ftrace_tells() -> None:
    """And no kprobe, which costs more; nothing of it stays when all is switched off."""

    def looks() -> tuple[bool, bool]:
        kprobes = Path("/sys/kernel/debug/kprobes/list").read_text().splitlines()
        works = any(ENQUEUE in line and "[DISABLED]" not in line for line in kprobes)
        return ENQUEUE in (TRACING / "enabled_functions").read_text(), works

    if (TRACING / "events/sock/sk_data_ready").exists():
        assert looks() == (False, False)
        return
    status = (ROOT / "status").read_text()
    assert re.search(rf"^probe: {ENQUEUE} armed +missed 0, by ftrace$", status, re.MULTILINE)
    assert looks() == (True, False)
    for _ in range(3):
        set_knob("enable", 0)
        assert looks() == (False, False)
        set_knob("enable", 1)
        assert looks() == (True, False)
    with owner() as one:
        one.flood(FULL)
        await_size(one, limit(0))


ORDERS = list(itertools.permutations(("pf_filter", "pf_sched", "pf_mm")))


@mark.parametrize("order", ORDERS, ids=str)
@inside(timeout=120, load=False)
def test_modules_come_and_go_in_any_order(order: tuple[str, ...]) -> None:
    insmod("pf_common")
    with owner() as one:
        own = one.size()
        for module in order:
            insmod(module, **LASTING.get(module, {}))
            # Whose buffer stood full without anybody receiving gets nothing past pf_filter.
            one.numbers()
            one.flood(FULL)
            if (ROOT / "mm").exists():
                await_size(one, limit(0))
        for module in order:
            rmmod(module)
            assert one.size() == (limit(0) if (ROOT / "mm").exists() else own)
        rmmod("pf_common")
        assert one.size() == own


@mark.cpus(2)
@inside(timeout=200, modules=MM, pinned=False)
def test_sockets_that_come_and_go_while_they_grow() -> None:
    """Closed, killed, set, at any moment; the sum is the judge, and the kernel's log."""
    chance = random.Random(2)
    with small_windows():
        for turn in range(80):
            with owner(chance.randrange(-20, 20), tcp=turn % 4 == 3) as one:
                child = os.fork()
                if not child:
                    with suppress(OSError):
                        if turn % 4 == 3:
                            Stream(one).fill()
                        else:
                            one.flood(FULL)
                    os._exit(0)
                time.sleep(chance.random() / 50)
                chance.choice((close, kill, lambda one: one.ask("set", 9000)))(one)
                os.waitpid(child, 0)
    wait_for(lambda: granted() == 0, 5)


@mark.cpus(2)
@inside(timeout=200, load=False, pinned=False)
def test_loading_and_unloading_while_buffers_grow(ten_cycles: int) -> None:
    Path("/sys/kernel/rcu_expedited").write_text("1")
    insmod("pf_common")
    with owner() as one:
        own = one.size()
        child = os.fork()
        if not child:
            while True:
                with suppress(OSError):
                    one.flood(1000)
        try:
            for _ in range(10):
                insmod("pf_mm", **LASTING["pf_mm"])
                await_size(one, limit(0))
                one.numbers()
                rmmod("pf_mm")
                assert one.size() == own, ten_cycles
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    rmmod("pf_common")
    Path("/sys/kernel/rcu_expedited").write_text("0")
