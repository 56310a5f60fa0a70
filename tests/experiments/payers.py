# SPDX-License-Identifier: GPL-2.0-only
"""Who pays for what is received: the CPU's time in softirqs, in the receivers, and in others.

The kernel does not count softirqs as time of the task that they interrupt (Debian's kernels have
CONFIG_IRQ_TIME_ACCOUNTING). Where the guest's clock counts instructions, the shares are those of
instructions.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from experiments import counters
from rig.guest import Guest


@dataclass(frozen=True)
class Look:
    """All so far."""

    cpu: counters.CpuTime
    receivers: list[counters.Spent]


@dataclass(frozen=True)
class Paid:
    """Shares of the guest's CPUs."""

    idle: float
    softirq: float
    receivers: list[float]


def look(guest: Guest, pids: Sequence[int]) -> Look:
    cpu = counters.cpu_time(guest.read("/proc/stat"), guest.cpus)
    uptime = guest.read("/proc/uptime")
    stats = [guest.read(f"/proc/{pid}/schedstat") for pid in pids]
    return Look(cpu, [counters.spent([text], uptime, guest.cpus) for text in stats])


def paid(before: Look, after: Look) -> Paid:
    ticks = after.cpu.total - before.cpu.total
    softirq = (after.cpu.softirq - before.cpu.softirq) / ticks if ticks else 0.0
    pairs = zip(before.receivers, after.receivers, strict=True)
    return Paid(
        counters.idle_share(before.cpu, after.cpu),
        softirq,
        [counters.share(one, other) for one, other in pairs],
    )


def told(name: str, softirq: Sequence[float], receivers: Sequence[Sequence[float]]) -> str:
    """An arm's line, of medians of its runs."""
    each = [statistics.median(column) for column in zip(*receivers, strict=True)]
    text = f"who pays, {name}: softirqs {statistics.median(softirq):.1%}, "
    return text + f"receivers {' + '.join(f'{one:.1%}' for one in each)} = {sum(each):.1%}"
