# SPDX-License-Identifier: GPL-2.0-only
"""What the experiments know of pf_flow: tables of many flows, of which one has the packets."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.settings import Modules
from rig.guest import Guest
from rig.link import SENDER4

FLOWS = "/proc/packetflow/flow/flows"
FAST = "rate=100g"  # nothing waits
NOTHING = "rate=8 burst=1 queue=1"  # a packet each while

_WRITE = """\
rows = [
    f"add other{n} dport={port} src=10.{n >> 16}.{n >> 8 & 255}.{n & 255} rate=1g\\n"
    for n in range(1, number)
]
with open("/proc/packetflow/flow/table", "w", buffering=1 << 26) as file:
    file.write(f"replace\\nadd ours dport={port} src={source} {shape}\\n" + "".join(rows))
"""


class Flows(Modules):
    """So many flows of one kind; all packets to the second port are those of one of them."""

    def __init__(self, number: int, shape: str = FAST) -> None:
        super().__init__("pf_flow")
        self.number, self.shape = number, shape
        self.counted_by_socket = False

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        super().enter(guest, ports)
        given = f"number, shape = {self.number}, {self.shape!r}\n"
        given += f"port, source = {ports[1]}, {SENDER4!r}\n"
        guest.run(["python3", "-c", given + _WRITE], timeout=300)

    def decided(self, guest: Guest) -> dict[str, float]:
        """Packets that were dropped as the queue was full."""
        head, ours, *_ = (line.split() for line in guest.read(FLOWS).splitlines())
        found = dict(zip(head, ours, strict=True))
        early, full = float(found["early"]), float(found["full"])
        # If these are dropped at all, most are dropped early, or another thing is measured.
        assert early >= full, found
        return {"queue_full": early + full}
