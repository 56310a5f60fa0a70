# SPDX-License-Identifier: GPL-2.0-only
"""B1: when the receive path is overloaded, priority decides who loses.

A real sender at the other end of the link offers more than the guest can take, by the
guest's own clock, so that it is as much too much on any host. What is asserted is the
order, with room for noise, and what must never happen.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from experiments.measure import await_quiet, lost
from inside.suite import unexplained
from rig.guest import Guest
from rig.slowed import slowed
from rig.streams import StreamReceiver, send_streams
from rig.traffic import LIGHT, Flow, Received, sender

pytestmark = [pytest.mark.counted, pytest.mark.ends]
DECISIONS = pytest.mark.oldest  # of policy.c and of texts, which are the same on every kernel

NICES = (0, 5, 10)
PORTS = (5001, 5002, 5003)
# More than a third of a billion instructions a second can take, and enough of it to settle.
PPS, SECONDS, SIZE = 18_000, 2.0, 256
FIRST_PPS = 500.0  # a debug kernel can take that
TCP_PORT, TCP_MESSAGES, WAITING_MESSAGES = 5300, 2000, 20_000
STATUS = "/proc/packetflow/status"
RULES = 150
FLOOR = 100  # packets/s, as the module has it


def is_rt(guest: Guest) -> bool:
    """There the thread that receives may leave the CPU to nobody: then all sockets are full,
    whoever's, and there is nothing to shed."""
    return guest.kernel.name.endswith("-rt")


@pytest.fixture(autouse=True)
def slow(guest: Guest) -> Iterator[None]:
    """An rt kernel's sender takes as long for a packet as its receive path does, to which
    that is too little: there each packet that is let in passes so many rules."""
    with slowed(guest, "ip", "input", RULES) if is_rt(guest) else nullcontext():
        yield


@pytest.fixture
def pps(guest: Guest) -> float:
    """Packets/s to each port.

    A debug kernel's guest is not counted and takes what its host has time for, which is
    found out here: where it is sent twice as much, nobody gets to receive anything.
    """
    if not guest.kernel.debug:
        return PPS
    receivers = [LIGHT.receiver(guest, port) for port in PORTS]
    pps, sent, missed = FIRST_PPS, 1, 0
    while missed < sent / 20:
        pps *= 1.2
        before = lost(guest)
        flows = [Flow(port, pps) for port in PORTS]
        sent = sum(LIGHT.send(flows, SIZE, 0.5, sender(guest)).packets.values())
        after = lost(guest)
        missed = after.in_front - before.in_front + after.sockets - before.sockets
    for receiver in receivers:
        receiver.finish()
    return 1.2 * pps


def early(guest: Guest, reasons: Sequence[str] = ("overload", "harm", "full")) -> dict[int, int]:
    """Early drops by UDP port."""
    head, *rows = guest.read("/proc/packetflow/sockets").splitlines()
    found: dict[int, int] = {}
    for row in (dict(zip(head.split(), line.split(), strict=True)) for line in rows):
        drops = sum(int(row[f"early_{reason}"]) for reason in reasons)
        assert row["proto"].startswith("udp") or not drops, row
        port = int(row["local"].rsplit(":", 1)[1])
        found[port] = found.get(port, 0) + drops
    return found


def offer(
    guest: Guest,
    pps: float,
    nices: Sequence[int],
    then: Callable[[Guest], object] = early,
    beside: bool = False,
    meanwhile: bool = False,
) -> tuple[list[int], list[Received]]:
    """What was sent to, and what was received by, receivers of these nice levels.

    The account closes to the packet, but for a few that the sender's kernel may send of its
    own: what was not received was lost in front of the protocol stack or is in its
    socket's count of drops, which early ones are added to at the latest by what is
    done `then`, or `meanwhile`, when half of the packets are sent. Nor does it close
    where a stream beside loses packets in front, too.
    """
    receivers = [LIGHT.receiver(guest, port, nice) for port, nice in zip(PORTS, nices, strict=True)]
    before = lost(guest)
    flows = [Flow(port, pps) for port in PORTS]
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(LIGHT.send, flows, SIZE, SECONDS, sender(guest))
        if meanwhile:
            guest.run(["sleep", str(SECONDS / 2)])
            then(guest)
        packets = sending.result().packets
    await_quiet(guest, PORTS)
    if not meanwhile:
        then(guest)
    in_front = lost(guest).in_front - before.in_front
    sent, seen = [packets[port] for port in PORTS], [receiver.finish() for receiver in receivers]
    drops = [receiver.socket_drops or 0 for receiver in seen]
    got = [receiver.packets for receiver in seen]
    others = sum(got) + sum(drops) + in_front - sum(sent)
    assert others >= 0, (sent, got, drops, in_front)
    assert others < 3 or beside, (sent, got, drops, in_front)
    return sent, seen


def dropped(guest: Guest, what: str = "dropped") -> dict[str, int]:
    metrics = guest.read("/proc/packetflow/metrics")
    found = re.findall(rf'^packetflow_filter_{what}_total{{reason="(\w+)"}} (\d+)', metrics, re.M)
    return {reason: int(value) for reason, value in found}


def test_the_order_is_kept_and_nobody_starves(guest: Guest, pps: float) -> None:
    guest.load("pf_filter")
    sent, seen = offer(guest, pps, NICES)
    got = [receiver.packets for receiver in seen]
    told = dropped(guest)
    assert told["overload"] + told["harm"] > 0, (sent, got, told)
    # Of two that are held at the floor, chance decides who gets a packet more.
    assert got[0] > got[1] > got[2] or got[1] < 2 * FLOOR * SECONDS, (sent, got, told)
    assert got[0] > 1.1 * min(got[1:]), (sent, got, told)
    assert min(got) >= 0.5 * FLOOR * SECONDS, (sent, got, told)


@pytest.mark.first
@pytest.mark.parametrize("how", ["switched off", "unloaded"])
def test_every_drop_is_the_sockets_when_the_suite_is(guest: Guest, pps: float, how: str) -> None:
    """B1 owes a socket what it dropped without looking it up, and nobody else pays then."""
    guest.load("pf_filter")
    told: dict[str, int] = {}

    def end(guest: Guest) -> None:
        told.update(dropped(guest))
        if how == "unloaded":
            guest.unload()
        else:
            guest.write("/proc/packetflow/enable", "0")

    offer(guest, pps, NICES, then=end, meanwhile=True)
    assert told["overload"] + told["harm"] > 0


def test_a_drop_is_seen_by_reason_and_place(guest: Guest, pps: float) -> None:
    guest.load("pf_filter")
    symbols = guest.run("grep ' t pflow_drop_' /proc/kallsyms").out
    # By address: the compiler makes one of two functions that are the same.
    places = dict(re.findall(r"^(\w+) t (pflow_drop_\w+)\s", symbols, re.MULTILINE))
    assert sorted(places.values()) == ["pflow_drop_full", "pflow_drop_harm", "pflow_drop_overload"]
    event = "/sys/kernel/tracing/events/skb/kfree_skb"
    if guest.run(["test", "-e", f"{event}/hist"], check=False).rc:
        pytest.skip("this kernel has no histograms of events")
    (reason,) = re.findall(r'\{ (\w+), "CPU_BACKLOG" \}', guest.read(f"{event}/format"))
    guest.write(f"{event}/trigger", f"hist:keys=location.sym if reason == {reason}")
    offer(guest, pps, NICES)
    histogram = guest.read(f"{event}/hist")
    guest.write(f"{event}/trigger", "")
    told = dropped(guest)
    seen = re.findall(r"\] (pflow_drop_\w+).*hitcount: +(\d+)", histogram)
    wanted = {f"pflow_drop_{cause}": told[cause] for cause in ("overload", "harm") if told[cause]}
    assert {place: int(hits) for place, hits in seen} == wanted != {}


@DECISIONS
def test_without_a_floor_the_lowest_may_starve(guest: Guest, pps: float) -> None:
    guest.load("pf_filter", filter={"floor": 0})
    sent, seen = offer(guest, pps, NICES)
    got = [receiver.packets for receiver in seen]
    told = dropped(guest)
    assert told["overload"] + told["harm"] > 0, (sent, got, told)
    assert got[0] > got[1] >= got[2], (sent, got, told)


@DECISIONS
@pytest.mark.parametrize("modules", ["pf_filter", "pf_filter pf_sched"])
def test_equals_are_not_shed_for_each_other(guest: Guest, pps: float, modules: str) -> None:
    """Nor for one that is elected, which comes before its equals."""
    guest.load(*modules.split())
    sent, seen = offer(guest, pps, (3, 3, 3))
    told = dropped(guest)
    assert told["overload"] == told["harm"] == 0, (sent, seen, told)


@DECISIONS
def test_nobody_is_shed_for_its_own_election(guest: Guest, pps: float) -> None:
    """An election comes and goes; who is the most important stays so in between."""
    guest.load("pf_filter", "pf_sched")
    shed: dict[int, int] = {}

    def end(guest: Guest) -> None:
        shed.update(early(guest, ("overload", "harm")))

    offer(guest, pps, NICES, then=end)
    assert shed[PORTS[0]] == 0, shed
    assert shed[PORTS[2]] > 0 or is_rt(guest), shed


@DECISIONS
def test_observe_sheds_nobody(guest: Guest, pps: float) -> None:
    guest.load("pf_filter", filter={"mode": "observe"})
    offer(guest, pps, NICES)
    assert sum(dropped(guest).values()) == 0
    would = dropped(guest, "observed")
    assert would["overload"] + would["harm"] > 0 or (is_rt(guest) and would["socket_full"] > 0)


@DECISIONS
def test_the_manual_explains_what_status_says_of_shedding(guest: Guest, pps: float) -> None:
    guest.load("pf_filter")
    said = ""
    with ThreadPoolExecutor(1) as pool:
        flood = pool.submit(offer, guest, pps, NICES)
        while not flood.done():
            said += guest.read(STATUS)
            time.sleep(0.1)
        flood.result()
    assert re.search(r"^shedding: cpu 0: .*; idle \d+ %$", said, re.MULTILINE)
    assert unexplained(said) == []


def test_tcp_is_never_dropped(guest: Guest, pps: float) -> None:
    """A transfer to a receiver of low priority, beside a flood to more important ones."""
    guest.load("pf_filter")
    told: dict[str, int] = {}
    by_port: dict[int, int] = {}

    def end(guest: Guest) -> None:
        told.update(dropped(guest))
        by_port.update(early(guest))

    stream = StreamReceiver(guest, TCP_PORT, 15, TCP_MESSAGES, SIZE)
    with ThreadPoolExecutor(1) as pool:
        flood = pool.submit(offer, guest, pps, NICES, end, beside=True)
        while not flood.done() and not sum(dropped(guest).values()):
            time.sleep(0.1)
        send_streams([TCP_PORT], TCP_MESSAGES, SIZE, sender(guest))
        stream.finish()
        flood.result()
    assert sum(told.values()) == sum(by_port.values()) > 0


@pytest.mark.first
@pytest.mark.parametrize("nice", [0, 10])
def test_a_stream_that_waits_for_the_cpu_is_shed_for(guest: Guest, pps: float, nice: int) -> None:
    """Its window is shut meanwhile, or, on 6.1, the receive queue stands; its equals are not
    shed for it."""
    if guest.kernel.debug:
        pytest.skip("a stream of this host's loses packets in front of so slow a guest")
    guest.load("pf_filter")
    told: dict[str, int] = {}

    def end(guest: Guest) -> None:
        early(guest)
        told.update(dropped(guest))

    stream = StreamReceiver(guest, TCP_PORT, nice, WAITING_MESSAGES, SIZE)
    with ThreadPoolExecutor(1) as pool:
        flood = pool.submit(offer, guest, pps, (10, 10, 10), end, beside=True)
        while not flood.done() and "cpu 0: under pressure" not in guest.read(STATUS):
            time.sleep(0.1)
        send_streams([TCP_PORT], WAITING_MESSAGES, SIZE, sender(guest, apart=True))
        stream.finish()
        flood.result()
    shed = told["harm"] + told["overload"] > 0
    assert shed == (nice == 0) or (is_rt(guest) and not shed), told
