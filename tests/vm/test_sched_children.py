# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: children are born without their parent's boost."""

import os
import signal
import time
from functools import partial
from pathlib import Path

from inside import inside, mark
from inside.raising import (
    LEVERS,
    LONG,
    PREPARED,
    SCHED,
    of_low_priority_and_accurate,
    raise_up,
    starving,
)
from inside.receiver import receiving
from inside.scheduling import boosted, end, start, state
from inside.suite import set_knob, wait_for

pytestmark = mark.ends


def has_slack(pid: int, ns: int) -> bool:
    return int(Path(f"/proc/{pid}/timerslack_ns").read_text()) == ns


def has_nice(pid: int, nice: int) -> bool:
    return state(pid).nice == nice


@mark.parametrize("kind", list(PREPARED))
@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_a_child_is_born_without_the_boost(lever: str, kind: str) -> None:
    with starving(lever, hold=LONG), receiving(PREPARED[kind]) as receiver:
        raised = receiver.before
        plain_child, plain_thread = receiver.fork(), receiver.clone()
        expected = state(plain_child)
        assert state(plain_thread) == expected
        raise_up(receiver, lever)
        raised = receiver.state()
        child, thread = receiver.fork(), receiver.clone()
        assert state(child) == expected
        assert state(thread) == expected
        assert receiver.state() == raised
        for one in (plain_child, child):
            # What a child was born with is what 0 sets.
            os.kill(one, signal.SIGUSR1)
            wait_for(partial(has_slack, one, expected.slack), 5)
        set_knob("sched/mode", "observe")
        wait_for(lambda: receiver.state() == receiver.before)
        late = receiver.fork()
        assert state(late) == expected
        set_knob("sched/mode", "enforce")
        for one in (plain_child, child, late):
            end(one)


@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_a_storm_of_children(lever: str) -> None:
    """Children that have children before anybody can have looked at them; it ends meanwhile."""
    with starving(lever, hogs=1, hold=700), receiving(of_low_priority_and_accurate) as receiver:
        receiver.note()
        raise_up(receiver, lever)
        assert receiver.storm() == 0
        wait_for(lambda: receiver.state() == receiver.before)


@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_whoever_has_the_same_process_id_next_is_another(lever: str) -> None:
    def idle() -> None:
        os.nice(3)
        time.sleep(600)

    with starving(lever, hogs=1, hold=400), receiving() as receiver:
        raise_up(receiver, lever)
        end(receiver.pid)
        other = start(idle, pid=receiver.pid)
        wait_for(partial(has_nice, other, 3))
        before = state(other)
        assert (before.policy, before.flags) == (os.SCHED_OTHER, 0)
        wait_for(lambda: not boosted())
        time.sleep(0.5)
        assert state(other) == before
        end(other)
