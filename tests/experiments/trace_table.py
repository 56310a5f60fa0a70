# SPDX-License-Identifier: GPL-2.0-only
"""What is told of a trace: a line for every step of time, see trace.py.

A cut's *reach* is told in receivers, from the least important up: 1.5 where all is shed of the
last, and half of the one before. Whom the trace does not show does not count.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from experiments.result import Json, subject
from experiments.trace import ONE

STEP = 0.2  # seconds of a line of the table
# Of packetflow:control, what is no signal; nor is what is told in microseconds.
KNOWN = {"at", "cpu", "idle", "softirq", "asking"}


def reach(cut: float, ranks: Iterable[int]) -> float:
    """How many receivers it sheds, of these ranks; a level has two to a rank, the upper for who
    is elected."""
    level, share = int(cut), cut % 1
    passed = 0.0
    for rank in ranks:
        if level > 2 * rank + 1:
            passed += 1
        elif level >= 2 * rank:
            passed += share
    return passed


def ranks(result: Json) -> dict[int, int]:
    """Each process that was seen to receive, and the rank that it mostly had."""
    seen: dict[int, list[float]] = defaultdict(list)
    for one in result["receivers"]:
        seen[int(one["pid"])].append(one["rank"])
    return {pid: int(max(set(had), key=had.count)) for pid, had in seen.items()}


def ranked(result: Json) -> list[int]:
    """The receivers' ranks: as seen; else as their nice level has it among those seen."""
    seen = ranks(result)
    return [seen[pid] for pid in result["pids"] if pid in seen]


def signals(result: Json) -> list[str]:
    """Fields of the control events that are shares of something, and not known otherwise."""
    most: dict[str, float] = {}
    for one in result["control"]:
        for name, value in one.items():
            most[name] = max(most.get(name, 0.0), value)
    apart = KNOWN | set(result["cuts"])
    return [
        name
        for name, value in most.items()
        if name not in apart and not name.endswith("_us") and value <= ONE
    ]


def others(result: Json) -> list[str]:
    """Further fields of the control events."""
    apart = {"at", "cpu", "idle", "softirq", *result["cuts"]}
    first = result["control"][0] if result["control"] else {}
    return [name for name in first if name not in apart]


def labels(result: Json) -> list[str]:
    """Each receiver's."""
    names = [f"nice {nice}" for nice in result["nices"]]
    if result["load"] in ("W1", "C2"):
        names[0] = "nginx"
    return names


def rates(samples: Sequence[Sequence[float]]) -> list[tuple[float, float, float]]:
    """(from, to, a second) of each gap between samples."""
    return [
        (a[0], b[0], (b[1] - a[1]) / (b[0] - a[0]))
        for a, b in itertools.pairwise(samples)
        if b[0] > a[0]
    ]


def between(samples: Sequence[Sequence[float]], begin: float, end: float) -> float:
    """A second in that time, each gap by its share of it."""
    return sum(rate * max(0.0, min(end, b) - max(begin, a)) for a, b, rate in rates(samples)) / (
        end - begin
    )


def percent(rows: Sequence[dict[str, float]], name: str) -> str:
    return f"{fmean(row[name] for row in rows) * 100 / ONE:3.0f}" if rows else "  -"


def table(result: Json) -> str:
    """One line for every STEP."""
    title = f"{subject(result)}: {result['load']}, {result['arm']}"
    title += "".join(f", {knob}={value}" for knob, value in result["set"].items())
    title += f", {result['pps'] / 1e3:g} kpps to each"
    if result["off"]:
        title += f", {'all' if result['together'] else 'floods'} on for {result['on']:g} s "
        title += f"and off for {result['off']:g} s"
    got = "/".join(f"{pps / 1e3:.1f}" for pps in result["received_pps"])
    title += f"; received {got} kpps in all, {result['idle']:.0%} idle"
    if result["overwritten"]:
        title += f"; {result['overwritten']} events are missing"
    heads = ", ".join(labels(result))
    below = f"seconds | kpps of {heads} | by CPU: idle, softirq percent; "
    below += f"cuts as LEVEL.SHARE (reach in receivers); {', '.join(others(result))} | "
    below += "by thread: run, wait, sleep percent @CPU"
    return "\n".join([title, below, *lines(result)])


def lines(result: Json) -> Iterator[str]:
    step = 0
    control, threads = binned(result["control"], "cpu"), binned(result["receivers"], "pid")
    names = dict(zip(result["pids"], labels(result), strict=True))
    all_ranks = ranked(result)
    while step * STEP < result["seconds"]:
        begin = step * STEP
        kpps = (between(one, begin, begin + STEP) / 1e3 for one in result["received"])
        parts = [f"{begin:5.1f} | {' '.join(f'{one:5.2f}' for one in kpps)}"]
        for (_, cpu), rows in sorted(one for one in control.items() if one[0][0] == step):
            parts.append(of_cpu(result, cpu, rows, all_ranks))
        for (_, pid), rows in sorted(one for one in threads.items() if one[0][0] == step):
            sleep = ONE - fmean(row["run"] + row["wait"] for row in rows)
            parts.append(
                f"{names.get(pid, f'pid {pid}')} r{percent(rows, 'run')} w{percent(rows, 'wait')} "
                f"s{max(sleep, 0) * 100 / ONE:3.0f} @{fmean(row['cpu'] for row in rows):.1f}"
            )
        yield " | ".join(parts)
        step += 1


def of_cpu(result: Json, cpu: int, rows: Sequence[dict[str, float]], all_ranks: list[int]) -> str:
    """One CPU's part of a line."""
    text = f"c{cpu} idle{percent(rows, 'idle')} sirq{percent(rows, 'softirq')}"
    for cut in result["cuts"]:
        at = rows[-1][cut]
        text += f" {cut} {int(at)}.{round(at % 1 * ONE):05d} ({reach(at, all_ranks):.2f})"
    for name in others(result):
        text += f" {name} {fmean(row.get(name, 0) for row in rows):.0f}"
    return text


def binned(rows: Sequence[dict[str, float]], key: str) -> dict[tuple[int, int], list[Any]]:
    """By step, and what the key is."""
    found: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for row in rows:
        found[int(row["at"] // STEP), int(row[key])].append(row)
    return found
