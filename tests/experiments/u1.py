# SPDX-License-Identifier: GPL-2.0-only
"""U1: three UDP floods to receivers of nice 0, 5 and 10; U1w: the same with work.

In U1w every packet costs its receiver as much busy work as lets one receiver
alone, with a 4 MiB buffer, take CAPACITY of what it is sent. That loop count is
found in the guest at the start: at an offered rate of exactly that capacity, the
time a packet takes is linear in the loops as long as the receiver is overloaded,
so two overloaded runs give a line, and it is followed down to that rate.

The rate of the papers, OFFERED_PPS to each, is an overload of a certain size only
on a machine of a certain speed: there the stock kernel delivers some two thirds.
A faster or slower machine shows the same with the rate at which its stock kernel
delivers as much, which overload() finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from experiments.arms import Arm
from experiments.measure import Load, measure
from rig.guest import Guest
from rig.traffic import LIGHT, Tool, programs

OFFERED_PPS = 37_000
SLOWEST_PPS = 2_000
DELIVERED = 0.67  # of what is sent, by the stock kernel
CAPACITY = 1.1
CALIBRATION_SECONDS = 2.0
OVERLOAD_ROUNDS = 6
DELIVERED_TOLERANCE = 0.06
CALIBRATION_ROUNDS = 4
CLOSE_ENOUGH = 1.03
OVERLOADING = (1.2, 2.0)  # work that is this much of a packet's time overloads surely
SLOWEST_LOOP = 0.5  # of its time when calibrated alone: a bound against noise

U1 = Load(ports=(5000, 5001, 5002), nices=(0, 5, 10), pps=OFFERED_PPS)


def overload(guest: Guest, tool: Tool, say: Callable[[str], None]) -> float:
    """A rate for U1 at which the stock kernel delivers DELIVERED, at most OFFERED_PPS."""

    def delivered(pps: float) -> float:
        run = measure(guest, Arm("stock"), replace(U1, pps=pps), tool, CALIBRATION_SECONDS)
        share = sum(one.received_pps for one in run.accounts) / (pps * len(run.accounts))
        say(f"load: of {pps / 1e3:.1f} kpps to each the stock kernel delivers {share:.0%}")
        return share

    low, high = float(SLOWEST_PPS), float(OFFERED_PPS)
    pps = high
    for _ in range(OVERLOAD_ROUNDS):
        share = delivered(pps)
        if abs(share - DELIVERED) < DELIVERED_TOLERANCE or (share > DELIVERED and pps == high):
            break
        low, high = (pps, high) if share > DELIVERED else (low, pps)
        pps = round(math.sqrt(low * high), -2)
    return pps


def calibrate(guest: Guest, pps: float, say: Callable[[str], None]) -> int:
    """The loops a packet that leave one receiver CAPACITY of the offered rate."""
    loops_per_us = float(guest.run([str(programs() / "udp_recv"), "--calibrate"]).out)
    wanted = pps * CAPACITY
    wanted_us = 1e6 / wanted
    arm = Arm("rmem4m")

    def packet_us(loops: int) -> float:
        alone = Load(ports=U1.ports[:1], nices=U1.nices[:1], pps=wanted, work=loops)
        return 1e6 / measure(guest, arm, alone, LIGHT, CALIBRATION_SECONDS).accounts[0].received_pps

    low, high = (round(factor * wanted_us * loops_per_us) for factor in OVERLOADING)
    low_us, high_us = packet_us(low), packet_us(high)
    for _ in range(CALIBRATION_ROUNDS):
        slope = max((high_us - low_us) / (high - low), SLOWEST_LOOP / loops_per_us)
        high, high_us = low, low_us
        low = max(round(low - (low_us - wanted_us) / slope), 0)
        low_us = packet_us(low)
        say(
            f"work: {low} loops a packet ({low / loops_per_us:.1f} us): "
            f"one receiver alone takes {1e3 / low_us:.1f} of {wanted / 1e3:.1f} kpps"
        )
        if low == 0 or low_us < wanted_us * CLOSE_ENOUGH:
            break
    return low


def u1(guest: Guest, pps: float, say: Callable[[str], None]) -> Load:
    return replace(U1, pps=pps)


def u1w(guest: Guest, pps: float, say: Callable[[str], None]) -> Load:
    return replace(U1, pps=pps, work=calibrate(guest, pps, say))
