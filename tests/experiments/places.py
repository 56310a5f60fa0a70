# SPDX-License-Identifier: GPL-2.0-only
"""Where else a datagram can be dropped, for the price of it: each drops all that comes for
the second of the ports, on lo and on the device of udp_cost."""

from __future__ import annotations

import json
from collections.abc import Sequence

from experiments.settings import Early, InDriver, Setting
from rig.guest import Guest
from rig.programs import programs

LO, TUN = "lo", "cost0"
ASIDE = 10  # so far off is a port that nobody sends to


class Place(Setting):
    """A place before the protocols, device by device."""

    DEVICES: Sequence[str] = (LO, TUN)
    MODE = "tun"

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        # Else it comes and goes with who receives from it.
        guest.run(f"ip tuntap add dev {TUN} mode {self.MODE} && ip link set {TUN} up")
        self.dropping(guest, ports[1])

    def leave(self, guest: Guest) -> None:
        self.end(guest)
        guest.run(f"ip tuntap del dev {TUN} mode {self.MODE}")

    def dropping(self, guest: Guest, port: int) -> None:
        raise NotImplementedError

    def end(self, guest: Guest) -> None:
        raise NotImplementedError


class NftIngress(Place):
    """nftables, hooked into the devices."""

    TABLE = "netdev packetflow_ingress"

    def dropping(self, guest: Guest, port: int) -> None:
        hook = f"type filter hook ingress devices = {{ {', '.join(self.DEVICES)} }} priority 0;"
        table = f"table {self.TABLE} {{ chain rules {{ {hook} udp dport {port} counter drop; }}; }}"
        guest.run(["nft", table])

    def end(self, guest: Guest) -> None:
        guest.run(f"nft delete table {self.TABLE}")

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        listing = json.loads(guest.run(f"nft -j list table {self.TABLE}").out)
        (rule,) = (entry["rule"]["expr"] for entry in listing["nftables"] if "rule" in entry)
        (count,) = (part["counter"]["packets"] for part in rule if "counter" in part)
        return {ports[1]: {"shed": count}}


class TcDrop(Place):
    """tc's flower classifier at the devices' ingress."""

    def dropping(self, guest: Guest, port: int) -> None:
        guest.run("modprobe -a sch_ingress cls_flower act_gact")
        for device in self.DEVICES:
            guest.run(
                f"tc qdisc add dev {device} clsact && tc filter add dev {device} ingress"
                f" protocol ip flower ip_proto udp dst_port {port} action drop"
            )

    def end(self, guest: Guest) -> None:
        for device in self.DEVICES:
            guest.run(f"tc qdisc delete dev {device} clsact")

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        found = 0
        for device in self.DEVICES:
            for one in json.loads(guest.run(f"tc -s -j filter show dev {device} ingress").out):
                for action in one.get("options", {}).get("actions", []):
                    found += action["stats"]["drops"]
        return {ports[1]: {"shed": found}}


class XdpDrop(Place):
    """XDP as any device can have it (generic); the tun device's packets lack the header that
    it reads."""

    DEVICES = (LO,)
    OPTIONS: Sequence[str] = ()

    def dropping(self, guest: Guest, port: int) -> None:
        (device,) = self.DEVICES
        command = [str(programs() / "xdp_police"), *self.OPTIONS, device, f"{port}:0"]
        self.program = guest.spawn(command)
        guest.run(f"until ip link show {device} | grep -q xdp; do sleep 0.1; done")

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        self.program.signal()
        found = json.loads(self.program.wait(20).out)
        return {int(port): {"shed": count} for port, count in found.items()}

    def end(self, guest: Guest) -> None:
        self.program.signal()
        self.program.wait(20)


class XdpNative(XdpDrop):
    """The same in the driver of a tap device, which shows it frames that have no buffer yet."""

    DEVICES, MODE, OPTIONS = (TUN,), "tap", ("-n",)


class XdpPass(XdpNative):
    """Nothing is dropped: it is all for another port."""

    def dropping(self, guest: Guest, port: int) -> None:
        super().dropping(guest, port + ASIDE)

    def early(self, guest: Guest, ports: Sequence[int]) -> Early:
        return {}


class Asked(InDriver):
    """pf_filter, asked by the driver of the tap device."""

    DEVICE = TUN

    def enter(self, guest: Guest, ports: Sequence[int]) -> None:
        guest.run(f"ip tuntap add dev {TUN} mode tap && ip link set {TUN} up")
        super().enter(guest, ports)

    def leave(self, guest: Guest) -> None:
        super().leave(guest)
        guest.run(f"ip tuntap del dev {TUN} mode tap")
