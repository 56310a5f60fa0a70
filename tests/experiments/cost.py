# SPDX-License-Identifier: GPL-2.0-only
"""The deterministic cost of a packet, in instructions of the guest.

The guest's clock counts instructions (one nanosecond each), so a program that
never sleeps reads from it what a packet costs, to three digits and whatever else
the host does. udp_cost gives it three ways: a 256-byte datagram sent and received
on lo; the receive side alone, through a tun device; and the same forwarded to a receiver
in a container, behind a veth pair, for some arms. For the arms that end in a drop nobody
reads the socket, whose buffer is full:

    stock         received
    full_socket   dropped at the full socket by the stock kernel
    nft_raw_drop  dropped by nftables at PRE_ROUTING, priority raw
    nft_ingress_drop, tc_drop, xdp_drop    dropped at the device's ingress by nftables, by tc's
                  flower, by generic XDP (lo only)
    common_idle   received, pf_common loaded
    filter_idle   received, pf_common and pf_filter loaded
    sched_idle, mm_idle, all_idle    the same for the other modules, once built
    sched_busy, mm_busy, all_busy    so long that the CPU counts as one without idle
                  time, at which pf_sched and pf_mm arm their hooks
    disabled      received, pf_common and pf_filter loaded, enable = 0
    early_drop    dropped by pf_filter since the socket is full
    flow_10, flow_1000, flow_100k    received, as packets of one of so many flows of pf_flow
    flow_drop     dropped as the queue of its flow is full
    stock_100k, filter_100k    received, with 100 000 more sockets open, of which pf_common
                  tracks as many as "tracked" says; to be compared with each other

and, by the receive side alone, on a machine where another receiver loses packets:

    judged        received; the other is the less important one. It is slow by itself,
                  so that looking does not pay, and the CPU mostly rests from it
    shed_drop     dropped by pf_filter, since the other is the more important one

The JSON has "experiment", "kernel", "version", "instructions_per_packet" (sent and received on
lo), "receive_instructions_per_packet" and "forwarded_instructions_per_packet", all by arm, as
means of the repeats; "ping_pong_us", the latency of latency.py by the arms in which all is
received and the machine at peace, and "ping_pong_range_us", its least and its greatest of the
repeats; "spread", the largest difference between two repeats as a share of the mean; "dropped",
by the arms that drop early, the least share of the packets that they really dropped; and
"tracked", the least in the filter_100k arm.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from experiments.containers import POD4S, PODS, routed
from experiments.flows import NOTHING, Flows
from experiments.latency import ping_pong
from experiments.places import NftIngress, TcDrop, XdpDrop
from experiments.result import Json, columns, heading
from experiments.rules import ShedAll
from experiments.settings import Modules, Setting
from rig.guest import Guest
from rig.kernels import Kernel
from rig.programs import programs

PORT = 5000
LO, TUN, POD = "lo", "tun", "pod"
PATHS = (LO, TUN)
EVERY = (*PATHS, POD)
KINDS = ("", "receive_", "forwarded_")  # of figures, by path
LONG = 40_000  # packets; a round of them takes longer than the estimator to look again
CROWD, CROWDED = 100_000, "_100k"  # sockets or flows beside, and how arms that have them end


class Disabled(Modules):
    """Loaded, and switched off."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        super().enter(guest, ports)
        guest.write("/proc/packetflow/enable", "0")


@dataclass(frozen=True)
class CostArm:
    setting: Setting
    flood: bool = False  # nobody reads: each packet ends as a drop
    packets: int = 5000  # in a round
    nices: tuple[int, int] | None = None  # this receiver's, and that of one in trouble
    sockets: int = 0  # open beside
    paths: tuple[str, ...] = PATHS

    @property
    def at_peace(self) -> bool:
        busy = self.flood or self.nices or self.sockets or self.packets >= LONG
        return not (busy or isinstance(self.setting, Flows))

    def command(self, path: str) -> list[str]:
        other = [] if self.nices is None else ["-o", str(self.nices[1])]
        flood = ["-f"] if self.flood else []
        beside = ["-k", str(self.sockets)] if self.sockets else []
        count = ["-n", str(self.packets)]
        where = ["-c", PODS[0], "-a", POD4S[0], TUN] if path == POD else [path]
        return [str(programs() / "udp_cost"), *flood, *other, *beside, *count, *where, str(PORT)]


def cost_arms(modules: list[str]) -> dict[str, CostArm]:
    """The arms that these modules allow."""
    arms = {
        "stock": CostArm(Setting(), paths=EVERY),
        "full_socket": CostArm(Setting(), flood=True, paths=EVERY),
        "nft_raw_drop": CostArm(ShedAll(), flood=True, paths=EVERY),
        "nft_ingress_drop": CostArm(NftIngress(), flood=True),
        "tc_drop": CostArm(TcDrop(), flood=True),
        "xdp_drop": CostArm(XdpDrop(), flood=True, paths=(LO,)),
    }
    if "pf_filter" in modules:
        arms["common_idle"] = CostArm(Modules("pf_common"))
    for name in modules:
        paths = EVERY if name == "pf_filter" else PATHS
        arms[f"{name.removeprefix('pf_')}_idle"] = CostArm(Modules(name), paths=paths)
    if len(modules) > 1:
        arms["all_idle"] = CostArm(Modules(), paths=EVERY)
    armed = [name for name in ("pf_sched", "pf_mm") if name in modules]
    for name in armed:
        arms[f"{name.removeprefix('pf_')}_busy"] = CostArm(Modules(name), packets=LONG)
    if armed:
        arms["all_busy"] = CostArm(Modules(), packets=LONG, paths=EVERY)
    if "pf_filter" in modules:
        arms["disabled"] = CostArm(Disabled("pf_filter"), paths=EVERY)
        filtered, inbound = Modules("pf_filter"), (TUN, POD)
        arms["early_drop"] = CostArm(filtered, flood=True, paths=EVERY)
        # So long that its rounds are as much at rest as the CPU is.
        arms["judged"] = CostArm(filtered, nices=(0, 10), paths=inbound, packets=LONG)
        arms["shed_drop"] = CostArm(filtered, flood=True, nices=(10, 0), paths=inbound)
    if "pf_flow" in modules:
        arms["flow_10"] = CostArm(Flows(10))
        arms["flow_1000"] = CostArm(Flows(1000))
        arms["flow" + CROWDED] = CostArm(Flows(CROWD))
        arms["flow_drop"] = CostArm(Flows(10, NOTHING), flood=True)
    arms["stock" + CROWDED] = CostArm(Setting(), sockets=CROWD)
    if "pf_filter" in modules:
        arms["filter" + CROWDED] = CostArm(Modules("pf_filter"), sockets=CROWD)
    return arms


@dataclass(frozen=True)
class Cost:
    instructions: float  # a packet, the median of the program's rounds
    dropped: float  # early, of all packets
    tracked: int  # sockets, where many were open


def spent(guest: Guest, arm: CostArm, path: str) -> tuple[Json, float]:
    """What udp_cost says, and how many packets were dropped early."""
    ports = (0, PORT)  # to an arm that spares the first port, ours is the second
    arm.setting.enter(guest, ports)
    try:
        nice = arm.nices[0] if arm.nices else 0
        process = guest.spawn(arm.command(path), nice=nice)
        out = json.loads(process.wait(60 + arm.sockets / 200).out)
        # Who has the suite's own count needs no other: its sockets are gone.
        return out, sum(arm.setting.decided(guest).values()) or sum(
            sum(reasons.values()) for reasons in arm.setting.early(guest, ports).values()
        )
    finally:
        arm.setting.leave(guest)


def measure(guest: Guest, arm: CostArm, path: str) -> Cost:
    """One arm by one path."""
    place: AbstractContextManager[object] = routed(guest) if path == POD else nullcontext()
    with place:
        out, dropped = spent(guest, arm, path)
    if arm.sockets:
        guest.run("sleep 1")  # the kernel frees them in the background
    return Cost(statistics.median(out["ns"]), dropped / out["sent"], out["tracked"])


def run(kernel: Kernel, repeats: int, say: Callable[[str], None]) -> Json:
    """Every arm by its paths, repeated in turn in one boot."""
    arms = cost_arms(kernel.modules)
    at_peace = [name for name, arm in arms.items() if arm.at_peace]
    return measured(kernel, arms, at_peace, repeats, say)


def measured(
    kernel: Kernel,
    arms: Mapping[str, CostArm],
    answering: Sequence[str],
    repeats: int,
    say: Callable[[str], None],
) -> Json:
    """These arms, and the latency of those that are answering."""
    found: dict[tuple[str, str], list[Cost]] = {
        (name, path): [] for name, arm in arms.items() for path in arm.paths
    }
    answers: dict[str, list[float]] = {name: [] for name in answering}
    say(f"cost: booting {kernel.version}, counting instructions")
    with Guest(kernel, icount=True, link=False) as guest:
        guest.run("ip link set lo up && modprobe tun")
        for repeat in range(repeats):
            for (name, path), costs in found.items():
                costs.append(measure(guest, arms[name], path))
                say(f"cost {repeat + 1}/{repeats} {name} {path}: {costs[-1].instructions:.0f}")
            for name, latencies in answers.items():
                latencies.append(ping_pong(guest, arms[name].setting, (0, PORT)))
                say(f"cost {repeat + 1}/{repeats} {name} ping-pong: {latencies[-1]:.3f} us")

    def means(path: str) -> dict[str, float]:
        return {
            name: round(statistics.mean(cost.instructions for cost in found[name, path]), 1)
            for name, arm in arms.items()
            if path in arm.paths
        }

    return {
        **heading("cost", guest),
        "instructions_per_packet": means(LO),
        "receive_instructions_per_packet": means(TUN),
        "forwarded_instructions_per_packet": means(POD),
        "ping_pong_us": {name: round(statistics.mean(us), 3) for name, us in answers.items()},
        "ping_pong_range_us": {name: [min(us), max(us)] for name, us in answers.items()},
        "spread": max(map(spread, found.values())),
        "dropped": {
            name: round(min(one.dropped for path in arm.paths for one in found[name, path]), 4)
            for name, arm in arms.items()
            if name.endswith("_drop") and arm.nices is None
        },
        "tracked": min(
            (one.tracked for path in PATHS for one in found.get(("filter" + CROWDED, path), [])),
            default=None,
        ),
    }


def spread(costs: list[Cost]) -> float:
    """The largest difference between repeats, as a share of their mean."""
    values = [cost.instructions for cost in costs]
    return (max(values) - min(values)) / statistics.mean(values)


def stock_of(name: str) -> str:
    """The stock arm with as many sockets open."""
    crowded = name.endswith(CROWDED) and not name.startswith("flow")
    return "stock" + CROWDED if crowded else "stock"


def against_stock(costs: dict[str, float], name: str, digits: int) -> list[str]:
    """One figure, and what it is more than stock's with as many sockets."""
    if name not in costs:
        return ["", ""]
    return [f"{costs[name]:.{digits}f}", f"{costs[name] / costs[stock_of(name)] - 1:+.2%}"]


def table(result: Json) -> str:
    """Instructions a packet and percent against stock, by path; ping-pong likewise."""
    by_path = [result[f"{kind}instructions_per_packet"] for kind in KINDS]
    heads = ["lo: sent and received", "", "tun: receive side", "", "to a container", ""]
    heads += ["ping-pong", ""]
    rows = [["arm", *heads]]
    for name in by_path[0] | by_path[1]:
        costs = [against_stock(counted, name, 0) for counted in by_path]
        answer = against_stock(result["ping_pong_us"], name, 2)
        if name in result.get("ping_pong_range_us", {}):
            low, high = result["ping_pong_range_us"][name]
            answer[0] += f" ({low:.2f}-{high:.2f})"
        rows.append([name, *itertools.chain(*costs), *answer])
    foot = f"repeats agree to {result['spread']:.2%}"
    if shares := [f"{name} {share:.1%}" for name, share in result["dropped"].items()]:
        foot += f"; really dropped: {', '.join(shares)}"
    if result.get("tracked") is not None:
        foot += f"; in the filter{CROWDED} arm {result['tracked']} sockets were tracked"
    title = f"cost, kernel {result['version']}: instructions a packet, microseconds a ping-pong"
    return "\n".join([title, *columns(rows), foot])
