# SPDX-License-Identifier: GPL-2.0-only
"""Where the instructions of a packet go: the load of U1 in some arms, by function.

Exact, not sampled: QEMU counts what is executed. The counts are of all CPUs of
the guest, so the sender's are among them; these are the same in every arm, and in the
difference to stock nothing is left of them. What runs in user space is one entry, and
contains the task that keeps the clock busy.

JSON:

    experiment, kernel, version, clock, cpus, dilation, date
    pps     sent to each receiver
    arms    by name, each with
      sent, received   packets of all receivers in the whole run
      instructions     by function, for a packet sent
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from experiments.arms import Arm
from experiments.measure import measure
from experiments.result import Json, columns, heading, told_cpus
from experiments.u1 import U1
from rig.guest import Guest
from rig.kernels import Kernel
from rig.programs import programs
from rig.traffic import Light, Sent

ABOUT = "instructions of a packet by function, under the load of U1"
ARMS = "filter,sched,mm,all"
SECONDS = 2.0
SHOWN = 30  # functions
USER, USER_END = "(user space)", 1 << 47


class Profiled(Light):
    """The rig's own tool, with a look at what is executed while it sends, and where."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.kallsyms = ""
        self.executed: Counter[int] = Counter()

    def send(self, *arguments: Any, **options: Any) -> Sent:
        self.kallsyms = self.guest.read("/proc/kallsyms")
        before = self.guest.instructions()
        sent = super().send(*arguments, **options)
        self.executed = self.guest.instructions() - before
        return sent


def by_function(executed: Counter[int], kallsyms: str) -> Counter[str]:
    """Instructions by the function that their address is in."""
    lines = (line.split() for line in kallsyms.splitlines())
    symbols = sorted(
        (int(start, 16), "".join(name)) for start, kind, *name in lines if kind in "tT"
    )
    starts = [start for start, _ in symbols]
    found: Counter[str] = Counter()
    for address, count in executed.items():
        at = bisect.bisect_right(starts, address) - 1
        found[USER if address < USER_END or at < 0 else symbols[at][1]] += count
    return found


def profile(guest: Guest, name: str, seconds: float, pps: float) -> Json:
    """One arm."""
    tool = Profiled(guest)
    run = measure(guest, Arm(name), replace(U1, pps=pps), tool, seconds)
    sent = sum(account.sent for account in run.accounts)
    counts = by_function(tool.executed, tool.kallsyms)
    return {
        "sent": sent,
        "received": sum(account.received for account in run.accounts),
        "instructions": {name: round(count / sent, 2) for name, count in counts.most_common()},
    }


def run(
    kernel: Kernel,
    names: Sequence[str],
    seconds: float,
    pps: float,
    cpus: int,
    say: Callable[[str], None],
) -> Json:
    """Every arm once, stock first."""
    say(f"profile: booting {kernel.version}, counting instructions by address")
    arms = {}
    with Guest(kernel, icount=True, cpus=cpus, plugin=programs() / "instructions.so") as guest:
        for name in dict.fromkeys(("stock", *names)):
            arms[name] = profile(guest, name, seconds, pps)
            say(f"{name}: {arms[name]['received']} of {arms[name]['sent']} packets received")
        return {**heading("profile", guest), "pps": pps, "arms": arms}


def table(result: Json) -> str:
    """Of every arm the functions in which it differs most from stock."""
    stock = result["arms"]["stock"]
    parts = []
    for name, arm in result["arms"].items():
        before = {} if arm is stock else stock["instructions"]
        after = arm["instructions"]
        more = {one: after.get(one, 0) - before.get(one, 0) for one in (*after, *before)}
        largest = sorted(more, key=lambda one: -abs(more[one]))[:SHOWN]
        rows = [[name, "instructions", "to stock" if before else ""]]
        rows += [
            [one, f"{after.get(one, 0):.1f}", f"{more[one]:+.1f}" if before else ""]
            for one in largest
        ]
        share = arm["received"] / arm["sent"]
        parts.append("\n".join([f"{name}: received {share:.1%} of what was sent", *columns(rows)]))
    about = "instructions for a packet sent, by function"
    title = f"profile, kernel {result['version']}{told_cpus(result)}: {about}"
    return "\n\n".join([title, *parts])
