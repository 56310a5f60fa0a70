# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: a boost is charged for what is done with it by others, too."""

import ctypes
import mmap
import os
import struct
import time
from contextlib import ExitStack
from functools import partial

from inside import inside, mark
from inside.computing import hog
from inside.net import udp
from inside.raising import LONG, SCHED, as_another_user, await_boosted, starving
from inside.scheduling import BUFFER, PACKET, Counting, cpu_seconds, libc, running, start

pytestmark = mark.ends

FUTEX, FUTEX_LOCK_PI = 202, 6  # on x86-64
CAP, SLACK = 50, 0.1  # percent; of the CPU
HIS, ANOTHER = 0, 1  # CPUs
WAIT = 0.5  # s, less than a boost lasts


def lock(word: int, seconds: float = 0) -> None:
    """A lock with priority inheritance, for so long at most; 0: until it is there."""
    ends = int((time.time() + seconds) * 1e9)
    limit = (ctypes.c_int64 * 2)(ends // 10**9, ends % 10**9)
    libc.syscall(
        FUTEX, ctypes.c_void_p(word), FUTEX_LOCK_PI, 0, ctypes.byref(limit) if seconds else None
    )


def lends(told: mmap.mmap) -> None:
    """It waits for a lock that its child holds, reads a packet, and waits again."""
    as_another_user()
    word = ctypes.addressof(ctypes.c_int.from_buffer(told))

    def computes() -> None:
        os.sched_setaffinity(0, {ANOTHER})
        lock(word)
        hog()

    struct.pack_into("i", told, 8, start(computes, session=False))
    while not struct.unpack_from("i", told)[0]:
        time.sleep(0.01)
    os.sched_setaffinity(0, {HIS})
    sock = udp(rcvbuf=BUFFER)
    for _ in range(40):
        sock.sendto(PACKET, sock.getsockname())
    while True:
        lock(word, WAIT)
        sock.recv(2000)
        sock.sendto(PACKET, sock.getsockname())


def computes_on(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    hog()


@mark.cpus(2)
@inside(modules=SCHED, timeout=90, pinned=False)
def test_what_is_lent_on_by_a_lock_is_charged() -> None:
    """Another thread holds the lock, on another CPU, and computes."""
    told = mmap.mmap(-1, mmap.PAGESIZE)
    with ExitStack() as stack:
        stack.enter_context(starving("rr", hogs=0, cap=CAP, hold=LONG))
        for cpu in (HIS, HIS, ANOTHER, ANOTHER):
            stack.enter_context(running(partial(computes_on, cpu)))
        seen = Counting()
        stack.enter_context(running(partial(lends, told)))
        await_boosted(seen)
        (pid,) = struct.unpack_from("i", told, 8)
        time.sleep(2)
        before, began = cpu_seconds(pid), time.monotonic()
        time.sleep(8)
        took = (cpu_seconds(pid) - before) / (time.monotonic() - began)
        # What the boost may take, and its fair part of the rest.
        most = CAP / 100 + (1 - CAP / 100) / 3
        assert took < most + SLACK, (took, most, seen.all())
        assert seen["restored cap"] > 0, seen.all()
