# SPDX-License-Identifier: GPL-2.0-only
"""TCP and UDP beside each other.

M1: one TCP receiver of nice 0 that takes PACKETS messages while three receivers of nice 10
are flooded with datagrams: how long it takes, also without the floods ("alone").
M2: one UDP receiver of nice 0 that is sent more than it gets, beside three TCP streams to
receivers of nice 10, which take whatever they can: how much it receives.

A message is one of T1's. The senders of both kinds have a CPU each. A stream loses
nothing; the accounts are of the datagrams, but what was lost in front of the protocol stack may
have been a stream's.

JSON, every list of receivers beginning with the one of nice 0:

    experiment, kernel, version, clock, cpus, dilation, date
    nices             [receiver]
    pps               datagrams a second to each that is flooded
    noise             the spread (maximum - minimum) over all runs of both stock arms
    alone             seconds without the floods, on stock (M1)
    arms              by name, each with
      seconds                [repeat], until the first had its messages (M1)
      offered_pps            [repeat][UDP receiver], and
      received_pps           likewise; in M1 over all of the flood
      idle                   [repeat], share of the guest's CPUs
      retransmitted          [repeat], segments that were sent again
      accounts               [repeat], see result.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments import counters, runner
from experiments.arms import OFF, Arm, arms
from experiments.measure import (
    Closing,
    Lost,
    account,
    await_quiet,
    closing,
    cpu_time,
    lost,
    rates,
)
from experiments.result import Json, closing_json, columns, heading, largest_gap, spread, subject
from rig.guest import Guest
from rig.streams import BulkReceiver, StreamReceiver, Streams, send_streams
from rig.traffic import LIGHT, Flood, Flow, Received, Receiver, Sent, sender

SIZE = 256
FIRST, OTHERS = 5000, (5001, 5002, 5003)
LOW = 10  # the others' nice level
PACKETS = 100_000
FLOOD_SECONDS = 60.0  # and no longer, should the stream never end
WARM_UP = 0.5
SECONDS = 6.0
ARMS = "stock,filter,sched,both,all"


@dataclass(frozen=True)
class Experiment:
    about: str
    pps: float


EXPERIMENTS = {
    "M1": Experiment("a TCP receiver of nice 0 beside floods of datagrams to nice 10", 18_000),
    "M2": Experiment("a UDP receiver of nice 0 beside TCP streams to nice 10", 18_000),
}


@dataclass(frozen=True)
class Run:
    """One arm, once."""

    offered_pps: list[float]
    received_pps: list[float]
    closing: Closing
    idle: float
    retransmitted: int
    seconds: float | None = None


def stream_beside_floods(guest: Guest, arm: Arm, pps: float) -> Run:
    """M1, once; without a rate there are no floods."""
    with arm(guest, (FIRST, *OTHERS)):
        first = StreamReceiver(guest, FIRST, 0, PACKETS, SIZE)
        others = [LIGHT.receiver(guest, port, nice=LOW) for port in OTHERS]
        arm.started(guest, [first.process.pid, *(one.process.pid for one in others)])
        before = lost(guest)
        flows = [Flow(port, pps) for port in OTHERS] if pps else []
        flood = Flood(flows, SIZE, FLOOD_SECONDS, sender(guest)) if flows else None
        guest.run(f"sleep {WARM_UP * guest.dilation}")
        cpu = cpu_time(guest)
        again = send_streams([FIRST], PACKETS, SIZE, sender(guest, apart=True))
        idle = counters.idle_share(cpu, cpu_time(guest))
        sent = flood.stop() if flood else Sent({port: 0 for port in OTHERS}, WARM_UP)
        got = first.finish()
        found = datagrams(guest, arm, OTHERS, sent, others, before)
    return Run(
        [count / sent.seconds for count in sent.packets.values()],
        [one.packets / sent.seconds for one in found.received],
        found.closing,
        idle,
        again,
        (got.end_ns - got.first_ns) / 1e9,
    )


def flood_beside_streams(guest: Guest, arm: Arm, pps: float, seconds: float) -> Run:
    """M2, once."""
    with arm(guest, (FIRST, *OTHERS)):
        first = LIGHT.receiver(guest, FIRST)
        others = [BulkReceiver(guest, port, LOW, 0) for port in OTHERS]
        arm.started(guest, [first.process.pid, *(one.process.pid for one in others)])
        before, cpu = lost(guest), cpu_time(guest)
        streams = Streams(OTHERS, 3 * WARM_UP + seconds, sender(guest, apart=True))
        flood = Flood([Flow(FIRST, pps)], SIZE, WARM_UP + seconds, sender(guest))
        sent = flood.end()
        idle = counters.idle_share(cpu, cpu_time(guest))
        again = streams.end()
        found = datagrams(guest, arm, [FIRST], sent, [first], before)
        for one in others:
            one.finish()
    offered = [count / sent.seconds for count in sent.packets.values()]
    got = rates(found.received, seconds, WARM_UP / 2)
    return Run(offered, got, found.closing, idle, again)


@dataclass(frozen=True)
class Datagrams:
    """What became of those that were sent."""

    received: list[Received]
    closing: Closing


def datagrams(
    guest: Guest,
    arm: Arm,
    ports: Sequence[int],
    sent: Sent,
    receivers: Sequence[Receiver],
    before: Lost,
) -> Datagrams:
    """To be called when all is sent; ends the receivers."""
    await_quiet(guest, ports)
    early = arm.early(guest, ports)
    after = lost(guest)
    received = [one.finish() for one in receivers]
    accounts = account(
        [sent.packets[port] for port in ports],
        received,
        [0.0] * len(ports),
        [early[port] for port in ports],
        arm.counted_by_socket,
    )
    return Datagrams(received, closing(sent.seconds, accounts, before, after, {}))


def run(
    experiment: str,
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    say: Callable[[str], None],
) -> Json:
    """Run every arm so often, and give the result."""
    pps, alone = EXPERIMENTS[experiment].pps, None
    guest.spare_sender()

    def measured(arm: Arm) -> Run:
        if experiment == "M1":
            return stream_beside_floods(guest, arm, pps)
        return flood_beside_streams(guest, arm, pps, seconds)

    if experiment == "M1":
        alone = stream_beside_floods(guest, Arm("stock"), 0).seconds
        say(f"M1: alone it takes {alone:.3f} s")
    runs = runner.interleaved(arms(names), repeats, measured, told, say)
    return result_json(experiment, guest, alone, runs)


def told(one: Run) -> str:
    got = "/".join(f"{pps / 1e3:.1f}" for pps in one.received_pps)
    got += f" of {sum(one.offered_pps) / max(len(one.offered_pps), 1) / 1e3:.1f} kpps"
    return got if one.seconds is None else f"{one.seconds:.3f} s, {got}"


def result_json(
    experiment: str, guest: Guest, alone: float | None, runs: Mapping[str, Sequence[Run]]
) -> Json:
    found = {name: arm_json(done) for name, done in runs.items()}
    stock = [value for name in OFF for value in figures(found[name])]
    return {
        **heading(experiment, guest),
        "nices": [0] + [LOW] * len(OTHERS),
        "pps": EXPERIMENTS[experiment].pps,
        "noise": max(stock) - min(stock),
        **({"alone": round(alone, 4)} if alone is not None else {}),
        "arms": found,
    }


def arm_json(runs: Sequence[Run]) -> Json:
    """One arm's runs."""
    seconds = [round(run.seconds, 4) for run in runs if run.seconds is not None]
    return {
        **({"seconds": seconds} if seconds else {}),
        "offered_pps": [[round(pps, 1) for pps in run.offered_pps] for run in runs],
        "received_pps": [[round(pps, 1) for pps in run.received_pps] for run in runs],
        "idle": [round(run.idle, 3) for run in runs],
        "retransmitted": [run.retransmitted for run in runs],
        "accounts": [closing_json(run.closing) for run in runs],
    }


def figures(arm: Json) -> list[float]:
    """What the experiment is about, by run: seconds, or else packets a second of the first."""
    return list(arm.get("seconds") or [row[0] for row in arm["received_pps"]])


def table(result: Json) -> str:
    """Medians of the repeats, spread in brackets."""
    found = result["arms"]
    timed = "alone" in result
    stock = statistics.median(value for name in OFF for value in figures(found[name]))
    flooded = result["nices"][1:] if timed else result["nices"][:1]
    heads = ["arm", *(["seconds", "to stock"] if timed else [])]
    heads += [f"nice {nice} kpps" for nice in flooded] + ([] if timed else ["to stock"])
    rows = [[*heads, "idle", "sent again", "unaccounted"]]
    for name, arm in found.items():
        values = figures(arm)
        middle = statistics.median(values)
        change = f"{middle / stock - 1:+.1%}"
        row = [name]
        if timed:
            row += [f"{middle:.3f} ({min(values):.3f}-{max(values):.3f})", change]
        row += map(spread, zip(*arm["received_pps"], strict=True))
        if not timed:
            row.append(change)
        row += [f"{statistics.median(arm['idle']):.0%}", str(max(arm["retransmitted"]))]
        rows.append([*row, f"{largest_gap(arm):+.2%}"])
    title = f"{subject(result)}: "
    if timed:
        title += f"seconds to {PACKETS} messages of {SIZE} bytes, alone {result['alone']:.3f}; "
    title += f"{result['pps'] / 1e3:g} kpps of datagrams to each flooded; "
    title += "median (minimum-maximum) of the repeats"
    unit = "s" if timed else "packets/s"
    foot = f"noise (spread of the stock arms): {result['noise']:.3f} {unit}"
    return "\n".join([title, *columns(rows), foot])
