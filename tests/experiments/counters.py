# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's counters as the runner reads them: pure parsers of /proc text.

Columns and samples are found by name, so that a file may grow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

REASONS = ("overload", "harm", "full")  # columns early_* of /proc/packetflow/sockets


def snmp(text: str, protocol: str) -> dict[str, int]:
    """One protocol's counters of /proc/net/snmp: a line of names, one of values."""
    lines = [line.split() for line in text.splitlines() if line.startswith(f"{protocol}:")]
    names, values = lines[0][1:], lines[1][1:]
    return dict(zip(names, map(int, values), strict=True))


def backlog_drops(text: str) -> int:
    """The sum over all CPUs of dropped packets in /proc/net/softnet_stat."""
    return sum(int(line.split()[1], 16) for line in text.splitlines())


@dataclass(frozen=True)
class CpuTime:
    idle: int
    total: int


def cpu_time(text: str, cpus: int) -> CpuTime:
    """The first CPUs' ticks from /proc/stat; waiting for a disk is idle too."""
    lines = [line.split()[1:9] for line in text.splitlines()[1 : 1 + cpus]]
    ticks = [sum(map(int, column)) for column in zip(*lines, strict=True)]
    return CpuTime(idle=ticks[3] + ticks[4], total=sum(ticks))


def idle_share(before: CpuTime, after: CpuTime) -> float:
    ticks = after.total - before.total
    return (after.idle - before.idle) / ticks if ticks else 0.0


@dataclass(frozen=True)
class Spent:
    """CPU time of some tasks, and of all CPUs, since they began."""

    ns: int
    of_ns: int


def spent(schedstats: Sequence[str], uptime: str, cpus: int) -> Spent:
    """From the tasks' /proc/PID/schedstat and /proc/uptime."""
    ns = sum(int(text.split()[0]) for text in schedstats)
    return Spent(ns, round(float(uptime.split()[0]) * 1e9) * cpus)


def share(before: Spent, after: Spent) -> float:
    """The tasks' share of the CPUs in between."""
    return (after.ns - before.ns) / (after.of_ns - before.of_ns)


SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def metric(text: str, name: str, label: str) -> dict[str, float]:
    """One metric of OpenMetrics text, by the value of one label."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        sample = SAMPLE.match(line)
        if sample is None or sample["name"] != name:
            continue
        key = dict(LABEL.findall(sample["labels"] or "")).get(label, "")
        found[key] = found.get(key, 0.0) + float(sample["value"])
    return found


def value(text: str, name: str) -> float:
    """The one sample of a metric; LookupError if there is none."""
    return metric(text, name, "")[""]


def table(text: str) -> list[dict[str, str]]:
    """A text table whose first line names the columns."""
    lines = text.splitlines()
    names = lines[0].lstrip("#").split() if lines else []
    return [dict(zip(names, line.split(), strict=False)) for line in lines[1:] if line.strip()]


def early_drops(sockets: str, ports: Sequence[int]) -> dict[int, dict[str, int]]:
    """Early drops by port and reason, from /proc/packetflow/sockets."""
    found = {port: dict.fromkeys(REASONS, 0) for port in ports}
    for row in table(sockets):
        port = row["local"].rsplit(":", 1)[-1]
        if row["proto"].startswith("udp") and port.isdigit() and int(port) in found:
            for reason in REASONS:
                found[int(port)][reason] += int(row[f"early_{reason}"])
    return found


def udp_queues(text: str, ports: Sequence[int]) -> list[tuple[int, int]]:
    """(bytes waiting, drops) of the sockets on these ports in /proc/net/udp."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rsplit(":", 1)[1], 16) in ports:
            found.append((int(fields[4].split(":")[1], 16), int(fields[-1])))
    return found
