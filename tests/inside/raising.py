# SPDX-License-Identifier: GPL-2.0-only
"""For pf_sched: receivers of many kinds that starve until they are raised, and how to tell.

They starve beside processes that never sleep, each in a session of its own as services are.
What is compared is the scheduler's own word on every thread, see `State`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inside.computing import hog
from inside.receiver import Receiver
from inside.scheduling import (
    RESET_ON_FORK,
    SCHED_DEADLINE,
    Counting,
    State,
    attending,
    boosted,
    calm,
    flood,
    knobs,
    running,
    set_attributes,
    set_slack,
)
from inside.suite import ROOT, wait_for

SCHED = ("pf_sched",)
LEVERS = ("nice", "deadline", "rr")
FORGOTTEN = 2.0  # s: so long after a reservation the kernel still knows of it
LOOKED_AT = 1.2  # s: it is looked at who receives no more often
UNTRIED = 20  # hundredths of a second after which no boost is on trial yet
LONG = 3000  # ms: a boost that lasts so long does not end by itself in a test


def is_raised(lever: str, before: State, now: State) -> bool:
    """By that lever, and in no other way."""
    if lever == "nice":
        return now == before._replace(nice=max(before.nice - 5, -20))
    if lever == "rr":
        return now.policy == os.SCHED_RR and now.priority >= 1
    share = now.runtime / now.period if now.period else 1
    return now.policy == SCHED_DEADLINE and 0 < share <= 0.75 and now.runtime <= now.deadline


def is_restored(receiver: Receiver) -> bool:
    return receiver.state() == receiver.before


def await_raised(receiver: Receiver, lever: str) -> None:
    seen = Counting()
    try:
        wait_for(lambda: is_raised(lever, receiver.before, receiver.state()))
    except AssertionError:
        raise AssertionError(seen.all(), receiver.state()) from None


def await_counted(seen: Counting, name: str) -> None:
    try:
        wait_for(lambda: seen[name] >= 5)
    except AssertionError:
        raise AssertionError(name, seen.all()) from None


def await_boosted(seen: Counting) -> None:
    try:
        wait_for(boosted)
    except AssertionError:
        raise AssertionError(seen.all(), (ROOT / "status").read_text()) from None


@contextmanager
def raised(receiver: Receiver, lever: str) -> Iterator[None]:
    """Flood it until it is raised, and go on: a boost that is not needed is soon taken back."""
    calm()
    with flood(receiver.port):
        await_raised(receiver, lever)
        yield


def raise_up(receiver: Receiver, lever: str) -> None:
    """Flood it until it is raised; the flood is over then."""
    with raised(receiver, lever):
        pass


@contextmanager
def starving(lever: str, hogs: int = 2, **settings: object) -> Iterator[None]:
    """Settings and company for receivers; the test runs whenever it wants to."""
    with attending(), knobs(lever=lever, **settings), running(hog, hogs):
        yield


def as_another_user() -> None:
    """By its real uid alone: it may do all that it might before."""
    os.setresuid(65534, 0, 0)


def plain() -> None:
    pass


def of_low_priority_and_accurate() -> None:
    os.nice(7)
    set_slack(77_000)


def of_high_priority_with_plain_children() -> None:
    set_attributes(policy=os.SCHED_OTHER, nice=-3, flags=RESET_ON_FORK)


def with_a_slice_of_its_own() -> None:
    """Before 6.12 a normal task has none, and the wish is not heard."""
    set_attributes(policy=os.SCHED_OTHER, nice=-17, runtime=20_000_000)


PREPARED = {
    prepare.__name__: prepare
    for prepare in (
        plain,
        of_low_priority_and_accurate,
        of_high_priority_with_plain_children,
        with_a_slice_of_its_own,
    )
}


def exempt() -> None:
    Path("/proc/self/comm").write_text("pinned")
