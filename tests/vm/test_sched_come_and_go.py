# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: it comes and goes, and receivers do, while somebody is raised."""

import random
import time
from functools import partial
from pathlib import Path

from inside import inside, mark
from inside.computing import hog
from inside.raising import FORGOTTEN, LEVERS, SCHED, is_restored, of_low_priority_and_accurate
from inside.receiver import receiving
from inside.scheduling import Counting, attending, boosted, calm, end, flood, knobs, running, state
from inside.suite import insmod, rmmod, set_knob, wait_for

pytestmark = mark.ends


@mark.cpus(2)
@mark.first()
@inside(timeout=200, load=False, pinned=False)
def test_loading_and_unloading_while_somebody_is_raised(ten_cycles: int) -> None:
    Path("/sys/kernel/rcu_expedited").write_text("1")
    with attending(), running(hog, 2), receiving(of_low_priority_and_accurate) as receiver:
        children = []
        with flood(receiver.port):
            for cycle in range(10):
                lever = LEVERS[(10 * ten_cycles + cycle) % len(LEVERS)]
                if lever == "deadline":
                    time.sleep(FORGOTTEN)
                insmod("pf_common")
                insmod("pf_sched", lever=lever)
                wait_for(boosted)
                assert boosted() == {lever: 1}
                if cycle % 2:
                    children.append(receiver.fork())
                rmmod("pf_sched")
                assert receiver.state() == receiver.before, lever
                rmmod("pf_common")
        assert all(state(child) == receiver.before for child in children)
        for child in children:
            end(child)
    Path("/sys/kernel/rcu_expedited").write_text("0")


@mark.cpus(2)
@inside(timeout=200, modules=SCHED, pinned=False)
def test_receivers_that_come_and_go_while_they_are_raised() -> None:
    """Killed, executing, closing, forking, at any moment; the kernel's log is the judge."""
    with attending(), knobs(apart=0, hold=20), running(hog):
        seen = Counting()
        for turn in range(30):
            set_knob("sched/lever", LEVERS[turn % 3])
            with receiving(in_thread=bool(turn & 1)) as one, receiving() as other:
                calm()
                with flood(one.port, other.port):
                    wait_for(boosted)
                    time.sleep(random.random() / 20)
                    child = one.fork()
                    random.choice((one.close, one.execute, one.leave, lambda: end(one.pid)))()
                    other.close()
                wait_for(partial(is_restored, other), 2)
                end(child)
        set_knob("sched/lever", "auto")
        wait_for(lambda: not boosted())
        grown = seen.all()
        assert grown["elected"] == sum(n for name, n in grown.items() if "restored" in name)
