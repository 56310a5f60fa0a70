# SPDX-License-Identifier: GPL-2.0-only
"""The few figures that the README shows, each out of a kept result."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.result import Json


def received(arm: Json) -> float:
    """By the first, thousand packets a second."""
    return statistics.median(row[0] for row in arm["received_pps"]) / 1e3


def seconds(arm: Json) -> float:
    """Of the first."""
    return statistics.median(row[0] if isinstance(row, list) else row for row in arm["seconds"])


def lost(arm: Json) -> float:
    """Percent."""
    return 100 * statistics.median(arm["lost"])


def socket_drops(arm: Json) -> float:
    """Of the first, packets a second."""
    return statistics.median(row[0] for row in arm["socket_drops_pps"])


@dataclass(frozen=True)
class Headline:
    """One line: what, in which kept result, and how it is told."""

    result: str
    words: str
    arm: str
    figure: Callable[[Json], float]
    form: str


HEADLINES = (
    Headline(
        "U1-6.12",
        "Three receivers are sent 18 000 packets/s each: what nice 0 receives",
        "filter",
        received,
        "{:.1f} kpps",
    ),
    Headline(
        "U1w-7.2",
        "The same with work on each packet, 8 000 packets/s each",
        "filter",
        received,
        "{:.1f} kpps",
    ),
    Headline(
        "M1-6.12",
        "A TCP stream to nice 0 beside floods to nice 10: the time it takes",
        "all",
        seconds,
        "{:.1f} s",
    ),
    Headline(
        "R1-6.12",
        "rsyslog at nice 0 beside iperf3 floods to nice 10: lines lost",
        "filter",
        lost,
        "{:.1f} %",
    ),
    Headline(
        "H1-6.12",
        "A receiver beside tasks that compute, all of nice 0: packets lost",
        "sched",
        socket_drops,
        "{:.0f}/s",
    ),
)


def table(kept: Callable[[str], Json]) -> str:
    """As Markdown; kept gives a result by its name."""
    lines = ["| what | stock | PacketFlow | | kernel, date |", "| --- | --- | --- | --- | --- |"]
    for one in HEADLINES:
        found = kept(one.result)
        cells: Sequence[str] = (
            one.words,
            one.form.format(one.figure(found["arms"]["stock"])),
            one.form.format(one.figure(found["arms"][one.arm])),
            f"`{one.arm}`",
            f"{found['version']}, {found['date'][:10]}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
