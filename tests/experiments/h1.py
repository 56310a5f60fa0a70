# SPDX-License-Identifier: GPL-2.0-only
"""H1: one working UDP receiver beside tasks that only compute, all of nice 0.

The receiver takes NEED of the CPU where it runs at every packet, which is to say
before all others: the work of a packet, found at the start, and being interrupted and
woken; the rate is one at which these two do not take most of it. Its fair share among
COMPETITORS tasks is less than it needs even at its best, so on a stock kernel its buffer
overflows while it waits for its turn.

Every program is in a session of its own. Every arm is run twice: named alone, with
autogroup on, as Debian has it from 6.12 on, where each session is a scheduling group
and nice levels mean nothing between them; with "+autogroup-off", in one group.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

from experiments.arms import Arm
from experiments.measure import Load, measure
from rig.guest import Guest
from rig.programs import programs
from rig.traffic import LIGHT

OFFERED_PPS = 8_000
NEED = 0.54  # share of the CPU
COMPETITORS = 4
CALIBRATION_ROUNDS, CALIBRATION_TRIES = 3, 10
SATURATED = 0.9  # whoever takes so much could use more, so it tells nothing of the loops
CALIBRATION_SECONDS = 1.0

H1 = Load(ports=(5000,), nices=(0,), pps=OFFERED_PPS, competitors=COMPETITORS)


def calibrate(guest: Guest, pps: float, say: Callable[[str], None]) -> int:
    """The loops a packet with which the receiver takes NEED from a task that only computes.

    An idle CPU would not tell: to fall asleep and wake up costs time of its own.
    What a loop takes while nothing is received is only a first guess.
    """
    loops_per_us = float(guest.run([str(programs() / "udp_recv"), "--calibrate"]).out)
    shares = fitted(NEED, 1e6 / pps * loops_per_us, lambda loops: taken(guest, pps, loops), say)
    return loops_for(NEED, shares) if len(shares) > 1 else 0


def fitted(
    need: float, fill: float, share_of: Callable[[int], float], say: Callable[[str], None]
) -> dict[int, float]:
    """Shares by loops, the last of them near the need, where there is work that does.

    From what is taken without any work on, the share grows with the loops.
    fill: about as many as would take the whole CPU
    """
    shares = {0: share_of(0)}
    say(f"without work the receiver takes {shares[0]:.0%} of the CPU")
    loops = round((need - shares[0]) * fill)
    for _ in range(CALIBRATION_TRIES):
        if loops <= 0 or len(shares) > CALIBRATION_ROUNDS:
            break
        share = share_of(loops)
        say(f"work: with {loops} loops a packet it takes {share:.0%}")
        if share > SATURATED:
            loops //= 2
            continue
        shares[loops] = share
        loops = loops_for(need, shares)
    return shares


def loops_for(need: float, shares: Mapping[int, float]) -> int:
    """The loops for that share, by a line through the shares that others took."""
    slope, without = statistics.linear_regression(list(shares), list(shares.values()))
    return max(0, round((need - without) / slope))


def taken(guest: Guest, pps: float, loops: int) -> float:
    """What the receiver takes, running before all others."""
    load = replace(H1, pps=pps, work=loops, competitors=1)
    run = measure(guest, Arm("rr-by-hand"), load, LIGHT, CALIBRATION_SECONDS)
    return 1 - run.competitors


def h1(guest: Guest, pps: float, say: Callable[[str], None]) -> Load:
    return replace(H1, pps=pps, work=calibrate(guest, pps, say))
