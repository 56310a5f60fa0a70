# SPDX-License-Identifier: GPL-2.0-only
"""Crowding: receivers that hardly sleep are got out of the CPU of the softirqs."""

import re

import pytest
from rig.guest import Guest
from rig.programs import programs
from rig.traffic import LIGHT, Flood, Flow, sender

PORTS = (5001, 5002, 5003)
PPS, SIZE, SECONDS, FLOODS = 8_000, 256, 1.0, 10
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


def await_crowding(guest: Guest) -> None:
    """A flood does not need it if the scheduler happens to place the receivers well."""
    before = crowded(guest)
    for _ in range(FLOODS):
        Flood([Flow(port, PPS) for port in PORTS], SIZE, SECONDS, sender(guest)).end()
        if crowded(guest) > before + 1:
            return
    raise AssertionError(f"{CROWDER} ran {crowded(guest) - before} times")


@pytest.mark.counted
@pytest.mark.ends
@pytest.mark.cpus(2)
def test_it_goes_on_after_the_suite_was_off(guest: Guest) -> None:
    """The thread is another one then."""
    guest.load("pf_filter")
    loops_per_us = float(guest.run([str(programs() / "udp_recv"), "--calibrate"]).out)
    work = round(WORK_US * loops_per_us)
    receivers = [LIGHT.receiver(guest, port, 5 * at, work) for at, port in enumerate(PORTS)]
    await_crowding(guest)
    guest.write("/proc/packetflow/enable", "0")
    guest.write("/proc/packetflow/enable", "1")
    await_crowding(guest)
    for receiver in receivers:
        receiver.finish()
