# SPDX-License-Identifier: GPL-2.0-only
"""Shedding for a receiver that only waits ends with what it waited for.

A web server is asked all the time, and so it always has too little of the CPU. A collector of
lower priority is sent few packets, which cost the server next to nothing. For half a
second there is a flood besides.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from experiments import services
from experiments.settings import early_drops
from rig.guest import Guest
from rig.programs import programs
from rig.traffic import LIGHT, Flood, Flow, sender

pytestmark = [pytest.mark.counted, pytest.mark.ends]

NICE = 10
COLLECTOR, FLOODED = 5001, 5002
SIZE = 256
FEW, FLOOD = 200.0, 20_000.0  # packets/s; the floor is 100
ENDS, CALM = 2.0, 1.0  # seconds for shedding to end, and then without it
WORK_US = 20  # of a receiver for a packet, where its packets arrive on another CPU


@contextmanager
def arriving_on(guest: Guest, cpu: int) -> Iterator[None]:
    device = guest.run("basename $(readlink /sys/class/net/eth0/device)").out.strip()
    lines = guest.read("/proc/interrupts").splitlines()
    (number,) = [line.split(":")[0].strip() for line in lines if f"{device}-input" in line]
    affinity = f"/proc/irq/{number}/smp_affinity_list"
    before = guest.read(affinity)
    guest.write(affinity, str(cpu))
    yield
    guest.write(affinity, before)


def shed(guest: Guest, port: int) -> int:
    """Packets dropped for the server's sake, of the receiver on that port."""
    return early_drops(guest.read("/proc/packetflow/sockets"), [port])[port]["harm"]


def flood(guest: Guest, work: int = 0) -> None:
    """A server, a collector and one that is flooded run on the first CPU."""
    server = services.W1.start(guest)
    ports = (COLLECTOR, FLOODED)
    few, many = (LIGHT.receiver(guest, port, NICE, work) for port in ports)
    for pid in (server.worker, few.process.pid, many.process.pid):
        guest.run(["taskset", "-pc", "0", str(pid)])
    with ThreadPoolExecutor() as pool:
        lasts = 1 + ENDS + CALM
        asking = pool.submit(services.W1.ask, guest, services.W1.parts[0], round(lasts))
        collecting = Flood([Flow(COLLECTOR, FEW)], SIZE, lasts, sender(guest))
        guest.run(["sleep", "0.2"])
        flooding = Flood([Flow(FLOODED, FLOOD)], SIZE, 0.5, sender(guest, apart=True))
        sent = flooding.end().packets[FLOODED]
        flooded, collected = shed(guest, FLOODED), shed(guest, COLLECTOR)
        guest.run(["sleep", str(ENDS)])
        before = shed(guest, COLLECTOR)
        collecting.end()
        after = shed(guest, COLLECTOR)
        asking.result()
    assert flooded > 0.7 * sent, (flooded, sent)
    assert collected > 0
    assert after == before, (collected, before, after)
    few.finish()
    many.finish()
    server.finish()


def test_a_short_flood_is_not_paid_for_ever(guest: Guest) -> None:
    """A task that computes leaves the CPU no time to spare."""
    guest.load("pf_filter")
    computing = guest.spawn("while :; do :; done", nice=19)
    flood(guest)
    computing.signal()
    computing.wait()


@pytest.mark.newest  # of how packets are counted, which is the same on every kernel
@pytest.mark.cpus(2)
def test_nor_where_packets_arrive_on_another_cpu(guest: Guest) -> None:
    if guest.kernel.name == "6.1":
        pytest.skip("its scheduler leaves so little to the flooded receiver that nobody is harmed")
    guest.load("pf_filter")
    calibrated = guest.run([str(programs() / "udp_recv"), "--calibrate"])
    with arriving_on(guest, 1):
        flood(guest, round(float(calibrated.out) * WORK_US))
