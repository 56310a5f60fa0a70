# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: a boost that lowers no loss ends and backs off; one that does stays."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from inside import inside, mark
from inside.computing import hog
from inside.raising import SCHED
from inside.receiver import Receiver, receiving
from inside.scheduling import Counting, attending, calm, flood, knobs, running
from inside.suite import set_knob, wait_for

pytestmark = mark.ends

WATCHED = 9.0  # s; the first question comes after half a second, the next after two more
STARVED = 4  # processes that never sleep


@contextmanager
def slow_by_itself() -> Iterator[Receiver]:
    """It sleeps after each packet, so it reads as few whether it is raised or not."""
    with (
        attending(),
        knobs(lever="rr", elect=1),
        running(hog),
        receiving(work=0.0001, pause=0.03) as receiver,
    ):
        calm()
        yield receiver


def raised_share(receiver: Receiver) -> float:
    """For how much of the time it was raised."""
    raised = looks = 0
    end = time.monotonic() + WATCHED
    while time.monotonic() < end:
        raised += receiver.state() != receiver.before
        looks += 1
        time.sleep(0.02)
    return raised / looks


@inside(modules=SCHED)
def test_a_boost_that_lowers_no_loss_ends_and_backs_off() -> None:
    with slow_by_itself() as receiver:
        seen = Counting()
        with flood(receiver.port):
            wait_for(lambda: seen["elected"])
            share = raised_share(receiver)
        assert 1 <= seen["restored trial"] <= 4, seen.all()
        assert seen["refused vain"] > 0, seen.all()
        assert share < 0.6, (share, seen.all())


@inside(modules=SCHED)
def test_a_boost_that_lowers_loss_stays_though_some_is_left() -> None:
    with (
        attending(),
        knobs(lever="rr", elect=1, cap=95),
        running(hog, STARVED),
        receiving(work=0.004, pause=0) as receiver,
    ):
        calm()
        seen = Counting()
        with flood(receiver.port, burst=5):
            wait_for(lambda: seen["elected"])
            share = raised_share(receiver)
        assert seen["restored trial"] >= 1, seen.all()
        assert share > 0.6, (share, seen.all())


@inside(modules=SCHED)
def test_who_closes_its_socket_while_it_is_asked_is_let_go_of() -> None:
    with slow_by_itself() as receiver:
        seen = Counting()
        with flood(receiver.port):
            wait_for(lambda: seen["restored trial"])
            receiver.close()
        wait_for(lambda: receiver.state() == receiver.before)
        set_knob("enable", 0)  # waits for all that is held
        set_knob("enable", 1)
