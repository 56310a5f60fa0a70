# SPDX-License-Identifier: GPL-2.0-only
"""What is received as more and more is offered.

P1: the receivers of U1, from what everybody takes to the depth of overload of the papers. What
the first can be given is what it is sent, or what it receives where all else is dropped.
L1: one receiver of small datagrams that works on each, so much that it takes SATURATION
of them alone; offered up to MOST times that. On a kernel that lives for interrupts the
receiver starves: with all of the CPU spent on packets that are dropped in the end,
nothing is received any more.

C1: the receivers of P1 in a container, behind a veth pair; C1-nat: behind destination NAT and a
bridge, as Docker publishes a port.

S1-5, S1-10: the receivers of P1, sent to at random moments (Poisson), behind a costly step in the
kernel: so many TICKS of rules of nftables at the card's ingress, in front of the stack.

JSON, every list of receivers in their order of priority:

    experiment, kernel, version, clock, cpus, dilation, date, tool
    nices             [receiver]
    work              busy loops a packet
    steps             in the order of what is offered, each with
      pps               sent to each receiver
      arms              by name, as in result.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from experiments import buffers, containers, runner, u1
from experiments.ages import of_repeats
from experiments.arms import OFF, arms
from experiments.measure import Load, Run, measure
from experiments.result import Json, arm_json, columns, heading, largest_gap, spread, subject
from experiments.rules import ALONE_PPS
from rig.guest import Guest
from rig.traffic import LIGHT, Light

Say = Callable[[str], None]
SECONDS = 2.0
SATURATION = float(ALONE_PPS)  # packets/s that the receiver of L1 takes alone
MOST = 4
CEILING = "shed-all"  # what the first can have by dropping
ENOUGH = 0.99  # of what it can have
WATCHED = ("queued_bytes_mean", "queued_bytes_peak")
TICKS = (5, 10)
TICK_RULES = 10  # that match nothing: some 1500 instructions
TICKS_PPS = (3e3, 5e3, 7e3, 9e3)
CONTAINED_PPS = (4e3, 8e3, 12e3, 16e3, 24e3)
CONTAINED_ARMS = f"stock,{CEILING},filter,all,threaded,nft-limit,tc-police"


@contextmanager
def costly(guest: Guest, ticks: int) -> Iterator[Light]:
    """Each packet that comes by the card costs so many ticks more."""
    hook = "type filter hook ingress devices = { eth0 } priority 0;"
    rules = "ip saddr 255.255.255.255 drop; " * (TICK_RULES * ticks)
    guest.run(["nft", f"table netdev step {{ chain step {{ {hook} {rules} }}; }}"])
    try:
        yield LIGHT
    finally:
        guest.run("nft delete table netdev step")


@dataclass(frozen=True)
class Sweep:
    """One receiver or several, and what is offered to each."""

    about: str
    load: Callable[[Guest, Say], Load]
    pps: Sequence[float]
    arms: str
    place: Callable[[Guest], AbstractContextManager[Light]] = lambda guest: nullcontext(LIGHT)


def livelock(guest: Guest, say: Say) -> Load:
    work = u1.most_loops(guest, SATURATION, say)
    return Load(ports=u1.U1.ports[:1], nices=u1.U1.nices[:1], pps=SATURATION, size=10, work=work)


EXPERIMENTS = {
    "P1": Sweep(
        "receivers of nice 0, 5 and 10 that are offered more and more",
        lambda guest, say: u1.U1,
        (4e3, 8e3, 12e3, 15e3, 18e3, 23e3),
        f"stock,{CEILING},filter,both,all",
    ),
    "C1": Sweep(
        "the same in a container behind a veth pair",
        lambda guest, say: u1.U1,
        CONTAINED_PPS,
        CONTAINED_ARMS,
        containers.routed,
    ),
    "C1-nat": Sweep(
        "the same in a container behind destination NAT and a bridge",
        lambda guest, say: u1.U1,
        CONTAINED_PPS,
        CONTAINED_ARMS,
        containers.published,
    ),
    **{
        f"S1-{ticks}": Sweep(
            f"the same, sent at random moments, behind a costly step of the kernel ({ticks} ticks)",
            lambda guest, say: replace(u1.U1, poisson=True, watched=True),
            TICKS_PPS,
            "stock,filter,sched,mm,all",
            partial(costly, ticks=ticks),
        )
        for ticks in TICKS
    },
    "L1": Sweep(
        "one working receiver that is offered far more than it can take",
        livelock,
        tuple(SATURATION * factor for factor in (0.5, 1, 1.5, 2, 3, MOST)),
        "stock,filter,all,xdp-police",
    ),
}


@dataclass(frozen=True)
class Step:
    """One rate: every arm, so often."""

    load: Load
    runs: Mapping[str, Sequence[Run]]


def run(
    experiment: str,
    guest: Guest,
    names: Sequence[str],
    repeats: int,
    seconds: float,
    rates: Sequence[float],
    say: Say,
) -> Json:
    """Run every arm at every rate so often, and give the result."""
    plan = EXPERIMENTS[experiment]
    chosen = arms(names)
    load = plan.load(guest, say)
    steps = []
    with plan.place(guest) as tool:
        for pps in rates:
            one = replace(load, pps=pps)
            say(f"{experiment}: {pps / 1e3:g} kpps to each")

            def measured(arm: runner.Arm, one: Load = one) -> Run:
                return measure(guest, arm, one, tool, seconds)

            steps.append(Step(one, runner.interleaved(chosen, repeats, measured, runner.told, say)))
    return result_json(experiment, guest, steps)


def result_json(experiment: str, guest: Guest, steps: Sequence[Step]) -> Json:
    return {
        **heading(experiment, guest),
        "tool": LIGHT.name,
        "nices": list(steps[0].load.nices),
        "work": steps[0].load.work,
        "steps": [
            {
                "pps": step.load.pps,
                "arms": {name: arm_json(done) for name, done in step.runs.items()},
            }
            for step in steps
        ],
    }


def by_stock(step: Json, figure: Callable[[Json, int], float]) -> list[float]:
    """A figure in every run of both stock arms."""
    found = [step["arms"][name] for name in OFF]
    return [figure(arm, i) for arm in found for i in range(len(arm["sum_pps"]))]


def top(arm: Json, i: int) -> float:
    return float(arm["received_pps"][i][0])


def total(arm: Json, i: int) -> float:
    return float(arm["sum_pps"][i])


def below(result: Json, name: str, figure: Callable[[Json, int], float]) -> list[str]:
    """Where the arm has a median less than the least of stock's runs, and by how much."""
    found = []
    for step in result["steps"]:
        arm = step["arms"][name]
        middle = statistics.median(figure(arm, i) for i in range(len(arm["sum_pps"])))
        stock = by_stock(step, figure)
        if middle < min(stock):
            less = 1 - middle / statistics.median(stock)
            found.append(f"at {step['pps'] / 1e3:g} kpps by {less:.1%}")
    return found


def short(result: Json, name: str) -> list[str]:
    """Where the arm gives the first too little of what it can have, and by how much."""
    found = []
    for step in result["steps"]:
        arm = step["arms"][name]
        first, most = (
            statistics.median(top(one, i) for i in range(len(one["sum_pps"])))
            for one in (arm, step["arms"][CEILING])
        )
        can = min(arm["offered_pps"][0], most)
        if first < ENOUGH * can:
            found.append(f"at {step['pps'] / 1e3:g} kpps by {1 - first / can:.1%}")
    return found


def verdicts(result: Json) -> Iterator[str]:
    """Where an arm falls under stock, or gives the first less than it can have; of one receiver,
    how much is left at the most."""
    for name in result["steps"][0]["arms"]:
        if name in (*OFF, CEILING):
            continue
        for what, figure in (("the first", top), ("the sum", total)):
            under = below(result, name, figure)
            if len(result["nices"]) > 1 or what == "the sum":
                yield f"{name}: {what} under stock {', '.join(under) or 'nowhere'}"
        if CEILING in result["steps"][0]["arms"]:
            less = ", ".join(short(result, name)) or "nowhere"
            yield f"{name}: the first under {ENOUGH:.0%} of what it can have {less}"
    if len(result["nices"]) > 1:
        return
    for name in result["steps"][0]["arms"]:
        curve = [statistics.median(step["arms"][name]["sum_pps"]) for step in result["steps"]]
        yield f"{name}: with the most that is offered {curve[-1] / max(curve):.0%} of its best"


def cells(arm: Json) -> list[str]:
    """Of a table: what an arm's receivers got, their sum, and what became of the rest."""
    lost = (one["receive_drops"] / one["seconds"] for one in arm["accounts"])
    return [
        *map(spread, zip(*arm["received_pps"], strict=True)),
        spread(arm["sum_pps"]),
        f"{statistics.median(lost):.0f}",
        f"{statistics.median(arm['idle']):.0%}",
        f"{largest_gap(arm):+.2%}",
        *(buffers.kib(arm[key]) for key in WATCHED if key in arm),
        *([of_repeats(arm["age_ms"])] if "age_ms" in arm else []),
    ]


def heads(result: Json) -> list[str]:
    """Of the columns of cells() behind the sum."""
    arms = [arm for step in result["steps"] for arm in step["arms"].values()]
    return [
        *("ring drops/s", "idle", "unaccounted"),
        *(("queued KiB", "at most") if all(WATCHED[0] in arm for arm in arms) else ()),
        *(("age ms",) if all("age_ms" in arm for arm in arms) else ()),
    ]


def table(result: Json) -> str:
    """Every step and arm."""
    nices = [f"nice {nice}" for nice in result["nices"]]
    rows = [["to be sent to each", "arm", "sent", *nices, "sum", *heads(result)]]
    for step in result["steps"]:
        for name, arm in step["arms"].items():
            sent = f"{arm['offered_pps'][0] / 1e3:.1f}"
            rows.append([f"{step['pps'] / 1e3:g} kpps", name, sent, *cells(arm)])
    title = f"{subject(result)}, {result['tool']}: "
    title += "received kpps, median (minimum-maximum) of the repeats"
    return "\n".join([title, *columns(rows), *verdicts(result)])
