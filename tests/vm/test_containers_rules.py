# SPDX-License-Identifier: GPL-2.0-only
"""Receivers in containers that have rules of their own.

Where such a container only tracks connections, or translates what it sends, the host judges for it
as for any. What it translates on its way in is judged in the container.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from inside import inside, mark
from inside.containers import (
    APART,
    LARGE,
    MANY,
    PACKET,
    PORT,
    came,
    forwarding,
    learn,
    nat,
    refresh,
    sending,
    socket_in,
)
from inside.net import (
    SMALL,
    SO_RCVBUFFORCE,
    Namespace,
    Peer,
    drain,
    drops,
    nft,
    pressure,
    udp,
)
from inside.suite import begin, dropped, entry, passed, wait_for

pytestmark = mark.newest

INNER = PORT + 1
HIDDEN, SHOWN = 7000, 7001  # source ports: before and after the host has translated them
KNOWN_FOR = 1.0  # seconds for which a trail that nothing confirms is followed
TRACKING = {
    "state": "chain in { type filter hook prerouting priority mangle; ct state new counter; };",
    "masquerade": "chain out { type nat hook postrouting priority srcnat; masquerade; };",
}


def rules(pod: Namespace, chains: str) -> None:
    """In the container."""
    with pod:
        nft(f"table ip own {{ {chains} }}")


def redirect(pod: Namespace) -> None:
    """Have what comes to the port go to another one of the container."""
    chain = f"type nat hook prerouting priority dstnat; udp dport {PORT} redirect to :{INNER};"
    rules(pod, f"chain in {{ {chain} }};")


def inner_socket(pod: Namespace, rcvbuf: int) -> socket.socket:
    with pod:
        return udp("0.0.0.0", INNER, rcvbuf)


@contextmanager
def routed() -> Iterator[tuple[str, Namespace]]:
    one = Peer(2)
    yield one.theirs4, one


@contextmanager
def published() -> Iterator[tuple[str, Namespace]]:
    with nat() as (to, one, _, _):
        yield to, one


WAYS = {f.__name__: f for f in (routed, published)}


@mark.parametrize("tracking", list(TRACKING))
@mark.parametrize("way", list(WAYS))
@inside()
def test_a_container_that_tracks_connections_is_judged_by_the_host(way: str, tracking: str) -> None:
    forwarding()
    peer = Peer()
    with WAYS[way]() as (to, one):
        rules(one, TRACKING[tracking])
        full = socket_in(one, "0.0.0.0")
        with pressure() as pressing, sending(peer, to) as send:
            learn(send, one, pressing)
            arrived = came(one)
            refresh(send, pressing)
            lost = drops(full)
            begin()
            send(MANY)
            told = dropped(), passed()
            assert drops(full) - lost == MANY, told
            assert came(one) - arrived < MANY / 10, told
            assert told[0]["socket_full"] >= 0.9 * MANY, told


@mark.parametrize("tracking", list(TRACKING))
@mark.parametrize("way", list(WAYS))
@inside()
def test_what_such_a_container_can_take_is_judged_once(way: str, tracking: str) -> None:
    forwarding()
    peer = Peer()
    with WAYS[way]() as (to, one):
        rules(one, TRACKING[tracking])
        sock = socket_in(one, "0.0.0.0")
        with pressure() as pressing, sending(peer, to) as send:
            learn(send, one, pressing)
            drain(sock)
            sock.close()
            sock = socket_in(one, "0.0.0.0", LARGE)
            with one:
                assert entry(sock)  # it is tracked from here on
            pressing.raise_()
            begin()
            send(MANY)
            told = passed()
            assert len(drain(sock)) == MANY, told
            assert told["judged"] <= 1.2 * MANY and told["judged_before"] > 0.9 * MANY, told


@inside()
def test_what_a_container_redirects_is_judged_in_it() -> None:
    """By who gets it, and not by who has the port for which it came, and is full."""
    forwarding()
    peer, one = Peer(), Peer(2)
    decoy = socket_in(one, "0.0.0.0")
    with one, udp() as out:
        while not drops(decoy):
            out.sendto(b"x" * 300, ("127.0.0.1", PORT))
    redirect(one)
    free = inner_socket(one, LARGE)
    with decoy, pressure() as pressing, sending(peer, one.theirs4, 10) as send:
        for _ in range(5):  # that a trail may begin
            pressing.raise_()
            send(10)
            time.sleep(APART)
        drain(free)
        lost = drops(decoy)
        pressing.raise_()
        begin()
        send(MANY)
        told = dropped(), passed()
        assert (len(drain(free)), drops(decoy) - lost) == (MANY, 0), told
        assert told[1]["forwarded"] + told[1]["traced"] >= MANY, told
        free.close()
        with inner_socket(one, SMALL) as full:
            with one:
                assert entry(full)
            send(10)
            arrived, before = came(one), (drops(full), drops(decoy))
            pressing.raise_()
            begin()
            send(MANY)
            told = dropped(), passed()
            assert (drops(full), drops(decoy)) == (before[0] + MANY, before[1]), told
            assert came(one) - arrived >= MANY, told
            assert told[0]["socket_full"] >= 0.9 * MANY, told


@inside()
def test_what_a_container_redirects_from_now_on_arrives_once_the_trail_is_over() -> None:
    """No rule of a container tells of itself."""
    forwarding()
    peer, one = Peer(), Peer(2)
    full, free = socket_in(one, "0.0.0.0"), inner_socket(one, LARGE)
    with pressure() as pressing, sending(peer, one.theirs4) as send:
        learn(send, one, pressing)
        redirect(one)
        time.sleep(KNOWN_FOR + APART)
        lost = drops(full)
        pressing.raise_()
        begin()
        send(MANY)
        assert (len(drain(free)), drops(full) - lost) == (MANY, 0), (dropped(), passed())


def hide(one: Peer) -> None:
    """Have the host translate one source. For any new connection it may do so."""
    chain = f"udp sport {HIDDEN} snat to {one.ours4}:{SHOWN};"
    nft(f"table ip hide {{ chain out {{ type nat hook postrouting priority srcnat; {chain} }}; }}")


def sharing(
    pod: Namespace, address: str, rcvbuf: int, how: int = socket.SO_REUSEADDR
) -> socket.socket:
    """One of several sockets of the port."""
    with pod:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, how, 1)
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, rcvbuf)
        made.bind((address, PORT))
    return made


@inside()
def test_whose_source_the_host_translates_gets_to_who_waits_for_that_source() -> None:
    """Others have shown the host the way, to a socket that is full and hears all the rest."""
    forwarding()
    peer, one = Peer(), Peer(2)
    hide(one)
    full = sharing(one, "0.0.0.0", SMALL)
    with sharing(one, one.theirs4, LARGE) as free, full, pressure() as pressing:
        free.connect((one.ours4, SHOWN))
        with sending(peer, one.theirs4) as send, peer.udp(port=HIDDEN) as hidden:
            learn(send, one, pressing)
            refresh(send, pressing)
            lost = drops(full)
            begin()
            for _ in range(MANY):
                hidden.sendto(PACKET, (one.theirs4, PORT))
            told = dropped(), passed()
            assert (len(drain(free)), drops(full) - lost) == (MANY, 0), told


@inside()
def test_a_new_connection_is_not_judged_by_one_of_several_that_share_the_port() -> None:
    """The kernel picks one by the source, which may yet be translated."""
    forwarding()
    peer, one = Peer(), Peer(2)
    hide(one)
    full, free = (sharing(one, "0.0.0.0", size, socket.SO_REUSEPORT) for size in (SMALL, LARGE))
    with full, free, pressure() as pressing, sending(peer, one.theirs4, MANY) as each:
        with sending(peer, one.theirs4, 50) as send:

            def known() -> bool:
                refresh(send, pressing)
                time.sleep(APART)
                begin()
                send(50)
                return passed()["forwarded"] == 0 and dropped()["socket_full"] > 0

            wait_for(known)
            refresh(send, pressing)
        drain(free)
        lost = drops(full)
        begin()
        each(MANY)
        told = dropped(), passed()
        got, gone = len(drain(free)), drops(full) - lost
        assert got + gone == MANY and min(got, gone) > 0, (got, gone, told)
        # Those that are traced are judged in the container, by who gets them.
        assert told[0]["socket_full"] <= told[1]["traced"] < MANY / 10, told
        assert told[1]["forwarded"] == 0, told
