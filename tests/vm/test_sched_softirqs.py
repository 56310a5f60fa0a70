# SPDX-License-Identifier: GPL-2.0-only
"""pf_sched: those who are raised leave others their part of what softirqs leave."""

import pytest
from rig.guest import Guest
from rig.traffic import LIGHT, Flood, Flow, sender

pytestmark = [pytest.mark.counted, pytest.mark.ends]

PORTS = (5001, 5002)
PPS, SIZE, SECONDS = 22_000, 256, 30.0  # more than the guest can take
# Real-time, or it would be kept waiting itself. It prints ticks, and hundredths of a second.
LOOK = """
look() { cut -d' ' -f14 /proc/$1/stat; cut -d' ' -f1 /proc/uptime | tr -d .; }
look $1; sleep 3; look $1
"""


def share_of_who_computes(guest: Guest) -> float:
    """Of the CPU, beside floods to two receivers of nice 10."""
    receivers = [LIGHT.receiver(guest, port, nice=10) for port in PORTS]
    computing = guest.spawn("while :; do :; done")
    flood = Flood([Flow(port, PPS) for port in PORTS], SIZE, SECONDS, sender(guest))
    guest.run("sleep 1")
    look = guest.run(["chrt", "-f", "50", "sh", "-c", LOOK, "look", str(computing.pid)])
    ticks, at, ticks_then, then = map(int, look.out.split())
    flood.stop()
    for process in (computing, *(receiver.process for receiver in receivers)):
        process.signal()
        process.wait()
    return (ticks_then - ticks) / (then - at)


def test_who_computes_keeps_running_beside_those_who_are_raised(guest: Guest) -> None:
    """On a stock kernel it has a tenth: it is more important, but softirqs come first."""
    before = share_of_who_computes(guest)
    guest.load("pf_sched")
    after = share_of_who_computes(guest)
    elected = "packetflow_sched_elected_total"
    raised = int(guest.run(f"awk '/^{elected}/ {{ print $2 }}' /proc/packetflow/metrics").out)
    assert raised > 0
    assert after > 0.5 * before, (before, after, raised)
