# SPDX-License-Identifier: GPL-2.0-only
"""How slow a guest's time must run (see rig.machine) for the experiments to fit it.

At the papers' rates the guest is to be overloaded as their machine was: with
everything for the two lower receivers shed it can just take what the first is
sent. That is so where one packet, received, costs PACKET_NS of the guest's time.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

from rig.guest import Guest
from rig.kernels import Kernel
from rig.programs import programs

PACKET_NS = 4000.0
PORT = 5000
TRIALS = 2


def dilation(kernel: Kernel, say: Callable[[str], None]) -> float:
    """The factor for this host as it is now; 1 where it is fast enough as it is."""
    say(f"booting kernel {kernel.version} to see how fast it is here")
    with Guest(kernel, link=False) as guest:
        guest.pin()
        guest.run("ip link set lo up && modprobe tun")
        command = [str(programs() / "udp_cost"), "tun", str(PORT)]
        rounds = [json.loads(guest.run(command).out)["ns"] for _ in range(TRIALS)]
    packet_ns = statistics.median(ns for one in rounds for ns in one)
    factor = max(1.0, round(packet_ns / PACKET_NS, 1))
    say(f"a packet takes {packet_ns / 1e3:.1f} us: the guest's time runs {factor:g} times slower")
    return factor
