# SPDX-License-Identifier: GPL-2.0-only
"""Without overload the suite drops nothing, ever, and is not seen."""

import json
import os
import socket
import statistics
import subprocess
import time
from itertools import pairwise

import pytest
from experiments import counters
from experiments.cost import PATHS
from experiments.measure import await_quiet, lost
from inside import inside, mark
from inside.net import Namespace, Peer, Pressure, datagram, drain, drops, port_of, pressure, udp
from inside.suite import dropped, hooked, metric, observed, wait_for
from rig.guest import Guest
from rig.link import GUEST4
from rig.programs import programs
from rig.traffic import LIGHT, Flow, await_bound, sender

pytestmark = mark.ends

PPS = 2_500  # far from what an emulated CPU can take, even on a busy host
ROUNDS = 5  # of udp_cost
MOST_BY_DEVICE = 1_000_000  # that takes three minutes
FEW_PPS = 50  # of 200 each takes 0.3 ms on a calm host, and an eighth of the CPU on a busy one
TIMES = 3
BURST = 180  # packets, which fill two polls and not the ring


@mark.cpus(1, 4)
@inside(pinned=False)
def test_peace_is_left_in_peace() -> None:
    """All that is sent is received, in order, whatever the priority of the receiver."""
    os.nice(19)
    peer = Peer()
    pairs = [(udp("127.0.0.1"), udp("127.0.0.1")), (udp(peer.ours4), peer.udp())]
    pairs += [(udp("::1"), udp("::1")), (udp(peer.ours6), peer.udp(peer.theirs6))]
    for batch in range(40):
        wanted = [datagram(batch * 20 + number, 200) for number in range(20)]
        for receiver, out in pairs:
            to = (receiver.getsockname()[0], port_of(receiver))
            for data in wanted:
                out.sendto(data, to)
            got: list[bytes] = []
            until = time.monotonic() + 10
            while len(got) < len(wanted) and time.monotonic() < until:
                got += drain(receiver)
            assert got == wanted
            assert drops(receiver) == 0
    assert sum(dropped().values()) == sum(observed().values()) == 0
    assert set(metric("packetflow_cpu_pressed").values()) == {0}


@inside()
def test_the_hook_is_there_only_under_pressure() -> None:
    """In every namespace, those that are made meanwhile too; and it goes a while after."""
    wait_for(lambda: not hooked(), 30)
    old = Namespace()
    with pressure():
        for other in (old, Namespace()):
            with other:
                full = Pressure()
                for _ in range(20):
                    full.again()
                assert full.early() > 0
            other.close()
    wait_for(lambda: not hooked(), 30)


def all_drops(guest: Guest) -> dict[str, int]:
    """Early drops by reason, if there were any."""
    lines = guest.read("/proc/packetflow/metrics").splitlines()
    samples = [line.split() for line in lines if line.startswith("packetflow_filter_drop")]
    return {name: int(value) for name, value in samples if value != "0"}


@pytest.mark.counted  # or a busy host starves the guest, which is an overload
@pytest.mark.timeout(3600)
def test_no_packet_of_many_is_dropped(guest: Guest, request: pytest.FixtureRequest) -> None:
    count = min(request.config.getoption("--packets"), MOST_BY_DEVICE)
    guest.write("/proc/sys/net/core/rmem_max", str(16 << 20))
    guest.load("pf_filter")
    ports = {5001: 0, 5002: 19}
    receivers = [LIGHT.receiver(guest, port, nice, rcvbuf=8 << 20) for port, nice in ports.items()]
    before = lost(guest)
    flows, seconds = [Flow(port, PPS) for port in ports], count / PPS / len(ports)
    sent = LIGHT.send(flows, 64, seconds, sender(guest))
    await_quiet(guest, list(ports))  # what was sent last is still on its way
    told = all_drops(guest)
    after = lost(guest)
    got = [receiver.finish() for receiver in receivers]
    assert told == {}
    assert sum(sent.packets.values()) >= 0.9 * count
    # What a device or its link loses is not ours. The sender's kernel sends a few of its own.
    missing = sum(sent.packets.values()) - sum(one.packets for one in got)
    in_front = after.in_front - before.in_front
    assert missing <= in_front < missing + 3


@pytest.mark.timeout(3600)
def test_every_packet_of_many_is_received(guest: Guest, request: pytest.FixtureRequest) -> None:
    """One after another: the sender waits for each, and for ever if one is missing."""
    count = request.config.getoption("--packets") // len(PATHS) // ROUNDS
    guest.run("modprobe tun")
    guest.load("pf_filter")
    for path in PATHS:
        command = [str(programs() / "udp_cost"), "-n", str(count), path, "5000"]
        out = json.loads(guest.spawn(command, nice=19).wait(60 + count * ROUNDS / 1000).out)
        assert len(out["ns"]) == ROUNDS
        assert out["sent"] >= count * ROUNDS
    assert all_drops(guest) == {}


def beside_a_bulk_transfer(guest: Guest) -> tuple[dict[str, int], int]:
    """What was dropped, and how many packets were lost, of a small flow of low priority."""
    before = all_drops(guest)
    receiver = LIGHT.receiver(guest, 5001, 19)
    server = guest.spawn(["iperf3", "-s", "-1", "-p", "5300"])
    await_bound(guest, "tcp", 5300)
    bulk = subprocess.Popen(
        ["iperf3", "-c", GUEST4, "-p", "5300", "-t", f"{4 * guest.dilation:.0f}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    sent = LIGHT.send([Flow(5001, FEW_PPS)], 64, 3, sender(guest))
    said, _ = bulk.communicate(timeout=60 * guest.dilation)
    assert bulk.returncode == 0, said
    after = all_drops(guest)
    got = receiver.finish()
    server.wait()
    told = {reason: count - before.get(reason, 0) for reason, count in after.items()}
    return {reason: count for reason, count in told.items() if count}, (
        sent.packets[5001] - got.packets
    )


def test_a_bulk_transfer_is_no_overload(guest: Guest) -> None:
    """TCP at the speed of the device. When a busy host takes the guest's CPU away, who
    runs just then seems to run for long; so one of several times is enough."""
    guest.load("pf_filter")
    told: list[tuple[dict[str, int], int]] = []
    while not told or told[-1] != ({}, 0):
        assert len(told) < TIMES, told
        told.append(beside_a_bulk_transfer(guest))


def standing(guest: Guest) -> float:
    """For how many seconds receive queues stood full."""
    metrics = guest.read("/proc/packetflow/metrics")
    name = "packetflow_cpu_queue_standing_seconds_total"
    return sum(counters.metric(metrics, name, "cpu").values())


def test_a_burst_is_no_overload(guest: Guest) -> None:
    """One poll after another is full, but the queue is empty before it can be said to stand."""
    guest.load("pf_filter")
    receiver = LIGHT.receiver(guest, 5001, 0)
    stood = [standing(guest)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for _ in range(15):
            for _ in range(BURST):
                out.sendto(b"x" * 64, (GUEST4, 5001))
            time.sleep(0.1 * guest.dilation)
            stood.append(standing(guest))
    receiver.finish()
    # Now and then a busy host stalls the guest in the midst of one.
    assert statistics.median(after - before for before, after in pairwise(stood)) == 0
