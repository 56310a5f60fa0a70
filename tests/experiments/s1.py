# SPDX-License-Identifier: GPL-2.0-only
"""S1: Poisson arrivals at one receiver whose work on a packet grows step by step.

The rate is the same at every step, and so are the moments of the arrivals. A step's
DEMAND is what a packet takes, as a share of what it may take if all are to be received:
from little, where only a burst of arrivals fills the buffer, to more than there is,
where any buffer fills in time. What a packet takes besides its work, in loops of that
work, follows from the most work with which all are received at the rate, and at twice
the rate, as in U1w.

A buffer overflowed in a run if a packet found it full: dropped at the socket, or early
since it would have been. The budget lasted if pf_mm had not granted all of it.

JSON, every list of receivers having one:

    experiment, kernel, version, dilation, date, tool
    nices             [receiver]
    pps               sent
    steps             in the order of demand, each with
      demand            what a packet takes, of what it may
      work              busy loops a packet
      arms              by name, as in result.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments import h1, runner, u1
from experiments.arms import arms
from experiments.measure import Load, Run, measure
from experiments.result import Json, arm_json, columns, heading, subject
from rig.guest import Guest
from rig.traffic import LIGHT

DEMANDS = (0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.5)
ARMS = "stock,mm,all"
SECONDS = 2.0
ABOUT = "Poisson arrivals at a receiver whose work on a packet grows"

S1 = Load(ports=(5000,), nices=(0,), pps=h1.OFFERED_PPS, poisson=True, watched=True)


@dataclass(frozen=True)
class Step:
    """One amount of work: every arm, so often."""

    demand: float
    work: int
    runs: Mapping[str, Sequence[Run]]


def run(
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    pps: float,
    say: Callable[[str], None],
) -> Json:
    """Run every arm at every step so often, and give the result."""
    most = u1.most_loops(guest, pps, say), u1.most_loops(guest, 2 * pps, say)
    steps = []
    for demand in DEMANDS:
        load = replace(S1, pps=pps, work=work(demand, *most))
        say(f"S1: {load.work} loops a packet, a demand of {demand:.0%}")
        steps.append(Step(demand, load.work, runs(guest, load, names, repeats, seconds, say)))
    return result_json(guest, pps, steps)


def runs(
    guest: Guest,
    load: Load,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    say: Callable[[str], None],
) -> Mapping[str, Sequence[Run]]:
    """One step."""
    return runner.interleaved(
        arms(names),
        repeats,
        lambda arm: measure(guest, arm, load, LIGHT, seconds),
        runner.told,
        say,
    )


def work(demand: float, most: int, most_at_twice: int) -> int:
    """The loops for that demand, by the most at the rate and at twice the rate.

    Twice the rate leaves half as much for a packet, of which the same is no work.
    """
    besides = max(0, most - 2 * most_at_twice)
    return max(0, round(demand * (besides + most) - besides))


def result_json(guest: Guest, pps: float, steps: Sequence[Step]) -> Json:
    return {
        **heading("S1", guest),
        "tool": LIGHT.name,
        "nices": list(S1.nices),
        "pps": pps,
        "steps": [
            {
                "demand": step.demand,
                "work": step.work,
                "arms": {name: arm_json(done) for name, done in step.runs.items()},
            }
            for step in steps
        ],
    }


def full_pps(arm: Json) -> list[float]:
    """By run, packets a second that found the buffer full."""
    return [
        drops[0] + early[0].get("full", 0) / one["seconds"]
        for drops, early, one in zip(
            arm["socket_drops_pps"], arm["early_by_reason"], arm["accounts"], strict=True
        )
    ]


def lasted(arm: Json) -> list[bool]:
    """By run, whether there was a budget of which something was left."""
    return [
        peak < budget
        for peak, budget in zip(arm["granted_bytes_peak"], arm["budget_bytes"], strict=True)
    ]


def verdict(result: Json, name: str) -> str:
    """Whether an arm's buffer overflowed, and whether while the budget lasted."""
    runs = [
        (step["demand"], full > 0, left)
        for step in result["steps"]
        for full, left in zip(full_pps(step["arms"][name]), lasted(step["arms"][name]), strict=True)
    ]
    over = [(demand, left) for demand, overflowed, left in runs if overflowed]
    if not over:
        return f"{name}: the buffer never overflowed in {len(runs)} runs"
    text = f"{name}: the buffer overflowed in {len(over)} of {len(runs)} runs, "
    text += f"from a demand of {over[0][0]:.0%} on"
    if not any(left for _, _, left in runs):
        return text
    early = [demand for demand, left in over if left]
    while_lasting = f"in {len(early)} of them, from {early[0]:.0%} on," if early else "in none"
    return f"{text}; {while_lasting} while the budget lasted"


def per_second(values: Sequence[float]) -> str:
    """Not in thousands: one packet that is dropped is to be seen."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.1f} ({low:.1f}-{high:.1f})"


def table(result: Json) -> str:
    """Every step and arm, and for every arm the verdict."""
    heads = ["demand", "arm", "received/s", "socket drops/s", "early drops/s"]
    heads += ["buffer KiB", "queued KiB", "granted KiB", "left after KiB"]
    rows = [heads]
    for step in result["steps"]:
        for name, arm in step["arms"].items():
            rates = ("received_pps", "socket_drops_pps", "early_drops_pps")
            sizes = ("queued_bytes_peak", "granted_bytes_peak", "given_back")
            rcvbufs = [row[0] for row in arm["rcvbuf_bytes"]]
            rows.append(
                [
                    f"{step['demand']:.0%}",
                    name,
                    *(per_second([row[0] for row in arm[rate]]) for rate in rates),
                    f"{statistics.median(rcvbufs) / 1024:.0f}",
                    *(f"{max(arm[size]) / 1024:.0f}" for size in sizes),
                ]
            )
    title = f"{subject(result)}, {result['tool']}: {result['pps'] / 1e3:g} kpps sent, "
    title += "median (minimum-maximum) of the repeats; of what waited or was granted the most"
    verdicts = [verdict(result, name) for name in result["steps"][0]["arms"]]
    return "\n".join([title, *columns(rows), *verdicts])
