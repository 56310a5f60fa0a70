# SPDX-License-Identifier: GPL-2.0-only
"""How threads are scheduled, and receivers that starve.

A test's process is real-time while it waits, or it would itself starve beside
what it has started; what it starts is not.
"""

import ctypes
import functools
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from inside import TESTS, Skip
from inside.net import port_of, udp
from inside.suite import metric, pressed, set_knob, sockets, wait_for

SCHED_DEADLINE = 6
SCHED_SETATTR, SCHED_GETATTR, CLONE3 = 314, 315, 435  # on x86-64
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
RESET_ON_FORK = 1
TEST_PRIORITY, SENDER_PRIORITY = 50, 10
PACKET = b"x" * 500
BUFFER = 20_000  # some thirty of these packets
COMPUTE = TESTS.parent / "build" / "rig" / "compute.so"
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


@functools.cache
def _computing() -> ctypes.CDLL:
    return ctypes.CDLL(str(COMPUTE))


def compute(instructions: int = 5_000) -> None:
    """By instructions that cost the host little: more of them than this call itself takes."""
    _computing().compute(ctypes.c_uint64(instructions))


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        compute()


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


def hog() -> None:
    while True:
        compute(1_000_000)


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


class Receiver:
    """A process of which one thread receives, a packet every few milliseconds.

    It does what it is told in between: the methods, which return at once.
    """

    def __init__(
        self,
        prepare: Callable[[], object] = lambda: None,
        *,
        in_thread: bool = False,
        session: bool = True,
        work: float = 0.001,
        pause: float = 0.004,
    ) -> None:
        self._prepare, self._work, self._pause = prepare, work, pause
        self._own, self._its = socket.socketpair()
        self.pid = start(self._main_of_threads if in_thread else self._main, session)
        self._its.close()
        self._own.settimeout(50)
        self.tid, self.port = struct.unpack("2I", self._own.recv(8))
        self.before = state(self.tid)

    def _main(self) -> None:
        self._own.close()
        self._prepare()
        self._serve()

    def _main_of_threads(self) -> None:
        self._own.close()
        self._prepare()
        threading.Thread(target=lambda: time.sleep(600)).start()
        threading.Thread(target=self._serve).start()
        while True:
            signal.pause()

    def _serve(self) -> None:
        self._sock = udp(rcvbuf=BUFFER)
        self._others: list[socket.socket] = []
        # What is executed must not close it, or that would be why the boost ends.
        self._sock.set_inheritable(True)
        self._its.send(struct.pack("2I", threading.get_native_id(), port_of(self._sock)))
        while True:
            sockets = [s for s in (self._its, self._sock, *self._others) if s.fileno() >= 0]
            ready, _, _ = select.select(sockets, [], [])
            if self._its in ready:
                command = self._its.recv(100).decode()
                if command == "leave":
                    return
                self._its.send(struct.pack("I", getattr(self, f"_do_{command}")()))
                continue
            for sock in ready:
                sock.recv(2000)
                spin(self._work)
                time.sleep(self._pause)

    # What it does when told; each returns a number.

    def _do_close(self) -> int:
        self._sock.close()
        return 0

    def _do_open(self) -> int:
        self._others.append(udp(rcvbuf=BUFFER))
        return port_of(self._others[-1])

    def _do_drain(self) -> int:
        with suppress(BlockingIOError):
            while True:
                self._sock.recv(2000, socket.MSG_DONTWAIT)
        return 0

    def _do_fork(self) -> int:
        child = os.fork()
        if not child:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            signal.sigwait({signal.SIGUSR1})
            set_slack(0)
            time.sleep(600)
        return child

    def _do_hand_over(self) -> int:
        """A child receives on the socket from now on."""
        child = os.fork()
        if not child:
            while True:
                self._sock.recv(2000)
                spin(self._work)
                time.sleep(self._pause)
        self._sock.close()
        return child

    def _do_clone(self) -> int:
        thread = threading.Thread(target=lambda: time.sleep(600))
        thread.start()
        assert thread.native_id is not None
        return thread.native_id

    def _do_storm(self) -> int:
        """Children that have children at once; how many of either were raised for good."""
        wrong = 0
        for _ in range(5):
            children = []
            for _ in range(8):
                child = os.fork()
                if not child:
                    grandchild = os.fork()
                    time.sleep(0.2)
                    own = state(threading.get_native_id())
                    bad = int(own[:-1] != self.before_storm[:-1])
                    if grandchild:
                        bad += os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
                    os._exit(bad)
                children.append(child)
            for child in children:
                wrong += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return wrong

    @property
    def before_storm(self) -> State:
        return self._before_storm

    def _do_note(self) -> int:
        """Remember how it is scheduled; told before it is boosted."""
        self._before_storm = state(threading.get_native_id())
        return 0

    def _tell(self, command: str) -> int:
        self._own.send(command.encode())
        return int(struct.unpack("I", self._own.recv(4))[0])

    def close(self) -> None:
        self._tell("close")

    def open(self) -> int:
        """It receives on one more socket; its port."""
        return self._tell("open")

    def drain(self) -> None:
        self._tell("drain")

    def note(self) -> None:
        self._tell("note")

    def storm(self) -> int:
        return self._tell("storm")

    def fork(self) -> int:
        """Its child; at SIGUSR1 that takes the timer slack it was born with."""
        return self._tell("fork")

    def hand_over(self) -> int:
        return self._tell("hand_over")

    def clone(self) -> int:
        return self._tell("clone")

    def execute(self) -> None:
        """Become another program with the same socket, which nobody reads any more."""
        self._own.send(b"execute")

    def _do_execute(self) -> int:
        os.execvp("sleep", ["sleep", "600"])

    def _do_hog(self) -> int:
        hog()
        return 0

    def hog(self) -> None:
        """Compute from now on; it does nothing else any more."""
        self._own.send(b"hog")

    def leave(self) -> None:
        """End the thread that receives."""
        self._own.send(b"leave")

    # What is to be seen of it.

    def state(self) -> State:
        return state(self.tid)

    def threads(self) -> dict[int, State]:
        return {int(task.name): state(int(task.name)) for task in self._tasks()}

    def _tasks(self) -> list[Path]:
        return list(Path(f"/proc/{self.pid}/task").iterdir())

    def row(self) -> dict[str, str]:
        (row,) = [row for row in sockets() if row["local"].endswith(f":{self.port}")]
        return row

    def elected(self) -> bool:
        return self.row()["pp"] == "1"

    def end(self) -> None:
        end(self.pid)
        self._own.close()


@contextmanager
def receiving(
    prepare: Callable[[], object] = lambda: None,
    *,
    in_thread: bool = False,
    session: bool = True,
    work: float = 0.001,
    pause: float = 0.004,
) -> Iterator[Receiver]:
    made = Receiver(prepare, in_thread=in_thread, session=session, work=work, pause=pause)
    try:
        yield made
    finally:
        made.end()


# One that works all the time: with a boost it takes what it is sent, and beside hogs it does not.
hungry = functools.partial(receiving, work=0.003, pause=0)


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
