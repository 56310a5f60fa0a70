# SPDX-License-Identifier: GPL-2.0-only
"""For pf_flow: tables of flows, and what became of their packets."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inside.net import Peer, nft
from inside.suite import ROOT, write

FLOW = ("pf_flow",)
TABLE, FLOWS, ERROR = (ROOT / "flow" / name for name in ("table", "flows", "error"))
IP_UDP = 28  # bytes of headers
SERVER = "napi/packetflow-0"  # the thread, if there is one


def change(*lines: str) -> None:
    """All at once; OSError tells why not, and error()."""
    write(TABLE, "\n".join(lines) + "\n")


def wrong(*lines: str) -> str:
    """What is said of lines that are refused; nothing changes by them."""
    before = table()
    try:
        change(*lines)
    except OSError:
        assert table() == before
        return ERROR.read_text().strip()
    return ""


def table() -> list[str]:
    return TABLE.read_text().splitlines()


def flow(name: str) -> dict[str, int]:
    """What became of a flow's packets."""
    head, *lines = FLOWS.read_text().splitlines()
    for line in lines:
        if line.split()[0] == name:
            return dict(zip(head.split()[1:], map(int, line.split()[1:]), strict=True))
    raise LookupError(name)


def server_threads() -> list[int]:
    return [
        int(file.parent.name)
        for file in Path("/proc").glob("[0-9]*/comm")
        if file.read_text().strip() == SERVER
    ]


@contextmanager
def real_time(task: int, priority: int) -> Iterator[None]:
    os.sched_setscheduler(task, os.SCHED_FIFO, os.sched_param(priority))
    try:
        yield
    finally:
        os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))


@contextmanager
def flows(*lines: str) -> Iterator[None]:
    """A table for a while, in the namespace of whoever asks."""
    change("replace", *(f"add {line}" for line in lines))
    try:
        yield
    finally:
        change("replace")


def quiet_peer() -> Peer:
    """It sends what the test sends. Its kernel reports of itself which groups it is in (MLD), a
    second later, and such a packet would belong to a default flow, or to one of all IPv6."""
    peer = Peer()
    with peer:
        nft(
            "table ip6 quiet { chain out { type filter hook output priority 0;"
            " meta l4proto ipv6-icmp drop; }; }"
        )
    return peer


def ready(path: Path) -> bool:
    return os.access(path, os.R_OK)


def until(end: float) -> Iterator[float]:
    while (now := time.monotonic()) < end:
        yield now
