# SPDX-License-Identifier: GPL-2.0-only
"""N1 and N3: datagrams through a router of one CPU, from one card to the other.

N1: one flow of all that 100 Mbit/s carry, held to one rate after another. N3: more than the router
can take of packets of one size after another, of a flow whose rate is never reached.

QEMU counts what the kernel executes, on all CPUs; exact, not sampled. What the sender takes
of that is known: it is had once with frames that are for no card, so that the router has nothing
to do. And what the router sends is for no card either, so nobody else has work by it.

JSON:

    experiment, kernel, version, clock, cpus, dilation, date
    pps             that are to be sent; of packets of 1500 bytes in N1
    steps           in their order, each with
      rate            bits of IP packets a second, in N1; or
      size            bytes of an IP packet, in N3
      sender          the kernel's instructions for a packet that nobody takes
      arms            by name, those without limits in N1's first step only, each with a list of
                      the repeats:
        reached_bps     bits of IP packets a second that left the router
        reached_pps     packets
        arrived_pps     at the router
        sent_pps
        instructions    the router's, for a packet that was sent
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments import runner
from experiments.arms import OFF
from experiments.limits import ETHERNET, LATE, QUEUEING, UNBOUND, Limited, Limiting
from experiments.profile import USER_END
from experiments.result import Json, columns, heading, subject
from rig.guest import Guest
from rig.link import FAR_NOBODY4, GUEST_MAC, INSIDE, INSIDE_DEVICE, NOBODY_MAC, OUT_DEVICE
from rig.programs import programs
from rig.traffic import FIRST, Flood, Inside
from rig.traffic import Flow as Sending

PORT = 5000
WARM_UP, TAIL = 0.5, 0.2  # seconds, before what is measured and after it
DEVICES = ("eth0", OUT_DEVICE, f"{INSIDE}:{INSIDE_DEVICE}")
HEADERS = 28  # of IPv4 and UDP
LARGEST = 1500
# What Ethernet of 100 Mbit/s carries of the largest: with preamble, checksum and gap.
FULL_PPS = 100e6 / ((LARGEST + ETHERNET + 24) * 8)
MORE_PPS = 60_000.0  # than the router can take
MBITS = (1, 5, 10, 15, 20, 25, 30, 35)
SIZES = (64, 128, 256, 512, 1024, 1500)
# The paper's shares of the CPU, IMQ's and its own, percent, at these rates.
PAPERS: Sequence[tuple[float, float]] = (
    (15.8, 1.7),
    (14.7, 1.9),
    (14.3, 2.3),
    (18.8, 2.9),
    (15.6, 3.2),
    (17.9, 3.4),
    (17.6, 4.1),
    (16.9, 4.8),
)
RATIOS = {mbit * 10**6: ours / imq for mbit, (imq, ours) in zip(MBITS, PAPERS, strict=True)}


@dataclass(frozen=True)
class Experiment:
    about: str
    arms: str
    seconds: float
    pps: float


EXPERIMENTS = {
    "N1": Experiment(
        "a router holds a flow to eight rates: is it reached, and at what price",
        "flow,tc-police,ifb-htb,ifb-fq_codel,ifb-cake,egress-htb,nft-forward",
        2.0,
        FULL_PPS,
    ),
    "N3": Experiment(
        "what a router forwards of packets of 64 to 1500 bytes, of a flow without bounds",
        "flow,tc-police,ifb-htb,ifb-fq_codel,ifb-cake",
        1.0,
        MORE_PPS,
    ),
}


@dataclass(frozen=True)
class Run:
    """One arm, once."""

    reached_bps: float
    reached_pps: float
    arrived_pps: float
    sent_pps: float
    instructions: float  # of the kernel, for a packet that was sent


@dataclass(frozen=True)
class Step:
    """One rate, or one size: every arm, so often."""

    at: int
    sender: float  # the kernel's instructions for a packet that nobody takes
    runs: Mapping[str, Sequence[Run]]


Sample = tuple[int, list[list[int]]]  # ns, and each device's traffic


class Samples:
    """After a warm-up as many as are wanted, and one before them, in that time."""

    def __init__(self, guest: Guest, devices: Sequence[str], seconds: float, number: int) -> None:
        command = [str(programs() / "dev_samples"), "-b", str(round(WARM_UP * 1000))]
        command += ["-n", str(number), "-S", str(round(seconds * 1000 / number)), *devices]
        self._patience = 60 + seconds
        self._process = guest.spawn(["taskset", "-c", str(guest.busy), *command], nice=FIRST)

    def end(self) -> list[Sample]:
        """Wait for the last one."""
        done = self._process.wait(self._patience)
        if done.rc:
            raise RuntimeError(f"dev_samples: {done.err}")
        return [(ns, of) for ns, *of in json.loads(done.out)]


def measure(
    guest: Guest, flow: Limited, arm: Limiting, pps: float, seconds: float, to: str = GUEST_MAC
) -> Run:
    """Send so much of the flow through the router in this arm."""
    by = Inside(guest, device=f"{INSIDE_DEVICE},{to}")
    sending, lasts = [Sending(flow.port, pps)], WARM_UP + seconds + TAIL
    with arm(guest, [flow.port]):
        before = executed(guest)
        flood = Flood(sending, flow.size - HEADERS, lasts, by, at=FAR_NOBODY4)
        first, last = Samples(guest, DEVICES, seconds, 1).end()
        sent = flood.end().packets[flow.port]
        instructions = executed(guest) - before
    return told(first, last, instructions / sent)


def executed(guest: Guest) -> int:
    """Instructions of the kernel so far."""
    return sum(count for at, count in guest.instructions().items() if at >= USER_END)


def told(before: Sample, after: Sample, instructions: float) -> Run:
    """By two samples of DEVICES."""
    seconds = (after[0] - before[0]) / 1e9
    own, out, source = (
        [(b - a) / seconds for a, b in zip(*both, strict=True)]
        for both in zip(before[1], after[1], strict=True)
    )
    return Run((out[3] - ETHERNET * out[2]) * 8, out[2], own[0], source[2], instructions)


def flow_of(name: str, at: int) -> Limited:
    """The flow of a step."""
    rate, size = (at, LARGEST) if name == "N1" else (UNBOUND, at)
    return Limited("one", "udp", PORT, rate, size, "eth0", OUT_DEVICE)


def run(
    name: str,
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    at_each: Sequence[int],
    say: Callable[[str], None],
) -> Json:
    """Every arm so often at each rate (Mbit/s), or size (bytes)."""
    pps = EXPERIMENTS[name].pps
    found: list[Step] = []
    for at in [mbit * 10**6 for mbit in at_each] if name == "N1" else at_each:
        flow = flow_of(name, at)
        say(f"{name}: {called(name, at)}")
        if found and name == "N1":  # what is not limited, and the sender, have been seen
            alone, chosen = found[0].sender, [Limiting(one, [flow]) for one in names]
        else:
            stock = Limiting("stock", [flow])
            alone = measure(guest, flow, stock, pps, seconds, NOBODY_MAC).instructions
            say(f"{alone:.0f} instructions for a packet that nobody takes")
            chosen = [Limiting(one, [flow]) for one in dict.fromkeys((*OFF, *names))]

        def measured(arm: runner.Arm, flow: Limited = flow) -> Run:
            assert isinstance(arm, Limiting)
            return measure(guest, flow, arm, pps, seconds)

        def one(done: Run, alone: float = alone) -> str:
            instructions = done.instructions - alone
            return f"{done.reached_bps / 1e6:.3f} Mbit/s, {instructions:.0f} instructions a packet"

        found.append(Step(at, alone, runner.interleaved(chosen, repeats, measured, one, say)))
    return result_json(name, guest, pps, found)


def called(name: str, at: int) -> str:
    return f"{at / 1e6:g} Mbit/s" if name == "N1" else f"{at} bytes"


def result_json(name: str, guest: Guest, pps: float, steps: Sequence[Step]) -> Json:
    return {
        **heading(name, guest),
        "pps": round(pps),
        "steps": [
            {
                "rate" if name == "N1" else "size": step.at,
                "sender": round(step.sender, 1),
                "arms": {arm: arm_json(runs, step.sender) for arm, runs in step.runs.items()},
            }
            for step in steps
        ],
    }


def arm_json(runs: Sequence[Run], sender: float) -> Json:
    return {
        "reached_bps": [round(one.reached_bps) for one in runs],
        "reached_pps": [round(one.reached_pps, 1) for one in runs],
        "arrived_pps": [round(one.arrived_pps, 1) for one in runs],
        "sent_pps": [round(one.sent_pps, 1) for one in runs],
        "instructions": [round(one.instructions - sender, 1) for one in runs],
    }


def price(arm: Json) -> float:
    """Instructions for a packet that was sent."""
    return statistics.median(arm["instructions"])


def spread(values: Sequence[float]) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.0f} ({low:.0f}-{high:.0f})"


def table(result: Json) -> str:
    """Every step and arm."""
    limited = result["experiment"] == "N1"
    heads = ["rate" if limited else "size", "arm", "Mbit/s", *(["of the rate"] if limited else [])]
    heads += ["kpps", "instructions a packet", "of stock's", "lost at the card"]
    rows = [heads]
    for step in result["steps"]:
        bare = step["arms"].get("stock") or result["steps"][0]["arms"]["stock"]
        for name, arm in step["arms"].items():
            reached = statistics.median(arm["reached_bps"])
            of_rate = []
            if limited:
                of_rate = ["" if name in OFF else f"{reached / step['rate'] - 1:+.2%}"]
            lost = 1 - sum(arm["arrived_pps"]) / sum(arm["sent_pps"])
            rows.append(
                [
                    called("N1", step["rate"]) if limited else called("N3", step["size"]),
                    name,
                    f"{reached / 1e6:.3f}",
                    *of_rate,
                    f"{statistics.median(arm['reached_pps']) / 1e3:.2f}",
                    spread(arm["instructions"]),
                    f"{price(arm) / price(bare):.1%}",
                    f"{max(lost, 0):.1%}",
                ]
            )
    title = f"{subject(result)}: through a router, {result['pps'] / 1e3:g} kpps sent; median "
    title += "(minimum-maximum) of the repeats"
    verdict = held_to(result) if limited else without_bounds(result)
    return "\n".join([title, *columns(rows), *verdict])


def held_to(result: Json) -> Iterator[str]:
    """N1: whether each rate is reached, and flow's price beside the others'."""
    for step in result["steps"]:
        arms, rate = step["arms"], step["rate"]
        cost = {name: price(arm) for name, arm in arms.items()}
        off = {
            name: statistics.median(arm["reached_bps"]) / rate - 1
            for name, arm in arms.items()
            if name not in OFF
        }
        astray = [f"{name} {off[name]:+.1%}" for name in off if abs(off[name]) > 0.01]
        said = [f"not within 1%: {', '.join(astray)}" if astray else "all within 1%"]
        if "flow" in cost:
            said += [f"flow takes {text}" for text in compared(cost, rate)]
        yield f"{called('N1', rate)}: {'; '.join(said)}"


def compared(cost: Mapping[str, float], rate: int) -> Iterator[str]:
    """Flow's price beside others' of each kind."""
    queueing = {name: cost[name] for name in QUEUEING if name in cost}
    if queueing:
        least = min(queueing, key=lambda name: queueing[name])
        yield f"{cost['flow'] / queueing[least]:.2f} of {least}'s, the cheapest with a queue"
    if "tc-police" in cost:
        yield f"{cost['flow'] / cost['tc-police']:.2f} of tc-police's"
    late = [f"{cost['flow'] / cost[name]:.2f} of {name}'s" for name in LATE if name in cost]
    if late:
        paper = f" (the paper: {RATIOS[rate]:.2f} of IMQ's)" if rate in RATIOS else ""
        yield f"{', '.join(late)}{paper}"


def without_bounds(result: Json) -> Iterator[str]:
    """N3: flow beside bare Linux and the detours."""
    for name in ("stock", *QUEUEING):
        ratios = [
            statistics.median(step["arms"]["flow"]["reached_pps"])
            / statistics.median(step["arms"][name]["reached_pps"])
            for step in result["steps"]
            if {"flow", name} <= set(step["arms"])
        ]
        if ratios:
            yield f"flow: {min(ratios):.1%} to {max(ratios):.1%} of what {name} forwards"
