# SPDX-License-Identifier: GPL-2.0-only
"""The demonstration: U1 and U1w on a stock kernel, without and with PacketFlow.

Short runs of three arms, the stock kernel twice and then every module that is
built; the result as a table, as bars of text, and as a picture.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments import chart, result, runner
from rig.kernels import Kernel
from rig.traffic import LIGHT, Tool

REPEATS = 2
COUNTED_REPEATS = 1  # counted time repeats itself, and two stock arms show how well
SECONDS = 1.5


def run(
    kernel: Kernel,
    tool: Tool,
    pps: float | None,
    clock: runner.Clock,
    directory: Path,
    say: Callable[[str], None],
) -> None:
    # Only the rig's own receiver can be given work to do.
    names = ["U1", "U1w"] if tool is LIGHT else ["U1"]
    with runner.booted(kernel, clock, say) as guest:
        results = [
            runner.run(
                name,
                guest,
                tool,
                ["all"],
                COUNTED_REPEATS if guest.wired else REPEATS,
                SECONDS,
                pps or runner.EXPERIMENTS[name].offered(guest),
                say,
            )
            for name in names
        ]
    for one in results:
        print(f"\n{result.table(one)}")
        result.write(directory / f"{one['experiment']}.json", one)
    for one in results:
        print(f"\n{chart.text(one)}")
    pictures = [directory / f"packetflow.{kind}" for kind in ("png", "svg")]
    chart.picture(results, pictures)
    print("\n" + "\n".join(f"picture: {path}" for path in pictures))
