# SPDX-License-Identifier: GPL-2.0-only
"""The receive buffers in a run: how large they were, how full, and what was given back.

How large a buffer was its receiver asks the kernel ten times a second, and how much waited
in all of them a program beside looks up: the same in every arm, with pf_mm or without.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.arms import Arm
from experiments.mm import Granted
from rig.guest import Guest
from rig.programs import programs
from rig.traffic import Received

GIVE_BACK_SECONDS = 5.0  # after the load, in the guest's time


@dataclass(frozen=True)
class Buffers:
    """Of one run, in bytes as the kernel counts them."""

    rcvbuf: list[int]  # of each receiver: the largest while the load lasted
    queued_peak: int  # in all of them at one time
    queued_mean: int  # likewise
    granted_peak: int  # by pf_mm; this and what follows 0 without it
    budget: int
    left: int  # of what was granted, some seconds after the load


class Watch:
    """Looks at the buffers from its making on."""

    def __init__(self, guest: Guest, ports: Sequence[int]) -> None:
        self.guest = guest
        command = [str(programs() / "udp_queued"), *map(str, ports)]
        self.program = guest.spawn(command)

    def end(self) -> tuple[int, int]:
        """The load is over: what waited in all buffers at one time, at most and on average."""
        self.program.signal()
        done = self.program.wait(20)
        if done.rc:
            raise RuntimeError(f"udp_queued: code {done.rc}: {done.err}")
        seen = json.loads(done.out)
        return int(seen["peak"]), int(seen["mean"])


def given_back(guest: Guest, arm: Arm) -> Granted:
    """What is granted some seconds after the load, or as soon as nothing is.

    The receivers must be there still: a socket that is closed gives back anything.
    """
    deadline = time.monotonic() + GIVE_BACK_SECONDS * guest.patience
    while True:
        granted = arm.granted(guest) or Granted()
        if not granted.now or time.monotonic() >= deadline:
            return granted
        time.sleep(0.2 * guest.patience)


def found(received: Sequence[Received], queued: tuple[int, int], granted: Granted) -> Buffers:
    return Buffers(
        [one.rcvbuf or 0 for one in received],
        *queued,
        granted.peak,
        granted.budget,
        granted.now,
    )


def arm_json(runs: Sequence[Buffers]) -> dict[str, Any]:
    """One arm's runs: what result.py has under these names."""
    return {
        "rcvbuf_bytes": [run.rcvbuf for run in runs],
        "queued_bytes_peak": [run.queued_peak for run in runs],
        "queued_bytes_mean": [run.queued_mean for run in runs],
        "granted_bytes_peak": [run.granted_peak for run in runs],
        "budget_bytes": [run.budget for run in runs],
        "given_back": [run.left for run in runs],
    }


def kib(values: Sequence[float], pick: Callable[[Sequence[float]], float] = max) -> str:
    return f"{pick(values) / 1024:.0f}"


def rows(result: dict[str, Any]) -> list[list[str]]:
    """A table of every arm's buffers, in KiB."""
    heads = [f"nice {nice}" for nice in result["nices"]]
    table = [["arm", *heads, "queued, peak", "granted, peak", "budget", "left after"]]
    for name, arm in result["arms"].items():
        sizes = zip(*arm["rcvbuf_bytes"], strict=True)
        figures = (
            arm[key]
            for key in ("queued_bytes_peak", "granted_bytes_peak", "budget_bytes", "given_back")
        )
        table.append([name, *(kib(size, statistics.median) for size in sizes), *map(kib, figures)])
    return table
