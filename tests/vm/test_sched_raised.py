# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: whoever's buffer fills is raised, for as long as it fills, by a lever that it may have.

Receivers starve on one CPU unless told.
"""

import os
import resource
import signal
import time
from contextlib import ExitStack
from functools import partial

from inside import inside, mark
from inside.cgroups import cgroup, enter
from inside.raising import (
    LEVERS,
    LONG,
    PREPARED,
    SCHED,
    UNTRIED,
    await_raised,
    exempt,
    is_raised,
    is_restored,
    raise_up,
    starving,
)
from inside.receiver import receiving
from inside.scheduling import (
    SCHED_DEADLINE,
    Counting,
    autogroup,
    boosted,
    calm,
    everybody,
    flood,
    knobs,
)
from inside.suite import ROOT, as_nobody, metric, unexplained, wait_for

pytestmark = mark.ends


@inside(modules=SCHED)
def test_who_is_raised_is_told_to_administrators_only() -> None:
    with starving("nice", hold=LONG), receiving() as receiver:
        raise_up(receiver, "nice")
        assert f"raised: thread {receiver.tid} (" in (ROOT / "status").read_text()
        told = as_nobody("status")
        assert "\nraised: 1 in all\n" in told, told
        assert "thread" not in told
        assert unexplained(told) == []
        assert 'packetflow_sched_boosted{lever="nice"} 1' in as_nobody("metrics")


@mark.parametrize("kind", list(PREPARED))
@mark.parametrize("lever", LEVERS)
@inside(modules=SCHED)
def test_whoever_starves_is_raised_for_a_while_and_restored(lever: str, kind: str) -> None:
    before = everybody()
    with starving(lever), receiving(PREPARED[kind]) as receiver:
        prio = str(120 + receiver.before.nice)
        seen = Counting()
        calm()
        with flood(receiver.port):
            await_raised(receiver, lever)
            assert boosted() == {lever: 1}
            assert (ROOT / "status").read_text().count(f"{receiver.tid}") == 1
            wait_for(receiver.elected)
            assert receiver.row()["prio"] == prio
            assert receiver.row()["rank"] == str(140 - int(prio))
        wait_for(lambda: receiver.state() == receiver.before)
        assert receiver.row()["pp"] == "0"
        assert receiver.row()["prio"] == prio
        wait_for(lambda: not boosted())
        grown = seen.all()
        ended = sum(grown.get(f"restored {why}", 0) for why in ("expired", "trial"))
        assert ended == grown["elected"], grown
    after = everybody()
    assert {
        who: (was, after[who]) for who, was in before.items() if after.get(who, was) != was
    } == {}


@inside(modules=SCHED)
def test_it_stays_raised_as_long_as_its_buffer_fills() -> None:
    with starving("nice", hold=50), receiving() as receiver:
        calm()
        with flood(receiver.port):
            await_raised(receiver, "nice")
            seen = Counting()
            for _ in range(UNTRIED):
                assert is_raised("nice", receiver.before, receiver.state())
                time.sleep(0.01)
        assert seen["elected"] == 0


@inside(modules=SCHED)
def test_a_buffer_that_does_not_fill_raises_nobody() -> None:
    with starving("nice", exempt="pinned"), receiving(exempt) as full, receiving() as receiver:
        seen = Counting()
        calm()
        # The hook looks, for the drops at the other; a packet at a time fits.
        with flood(full.port), flood(receiver.port, pause=0.05, burst=1):
            wait_for(lambda: seen["refused exempt"] > 100)
        assert seen["elected"] == 0
        assert receiver.state() == receiver.before


@inside(modules=SCHED)
def test_whoever_does_not_run_at_all_is_found() -> None:
    """Its buffer is full, so that nothing is delivered any more, only dropped."""
    with starving("nice"), receiving() as receiver:
        os.kill(receiver.pid, signal.SIGSTOP)
        with flood(receiver.port):
            time.sleep(0.5)
        wait_for(partial(is_restored, receiver))
        seen = Counting()
        with flood(receiver.port):
            await_raised(receiver, "nice")
        assert seen["elected"] == 1
        os.kill(receiver.pid, signal.SIGCONT)


@inside(modules=SCHED)
def test_another_socket_of_its_own_prolongs_a_boost() -> None:
    with starving("nice", hold=300), receiving() as receiver:
        another = receiver.open()
        seen = Counting()
        raise_up(receiver, "nice")
        with flood(another):
            time.sleep(1.5)
            assert seen["elected"] == 1
            assert not seen["restored expired"]
        wait_for(partial(is_restored, receiver))


@mark.parametrize("grouped", [True, False])
@inside(modules=SCHED)
def test_the_lever_is_one_that_counts_where_the_receiver_stands(grouped: bool) -> None:
    with ExitStack() as stack:
        stack.enter_context(autogroup(grouped))
        stack.enter_context(starving("auto"))
        receiver = stack.enter_context(receiving())
        calm()
        with flood(receiver.port):
            wait_for(boosted)
            used = set(boosted())
        assert used <= ({"deadline", "rr"} if grouped else {"nice"})
        wait_for(lambda: receiver.state() == receiver.before)


@inside(modules=SCHED)
def test_where_nice_is_not_enough_a_class_above_is_taken() -> None:
    with ExitStack() as stack:
        stack.enter_context(autogroup(False))
        stack.enter_context(starving("auto"))
        # It wants all of the CPU; one that waits of its own accord gains nothing above.
        receiver = stack.enter_context(receiving(work=0.001, pause=0))
        seen = Counting()
        calm()
        with flood(receiver.port, burst=4, pause=0.002):
            await_raised(receiver, "nice")
            await_raised(receiver, "rr")
        wait_for(lambda: receiver.state() == receiver.before)
        assert seen["restored weak"] >= 1


# Where a lever may not be used


@mark.parametrize("grouped", [True, False])
@mark.parametrize("lever", ("auto", "rr"))
@inside(modules=SCHED)
def test_whoever_limits_its_real_time_is_not_made_real_time(lever: str, grouped: bool) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_RTTIME, (100_000, 100_000))

    with ExitStack() as stack:
        stack.enter_context(autogroup(grouped))
        stack.enter_context(starving(lever))
        receiver = stack.enter_context(receiving(limit))
        seen = Counting()
        calm()
        with flood(receiver.port):
            wait_for(lambda: seen["refused lever"] >= 5 or boosted())
            if not grouped:
                assert boosted() == {"nice": 1}
            for _ in range(100):
                assert receiver.state().policy in (os.SCHED_OTHER, SCHED_DEADLINE)
                time.sleep(0.01)
        if not seen["elected"]:
            assert "RTTIME" in (ROOT / "status").read_text()
        wait_for(lambda: receiver.state() == receiver.before)


@inside(modules=SCHED)
def test_whoever_has_no_lever_is_not_asked_about_at_each_packet() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_RTTIME, (100_000, 100_000))

    # Nice does not count between groups.
    with autogroup(True), starving("rr"), receiving(limit) as receiver:
        calm()
        with flood(receiver.port, pause=0.002):
            seen = Counting()
            wait_for(lambda: seen["refused lever"])
            before, begin = seen["refused lever"], time.monotonic()
            time.sleep(2)
            refused, length = seen["refused lever"] - before, time.monotonic() - begin
        # Each 16 ms, in jiffies.
        assert refused <= 70 * length, (refused, length)


@mark.full
@mark.cpus(2)
@inside(modules=SCHED, pinned=False)
def test_whoever_is_bound_to_a_cpu_gets_no_deadline() -> None:
    def bind() -> None:
        os.sched_setaffinity(0, {1})

    with starving("deadline"), receiving(bind) as receiver:
        seen = Counting()
        calm()
        with flood(receiver.port):
            wait_for(lambda: seen["refused lever"] or boosted())
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                assert receiver.state().policy != SCHED_DEADLINE
                time.sleep(0.01)
            os.sched_setaffinity(receiver.tid, {0, 1})
            os.sched_setaffinity(receiver.tid, {1})
        assert metric("packetflow_sched_lesser_total")["affinity"] > 0
        assert "times for affinity" in (ROOT / "status").read_text()
        wait_for(lambda: receiver.state() == receiver.before)


@inside(modules=SCHED)
def test_without_bandwidth_to_reserve_it_is_round_robin() -> None:
    before = metric("packetflow_sched_lesser_total")["admission"]
    with starving("deadline", hogs=1, hold=LONG), receiving() as one, receiving() as other:
        calm()
        with flood(one.port, other.port):
            wait_for(lambda: boosted() == {"deadline": 1, "rr": 1})
        assert metric("packetflow_sched_lesser_total")["admission"] > before


@mark.parametrize("lever", ("auto", "rr", "deadline"))
@inside(modules=SCHED)
def test_nobody_escapes_its_cgroup_unless_told(lever: str) -> None:
    with (
        cgroup("bounded", max="60000 100000") as bounded,
        starving(lever),
        receiving(partial(enter, bounded)) as receiver,
    ):
        seen = Counting()
        calm()
        with flood(receiver.port):
            wait_for(lambda: seen["refused lever"] >= 5 or boosted())
            assert receiver.state().policy == os.SCHED_OTHER
            if not boosted():
                assert "escape" in (ROOT / "status").read_text()
        wait_for(lambda: receiver.state() == receiver.before)
        with knobs(escape=1):
            calm()
            with flood(receiver.port):
                wait_for(lambda: receiver.state().policy in (os.SCHED_RR, SCHED_DEADLINE))
            wait_for(lambda: receiver.state() == receiver.before)
