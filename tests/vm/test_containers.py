# SPDX-License-Identifier: GPL-2.0-only
"""Receivers in containers: judged where the host first sees the packet, and never by mistake.

A container is another namespace of the same guest, behind a veth pair of the host, which forwards
to it what another machine sends. The container's socket is full and nobody reads it. What is
dropped for it by the host never comes to the container's device.
"""

import json
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inside import inside, mark
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
    nat,
    refresh,
    sending,
    socket_in,
)
from inside.net import Namespace, Peer, drain, drops, ip, pressure, udp_errors
from inside.netlink import RTM_NEWROUTE, RTM_NEWRULE, neighbour, netlink
from inside.suite import begin, dropped, early, entry, observed, passed, setting, wait_for

pytestmark = mark.newest

SERVICE4, SERVICE6 = "10.50.0.9", "fd50::9"
KNOWN_FOR = 1.0  # seconds without a packet, of a trail and of pressure


class Routed:
    """A container that the host routes an address to."""

    def __init__(self, number: int, service: bool = True) -> None:
        self.pod = Peer(number)
        with self.pod:
            ip(f"address add {SERVICE4}/32 dev lo\naddress add {SERVICE6}/128 dev lo nodad\n")
        if service:
            self.serve()

    def serve(self) -> None:
        ip(f"route replace {SERVICE4}/32 via {self.pod.theirs4}\n")
        ip(f"route replace {SERVICE6}/128 via {self.pod.theirs6}\n")


@mark.parametrize("sources", [1, 50])
@mark.parametrize("to", [SERVICE4, SERVICE6])
@inside()
def test_a_container_is_judged_by_the_host(to: str, sources: int) -> None:
    """All counts are the container's, too, and no packet is counted twice."""
    forwarding()
    peer, one = Peer(), Routed(2)
    sock = socket_in(one.pod, to)
    with pressure() as pressing, sending(peer, to, sources) as send:
        learn(send, one.pod, pressing)
        arrived = came(one.pod)
        refresh(send, pressing)
        with one.pod:
            before = (drops(sock), early(sock), udp_errors(":" in to)[0])
        begin()
        send(MANY)
        with one.pod:
            after = (drops(sock), early(sock), udp_errors(":" in to)[0])
        assert [b - a for a, b in zip(before, after, strict=True)] == [MANY] * 3
        assert came(one.pod) - arrived < MANY / 10  # those that are traced, and of neighbours
        assert dropped()["socket_full"] == MANY


@inside()
def test_one_flow_goes_to_two_containers_by_its_type_of_service() -> None:
    forwarding()
    peer, one, other = Peer(), Routed(2), Routed(3, service=False)
    full, free = socket_in(one.pod, SERVICE4), socket_in(other.pod, SERVICE4, LARGE)
    sort = 0x10
    ip(f"route add {SERVICE4}/32 tos {sort:#x} via {other.pod.theirs4}\n")
    out = peer.udp()
    with pressure() as pressing, sending(peer, SERVICE4) as send:
        learn(send, one.pod, pressing)
        pressing.raise_()
        for number in range(MANY):
            out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, sort * (number % 2))
            out.sendto(PACKET, (SERVICE4, PORT))
        assert len(drain(free)) == MANY / 2
        with one.pod:
            assert drops(full) >= MANY / 2


@inside()
def test_who_is_not_full_is_let_through_and_judged_once() -> None:
    forwarding()
    peer, one = Peer(), Routed(2)
    sock = socket_in(one.pod, SERVICE4)
    with pressure() as pressing, sending(peer, SERVICE4) as send:
        learn(send, one.pod, pressing)
        drain(sock)
        sock.close()
        sock = socket_in(one.pod, SERVICE4, LARGE)
        with one.pod:
            assert entry(sock)  # it is tracked from here on
        pressing.raise_()
        begin()
        send(MANY)
        assert len(drain(sock)) == MANY
        told = passed()
        assert told["judged"] <= MANY + 2 and told["judged_before"] > MANY * 0.9, told


@inside()
def test_what_is_spared_and_observed_is_so_in_containers() -> None:
    forwarding()
    peer, one = Peer(), Routed(2)
    sock = socket_in(one.pod, SERVICE4)
    with pressure() as pressing, sending(peer, SERVICE4) as send:
        learn(send, one.pod, pressing)
        for knob, value, back in (
            ("filter/mode", "observe", "enforce"),
            ("filter/exempt", f"{PORT}", "68,546,from:53,from:123"),
        ):
            with setting(knob, value, back):
                pressing.raise_()
                begin()
                arrived = came(one.pod)
                send(MANY)
                assert came(one.pod) - arrived >= MANY, knob
                assert dropped()["socket_full"] == 0, knob
        assert drops(sock) > 2 * MANY
        assert observed()["socket_full"] == 0


@inside()
def test_what_goes_to_other_machines_is_untouched() -> None:
    """As long as no socket here is known to be theirs, which needs a namespace of this one."""
    forwarding()
    peer = Peer()
    ip("link add away type dummy\nlink set away up\naddress add 10.90.0.1/24 dev away\n")
    ip("neighbour replace 10.90.0.9 lladdr 02:90:00:00:00:09 dev away\n")
    listing = ["ip", "-json", "-statistics", "link", "show", "away"]

    def left() -> int:
        (found,) = json.loads(subprocess.run(listing, capture_output=True, check=True).stdout)
        return int(found["stats64"]["tx"]["packets"])

    with pressure() as pressing, sending(peer, "10.90.0.9") as send:
        before = left()
        begin()
        for _ in range(10):
            pressing.raise_()
            send(MANY)
        told = passed()
        assert left() - before == 10 * MANY
        assert told["forwarded"] + told["traced"] > 5 * MANY, told


@contextmanager
def routes() -> Iterator[tuple[str, Namespace, Namespace, Callable[[], None]]]:
    """Another container has the address, too, and the route is changed."""
    one, other = Routed(2), Routed(3, service=False)
    # A unicast route, of the main table, as one that an administrator has made.
    head = struct.pack("8BI", socket.AF_INET, 32, 0, 0, 254, 3, 0, 1, 0)
    there = {"a1": socket.inet_aton(SERVICE4), "a5": socket.inet_aton(other.pod.theirs4)}
    yield SERVICE4, one.pod, other.pod, lambda: netlink(RTM_NEWROUTE, head, **there)


@contextmanager
def rules() -> Iterator[tuple[str, Namespace, Namespace, Callable[[], None]]]:
    """A rule sends them elsewhere by what no one asked for before."""
    one, other = Routed(2), Routed(3, service=False)
    ip(f"route add {SERVICE4}/32 via {other.pod.theirs4} table 7\n")
    head = struct.pack("8BI", socket.AF_INET, 0, 24, 0, 7, 0, 0, 1, 0)
    source = {"a2": socket.inet_aton("10.1.0.0")}
    yield SERVICE4, one.pod, other.pod, lambda: netlink(RTM_NEWRULE, head, **source)


@contextmanager
def neighbours() -> Iterator[tuple[str, Namespace, Namespace, Callable[[], None]]]:
    """Another one on the bridge takes the address over."""
    bridge()
    one, other = (Bridged(f"p{i}", mac) for i, mac in enumerate(MACS))
    ip(f"neighbour replace 10.60.0.2 lladdr {MACS[0]} dev br0\n")
    one.speak()
    yield "10.60.0.2", one, other, lambda: neighbour("10.60.0.2", MACS[1], "br0")


@contextmanager
def ports() -> Iterator[tuple[str, Namespace, Namespace, Callable[[], None]]]:
    """Another one has even the hardware address, and the bridge finds it at another port."""
    bridge()
    one, other = (Bridged(f"p{i}", MACS[0]) for i in range(2))
    ip(f"neighbour replace 10.60.0.2 lladdr {MACS[0]} dev br0\n")
    one.speak()
    yield "10.60.0.2", one, other, other.speak


MOVES = {f.__name__: f for f in (routes, rules, nat, neighbours, ports)}


@mark.parametrize("move", list(MOVES))
@inside()
def test_who_has_moved_gets_every_packet(move: str) -> None:
    """The first is full, and stays; from the change on all belongs to the other one."""
    forwarding()
    peer = Peer()
    with MOVES[move]() as (to, one, other, change):
        full = socket_in(one, "0.0.0.0")
        free = socket_in(other, "0.0.0.0", LARGE)
        with pressure() as pressing, sending(peer, to) as send:
            learn(send, one, pressing)
            lost = drops(full)
            drain(free)
            # One that is traced just before: what is still known is known for a while.
            send(2)
            lost += 2
            begin()
            change()
            send(MANY)
            got, told = len(drain(free)), (dropped(), passed())
            assert (got, drops(full)) == (MANY, lost), (got, drops(full) - lost, told)


@inside()
def test_what_others_see_ends_no_trail() -> None:
    """Another namespace has a neighbour of the same address, and says that it moves."""
    forwarding()
    bridge()
    peer, pod, stranger = Peer(), Bridged("p0", MACS[0]), Peer(5)
    ip(f"neighbour replace 10.60.0.2 lladdr {MACS[0]} dev br0\n")
    pod.speak()
    full = socket_in(pod, "0.0.0.0")
    with pod:
        assert entry(full)
    with pressure() as pressing, sending(peer, "10.60.0.2") as send:

        def told_in_time() -> bool:
            """False where a change took so long that what was known was over by itself."""
            learn(send, pod, pressing)
            longest, before = 0.0, time.monotonic()
            refresh(send, pressing)
            begin()
            for i in range(MANY):
                if i % 10 == 0:
                    with stranger:
                        neighbour("10.60.0.2", f"02:66:00:00:00:{i // 10:02x}", "eth0")
                send(1)
                now = time.monotonic()
                longest, before = max(longest, now - before), now
            told = dropped()["socket_full"], passed(), longest
            right = told[0] == MANY and told[1]["forwarded"] == told[1]["judged"] == 0
            assert right or longest > KNOWN_FOR / 2, told
            return right

        wait_for(told_in_time)


@inside()
def test_a_container_that_starts_anew_gets_every_packet() -> None:
    """With the same address and port, in the same moment."""
    forwarding()
    peer = Peer()
    with pressure() as pressing, sending(peer, "10.60.0.2") as send:
        bridge()
        ip(f"neighbour replace 10.60.0.2 lladdr {MACS[0]} dev br0\n")
        for i in range(5):
            pod = Bridged(f"p{i}", MACS[0])
            pod.speak()
            free = socket_in(pod, "0.0.0.0", LARGE)
            send(MANY)
            assert len(drain(free)) == MANY
            free.close()
            full = socket_in(pod, "0.0.0.0")
            with pod:
                assert entry(full)
            learn(send, pod, pressing)
            full.close()
            ip(f"link delete p{i}\n")
            pod.close()
