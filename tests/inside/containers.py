# SPDX-License-Identifier: GPL-2.0-only
"""Containers: other namespaces of the same guest, behind veth pairs of the host, which forwards
to them what another machine sends."""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from inside.net import SMALL, Namespace, Peer, Pressure, bridges_pass_by_rules, ip, nft, udp
from inside.suite import wait_for

PORT = 5000
MANY = 200
APART = 0.05  # seconds; longer than from one traced packet to the next
LARGE = 4 << 20
PACKET = b"x" * 300
MACS = "02:60:00:00:00:02", "02:60:00:00:00:03"  # on the bridge


def forwarding() -> None:
    """Have this namespace be a router."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")


def came(where: Namespace) -> int:
    """Packets that came to the container's device."""
    with where:
        listing = ["ip", "-json", "-statistics", "link", "show", "eth0"]
        (found,) = json.loads(subprocess.run(listing, capture_output=True, check=True).stdout)
    return int(found["stats64"]["rx"]["packets"])


def socket_in(where: Namespace, address: str, rcvbuf: int = SMALL) -> socket.socket:
    with where:
        return udp(address, PORT, rcvbuf)


@contextmanager
def sending(peer: Peer, to: str, sources: int = 1) -> Iterator[Callable[[int], None]]:
    """Send so many, in turn from so many ports."""
    v6 = ":" in to
    outs = [peer.udp(peer.theirs6 if v6 else peer.theirs4) for _ in range(sources)]

    def send(packets: int) -> None:
        for i in range(packets):
            outs[i % sources].sendto(PACKET, (to, PORT))

    with ExitStack() as stack:
        for out in outs:
            stack.enter_context(out)
        yield send


def learn(send: Callable[[int], None], pod: Namespace, pressing: Pressure) -> None:
    """Send until next to nothing comes to the container any more."""

    def known() -> bool:
        pressing.raise_()
        send(1)
        time.sleep(APART)
        before = came(pod)
        send(MANY)
        return came(pod) - before < MANY / 10

    wait_for(known)


def refresh(send: Callable[[int], None], pressing: Pressure) -> None:
    """After a pause, which to start a program may be: pressure and a trail that nothing confirms
    are over after a second. By one packet it is known again."""
    pressing.raise_()
    send(1)


class Bridged(Namespace):
    """A container on the host's bridge."""

    def __init__(self, port: str, mac: str) -> None:
        super().__init__()
        ip(
            f"link add {port} type veth peer name eth0 address {mac} netns {self.path}\n"
            f"link set {port} master br0 addrgenmode none up\n"
        )
        with self:
            # What it says of itself would let the bridge find it. In one request, the kernel would
            # first set it up, and give it an address of IPv6 that it tells of.
            ip("link set eth0 addrgenmode none\nlink set eth0 up\n")
            ip("address add 10.60.0.2/24 dev eth0\n")
            ip("route add default via 10.60.0.1\n")

    def speak(self) -> None:
        """Have the bridge find it."""
        with self, udp("10.60.0.2") as out:
            out.sendto(b"here", ("10.60.0.1", 9))


def bridge() -> None:
    bridges_pass_by_rules()
    ip("link add br0 type bridge forward_delay 0\nlink set br0 up\n")
    ip("address add 10.60.0.1/24 dev br0\n")


@contextmanager
def nat() -> Iterator[tuple[str, Namespace, Namespace, Callable[[], None]]]:
    """Destination NAT leads to another one; flows that are known go on to where they went."""
    one, other = Peer(2), Peer(3)
    for number in 2, 3:
        nft(f"table ip nat{number} {{ chain in {{ type nat hook prerouting priority dstnat; }}; }}")
    nft(f"add rule ip nat2 in udp dport {PORT} dnat to {one.theirs4}")

    def change() -> None:
        nft(f"flush chain ip nat2 in\nadd rule ip nat2 in udp dport {PORT} dnat to 10.3.0.2")
        subprocess.run(["conntrack", "-D", "-p", "udp"], capture_output=True, check=False)

    yield "10.1.0.1", one, other, change
