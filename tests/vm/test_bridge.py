# SPDX-License-Identifier: GPL-2.0-only
"""A host whose own address is a bridge's, where the bridge shows its packets to IP's rules.

So it is where Docker has switched that on (br_netfilter). IP's hooks are then called once, before
the bridge has found out where the packet goes, and not again for what is for the host.
"""

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inside import Skip, inside, mark
from inside.containers import (
    LARGE,
    MACS,
    MANY,
    PACKET,
    PORT,
    Bridged,
    bridge,
    came,
    forwarding,
    learn,
    refresh,
    sending,
    socket_in,
)
from inside.net import (
    SMALL,
    Peer,
    drain,
    drops,
    ip,
    nft,
    pressure,
    rules_see_bridges,
    udp,
)
from inside.suite import begin, dropped, early, entry, passed, wait_for

pytestmark = mark.ends

HOST4, HOST6 = "10.30.0.1", "fd30::1"
MAC = "02:00:00:00:09:01"  # the bridge's own, not its port's


def bridged(peer: Peer) -> None:
    """The way from this machine leads over a bridge, which has the addresses."""
    rules_see_bridges()
    ip(
        f"link add br0 address {MAC} type bridge forward_delay 0\n"
        f"link set {peer.device} master br0\nlink set br0 addrgenmode none up\n"
        f"address add {HOST4}/24 dev br0\naddress add {HOST6}/64 dev br0 nodad\n"
        "neighbour replace 10.30.0.2 lladdr 02:00:00:00:01:02 dev br0\n"
        "neighbour replace fd30::2 lladdr 02:00:00:00:01:02 dev br0\n"
    )
    with peer:
        ip(
            "address add 10.30.0.2/24 dev eth0\naddress add fd30::2/64 dev eth0 nodad\n"
            f"neighbour replace {HOST4} lladdr {MAC} dev eth0\n"
            f"neighbour replace {HOST6} lladdr {MAC} dev eth0\n"
        )


@contextmanager
def from_beyond(peer: Peer, to: str) -> Iterator[Callable[[int], None]]:
    """Send so many over the bridge."""
    with peer.udp("fd30::2" if ":" in to else "10.30.0.2") as out:

        def send(packets: int) -> None:
            for _ in range(packets):
                out.sendto(PACKET, (to, PORT))

        yield send


def lost_early(send: Callable[[int], None], full: socket.socket) -> None:
    """All that is sent to a full socket is dropped early."""

    def port_forwards() -> bool:
        before = drops(full)
        send(1)
        return drops(full) > before

    wait_for(port_forwards)
    before = early(full)
    begin()
    send(MANY)
    assert early(full) - before == dropped()["socket_full"] == MANY, (dropped(), passed())


@mark.parametrize("to", [HOST4, HOST6])
@inside()
def test_what_is_for_the_host_is_judged(to: str) -> None:
    peer = Peer()
    bridged(peer)
    with pressure("::" if ":" in to else "0.0.0.0", PORT) as full, from_beyond(peer, to) as send:
        lost_early(send, full.sock)


def bound_to(device: str, address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    sock.bind((address, PORT))
    return sock


@mark.parametrize("to", [HOST4, HOST6])
@inside()
def test_it_comes_by_the_bridge_and_not_by_its_port(to: str) -> None:
    """The kernel finds the socket by the device to which it is bound."""
    peer = Peer()
    bridged(peer)
    anywhere = "::" if ":" in to else "0.0.0.0"
    with pressure() as pressing, from_beyond(peer, to) as send:
        full, ports = bound_to("br0", anywhere), bound_to(peer.device, anywhere)
        wait_for(lambda: send(1) or drops(full) > 0)
        pressing.raise_()
        lost_early(send, full)
        assert drops(ports) == 0 == len(drain(ports))


@inside()
def test_a_bridge_in_a_vrf() -> None:
    """There the packet is shown once more, as the VRF's."""
    peer = Peer()
    bridged(peer)
    try:
        ip("link add red type vrf table 100\nlink set red up\nlink set br0 master red")
    except subprocess.CalledProcessError:
        raise Skip("this kernel has no VRF") from None
    with pressure() as pressing, from_beyond(peer, HOST4) as send:
        full = bound_to("red", "0.0.0.0")
        wait_for(lambda: send(1) or drops(full) > 0)
        pressing.raise_()
        lost_early(send, full)


@mark.newest
@mark.parametrize("translated", [False, True])
@inside()
def test_what_is_for_a_container_is_judged_by_the_host(translated: bool) -> None:
    forwarding()
    peer, pod = Peer(1), Peer(2)
    bridged(peer)
    to = pod.theirs4
    with peer:
        ip(f"route replace default via {HOST4}\n")
    if translated:
        to = HOST4
        nft(
            "table ip nat { chain in { type nat hook prerouting priority dstnat;"
            f" udp dport {PORT} dnat to {pod.theirs4}; }}; }}"
        )
    full = socket_in(pod, pod.theirs4)
    with pressure() as pressing, from_beyond(peer, to) as send:
        learn(send, pod, pressing)
        arrived = came(pod)
        pressing.raise_()
        send(1)
        begin()
        send(MANY)
        assert dropped()["socket_full"] == MANY, (dropped(), passed())
        assert came(pod) - arrived < MANY / 10
        assert drops(full) >= MANY


@mark.newest
@mark.parametrize("way", ["translated", "routed"])
@inside()
def test_what_comes_from_the_bridge_and_goes_back_to_it_is_judged_once(way: str) -> None:
    """The bridge hands it on if its rules have changed its address, or IP routes it. Packets from
    outside have begun a trail there."""
    forwarding()
    bridge()
    rules_see_bridges()
    peer, pod, neighbour = Peer(), Bridged("p0", MACS[0]), Bridged("p1", MACS[1])
    ip(f"neighbour replace 10.60.0.2 lladdr {MACS[0]} dev br0\naddress add 10.61.0.1/24 dev br0\n")
    own, to = ("10.60.0.3", "10.60.0.1") if way == "translated" else ("10.61.0.3", "10.60.0.2")
    with neighbour:
        ip(f"address flush dev eth0\naddress add {own}/24 dev eth0\n")
        ip(f"route add default via {own[:-1]}1\n")
    pod.speak()
    nft(
        "table ip nat { chain in { type nat hook prerouting priority dstnat;"
        f" ip daddr 10.60.0.1 udp dport {PORT} dnat to 10.60.0.2; }}; }}"
    )
    full = socket_in(pod, "0.0.0.0")
    with neighbour:
        out = udp(own)
    with pressure() as pressing, sending(peer, "10.60.0.2") as send:
        learn(send, pod, pressing)
        full.close()
        free = socket_in(pod, "10.60.0.2", LARGE)
        with pod:
            assert entry(free)
        out.sendto(PACKET, (to, PORT))  # their neighbours are known then
        refresh(send, pressing)
        drain(free)
        begin()
        for _ in range(MANY):
            out.sendto(PACKET, (to, PORT))
        told = passed()
        assert len(drain(free)) == MANY
        assert abs(told["judged"] - MANY) <= 10, told
