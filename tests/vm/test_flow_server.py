# SPDX-License-Identifier: GPL-2.0-only
"""pf_flow: what continues packets that waited, and that its thread obeys the scheduler."""

import os
import subprocess
import time
from pathlib import Path

from inside import Skip, inside, mark
from inside.cgroups import cgroup, entered
from inside.flows import FLOW, IP_UDP, change, flow, flows, real_time, server_threads, until
from inside.net import Peer, datagram, drain, port_of, udp
from inside.suite import insmod, is_real_time, rmmod, setting, wait_for

pytestmark = mark.ends

SPIN_S = 0.4
SIZE = 1000 - IP_UDP


def continued_beneath_a_task_that_spins(peer: Peer) -> int:
    """Of ten packets that wait, one each 20 ms, while a real-time task leaves no time to others."""
    if is_real_time():
        raise Skip("there a softirq is a thread itself, and so is the timer that starts the server")
    receiver, sender = udp(peer.ours4), peer.udp()
    with flows(f"a dport={port_of(receiver)} rate=400k burst=1000 queue=100000"):
        for number in range(11):
            sender.sendto(datagram(number, SIZE), receiver.getsockname())
        assert flow("a")["waiting"] > 8
        with real_time(0, 50):
            end = time.monotonic() + SPIN_S
            while time.monotonic() < end:
                pass
            found = flow("a")
        wait_for(lambda: flow("a")["waiting"] == 0)
        assert drain(receiver) == [datagram(number, SIZE) for number in range(11)]
    return found["deferred"]


def a_softirq_continues(peer: Peer) -> bool:
    """Before 6.5 softirqs may be left to a thread that such a task keeps from running."""
    return any(continued_beneath_a_task_that_spins(peer) >= 9 for _ in range(3))


@inside(modules=FLOW)
def test_a_softirq_comes_before_any_task() -> None:
    assert not server_threads()
    assert a_softirq_continues(Peer())


@inside(modules=FLOW)
def test_a_thread_has_the_priority_that_it_is_given() -> None:
    peer = Peer()
    with setting("flow/server", "thread", "softirq"):
        (thread,) = server_threads()
        assert continued_beneath_a_task_that_spins(peer) <= 2
        as_documented = "renice -n 10 -p $(pgrep napi/packetflow)"
        subprocess.run(as_documented, shell=True, check=True, capture_output=True)
        assert os.getpriority(os.PRIO_PROCESS, thread) == 10
        with real_time(thread, 60):
            assert continued_beneath_a_task_that_spins(peer) >= 9


@mark.parametrize("server, rest", [(1, 10000), (10000, 1)])
@inside(modules=FLOW)
def test_a_thread_has_the_share_of_its_control_group(server: int, rest: int) -> None:
    """Against a task that takes all it gets, and with more to do than its share may allow."""
    peer = Peer()
    receiver, sender = udp(peer.ours4, rcvbuf=8 << 20), peer.udp()
    with (
        setting("flow/server", "thread", "softirq"),
        cgroup("server", weight=str(server)) as group,
        cgroup("rest", weight=str(rest)) as others,
        flows(f"a dport={port_of(receiver)} rate=20m burst=1000 queue=1m"),
    ):
        (thread,) = server_threads()
        with entered(group, thread), entered(others):
            for number in range(1000):
                sender.sendto(datagram(number, SIZE), receiver.getsockname())
            for _ in until(time.monotonic() + SPIN_S):
                pass
            continued = flow("a")["deferred"]
        wait_for(lambda: flow("a")["waiting"] == 0)
        assert drain(receiver) == [datagram(number, SIZE) for number in range(1000)]
    assert (continued > 700) if server > rest else (continued < 200), continued


@inside(modules=FLOW)
def test_a_thread_whose_group_has_used_its_quota_keeps_what_waits() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4, rcvbuf=8 << 20), peer.udp()
    with (
        setting("flow/server", "thread", "softirq"),
        cgroup("server", max="1000 1000000") as group,
        flows(f"a dport={port_of(receiver)} rate=8m burst=1000 queue=1m"),
    ):
        (thread,) = server_threads()
        with entered(group, thread):
            for number in range(400):
                sender.sendto(datagram(number, SIZE), receiver.getsockname())
            time.sleep(1)
            # Newer kernels throttle on the way to user space. A thread of theirs never goes there.
            newer = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 18)
            assert flow("a")["waiting"] > 0 or newer
        wait_for(lambda: flow("a")["waiting"] == 0)
        assert drain(receiver) == [datagram(number, SIZE) for number in range(400)]


@mark.cpus(1, 4)
@inside(modules=FLOW, pinned=False)
def test_changing_over_loses_and_overtakes_nothing() -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4, rcvbuf=8 << 20), peer.udp()
    sent, got = 0, []
    with flows(f"a dport={port_of(receiver)} rate=4m burst=1000 queue=4m"):
        for turn in range(40):
            with setting("flow/server", ("thread", "softirq")[turn % 2], "softirq"):
                for _ in range(20):
                    sender.sendto(datagram(sent, SIZE), receiver.getsockname())
                    sent += 1
                got += drain(receiver)
        wait_for(lambda: flow("a")["waiting"] == 0)
        assert flow("a")["deferred"] > 100
    time.sleep(0.1)
    got += drain(receiver)
    assert got == [datagram(number, SIZE) for number in range(sent)]


@mark.parametrize("how", ["enable", "rmmod"])
@inside(modules=FLOW)
def test_what_waits_for_a_thread_is_not_lost_when_the_suite_stops(how: str) -> None:
    peer = Peer()
    receiver, sender = udp(peer.ours4, rcvbuf=8 << 20), peer.udp()
    with setting("flow/server", "thread", "softirq"):
        change(f"add a dport={port_of(receiver)} rate=50k burst=1000 queue=1m")
        for number in range(50):
            sender.sendto(datagram(number, SIZE), receiver.getsockname())
        assert flow("a")["waiting"] > 40
        if how == "enable":
            with setting("enable", "0", "1"):
                assert drain(receiver) == [datagram(number, SIZE) for number in range(50)]
            # It goes on by a thread, which is the only one.
            sender.sendto(datagram(50, SIZE), receiver.getsockname())
            assert len(server_threads()) == 1
            change("replace")
        else:
            rmmod("pf_flow")
            assert not server_threads()
            assert drain(receiver) == [datagram(number, SIZE) for number in range(50)]
            insmod("pf_flow")


@inside(modules=FLOW)
def test_what_is_asked_for_while_the_suite_is_off_counts_when_it_is_on() -> None:
    with setting("enable", "0", "1"):
        Path("/proc/packetflow/flow/server").write_text("thread")
    assert len(server_threads()) == 1
    with setting("enable", "0", "1"):
        Path("/proc/packetflow/flow/server").write_text("softirq")
    assert a_softirq_continues(Peer())
