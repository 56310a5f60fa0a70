# SPDX-License-Identifier: GPL-2.0-only
"""Runs an experiment's arms interleaved (A B C A B C ...) in one boot."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from experiments.arms import arms
from experiments.measure import Load, Run, measure
from experiments.result import Json, result_json
from experiments.u1 import u1, u1w
from rig.guest import Guest
from rig.kernels import Kernel
from rig.traffic import Tool

EXPERIMENTS: dict[str, Callable[[Guest, Tool, Callable[[str], None]], Load]] = {"U1": u1, "U1w": u1w}


def run(
    experiment: str,
    kernel: Kernel,
    tool: Tool,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    say: Callable[[str], None],
) -> Json:
    """Boot, run every arm so often, and give the result."""
    chosen = arms(names)
    runs: dict[str, list[Run]] = {arm.name: [] for arm in chosen}
    total = repeats * len(chosen)
    say(f"{experiment}: booting {kernel.version}")
    with Guest(kernel) as guest:
        guest.pin()
        load = EXPERIMENTS[experiment](guest, tool, say)
        first = time.monotonic()
        for done in range(total):
            arm = chosen[done % len(chosen)]
            if done:
                left = (time.monotonic() - first) / done * (total - done)
                ahead = f", {left:.0f} s left"
            else:
                ahead = ""
            one = measure(guest, arm, load, tool, seconds)
            runs[arm.name].append(one)
            got = "/".join(f"{account.received_pps / 1e3:.1f}" for account in one.accounts)
            say(f"{experiment} {done + 1}/{total} {arm.name}: {got} kpps{ahead}")
            for warning in one.warnings:
                say(f"  warning: {warning}")
    return result_json(experiment, kernel, tool.name, load, runs)
