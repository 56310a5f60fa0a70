# SPDX-License-Identifier: GPL-2.0-only
"""What is known of containers' packets is not for strangers to change: they take nobody's packets
over, and cost nobody time."""

import socket
import time
from collections.abc import Callable

from inside import inside, mark
from inside.containers import (
    APART,
    LARGE,
    MACS,
    MANY,
    PACKET,
    PORT,
    Bridged,
    bridge,
    forwarding,
    learn,
    refresh,
    sending,
    socket_in,
)
from inside.net import Namespace, Peer, drain, ip, nft, nft_counters, pressure, udp
from inside.netlink import moves
from inside.suite import begin, dropped, entry, passed, wait_for

pytestmark = mark.newest

IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
SOURCE = 6000  # a port
EVENTS = 200  # of a stranger's neighbours, in one request
ROUNDS = 20


@inside()
def test_who_gets_what_a_bridge_sends_to_all_takes_nothing_over() -> None:
    """It has the other one's addresses, says nothing, and gets the very buffers, as its port is
    the last one that the bridge sends to."""
    forwarding()
    bridge()
    peer = Peer()
    stranger, pod = (Bridged(f"p{i}", MACS[0]) for i in range(2))
    ip(f"neighbour replace 10.60.0.2 lladdr {MACS[0]} dev br0\n")
    full, free = socket_in(stranger, "0.0.0.0"), socket_in(pod, "0.0.0.0", LARGE)
    for where, sock in ((stranger, full), (pod, free)):
        with where:
            assert entry(sock)
    with pressure() as pressing, sending(peer, "10.60.0.2") as send:
        for _ in range(10):
            pressing.raise_()
            send(2)
            time.sleep(APART)
        drain(free)
        pressing.raise_()
        send(MANY)
        got = []

        def all_there() -> bool:
            got.extend(drain(free))
            return len(got) == MANY

        # Before 6.5 some may wait for ksoftirqd.
        wait_for(all_there)


def at_home(peer: Peer, address: str) -> tuple[Namespace, Namespace]:
    """One namespace that has both addresses."""
    one = Namespace()
    with one:
        ip(f"address add {peer.theirs4}/32 dev lo\naddress add {address}/32 dev lo\n")
    return one, one


def by_a_pair(peer: Peer, address: str) -> tuple[Namespace, Namespace]:
    """Two of another user's, and a pair of devices between them."""
    here, there = Namespace(anothers=True), Namespace(anothers=True)
    macs = "02:70:00:00:00:01", "02:70:00:00:00:02"
    with here:
        ip(
            f"link add eth0 address {macs[0]} type veth"
            f" peer name eth0 address {macs[1]} netns {there.path}\n"
            f"link set eth0 addrgenmode none up\naddress add {peer.theirs4}/24 dev eth0\n"
            f"route add {address}/32 dev eth0\n"
            f"neighbour replace {address} lladdr {macs[1]} dev eth0\n"
        )
    with there:
        ip(
            f"link set eth0 addrgenmode none up\naddress add {peer.ours4}/24 dev eth0\n"
            f"address add {address}/32 dev eth0\n"
        )
    return here, there


WAYS: dict[str, Callable[[Peer, str], tuple[Namespace, Namespace]]] = {
    way.__name__: way for way in (at_home, by_a_pair)
}


@mark.parametrize("way", list(WAYS))
@inside()
def test_who_sends_himself_the_same_takes_nothing_over(way: str) -> None:
    """What is traced is lost on its way. The stranger's packet with the same header gets its
    buffer next, and comes to a full socket."""
    forwarding()
    peer, pod = Peer(), Peer(2)
    free = socket_in(pod, pod.theirs4, LARGE)
    here, there = WAYS[way](peer, pod.theirs4)
    full = socket_in(there, pod.theirs4)
    with pod:
        assert entry(free)
    with there:
        assert entry(full)
    out = peer.udp(peer.theirs4, SOURCE)
    with here:
        same = udp(peer.theirs4, SOURCE)
    same.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 63)
    for sock in out, same:  # not to be fragmented, so both have the identification 0
        sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    to = pod.theirs4, PORT
    with pressure() as pressing:
        nft(
            "table ip lost { counter seen { };"
            " chain each { type filter hook forward priority filter; counter name seen drop; }; }"
        )
        sent = 0
        pressing.raise_()
        end = time.monotonic() + 10 * APART
        while time.monotonic() < end:
            pressing.again()
            out.sendto(PACKET, to)
            same.sendto(PACKET, to)
            sent += 1
        # None was taken for the stranger's before.
        assert nft_counters() == [sent] and sent > 100
        nft("delete table ip lost")
        pressing.raise_()
        for _ in range(MANY):
            out.sendto(PACKET, to)
        assert len(drain(free)) == MANY


@mark.parametrize("who", ["neighbour", "itself"])
@inside()
def test_what_does_not_come_by_the_host_is_judged_in_the_container(who: str) -> None:
    """A neighbour sends it over the bridge, or the container by its loopback."""
    forwarding()
    bridge()
    peer, pod, neighbour = Peer(), Bridged("p0", MACS[0]), Bridged("p1", MACS[1])
    ip(f"neighbour replace 10.60.0.2 lladdr {MACS[0]} dev br0\n")
    with neighbour:
        ip("address flush dev eth0\naddress add 10.60.0.3/24 dev eth0\n")
        ip(f"neighbour replace 10.60.0.2 lladdr {MACS[0]} dev eth0\n")
    pod.speak()
    full = socket_in(pod, "0.0.0.0")
    with neighbour if who == "neighbour" else pod:
        out = udp("0.0.0.0")
    with pod:
        assert entry(full)
    with pressure() as pressing, sending(peer, "10.60.0.2") as send:
        learn(send, pod, pressing)
        refresh(send, pressing)
        begin()
        for _ in range(MANY):
            out.sendto(PACKET, ("10.60.0.2", PORT))
        assert dropped()["socket_full"] == MANY, (dropped(), passed())


@inside()
def test_what_others_see_costs_next_to_nothing() -> None:
    """Anybody may have a neighbour move as often as he likes."""
    forwarding()
    peer, pod, stranger = Peer(), Peer(2), Peer(5)
    full = socket_in(pod, pod.theirs4)
    with pod:
        assert entry(full)
    with stranger:
        kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        macs = (f"02:66:00:00:00:{i % 100:02x}" for i in range(EVENTS))
        request = moves(stranger.ours4, macs, "eth0")

    def took() -> float:
        began = time.monotonic()
        kernel.send(request)
        return time.monotonic() - began

    alone = min(took() for _ in range(ROUNDS))
    with pressure() as pressing, sending(peer, pod.theirs4) as send:

        def known() -> float:
            refresh(send, pressing)
            return took()

        beside = min(known() for _ in range(ROUNDS))
    assert beside < 1.5 * alone, (alone, beside)
