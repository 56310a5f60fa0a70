# SPDX-License-Identifier: GPL-2.0-only
"""The walk over all open files: anybody can make it long, and nobody has to wait for it."""

import ctypes
import os
import resource
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from inside import inside, mark
from inside.net import udp
from inside.suite import entry, set_knob, sockets

pytestmark = mark.ends

PROCESSES = 150
FILES = 50_000
CLONE_FILES = 0x400
SYS_CLONE = 56  # of x86-64


def took(does: Callable[[], object], of: Callable[[Iterable[float]], float] = min) -> float:
    """The shortest of three, or another."""

    def once() -> float:
        began = time.monotonic()
        does()
        return time.monotonic() - began

    return of(once() for _ in range(3))


def restart() -> None:
    """As the suite stops, everything is walked."""
    set_knob("enable", 0)
    set_knob("enable", 1)


def open_files(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 1000, count + 1000))
    null = os.open("/dev/null", os.O_RDONLY)
    for _ in range(count):
        os.dup(null)


def child(flags: int) -> int:
    """One that has the same files open, by a table of its own or by the same one."""
    pid = ctypes.CDLL(None).syscall(SYS_CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0)
    if not pid:
        signal.pause()
        os._exit(0)
    return int(pid)


@contextmanager
def children(flags: int) -> Iterator[None]:
    pids = [child(flags) for _ in range(PROCESSES)]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@inside(timeout=300)
def test_processes_that_share_their_files_are_walked_once() -> None:
    open_files(FILES)
    alone = took(restart)
    with children(CLONE_FILES):
        shared = took(restart)
    with children(0):
        apart = took(restart)
    assert shared - alone < (apart - alone) / 4, (alone, shared, apart)


@inside(timeout=300)
def test_who_reads_the_table_waits_for_no_long_walk() -> None:
    one = udp()
    open_files(FILES)
    alone, restarted = took(sockets), took(restart)
    with children(0):
        # The last step of a walk may be a short one.
        read = took(sockets, statistics.median)
        # Nor does a socket go unseen for it.
        assert int(entry(one)["owner"]) == os.getpid()
        longer = took(restart) - restarted
    assert read - alone < longer / 8, (alone, read, longer)
    one.close()
