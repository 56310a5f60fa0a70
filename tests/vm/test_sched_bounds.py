# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: what a boost may cost others is bounded, in CPU time and in changes."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from inside import inside, mark
from inside.computing import hog
from inside.raising import (
    FORGOTTEN,
    LEVERS,
    LONG,
    SCHED,
    as_another_user,
    await_boosted,
    await_raised,
    is_raised,
    is_restored,
    of_low_priority_and_accurate,
    raise_up,
    starving,
)
from inside.receiver import hungry, receiving
from inside.scheduling import Counting, attending, boosted, calm, cpu_seconds, flood, knobs, running
from inside.suite import set_knob, wait_for

pytestmark = mark.ends

SLACK = 0.08  # of the CPU: a bucket, the module's own work, the guest's clock


@inside(modules=SCHED)
def test_a_thread_is_not_changed_more_often_than_allowed() -> None:
    with starving("nice", hogs=1, apart=1000, hold=50), receiving() as receiver:
        raise_up(receiver, "nice")
        seen, begin = Counting(), time.monotonic()
        while time.monotonic() < begin + 4:
            with flood(receiver.port):
                time.sleep(0.15)
            receiver.drain()
            time.sleep(0.15)
        length = time.monotonic() - begin
        assert 2 <= seen["elected"] <= length + 1, (length, seen.all())
        assert seen["refused apart"] > 0


@mark.full
@mark.parametrize("attackers", [1, 2])
@mark.parametrize("cap", [50, 75])
@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_a_flood_does_not_buy_the_cpu(lever: str, cap: int, attackers: int) -> None:
    """Receivers that could use all of it, with as many in the queue as they can hold."""
    with ExitStack() as stack:
        stack.enter_context(attending())
        stack.enter_context(knobs(lever=lever, cap=cap))
        (victim,) = stack.enter_context(running(hog))
        receivers = [stack.enter_context(hungry()) for _ in range(attackers)]
        seen = Counting()
        calm()
        sender = stack.enter_context(flood(*(r.port for r in receivers), burst=8, pause=0.02))
        await_boosted(seen)
        begin = time.monotonic()
        used = [cpu_seconds(pid) for pid in (victim, sender)]
        time.sleep(5)
        length = time.monotonic() - begin
        took, sent = (
            cpu_seconds(pid) - before for pid, before in zip((victim, sender), used, strict=True)
        )
        # Without any boost it would get its fair part and no more; the sender is above all.
        kept = min(1 - cap / 100, 1 / (1 + attackers))
        assert took >= (kept - SLACK) * length - sent, (took, sent, length, seen.all())
        assert seen["elected"] > 0


@inside(modules=SCHED)
def test_a_working_receiver_is_let_go_when_its_share_is_used() -> None:
    with starving("rr", hogs=1, cap=25), hungry() as receiver:
        seen = Counting()
        calm()
        with flood(receiver.port, burst=8, pause=0.02):
            wait_for(lambda: seen["restored cap"] > 0)
            wait_for(lambda: seen["refused cap"] > 0)
        wait_for(lambda: receiver.state() == receiver.before)


@inside(modules=SCHED)
def test_when_the_share_runs_out_the_more_important_stays_raised() -> None:
    with (
        starving("rr", hogs=3, cap=60),
        receiving(work=0.01, pause=0) as first,
        receiving(of_low_priority_and_accurate, work=0.01, pause=0) as second,
    ):
        times: dict[tuple[bool, ...], int] = {}
        calm()
        with flood(first.port, second.port, burst=4, pause=0.02):
            wait_for(boosted)
            for _ in range(300):
                raised = tuple(is_raised("rr", r.before, r.state()) for r in (first, second))
                times[raised] = times.get(raised, 0) + 1
                time.sleep(0.01)
        alone = {who: times.get(who, 0) for who in ((True, False), (False, True))}
        assert alone[True, False] > 30 + 3 * alone[False, True], times


ONCE_RAISED: dict[str, Callable[[], object]] = {
    "less important": partial(os.nice, 10),
    "of another user": as_another_user,
}


@mark.parametrize("kind", list(ONCE_RAISED))
@inside(modules=SCHED)
def test_who_was_raised_once_spends_nothing_of_the_share(kind: str) -> None:
    """They compute after their boost, and take all of the CPU unraised."""
    with ExitStack() as stack:
        stack.enter_context(starving("rr", hogs=0, cap=50, elect=4))
        once = [stack.enter_context(receiving(ONCE_RAISED[kind])) for _ in range(3)]
        receiver = stack.enter_context(receiving())
        calm()
        with flood(*(one.port for one in once)):
            for one in once:
                await_raised(one, "rr")
        for one in once:
            wait_for(partial(is_restored, one))
            one.hog()
        # By then they have spent more than there is, and are remembered.
        time.sleep(1)
        seen = Counting()
        with flood(receiver.port):
            await_raised(receiver, "rr")
        assert seen["refused cap"] == 0, seen.all()


@mark.cpus(1, 2)
@inside(modules=SCHED, pinned=False)
def test_a_reservation_that_was_used_up_is_no_bar_for_the_next() -> None:
    with (
        starving("deadline", hogs=1, cap=50, hold=LONG, mode="enforce"),
        hungry() as receiver,
    ):
        for _ in range(4):
            set_knob("sched/mode", "enforce")
            with flood(receiver.port, burst=8, pause=0.02):
                wait_for(lambda: boosted() == {"deadline": 1})
                time.sleep(0.1)
                set_knob("sched/mode", "observe")
                wait_for(lambda: receiver.state() == receiver.before)
            time.sleep(FORGOTTEN)
