# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: what somebody else changes of a thread while it is raised stays."""

import os
import random
import time
from collections.abc import Callable
from functools import partial

from inside import inside, mark
from inside.raising import (
    LEVERS,
    SCHED,
    is_restored,
    of_low_priority_and_accurate,
    raise_up,
    starving,
)
from inside.receiver import hungry, receiving
from inside.scheduling import Counting, boosted, calm, flood, set_slack
from inside.suite import wait_for

pytestmark = mark.ends


@inside(modules=SCHED)
def test_what_is_left_of_a_lent_priority_is_taken_back() -> None:
    """Its owner may lower it without leave, and must not keep the rest."""
    with (
        starving("rr", hogs=4, elect=2, hold=500, cap=95),
        hungry(partial(os.nice, 5)) as low,
        hungry() as high,
    ):
        calm()
        with flood(high.port, low.port, burst=2):
            wait_for(lambda: high.state().priority == 2)
            os.sched_setparam(high.tid, os.sched_param(1))
        wait_for(partial(is_restored, high), 2)
        wait_for(partial(is_restored, low), 2)


def renice(tid: int) -> None:
    os.setpriority(os.PRIO_PROCESS, tid, 9)


def to_batch(tid: int) -> None:
    os.sched_setscheduler(tid, os.SCHED_BATCH, os.sched_param(0))


def to_fifo(tid: int) -> None:
    os.sched_setscheduler(tid, os.SCHED_FIFO, os.sched_param(3))


CHANGES: dict[str, Callable[[int], None]] = {"batch": to_batch, "fifo": to_fifo}


# Not deadline: a thread that somebody else takes out of that class while it sleeps
# leaves its bandwidth reserved on a stock kernel, which the next test would find.
@mark.parametrize("change", list(CHANGES))
@mark.parametrize("lever", [lever for lever in LEVERS if lever != "deadline"])
@inside(modules=SCHED)
def test_another_class_given_meanwhile_stays(lever: str, change: str) -> None:
    """And the rest, which nobody else has changed, is as before."""
    with starving(lever, hold=500), receiving(of_low_priority_and_accurate) as receiver:
        seen = Counting()
        raise_up(receiver, lever)
        CHANGES[change](receiver.tid)
        changed = receiver.state()
        wait_for(lambda: seen["restored changed"] == seen["elected"] == 1, 1)
        time.sleep(0.8)
        now = receiver.state()
        assert (now.policy, now.priority) == (changed.policy, changed.priority)
        assert receiver.row()["pp"] == "0"
        assert receiver.row()["prio"] == {"batch": "127", "fifo": "96"}[change]
        to_batch(receiver.tid)
        last = receiver.state()
        # Leaving a real-time class gives the default slack, pf_sched or not.
        slack = last.slack if change == "fifo" else receiver.before.slack
        assert last == receiver.before._replace(policy=os.SCHED_BATCH, slack=slack)


@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_a_renice_meanwhile_stays(lever: str) -> None:
    """It ends the boost, also where a class above hides it."""
    with starving(lever, hold=500), receiving(partial(set_slack, 77_000)) as receiver:
        seen = Counting()
        raise_up(receiver, lever)
        renice(receiver.tid)
        wait_for(lambda: seen["restored changed"] == seen["elected"] == 1, 0.4)
        wait_for(lambda: receiver.state() == receiver.before._replace(nice=9), 0.4)
        time.sleep(0.8)
        assert receiver.state() == receiver.before._replace(nice=9)
        assert receiver.row()["prio"] == "129"


@mark.full
@mark.cpus(2)
@mark.parametrize("lever", LEVERS)
@inside(timeout=120, modules=SCHED, pinned=False)
def test_renices_race_with_boosts(lever: str) -> None:
    with starving(lever, hogs=1, hold=10, apart=0), receiving() as receiver:
        calm()
        for level in range(60):
            with flood(receiver.port):
                wait_for(boosted)
                last = level % 10  # never what a boost makes of 15
                for nice in (15, last):
                    time.sleep(random.random() / 30)
                    os.setpriority(os.PRIO_PROCESS, receiver.tid, nice)
            receiver.drain()
            wait_for(lambda: not boosted())
            time.sleep(0.05)
            assert (level, receiver.state()) == (level, receiver.before._replace(nice=last))
