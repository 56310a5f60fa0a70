# SPDX-License-Identifier: GPL-2.0-only
"""On a real-time kernel nothing of ours takes a lock that sleeps where it must not.

There most locks of the kernel are mutexes. Where preemption is off, in a kprobe's handler, in
that of a tracepoint, or under a raw lock, none may be taken; but the kernel complains only if
somebody else holds it just then. So ftrace notes each that is taken, and how often preemption
is off there. Without fault it always is as little as anywhere.
"""

import re
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inside import Skip, growing, inside
from inside.computing import hog
from inside.net import pressure, udp
from inside.receiver import receiving
from inside.scheduling import Counting, attending, calm, flood, knobs, running
from inside.suite import ROOT, dropped, is_real_time, metric, sockets, wait_for

INSTANCE = Path("/sys/kernel/tracing/instances/packetflow-locks")
LOCKS = ("rt_spin_lock", "rt_read_lock", "rt_write_lock", "mutex_lock", "rt_mutex_lock")
# "python3-123   [000] d..2.   12.345678: rt_spin_lock <-caller"; above it a line for each flag.
TAKEN = re.compile(r"^.*\[\d+\] (\S+) +[\d.]+: (\w+) <-(.*)$", re.MULTILINE)
FLAG = re.compile(r"^#.*=> ([-/ \w]+)$", re.MULTILINE)

Found = Counter[tuple[int, str]]


@contextmanager
def noting() -> Iterator[Found]:
    """Where locks that sleep are taken meanwhile, and how deep preemption is off."""
    found: Found = Counter()
    INSTANCE.mkdir()
    try:
        (INSTANCE / "buffer_size_kb").write_text("8192")
        known = Path("/sys/kernel/tracing/available_filter_functions").read_text().split()
        (INSTANCE / "set_ftrace_filter").write_text(" ".join(set(LOCKS) & set(known)))
        (INSTANCE / "current_tracer").write_text("function")
        yield found
        (INSTANCE / "tracing_on").write_text("0")
        trace = (INSTANCE / "trace").read_text()
        which = FLAG.findall(trace).index("preempt-depth")
        for flags, lock, caller in TAKEN.findall(trace):
            found[int(flags[which].replace(".", "0"), 16), f"{lock} in {caller}"] += 1
        (INSTANCE / "current_tracer").write_text("nop")
    finally:
        INSTANCE.rmdir()


def open_and_close() -> None:
    """Sockets are bound, accepted and released, received on, and told of."""
    for family, here in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
        listening = socket.create_server((here, 0), family=family)
        connected = socket.create_connection(listening.getsockname()[:2])
        accepted, _ = listening.accept()
        sock = udp(here)
        sock.sendto(b"x", sock.getsockname())
        connected.send(b"x")
        sockets()
        assert sock.recv(9) == accepted.recv(9) == b"x"
        for one in (listening, connected, accepted, sock):
            one.close()


def drop_early() -> None:
    with pressure() as full:
        for _ in range(200):
            full.again()


def raise_and_fork() -> None:
    with (
        attending(),
        knobs(lever="auto"),
        running(hog, 2),
        receiving() as receiver,
    ):
        calm()
        with flood(receiver.port):
            receiver.note()
            receiver.fork()
            time.sleep(1)
        wait_for(lambda: receiver.state() == receiver.before)


def grow() -> None:
    with growing.owner() as one:
        one.flood(300)


@inside(timeout=280, modules=("pf_filter", "pf_sched", "pf_mm"))
def test_no_lock_that_sleeps_is_taken_where_preemption_is_off() -> None:
    if not is_real_time():
        raise Skip("this kernel is no real-time one")
    seen = Counting()
    for act in (open_and_close, drop_early, raise_and_fork, grow):
        with noting() as found:
            act()
        least = min(depth for depth, _ in found)
        deeper = {where: times for (depth, where), times in found.items() if depth > least}
        assert deeper == {}, act.__name__
        assert found.total() > 100, f"{act.__name__}: {found.total()} is too little to tell"
    assert dropped()["socket_full"] > 100
    assert seen["elected"]
    assert metric("packetflow_mm_grown_total")[""]
    assert "absent" not in (ROOT / "status").read_text()
