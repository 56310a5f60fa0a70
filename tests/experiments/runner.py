# SPDX-License-Identifier: GPL-2.0-only
"""Runs an experiment's arms interleaved (A B C A B C ...) in one boot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from experiments.arms import arms
from experiments.dilation import dilation
from experiments.measure import Load, Run, measure
from experiments.result import Json, result_json
from experiments.u1 import u1, u1w
from rig.guest import Guest
from rig.kernels import Kernel
from rig.traffic import Tool

FIRST = -20  # nice level
Say = Callable[[str], None]
EXPERIMENTS: dict[str, Callable[[Guest, float, Say], Load]] = {
    "U1": u1,
    "U1w": u1w,
    "U1-drops": u1,
}


def go_first() -> None:
    """Let this process and its children run before the machine's other work.

    Where sessions are scheduled as groups, a nice level counts only inside one:
    the session's group then needs the level too.
    """
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, FIRST)
    with suppress(FileNotFoundError):
        Path("/proc/self/autogroup").write_text(str(FIRST))


@contextmanager
def booted(kernel: Kernel, factor: float | None, say: Say) -> Iterator[Guest]:
    """A guest of one processor, pinned for measuring, in time that fits or so dilated."""
    go_first()
    if factor is None:
        factor = dilation(kernel, say)
    say(f"booting kernel {kernel.version}")
    with Guest(kernel, dilation=factor) as guest:
        guest.pin()
        yield guest


def run(
    experiment: str,
    guest: Guest,
    tool: Tool,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    pps: float,
    say: Say,
) -> Json:
    """Run every arm so often, and give the result."""
    chosen = arms(names)
    runs: dict[str, list[Run]] = {arm.name: [] for arm in chosen}
    total = repeats * len(chosen)
    load = EXPERIMENTS[experiment](guest, pps, say)
    started = time.monotonic()
    for done in range(total):
        arm = chosen[done % len(chosen)]
        one = measure(guest, arm, load, tool, seconds)
        runs[arm.name].append(one)
        got = "/".join(f"{account.received_pps / 1e3:.1f}" for account in one.accounts)
        left = (time.monotonic() - started) / (done + 1) * (total - done - 1)
        say(f"{experiment} {done + 1}/{total} {arm.name}: {got} kpps, {left:.0f} s left")
        for warning in one.warnings:
            say(f"  warning: {warning}")
    return result_json(experiment, guest, tool.name, load, runs)
