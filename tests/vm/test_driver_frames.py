# SPDX-License-Identifier: GPL-2.0-only
"""Frames in the driver that look like the one before but for one thing.

A frame of a flow is not read anew if it looks like the one before. So what makes another packet of
it must be seen all the same: it is the kernel's to refuse.
"""

import socket
import struct
from collections.abc import Callable
from pathlib import Path

from inside import inside, mark
from inside.driver import PACKETS, PORT, ROOM, asking, met, tags_stay
from inside.net import Peer, Pressure, drops, udp_errors
from inside.suite import wait_for

pytestmark = mark.ends

IP_AT, UDP_AT = 14, 34
PAYLOAD = 100
LEAST = 0.5  # of the plain ones are dropped in the driver, or nothing is shown here


def counted(name: str) -> int:
    """One of this namespace's counters of IP, named as nstat does."""
    here = Path("/proc/thread-self/net")
    for file in "snmp", "netstat":
        lines = [line.split() for line in (here / file).read_text().splitlines()]
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            kind = names[0].removesuffix(":")
            if name.removeprefix(kind) in names[1:] and name.startswith(kind):
                return int(values[names.index(name.removeprefix(kind))])
    raise KeyError(name)


def refused_by_udp() -> int:
    """But for want of room."""
    errors, full = udp_errors()
    return errors - full


def sum_of(header: bytes) -> int:
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def with_sum(frame: bytearray) -> bytearray:
    frame[IP_AT + 10 : IP_AT + 12] = bytes(2)
    frame[IP_AT + 10 : IP_AT + 12] = sum_of(bytes(frame[IP_AT:UDP_AT])).to_bytes(2)
    return frame


def plain(peer: Peer, payload: int = PAYLOAD, number: int = 0) -> bytearray:
    """As UDP would send it, its own sum left out."""
    macs = (b"\2\0\0\0\1" + bytes([last]) for last in (1, 2))
    udp = struct.pack("!HHHH", 40000, PORT, 8 + payload, 0) + bytes(payload)
    addresses = map(socket.inet_aton, (peer.theirs4, peer.ours4))
    length = 20 + len(udp)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, number, 0, 64, 17, 0, *addresses)
    return with_sum(bytearray(b"".join(macs) + b"\x08\x00" + header + udp))


def put(frame: bytearray, at: int, value: int, size: int = 2) -> bytearray:
    frame[at : at + size] = value.to_bytes(size)
    return frame


def wrong_sum(frame: bytearray) -> bytearray:
    return put(frame, IP_AT + 10, (int.from_bytes(frame[IP_AT + 10 : IP_AT + 12]) + 1) & 0xFFFF)


def longer_than_it_is(frame: bytearray) -> bytearray:
    return with_sum(put(frame, IP_AT + 2, len(frame) - IP_AT + 1))


def too_short_for_its_datagram(frame: bytearray) -> bytearray:
    return with_sum(put(frame, IP_AT + 2, 20 + 8 + PAYLOAD - 1))


def shorter_than_a_header(frame: bytearray) -> bytearray:
    return put(frame, UDP_AT + 4, 7)


def of_no_known_protocol(frame: bytearray) -> bytearray:
    return with_sum(put(frame, IP_AT + 9, 253, 1))


def a_fragment(frame: bytearray) -> bytearray:
    return with_sum(put(frame, IP_AT + 6, 0x2000))


def a_fragment_of_the_same_sum(frame: bytearray) -> bytearray:
    """In one's complement this is zero, too."""
    return with_sum(put(frame, IP_AT + 6, 0xFFFF))


def of_another_version(frame: bytearray) -> bytearray:
    return with_sum(put(frame, IP_AT, 0x55, 1))


# And how many of them the kernel has met.
ODD: list[tuple[Callable[[bytearray], bytearray], Callable[[], int]]] = [
    (wrong_sum, lambda: counted("IpExtInCsumErrors")),
    (longer_than_it_is, lambda: counted("IpExtInTruncatedPkts")),
    (too_short_for_its_datagram, refused_by_udp),
    (shorter_than_a_header, refused_by_udp),
    (of_no_known_protocol, lambda: counted("IpInUnknownProtos")),
    (a_fragment, lambda: counted("IpReasmReqds")),
    (a_fragment_of_the_same_sum, lambda: counted("IpReasmReqds")),
    (of_another_version, lambda: counted("IpInHdrErrors")),
]


def raw(peer: Peer) -> socket.socket:
    with peer:
        out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        out.bind(("eth0", 0))
    return out


def is_left_to_the_kernel(
    out: socket.socket,
    full: Pressure,
    frame: bytearray,
    odd: bytearray,
    refused: Callable[[], int],
) -> None:
    """Each odd one behind a plain one, to a full socket."""
    full.raise_()
    lost, before, came = drops(full.sock), refused(), met()
    for _ in range(PACKETS):
        out.send(frame)
        out.send(odd)
    wait_for(lambda: drops(full.sock) - lost >= PACKETS - ROOM)
    wait_for(lambda: refused() - before >= PACKETS)
    seen = drops(full.sock) - lost, refused() - before, met() - came
    assert seen[0] <= PACKETS and seen[1] == PACKETS, seen
    assert seen[2] < (2 - LEAST) * PACKETS, seen


@inside()
def test_what_is_odd_is_left_to_the_kernel() -> None:
    peer, full = Peer(), Pressure("0.0.0.0", PORT)
    tags_stay(peer.device)
    with peer:
        tags_stay("eth0")
    out = raw(peer)
    with asking(peer.device):
        for make, refused in ODD:
            print(make.__name__)
            is_left_to_the_kernel(out, full, plain(peer), make(plain(peer)), refused)
