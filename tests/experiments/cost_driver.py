# SPDX-License-Identifier: GPL-2.0-only
"""What an XDP program in a driver costs, and a drop by it, in instructions of the guest.

As in cost.py, by a tap device, whose driver shows each frame to the program before it has a
buffer (native XDP). udp_cost writes the frames, so that its system call is the interrupt and the
poll. The receive side alone:

    tap             received, without such a program
    xdp_pass        received, with one written by hand that lets all of this port pass
    xdp_police_drop dropped by one that is written by hand and knows the port
    xdp_idle        received, the program asks pf_filter, on a machine at peace
    xdp_judged      the same on a machine where another receiver loses packets, the less
                    important one
    xdp_early_drop  dropped by pf_filter, which it asks, since the socket is full

The JSON has "experiment", "kernel", "version"; "receive_instructions_per_packet" by arm, as means
of the repeats; "spread", the largest difference between two repeats as a share of the mean; and
"dropped", by the arms that drop, the least share of the packets that they really dropped.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from experiments.cost import LONG, CostArm, measure, spread
from experiments.places import Asked, XdpNative, XdpPass
from experiments.result import Json, columns, heading
from experiments.settings import Setting
from rig.guest import Guest
from rig.kernels import Kernel

TAP = "tap"
ASKED = Asked("pf_filter")
ARMS = {
    TAP: CostArm(Setting()),
    "xdp_pass": CostArm(XdpPass()),
    "xdp_police_drop": CostArm(XdpNative(), flood=True),
    "xdp_idle": CostArm(ASKED),
    "xdp_judged": CostArm(ASKED, nices=(0, 10), packets=LONG),
    "xdp_early_drop": CostArm(ASKED, flood=True),
}
# What each is to be compared with.
BESIDE = {
    "xdp_pass": TAP,
    "xdp_police_drop": TAP,
    "xdp_idle": "xdp_pass",
    "xdp_judged": "xdp_pass",
    "xdp_early_drop": "xdp_police_drop",
}


def run(kernel: Kernel, repeats: int, say: Callable[[str], None]) -> Json:
    """Every arm, repeated in turn in one boot."""
    say(f"cost-driver: booting {kernel.version}, counting instructions")
    with Guest(kernel, icount=True, link=False) as guest:
        guest.run("ip link set lo up && modprobe tun")
        found = [
            {name: measure(guest, arm, TAP) for name, arm in ARMS.items()} for _ in range(repeats)
        ]
    costs = {name: [one[name] for one in found] for name in ARMS}
    return {
        **heading("cost-driver", guest),
        "receive_instructions_per_packet": {
            name: round(statistics.mean(one.instructions for one in ones), 1)
            for name, ones in costs.items()
        },
        "spread": max(map(spread, costs.values())),
        "dropped": {
            name: round(min(one.dropped for one in costs[name]), 4)
            for name in ARMS
            if name.endswith("_drop")
        },
    }


def table(result: Json) -> str:
    """Instructions a packet, and against the arm that it is to be compared with."""
    costs = result["receive_instructions_per_packet"]
    rows = [["arm", "receive side", "", ""]]
    for name, cost in costs.items():
        other = BESIDE.get(name)
        against = [f"{cost / costs[other]:.1%}", f"of {other}"] if other else ["", ""]
        rows.append([name, f"{cost:.0f}", *against])
    shares = ", ".join(f"{name} {share:.1%}" for name, share in result["dropped"].items())
    title = f"cost-driver, kernel {result['version']}: instructions a packet, by a tap device"
    foot = f"repeats agree to {result['spread']:.2%}; really dropped: {shares}"
    return "\n".join([title, *columns(rows), foot])
