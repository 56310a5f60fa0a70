# SPDX-License-Identifier: GPL-2.0-only
"""B2: what is left to stock, since it is told so, or since looking does not pay."""

import os
import socket
import time

from inside import Skip, inside, mark
from inside.net import SMALL, UDP_SEGMENT, datagram, drain, drops, port_of, pressure, udp
from inside.paths import path
from inside.suite import dropped, early, entry, observed, passed, set_knob, wait_for

pytestmark = mark.ends

RATE = 1500  # packets/s, of which it matters whether they are looked at
BUFFER = 20_000  # bytes; some twenty small packets
CLIENTS, REPLIES = 100, 60
AT_ONCE, SEGMENTS = 40, 60
USER, OWN = 1000, 20


@inside()
def test_where_looking_does_not_pay_the_cpu_rests_from_it() -> None:
    """One packet of some twenty is lost: all the looking would cost more than it saves."""
    receiver, send, _keep = path("veth4", rcvbuf=BUFFER)
    fit = 0
    while not drops(receiver):
        send(datagram(fit, 100))
        fit += 1
    assert fit >= 16
    drain(receiver)
    sent, looked, begin = 0, passed()["judged"], time.monotonic()
    while time.monotonic() < begin + 4:
        for number in range(fit):
            send(datagram(number, 100))
        sent += fit
        drain(receiver)
    looked = passed()["judged"] - looked
    if sent < 4 * RATE:
        raise Skip("too slow to send so much that looking at it costs anything")
    assert 0 < looked < sent / 2
    # And looks again: what nobody reads is dropped early before long.
    before = early(receiver)
    wait_for(lambda: send(datagram(0, 100)) and early(receiver) > before + 10)


@inside(filter={"mode": "observe"})
def test_observe_counts_and_drops_nothing() -> None:
    receiver, send, _keep = path("veth4")
    for number in range(200):
        send(datagram(number, 100))
    assert early(receiver) == 0
    assert sum(dropped().values()) == 0
    # The first drop is what raised the pressure.
    assert observed()["socket_full"] == drops(receiver) - 1 > 150
    assert len(drain(receiver)) + drops(receiver) == 200


@inside()
def test_switched_off_it_drops_nothing() -> None:
    receiver, send, _keep = path("veth4")
    set_knob("enable", 0)
    for number in range(200):
        send(datagram(number, 100))
    assert len(drain(receiver)) + drops(receiver) == 200
    set_knob("enable", 1)
    assert sum(dropped().values()) == 0
    assert sum(observed().values()) == 0


@inside(filter={"exempt": "7000-7009"})
def test_exempt_ports_are_left_to_stock() -> None:
    with pressure() as other:
        exempt = udp("127.0.0.1", 7005, SMALL)
        sender = udp()
        for number in range(100):
            other.again()
            sender.sendto(datagram(number, 100), ("127.0.0.1", 7005))
        assert drops(exempt) > 50
        assert early(exempt) == 0
        assert passed()["exempt"] == 100
        assert other.early() == dropped()["socket_full"] > 0


@mark.parametrize(("address", "port"), [("127.0.0.1", 68), ("::1", 546)])
@inside()
def test_a_dhcp_client_is_exempt(address: str, port: int) -> None:
    with pressure() as other:
        client, server = udp(address, port, SMALL), udp(address)
        for number in range(100):
            other.again()
            server.sendto(datagram(number, 100), (address, port))
        assert drops(client) > 50
        assert early(client) == 0
        assert passed()["exempt"] == 100


@mark.parametrize(("address", "port"), [("127.0.0.1", 53), ("127.0.0.1", 123), ("::1", 53)])
@inside()
def test_replies_to_a_client_are_exempt(address: str, port: int) -> None:
    with pressure() as other:
        client, server = udp(address, 0, SMALL), udp(address, port)
        for number in range(20):
            other.again()
            server.sendto(datagram(number, 1000), (address, port_of(client)))
        assert drops(client) > 0
        assert early(client) == 0


@inside()
def test_a_flood_is_no_reply_whatever_its_source_port() -> None:
    client, server = udp("127.0.0.1", 0, SMALL), udp("127.0.0.1", 53)
    to = client.getsockname()

    def flooded() -> int:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            server.sendto(b"x", to)
        return early(client)

    wait_for(flooded)
    # Nor does it use up what others' replies have, who get few of them on a host however fast.
    other = udp("127.0.0.1", 0, SMALL)
    for number in range(10):
        for _ in range(300):
            server.sendto(b"x", to)
        server.sendto(datagram(number, 1000), other.getsockname())
    assert drops(other) > 0
    assert early(other) == 0


@inside()
def test_a_flood_leaves_others_their_replies_before_its_rate_is_known() -> None:
    """More than others have in a second comes at once: as segments, on a host however slow."""
    with pressure() as full:
        client, other = (udp("127.0.0.1", 0, SMALL) for _ in range(2))
        flood, server = udp("127.0.0.1", 53), udp("127.0.0.2", 53)
        flood.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1)
        full.raise_()
        before = passed()["exempt"]
        for _ in range(AT_ONCE):
            flood.sendto(bytes(SEGMENTS), client.getsockname())
        for number in range(10):
            server.sendto(datagram(number, 1000), other.getsockname())
        assert passed()["exempt"] - before < 300
        assert drops(client) > 1000
        assert drops(other) > 0
        assert early(other) == 0


@inside()
def test_replies_to_many_are_few_and_strangers_use_up_nobodys_own() -> None:
    """Each is sent less than a flood, from a port that sends replies, and asked for nothing."""
    with pressure() as other:
        clients = [udp("127.0.0.1", 0, SMALL) for _ in range(CLIENTS)]
        addresses = [client.getsockname() for client in clients]
        asks, stranger, server = (
            udp("127.0.0.1", 0, SMALL),
            udp("127.0.0.1", 53),
            udp("127.0.0.2", 53),
        )
        asks.connect(server.getsockname())
        assert entry(asks)  # and whom it asks is known from here on
        other.raise_()
        before, began = passed()["exempt"], time.monotonic()
        for number in range(REPLIES):
            other.again()
            for address in addresses:
                stranger.sendto(datagram(number, 100), address)
        took = time.monotonic() - began
        exempt = passed()["exempt"] - before
        assert exempt <= 1000 * (took + 2), (exempt, took)
        other.raise_()
        before = passed()["exempt"]
        for number in range(20):
            stranger.sendto(datagram(number, 100), addresses[0])
            server.sendto(datagram(number, 1000), asks.getsockname())
        assert drops(asks) > 0
        assert early(asks) == 0
        assert early(clients[0]) > 0


@inside()
def test_a_users_own_peers_use_up_no_other_users_replies() -> None:
    """Twenty connected sockets of a user get far more replies than are exempt."""
    with pressure() as other:
        many, server = udp("127.0.0.2", 53), udp("127.0.0.3", 53)
        os.seteuid(USER)
        own = [udp() for _ in range(OWN)]
        os.seteuid(0)
        asks = udp()
        for sock in (*own, asks):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
            sock.connect((server if sock is asks else many).getsockname())
            assert entry(sock)
        other.raise_()
        many.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1)
        for number in range(20):
            other.again()
            for sock in own:
                many.sendto(bytes(SEGMENTS), sock.getsockname())
            server.sendto(datagram(number, 1000), asks.getsockname())
        assert sum(early(sock) for sock in own) > 0
        assert drops(asks) > 0
        assert early(asks) == 0
