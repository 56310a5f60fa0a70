# SPDX-License-Identifier: GPL-2.0-only
"""What the estimator takes for a sign of overload, each by itself, and what it must not.

Drops at a socket and in the backlog are provoked by tests of their own (test_b2,
test_cpus), a queue that stands full by all of test_overload. Here are a round of
softirqs that is cut short, which only says that it is worth looking; what a device
counts as lost, and another queue of it; and what takes the whole weight of a poll and is no sign
of anything: packets taken by busy polling, and what was sent.
"""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from experiments import counters
from experiments.measure import GUEST_DROPS, lost
from inside import ON_HOST, inside, mark
from inside.net import drain, sysctl, udp
from inside.suite import dropped, metric, passed, pressed, wait_for
from rig.guest import Guest
from rig.link import GUEST_MAC, SENDER_MAC, TAP
from rig.module import built, made
from rig.slowed import slowed
from rig.traffic import LIGHT, Flow, await_bound, sender

if ON_HOST:
    import pytest

pytestmark = mark.oldest

PORTS = (5001, 5002, 5003)
FLOOD = 12_000  # packets/s to each port: together more than a slowed CPU can take
ARRIVING = ("netdev", "ingress device eth0", 1000)  # where packets are slowed
SIZE = 256
LOCAL_EXPERIMENTAL = bytes.fromhex("88b5")  # a protocol of frames that nobody listens to
STANDING = "packetflow_cpu_queue_standing_seconds_total"
LOST = "packetflow_cpu_lost_packets_total"
RING = Path(__file__).parent / "ring"


# A round of softirqs that is cut short


def squeezes() -> int:
    """How often that happened on the first CPU."""
    first, *_ = Path("/proc/thread-self/net/softnet_stat").read_text().splitlines()
    return int(first.split()[2], 16)


@inside()
def test_a_cpu_that_is_cut_short_is_looked_at_and_nobody_loses() -> None:
    """The setting has every round cut short, be it of a single packet.

    Fails if the estimator does not read time_squeeze, if it takes it for a loss or for a
    queue that stands, if somebody is dropped for it, or if the pressure stays.
    """
    receiver, sender = udp(), udp()

    def exchange() -> None:
        for _ in range(50):
            sender.sendto(b"x", receiver.getsockname())
        assert len(drain(receiver)) == 50

    def signs() -> tuple[dict[str, float], dict[str, float]]:
        return metric(STANDING), metric(LOST)

    def at_peace() -> bool:
        """Without it the very same packets are no pressure, after several looks."""
        before = squeezes()
        exchange()
        time.sleep(0.4)
        return squeezes() == before and not pressed(0)

    wait_for(at_peace)
    squeezed, before, judged = squeezes(), signs(), passed()["judged"]
    with sysctl("net.core.netdev_budget", "1"):

        def looked_at() -> bool:
            exchange()
            return pressed(0) and passed()["judged"] > judged

        wait_for(looked_at)
        assert squeezes() > squeezed
    assert signs() == before
    assert sum(dropped().values()) == 0
    wait_for(lambda: not pressed(0), 5)


# What the guest tells of itself to this side


def of_cpus(guest: Guest, name: str) -> float:
    """A metric's sum over all CPUs."""
    text = guest.read("/proc/packetflow/metrics")
    return sum(counters.metric(text, name, "cpu").values())


def early(guest: Guest) -> dict[str, float]:
    text = guest.read("/proc/packetflow/metrics")
    return counters.metric(text, "packetflow_filter_dropped_total", "reason")


# What a device counts as lost


def missed(guest: Guest) -> int:
    return int(guest.read("/sys/class/net/eth0/statistics/rx_missed_errors"))


def backlog_drops(guest: Guest) -> int:
    return counters.backlog_drops(guest.read("/proc/net/softnet_stat"))


@mark.card("rtl8139")
def test_what_the_device_itself_loses_is_counted(guest: Guest) -> None:
    """A card whose ring overflows in the card, which counts it in rx_missed_errors.

    A virtio ring overflows in the host, and no guest's counter moves. Fails if the
    estimator does not read the counters of the device whose queue it found full, or
    counts packets that the device did not lose meanwhile.
    """
    guest.load()
    receivers = [LIGHT.receiver(guest, port) for port in PORTS]
    flows = [Flow(port, 3 * FLOOD) for port in PORTS]
    # What it lost before it was watched is not to be counted, so there is to be some.
    with slowed(guest, *ARRIVING):
        guest.write("/proc/packetflow/enable", "0")
        LIGHT.send(flows, SIZE, 2)
        guest.write("/proc/packetflow/enable", "1")
        before, in_backlog = missed(guest), backlog_drops(guest)
        assert before > 0
        assert of_cpus(guest, LOST) == 0
        LIGHT.send(flows, SIZE, 4)
    time.sleep(0.3 * guest.dilation)  # for another look; pressure lasts a second
    counted, status = of_cpus(guest, LOST), guest.read("/proc/packetflow/status")
    by_device = missed(guest) - before
    received = [receiver.finish().packets for receiver in receivers]
    assert backlog_drops(guest) == in_backlog  # the metric would count them too
    # Not what was lost before the first look that found the queue full, nor after the last.
    assert by_device / 10 < counted <= by_device, received
    (shown,) = re.findall(r"^cpu 0: under pressure; .* (\d+) lost before the stack$", status, re.M)
    assert int(shown) == counted


def test_frames_that_nobody_wants_are_not_lost(guest: Guest) -> None:
    """The device counts them in rx_dropped, here while its queue stands full.

    Fails if rx_dropped is taken for packets that did not get through.
    """
    guest.load()
    receiver = LIGHT.receiver(guest, PORTS[0])
    unwanted, in_backlog = int(guest.read(GUEST_DROPS)), backlog_drops(guest)
    macs = bytes.fromhex((GUEST_MAC + SENDER_MAC).replace(":", ""))
    flood = threading.Thread(target=LIGHT.send, args=([Flow(PORTS[0], 3 * FLOOD)], SIZE, 3))
    with slowed(guest, *ARRIVING), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((TAP, 0))
        flood.start()
        while flood.is_alive():
            with suppress(OSError):  # the link's queue may be full
                out.send(macs + LOCAL_EXPERIMENTAL + bytes(46))
            time.sleep(0.002)
        flood.join()
    receiver.finish()
    assert int(guest.read(GUEST_DROPS)) > unwanted
    assert backlog_drops(guest) == in_backlog
    assert of_cpus(guest, STANDING) > 0
    assert of_cpus(guest, LOST) == 0


# A device that uses the whole weight of its polls


def ring(guest: Guest, *parameters: str) -> tuple[float, float]:
    """By how much two metrics rose while there was such a device: how long a queue stood, and
    what was lost."""
    module = built(guest, RING)
    before = of_cpus(guest, STANDING), of_cpus(guest, LOST)
    made(guest, module, *parameters)
    return of_cpus(guest, STANDING) - before[0], of_cpus(guest, LOST) - before[1]


def test_a_poll_that_brings_nothing_is_no_queue_that_stands(guest: Guest) -> None:
    """So some drivers poll on until what was sent is done with.

    Fails if each poll that uses its whole weight counts.
    """
    guest.load()
    stood, _ = ring(guest)
    assert stood == 0
    stood, _ = ring(guest, "brings=1")
    assert stood > 0.1


def test_what_another_queue_loses_is_not_this_ones(guest: Guest) -> None:
    """A device counts for all its queues, and one that a burst has filled is found full, too.

    Fails if a queue has lost what its device has once it was found full.
    """
    guest.load()
    _, counted = ring(guest, "brings=1", "loses=1", "once=1", "poll_ms=12", "for_ms=1500")
    assert counted == 0
    stood, counted = ring(guest, "brings=1", "loses=1")
    assert stood > 0.1 and counted > 0


# Busy polling

RECEIVER = r"""
import socket, struct, sys
port, prefer = map(int, sys.argv[1:])
SO_BUSY_POLL, SO_PREFER_BUSY_POLL = 46, 69
def bound(port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", port))
    return sock
full, polled = bound(port + 1), bound(port)
full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
polled.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, 2_000_000)
if prefer:
    polled.setsockopt(socket.SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)
polled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
count = 0
while True:
    try:
        polled.recv(2000)
        count += 1
    except BlockingIOError:
        # Nothing for three seconds, of which two were polled.
        if count:
            break
print(count)
"""


def busy_polled(guest: Guest) -> int:
    """Packets that busy polling took from devices, by a kernel that can."""
    if guest.run("test -e /proc/sys/net/core/busy_poll", check=False).rc:
        pytest.skip("this kernel does not poll for who waits")
    return counters.snmp(guest.read("/proc/net/netstat"), "TcpExt")["BusyPollRxPackets"]


def test_packets_taken_by_busy_polling_are_judged_like_any(guest: Guest) -> None:
    """The hook and the probes run in the receiver's own context then.

    A neighbour's buffer is full, so that the CPU is pressed and packets are dropped early
    in there. Fails if a module cannot stand that context (the kernel's log tells), if the
    packets are not judged, or if the receiver that polls loses any by it.
    """
    guest.load(*guest.kernel.modules)
    polls = busy_polled(guest)
    receiver = guest.spawn(["python3", "-c", RECEIVER, str(PORTS[0]), "0"])
    await_bound(guest, "udp", PORTS[0])
    before = lost(guest)
    flows = [Flow(port, 1000) for port in PORTS[:2]]
    sent = LIGHT.send(flows, SIZE, 3, sender(guest)).packets
    told = early(guest)
    got = int(receiver.wait(30).out)
    in_front = lost(guest).in_front - before.in_front
    assert sent[PORTS[0]] - in_front <= got <= sent[PORTS[0]], (got, sent, in_front, told)
    assert busy_polled(guest) - polls > got / 10
    assert told["socket_full"] > sent[PORTS[1]] / 2, (sent, told)
    assert told["overload"] == told["harm"] == 0, told


@contextmanager
def interrupts_off(guest: Guest, seconds: float = 1) -> Iterator[None]:
    """While somebody polls; for so long after he last did."""
    top = "/sys/class/net/eth0"
    guest.write(f"{top}/napi_defer_hard_irqs", "1")
    guest.write(f"{top}/gro_flush_timeout", str(int(seconds * 1e9)))
    try:
        yield
    finally:
        guest.write(f"{top}/gro_flush_timeout", "0")
        guest.write(f"{top}/napi_defer_hard_irqs", "0")
        time.sleep((seconds + 0.2) * guest.dilation)


def test_a_queue_that_is_polled_by_its_receiver_is_no_overload(guest: Guest) -> None:
    """Though every one of these polls comes back full, for seconds, as the ring overflows.

    Their budget is their own and says nothing of the queue, and what the receiver does not
    poll for it does not want. Fails if full polls of any budget make a standing queue.
    """
    guest.load(*guest.kernel.modules)
    with slowed(guest, *ARRIVING), interrupts_off(guest):
        polls = busy_polled(guest)
        receiver = guest.spawn(["python3", "-c", RECEIVER, str(PORTS[0]), "1"], nice=-10)
        await_bound(guest, "udp", PORTS[0])
        before = lost(guest)
        stood, counted = of_cpus(guest, STANDING), of_cpus(guest, LOST)
        # By its first packets a socket learns which queue to poll. It does so for two
        # seconds, and if the flood came later it would not find the time to begin again.
        LIGHT.send([Flow(PORTS[0], 20)], SIZE, 0.5)
        LIGHT.send([Flow(PORTS[0], 3 * FLOOD)], SIZE, 3)
        pressure = of_cpus(guest, "packetflow_cpu_pressed")
        stood_then, counted_then = of_cpus(guest, STANDING), of_cpus(guest, LOST)
        in_front = lost(guest).in_front - before.in_front
        got = int(receiver.wait(30).out)
    assert in_front > got / 10, "the ring did not overflow, so polls were not full"
    # The last poll of each wait is not counted.
    assert busy_polled(guest) - polls > got / 4, got
    # Where a wait ends with a full poll a softirq goes on, which may last some milliseconds.
    assert stood_then - stood < 0.2, "of three seconds"
    assert counted_then == counted
    assert pressure == 0 or stood_then > stood
    # The same to one who does not poll is one.
    plain = LIGHT.receiver(guest, PORTS[0])
    with slowed(guest, *ARRIVING):
        LIGHT.send([Flow(PORTS[0], 3 * FLOOD)], SIZE, 3)
    assert of_cpus(guest, STANDING) > stood
    plain.finish()
