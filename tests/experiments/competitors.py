# SPDX-License-Identifier: GPL-2.0-only
"""Tasks that only compute, beside which receivers have to get their share.

Each is in a session of its own, as a user's programs are: with autogroup that is a
scheduling group of its own.
"""

from __future__ import annotations

from experiments.counters import Spent, spent
from rig.guest import Guest

COMPUTE = "while :; do :; done"


class Competitors:
    """So many of them, running until end()."""

    def __init__(self, guest: Guest, count: int) -> None:
        self.guest = guest
        self.processes = [guest.spawn(COMPUTE, new_session=True) for _ in range(count)]

    def spent(self) -> Spent:
        """Their CPU time so far."""
        schedstats = [self.guest.read(f"/proc/{one.pid}/schedstat") for one in self.processes]
        return spent(schedstats, self.guest.read("/proc/uptime"), self.guest.cpus)

    def end(self) -> None:
        for one in self.processes:
            one.signal()
        for one in self.processes:
            one.wait()
