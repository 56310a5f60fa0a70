# SPDX-License-Identifier: GPL-2.0-only
"""The demonstration: W1, U1 and C1-nat on a stock kernel, without and with PacketFlow.

Short runs: the stock kernel twice, every module that is built, the same with its drops made in
the driver if the kernel can, but for the container, and, for the web server and the receivers in
a container, what an administrator could get by hand for them. The result as a table,
as bars of text, and as a picture. The guest's clock counts its instructions, so the figures are the
same on any host, whether its hardware virtualization works or not. iperf3 does not keep up with
such a clock: by it U1 alone is run, by the host's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from experiments import chart, result, runner, services, show, sweep, web
from rig.guest import Guest
from rig.kernels import Kernel
from rig.traffic import LIGHT, Tool

REPEATS = 2
COUNTED_REPEATS = 1  # counted time repeats itself, and two stock arms show how well
SECONDS = 1.5
WEB_SECONDS = 1  # wrk takes no fractions
OURS, IN_DRIVER, BY_HAND = "all", chart.IN_DRIVER, "shed-all"
PUBLISHED_PPS = 12_000.0  # to each receiver; stock is in livelock

Say = Callable[[str], None]


def run(
    kernel: Kernel,
    tool: Tool,
    pps: float | None,
    clock: runner.Clock,
    directory: Path,
    say: Say,
) -> None:
    with runner.booted(kernel, clock, say) as guest:
        results = [flood(guest, tool, pps, say)]
        if tool is LIGHT and guest.wired:
            results.append(publish(guest, say))
            results.insert(0, ask(guest, say))
    for one in results:
        print(f"\n{show.table(one)}")
        result.write(directory / f"{one['experiment']}.json", one)
    for one in results:
        print(f"\n{chart.text(one)}")
    pictures = [directory / f"packetflow.{kind}" for kind in ("png", "svg")]
    chart.picture(results, pictures)
    print("\n" + "\n".join(f"picture: {path}" for path in pictures))


def ask(guest: Guest, say: Say) -> result.Json:
    """A web server beside floods."""
    beside_floods = [part for part in services.W1.parts if part.kept and part.floods]
    arms = [OURS, IN_DRIVER, BY_HAND]
    return web.run(guest, services.W1, arms, COUNTED_REPEATS, WEB_SECONDS, say, beside_floods)


def flood(guest: Guest, tool: Tool, pps: float | None, say: Say) -> result.Json:
    """Three receivers that are sent more than can be received."""
    repeats = COUNTED_REPEATS if guest.wired else REPEATS
    offered = pps or runner.EXPERIMENTS["U1"].offered(guest)
    arms = [OURS, IN_DRIVER] if guest.wired else [OURS]
    return runner.run("U1", guest, tool, arms, repeats, SECONDS, offered, say)


def publish(guest: Guest, say: Say) -> result.Json:
    """Three receivers in a container, at ports that the host publishes."""
    arms, rates = [OURS, BY_HAND], [PUBLISHED_PPS]
    return sweep.run("C1-nat", guest, arms, COUNTED_REPEATS, SECONDS, rates, say)
