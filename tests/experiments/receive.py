# SPDX-License-Identifier: GPL-2.0-only
"""What it takes to receive what waits already, in instructions of the guest.

The guest's clock counts instructions (see cost.py). recv_cost receives datagrams, and parts of a
stream, in several ways; its head says which. How much of the cost is the copy is how far a
receive call that maps pages, and copies nothing, could go.

The JSON has "udp" and "tcp": instructions for one datagram, or one part, by its size in
bytes and by way. An emulated CPU moves a byte, or eight, by an instruction; real ones move
more. "memcpy" tells how many instructions a copy of as much is here in user space.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from experiments.result import Json, columns, heading
from rig.guest import Guest
from rig.kernels import Kernel
from rig.programs import programs

# Or pages are joined, and cannot be mapped one by one.
PAGE_BY_PAGE = "echo 1 > /proc/sys/net/core/high_order_alloc_disable"


def run(kernel: Kernel, say: Callable[[str], None]) -> Json:
    """All ways, in one boot."""
    say(f"receive: booting {kernel.version}, counting instructions")
    with Guest(kernel, icount=True, link=False) as guest:
        guest.run(f"ip link set lo up && {PAGE_BY_PAGE}")
        found = json.loads(guest.run([str(programs() / "recv_cost")]).out)
    return {**heading("receive", guest), **found}


def table(result: Json) -> str:
    """Instructions by size and way."""
    lines = [f"receive, kernel {result['version']}: instructions by size in bytes and way"]
    for protocol in ("udp", "tcp"):
        by_size = result[protocol]
        ways = list(dict.fromkeys(way for found in by_size.values() for way in found))
        rows = [[protocol, *ways]]
        rows += [
            [size, *(f"{found[way]:.0f}" if way in found else "" for way in ways)]
            for size, found in by_size.items()
        ]
        lines += columns(rows)
    return "\n".join(lines)
