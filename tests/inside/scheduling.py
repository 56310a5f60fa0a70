# SPDX-License-Identifier: GPL-2.0-only
"""How threads are scheduled, and what pf_sched makes of them.

A test's process is real-time while it waits, or it would itself starve beside
what it has started; what it starts is not.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from inside import Skip
from inside.net import udp
from inside.suite import metric, pressed, set_knob, wait_for

SCHED_DEADLINE = 6
SCHED_SETATTR, SCHED_GETATTR, CLONE3 = 314, 315, 435  # on x86-64
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
RESET_ON_FORK = 1
TEST_PRIORITY, SENDER_PRIORITY = 50, 10
PACKET = b"x" * 500
BUFFER = 20_000  # some thirty of these packets
SWITCH = Path("/proc/sys/kernel/sched_autogroup_enabled")  # real-time kernels may lack it

libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


class State(NamedTuple):
    """All that a boost might change of a thread; its slice is in ``runtime``."""

    policy: int
    flags: int
    nice: int
    priority: int
    runtime: int
    deadline: int
    period: int
    slack: int
    cpus: frozenset[int]
    autogroup: str


def _check(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def state(tid: int) -> State:
    got = _Attributes()
    _check(libc.syscall(SCHED_GETATTR, tid, ctypes.byref(got), ctypes.sizeof(got), 0))
    session = Path(f"/proc/{tid}/autogroup")
    return State(
        got.policy,
        got.flags,
        got.nice,
        got.priority,
        got.runtime,
        got.deadline,
        got.period,
        int(Path(f"/proc/{tid}/timerslack_ns").read_text()),
        frozenset(os.sched_getaffinity(tid)),
        session.read_text().strip() if SWITCH.exists() else "",
    )


@contextmanager
def autogroup(on: bool = True) -> Iterator[None]:
    """Sessions are groups, or are not."""
    if not SWITCH.exists():
        if on:
            raise Skip("this kernel has no autogroup")
        yield
        return
    before = SWITCH.read_text()
    SWITCH.write_text(str(int(on)))
    try:
        yield
    finally:
        SWITCH.write_text(before)


def set_attributes(tid: int = 0, **values: int) -> None:
    """sched_setattr(2), for what Python has no call for."""
    given = _Attributes(size=ctypes.sizeof(_Attributes), **values)
    _check(libc.syscall(SCHED_SETATTR, tid, ctypes.byref(given), 0))


def everybody() -> dict[tuple[int, int], State]:
    """Every thread outside the kernel, by its id and when it started."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/task/[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if not int(fields[6]) & 0x00200000:  # PF_KTHREAD
                found[int(stat.parent.name), int(fields[19])] = state(int(stat.parent.name))
    return found


def reserved() -> list[str]:
    """What deadline tasks have reserved, by CPU, as admission counts it."""
    lines = Path("/sys/kernel/debug/sched/debug").read_text().splitlines()
    return [line.split()[-1] for line in lines if "dl_bw->total_bw" in line]


def set_slack(ns: int) -> None:
    """The caller's timer slack; 0 sets what it was born with."""
    libc.prctl(PR_SET_TIMERSLACK, ns, 0, 0, 0)


def cpu_seconds(pid: int) -> float:
    """What a process has used of the CPUs, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | 2)  # the kernel's CPUCLOCK_SCHED of a process


def _attend(on: bool) -> None:
    if on:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(TEST_PRIORITY))
    else:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def fork_as(pid: int) -> int:
    """As os.fork(), with a child of that process id, which must be free."""
    wanted = ctypes.c_int32(pid)
    clone_args = (ctypes.c_uint64 * 11)()
    clone_args[4] = signal.SIGCHLD  # at its end
    clone_args[8], clone_args[9] = ctypes.addressof(wanted), 1  # ids, and how many
    return _check(libc.syscall(CLONE3, ctypes.byref(clone_args), ctypes.sizeof(clone_args)))


def start(action: Callable[[], object], session: bool = True, pid: int = 0) -> int:
    """A child process, with the scheduling that the test was started with; of that id."""
    attentive = os.sched_getscheduler(0) == os.SCHED_FIFO
    parent = os.getpid()
    # Not by a reset: a child of a real-time parent has another timer slack.
    _attend(False)
    child = fork_as(pid) if pid else os.fork()
    if not child:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            if session:
                os.setsid()
            with suppress(BrokenPipeError):
                action()
        os._exit(0)
    _attend(attentive)
    return child


def end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


@contextmanager
def attending() -> Iterator[None]:
    """Have the test run when it wants to."""
    _attend(True)
    try:
        yield
    finally:
        _attend(False)


@contextmanager
def running(action: Callable[[], object], number: int = 1) -> Iterator[list[int]]:
    """So many processes, in sessions of their own."""
    pids = [start(action) for _ in range(number)]
    try:
        yield pids
    finally:
        for pid in pids:
            end(pid)


def calm() -> None:
    """Wait until no CPU is pressed: at the next onset receivers are learnt at once."""
    wait_for(lambda: not any(pressed(cpu) for cpu in os.sched_getaffinity(0)))


@contextmanager
def flood(
    *ports: int, pause: float = 0.01, burst: int = 10, stopped: bool = False
) -> Iterator[int]:
    """More than the receivers take, from a process that nobody keeps from sending, or stopped."""
    out = udp()

    def send() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(SENDER_PRIORITY))
        if stopped:
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            for port in ports * burst:
                out.sendto(PACKET, ("127.0.0.1", port))
            time.sleep(pause)

    pid = start(send)
    try:
        yield pid
    finally:
        end(pid)
        out.close()


@contextmanager
def knobs(**values: object) -> Iterator[None]:
    """Settings of pf_sched for a while."""
    before = {name: Path(f"/proc/packetflow/sched/{name}").read_text().strip() for name in values}
    with ExitStack() as stack:
        for name, value in values.items():
            stack.callback(set_knob, f"sched/{name}", before[name])
            set_knob(f"sched/{name}", value)
        yield


def counters() -> dict[str, int]:
    """elected, observed, and refused and restored by reason."""
    found = {name: int(metric(f"packetflow_sched_{name}_total")[""]) for name in TOTALS}
    for name in ("refused", "restored"):
        for reason, value in metric(f"packetflow_sched_{name}_total").items():
            found[f"{name} {reason}"] = int(value)
    return found


TOTALS = ("elected", "observed")


class Counting:
    """What the counters have grown by since."""

    def __init__(self) -> None:
        self._before = counters()

    def __getitem__(self, name: str) -> int:
        return counters()[name] - self._before[name]

    def all(self) -> dict[str, int]:
        """Those that have grown."""
        now = counters()
        return {name: now[name] - was for name, was in self._before.items() if now[name] != was}


def boosted() -> dict[str, int]:
    """How many are raised now, by lever; only those by which anybody is."""
    return {k: int(v) for k, v in metric("packetflow_sched_boosted").items() if v}
