# SPDX-License-Identifier: GPL-2.0-only
"""A receiver that waits where softirqs take the CPU is woken where another CPU idles.

What takes the CPU is sent to a socket that nobody reads: so no task runs there, and the scheduler
by itself takes that CPU for an idle one.
"""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rig.guest import Guest
from rig.traffic import LIGHT, Flow, LightReceiver, sender

CROWDED, CALM = 0, 1
PORT, BOUND, UNREAD = 5001, 5002, 5003
PPS, FLOOD = 2_000, 40_000
SECONDS = 3.0
LOOKS = 15


def interrupts_at(guest: Guest, cpu: int) -> None:
    """Of the device that receives."""
    device = guest.run("basename $(readlink /sys/class/net/eth0/device)").out.strip()
    for line in guest.read("/proc/interrupts").splitlines():
        if f" {device}-" in line:
            number = line.split(":")[0].strip()
            guest.write(f"/proc/irq/{number}/smp_affinity_list", str(cpu))


def started(guest: Guest, port: int, cpus: str) -> LightReceiver:
    """A receiver that has run on the crowded CPU, and may run on these."""
    receiver = LIGHT.receiver(guest, port)
    assert isinstance(receiver, LightReceiver)
    pid = receiver.process.pid
    for where in (str(CROWDED), cpus):
        guest.run(f"taskset -cp {where} {pid} && sleep 0.1")
    return receiver


def cpu_of(guest: Guest, receiver: LightReceiver) -> int:
    stat = guest.read(f"/proc/{receiver.process.pid}/stat")
    return int(stat.rsplit(")", 1)[1].split()[36])


@pytest.mark.counted
@pytest.mark.cpus(2)
def test_who_waits_for_softirqs_wakes_where_a_cpu_idles(guest: Guest) -> None:
    interrupts_at(guest, CROWDED)
    free = started(guest, PORT, f"{CROWDED},{CALM}")
    bound = started(guest, BOUND, str(CROWDED))
    unread = started(guest, UNREAD, str(CROWDED))
    unread.process.signal(signal.SIGSTOP)
    flows = [Flow(PORT, PPS), Flow(BOUND, PPS), Flow(UNREAD, FLOOD)]
    seen, allowed = [], ""
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(LIGHT.send, flows, 256, SECONDS, sender(guest))
        while not sending.done():
            seen.append((cpu_of(guest, free), cpu_of(guest, bound)))
            allowed = guest.run(f"taskset -cp {free.process.pid}").out
            time.sleep(0.05)
        sending.result()
    unread.process.signal(signal.SIGCONT)
    for receiver in (free, bound, unread):
        receiver.finish()
    late = seen[len(seen) // 2 :]
    assert len(late) >= LOOKS, seen
    assert all(cpu == CROWDED for _, cpu in late), late
    assert sum(cpu == CALM for cpu, _ in late) > 0.8 * len(late), late
    assert f"{CROWDED},{CALM}" in allowed or f"{CROWDED}-{CALM}" in allowed, allowed
