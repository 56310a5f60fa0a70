# SPDX-License-Identifier: GPL-2.0-only
"""U1: three UDP floods to receivers of nice 0, 5 and 10; U1w: the same with work; B1:
U1, with a look at the buffers.

In U1w every packet costs its receiver as much busy work as lets one receiver
alone, with a 4 MiB buffer, take CAPACITY of what it is sent. That loop count is
found in the guest at the start, by halving: the most loops with which one receiver
that is sent exactly so much still takes all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from experiments.arms import Arm
from experiments.measure import Load, measure
from rig.guest import Guest
from rig.programs import programs
from rig.traffic import LIGHT

OFFERED_PPS = 37_000
COUNTED_PPS = 18_000  # overloads a third of a billion instructions a second as much
DEEP_PPS = 23_000  # of which stock receives as small a share as in the papers
COUNTED_WORKING_PPS = 8_000  # leaves such a CPU time for work, when all else is dropped
CAPACITY = 1.1
CALIBRATION_ROUNDS = 7
ALL_TAKEN = 0.98  # of the rate, within what a measurement can tell
CALIBRATION_SECONDS = 1.0

U1 = Load(ports=(5000, 5001, 5002), nices=(0, 5, 10), pps=OFFERED_PPS)


def most_loops(guest: Guest, wanted: float, say: Callable[[str], None]) -> int:
    """The most loops a packet with which one receiver alone takes all at that rate."""
    loops_per_us = float(guest.run([str(programs() / "udp_recv"), "--calibrate"]).out)
    arm = Arm("rmem4m")
    # Nothing takes it in time with a packet's whole share of the CPU as work.
    low, high = 0, round(1e6 / wanted * loops_per_us)
    for _ in range(CALIBRATION_ROUNDS):
        loops = (low + high) // 2
        alone = Load(ports=U1.ports[:1], nices=U1.nices[:1], pps=wanted, work=loops)
        run = measure(guest, arm, alone, LIGHT, CALIBRATION_SECONDS)
        got = run.accounts[0].received_pps
        say(
            f"work: with {loops} loops a packet ({loops / loops_per_us:.1f} us) "
            f"one receiver alone takes {got / 1e3:.1f} of {wanted / 1e3:.1f} kpps"
        )
        low, high = (loops, high) if got > ALL_TAKEN * wanted else (low, loops)
    return low


def u1(guest: Guest, pps: float, say: Callable[[str], None]) -> Load:
    return replace(U1, pps=pps)


def u1w(guest: Guest, pps: float, say: Callable[[str], None]) -> Load:
    return replace(U1, pps=pps, work=most_loops(guest, pps * CAPACITY, say))


def b1(guest: Guest, pps: float, say: Callable[[str], None]) -> Load:
    return replace(U1, pps=pps, watched=True)
