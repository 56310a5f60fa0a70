# SPDX-License-Identifier: GPL-2.0-only
"""Arms of a router: what holds flows to rates, each at the place where it can stand.

All are told the same: a flow is the packets to a port that come in by a device, and its rate
counts IP packets. What counts frames is given as much more as a frame is longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.arms import OFF, Arm
from experiments.settings import Setting
from rig.guest import Guest
from rig.kernels import REPO

ETHERNET = 14  # bytes of a frame before the IP packet
UNBOUND = 10_000_000_000  # bits/s, more than any link here has
TABLE = "/proc/packetflow/flow/table"
SERVER = "/proc/packetflow/flow/server"


@dataclass(frozen=True)
class Limited:
    """A flow, and what it may have."""

    name: str
    protocol: str
    port: int
    rate: int  # bits of IP packets a second
    size: int  # bytes of its packets, from the IP header on
    into: str  # the device that it comes by
    out: str

    @property
    def framed(self) -> int:
        """The same rate in frames."""
        return self.rate * (self.size + ETHERNET) // self.size

    @property
    def burst(self) -> int:
        """10 ms of the rate, and no less than two packets; bytes."""
        return max(self.rate // 800, 2 * self.size)

    @property
    def queue(self) -> int:
        """As long as pf_flow's: 100 ms of the rate; bytes."""
        return min(max(self.rate // 80, 32 << 10), 64 << 20)

    @property
    def match(self) -> str:
        """For tc."""
        return f"protocol ip flower ip_proto {self.protocol} dst_port {self.port}"


class Limit(Setting):
    """One of them; the base limits nothing."""

    def __init__(self, flows: Sequence[Limited]) -> None:
        self.flows = flows


class Flow(Limit):
    """Our own."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.load("pf_flow")
        lines = [
            f"add {flow.name} proto={flow.protocol} dport={flow.port} rate={flow.rate}"
            for flow in self.flows
        ]
        guest.write(TABLE, "\n".join(["replace", *lines, ""]))

    def leave(self, guest: Guest) -> None:
        guest.unload()


class FlowThread(Flow):
    """Our own, served by a thread."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        super().enter(guest, ports)
        guest.write(SERVER, "thread")


class FlowDriver(Flow):
    """Our own, and what its full queue drops is dropped in the driver of the receiving card."""

    TOOL = "tools/packetflow-xdp"

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        super().enter(guest, ports)
        guest.run([f"{REPO}/{self.TOOL}", "attach", *self.cards()], timeout=120)

    def leave(self, guest: Guest) -> None:
        guest.run([f"{REPO}/{self.TOOL}", "detach"])
        super().leave(guest)

    def cards(self) -> list[str]:
        return sorted({flow.into for flow in self.flows})


class Police(Limit):
    """tc at the ingress, without a queue."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.run("modprobe -a sch_ingress cls_flower act_police")
        for flow in self.flows:
            guest.run(
                f"tc qdisc add dev {flow.into} clsact && tc filter add dev {flow.into} ingress"
                f" {flow.match} action police rate {flow.rate} burst {flow.burst}"
                " conform-exceed drop"
            )

    def leave(self, guest: Guest) -> None:
        for flow in self.flows:
            guest.run(f"tc qdisc delete dev {flow.into} clsact")


class Ifb(Limit):
    """A detour at the ingress, through a device that has a queue.

    The one that it has by itself is of 32 packets, half of what a card hands on at a time."""

    MODULES = "sch_htb"

    def queue(self, flow: Limited, device: str) -> str:
        fifo = f"tc qdisc add dev {device} parent 1:1 bfifo limit {flow.queue}"
        return f"{htb(flow, device)} && {fifo}"

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.run(f"modprobe -a sch_ingress cls_flower act_mirred {self.MODULES}")
        guest.run("modprobe ifb numifbs=0")
        for i, flow in enumerate(self.flows):
            guest.run(f"ip link add ifb{i} type ifb && ip link set ifb{i} up")
            guest.run(self.queue(flow, f"ifb{i}"))
            guest.run(
                f"tc qdisc add dev {flow.into} clsact && tc filter add dev {flow.into} ingress"
                f" {flow.match} action mirred egress redirect dev ifb{i}"
            )

    def leave(self, guest: Guest) -> None:
        for i, flow in enumerate(self.flows):
            guest.run(f"tc qdisc delete dev {flow.into} clsact && ip link delete ifb{i}")


class IfbFqCodel(Ifb):
    """The same, with a queue for each connection that drops what waits too long."""

    MODULES = "sch_htb sch_fq_codel"

    def queue(self, flow: Limited, device: str) -> str:
        return f"{htb(flow, device)} && tc qdisc add dev {device} parent 1:1 fq_codel"


class IfbCake(Ifb):
    MODULES = "sch_cake"

    def queue(self, flow: Limited, device: str) -> str:
        return f"tc qdisc add dev {device} root cake bandwidth {flow.framed}bit besteffort"


def htb(flow: Limited, device: str) -> str:
    return (
        f"tc qdisc add dev {device} root handle 1: htb default 1 && "
        f"tc class add dev {device} parent 1: classid 1:1 htb rate {flow.framed}bit quantum 3028"
    )


class EgressHtb(Limit):
    """Where the packets leave; what is no flow's is not limited."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.run("modprobe -a sch_htb cls_flower")
        for flow in self.flows:
            guest.run(
                f"tc qdisc add dev {flow.out} root handle 1: htb && tc class add dev {flow.out}"
                f" parent 1: classid 1:1 htb rate {flow.framed}bit quantum 3028 &&"
                f" tc filter add dev {flow.out} parent 1: {flow.match} classid 1:1"
            )

    def leave(self, guest: Guest) -> None:
        for flow in self.flows:
            guest.run(f"tc qdisc delete dev {flow.out} root")


class NftForward(Limit):
    """nftables at FORWARD, without a queue."""

    NAME = "ip packetflow_limits"

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        lines = [f"table {self.NAME} {{ chain limits {{", "type filter hook forward priority 0;"]
        lines += [
            f"iifname {flow.into} {flow.protocol} dport {flow.port} limit rate over"
            f" {flow.rate // 8} bytes/second burst {flow.burst} bytes drop"
            for flow in self.flows
        ]
        guest.write("/run/limits.nft", "\n".join([*lines, "}", "}"]))
        guest.run(["nft", "-f", "/run/limits.nft"])

    def leave(self, guest: Guest) -> None:
        guest.run(f"nft delete table {self.NAME}")


LIMITS: Mapping[str, Callable[[Sequence[Limited]], Limit]] = {
    **dict.fromkeys(OFF, Limit),
    "flow": Flow,
    "flow-thread": FlowThread,
    "flow-xdp": FlowDriver,
    "tc-police": Police,
    "ifb-htb": Ifb,
    "ifb-fq_codel": IfbFqCodel,
    "ifb-cake": IfbCake,
    "egress-htb": EgressHtb,
    "nft-forward": NftForward,
}
# Of the others: those that keep what comes too early, and those that drop after IP's work.
QUEUEING = ("ifb-htb", "ifb-fq_codel", "ifb-cake")
LATE = ("egress-htb", "nft-forward")


class Limiting(Arm):
    """The router in one of these states."""

    def __init__(self, name: str, flows: Sequence[Limited]) -> None:
        if name not in LIMITS:
            raise ValueError(f"no such arm: {name} (there are {', '.join(LIMITS)})")
        self.name = name
        self.settings = [LIMITS[name](flows)]
