# SPDX-License-Identifier: GPL-2.0-only
"""CPUs that go and come back under overload, while threads are raised.

What a CPU knew of pressure goes with it, and it comes back calm; who was raised on
it, or shed for it, is raised or shed elsewhere, and everybody is as before in the end.
"""

import os
import random
import socket
import time
from contextlib import suppress
from functools import partial

from inside import inside, mark
from inside.computing import hog
from inside.cpus import (
    REMOVABLE,
    all_back,
    all_on,
    backlog,
    own_sysfs,
    receiving_on,
    sending_on,
    steer,
    switch,
)
from inside.growing import granted
from inside.net import Peer, port_of
from inside.raising import LEVERS, is_restored
from inside.receiver import receiving
from inside.scheduling import Counting, attending, boosted, flood, knobs, reserved, running
from inside.suite import ALL, ROOT, entry, pressed, wait_for


@mark.cpus(4, 16)
@mark.parametrize("lever", LEVERS)
@inside(timeout=200, modules=ALL, pinned=False)
def test_cpus_that_come_and_go_while_threads_are_raised(lever: str) -> None:
    before = reserved()
    with (
        attending(),
        all_back(),
        knobs(lever=lever, elect=4, hold=50, apart=0),
        receiving() as one,
        receiving(partial(os.nice, 5)) as other,
    ):
        seen = Counting()
        switched = 0
        with running(hog, 5), flood(one.port, other.port):
            wait_for(boosted)
            end = time.monotonic() + 8
            while time.monotonic() < end:
                with suppress(OSError):
                    switch(random.choice(REMOVABLE), random.random() < 0.5)
                    switched += 1
                time.sleep(random.random() / 20)
            elected = seen["elected"]
            # With one CPU left it goes on as with all.
            for cpu in REMOVABLE:
                with suppress(OSError):
                    switch(cpu, False)
            wait_for(lambda: seen["elected"] > elected or boosted())
        assert switched > 10
        all_on()
        for receiver in (one, other):
            receiver.drain()
            wait_for(partial(is_restored, receiver))
    wait_for(lambda: not boosted())
    wait_for(lambda: not any(map(pressed, range(4))))
    wait_for(lambda: granted() == 0)
    wait_for(lambda: reserved() == before)


def cut(cpu: int) -> float:
    """The level up to which receivers are shed for its queue."""
    name = f'packetflow_filter_cut_level{{cpu="{cpu}"}} '
    lines = (ROOT / "metrics").read_text().splitlines()
    (value,) = [line.removeprefix(name) for line in lines if line.startswith(name)]
    return float(value)


def is_shed(sock: socket.socket, before: int) -> bool:
    """More than before."""
    return int(entry(sock)["early_overload"]) > before


def told_of(cpu: int) -> list[str]:
    status = (ROOT / "status").read_text().splitlines()
    metrics = (ROOT / "metrics").read_text().splitlines()
    return [line for line in status if f"cpu {cpu}:" in line] + [
        line for line in metrics if f'cpu="{cpu}"' in line
    ]


@mark.cpus(4)
@mark.steers()
@inside(timeout=200, modules=ALL, pinned=False)
def test_one_that_goes_while_pressed_comes_back_calm_and_is_looked_after() -> None:
    own_sysfs()
    crowded = Peer(1)
    steer(crowded, 2)
    top, top_worker = receiving_on(crowded.ours4, 2, 0)
    low, low_worker = receiving_on(crowded.ours4, 2, 10)
    there = [(crowded.ours4, port_of(top)), (crowded.ours4, port_of(low))]
    shed = 0
    try:
        backlog(300)
        with all_back():
            for _ in range(2):
                # They are bound to the CPU again, which they lost with it.
                for worker in (top_worker, low_worker):
                    os.sched_setaffinity(worker.pid, {2})
                senders = [sending_on(crowded, cpu, there, 0) for cpu in (0, 1)]
                wait_for(lambda: cut(2) > 0)
                wait_for(partial(is_shed, low, shed))
                switch(2, False)
                assert told_of(2) == []
                for sender in senders:
                    sender.end()
                time.sleep(1.3)  # longer than pressure lasts
                switch(2, True)
                assert (pressed(2), cut(2)) == (False, 0)
                shed = int(entry(low)["early_overload"])
        assert entry(top)["early_overload"] == "0"
    finally:
        backlog(1000)
        for worker in (top_worker, low_worker):
            worker.end()
