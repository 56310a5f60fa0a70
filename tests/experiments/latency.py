# SPDX-License-Identifier: GPL-2.0-only
"""The latency of a small datagram and its answer, by sockperf's ping-pong on lo."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from experiments.settings import Setting
from rig.guest import Guest
from rig.traffic import await_bound

PORT = 5000
SIZE = 64  # bytes
SECONDS = 1
# Its own clock would be the CPU's, which it calibrates by the host's speed.
CLOCK = "--no-rdtsc"


def ping_pong(guest: Guest, setting: Setting, ports: Sequence[int]) -> float:
    """Half of the time there and back, in microseconds, as sockperf sums it up."""
    setting.enter(guest, ports)
    try:
        server = guest.spawn(["sockperf", "server", CLOCK, "-p", str(PORT)])
        await_bound(guest, "udp", PORT)
        command = ["sockperf", "ping-pong", CLOCK, "-p", str(PORT), "-t", str(SECONDS)]
        out = guest.spawn([*command, "-m", str(SIZE)]).wait(120).out
        server.signal(signal.SIGKILL)
        server.wait()
    finally:
        setting.leave(guest)
    found = re.search(r"Summary: Latency is ([0-9.]+) usec", out)
    if not found:
        raise RuntimeError(f"sockperf said nothing of latency:\n{out}")
    return float(found[1])
