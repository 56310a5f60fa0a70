# SPDX-License-Identifier: GPL-2.0-only
"""U1: three UDP floods to receivers of nice 0, 5 and 10; U1w: the same with work.

In U1w every packet costs its receiver as much busy work as lets one receiver
alone, with a 4 MiB buffer, take CAPACITY of what it is sent. That loop count is
found in the guest at the start: at an offered rate of exactly that capacity, the
time a packet takes is linear in the loops as long as the receiver is overloaded,
so two overloaded runs give the line and a third shows that it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from experiments.arms import Arm
from experiments.measure import Load, Run, measure
from rig.guest import Guest
from rig.traffic import LIGHT, Tool, programs

OFFERED_PPS = 37_000
CAPACITY = 1.1
CALIBRATION_SECONDS = 2.0
# Micro-seconds of work that surely overload one receiver.
OVERLOADING_US = (30, 60)

U1 = Load(ports=(5000, 5001, 5002), nices=(0, 5, 10), pps=OFFERED_PPS)


def calibrate(guest: Guest, say: Callable[[str], None]) -> int:
    """The loops a packet that leave one receiver CAPACITY of the offered rate."""
    loops_per_us = float(guest.run([str(programs() / "udp_recv"), "--calibrate"]).out)
    wanted = OFFERED_PPS * CAPACITY
    arm = Arm("rmem4m")

    def capacity(loops: int) -> float:
        alone = Load(ports=U1.ports[:1], nices=(0,), pps=wanted, work=loops)
        run: Run = measure(guest, arm, alone, LIGHT, CALIBRATION_SECONDS)
        return run.accounts[0].received_pps

    low, high = (round(us * loops_per_us) for us in OVERLOADING_US)
    low_us, high_us = (1e6 / capacity(loops) for loops in (low, high))
    slope = (high_us - low_us) / (high - low)
    loops = round(low - (low_us - 1e6 / wanted) / slope)
    got = capacity(loops)
    say(
        f"work: {loops} loops a packet ({loops / loops_per_us:.1f} us); "
        f"one receiver alone takes {got / 1e3:.1f} of {wanted / 1e3:.1f} kpps"
    )
    return loops


def u1(guest: Guest, tool: Tool, say: Callable[[str], None]) -> Load:
    return U1


def u1w(guest: Guest, tool: Tool, say: Callable[[str], None]) -> Load:
    return replace(U1, work=calibrate(guest, say))
