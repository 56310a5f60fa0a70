# SPDX-License-Identifier: GPL-2.0-only
"""T1: the time that three TCP receivers of nice 0, 5 and 10 take for 100 000 packets each.

T1c: the same beside COMPETITORS tasks of nice 0 that only compute.

A packet is a message of SIZE bytes, one receive call, of a stream that TCP cuts into
segments as it likes. It must have been so in the paper: 100 000 packets in 0.43 s by each
of three receivers are fifteen times what the same machine received as datagrams. All
senders send exactly so many messages, as fast as TCP lets them, and start together; the
clock starts for all receivers when the first of them has its first message.

With T1c and autogroup off, nice 10 takes ten seconds of the guest for 100 000 packets
beside tasks of nice 0. --packets 25000 shortens that, at the same packets a second.

JSON, every list of receivers in their order of priority:

    experiment, kernel, version, dilation, date
    nices             [receiver]
    packets, bytes    for each receiver; of each packet
    competitors       tasks that only compute, beside the receivers
    noise             the largest spread (maximum - minimum) of any receiver's seconds over
                      all repeats of both stock arms, joined with the same settings
    arms              by name, each with
      seconds                [repeat][receiver], until it had its packets
      idle                   [repeat], share of the guest's CPUs until all had
      competitors_cpu_share  [repeat], likewise what the competitors got together
      retransmitted          [repeat], segments that were sent again
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments import counters, runner
from experiments.arms import OFF, Arm, arms
from experiments.competitors import Competitors
from experiments.measure import cpu_time
from experiments.result import Json, columns, heading, noise, subject
from rig.guest import Guest
from rig.streams import StreamReceived, StreamReceiver, send_streams
from rig.traffic import sender

PORTS = (5000, 5001, 5002)
NICES = (0, 5, 10)
PACKETS = 100_000
SIZE = 256
ARMS = "stock,rr-by-hand"
COMPETITORS = {"T1": 0, "T1c": 4}
EXPERIMENTS = {
    "T1": "time to receive so many packets by TCP, receivers of nice 0, 5 and 10",
    "T1c": "the same beside tasks that only compute",
}


@dataclass(frozen=True)
class Run:
    """One arm, once."""

    seconds: list[float]
    idle: float
    competitors: float
    retransmitted: int


def measure(guest: Guest, arm: Arm, count: int, packets: int) -> Run:
    """Send the streams once in an arm; the guest is left as it was."""
    with arm(guest, PORTS):
        receivers = [
            StreamReceiver(guest, port, nice, packets, SIZE)
            for port, nice in zip(PORTS, NICES, strict=True)
        ]
        arm.started(guest, [receiver.process.pid for receiver in receivers])
        competitors = Competitors(guest, count)
        cpu, spent = cpu_time(guest), competitors.spent()
        retransmitted = send_streams(PORTS, packets, SIZE, sender(guest))
        idle = counters.idle_share(cpu, cpu_time(guest))
        share = counters.share(spent, competitors.spent())
        competitors.end()
        received = [receiver.finish() for receiver in receivers]
    return Run(seconds(received), idle, share, retransmitted)


def seconds(received: Sequence[StreamReceived]) -> list[float]:
    """How long each of them took, from the first packet of any."""
    begin = min(one.first_ns for one in received)
    return [(one.end_ns - begin) / 1e9 for one in received]


def run(
    experiment: str,
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    packets: int,
    say: Callable[[str], None],
) -> Json:
    """Run every arm so often, and give the result."""
    count = COMPETITORS[experiment]
    runs = runner.interleaved(
        arms(names), repeats, lambda arm: measure(guest, arm, count, packets), told, say
    )
    return result_json(experiment, guest, packets, runs)


def told(one: Run) -> str:
    return "/".join(f"{value:.3f}" for value in one.seconds) + " s"


def result_json(
    experiment: str, guest: Guest, packets: int, runs: Mapping[str, Sequence[Run]]
) -> Json:
    found = {name: arm_json(done) for name, done in runs.items()}
    return {
        **heading(experiment, guest),
        "nices": list(NICES),
        "packets": packets,
        "bytes": SIZE,
        "competitors": COMPETITORS[experiment],
        "noise": noise(found, "seconds"),
        "arms": found,
    }


def arm_json(runs: Sequence[Run]) -> Json:
    """One arm's runs."""
    return {
        "seconds": [[round(value, 4) for value in run.seconds] for run in runs],
        "idle": [round(run.idle, 3) for run in runs],
        "competitors_cpu_share": [round(run.competitors, 3) for run in runs],
        "retransmitted": [run.retransmitted for run in runs],
    }


def table(result: Json) -> str:
    """The result for people: medians of the repeats, spread in brackets."""
    found = result["arms"]
    heads = ["arm"]
    for nice in result["nices"]:
        heads += [f"nice {nice}", "to stock"]
    rows = [[*heads, "competitors", "idle", "sent again"]]
    for name, arm in found.items():
        stock = list(zip(*stock_rows(name, found, "seconds"), strict=True))
        row = [name]
        for i, values in enumerate(zip(*arm["seconds"], strict=True)):
            middle = statistics.median(values)
            row.append(f"{middle:.3f} ({min(values):.3f}-{max(values):.3f})")
            row.append(f"{middle / statistics.median(stock[i]) - 1:+.1%}")
        row += [
            f"{statistics.median(arm['competitors_cpu_share']):.0%}",
            f"{statistics.median(arm['idle']):.0%}",
            str(max(arm["retransmitted"])),
        ]
        rows.append(row)
    title = f"{subject(result)}: seconds to {result['packets']} "
    title += f"packets of {result['bytes']} bytes, median (minimum-maximum) of the repeats"
    foot = f"noise (spread of the stock arms): {result['noise']:.3f} s"
    return "\n".join([title, *columns(rows), foot])


def stock_rows(name: str, found: Mapping[str, Json], figure: str) -> list[list[float]]:
    """The figure in the runs of both stock arms, with this one's further settings if possible."""
    further = name.split("+")[1:]
    joined = ["+".join([one, *further]) for one in OFF]
    names = [one for one in joined if one in found] or OFF
    return [row for one in names for row in found[one][figure]]
