# SPDX-License-Identifier: GPL-2.0-only
"""Whoever reads the files below /proc/packetflow, and however slowly, keeps nobody waiting."""

import ctypes
import mmap
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inside import Skip, inside, mark
from inside.net import Worker, drops, udp
from inside.suite import ROOT, early, insmod, set_knob, wait_for

pytestmark = mark.ends

USERFAULTFD = 323  # the call on x86-64
API, REGISTER = 0xC018AA3F, 0xC020AA00
MISSING = 1
READERS = 50


def read_for_ever(path: Path) -> None:
    """Into a page that nobody provides."""
    libc = ctypes.CDLL(None, use_errno=True)
    faults = libc.syscall(USERFAULTFD, os.O_CLOEXEC)
    if faults < 0:
        os._exit(2)
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    api = (ctypes.c_uint64 * 3)(0xAA, 0, 0)
    area = (ctypes.c_uint64 * 4)(start, mmap.PAGESIZE, MISSING, 0)
    for request, argument in ((API, api), (REGISTER, area)):
        if libc.ioctl(faults, ctypes.c_ulong(request), argument):
            os._exit(2)
    os.readv(os.open(path, os.O_RDONLY), [page])
    os._exit(3)


@contextmanager
def reading_for_ever(path: Path) -> Iterator[int]:
    child = os.fork()
    if not child:
        read_for_ever(path)
    time.sleep(0.5)
    try:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            raise Skip(f"this kernel has no such pages: {status}")
        yield child
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@inside()
def test_a_module_that_is_unloaded_has_stopped_though_its_file_is_being_read() -> None:
    with reading_for_ever(ROOT / "filter/floor"):
        full, sender = udp(rcvbuf=1), udp()

        def dropped_early() -> int:
            before = drops(full), early(full)
            for _ in range(200):
                sender.sendto(b"x" * 500, full.getsockname())
            assert drops(full) - before[0] > 100
            return early(full) - before[1]

        wait_for(dropped_early)
        leaving = subprocess.Popen(["rmmod", "pf_filter"])
        wait_for(lambda: dropped_early() == dropped_early() == 0)
    assert leaving.wait(20) == 0
    insmod("pf_filter")


def slowest_write() -> float:
    """Seconds. To switch all off waits for every task of the machine, whatever it reads."""
    slowest = 0.0
    for number in range(200):
        before = time.monotonic()
        set_knob("filter/floor", 100 + number % 2)
        slowest = max(slowest, time.monotonic() - before)
        time.sleep(0.002)
    set_knob("filter/floor", 100)
    return slowest


def spin() -> None:
    while True:
        pass


@inside(timeout=200, modules=("pf_filter", "pf_sched", "pf_mm"))
def test_readers_that_get_no_time_do_not_delay_the_administrator() -> None:
    """They are preempted wherever they are, beside one that never sleeps."""

    def read() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while True:
            for name in ("filter/floor", "filter/exempt", "enable"):
                (ROOT / name).read_text()

    hog = Worker(spin)
    hog.begin()
    alone = slowest_write()
    readers = [Worker(read) for _ in range(READERS)]
    for reader in readers:
        reader.begin()
    time.sleep(0.5)
    beside = slowest_write()
    for worker in (hog, *readers):
        worker.end()
    assert beside < 2 * alone + 0.2, (alone, beside)
