# SPDX-License-Identifier: GPL-2.0-only
"""How old datagrams are when they are received: for how long they waited in queues and buffers.

The number of a datagram says when it was due, if its sender keeps constant gaps. Each sample of a
receiver says which was the last one that it got. Both must be of one clock. What a sender that is
overtaxed sends late counts as old.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rig.traffic import Received


def age_ms(
    one: Received, start_ns: int, pps: float, begin_ns: float, end_ns: float
) -> float | None:
    """The median over the samples of a period; None if it received next to nothing in it."""
    ages, before = [], 0
    for sample in one.seen:
        due_ns = start_ns + (sample.next_seq - 1) * 1e9 / pps
        if begin_ns <= sample.ns <= end_ns and sample.received > before:
            ages.append((sample.ns - due_ns) / 1e6)
        before = sample.received
    return statistics.median(ages) if len(ages) > 1 else None


def of_repeats(rows: Sequence[Sequence[float | None]]) -> str:
    """For a table: of each receiver the median of its repeats."""
    columns = ([age for age in column if age is not None] for column in zip(*rows, strict=True))
    return "/".join(f"{max(0.0, statistics.median(ages)):.0f}" if ages else "-" for ages in columns)
