# SPDX-License-Identifier: GPL-2.0-only
"""Rules that an administrator could write instead, by port, at each place where they can stand.

A receiver that is alone is left ALONE_PPS. Of several the first is left everything, and
each other LOWER_PPS, the filter's floor; or nothing, where the place is the cheapest for a
drop and shows the floor of its cost. Rules do not know who is important, nor whether
there is an overload: here they are told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from experiments.settings import Early, Setting
from rig.guest import Guest
from rig.programs import programs

ALONE_PPS = 10_000
LOWER_PPS = 100


def limits(ports: Sequence[int], lower_pps: int) -> dict[int, int]:
    """What may pass, packets/s by port."""
    return dict.fromkeys(ports[1:], lower_pps) or dict.fromkeys(ports, ALONE_PPS)


class Nft(Setting):
    """nftables at PRE_ROUTING, priority raw."""

    TABLE = "inet packetflow_rules"

    def rules(self, ports: Sequence[int]) -> dict[int, str]:
        """What stands between a port's match and its drop."""
        return {port: f"limit rate over {pps}/second" for port, pps in self.passed(ports).items()}

    def passed(self, ports: Sequence[int]) -> dict[int, int]:
        return limits(ports, LOWER_PPS)

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        lines = [f"table {self.TABLE} {{ chain rules {{"]
        lines.append("type filter hook prerouting priority raw;")
        found = self.rules(ports)
        lines += [f"udp dport {port} {rule} counter drop" for port, rule in found.items()]
        guest.write("/run/rules.nft", "\n".join([*lines, "}", "}"]))
        guest.run(["nft", "-f", "/run/rules.nft"])
        self.ports = list(found)

    def leave(self, guest: Guest) -> None:
        guest.run(f"nft delete table {self.TABLE}")

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        listing = json.loads(guest.run(f"nft -j list table {self.TABLE}").out)
        rules = [entry["rule"]["expr"] for entry in listing["nftables"] if "rule" in entry]
        dropped = (
            next(part["counter"]["packets"] for part in rule if "counter" in part) for rule in rules
        )
        return {port: {"shed": count} for port, count in zip(self.ports, dropped, strict=True)}


class ShedAll(Nft):
    """Everything for the lower receivers is dropped: the ceiling of dropping."""

    def rules(self, ports: Sequence[int]) -> dict[int, str]:
        return dict.fromkeys(ports[1:], "")


class TcPolice(Setting):
    """tc at the device's ingress."""

    AT = "dev eth0 ingress"

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        self.ports = limits(ports, LOWER_PPS)
        guest.run("modprobe -a sch_ingress cls_flower act_police && tc qdisc add dev eth0 clsact")
        for port, pps in self.ports.items():
            guest.run(
                f"tc filter add {self.AT} protocol ip pref {port} flower ip_proto udp"
                f" dst_port {port} action police pkts_rate {pps} pkts_burst {max(pps // 100, 10)}"
                " conform-exceed drop"
            )

    def leave(self, guest: Guest) -> None:
        guest.run("tc qdisc delete dev eth0 clsact")

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        found: Early = {}
        for one in json.loads(guest.run(f"tc -s -j filter show {self.AT}").out):
            for action in one.get("options", {}).get("actions", []):
                found[one["pref"]] = {"shed": action["stats"]["drops"]}
        return found


class XdpPolice(Setting):
    """XDP, as any kernel can have it on any device (generic)."""

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        rates = [f"{port}:{pps}" for port, pps in limits(ports, 0).items()]
        self.program = guest.spawn([str(programs() / "xdp_police"), "eth0", *rates])
        guest.run("until ip link show eth0 | grep -q xdp; do sleep 0.1; done")

    def leave(self, guest: Guest) -> None:
        self.program.signal()
        self.program.wait(20)

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        self.program.signal()
        done = self.program.wait(20)
        if done.rc:
            raise RuntimeError(f"xdp_police: {done.err}")
        return {int(port): {"shed": count} for port, count in json.loads(done.out).items()}
