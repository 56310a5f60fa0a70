# SPDX-License-Identifier: GPL-2.0-only
"""B1: when the receive path is overloaded, priority decides who loses.

A real sender at the other end of the link offers more than the guest can
take. Rates are not exact here; what is asserted is the order, with room for
noise, and what must never happen.
"""

import re
import subprocess
import threading
from collections.abc import Sequence

from rig.guest import Guest
from rig.link import GUEST4
from rig.traffic import LIGHT, Flow, Received, await_bound

NICES = (0, 5, 10)
PORTS = (5001, 5002, 5003)
# More than an emulated CPU can take, and enough of it to settle.
PPS, SECONDS, SIZE = 28_000, 5.0, 256
FLOOR = 100  # packets/s, as the module has it


def offer(guest: Guest, nices: Sequence[int], work: int = 0) -> tuple[list[int], list[Received]]:
    """What was sent to, and what was received by, receivers of these nice levels."""
    receivers = [
        LIGHT.receiver(guest, port, nice, work) for port, nice in zip(PORTS, nices, strict=False)
    ]
    sent = LIGHT.send([Flow(port, PPS) for port in PORTS[: len(nices)]], SIZE, SECONDS)
    return [sent.packets[port] for port in PORTS[: len(nices)]], [r.finish() for r in receivers]


def dropped(guest: Guest, what: str = "dropped") -> dict[str, int]:
    metrics = guest.read("/proc/packetflow/metrics")
    found = re.findall(rf'^packetflow_filter_{what}_total{{reason="(\w+)"}} (\d+)', metrics, re.M)
    return {reason: int(value) for reason, value in found}


def test_the_order_is_kept_and_nobody_starves(guest: Guest) -> None:
    guest.load("pf_filter")
    sent, seen = offer(guest, NICES)
    got = [receiver.packets for receiver in seen]
    told = dropped(guest)
    assert told["overload"] + told["harm"] > 0, (sent, got, told)
    # Of two that are held at the floor, chance decides who gets a packet more.
    assert got[0] > got[1] > got[2] or got[1] < 2 * FLOOR * SECONDS, (sent, got, told)
    assert got[0] > 1.1 * max(got[1:]), (sent, got, told)
    assert min(got) >= 0.5 * FLOOR * SECONDS, (sent, got, told)


def test_without_a_floor_the_lowest_may_starve(guest: Guest) -> None:
    guest.load("pf_filter", filter={"floor": 0})
    sent, seen = offer(guest, NICES)
    got = [receiver.packets for receiver in seen]
    told = dropped(guest)
    assert told["overload"] + told["harm"] > 0, (sent, got, told)
    assert got[0] > got[1] >= got[2], (sent, got, told)


def test_equals_are_not_shed_for_each_other(guest: Guest) -> None:
    guest.load("pf_filter")
    sent, seen = offer(guest, (3, 3, 3))
    told = dropped(guest)
    assert told["overload"] == told["harm"] == 0, (sent, seen, told)


def test_observe_sheds_nobody(guest: Guest) -> None:
    guest.load("pf_filter", filter={"mode": "observe"})
    offer(guest, NICES)
    assert sum(dropped(guest).values()) == 0
    would = dropped(guest, "observed")
    assert would["overload"] + would["harm"] > 0


def early(guest: Guest) -> dict[int, int]:
    """Early drops by UDP port."""
    head, *rows = guest.read("/proc/packetflow/sockets").splitlines()
    found: dict[int, int] = {}
    for row in (dict(zip(head.split(), line.split(), strict=True)) for line in rows):
        lost = sum(int(row[f"early_{reason}"]) for reason in ("overload", "harm", "full"))
        assert row["proto"].startswith("udp") or not lost, row
        port = int(row["local"].rsplit(":", 1)[1])
        found[port] = found.get(port, 0) + lost
    return found


def test_tcp_is_never_dropped(guest: Guest) -> None:
    """A transfer to a receiver of low priority, beside a flood to more important ones."""
    guest.load("pf_filter")
    server = guest.spawn(["iperf3", "-s", "-1", "-p", "5300"], nice=15)
    await_bound(guest, "tcp", 5300)
    receivers = [LIGHT.receiver(guest, port, nice) for port, nice in zip(PORTS, NICES, strict=True)]
    flows = [Flow(port, PPS) for port in PORTS]
    flood = threading.Thread(target=LIGHT.send, args=(flows, SIZE, SECONDS))
    flood.start()
    command = ["iperf3", "-c", GUEST4, "-p", "5300", "-n", "2M", "-J"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    flood.join()
    told, by_port = dropped(guest), early(guest)
    for receiver in receivers:
        receiver.finish()
    assert done.returncode == 0, done.stdout
    server.wait()
    assert sum(told.values()) == sum(by_port.values()) > 0
