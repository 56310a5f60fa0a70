# SPDX-License-Identifier: GPL-2.0-only
"""The few figures that the README and docs/performance.md show, each out of a kept result.

All are of all modules at their defaults, as users run them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.result import Json
from rig.kernels import SERIES

Kept = Callable[[str], Json]


def flat(result: Json) -> Json:
    """The arms, by name."""
    found: Json = result["arms"]
    return found


def beside_floods(result: Json) -> Json:
    """The arms of a server's first part with floods."""
    return next(part["arms"] for part in result["parts"] if part["floods"])


def deepest(result: Json) -> Json:
    """The arms of the step at which most is sent."""
    found: Json = result["steps"][-1]["arms"]
    return found


def received(arm: Json) -> float:
    """By the first, thousand packets a second."""
    return statistics.median(row[0] for row in arm["received_pps"]) / 1e3


def together(arm: Json) -> float:
    """By all, thousand packets a second."""
    return statistics.median(sum(row) for row in arm["received_pps"]) / 1e3


def seconds(arm: Json) -> float:
    """Of the first."""
    return statistics.median(row[0] if isinstance(row, list) else row for row in arm["seconds"])


def lost(arm: Json) -> float:
    """Percent."""
    return 100 * statistics.median(arm["lost"])


def socket_drops(arm: Json) -> float:
    """Of the first, packets a second."""
    return statistics.median(row[0] for row in arm["socket_drops_pps"])


def answers(arm: Json) -> float:
    """A second."""
    return statistics.median(arm["answers_per_s"])


def latency(arm: Json) -> float:
    """The 99th percentile, milliseconds."""
    return statistics.median(arm["p99_ms"])


@dataclass(frozen=True)
class Headline:
    """One line: what, in which kept result and where there, and how it is told."""

    result: str
    words: str
    figure: Callable[[Json], float]
    form: str
    arms: Callable[[Json], Json] = flat


HEADLINES = (
    Headline(
        "W1-6.12",
        "nginx beside floods to nice 10: answers a second",
        answers,
        "{:.0f}",
        beside_floods,
    ),
    Headline(
        "W1-two-cpus-6.12",
        "the same on two CPUs",
        answers,
        "{:.0f}",
        beside_floods,
    ),
    Headline(
        "D1-6.12",
        "nsd asked 6000 times a second beside such floods: 99 % are answered within",
        latency,
        "{:.0f} ms",
        beside_floods,
    ),
    Headline(
        "U1-6.12",
        "three receivers are sent 18 kpps each: nice 0 receives",
        received,
        "{:.1f} kpps",
    ),
    Headline("U1-6.12", "the same, all three together", together, "{:.1f} kpps"),
    Headline(
        "U1w-6.12",
        "three receivers that work on each packet are sent 8 kpps each: nice 0 receives",
        received,
        "{:.1f} kpps",
    ),
    Headline(
        "C1-6.12",
        "three receivers in a container are sent 16 kpps each: nice 0 receives",
        received,
        "{:.1f} kpps",
        deepest,
    ),
    Headline("R1-6.12", "rsyslog beside floods to nice 10: lines lost", lost, "{:.1f} %"),
    Headline("M1-6.12", "a TCP stream beside floods to nice 10 takes", seconds, "{:.1f} s"),
    Headline(
        "H1-6.12",
        "a receiver beside tasks that compute, all of nice 0: packets lost",
        socket_drops,
        "{:.0f}/s",
    ),
)


def table(kept: Kept) -> str:
    """As Markdown; kept gives a result by its name."""
    lines = [
        "| what | stock | PacketFlow | experiment, kernel, date |",
        "| --- | --- | --- | --- |",
    ]
    for one in HEADLINES:
        found = kept(one.result)
        arms = one.arms(found)
        cells: Sequence[str] = (
            one.words,
            one.form.format(one.figure(arms["stock"])),
            one.form.format(one.figure(arms["all"])),
            f"{found['experiment']}, {found['version'].partition('+')[0]}, {found['date'][:10]}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


COSTS = (
    ("nobody overloads it", "filter_idle", "all_idle"),
    ("a CPU has no time to spare", "", "all_busy"),
    ("switched off (`enable=0`)", "", "disabled"),
)


def price(kept: Kept) -> str:
    """What a packet costs more than on stock, from a device to recvmsg(), as Markdown."""
    results = [kept(f"cost-{kernel}") for kernel in SERIES]
    versions = [found["version"].partition("+")[0] for found in results]
    lines = [f"| modules | while | {' | '.join(versions)} |", "| --- " * (2 + len(SERIES)) + "|"]
    for words, filter_alone, all_of_them in COSTS:
        for modules, name in (("`pf_filter`", filter_alone), ("all", all_of_them)):
            if name:
                cells = [f"{more(found, name):+.1%}" for found in results]
                lines.append(f"| {modules} | {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def more(cost: Json, arm: str) -> float:
    counts = cost["receive_instructions_per_packet"]
    return float(counts[arm] / counts["stock"] - 1)
