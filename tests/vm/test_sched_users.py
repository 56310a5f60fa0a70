# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: what one user does keeps nobody else from being raised."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from inside import inside, mark
from inside.computing import hog, spin
from inside.net import udp
from inside.raising import LONG, SCHED, as_another_user, await_raised, is_raised, starving
from inside.receiver import Receiver, hungry, receiving
from inside.scheduling import BUFFER, PACKET, Counting, boosted, calm, flood, running
from inside.suite import wait_for

pytestmark = mark.ends

CROWD = 40  # processes
LOOKS = 300  # hundredths of a second


def fill_oneself() -> None:
    """A receiver that is never done, by its own doing."""
    as_another_user()
    sock = udp(rcvbuf=BUFFER)
    while True:
        for _ in range(40):
            sock.sendto(PACKET, sock.getsockname())
        for _ in range(5):
            sock.recv(2000)
            spin(0.001)


def fill_and_close() -> None:
    """As soon as it is raised it ends that, and what is left is a slot."""
    as_another_user()
    while True:
        with udp(rcvbuf=BUFFER) as sock:
            begin = time.monotonic()
            while time.monotonic() < begin + 0.5:
                for _ in range(40):
                    sock.sendto(PACKET, sock.getsockname())
                sock.recv(2000)
                if os.sched_getscheduler(0) != os.SCHED_OTHER:
                    break
        time.sleep(0.05)


def share_raised(receiver: Receiver) -> float:
    raised = 0
    for _ in range(LOOKS):
        raised += is_raised("rr", receiver.before, receiver.state())
        time.sleep(0.01)
    return raised / LOOKS


CROWDS: dict[str, Callable[[], None]] = {"stays": fill_oneself, "closes": fill_and_close}


@mark.timeout(900)
@mark.parametrize("kind", list(CROWDS))
@inside(modules=SCHED)
def test_a_crowd_of_one_user_leaves_places_and_share_to_others(kind: str) -> None:
    """They are as important, and fill their own sockets over the loopback.

    The sender is started before them: beside them it would take seconds to begin.
    """
    with (
        starving("rr", hogs=0),
        receiving() as receiver,
        flood(receiver.port, stopped=True) as sender,
        running(CROWDS[kind], CROWD),
    ):
        wait_for(boosted)
        time.sleep(2)
        seen = Counting()
        os.kill(sender, signal.SIGCONT)
        share = share_raised(receiver)
        assert share > 0.25, (share, seen.all())


@inside(modules=SCHED)
def test_one_user_gives_up_a_place_that_another_asks_for() -> None:
    """Without more than its half it keeps what it has, though its buffer fills no longer."""
    with (
        starving("rr", hogs=1, hold=LONG),
        receiving(as_another_user) as one,
        receiving(as_another_user) as other,
        receiving() as receiver,
    ):
        calm()
        with flood(one.port, other.port):
            wait_for(lambda: boosted() == {"rr": 2})
        seen = Counting()
        with flood(receiver.port):
            wait_for(lambda: is_raised("rr", receiver.before, receiver.state()), 1)
        assert seen["restored displaced"] == 1
        assert boosted() == {"rr": 2}


@inside(modules=SCHED)
def test_one_user_alone_has_all_places() -> None:
    with (
        starving("rr", hogs=1),
        receiving(as_another_user) as one,
        receiving(as_another_user) as other,
    ):
        calm()
        with flood(one.port, other.port):
            wait_for(lambda: boosted() == {"rr": 2})


def spin_and_read() -> None:
    os.sched_setaffinity(0, {1})
    as_another_user()
    sock = udp()
    while True:
        sock.sendto(b"x", sock.getsockname())
        sock.recv(1)
        spin(0.005)


def spin_on(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    hog()


@mark.cpus(2)
@inside(modules=SCHED, pinned=False)
def test_who_keeps_another_cpu_busy_is_in_nobodys_way() -> None:
    """Nice 0 there reads now and then; nice 5 may run on both, and was not moved there raised.

    More compute there than on the first CPU, so the kernel itself does not move nice 5 there.
    """
    with ExitStack() as stack:
        stack.enter_context(starving("rr", hogs=0))
        stack.enter_context(running(spin_and_read))
        stack.enter_context(running(partial(spin_on, 0), 2))
        stack.enter_context(running(partial(spin_on, 1), 4))
        receiver = stack.enter_context(receiving(partial(os.nice, 5)))
        calm()
        seen = Counting()
        with flood(receiver.port):
            await_raised(receiver, "rr")
        assert seen["elected"] > 0


def hold_one_after_the_other() -> None:
    """Of several threads nobody is seen receiving, on one socket after the other."""
    as_another_user()
    threading.Thread(target=lambda: time.sleep(600)).start()
    while True:
        with udp(rcvbuf=BUFFER) as sock:
            begin = time.monotonic()
            while time.monotonic() < begin + 0.9:
                for _ in range(8):
                    sock.sendto(PACKET, sock.getsockname())
                time.sleep(0.005)


@inside(modules=SCHED)
def test_sockets_that_nobody_reads_bar_others_for_a_second_in_ten() -> None:
    """The receiver gets more by being raised: otherwise it would be refused for that."""
    with (
        starving("rr", hogs=1),
        hungry(partial(os.nice, 7)) as receiver,
        running(hold_one_after_the_other),
    ):
        time.sleep(1.5)
        seen = Counting()
        with flood(receiver.port, burst=3):
            share = share_raised(receiver)
        assert share > 0.4, (share, seen.all())
