# SPDX-License-Identifier: GPL-2.0-only
"""What the experiments know of pf_flow: tables of many flows, of which two have the packets."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.settings import Modules
from rig.guest import Guest

SOURCES = "127.0.0.1", "10.78.0.2"  # of udp_cost, by the loopback and by a tun
FLOWS = "/proc/packetflow/flow/flows"
FAST = "rate=100g"  # nothing waits
NOTHING = "rate=8 burst=1 queue=1"  # a packet each while

_WRITE = """\
rows = [f"add ours{n} dport={port} src={source} {shape}\\n" for n, source in enumerate(sources)]
rows += [
    f"add other{n} dport={port} src=10.{n >> 16}.{n >> 8 & 255}.{n & 255} rate=1g\\n"
    for n in range(len(rows), number)
]
with open("/proc/packetflow/flow/table", "w", buffering=1 << 26) as file:
    file.write("replace\\n" + "".join(rows))
"""


class Flows(Modules):
    """So many flows of one kind; all packets to the second port are those of two of them."""

    def __init__(self, number: int, shape: str = FAST) -> None:
        super().__init__("pf_flow")
        self.number, self.shape = number, shape
        self.counted_by_socket = False

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        super().enter(guest, ports)
        given = f"number, shape = {self.number}, {self.shape!r}\n"
        given += f"port, sources = {ports[1]}, {SOURCES!r}\n"
        guest.run(["python3", "-c", given + _WRITE], timeout=300)

    def decided(self, guest: Guest) -> dict[str, float]:
        """Packets that were dropped as the queue was full."""
        head, *rows = (line.split() for line in guest.read(FLOWS).splitlines())
        ours = [dict(zip(head, row, strict=True)) for row in rows[: len(SOURCES)]]
        found = {
            what: sum(float(row[what]) for row in ours) for what in ("direct", "early", "full")
        }
        # Packets of another flow, or such as are dropped late, would be another thing.
        assert found["early"] >= found["full"] and sum(found.values()) > 1000, found
        return {"queue_full": found["early"] + found["full"]}
