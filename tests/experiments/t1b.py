# SPDX-License-Identifier: GPL-2.0-only
"""T1b: the throughput of TCP receivers of nice 0 and 10 that read in bursts, far away.

Both read all that is there and then nothing for PAUSE_MS. The way there and back takes
DELAY_MS, so how much they get is decided by the window that their buffers leave them:
the sender's own limits, congestion window and send buffer, are set beyond reach.

The delay is netem's. It stands in the guest, before the acknowledgements, where every
kernel has it and where it is in the guest's time; to a stream the round trip is one.

In the arm tcp4m buffers may grow to what pf_mm gives the first receiver, as is found in
one run at the start, or to 4 MiB without pf_mm; never to less than on stock.

JSON, every list of receivers in their order of priority:

    experiment, kernel, version, dilation, date
    nices             [receiver]
    delay_ms, pause_ms
    tcp4m_bytes       the largest buffer of the arm tcp4m, where that is more than stock's
    noise             the largest spread (maximum - minimum) of any receiver's throughput
                      over all repeats of both stock arms
    arms              by name, each with
      bytes_per_second    [repeat][receiver], in the measured period
      rcvbuf_bytes        [repeat][receiver], the buffer's largest size
      granted_bytes_peak  [repeat], by pf_mm; this and the next 0 without it
      budget_bytes        [repeat]
      idle                [repeat], share of the guest's CPUs over the sending
      retransmitted       [repeat], segments that were sent again
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from experiments import counters, runner
from experiments.arms import Arm, arms
from experiments.measure import cpu_time, rates
from experiments.mm import Granted
from experiments.result import Json, columns, heading, noise, subject
from experiments.settings import FOUR_MIB, TcpBuffers
from experiments.t1 import stock_rows
from rig.guest import Guest
from rig.streams import BulkReceiver, send_bulk, unlimited
from rig.traffic import sender

PORTS = (5000, 5001)
NICES = (0, 10)
DELAY_MS = 20
PAUSE_MS = 50
QUEUE = 100_000  # packets that may be under way
WARM_UP = 1.0  # until the windows have grown
SECONDS = 4.0
ARMS = "stock,mm,all,tcp4m"
ABOUT = "throughput of TCP receivers that read in bursts, over a link with delay"
MB = 1e6


@dataclass(frozen=True)
class Run:
    """One arm, once."""

    throughput: list[float]  # bytes a second
    rcvbuf: list[int]
    granted: Granted
    idle: float
    retransmitted: int


@contextmanager
def delayed(guest: Guest) -> Iterator[None]:
    """What the guest sends leaves it late."""
    guest.run("modprobe sch_netem")
    guest.run(f"tc qdisc replace dev eth0 root netem delay {DELAY_MS}ms limit {QUEUE}")
    try:
        yield
    finally:
        guest.run("tc qdisc delete dev eth0 root")


def measure(guest: Guest, arm: Arm, seconds: float) -> Run:
    """Send the streams once in an arm; the guest is left as it was."""
    with arm(guest, PORTS):
        receivers = [
            BulkReceiver(guest, port, nice, PAUSE_MS)
            for port, nice in zip(PORTS, NICES, strict=True)
        ]
        arm.started(guest, [receiver.process.pid for receiver in receivers])
        cpu = cpu_time(guest)
        retransmitted = send_bulk(PORTS, WARM_UP + seconds, sender(guest))
        idle = counters.idle_share(cpu, cpu_time(guest))
        granted = arm.granted(guest) or Granted()
        received = [receiver.finish() for receiver in receivers]
    return Run(
        rates(received, seconds, WARM_UP),
        [one.rcvbuf or 0 for one in received],
        granted,
        idle,
        retransmitted,
    )


def size_for(chosen: Sequence[Arm], most: int) -> None:
    """Have the arms that raise the buffers by hand raise them to that."""
    for arm in chosen:
        for setting in arm.settings:
            if isinstance(setting, TcpBuffers):
                setting.most = most


def run(
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    say: Callable[[str], None],
) -> Json:
    """Run every arm so often, and give the result."""
    chosen = arms(names)
    most = FOUR_MIB
    with unlimited(sender(guest)), delayed(guest):
        if "pf_mm" in guest.kernel.modules:
            most = measure(guest, Arm("mm"), seconds).rcvbuf[0]
            say(f"with pf_mm the first receiver's buffer grows to {most / 1024:.0f} KiB")
        size_for(chosen, most)
        runs = runner.interleaved(
            chosen, repeats, lambda arm: measure(guest, arm, seconds), told, say
        )
    return result_json(guest, most, runs)


def told(one: Run) -> str:
    return "/".join(f"{value / MB:.1f}" for value in one.throughput) + " MB/s"


def result_json(guest: Guest, most: int, runs: Mapping[str, Sequence[Run]]) -> Json:
    found = {name: arm_json(done) for name, done in runs.items()}
    return {
        **heading("T1b", guest),
        "nices": list(NICES),
        "delay_ms": DELAY_MS,
        "pause_ms": PAUSE_MS,
        "tcp4m_bytes": most,
        "noise": noise(found, "bytes_per_second"),
        "arms": found,
    }


def arm_json(runs: Sequence[Run]) -> Json:
    """One arm's runs."""
    return {
        "bytes_per_second": [[round(value) for value in run.throughput] for run in runs],
        "rcvbuf_bytes": [run.rcvbuf for run in runs],
        "granted_bytes_peak": [run.granted.peak for run in runs],
        "budget_bytes": [run.granted.budget for run in runs],
        "idle": [round(run.idle, 3) for run in runs],
        "retransmitted": [run.retransmitted for run in runs],
    }


def table(result: Json) -> str:
    """The result for people: medians of the repeats, spread in brackets."""
    found = result["arms"]
    heads = ["arm"]
    for nice in result["nices"]:
        heads += [f"nice {nice}", "to stock", "buffer KiB"]
    rows = [[*heads, "granted KiB", "idle", "sent again"]]
    for name, arm in found.items():
        stock = list(zip(*stock_rows(name, found, "bytes_per_second"), strict=True))
        row = [name]
        sizes = list(zip(*arm["rcvbuf_bytes"], strict=True))
        for i, values in enumerate(zip(*arm["bytes_per_second"], strict=True)):
            low, middle, high = min(values), statistics.median(values), max(values)
            row.append(f"{middle / MB:.2f} ({low / MB:.2f}-{high / MB:.2f})")
            row.append(f"{middle / statistics.median(stock[i]) - 1:+.1%}")
            row.append(f"{statistics.median(sizes[i]) / 1024:.0f}")
        row += [
            f"{max(arm['granted_bytes_peak']) / 1024:.0f}",
            f"{statistics.median(arm['idle']):.0%}",
            str(max(arm["retransmitted"])),
        ]
        rows.append(row)
    title = f"{subject(result)}: MB/s by TCP, {result['delay_ms']} ms there and "
    title += f"back, {result['pause_ms']} ms between bursts of reading, median (minimum-maximum)"
    foot = f"noise (spread of the stock arms): {result['noise'] / MB:.2f} MB/s; "
    foot += f"tcp4m: tcp_rmem at least {result['tcp4m_bytes'] / 1024:.0f} KiB"
    return "\n".join([title, *columns(rows), foot])
