# SPDX-License-Identifier: GPL-2.0-only
"""pf_mm's budget when there are as many sockets as there may be.

All are open at once, in processes of different nice levels, and are flooded and closed by
and by: so many that fill want more than there is, the important ones take from the others
what they use, and closed ones leave it to the next.
"""

import json
import os
import re
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from inside import Skip, inside, mark
from inside.growing import Told, given_back, granted, refused
from inside.net import drain, sysctl, udp
from inside.suite import ROOT, metric, settle, wait_for

NICES = (19, 15, 10, 5, 0, -5, -10, -15, -18, -20)  # who is later is more important
EACH = 10_000  # sockets of each process
BATCH = 200  # of these at a time
SOCKETS = len(NICES) * EACH
FIRST_PORT = 10_000

BUDGET = 2 << 20
OWN = 8192  # bytes that a socket has by itself
# Of these datagrams, which cost 4352 bytes each, the second fills it (from 6.18 it is refused,
# before it is taken), and the last what it has grown to then.
DATAGRAM, DATAGRAMS = bytes(3000), 5

# What may be missing in the end. Less than an object for each socket: none is so small
# that a hundred thousand of them fit.
SLACK = 100 * SOCKETS
# Pages that each CPU may keep for itself before the protocol's account is told.
KEPT_BY_CPU = (1 << 20) // resource.getpagesize()


class Crowd(Told):
    """One with many UDP sockets, of which it floods and closes some at a time."""

    def __init__(self, number: int, nice: int) -> None:
        self._address = f"127.0.{number + 1}.1"
        super().__init__(nice, 200)
        assert self._answer() == EACH

    def _begin(self, control: socket.socket) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (EACH + 1000, EACH + 1000))
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sockets = [udp(self._address, FIRST_PORT + number) for number in range(EACH)]
        control.send(json.dumps(len(self._sockets)).encode())

    def _do_flood(self, first: int) -> int:
        for port in range(FIRST_PORT + first, FIRST_PORT + first + BATCH):
            for _ in range(DATAGRAMS):
                self._sender.sendto(DATAGRAM, (self._address, port))
        return BATCH

    def _do_beyond(self, first: int) -> int:
        """What these have been given, as the kernel tells each."""
        return sum(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) - OWN
            for sock in self._sockets[first : first + BATCH]
        )

    def _do_close(self, first: int, how: str) -> int:
        """As they are, or emptied, or with a size of the program's own."""
        for sock in self._sockets[first : first + BATCH]:
            if how == "emptied":
                drain(sock)
            elif how == "set":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 3000)
            sock.close()
        return BATCH


@contextmanager
def crowds() -> Iterator[list[Crowd]]:
    with ExitStack() as stack:
        made = []
        for number, nice in enumerate(NICES):
            made.append(Crowd(number, nice))
            stack.callback(made[-1].end)
        yield made


def tracked() -> int:
    return int(metric("packetflow_sockets")[""])


def within_budget() -> int:
    """What is given now; it is an error if it is, or ever was, a byte too much."""
    now, peak = granted(), metric("packetflow_mm_granted_bytes_peak")[""]
    assert now <= BUDGET
    assert peak <= BUDGET
    return now


def moves() -> tuple[int, float, dict[str, int]]:
    return granted(), metric("packetflow_mm_grown_total")[""], given_back()


def meminfo(name: str) -> int:
    (kib,) = re.findall(rf"^{name}: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(kib) << 10


def udp_pages() -> int:
    """What all UDP sockets hold, by the protocol's own account."""
    text = Path("/proc/thread-self/net/sockstat").read_text()
    (pages,) = re.findall(r"^UDP: inuse \d+ mem (-?\d+)$", text, re.MULTILINE)
    return int(pages)


def entries() -> int:
    """Those of the table, in use or kept for the next, that the allocator knows of."""
    slab = Path("/sys/kernel/slab/pflow_sock")
    (slab / "shrink").write_text("1")
    return int((slab / "objects").read_text().split()[0])


def memory() -> dict[str, int]:
    """What the kernel holds that it cannot do without."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    return {
        "slab": meminfo("Slab"),
        "not available": -meminfo("MemAvailable"),
        "udp": udp_pages() * resource.getpagesize(),
        "entries": entries(),
    }


def grown_since(before: dict[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in memory().items()}


@mark.full
@mark.cpus(2)
@mark.timeout(2400)
@inside(timeout=800, modules=("pf_mm",), pinned=False, mm={"budget": BUDGET >> 10})
def test_the_budget_holds_for_a_hundred_thousand_sockets() -> None:
    """Fails if a byte too much is given for a moment, if what is told of is not what the
    sockets have, if nobody had to do with less, or if anything stays for each socket.
    """
    if Path("/sys/kernel/debug/kmemleak").exists():
        raise Skip("this kernel keeps account of all memory, and keeps what was freed for long")
    with sysctl("net.core.rmem_default", str(OWN)):
        udp().close()  # so that what is made for the first socket of all is there
        settle()
        sockets, before = tracked(), memory()
        with crowds() as all_of_them:
            # Those made faster than entries are, were left to the next scan.
            settle()
            assert tracked() >= sockets + SOCKETS
            most = grown_since(before)
            assert most["entries"] > SOCKETS * 9 // 10
            assert most["slab"] > 10 * SLACK  # or it would not be seen if some stayed
            for turn, first in enumerate(range(0, EACH, BATCH)):
                for crowd in all_of_them:
                    crowd.ask("flood", first)
                    within_budget()
                if turn % 5 == 0:
                    wait_for(partial(truly_told, all_of_them, first), 60)
                if first + BATCH == EACH:
                    break  # these are open, and full, when their processes are killed
                for crowd in all_of_them:
                    crowd.ask("close", first, ("emptied", "full", "set")[turn % 3])
                    within_budget()
            assert within_budget() > 0
        wait_for(lambda: granted() == 0, 30)
        wait_for(lambda: tracked() == sockets, 30)
        # Exhausted: not even the least step was left to be given.
        assert metric("packetflow_mm_granted_bytes_peak")[""] > BUDGET - OWN // 2
        assert refused()["budget"] > SOCKETS // 100, refused()
        assert given_back()["reclaimed"] > 0
        assert given_back()["closed"] > 0
        assert refused()["memory"] == 0  # which would have kept the budget for us
        wait_for(lambda: " to 0 sockets that fill" in (ROOT / "status").read_text(), 10)
        await_memory(before)


def truly_told(all_of_them: list[Crowd], first: int) -> bool:
    """The open ones have, in sum, just what pf_mm says; that nothing moved while they
    were asked, and that those closed before have been looked after, comes by and by.
    """
    before = moves()
    beyond = sum(crowd.ask("beyond", first) for crowd in all_of_them)
    return moves() == before and 0 < beyond == before[0]


def await_memory(before: dict[str, int]) -> None:
    """It is back when grace periods are over, within what is allowed."""
    cpus = len(os.sched_getaffinity(0))
    allowed = {
        "slab": SLACK,
        # In whole pages; each CPU has lists of free ones that are counted as in use.
        "not available": 3 * SLACK * cpus,
        "udp": cpus * KEPT_BY_CPU * resource.getpagesize(),
        "entries": 1024,  # the table's pool, full or about to be
    }
    left: dict[str, int] = {}

    def back() -> bool:
        time.sleep(1)
        left.update(grown_since(before))
        return all(left[name] <= most for name, most in allowed.items())

    try:
        wait_for(back, 60)
    except AssertionError:
        raise AssertionError(left, allowed) from None
