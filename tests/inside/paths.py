# SPDX-License-Identifier: GPL-2.0-only
"""Paths on which a datagram comes to its socket."""

import socket
from collections.abc import Callable

from inside.net import SMALL, Peer, port_of, udp, vrf

DEVICE = socket.SO_BINDTODEVICE
Send = Callable[[bytes], object]


def path(kind: str, rcvbuf: int = SMALL) -> tuple[socket.socket, Send, list[object]]:
    """A receiver of some kind, how to send to it, and what must be kept for that."""
    if kind in ("loopback4", "loopback6"):
        there = "::1" if kind == "loopback6" else "127.0.0.1"
        receiver, sender = udp(there, rcvbuf=rcvbuf), udp(there)
        to = (there, port_of(receiver))
        return receiver, lambda data: sender.sendto(data, to), [sender]
    peer = Peer()
    keep: list[object] = [peer]
    ours, theirs = (peer.ours6, peer.theirs6) if kind.endswith("6") else (peer.ours4, peer.theirs4)
    if kind == "mapped":
        receiver = udp("::", rcvbuf=rcvbuf)
    elif kind == "vrf":
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        receiver.setsockopt(socket.SOL_SOCKET, DEVICE, vrf(peer))
        receiver.bind(("0.0.0.0", 0))
    else:
        wildcard = "::" if kind.endswith("6") else "0.0.0.0"
        receiver = udp(wildcard if kind.startswith("wildcard") else ours, rcvbuf=rcvbuf)
    sender = peer.udp(theirs)
    if kind.startswith("connected"):
        receiver.connect((theirs, port_of(sender)))
    if kind == "device":
        receiver.setsockopt(socket.SOL_SOCKET, DEVICE, peer.device.encode())
    keep.append(sender)
    return receiver, lambda data: sender.sendto(data, (ours, port_of(receiver))), keep
