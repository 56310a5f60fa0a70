# SPDX-License-Identifier: GPL-2.0-only
"""Crowding: receivers that hardly sleep are got out of the CPU of the softirqs."""

import re

import pytest
from rig.guest import Guest
from rig.programs import programs
from rig.traffic import LIGHT, Flood, Flow, sender

PORTS = (5001, 5002, 5003)
PPS, SIZE, SECONDS = 8_000, 256, 2.0
WORK_US = 15.0  # with it two CPUs serve one receiver and part of another
CROWDER = "pf_place"


def crowded(guest: Guest) -> int:
    """How often the suite's thread that crowds receivers out has run, since it was made."""
    (pid,) = guest.run(["pgrep", "-x", CROWDER]).out.split()
    found = re.search(
        r"^voluntary_ctxt_switches:\s+(\d+)$", guest.read(f"/proc/{pid}/status"), re.M
    )
    assert found
    return int(found[1])


def flooded(guest: Guest) -> int:
    """How often it has run meanwhile."""
    before = crowded(guest)
    Flood([Flow(port, PPS) for port in PORTS], SIZE, SECONDS, sender(guest)).end()
    return crowded(guest) - before


@pytest.mark.counted
@pytest.mark.ends
@pytest.mark.cpus(2)
def test_it_goes_on_after_the_suite_was_off(guest: Guest) -> None:
    """The thread is another one then."""
    guest.load("pf_filter")
    loops_per_us = float(guest.run([str(programs() / "udp_recv"), "--calibrate"]).out)
    work = round(WORK_US * loops_per_us)
    receivers = [LIGHT.receiver(guest, port, 5 * at, work) for at, port in enumerate(PORTS)]
    assert flooded(guest) > 2
    guest.write("/proc/packetflow/enable", "0")
    guest.write("/proc/packetflow/enable", "1")
    assert flooded(guest) > 2
    for receiver in receivers:
        receiver.finish()
