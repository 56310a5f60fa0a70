# SPDX-License-Identifier: GPL-2.0-only
"""The order of ranks holds on several CPUs, wherever packets arrive and receivers run.

Each packet costs its receiver work, so that not all are served, and by the guest's own clock.
Packets arrive at one CPU, or are spread over all (steering gives each a queue of its
own, as a card with several does); receivers run where the scheduler puts them, or each on one.
"""

from collections.abc import Sequence

import pytest
from experiments.arms import Arm
from experiments.measure import Load, measure
from rig.guest import Guest
from rig.programs import programs
from rig.traffic import LIGHT

NICES = (0, 5, 10)
PPS, SECONDS = 8_000, 2.0
WORK_US = 15.0  # with it two CPUs serve one receiver and part of another
NOISE = 300.0  # packets/s


def received(guest: Guest, settings: str, times: int) -> Sequence[float]:
    """By whom, in packets/s: as many receivers of each nice level as `times`."""
    loops_per_us = float(guest.run([str(programs() / "udp_recv"), "--calibrate"]).out)
    nices = NICES * times
    load = Load(
        ports=tuple(range(5000, 5000 + len(nices))),
        nices=nices,
        pps=PPS,
        work=round(WORK_US * loops_per_us),
    )
    run = measure(guest, Arm(settings), load, LIGHT, SECONDS)
    return [account.received_pps for account in run.accounts]


def of_rank(got: Sequence[float], nice: int) -> float:
    return sum(got[NICES.index(nice) :: len(NICES)])


@pytest.mark.counted
@pytest.mark.ends
@pytest.mark.cpus(2)
@pytest.mark.first
@pytest.mark.parametrize("receivers", ["free", "pinned"])
@pytest.mark.parametrize("queues", ["one", "several"])
def test_the_order_holds(guest: Guest, receivers: str, queues: str) -> None:
    parts = ["filter"] + ["pinned"] * (receivers == "pinned") + ["steered"] * (queues == "several")
    got = received(guest, "+".join(parts), guest.cpus // 2)
    first, second, third = (of_rank(got, nice) for nice in NICES)
    assert first > 0.7 * PPS, got
    assert first > max(second, third), got
    # Where its packets come in on the first's CPU, and the third's on the other, the second
    # is shed for the first, and the third has little of what is left.
    apart = queues == "several" and receivers == "free" and third < PPS / 10
    assert second > third - NOISE or apart, got
