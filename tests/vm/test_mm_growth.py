# SPDX-License-Identifier: GPL-2.0-only
"""pf_mm: a buffer that fills grows by priority, before anything is lost.

A buffer's size is what SO_RCVBUF shows its owner: sk_rcvbuf, to the byte.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inside import inside, mark
from inside.growing import (
    DEFAULT,
    FULL,
    MM,
    await_size,
    given_back,
    granted,
    knobs,
    limit,
    own_size,
    owner,
)
from inside.net import pressure
from inside.suite import dropped, metric, set_knob, wait_for, write

pytestmark = mark.ends


@mark.parametrize("address", ["127.0.0.1", "::1"])
@mark.parametrize("nice", [-20, -5, 0, 5, 10, 19])
@inside(modules=MM)
def test_a_flooded_buffer_grows_to_what_its_priority_allows(nice: int, address: str) -> None:
    with owner(nice, address) as one:
        own = one.size()
        one.flood(FULL)
        expected = max(own, limit(nice))
        await_size(one, expected)
        assert granted() == expected - own
        assert one.row()["sbmax"] == str(limit(nice))
        one.flood(FULL)
        assert one.size() == expected
    wait_for(lambda: granted() == 0)


@mark.parametrize("address", ["127.0.0.1", "::1"])
@inside(modules=MM)
def test_it_grows_before_anything_is_lost(address: str) -> None:
    """At peace, in one burst, with nobody reading: stock would lose half."""
    with owner(0, address) as one:
        sent = one.fill(limit(0))
        assert one.drops() == 0
        assert one.queued() > one.size() // 2
        assert one.size() == limit(0)
        assert one.numbers() == (sent, True)


@inside(modules=MM)
def test_a_buffer_that_does_not_fill_stays() -> None:
    with owner() as one:
        own = one.size()
        grown = metric("packetflow_mm_grown_total")
        for _ in range(20):
            one.flood(own // 5 // one.truesize())
            one.numbers()
        assert one.size() == own
        assert metric("packetflow_mm_grown_total") == grown


@inside(modules=MM)
def test_few_steps_are_enough() -> None:
    with owner() as one, knobs(scale=1600):
        grown = metric("packetflow_mm_grown_total")[""]
        one.flood(30_000)
        await_size(one, 16 * DEFAULT)
        assert metric("packetflow_mm_grown_total")[""] - grown <= 7


@inside(modules=MM)
def test_the_limit_follows_the_knobs() -> None:
    with owner() as one, knobs(default_size=600, scale=150):
        one.flood(FULL)
        await_size(one, (600 << 10) * 3 // 2)
        set_knob("mm/scale", 100)
        await_size(one, 600 << 10, 2)
        assert granted() == (600 << 10) - own_size()


@inside(modules=MM)
def test_the_limit_follows_the_priority() -> None:
    with owner(0) as one:
        one.flood(FULL)
        await_size(one, limit(0))
        before = given_back()["limit"]
        one.ask("renice", 5)
        wait_for(lambda: one.row()["prio"] == "125")
        await_size(one, limit(5), 2)
        assert given_back()["limit"] > before
        one.ask("renice", -10)
        wait_for(lambda: one.row()["prio"] == "110")
        one.numbers()
        one.flood(FULL)
        await_size(one, limit(-10))


@inside(modules=MM)
def test_the_table_says_who_can_grow() -> None:
    with owner() as one:
        assert one.row()["grows"] == "0"
        one.flood(one.size() * 3 // 4 // one.truesize())
        assert own_size() < one.size() < limit(0)
        assert one.row()["grows"] == "1"
        one.flood(FULL)
        await_size(one, limit(0))
        wait_for(lambda: one.row()["grows"] == "0")


@inside(modules=("pf_filter", "pf_mm"))
def test_b2_waits_as_long_as_the_buffer_can_grow() -> None:
    with owner() as one, pressure() as full:
        sent = limit(0) * 9 // 10 // one.truesize()
        for _ in range(sent // 50):
            full.again()
            one.flood(50)
        assert one.size() == limit(0)
        assert one.drops() == 0
        assert one.row()["early_full"] == "0"
        wait_for(lambda: one.row()["grows"] == "0")
        for _ in range(20):
            full.again()
            one.flood(50)
        assert one.size() == limit(0)
        early = int(one.row()["early_full"])
        assert 100 < early <= dropped()["socket_full"]
        assert one.drops() >= early


TRACING = Path("/sys/kernel/tracing")


@contextmanager
def calls_of(function: str) -> Iterator[Path]:
    """How often it was called: the last number but one of a line there."""
    write(TRACING / "kprobe_events", f"p:counted {function}\n")
    switch = TRACING / "events/kprobes/counted/enable"
    switch.write_text("1")
    try:
        yield TRACING / "kprobe_profile"
    finally:
        switch.write_text("0")
        write(TRACING / "kprobe_events", "-:counted\n")


@inside(modules=MM)
def test_who_is_at_its_limit_is_not_looked_at_in_each_jiffy() -> None:
    """Of each look the limit is asked for; the keeper asks twice in each of its rounds."""
    with owner() as one:
        one.flood(FULL)
        await_size(one, limit(0))
        with calls_of("size_most") as profile:
            begin = time.monotonic()
            while time.monotonic() < begin + 2:
                one.flood(10)
            length = time.monotonic() - begin
            calls = int(profile.read_text().split()[-2])
        assert calls <= 45 * length, (calls, length)
