# SPDX-License-Identifier: GPL-2.0-only
"""All of it at once, for as long as --soak says: overload, and everything comes and goes.

Nothing of it may be left in the end: no raised thread, no grown buffer, no memory.
"""

import mmap
import os
import random
import signal
import statistics
import struct
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from inside import inside, mark
from inside.coming import BARE, devices_come_and_go, seconds, sockets_come_and_go
from inside.computing import hog
from inside.cpus import REMOVABLE, all_back, all_on, switch
from inside.grammar import KNOBS
from inside.growing import Owner, owners
from inside.net import Namespace, Pressure, sysctl, udp
from inside.receiver import receiving
from inside.scheduling import State, attending, everybody, flood, running, start
from inside.suite import ALL, ROOT, insmod, metric, metrics_parse, rmmod, stripped

PORTS = range(9100, 9108)
SAMPLES = 100  # of memory
MODULES = ("pf_common", *ALL)
# What the last fifth may take more than the one in the middle, in KiB: by medians, as what comes
# and goes takes some MiB for a moment.
MEMORY_MOST, SLAB_MOST = 16 << 10, 8 << 10
# A table of 64 sockets would be full all the time.
LEAST_SOCKETS = 1024


# What comes and goes; each is done over and over by a process of its own.


def sockets() -> None:
    sockets_come_and_go(PORTS, 1 / 5)


def datagrams() -> None:
    with udp() as out:
        for port in list(PORTS) * 5:
            out.sendto(b"x" * 300, ("127.0.0.1", port))
    time.sleep(0.02)


def processes() -> None:
    child = os.fork()
    if not child:
        with suppress(OSError):
            os.nice(random.randint(0, 19))
            sock = udp("127.0.0.1", random.choice(PORTS) + 100)
            while True:
                sock.recv(400)
        os._exit(0)
    with udp() as out:
        for _ in range(20):
            for port in PORTS:
                out.sendto(b"x" * 300, ("127.0.0.1", port + 100))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def namespaces() -> None:
    namespace = Namespace()
    with namespace:
        full = Pressure()
        for _ in range(random.randint(1, 100)):
            full.again()
    namespace.close()
    full.sock.close()


def cpus_come_and_go() -> None:
    with suppress(OSError):  # what is reserved might not fit on those that stay
        switch(random.choice(REMOVABLE), random.random() < 0.6)
    time.sleep(random.random() / 5)


def settings() -> None:
    """A value for a moment, then the default again."""
    name = random.choice(list(KNOBS))
    before, text = (ROOT / name).read_bytes(), KNOBS[name].good(random.Random())
    if name == "max_sockets" and text.isdigit() and int(text) < LEAST_SOCKETS:
        return
    # Where CPUs go meanwhile 6.12 warns that it lost count of what is reserved.
    if text == b"deadline":
        return
    with suppress(OSError):
        (ROOT / name).write_bytes(text)
        time.sleep(random.random() / 2)
    (ROOT / name).write_bytes(before)
    time.sleep(random.random() / 5)


def modules() -> None:
    """One goes and comes back, or all."""
    gone = random.choice(ALL)
    if random.random() < 0.8:
        rmmod(gone)
        time.sleep(random.random())
        insmod(gone)
    else:
        for name in (*random.sample(ALL, len(ALL)), "pf_common"):
            rmmod(name)
        for name in ("pf_common", *random.sample(ALL, len(ALL))):
            insmod(name)
    time.sleep(4 * random.random())


def readers() -> None:
    for name in ("status", "sockets"):
        (ROOT / name).read_text()
    metrics_parse()
    time.sleep(random.random() / 5)


ACTORS = (
    *(sockets, datagrams, processes, namespaces, devices_come_and_go, cpus_come_and_go),
    *(settings, modules, readers),
)


class Actor:
    """A process that does something over and over; what it may not meet ends it."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.name = action.__name__
        self._words = os.memfd_create(self.name)
        self._turns = mmap.mmap(-1, 8)
        self._pid = start(lambda: self._act(action))

    def _act(self, action: Callable[[], None]) -> None:
        random.seed()
        while True:
            try:
                action()
                self._turns[:] = struct.pack("Q", self.turns() + 1)
            except OSError:
                self._say()  # what it looked for may be gone, by another's doing
            except BaseException:
                self._say()
                os._exit(1)

    def _say(self) -> None:
        os.ftruncate(self._words, 0)
        os.pwrite(self._words, traceback.format_exc().encode(), 0)

    def turns(self) -> int:
        """How often it was done, to its end."""
        return int(struct.unpack("Q", self._turns[:])[0])

    def alive(self) -> bool:
        return os.waitpid(self._pid, os.WNOHANG) == (0, 0)

    def said(self) -> str:
        return f"{self.name}: {os.pread(self._words, 1 << 16, 0).decode()}"

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class Memory(NamedTuple):
    """In KiB."""

    taken: int
    slab: int


def memory() -> Memory:
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return Memory(found["MemTotal"] - found["MemAvailable"], found["SUnreclaim"])


def growth(samples: list[Memory]) -> Memory:
    """From the fifth in the middle to the last."""
    fifth = len(samples) // 5
    middle, last = samples[2 * fifth : 3 * fifth], samples[-fifth:]
    taken, slab = (
        int(statistics.median(s[n] for s in last) - statistics.median(s[n] for s in middle))
        for n in (0, 1)
    )
    return Memory(taken, slab)


@contextmanager
def everything() -> Iterator[list[Actor]]:
    made: list[Actor] = []
    try:
        made += [Actor(action) for action in ACTORS]
        yield made
    finally:
        for actor in made:
            actor.end()


def plain(state: State) -> State:
    """But for the slice, which the kernel makes longer where there are more CPUs."""
    return state._replace(runtime=0)


def loaded() -> list[str]:
    names = [line.split()[0] for line in Path("/proc/modules").read_text().splitlines()]
    return [name for name in names if name.startswith("pf_")]


def unload_all() -> None:
    while names := loaded():
        rmmod(next(name for name in (*ALL, "pf_common") if name in names))


def sizes(made: list[Owner]) -> list[int]:
    return [one.size() for one in made]


HAPPENS = {
    "raised": "packetflow_sched_elected_total",
    "grown": "packetflow_mm_granted_bytes",
    "dropped early": "packetflow_filter_dropped_total",
}


def happens() -> list[str]:
    """What the modules do, of those that are there just now."""
    with suppress(OSError):
        return [name for name, counter in HAPPENS.items() if sum(metric(counter).values())]
    return []


@mark.cpus(4)
@mark.timeout(14400)
@inside(timeout=14400, load=False, pinned=False)
def test_all_of_it_at_once(soak: float) -> None:
    subprocess.run(["modprobe", "tun"], check=False)
    # Most of loading and unloading is waiting for grace periods, long ones on emulated CPUs.
    Path("/sys/kernel/rcu_expedited").write_text("1")
    for name in MODULES:
        stripped(name)
        insmod(name)
    samples: list[Memory] = []
    seen: Counter[str] = Counter()
    with ExitStack() as stack:
        for context in (attending(), all_back(), sysctl("net.core.rmem_default", BARE)):
            stack.enter_context(context)
        kept = [stack.enter_context(receiving(partial(os.nice, nice))) for nice in (0, 5)]
        buffers = stack.enter_context(owners(0, 10))
        own, before = sizes(buffers), everybody()
        with running(hog), flood(*(receiver.port for receiver in kept)), everything() as actors:
            for _ in seconds(soak * 60):
                for one in buffers:
                    with suppress(BlockingIOError):
                        one.flood(50)
                    one.numbers()
                samples.append(memory())
                seen.update(happens())
                time.sleep(soak * 60 / SAMPLES)
                ended = [actor.said() for actor in actors if not actor.alive()]
                assert not ended, ended
        seen.update({actor.name: actor.turns() for actor in actors})
        all_on()
        unload_all()
        assert sizes(buffers) == own
        now = everybody()
        assert {(pid, plain(now[pid, born])) for pid, born in before} == {
            (pid, plain(before[pid, born])) for pid, born in before
        }
    Path("/sys/kernel/rcu_expedited").write_text("0")
    # Of all there was some.
    assert all(seen[name] for name in HAPPENS), seen
    idle = [actor.said() for actor in actors if not actor.turns()]
    assert not idle, (idle, seen)
    more = growth(samples)
    assert more.taken < MEMORY_MOST, (more, samples)
    assert more.slab < SLAB_MOST, (more, samples)
