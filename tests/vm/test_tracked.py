# SPDX-License-Identifier: GPL-2.0-only
"""Where connections are tracked: what is shed is dropped ahead of that, and never by mistake."""

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inside import inside, mark
from inside.containers import (
    APART,
    LARGE,
    MANY,
    PACKET,
    PORT,
    forwarding,
    learn,
    nat,
    refresh,
    sending,
    socket_in,
)
from inside.net import SMALL, Peer, Pressure, drain, drops, nft, pressure, udp
from inside.suite import begin, dropped, passed, wait_for

pytestmark = mark.newest

FLOWS = 20
NETLINK_NETFILTER = 12
NLM_F_REQUEST, NLM_F_ACK = 1, 4


def watch_tracking() -> None:
    """Count what passes the tracking of connections."""
    nft(
        "table ip seen { chain in { type filter hook prerouting priority mangle;"
        f" udp dport {PORT} ct state new,established counter; }}; }}"
    )


def tracked_packets() -> int:
    """Packets that have passed the tracking of connections, where that is looked at."""
    listing = ["nft", "-j", "list", "table", "ip", "seen"]
    found = json.loads(subprocess.run(listing, capture_output=True, check=True).stdout)
    (rule,) = (entry["rule"]["expr"] for entry in found["nftables"] if "rule" in entry)
    (count,) = (part["counter"]["packets"] for part in rule if "counter" in part)
    return int(count)


def await_ahead(send: Callable[[int], None], pressing: Pressure) -> None:
    """Send until most is dropped ahead of that."""

    def ahead() -> bool:
        pressing.raise_()
        before = tracked_packets()
        send(MANY)
        return tracked_packets() - before < MANY / 2

    wait_for(ahead)


@contextmanager
def published() -> Iterator[tuple[str, socket.socket]]:
    """In a container behind destination NAT."""
    with nat() as (to, one, _, _):
        yield to, socket_in(one, "0.0.0.0")


@contextmanager
def here() -> Iterator[tuple[str, socket.socket]]:
    """In no container at all."""
    yield "10.1.0.1", udp("0.0.0.0", PORT, SMALL)


RECEIVERS = {f.__name__: f for f in (published, here)}


@mark.parametrize("receiver", list(RECEIVERS))
@inside()
def test_what_is_dropped_was_not_tracked_first(receiver: str) -> None:
    """But for a packet now and then, by which the host learns whose the others are."""
    forwarding()
    peer = Peer()
    with RECEIVERS[receiver]() as (to, full):
        watch_tracking()
        with pressure() as pressing, sending(peer, to) as send:
            await_ahead(send, pressing)
            before = drops(full)
            begin()
            pressing.raise_()
            send(MANY)
            assert drops(full) - before == MANY
            assert dropped()["socket_full"] >= MANY * 0.9


@inside()
def test_what_is_judged_ahead_is_judged_once() -> None:
    forwarding()
    peer = Peer()
    with nat() as (to, one, _, _):
        free = socket_in(one, "0.0.0.0", LARGE)
        with pressure() as pressing, sending(peer, to) as send:

            def known() -> bool:
                pressing.raise_()
                send(1)
                time.sleep(APART)
                begin()
                send(MANY)
                # As often as it is judged again behind: there, and in the container.
                return passed()["judged_before"] > 1.5 * MANY

            wait_for(known)
            told = passed()
            assert told["judged"] <= 1.2 * MANY, told
            assert len(drain(free)) > 0


IPCTNL_MSG_CT_DELETE, NFNL_SUBSYS_CTNETLINK, NLA_F_NESTED = 2, 1, 0x8000


def nested(*parts: tuple[int, bytes]) -> bytes:
    """Netlink attributes."""
    found = b""
    for kind, value in parts:
        one = struct.pack("HH", 4 + len(value), kind) + value
        found += one.ljust((len(one) + 3) & ~3, b"\0")
    return found


def forget_connection(source: tuple[str, int], to: tuple[str, int]) -> None:
    """What `conntrack -D` would do, in much less time."""
    ports = [(i + 2, struct.pack("!H", port)) for i, (_, port) in enumerate((source, to))]
    addresses = [(i + 1, socket.inet_aton(host)) for i, (host, _) in enumerate((source, to))]
    flow = nested(
        (1 | NLA_F_NESTED, nested(*addresses)),
        (2 | NLA_F_NESTED, nested((1, bytes([socket.IPPROTO_UDP])), *ports)),
    )
    body = struct.pack("BBH", socket.AF_INET, 0, 0) + nested((1 | NLA_F_NESTED, flow))
    kind = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_DELETE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as kernel:
        request = struct.pack("IHHII", 16 + len(body), kind, NLM_F_REQUEST | NLM_F_ACK, 1, 0)
        kernel.send(request + body)
        (error,) = struct.unpack_from("i", kernel.recv(8192), 16)
    if error:
        raise OSError(-error, os.strerror(-error))


@inside()
def test_a_changed_translation_holds_at_once() -> None:
    """In the very moment in which the connection is forgotten, the new rule counts."""
    forwarding()
    peer, one, other = Peer(), Peer(2), Peer(3)
    nft("table ip turn { chain in { type nat hook prerouting priority dstnat; }; }")
    full = socket_in(one, "0.0.0.0")
    free = socket_in(other, "0.0.0.0", LARGE)
    to = (peer.ours4, PORT)
    for source in range(6000, 6010):
        rule = f"add rule ip turn in udp dport {PORT} dnat to"
        nft(f"flush chain ip turn in\n{rule} {one.theirs4}")
        with peer:
            sender = udp(peer.theirs4, source)
        with sender, pressure() as pressing:

            def send(packets: int, out: socket.socket = sender) -> None:
                for _ in range(packets):
                    out.sendto(PACKET, to)

            learn(send, one, pressing)
            nft(f"flush chain ip turn in\n{rule} {other.theirs4}")
            pressing.raise_()
            lost = drops(full)
            send(3)
            forget_connection((peer.theirs4, source), to)
            send(10)
            assert (len(drain(free)), drops(full)) == (10, lost + 3)


def by_turns(one: Peer, other: Peer) -> str:
    return f"numgen inc mod 2 map {{ 0 : {one.theirs4}, 1 : {other.theirs4} }}"


@inside()
def test_connections_that_are_spread_are_judged_where_each_goes() -> None:
    """Each packet begins one, which goes to who is full and to who is free by turns."""
    forwarding()
    peer, one, other = Peer(), Peer(2), Peer(3)
    nft("table ip turn { chain in { type nat hook prerouting priority dstnat; }; }")
    nft(f"add rule ip turn in udp dport {PORT} dnat to {by_turns(one, other)}")
    full = socket_in(one, "0.0.0.0")
    free = socket_in(other, "0.0.0.0", LARGE)
    with pressure() as pressing, sending(peer, peer.ours4, MANY) as each:
        with sending(peer, peer.ours4, 2) as send:
            learn(send, one, pressing)
            refresh(send, pressing)
        drain(free)
        lost = drops(full)
        begin()
        each(MANY)
        told = dropped(), passed()
        assert (len(drain(free)), drops(full) - lost) == (MANY // 2, MANY // 2), told
        assert told[0]["socket_full"] >= 0.9 * MANY // 2, told


@inside()
def test_who_is_not_translated_may_be_with_the_next_packet() -> None:
    """Every other new connection is. One whose first packet is dropped is new once more."""
    forwarding()
    peer, one = Peer(), Peer(2)
    nft("table ip turn { chain in { type nat hook prerouting priority dstnat; }; }")
    watch_tracking()
    full = udp("0.0.0.0", PORT, SMALL)
    free = socket_in(one, "0.0.0.0", LARGE)
    with pressure() as pressing, sending(peer, peer.ours4) as send:
        await_ahead(send, pressing)
        nft(f"add rule ip turn in udp dport {PORT} numgen inc mod 2 == 0 dnat to {one.theirs4}")
        pressing.raise_()
        lost = drops(full)
        for _ in range(FLOWS):
            with sending(peer, peer.ours4) as new:
                new(3)
        got, gone = len(drain(free)), drops(full) - lost
        assert got + gone == 3 * FLOWS and gone <= FLOWS, (got, gone)


@inside()
def test_a_destination_that_a_rule_sets_by_the_packet_is_judged_by_the_packet() -> None:
    """Tracking knows nothing of that. Of every other flow the first packet is for who is full."""
    forwarding()
    peer, one, other = Peer(), Peer(2), Peer(3)
    watch_tracking()
    local = udp("0.0.0.0", PORT, SMALL)
    full = socket_in(one, "0.0.0.0")
    free = socket_in(other, "0.0.0.0", LARGE)
    with local, pressure() as pressing, sending(peer, peer.ours4) as send:
        await_ahead(send, pressing)
        nft("table ip turn { chain in { type filter hook prerouting priority mangle + 1; }; }")
        nft(f"add rule ip turn in udp dport {PORT} ip daddr set {by_turns(one, other)}")
        for _ in range(3):
            pressing.raise_()
            send(MANY)
            time.sleep(APART)
        refresh(send, pressing)
        drain(free)
        lost = drops(full), drops(local)
        for _ in range(FLOWS):
            with sending(peer, peer.ours4) as new:
                new(3)
        told = len(drain(free)), drops(full) - lost[0], drops(local) - lost[1]
        assert told == (3 * FLOWS / 2, 3 * FLOWS / 2, 0), told
