# SPDX-License-Identifier: GPL-2.0-only
"""V1: four receivers of nice 0 that have shares of the CPU, offered more and more.

Each is in a control group of its own (version 2), of equal weights, or the first of WEIGHT to 1
of each other. The packets are small, and each costs work: so much that one receiver alone takes
SATURATION of them. That is offered to all four together, and up to MOST times as much.

In the paper (Eclipse/BSD), where receiving is done on the receiver's account, nothing is lost
below saturation; beyond, shares are kept, and the sum is 81 percent of its best with equal ones,
89 with the others, of which the first then has 91.

JSON, every list of receivers having the favoured one first:

    experiment, kernel, version, clock, cpus, dilation, date, tool
    nices             [receiver]
    work              busy loops a packet
    steps             equal weights first, and in the order of what is offered, each with
      pps               sent to each receiver
      weights           [receiver]
      arms              by name, as in result.py
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments import runner, sweep, u1
from experiments.arms import arms
from experiments.measure import Load, Run, measure
from experiments.result import Json, arm_json, columns, heading, subject
from experiments.settings import WEIGHT
from rig.guest import Guest
from rig.traffic import LIGHT

ABOUT = "four receivers with shares of the CPU, offered far more than they can take"
ARMS = "stock,filter,all"
SECONDS = 2.0
SATURATION = 10_000.0  # packets/s that one receiver takes alone
FACTORS = (0.5, 0.8, 1.5, 2.0, 3.0, 5.0)  # of that, to all together
MOST = FACTORS[-1]
COUNT = 4
# What lies beneath every arm, and the weights that it gives.
WEIGHTS = {"weights-equal": (1,) * COUNT, "weights-97": (WEIGHT,) + (1,) * (COUNT - 1)}

V1 = Load(ports=(5000, 5001, 5002, 5003), nices=(0,) * COUNT, pps=SATURATION, size=52)


@dataclass(frozen=True)
class Step:
    """One rate with some weights: every arm, so often."""

    load: Load
    weights: Sequence[int]
    runs: Mapping[str, Sequence[Run]]


def run(
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    work: int | None,
    pps: Sequence[float],
    say: Callable[[str], None],
) -> Json:
    """Run every arm so often at each rate, and give the result; the work unless it is known."""
    if work is None:
        work = u1.most_loops(guest, SATURATION, say)
    steps = []
    for beneath, weights in WEIGHTS.items():
        chosen = arms(names, (beneath,))
        for rate in pps:
            load = replace(V1, pps=rate, work=work)
            say(f"V1: {rate / 1e3:g} kpps to each, weights {told(weights)}")

            def measured(arm: runner.Arm, load: Load = load) -> Run:
                return measure(guest, arm, load, LIGHT, seconds)

            runs = runner.interleaved(chosen, repeats, measured, runner.told, say)
            steps.append(Step(load, weights, runs))
    return result_json(guest, steps)


def rates() -> list[float]:
    """To each receiver."""
    return [SATURATION * factor / COUNT for factor in FACTORS]


def told(weights: Sequence[int]) -> str:
    return "/".join(map(str, weights))


def result_json(guest: Guest, steps: Sequence[Step]) -> Json:
    return {
        **heading("V1", guest),
        "tool": LIGHT.name,
        "nices": list(V1.nices),
        "work": steps[0].load.work,
        "steps": [
            {
                "pps": step.load.pps,
                "weights": list(step.weights),
                "arms": {name: arm_json(done) for name, done in step.runs.items()},
            }
            for step in steps
        ],
    }


def total(arm: Json) -> float:
    return statistics.median(arm["sum_pps"])


def first(arm: Json) -> float:
    return statistics.median(row[0] for row in arm["received_pps"])


def by_weights(result: Json) -> Iterator[tuple[str, list[Json]]]:
    """The steps that have the same."""
    for weights, steps in itertools.groupby(result["steps"], lambda step: told(step["weights"])):
        yield weights, list(steps)


def verdicts(result: Json) -> Iterator[str]:
    """What each arm has left of its best at the most that is offered, and whose it is."""
    for weights, steps in by_weights(result):
        for name in steps[0]["arms"]:
            curve = [total(step["arms"][name]) for step in steps]
            last = steps[-1]["arms"][name]
            text = f"{weights}: {name}: with the most that is offered the sum is "
            text += f"{curve[-1] / max(curve):.0%} of its best; the first receives "
            text += f"{first(last) / last['offered_pps'][0]:.0%} of what it is sent"
            yield f"{text}, {first(last) / max(curve[-1], 1):.0%} of the sum"


def table(result: Json) -> str:
    """Every step and arm."""
    receivers = [f"kpps of {i + 1}" for i in range(len(result["nices"]))]
    rows = [["weights", "offered to each", "arm", *receivers, "sum", *sweep.heads(result)]]
    for step in result["steps"]:
        for name, arm in step["arms"].items():
            offered = f"{step['pps'] / 1e3:g} kpps"
            rows.append([told(step["weights"]), offered, name, *sweep.cells(arm)])
    title = f"{subject(result)}, {result['tool']}, {result['work']} loops a packet: "
    title += "received kpps, median (minimum-maximum) of the repeats"
    return "\n".join([title, *columns(rows), *verdicts(result)])
