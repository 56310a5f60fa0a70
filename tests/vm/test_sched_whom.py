# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: which threads are raised, how many, and in which order."""

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from inside import Skip, inside, mark
from inside.net import udp
from inside.raising import (
    LEVERS,
    LONG,
    SCHED,
    UNTRIED,
    await_counted,
    await_raised,
    exempt,
    is_raised,
    of_low_priority_and_accurate,
    raise_up,
    raised,
    starving,
)
from inside.receiver import hungry, receiving
from inside.scheduling import (
    BUFFER,
    SCHED_DEADLINE,
    Counting,
    boosted,
    calm,
    flood,
    running,
    set_attributes,
)
from inside.suite import wait_for

pytestmark = mark.ends

UDPLITE = 136
UNREAD = 9556  # a port


@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_of_several_threads_only_the_receiver_is_raised(lever: str) -> None:
    with starving(lever), receiving(of_low_priority_and_accurate, in_thread=True) as receiver:
        before = receiver.threads()
        assert len(before) == 3
        raise_up(receiver, lever)
        now = receiver.threads()
        assert {tid for tid in before if now[tid] != before[tid]} == {receiver.tid}
        wait_for(lambda: receiver.threads() == before)


def fifo() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))


def round_robin() -> None:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def deadline() -> None:
    set_attributes(policy=SCHED_DEADLINE, runtime=3_000_000, deadline=10**7, period=10**7)


def idle_class() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def top() -> None:
    os.nice(-20)


UNTOUCHED: dict[str, tuple[Callable[[], None], str]] = {
    "fifo": (fifo, "class"),
    "round_robin": (round_robin, "class"),
    "deadline": (deadline, "class"),
    "idle_class": (idle_class, "class"),
    "top": (top, "top"),
    "exempt": (exempt, "exempt"),
}


@mark.parametrize("kind", list(UNTOUCHED))
@mark.parametrize("lever", ("nice", "rr"))
@inside(modules=SCHED)
def test_some_are_never_touched(lever: str, kind: str) -> None:
    prepare, reason = UNTOUCHED[kind]
    # Alone: beside others the idle class would not get to read a packet, and where
    # none is read none is delivered.
    with starving(lever, hogs=0, exempt="other,pinned"), receiving(prepare) as receiver:
        seen = Counting()
        calm()
        with flood(receiver.port):
            await_counted(seen, f"refused {reason}")
            assert receiver.row()["pp"] == "0"
        assert receiver.state() == receiver.before
        assert seen["elected"] == 0


@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_observe_touches_nobody_and_counts(lever: str) -> None:
    with starving(lever, mode="observe"), receiving() as receiver:
        seen = Counting()
        calm()
        with flood(receiver.port):
            await_counted(seen, "observed")
            assert receiver.row()["pp"] == "0"
        assert receiver.state() == receiver.before
        assert seen["elected"] == 0
        assert not boosted()


@inside(modules=SCHED)
def test_of_more_than_there_is_place_for_the_most_important_are_raised() -> None:
    with (
        starving("nice", hogs=1, elect=1, hold=400),
        receiving(partial(os.nice, 5)) as low,
        receiving() as high,
    ):
        seen = Counting()
        raise_up(low, "nice")
        with flood(low.port, high.port):
            await_raised(high, "nice")
            for _ in range(UNTRIED):
                assert is_raised("nice", high.before, high.state())
                assert low.state() == low.before
                time.sleep(0.01)
        assert seen["restored displaced"] >= 1
        # Outranked, while the other one has too little in spite of its boost.
        assert seen["refused place"] + seen["refused outranked"] >= 1


@inside(modules=SCHED)
def test_equals_do_not_displace_each_other() -> None:
    with starving("nice", hogs=1, elect=1, hold=200), receiving() as one, receiving() as other:
        seen = Counting()
        raise_up(one, "nice")
        with flood(one.port, other.port):
            wait_for(lambda: seen["refused place"] >= 10)
            assert is_raised("nice", one.before, one.state())
            assert other.state() == other.before
        assert seen["restored displaced"] == 0


@inside(modules=SCHED)
def test_the_degree_follows_the_rank() -> None:
    with (
        starving("nice", hogs=1, elect=2, hold=LONG, levels=6),
        receiving() as high,
        receiving(partial(os.nice, 5)) as low,
    ):
        calm()
        # Beside one whose buffer stays full nobody less important would be raised.
        with flood(high.port):
            wait_for(lambda: high.state().nice == -6)
        with flood(low.port):
            wait_for(lambda: low.state().nice == 2)


@inside(modules=SCHED)
def test_the_degree_follows_who_comes_later() -> None:
    """The higher one gets what fills its buffer, and has time to read it before it gets more."""
    with (
        starving("nice", hogs=1, elect=2, hold=LONG, levels=6),
        hungry(partial(os.nice, 5)) as low,
        hungry(work=0.001) as high,
    ):
        calm()
        with flood(low.port):
            wait_for(lambda: low.state().nice == -1)
            with flood(high.port, burst=30, pause=0.1):
                wait_for(lambda: (high.state().nice, low.state().nice) == (-6, 2))


@inside(modules=SCHED)
def test_by_round_robin_who_ranks_higher_runs_first() -> None:
    """The higher one has enough then, or the lower one would not be raised beside it."""
    with (
        starving("rr", hogs=4, elect=2, hold=LONG, cap=95),
        hungry(partial(os.nice, 5)) as low,
        hungry() as high,
        raised(low, "rr"),
    ):
        assert low.state().priority == 1
        seen = Counting()
        with flood(high.port, burst=2):
            try:
                wait_for(lambda: (high.state().priority, low.state().priority) == (2, 1))
            except AssertionError:
                raise AssertionError(seen.all(), high.state()[:4], low.state()[:4]) from None


@inside(modules=SCHED)
def test_equals_take_turns_where_a_boost_does_not_help() -> None:
    with starving("nice", hogs=1, elect=1, hold=LONG), receiving() as one, receiving() as other:
        seen = Counting()
        calm()
        with flood(one.port, other.port):
            for receiver in (one, other, one):
                await_raised(receiver, "nice")
        assert seen["restored trial"] >= 2


def hold_unread() -> None:
    """One of two threads is going to receive, and was not seen to yet."""
    threading.Thread(target=lambda: time.sleep(600)).start()
    with udp(port=UNREAD, rcvbuf=BUFFER):
        time.sleep(600)


@inside(modules=SCHED)
def test_nobody_is_raised_past_who_was_never_seen_receiving() -> None:
    """It may be kept from it by just those who are raised; after a second it is not waited for."""
    with (
        starving("rr", hold=LONG),
        receiving(of_low_priority_and_accurate) as receiver,
        running(hold_unread),
    ):
        seen = Counting()
        calm()
        with flood(receiver.port):
            await_raised(receiver, "rr")
            begin = time.monotonic()
            with flood(UNREAD):
                wait_for(lambda: seen["restored displaced"] == 1)
                await_raised(receiver, "rr")
                assert time.monotonic() - begin >= 1


@inside(modules=SCHED)
def test_who_begins_to_receive_beside_the_raised_counts_at_once() -> None:
    """It is looked at who receives for a tenth of a second at the onset, and again a second later.
    While somebody is raised that is too seldom."""
    with (
        starving("rr", hogs=0, hold=LONG),
        hungry(of_low_priority_and_accurate) as low,
        receiving() as receiver,
    ):
        raise_up(low, "rr")
        time.sleep(0.2)
        seen = Counting()
        with flood(receiver.port, burst=1):
            wait_for(lambda: seen["restored displaced"] == 1, 0.5)


@inside(modules=SCHED)
def test_udp_lite_is_none_of_ours() -> None:
    """It has the type of UDP, and another layout."""
    try:
        full = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, UDPLITE)
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, UDPLITE)
    except OSError:
        raise Skip("this kernel has no UDP-Lite") from None
    full.bind(("127.0.0.1", 0))
    seen = Counting()
    for _ in range(1000):
        sender.sendto(b"x" * 500, full.getsockname())
    assert not any(seen.all().get(name) for name in ("elected", "refused unknown"))


@inside(modules=SCHED)
def test_an_automatic_number_is_bounded_by_the_cpus() -> None:
    """On one CPU there are at most two."""
    with ExitStack() as stack:
        stack.enter_context(starving("nice", hogs=1, elect=0))
        receivers = [stack.enter_context(receiving()) for _ in range(4)]
        seen = Counting()
        calm()
        with flood(*(receiver.port for receiver in receivers), burst=4):
            wait_for(boosted)
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                assert sum(boosted().values()) <= 2
                time.sleep(0.02)
        assert seen["refused place"] > 0
