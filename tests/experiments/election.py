# SPDX-License-Identifier: GPL-2.0-only
"""What pf_sched's election and its restore take, in instructions of the guest.

The guest's clock counts instructions (see cost.py), and the kernel's own function graph
tracer tells by it how long the functions of pf_sched ran in which somebody was elected
or restored: what the packet path pays once for a boost, and what pf_sched's thread does.
A receiver that works starves beside tasks that compute, is raised, and soon restored.

The JSON has, by lever, "elect" (in the packet path), "tick" (of the thread while
somebody is raised, each 10 ms; where the lever is a class, some of them set it),
"restore" (the tick in which a boost ended), all as medians with the tracer's own share,
and how many there were: "elections".
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

from experiments.competitors import Competitors
from experiments.result import Json, columns, heading
from experiments.settings import Modules
from rig.guest import Guest
from rig.kernels import Kernel
from rig.programs import programs
from rig.traffic import LIGHT

LEVERS = ("nice", "deadline", "rr")
TRACED = ("elect_consider", "boost_tick")
TRACING = "/sys/kernel/tracing"
PORT, PPS, SECONDS, SIZE = 5000, 4000, 2, 256
WORK_US = 100  # a packet
KNOBS = {"hold": 10, "apart": 0}

_BEGIN = re.compile(r"\|(\s+)(\w+)(?: \[pf_sched\])?\(\) \{")
_END = re.compile(r"([0-9.]+) us\s+\|(\s+)\}")
_LEAF = re.compile(r"([0-9.]+) us\s+\|(\s+)(\w+)(?: \[pf_sched\])?\(\);")
_EVENT = re.compile(r"\|\s+/\* (boost|restore): ")


class Call(NamedTuple):
    function: str
    us: float
    event: str  # that came of it, or nothing


def calls(trace: str) -> Iterator[Call]:
    """The calls in a function graph, but those that another one interrupted."""
    inside: list[tuple[str, str]] = []  # function, event or "interrupted"
    for line in trace.splitlines():
        if found := _LEAF.search(line):
            if inside:
                inside[-1] = (inside[-1][0], "interrupted")
            yield Call(found[3], float(found[1]), "")
        elif found := _BEGIN.search(line):
            if inside:
                inside[-1] = (inside[-1][0], "interrupted")
            inside.append((found[2], ""))
        elif (found := _EVENT.search(line)) and inside:
            function, event = inside[-1]
            inside[-1] = (function, event or found[1])
        elif (found := _END.search(line)) and inside:
            function, event = inside.pop()
            if event != "interrupted":
                yield Call(function, float(found[1]), event)


def measure(guest: Guest, lever: str) -> dict[str, float]:
    """One lever; instructions, and the number of elections."""
    modules = Modules("pf_sched")
    modules.enter(guest, (PORT,))
    try:
        for knob, value in {**KNOBS, "lever": lever}.items():
            guest.write(f"/proc/packetflow/sched/{knob}", str(value))
        trace = traced(guest)
    finally:
        modules.leave(guest)
    found = list(calls(trace))

    def median(function: str, event: str) -> float:
        all_us = [call.us for call in found if (call.function, call.event) == (function, event)]
        return round(statistics.median(all_us) * 1000) if all_us else float("nan")

    return {
        "elect": median("elect_consider", "boost"),
        "tick": median("boost_tick", ""),
        "restore": median("boost_tick", "restore"),
        "elections": sum(call.event == "boost" for call in found),
    }


def traced(guest: Guest) -> str:
    """The function graph of one load."""
    functions = " ".join(f"{name}:mod:pf_sched" for name in TRACED)
    guest.run(
        f"cd {TRACING} && echo > trace && echo '{functions}' > set_ftrace_filter"
        " && echo 1 > events/packetflow/boost/enable && echo 1 > events/packetflow/restore/enable"
        " && echo function_graph > current_tracer"
    )
    try:
        load(guest)
        return guest.run(["cat", f"{TRACING}/trace"]).out
    finally:
        guest.run(
            f"cd {TRACING} && echo nop > current_tracer && echo > set_ftrace_filter"
            " && echo 0 > events/packetflow/enable"
        )


def load(guest: Guest) -> None:
    """A receiver that starves beside tasks that compute."""
    loops_per_us = float(guest.run([str(programs() / "udp_recv"), "--calibrate"]).out)
    competitors = Competitors(guest, 2)
    receiver = LIGHT.receiver(guest, PORT, work=round(WORK_US * loops_per_us))
    try:
        command = [str(programs() / "udp_send"), "-s", str(SIZE), "-t", str(SECONDS)]
        guest.spawn([*command, "127.0.0.1", f"{PORT}:{PPS}"], nice=-15).wait(120)
    finally:
        receiver.finish()
        competitors.end()


def run(kernel: Kernel, say: Callable[[str], None]) -> Json:
    """Every lever, in one boot."""
    say(f"election: booting {kernel.version}, counting instructions")
    found: dict[str, dict[str, float]] = {}
    with Guest(kernel, icount=True, link=False) as guest:
        guest.run("ip link set lo up")
        guest.run("echo 0 > /proc/sys/kernel/sched_autogroup_enabled", check=False)
        for lever in LEVERS:
            found[lever] = measure(guest, lever)
            say(f"election by {lever}: {found[lever]}")
    return {**heading("election", guest), "instructions": found}


def table(result: Json) -> str:
    """Instructions by lever."""
    heads = ["elect", "tick", "restore", "elections"]
    rows = [["lever", *heads]]
    rows += [
        [lever, *(f"{found[head]:.0f}" for head in heads)]
        for lever, found in result["instructions"].items()
    ]
    title = f"election, kernel {result['version']}: instructions, the tracer's share included"
    return "\n".join([title, *columns(rows)])
