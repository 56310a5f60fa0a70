# SPDX-License-Identifier: GPL-2.0-only
"""pf_mm: TCP windows open further, and what was promised by them is kept."""

import itertools
import socket
import struct
import time
from pathlib import Path

from inside import inside, mark
from inside.growing import AWAY, MM, STOPS, await_size, given_back, granted, knobs, limit, owner
from inside.streaming import SMALL_WINDOW, Stream, open_window, small_windows
from inside.suite import ROOT, set_knob, wait_for

pytestmark = mark.ends


@mark.parametrize("address", ["127.0.0.1", "::1"])
@inside(modules=MM)
def test_a_window_opens_beyond_what_autotuning_allows(address: str) -> None:
    with small_windows(), owner(0, address, tcp=True) as one:
        assert one.size() == SMALL_WINDOW
        stream = open_window(one)
        assert granted() == limit(0) - SMALL_WINDOW

        def more() -> bool:
            """It opens by and by, as data come."""
            stream.fill()
            waiting = one.queued()
            stream.take()
            assert waiting <= limit(0)
            return waiting > SMALL_WINDOW * 3 // 2

        wait_for(more)


@inside(modules=MM)
def test_no_space_is_given_for_a_window_that_cannot_be_told() -> None:
    """Of 65535 << 2 here. Without that limit it would go on to the tenfold."""
    with small_windows(scaled_for=SMALL_WINDOW), knobs(scale=1000), owner(tcp=True) as one:
        stream, most = Stream(one), 0
        for _ in range(40):
            stream.fill()
            stream.take(8192)
            most = max(most, one.size())
        assert SMALL_WINDOW < most <= 4 * (65535 << 2)
        stream.finish()


@inside(modules=MM)
def test_autotunings_limit_holds_without_pf_mm() -> None:
    """What the tests beside this one have pf_mm go beyond."""
    with small_windows(), knobs(mode="observe"), owner(tcp=True) as one:
        stream = Stream(one)
        for _ in range(20):
            stream.fill()
            assert one.queued() <= SMALL_WINDOW * 3 // 2
            stream.take(8192)
        assert one.size() == SMALL_WINDOW


def pruned() -> int:
    """Packets of streams that were dropped for want of room, in this namespace."""
    lines = Path("/proc/thread-self/net/netstat").read_text().splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("TcpExt:"))
    found = dict(zip(names, map(int, values), strict=True))
    return sum(found[name] for name in ("RcvPruned", "TCPRcvQDrop"))


@mark.parametrize("how", list(STOPS))
@inside(modules=MM)
def test_a_stream_is_whole_when_everything_is_stopped(how: str) -> None:
    """In the midst of it, with the buffer full."""
    with small_windows(), owner(tcp=True) as one:
        stream = open_window(one)
        stream.fill()
        before, queued = pruned(), one.queued()
        with STOPS[how]():
            wait_for(lambda: one.size() < limit(0) or queued >= limit(0) * 9 // 10, 2)
            assert one.size() >= min(queued, limit(0))
            if how != "observe":
                assert (ROOT / "mm").exists() == (how == "enable")
            for _ in range(20):
                stream.take()
                stream.fill()
            stream.finish()
            if how == "observe":
                await_size(one, SMALL_WINDOW, 5)
        assert pruned() == before


@inside(modules=MM)
def test_a_stream_is_whole_while_its_buffer_changes() -> None:
    with small_windows(), owner(tcp=True) as one:
        stream, before = Stream(one), pruned()
        sizes = set()
        deadline = time.monotonic() + 12
        for turn in itertools.count():
            stream.fill()
            set_knob("mm/mode", "observe" if turn % 5 >= 3 else "enforce")
            stream.take(8192)
            sizes.add(one.size())
            if time.monotonic() > deadline:
                break
        set_knob("mm/mode", "enforce")
        stream.finish()
        assert stream.sent > 4 * limit(0)
        assert len(sizes) >= 2
        assert pruned() == before


@inside(modules=MM)
def test_tcp_is_never_smaller_than_on_stock() -> None:
    """Where its limit is less than what autotuning may give, pf_mm leaves it to that."""
    with small_windows(4 << 20), knobs(budget=1), owner(19, tcp=True) as one:
        stream, sizes = Stream(one), []
        for _ in range(20):
            stream.fill()
            stream.take()
            sizes.append(one.size())
        assert sizes == sorted(sizes)
        assert sizes[0] >= SMALL_WINDOW
        assert granted() == 0


@inside(modules=MM)
def test_without_a_budget_tcp_rmem_is_obeyed() -> None:
    with small_windows(), knobs(budget=0), owner(tcp=True) as one:
        stream = Stream(one)
        for _ in range(20):
            stream.fill()
            stream.take(8192)
        assert one.size() == SMALL_WINDOW
        assert granted() == 0


@inside(modules=MM)
def test_a_connection_that_needs_less_gives_its_space_back() -> None:
    """As its peer uses up what it was promised: a trickle does."""
    with small_windows(), owner(tcp=True) as one:
        stream = open_window(one)
        stream.finish()

        def back() -> bool:
            stream.fill(4096)
            stream.take()
            return one.size() == SMALL_WINDOW

        wait_for(back, 2 * AWAY)
        wait_for(lambda: granted() == 0, 5)
        stream.finish()
        # And again.
        open_window(one)


@inside(modules=MM)
def test_a_connection_that_its_peer_resets_gives_its_space_back() -> None:
    """Though its owner has it open, and data in it."""
    with small_windows(), owner(tcp=True) as one:
        open_window(one).fill()
        before = given_back()["closed"]
        one.sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.sender.close()
        await_size(one, SMALL_WINDOW, 2)
        wait_for(lambda: granted() == 0, 2)
        assert given_back()["closed"] == before + 1


@inside(modules=MM)
def test_a_window_that_the_program_clamps_stays_so() -> None:
    with small_windows(), owner(tcp=True) as one:
        stream = Stream(one)
        # From 6.6 on the kernel itself forgets a clamp when it learns how well packets are filled.
        with knobs(mode="observe"):
            for _ in range(5):
                stream.fill()
                stream.take()
        one.ask("clamp", 16384)
        for _ in range(20):
            stream.fill()
            stream.take(4096)
        assert one.size() == SMALL_WINDOW
        assert granted() == 0


@inside(modules=MM)
def test_where_no_stream_may_grow_none_is_looked_at() -> None:
    """By default autotuning's limit is above what pf_mm would give to anybody."""
    with small_windows(), knobs(default_size=4), owner(-20, tcp=True) as one:
        stream = Stream(one)
        for _ in range(20):
            stream.fill()
            stream.take(8192)
            assert ", to 0 sockets that fill" in (ROOT / "status").read_text()
        stream.finish()
