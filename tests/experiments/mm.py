# SPDX-License-Identifier: GPL-2.0-only
"""What the experiments know of pf_mm: its knob for the buffers' size, and its figures."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.counters import value

SCALE = "/proc/packetflow/mm/scale"
PAPER = 100  # a scale in percent: buffers as large as the paper has them
TOP_MB = 1  # the largest buffer of nice 0 at that scale, as the kernel counts it


def scale(top_mb: float) -> str:
    """The knob's value with which a receiver of nice 0 can have such a buffer."""
    return str(round(PAPER * top_mb / TOP_MB))


@dataclass(frozen=True)
class Granted:
    """Bytes that pf_mm has added to buffers, since it was loaded."""

    now: int = 0
    peak: int = 0
    budget: int = 0  # what they may be together


def granted(metrics: str) -> Granted:
    """From /proc/packetflow/metrics of a guest with pf_mm; LookupError without."""
    names = ("granted_bytes", "granted_bytes_peak", "budget_bytes")
    return Granted(*(round(value(metrics, f"packetflow_mm_{name}")) for name in names))
