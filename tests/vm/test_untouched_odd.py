# SPDX-License-Identifier: GPL-2.0-only
"""What is no plain datagram is left to stock, while the CPU is under pressure.

Every test has a full socket of this host, to which such a packet may seem to be. It must be
received, or counted as wrong, as stock does it.
"""

import socket
import struct

from inside import inside, mark
from inside.net import Peer, datagram, drain, drops, port_of, udp
from inside.passing import LARGE, PORT, N, bystander, exchange
from inside.suite import passed, wait_for

pytestmark = mark.ends

SOL_PACKET, PACKET_VNET_HDR = 263, 15
ETH_P_IP, ETH_P_IPV6 = 0x0800, 0x86DD
UDP_NO_CHECK6_TX, UDP_NO_CHECK6_RX = 101, 102


def header(source: int, target: int, size: int) -> bytes:
    return struct.pack("!HHHH", source, target, 8 + size, 0)


@mark.cpus(1, 4)
@mark.parametrize("family", [4, 6])
@inside()
def test_fragments(family: int) -> None:
    peer = Peer()
    ours, theirs = (peer.ours4, peer.theirs4) if family == 4 else (peer.ours6, peer.theirs6)
    receiver, sender = udp(ours, PORT + 1, LARGE), peer.udp(theirs)
    # Every fragment but the first begins like a datagram to the full socket.
    payload = header(port_of(sender), PORT, 64) * 1000
    with bystander(address="0.0.0.0" if family == 4 else "::") as full:
        for _ in range(N // 4):
            full.again()
            sender.sendto(payload, (ours, PORT + 1))
        assert drain(receiver) == [payload] * (N // 4)
        before = full.early(), drops(full.sock)
        for _ in range(N // 4):
            sender.sendto(payload, (ours, PORT))
        # Stock drops them, when they are whole; that is not ours to hasten.
        assert (full.early(), drops(full.sock)) == (before[0], before[1] + N // 4)


@inside()
def test_ip_options() -> None:
    peer = Peer()
    receiver, sender = udp("0.0.0.0", PORT + 1, LARGE), peer.udp()
    # One that nobody knows, such that it looks like a whole header of UDP to the full socket.
    options = struct.pack("!BBHHH", 94, 8, PORT, 8 + 8 + 100, 0)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, options)
    with bystander() as full:
        exchange(full, sender, (peer.ours4, PORT + 1), receiver)
        before = full.early()
        sender.sendto(bytes(100), (peer.ours4, PORT))
        assert full.early() == before
        assert passed()["not_plain"] > N


@mark.parametrize("option", [54, 59])  # IPV6_HOPOPTS, IPV6_DSTOPTS
@inside()
def test_extension_headers(option: int) -> None:
    peer = Peer()
    receiver, sender = udp("::", PORT + 1, LARGE), peer.udp(peer.theirs6)
    # One unknown option, to be skipped, of such type and length that the header looks
    # like one of UDP to the full socket; and two bytes of padding.
    options = struct.pack("!BBHH", 0, 20, PORT, 64) + bytes((PORT & 255) - 2) + bytes([1, 2, 0, 0])
    sender.setsockopt(socket.IPPROTO_IPV6, option, options)
    with bystander(address="::") as full:
        exchange(full, sender, (peer.ours6, PORT + 1), receiver)
        before = full.early()
        sender.sendto(b"x", (peer.ours6, PORT))
        assert full.early() == before
        assert passed()["not_plain"] > N


@mark.parametrize("allowed", [1, 0])
@inside()
def test_no_checksum_with_ipv6(allowed: int) -> None:
    peer = Peer()
    receiver, sender = udp("::", PORT + 1, LARGE), peer.udp(peer.theirs6)
    sender.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_TX, 1)
    receiver.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, allowed)
    to = peer.ours6, PORT + 1
    with bystander(address="::") as full:
        if allowed:
            exchange(full, sender, to, receiver)
            return
        before = counters()
        for number in range(N):
            sender.sendto(datagram(number, 100), to)
        assert drain(receiver) == []
        assert grown(before, "Udp6InErrors") == grown(before, "Udp6InCsumErrors") == N


@mark.parametrize("size", [0, 8900])
@inside()
def test_empty_and_jumbo_datagrams(size: int) -> None:
    peer = Peer(mtu=9000)
    receiver, sender = udp(peer.ours4, PORT + 1, LARGE), peer.udp()
    with bystander() as full:
        exchange(full, sender, (peer.ours4, PORT + 1), receiver, size)


def wire(peer: Peer) -> socket.socket:
    """The peer's end of the cable."""
    with peer:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        made.bind(("eth0", 0))
    return made


def frame(peer: Peer, udp_part: bytes, family: int = 4, source: str = "") -> bytes:
    """An Ethernet frame from the peer to this host; the IP header is sound."""
    ethernet = bytes.fromhex("020000000101020000000102")
    if family == 6:
        addresses = (socket.inet_pton(socket.AF_INET6, a) for a in (peer.theirs6, peer.ours6))
        head = struct.pack("!IHBB", 6 << 28, len(udp_part), 17, 64) + b"".join(addresses)
        return ethernet + struct.pack("!H", ETH_P_IPV6) + head + udp_part
    addresses4 = socket.inet_aton(source or peer.theirs4) + socket.inet_aton(peer.ours4)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp_part), 1, 0, 64, 17, 0) + addresses4
    checksum = sum(struct.unpack("!10H", head))
    checksum = ~((checksum & 0xFFFF) + (checksum >> 16)) & 0xFFFF
    head = head[:10] + struct.pack("!H", checksum) + head[12:]
    return ethernet + struct.pack("!H", ETH_P_IP) + head + udp_part


def counters() -> dict[str, int]:
    """Of IPv4 by names such as Udp:InErrors, of IPv6 as Udp6InErrors."""
    with open("/proc/thread-self/net/snmp") as file:
        lines = [line.split() for line in file if line.startswith(("Ip:", "Udp:"))]
    with open("/proc/thread-self/net/snmp6") as file:
        found = {name: int(value) for name, value in map(str.split, file)}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        found |= {names[0] + n: int(v) for n, v in zip(names[1:], values[1:], strict=True)}
    return found


def grown(before: dict[str, int], name: str) -> int:
    return counters()[name] - before[name]


def prefix(family: int) -> str:
    return "Udp:" if family == 4 else "Udp6"


BAD = {
    "no room for a header": header(9, PORT, 0)[:5],
    "says less than a header": struct.pack("!HHHH", 9, PORT, 7, 0) + b"x" * 32,
    "says more than there is": struct.pack("!HHHH", 9, PORT, 500, 0) + b"x" * 32,
    "says zero": struct.pack("!HHHH", 9, PORT, 0, 0) + b"x" * 32,
    "wrong checksum": struct.pack("!HHHH", 9, PORT + 1, 40, 0x1234) + b"x" * 32,
}


@mark.parametrize("family", [4, 6])
@mark.parametrize("what", list(BAD))
@inside()
def test_malformed_packets_are_left_to_stock(what: str, family: int) -> None:
    """Fails if they are dropped early, or counted as other than stock counts them."""
    peer = Peer()
    wildcard = "0.0.0.0" if family == 4 else "::"
    receiver, out = udp(wildcard, PORT + 1, LARGE), wire(peer)

    def errors() -> tuple[int, int]:
        """What N of them do to (InErrors, InCsumErrors)."""
        before = counters()
        for _ in range(N):
            out.send(frame(peer, BAD[what], family))
        assert drain(receiver) == []
        name = prefix(family)
        return grown(before, name + "InErrors"), grown(before, name + "InCsumErrors")

    # Nobody is under pressure yet, so none is looked at. Not all kernels take a length of
    # zero for a jumbogram's, which lacks its checksum then.
    by_stock = errors()
    assert by_stock[0] == N
    with bystander(address=wildcard) as full:
        early_before, drops_before = full.early(), drops(full.sock)
        assert errors() == by_stock
        full_lost = full.early() - early_before, drops(full.sock) - drops_before
        assert full_lost == (0, 0)


@mark.parametrize(
    ("family", "size", "checksum"),
    [(4, 32, 0x1234), (4, 200, 0x1234), (6, 32, 0x1234), (6, 200, 0x1234), (6, 32, 0)],
)
@inside()
def test_what_is_wrong_and_finds_no_room_is_counted_once(
    family: int, size: int, checksum: int
) -> None:
    """Stock looks at the checksum first if the packet is small, at the room if it is large."""
    peer = Peer()
    out = wire(peer)
    bad = frame(peer, struct.pack("!HHHH", 9, PORT, 8 + size, checksum) + b"x" * size, family)
    with bystander(address="0.0.0.0" if family == 4 else "::") as full:
        before, name = counters(), prefix(family)
        for _ in range(N):
            out.send(bad)
        drain(full.sock)  # one that found room is seen to be wrong only when it is received
        wrong, full_up = grown(before, name + "InCsumErrors"), grown(before, name + "RcvbufErrors")
        assert wrong + full_up == grown(before, name + "InErrors") == N


@inside()
def test_padded_and_odd_packets_are_received() -> None:
    """The datagram ends before the packet does; stock trims it."""
    peer = Peer()
    receiver, out = udp("0.0.0.0", PORT + 1, LARGE), wire(peer)
    with bystander() as full:
        for _ in range(N):
            full.again()
            out.send(frame(peer, header(9, PORT + 1, 5) + b"12345" + b"beyond the datagram"))
        assert drain(receiver) == [b"12345"] * N


@mark.parametrize("source", ["239.1.2.3", "255.255.255.255", "0.0.0.0", "127.0.0.1", "own"])
@inside()
def test_martians(source: str) -> None:
    """Stock drops them before any socket, full or not."""
    peer = Peer()
    out = wire(peer)
    sent = struct.pack("!HHHH", 5000, PORT, 108, 0) + bytes(100)
    with bystander() as full:
        lost, before = (full.early(), drops(full.sock)), counters()
        for _ in range(N):
            out.send(frame(peer, sent, source=peer.ours4 if source == "own" else source))
        wait_for(lambda: grown(before, "Ip:InReceives") >= N)
        assert grown(before, "Udp:InErrors") == 0
        assert (full.early(), drops(full.sock)) == lost


@inside()
def test_what_cannot_be_trimmed() -> None:
    """Bytes follow the datagram, and where its sum is to be made is behind its end: the kernel
    drops it as too short, whatever socket it is for.
    """
    peer = Peer()
    out = wire(peer)
    out.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    needs_sum, begin = 1, 14 + 20 + 80
    virtio = struct.pack("=BBHHHH", needs_sum, 0, 0, 0, begin, 6)
    sent = virtio + frame(peer, struct.pack("!HHHH", 5000, PORT, 58, 0) + bytes(100))
    with bystander() as full:
        before = counters()
        for _ in range(N):
            full.again()
            out.send(sent)
        wait_for(lambda: grown(before, "Ip:InReceives") >= 2 * N)
        assert grown(before, "Udp:InErrors") == grown(before, "Udp:RcvbufErrors") + N
