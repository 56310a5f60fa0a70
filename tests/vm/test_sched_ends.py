# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: every way in which a boost ends, after which its thread is as before."""

import os
import resource
import socket
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from inside import inside, mark
from inside.net import udp
from inside.raising import (
    FORGOTTEN,
    LEVERS,
    LONG,
    LOOKED_AT,
    SCHED,
    is_restored,
    of_low_priority_and_accurate,
    raise_up,
    raised,
    starving,
)
from inside.receiver import Receiver, hungry, receiving
from inside.scheduling import (
    BUFFER,
    Counting,
    attending,
    boosted,
    calm,
    end,
    flood,
    knobs,
    reserved,
    state,
)
from inside.suite import metric, set_knob, stops, wait_for

pytestmark = mark.ends


def assert_restored(receiver: Receiver, why: str, seen: Counting) -> None:
    """Within much less than the boost would have lasted."""
    wait_for(lambda: receiver.state() == receiver.before, 1)
    try:
        wait_for(lambda: seen[f"restored {why}"] == seen["elected"] == 1, 1)
    except AssertionError:
        raise AssertionError(seen.all()) from None
    assert not boosted()


@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_it_ends_with_the_socket(lever: str) -> None:
    with starving(lever, hold=LONG), receiving() as receiver:
        seen = Counting()
        raise_up(receiver, lever)
        receiver.close()
        assert_restored(receiver, "closed", seen)


@mark.parametrize("in_thread", [False, True])
@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_it_ends_with_the_program(lever: str, in_thread: bool) -> None:
    with starving(lever, hold=LONG), receiving(in_thread=in_thread) as receiver:
        seen = Counting()
        with raised(receiver, lever):
            receiver.execute()
            # A thread that executes takes the place of the whole process.
            wait_for(lambda: Path(f"/proc/{receiver.pid}/comm").read_text() == "sleep\n", 5)
        receiver.tid = receiver.pid
        assert_restored(receiver, "exec", seen)


@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_it_ends_when_another_receives(lever: str) -> None:
    with starving(lever, hold=3 * LONG), receiving() as receiver:
        seen = Counting()
        raise_up(receiver, lever)
        child = receiver.hand_over()
        # Then who receives is looked at as the flood begins, and not only after half a second, by
        # when the boost of who reads nothing has ended as vain.
        calm()
        time.sleep(LOOKED_AT)
        with flood(receiver.port):
            wait_for(lambda: seen["restored other"] == 1, 12)
            wait_for(partial(is_restored, receiver), 1)
        end(child)


@inside(modules=SCHED)
def test_it_ends_when_the_thread_may_be_raised_no_longer() -> None:
    with starving("rr", hold=LONG), receiving() as receiver:
        seen = Counting()
        for turn in (1, 2):
            raise_up(receiver, "rr")
            with ExitStack() as stack:
                if turn == 1:
                    limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                    bound = (10_000_000, resource.RLIM_INFINITY)
                    resource.prlimit(receiver.pid, resource.RLIMIT_RTTIME, bound)
                    stack.callback(resource.prlimit, receiver.pid, resource.RLIMIT_RTTIME, limits)
                else:
                    comm = Path(f"/proc/{receiver.pid}/comm").read_text().strip()
                    stack.enter_context(knobs(exempt=comm))
                wait_for(partial(is_restored, receiver), 1)
                wait_for(partial(seen.__getitem__, "restored barred"), 1)
                assert seen["restored barred"] == turn


@inside(modules=SCHED)
def test_it_ends_for_the_least_when_there_are_fewer_places() -> None:
    with (
        starving("nice", hogs=4, elect=2, hold=LONG),
        hungry(partial(os.nice, 5)) as low,
        hungry() as high,
    ):
        calm()
        with flood(high.port, low.port, burst=1):
            wait_for(lambda: sum(boosted().values()) == 2)
            seen = Counting()
            set_knob("sched/elect", 1)
            wait_for(partial(is_restored, low), 1)
            assert seen["restored displaced"] == 1
            assert high.state().nice < 0


@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_it_ends_with_the_thread(lever: str) -> None:
    with starving(lever, hold=LONG), receiving(of_low_priority_and_accurate, in_thread=True) as one:
        before = one.threads()
        seen = Counting()
        raise_up(one, lever)
        one.leave()
        wait_for(lambda: seen["restored exited"] == seen["elected"] == 1, 1)
        assert not boosted()
        del before[one.tid]
        wait_for(lambda: not Path(f"/proc/{one.tid}").exists(), 1)
        assert one.threads() == before


@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_it_ends_with_the_process(lever: str) -> None:
    with starving(lever, hold=LONG), receiving() as receiver:
        child = receiver.fork()  # the socket stays open, and the session
        seen = Counting()
        raise_up(receiver, lever)
        end(receiver.pid)
        wait_for(lambda: seen["restored exited"] == seen["elected"] == 1, 1)
        assert not boosted()
        assert state(child) == receiver.before
        end(child)


@inside(modules=SCHED)
def test_a_reservation_is_given_back() -> None:
    """The kernel itself forgets one whose thread sleeps when it is taken away."""
    before = reserved()
    with starving("deadline"), receiving() as receiver:
        for _ in range(5):
            with flood(receiver.port):
                wait_for(boosted)
            receiver.drain()
            wait_for(partial(is_restored, receiver))
    # What counts as little is the kernel's until its deadline has passed, 1.2 s later.
    wait_for(lambda: reserved() == before, 3)


@mark.cpus(2)
@inside(timeout=120, modules=SCHED, pinned=False)
def test_reservations_are_given_back_by_who_may_fall_asleep_meanwhile() -> None:
    """Each wakes and sleeps thousands of times a second, on another CPU than pf_sched's thread."""
    before, seen = reserved(), Counting()
    lesser = sum(metric("packetflow_sched_lesser_total").values())
    with ExitStack() as stack:
        for context in (attending(), knobs(lever="deadline", elect=4, cap=45, apart=0, hold=LONG)):
            stack.enter_context(context)
        receivers = [stack.enter_context(receiving(work=0, pause=0.0001)) for _ in range(4)]
        for _ in range(20):
            with flood(*(receiver.port for receiver in receivers), pause=0.002, burst=20):
                wait_for(boosted)
                time.sleep(0.1)
            set_knob("sched/mode", "observe")
            wait_for(lambda: not boosted())
            set_knob("sched/mode", "enforce")
            time.sleep(FORGOTTEN)
        made = seen["elected"] - sum(metric("packetflow_sched_lesser_total").values()) + lesser
        assert made >= 40, seen.all()
        wait_for(lambda: reserved() == before, 3)


@inside(modules=SCHED)
def test_a_socket_that_nobody_reads_keeps_no_boost() -> None:
    """Not even of who would be raised for it."""
    unread: list[socket.socket] = []

    def ignore_one() -> None:
        unread.append(udp(port=9555, rcvbuf=BUFFER))

    with starving("nice", hold=200), receiving(ignore_one) as receiver:
        raise_up(receiver, "nice")
        with flood(9555):
            receiver.drain()
            wait_for(partial(is_restored, receiver), 5)


STOPS = stops("pf_sched")


@mark.parametrize("how", list(STOPS))
@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_it_ends_when_everything_is_stopped(lever: str, how: str) -> None:
    """And under a flood nobody is raised any more."""
    with starving(lever, hold=LONG), receiving(of_low_priority_and_accurate) as receiver:
        raise_up(receiver, lever)
        with flood(receiver.port), STOPS[how]():
            # The write and the unloading wait for it; a mode is obeyed at the next look.
            wait_for(partial(is_restored, receiver), 1 if how == "observe" else 0)
            for _ in range(20):
                time.sleep(0.01)
                assert receiver.state() == receiver.before


@inside(modules=SCHED)
def test_a_lever_that_is_changed_lets_go() -> None:
    """The old boost is restored by the lever that made it."""
    with starving("rr"), receiving() as receiver:
        for lever in ("rr", "nice", "deadline", "nice", "rr"):
            set_knob("sched/lever", lever)
            raise_up(receiver, lever)
            set_knob("sched/lever", "nice")
            wait_for(lambda: receiver.state() == receiver.before)
